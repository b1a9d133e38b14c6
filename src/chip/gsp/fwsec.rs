//! FWSEC: the firmware in the VBIOS that sets up a protected region (WPR2) for GSP, on chips without FSP. A
//! driver takes it from the VBIOS, writes a command into its data, and has GSP's falcon run it.
//!
//! Source: nouveau `nvkm/subdev/gsp/fwsec.c`, `include/nvfw/flcn.h`; nova-core `firmware/fwsec.rs`,
//! `vbios.rs`; checked on running guests.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Type of FWSEC in the VBIOS' table of firmware: signed for production.
pub const FWSEC_PROD: u8 = 0x85;

/// Bytes of a signature of a descriptor of version 3 (RSA-3K).
pub const SIGNATURE_SIZE: usize = 384;

/// Engine mask of GSP.
pub const ENGINE_GSP: u16 = 0x400;

/// Number of FWSEC among firmware for GSP's falcon, by which its fuse is found.
pub const UCODE_ID: u8 = 9;

crate::fields! {
    /// First word of a descriptor.
    UCODE_DESC_HEADER { 31:16 SIZE, 15:8 VERSION, 0:0 VERSION_AVAILABLE }
}

/// Descriptor of firmware, version 2 (Turing).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UcodeDescV2 {
    /// [`UCODE_DESC_HEADER`].
    pub header: U32,
    /// Bytes in the VBIOS.
    pub stored_size: U32,
    /// Bytes when it is unpacked; the same.
    pub uncompressed_size: U32,
    /// Where it starts.
    pub virtual_entry: U32,
    /// Where [`InterfaceHeader`] is in its data.
    pub interface_offset: U32,
    /// Where its code goes.
    pub imem_phys_base: U32,
    /// Bytes of its code.
    pub imem_load_size: U32,
    /// Address of its code.
    pub imem_virt_base: U32,
    /// Where its signed code is.
    pub imem_sec_base: U32,
    /// Bytes of that.
    pub imem_sec_size: U32,
    /// Where its data is in the image.
    pub dmem_offset: U32,
    /// Where its data goes.
    pub dmem_phys_base: U32,
    /// Bytes of its data.
    pub dmem_load_size: U32,
    /// Another size of its code.
    pub alt_imem_load_size: U32,
    /// Another size of its data.
    pub alt_dmem_load_size: U32,
}

/// Descriptor of firmware, version 3 (Ampere and Ada). Signatures follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UcodeDescV3 {
    /// [`UCODE_DESC_HEADER`].
    pub header: U32,
    /// Bytes in the VBIOS.
    pub stored_size: U32,
    /// Where the signature goes, in its data.
    pub pkc_data_offset: U32,
    /// Where [`InterfaceHeader`] is in its data.
    pub interface_offset: U32,
    /// Where its code goes.
    pub imem_phys_base: U32,
    /// Bytes of its code.
    pub imem_load_size: U32,
    /// Address of its code.
    pub imem_virt_base: U32,
    /// Where its data goes. It follows the code in the image.
    pub dmem_phys_base: U32,
    /// Bytes of its data.
    pub dmem_load_size: U32,
    /// Units that it is for.
    pub engine_id_mask: U16,
    /// Its number.
    pub ucode_id: u8,
    /// Signatures.
    pub signature_count: u8,
    /// A bit for each value of the fuse that a signature is for.
    pub signature_versions: U16,
    /// Reserved.
    pub reserved: U16,
}

/// Head of the list of interfaces in the firmware's data.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InterfaceHeader {
    /// 1.
    pub version: u8,
    /// Bytes of this.
    pub header_size: u8,
    /// Bytes of an entry.
    pub entry_size: u8,
    /// Entries.
    pub entries: u8,
}

/// An entry of the list of interfaces.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Interface {
    /// What it is.
    pub id: U32,
    /// Where it is in data.
    pub dmem_base: U32,
}

/// Id of [`DmemMapper`].
pub const INTERFACE_DMEM_MAPPER: u32 = 4;

/// What the firmware is to do, and where its buffers are.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DmemMapper {
    /// [`MAPPER_SIGNATURE`].
    pub signature: [u8; 4],
    /// 3.
    pub version: U16,
    /// Bytes of this.
    pub size: U16,
    /// Where [`Command`] is in data.
    pub cmd_in_buffer_offset: U32,
    /// Bytes of it.
    pub cmd_in_buffer_size: U32,
    /// Buffers and properties that do not matter here.
    pub unused: [U32; 7],
    /// [`CMD_FRTS`] or [`CMD_SB`].
    pub init_cmd: U32,
    /// What does not matter either.
    pub rest: [U32; 4],
}

/// How a mapper begins.
pub const MAPPER_SIGNATURE: [u8; 4] = *b"PAMD";

/// Command: set up the region of firmware runtime services, the first part of WPR2.
pub const CMD_FRTS: u32 = 0x15;
/// Command: secure boot, which drivers have done when they go.
pub const CMD_SB: u32 = 0x19;

/// Parameters of a command.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Command {
    /// Where the VBIOS is to be read; it does not matter here.
    pub read_vbios: [U32; 6],
    /// Version of what follows: 1.
    pub version: U32,
    /// Bytes of what follows.
    pub size: U32,
    /// First page of the region.
    pub region_page: U32,
    /// Its pages.
    pub region_pages: U32,
    /// Where it is.
    pub region_type: U32,
}

/// The region is in VRAM.
pub const REGION_FB: u32 = 2;

/// What the bootloader of Turing's falcons is told: where code and data of the firmware are (version 2 of
/// `flcn_bl_dmem_desc`). It lies at the start of the falcon's data memory.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LoaderDesc {
    /// Reserved.
    pub reserved: [U32; 4],
    /// Signature, which is not checked.
    pub signature: [U32; 4],
    /// Index of DMA.
    pub ctx_dma: U32,
    /// Address of the code.
    pub code_dma_base: U64,
    /// Offsets and sizes of the code, and where it starts.
    pub code: [U32; 5],
    /// Address of the data.
    pub data_dma_base: U64,
    /// Bytes of the data.
    pub data_size: U32,
    /// Arguments of the firmware.
    pub arguments: [U32; 2],
}

crate::layout!(UcodeDescV2, 0x3c, interface_offset @ 0x10, dmem_offset @ 0x28);
crate::layout!(UcodeDescV3, 0x2c, dmem_load_size @ 0x20, engine_id_mask @ 0x24);
crate::layout!(DmemMapper, 0x40, cmd_in_buffer_offset @ 8, init_cmd @ 0x2c);
crate::layout!(Command, 44, region_page @ 0x20);
crate::layout!(LoaderDesc, 0x54, code_dma_base @ 0x24, data_dma_base @ 0x40, data_size @ 0x48);
