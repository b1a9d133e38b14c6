//! What objects are allocated with, where other versions have it in another way or not at all.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::common::object::{NV_CHANNEL_ALLOC_PARAMS, NV_MEMORY_DESC_PARAMS};
use crate::abi::common::objects;
use crate::abi::status::Status;
use crate::abi::table::{ClassParameters, Type, classes};
use crate::abi::values::ChannelParameters;
use gpuvmk_chip::{Engine, PhysicalAddress, layout};

pub const NV01_MEMORY_VIRTUAL: u32 = 0x0070;
pub const NV2081_BINAPI: u32 = 0x2081;
pub const NV20_SUBDEVICE_DIAG: u32 = 0x208f;
pub const NV40_I2C: u32 = 0x402c;
pub const GT200_DEBUGGER: u32 = 0x83de;
pub const FERMI_CONTEXT_SHARE_A: u32 = 0x9067;
pub const GF100_SUBDEVICE_INFOROM: u32 = 0x90e7;
pub const KEPLER_CHANNEL_GROUP_A: u32 = 0xa06c;
pub const GP100_UVM_SW: u32 = 0xc076;
pub const VOLTA_CHANNEL_GPFIFO_A: u32 = 0xc36f;
pub const UVM_CHANNEL_RETAINER: u32 = 0xc574;

/// Bytes of `NV0000_ALLOC_PARAMETERS`.
pub const NV0000_ALLOC_PARAMETERS_SIZE: usize = 0x6c;
/// Bytes of `NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS`: offset, limit, address space.
const NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS_SIZE: usize = 0x18;
/// Bytes of `NV2081_ALLOC_PARAMETERS`.
const NV2081_ALLOC_PARAMETERS_SIZE: usize = 4;
/// Bytes of `NV83DE_ALLOC_PARAMETERS`: three handles.
const NV83DE_ALLOC_PARAMETERS_SIZE: usize = 0xc;
/// Bytes of `NV_UVM_CHANNEL_RETAINER_ALLOC_PARAMS`: client and handle of a channel.
const NV_UVM_CHANNEL_RETAINER_ALLOC_PARAMS_SIZE: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS {
    pub hObjectError: u32,
    pub hObjectEccError: u32,
    pub hVASpace: u32,
    pub engineType: u32,
    pub bIsCallingContextVgpuPlugin: u32,
}
layout!(NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, 0x14, hVASpace @ 8, engineType @ 0xc);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV_CTXSHARE_ALLOCATION_PARAMETERS {
    pub hVASpace: u32,
    pub flags: u32,
    pub subctxId: u32,
}
layout!(NV_CTXSHARE_ALLOCATION_PARAMETERS, 0xc, subctxId @ 8);

gpuvmk_chip::fields! {
    /// `internalFlags` of a channel (`NV_KERNELCHANNEL_ALLOC_INTERNALFLAGS_*`).
    NV_KERNELCHANNEL_ALLOC_INTERNALFLAGS {
        /// Whose it is: 0 a user's, 1 an administrator's, 2 the driver's own.
        1:0 PRIVILEGE,
    }
}

/// Bytes of an `NvNotification`.
const NV_NOTIFICATION_SIZE: u64 = 16;

/// `PRIVILEGE`: the driver's own.
const PRIVILEGE_KERNEL: u32 = 2;

