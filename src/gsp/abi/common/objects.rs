//! The classes that are known, and what their objects are allocated with. What channels are allocated with
//! differs, so their row is in the versions' own tables.

use zerocopy::FromBytes;

use super::object::{
    ADDR_FBMEM, ADDR_SYSMEM, NV_CHANNEL_ALLOC_PARAMS, NV_GR_ALLOCATION_PARAMETERS_SIZE,
    NV_MEMORY_DESC_PARAMS, NV_VASPACE_ALLOCATION_FLAGS, NV_VASPACE_ALLOCATION_INDEX_GPU_DEVICE,
    NV_VASPACE_ALLOCATION_PARAMETERS, NV0005_ALLOC_PARAMETERS, NV50VAIO_CHANNELDMA_ALLOCATION_PARAMETERS,
    NV50VAIO_CHANNELPIO_ALLOCATION_PARAMETERS_SIZE, NV0080_ALLOC_PARAMETERS_SIZE,
    NV2080_ALLOC_PARAMETERS_SIZE, NVC0B5_ALLOCATION_PARAMETERS, fixed_chid,
};
use crate::abi::common::classes::*;
use crate::abi::status::Status;
use crate::abi::table::{ClassParameters, Source, Type, classes};
use crate::abi::values::{AddressSpaceParameters, ChannelParameters, DisplayChannelParameters};
use gpuvmk_chip::{Aperture, Engine, PhysicalAddress};

/// Where they are known from.
pub const SOURCE: Source = "open-gpu-kernel-modules sdk/nvidia/inc/class, nvos.h; nouveau gsp/rm/r535";

/// Handle of the client that firmware makes for itself.
pub const INTERNAL_CLIENT: u32 = 0xc1e0_0004;

/// Types that parents of events can have.
const EVENT_SOURCES: &[Type] =
    &[Type::Client, Type::Device, Type::Subdevice, Type::AddressSpace, Type::Channel, Type::EngineObject];

// All but `NV01_ROOT`, which is below nothing.
classes! {
    /// The GPU for a client.
    class NV01_DEVICE_0 below &[Type::Client], NV0080_ALLOC_PARAMETERS_SIZE, needed
        => ClassParameters::Device;
    /// One GPU of a device; there is one.
    class NV20_SUBDEVICE_0 below &[Type::Device], NV2080_ALLOC_PARAMETERS_SIZE, optional
        => ClassParameters::Subdevice;
    /// An address space.
    class FERMI_VASPACE_A below &[Type::Device], size_of::<NV_VASPACE_ALLOCATION_PARAMETERS>(), needed
        => ClassParameters::AddressSpace(address_space);
    /// A copy engine's object; its parameters name the engine, in one of two numberings.
    role Copy below &[Type::Channel], size_of::<NVC0B5_ALLOCATION_PARAMETERS>(), needed
        => ClassParameters::Copy(copy);
    /// Compute. Parameters of graphics classes carry nothing to check.
    role Compute below &[Type::Channel], NV_GR_ALLOCATION_PARAMETERS_SIZE, optional => ClassParameters::Graphics;
    /// 3D.
    role ThreeD below &[Type::Channel], NV_GR_ALLOCATION_PARAMETERS_SIZE, optional => ClassParameters::Graphics;
    /// 2D.
    role TwoD below &[Type::Channel], NV_GR_ALLOCATION_PARAMETERS_SIZE, optional => ClassParameters::Graphics;
    /// Inline data to memory.
    role InlineToMemory below &[Type::Channel], NV_GR_ALLOCATION_PARAMETERS_SIZE, optional
        => ClassParameters::Graphics;
    /// What the heads of a display engine have in common.
    display NV04_DISPLAY_COMMON below &[Type::Device], 0, optional => ClassParameters::Display;
    /// The display engine.
    role DisplayRoot below &[Type::Device], 0, optional => ClassParameters::Display;
    /// The channel for where a cursor is.
    channel Cursor below &[Type::Display], NV50VAIO_CHANNELPIO_ALLOCATION_PARAMETERS_SIZE, needed
        => ClassParameters::DisplayChannel(cursor);
    /// An event.
    class NV01_EVENT below EVENT_SOURCES, size_of::<NV0005_ALLOC_PARAMETERS>(), needed => ClassParameters::Event(event);
    /// An event that calls a function of the driver's kernel part.
    class NV01_EVENT_KERNEL_CALLBACK below EVENT_SOURCES, size_of::<NV0005_ALLOC_PARAMETERS>(), needed => ClassParameters::Event(event);
    /// An event for a process.
    class NV01_EVENT_OS_EVENT below EVENT_SOURCES, size_of::<NV0005_ALLOC_PARAMETERS>(), needed => ClassParameters::Event(event);
    /// An event that calls a function of the driver's kernel part.
    class NV01_EVENT_KERNEL_CALLBACK_EX below EVENT_SOURCES, size_of::<NV0005_ALLOC_PARAMETERS>(), needed
        => ClassParameters::Event(event);
}

