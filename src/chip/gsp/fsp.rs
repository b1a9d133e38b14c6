//! Messages between driver and FSP, as they lie in FSP's message memory, and what the message that boots GSP
//! points at.
//!
//! A message is an MCTP packet with a vendor-defined body ("NVDM"). Drivers send one kind: "chain of trust"
//! (COT), which names the first firmware (FMC) for GSP, its signature, and the address of its parameters. FSP
//! answers with a status.
//!
//! Source: open-gpu-kernel-modules `kernel/gpu/fsp/kern_fsp*.h`, `gsp_fmc_boot_params`; nouveau
//! `nvkm/subdev/fsp/gh100.c`, `nvrm/gsp.h` (r570); checked on running guests.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of message memory that FSP's first channel has.
pub const EMEM_SIZE: usize = 1024;

crate::fields! {
    /// The MCTP header: the first (SOM) and last (EOM) packet of a message.
    MCTP_HEADER { 31:31 SOM, 30:30 EOM }
    /// The header of the message in it, which is the vendor's own.
    NVDM_HEADER {
        31:24 NVDM_TYPE, 23:8 VENDOR_ID = { NVIDIA: 0x10de }, 7:7 IC, 6:0 TYPE = { VENDOR_PCI: 0x7e }
    }
}

/// MCTP header of a message of a single packet.
pub const MCTP_SINGLE_PACKET: u32 = MCTP_HEADER::SOM.mask() | MCTP_HEADER::EOM.mask();

/// NVDM header without the type: a message of the PCI vendor NVIDIA.
pub const NVDM_VENDOR: u32 = NVDM_HEADER::VENDOR_ID.of(NVDM_HEADER::VENDOR_ID::NVIDIA)
    | NVDM_HEADER::TYPE.of(NVDM_HEADER::TYPE::VENDOR_PCI);

/// NVDM type: boot GSP by a chain of trust.
pub const NVDM_COT: u8 = 0x14;

/// NVDM type: FSP's answer.
pub const NVDM_RESPONSE: u8 = 0x15;

/// Version of the chain-of-trust message that Hopper's FSP takes.
pub const COT_VERSION: u16 = 1;

/// Version of the message that Blackwell's FSP takes. Its hash, key and signature are shorter, in the same
/// places.
pub const COT_VERSION_2: u16 = 2;

/// Error code: done.
pub const OK: u32 = 0x00;
/// Error code: not possible in this state.
pub const INVALID_STATE: u32 = 0x9e;
/// Error code: no such command.
pub const NOT_SUPPORTED: u32 = 0xa0;
/// Error code: the message or what it names is not acceptable.
pub const INVALID_DATA: u32 = 0xa1;

/// Both headers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Headers {
    /// MCTP: source and destination, sequence, first and last.
    pub mctp: U32,
    /// NVDM: vendor and type.
    pub nvdm: U32,
}

/// The message that boots GSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CotMessage {
    /// Headers.
    pub headers: Headers,
    /// [`COT_VERSION`].
    pub version: U16,
    /// Bytes from `version` on.
    pub size: U16,
    /// Bus address of the FMC image.
    pub fmc_image: U64,
    /// Bus address of an FRTS region in system memory; unused.
    pub frts_sysmem: U64,
    /// Its bytes.
    pub frts_sysmem_size: U32,
    /// Distance of the FRTS region from the end of VRAM; 0 when GSP resumes.
    pub frts_vidmem: U64,
    /// Its bytes.
    pub frts_vidmem_size: U32,
    /// SHA-384 of the image.
    pub hash: [u8; 48],
    /// RSA public key.
    pub public_key: [u8; 384],
    /// RSA signature.
    pub signature: [u8; 384],
    /// Bus address of [`FmcBootParams`].
    pub boot_params: U64,
}

/// FSP's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Response {
    /// Headers.
    pub headers: Headers,
    /// Task of FSP that answers.
    pub task: U32,
    /// NVDM type of the message that is answered.
    pub command: U32,
    /// 0 or an error.
    pub error: U32,
}

/// Where the firmware's parameters lie (`GSP_DMA_TARGET`): local memory is 0, and the two kinds of system
/// memory.
pub const TARGET_COHERENT_SYSTEM: u32 = 1;
/// System memory, not snooped.
pub const TARGET_NONCOHERENT_SYSTEM: u32 = 2;

/// Parameters of the FMC (`GSP_FMC_BOOT_PARAMS`), in system memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FmcBootParams {
    /// Regions that confidential computing uses.
    pub init_params: [u8; 8],
    /// Where the description of the GSP-RM image is.
    pub rm_boot_target: U32,
    /// Bytes of that description.
    pub rm_description_size: U32,
    /// Its address.
    pub rm_description: U64,
    /// Where its WPR carveout is; unused.
    pub wpr_carveout: [u8; 12],
    /// True when the image is GSP-RM.
    pub is_rm_boot: U32,
    /// Where the arguments of GSP-RM are.
    pub rm_target: U32,
    /// Padding.
    pub padding: U32,
    /// Address of the arguments of GSP-RM ("libos arguments"); 0 when it resumes.
    pub rm_arguments: U64,
    /// Parameters of the security monitor.
    pub spdm: [u8; 24],
}

const _: () = assert!(size_of::<Headers>() == 8);
const _: () = assert!(size_of::<CotMessage>() == 868);
const _: () = assert!(std::mem::offset_of!(CotMessage, fmc_image) == 12);
const _: () = assert!(std::mem::offset_of!(CotMessage, frts_vidmem) == 32);
const _: () = assert!(std::mem::offset_of!(CotMessage, hash) == 44);
const _: () = assert!(std::mem::offset_of!(CotMessage, public_key) == 92);
const _: () = assert!(std::mem::offset_of!(CotMessage, signature) == 476);
const _: () = assert!(std::mem::offset_of!(CotMessage, boot_params) == 860);
const _: () = assert!(size_of::<Response>() == 20);
const _: () = assert!(size_of::<FmcBootParams>() == 0x50);
const _: () = assert!(std::mem::offset_of!(FmcBootParams, rm_description) == 0x10);
const _: () = assert!(std::mem::offset_of!(FmcBootParams, is_rm_boot) == 0x24);
const _: () = assert!(std::mem::offset_of!(FmcBootParams, rm_arguments) == 0x30);

impl CotMessage {
    /// Bytes that `size` counts.
    pub const PAYLOAD: usize = size_of::<Self>() - size_of::<Headers>();
}

/// The NVDM header of a message of that type.
pub const fn nvdm_header(kind: u8) -> u32 {
    // CAST: widening.
    NVDM_HEADER::NVDM_TYPE.of(kind as u32) | NVDM_VENDOR
}

impl Response {
    /// The answer to a message of type `command`.
    pub fn new(command: u8, error: u32) -> Self {
        let headers = Headers { mctp: MCTP_SINGLE_PACKET.into(), nvdm: nvdm_header(NVDM_RESPONSE).into() };
        Self { headers, task: 0.into(), command: u32::from(command).into(), error: error.into() }
    }
}