classes! {
    /// A channel, by itself or in a group.
    role Channel below &[Type::Device, Type::ChannelGroup], size_of::<NV_CHANNEL_ALLOC_PARAMS>(), needed
        => ClassParameters::Channel(channel);
    /// The channel of the driver's watchdog, of Volta's class on every chip.
    class VOLTA_CHANNEL_GPFIFO_A below &[Type::Device, Type::ChannelGroup], size_of::<NV_CHANNEL_ALLOC_PARAMS>(), needed
        => ClassParameters::Channel(channel);
    /// A group of channels, which are scheduled together.
    class KEPLER_CHANNEL_GROUP_A below &[Type::Device], size_of::<NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS>(), needed
        => ClassParameters::ChannelGroup(group);
    /// A share of a group's contexts, with an address space.
    class FERMI_CONTEXT_SHARE_A below &[Type::ChannelGroup], size_of::<NV_CTXSHARE_ALLOCATION_PARAMETERS>(), needed
        => ClassParameters::ContextShare(share);
    /// A range of virtual addresses. The driver keeps the page tables.
    class NV01_MEMORY_VIRTUAL below &[Type::Device], NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS_SIZE, needed
        => ClassParameters::Plain(Type::VirtualMemory);
    /// Access to controls that only closed libraries send.
    class NV2081_BINAPI below &[Type::Subdevice], NV2081_ALLOC_PARAMETERS_SIZE, optional
        => ClassParameters::Plain(Type::BinaryApi);
    /// Diagnostics. There are none: a library asks for the object, and then for what it does.
    class NV20_SUBDEVICE_DIAG below &[Type::Subdevice], 0, optional => ClassParameters::Plain(Type::Diagnostics);
    /// The board's InfoROM. There is none, in the same way.
    class GF100_SUBDEVICE_INFOROM below &[Type::Subdevice], 0, optional => ClassParameters::Plain(Type::Inforom);
    /// I2C buses. There are none.
    class NV40_I2C below &[Type::Subdevice], 0, optional => ClassParameters::Plain(Type::I2c);
    /// A debugger of an engine's object. Nothing is debugged.
    class GT200_DEBUGGER below &[Type::Device], NV83DE_ALLOC_PARAMETERS_SIZE, needed
        => ClassParameters::Plain(Type::Debugger);
    /// Methods of a channel that firmware carries out: there are no faults to cancel.
    class GP100_UVM_SW below &[Type::Channel], 0, optional => ClassParameters::Plain(Type::Software);
    /// What keeps a channel for as long as UVM needs it. It keeps nothing here: who frees a channel has no
    /// use for it.
    class UVM_CHANNEL_RETAINER below &[Type::ChannelGroup], NV_UVM_CHANNEL_RETAINER_ALLOC_PARAMS_SIZE, needed
        => ClassParameters::Plain(Type::Retainer);
}

fn read<T: FromBytes>(raw: &[u8]) -> Result<T, Status> {
    T::read_from_prefix(raw).map(|(value, _)| value).map_err(|_| Status::InvalidParamStruct)
}

fn channel(raw: &[u8]) -> Result<ChannelParameters, Status> {
    let own: NV_CHANNEL_ALLOC_PARAMS = read(raw)?;
    let privilege = NV_KERNELCHANNEL_ALLOC_INTERNALFLAGS::PRIVILEGE.get(own.internalFlags);
    Ok(ChannelParameters {
        share: own.hContextShare,
        // NV2080_ENGINE_TYPE_NULL.
        inherits_engine: own.engineType == 0,
        inherits: true,
        is_drivers_own: privilege == PRIVILEGE_KERNEL,
        clears_userd: true,
        notifier: notifier(&own.errorNotifierMem),
        ..objects::channel(raw)?
    })
}

/// Where a channel's notifier of errors is; nowhere without one.
fn notifier(memory: &NV_MEMORY_DESC_PARAMS) -> Option<PhysicalAddress> {
    objects::physical(memory).filter(|_| memory.size >= NV_NOTIFICATION_SIZE)
}

fn group(raw: &[u8]) -> Result<(u32, Option<Engine>), Status> {
    let own: NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS = read(raw)?;
    Ok((own.hVASpace, Engine::of_nv2080_type(own.engineType)))
}

fn share(raw: &[u8]) -> Result<u32, Status> {
    Ok(read::<NV_CTXSHARE_ALLOCATION_PARAMETERS>(raw)?.hVASpace)
}