fn read<T: FromBytes>(raw: &[u8]) -> Result<T, Status> {
    T::read_from_bytes(raw).map_err(|_| Status::InvalidParamStruct)
}

fn address_space(raw: &[u8]) -> Result<AddressSpaceParameters, Status> {
    let parameters: NV_VASPACE_ALLOCATION_PARAMETERS = read(raw)?;
    let flags = parameters.flags;
    Ok(AddressSpaceParameters {
        external: NV_VASPACE_ALLOCATION_FLAGS::IS_EXTERNALLY_OWNED.is_set(flags)
            || NV_VASPACE_ALLOCATION_FLAGS::SHARED_MANAGEMENT.is_set(flags),
        of_device: parameters.index == NV_VASPACE_ALLOCATION_INDEX_GPU_DEVICE,
    })
}

/// Where memory is that a driver describes; none where that is neither VRAM nor system memory.
pub fn physical(memory: &NV_MEMORY_DESC_PARAMS) -> Option<PhysicalAddress> {
    let aperture = match memory.addressSpace {
        ADDR_FBMEM => Aperture::Vram,
        ADDR_SYSMEM => Aperture::SystemCoherent,
        _ => return None,
    };
    Some(PhysicalAddress { aperture, address: memory.base })
}

/// What a channel is allocated with; versions have more at its end.
pub fn channel(raw: &[u8]) -> Result<ChannelParameters, Status> {
    let (parameters, _) =
        NV_CHANNEL_ALLOC_PARAMS::read_from_prefix(raw).map_err(|_| Status::InvalidParamStruct)?;
    Ok(ChannelParameters {
        space: parameters.hVASpace,
        engine: Engine::of_nv2080_type(parameters.engineType),
        chid: fixed_chid(parameters.flags),
        ring: parameters.gpFifoOffset,
        entries: parameters.gpFifoEntries,
        userd: physical(&parameters.userdMem),
        share: 0,
        inherits_engine: false,
        inherits: false,
        is_drivers_own: false,
        clears_userd: false,
        notifier: None,
    })
}

/// What a display channel with a push buffer is allocated with; versions have more at its end.
pub fn display_channel(raw: &[u8]) -> Result<DisplayChannelParameters, Status> {
    let (parameters, _) = NV50VAIO_CHANNELDMA_ALLOCATION_PARAMETERS::read_from_prefix(raw)
        .map_err(|_| Status::InvalidParamStruct)?;
    Ok(DisplayChannelParameters { instance: parameters.channelInstance, offset: parameters.offset })
}

/// What a display channel without push buffer is allocated with: its number comes first.
fn cursor(raw: &[u8]) -> Result<DisplayChannelParameters, Status> {
    let (instance, _) = u32::read_from_prefix(raw).map_err(|_| Status::InvalidParamStruct)?;
    Ok(DisplayChannelParameters { instance, offset: 0 })
}

fn copy(raw: &[u8]) -> Result<Option<Engine>, Status> {
    let parameters: NVC0B5_ALLOCATION_PARAMETERS = read(raw)?;
    Ok(match parameters.version {
        0 => u8::try_from(parameters.engineType).ok().and_then(|n| n.try_into().ok()).map(Engine::Copy),
        1 => Engine::of_nv2080_type(parameters.engineType),
        _ => None,
    })
}

fn event(raw: &[u8]) -> Result<u32, Status> {
    Ok(read::<NV0005_ALLOC_PARAMETERS>(raw)?.notifyIndex)
}
