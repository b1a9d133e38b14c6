//! Controls about the memory system, the buffers for faults, and flushes.
//!
//! Faults are reported with the channel that they stop. The buffers that a driver registers for them, and for
//! counts of accesses, stay empty.

use super::identity::put_list;
use crate::abi::common::control::{parameters, put};
use crate::abi::nvidia::control::{
    NV2080_CTRL_INTERNAL_MEMSYS_SET_PARTITIONABLE_MEM_PARAMS, NVXXXX_CTRL_XXX_INFO,
};
use crate::abi::nvidia::numbers::numbers;
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall, controls};
use crate::abi::values::MemoryInfo;

numbers! {
    NV2080_CTRL_CMD_INTERNAL_UVM_REGISTER_ACCESS_CNTR_BUFFER = 0x2080_0a1d, 520;
    NV2080_CTRL_CMD_INTERNAL_UVM_UNREGISTER_ACCESS_CNTR_BUFFER = 0x2080_0a1e, 4;
    NV2080_CTRL_CMD_INTERNAL_MEMSYS_SET_PARTITIONABLE_MEM = 0x2080_0a51, 40;
    NV2080_CTRL_CMD_INTERNAL_GMMU_GET_STATIC_INFO = 0x2080_0a59, 16;
    NV2080_CTRL_CMD_INTERNAL_KMEMSYS_GET_MIG_MEMORY_CONFIG = 0x2080_0a67, 32;
    NV2080_CTRL_CMD_INTERNAL_MEMSYS_L2_INVALIDATE_EVICT = 0x2080_0a6c, 4;
    NV2080_CTRL_CMD_INTERNAL_BUS_FLUSH_WITH_SYSMEMBAR = 0x2080_0a70, 0;
    NV2080_CTRL_CMD_INTERNAL_GMMU_REGISTER_FAULT_BUFFER = 0x2080_0a9b, 2064;
    NV2080_CTRL_CMD_INTERNAL_GMMU_UNREGISTER_FAULT_BUFFER = 0x2080_0a9c, 0;
    NV2080_CTRL_CMD_INTERNAL_GMMU_REGISTER_CLIENT_SHADOW_FAULT_BUFFER = 0x2080_0a9d, 24032;
    NV2080_CTRL_CMD_INTERNAL_GMMU_UNREGISTER_CLIENT_SHADOW_FAULT_BUFFER = 0x2080_0a9e, 4;
    NV2080_CTRL_CMD_INTERNAL_GMMU_COPY_RESERVED_SPLIT_GVASPACE_PDES_TO_SERVER = 0x2080_0a9f, 184;
}

/// Bytes of the buffers for replayable faults, of what is kept beside its shadow, and the same for faults
/// that are not replayable. A driver makes no smaller ones than none.
static FAULT_BUFFERS: [[u8; 4]; 4] = [
    0x4_0000_u32.to_le_bytes(),
    0x1000_u32.to_le_bytes(),
    0x2_0000_u32.to_le_bytes(),
    0x1000_u32.to_le_bytes(),
];

controls! {
    source "open-gpu-kernel-modules ctrl2080internal.h, ctrl2080fb.h";
    /// A buffer for counts of accesses. Nothing is counted.
    NV2080_CTRL_CMD_INTERNAL_UVM_REGISTER_ACCESS_CNTR_BUFFER on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_UVM_REGISTER_ACCESS_CNTR_BUFFER => Answer::Acknowledged;
    /// It is gone.
    NV2080_CTRL_CMD_INTERNAL_UVM_UNREGISTER_ACCESS_CNTR_BUFFER on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_UVM_UNREGISTER_ACCESS_CNTR_BUFFER => Answer::Acknowledged;
    /// Which of VRAM could be shared out between instances of the GPU: all that the driver may use.
    NV2080_CTRL_CMD_INTERNAL_MEMSYS_SET_PARTITIONABLE_MEM on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_MEMSYS_SET_PARTITIONABLE_MEM_PARAMS>()
        => Answer::Handler(ControlCall::Computed(put_partitionable));
    /// How large the buffers for faults are to be.
    NV2080_CTRL_CMD_INTERNAL_GMMU_GET_STATIC_INFO on Subdevice, size::NV2080_CTRL_CMD_INTERNAL_GMMU_GET_STATIC_INFO
        => Answer::Constant(FAULT_BUFFERS.as_flattened());
    /// How VRAM is shared out between instances of the GPU: there are none.
    NV2080_CTRL_CMD_INTERNAL_KMEMSYS_GET_MIG_MEMORY_CONFIG on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_KMEMSYS_GET_MIG_MEMORY_CONFIG => Answer::Zeroes;
    /// Empties the cache. What the driver sees of memory is coherent.
    NV2080_CTRL_CMD_INTERNAL_MEMSYS_L2_INVALIDATE_EVICT on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_MEMSYS_L2_INVALIDATE_EVICT => Answer::Acknowledged;
    /// Waits for what is on its way to system memory: nothing is, when GSP answers.
    NV2080_CTRL_CMD_INTERNAL_BUS_FLUSH_WITH_SYSMEMBAR on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_BUS_FLUSH_WITH_SYSMEMBAR => Answer::Zeroes;
    /// A buffer for replayable faults. It stays empty.
    NV2080_CTRL_CMD_INTERNAL_GMMU_REGISTER_FAULT_BUFFER on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_GMMU_REGISTER_FAULT_BUFFER => Answer::Acknowledged;
    /// It is gone.
    NV2080_CTRL_CMD_INTERNAL_GMMU_UNREGISTER_FAULT_BUFFER on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_GMMU_UNREGISTER_FAULT_BUFFER => Answer::Zeroes;
    /// A buffer into which firmware is to copy faults. It stays empty.
    NV2080_CTRL_CMD_INTERNAL_GMMU_REGISTER_CLIENT_SHADOW_FAULT_BUFFER on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_GMMU_REGISTER_CLIENT_SHADOW_FAULT_BUFFER => Answer::Acknowledged;
    /// It is gone.
    NV2080_CTRL_CMD_INTERNAL_GMMU_UNREGISTER_CLIENT_SHADOW_FAULT_BUFFER on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_GMMU_UNREGISTER_CLIENT_SHADOW_FAULT_BUFFER => Answer::Acknowledged;
    /// Shows the page tables of the range that real firmware keeps for itself, of the driver's own address
    /// space. No channel is in it.
    NV2080_CTRL_CMD_INTERNAL_GMMU_COPY_RESERVED_SPLIT_GVASPACE_PDES_TO_SERVER on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_GMMU_COPY_RESERVED_SPLIT_GVASPACE_PDES_TO_SERVER => Answer::Acknowledged;
}

/// Pages that compression would work on: bytes, and how many bits say a place in one.
pub const COMPRESSION_PAGE: (u32, u32) = (0x1_0000, 16);

fn put_partitionable(raw: &mut [u8]) -> Result<(), Status> {
    let asked: NV2080_CTRL_INTERNAL_MEMSYS_SET_PARTITIONABLE_MEM_PARAMS = parameters(raw);
    let end = asked.bottomRsvdSize.checked_add(asked.partitionableMemSize).ok_or(Status::InvalidArgument)?;
    put(
        raw,
        &NV2080_CTRL_INTERNAL_MEMSYS_SET_PARTITIONABLE_MEM_PARAMS {
            partitionableStartAddr: asked.bottomRsvdSize,
            partitionableEndAddr: end.checked_sub(1).ok_or(Status::InvalidArgument)?,
            ..asked
        },
    );
    Ok(())
}

/// Numbers that are asked for by index (`NV2080_CTRL_FB_INFO_INDEX_*`); sizes are KiB.
mod info {
    pub const RAM_SIZE: u32 = 0x07;
    pub const TOTAL_RAM_SIZE: u32 = 0x08;
    pub const BUS_WIDTH: u32 = 0x0b;
    pub const RAM_TYPE: u32 = 0x0d;
    pub const FBP_COUNT: u32 = 0x19;
    pub const FBP_MASK: u32 = 0x1a;
    pub const L2CACHE_SIZE: u32 = 0x1b;
    pub const USABLE_RAM_SIZE: u32 = 0x20;
    pub const LTC_COUNT: u32 = 0x22;
    pub const LTS_COUNT: u32 = 0x23;
}

/// Writes properties of VRAM by number.
///
/// # Errors
/// The list is longer than there is room for.
pub fn put_info(known: &MemoryInfo, raw: &mut [u8]) -> Result<(), Status> {
    let kib = |bytes: u64| u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
    put_list(raw, |entry| {
        let data = match entry.index {
            info::RAM_SIZE | info::TOTAL_RAM_SIZE => kib(known.vram),
            info::USABLE_RAM_SIZE => kib(known.usable),
            info::BUS_WIDTH => known.units.bus_width,
            info::RAM_TYPE => known.units.ram_type,
            info::FBP_COUNT | info::LTC_COUNT => known.units.partitions,
            info::FBP_MASK => known.units.partition_mask(),
            info::L2CACHE_SIZE => known.units.l2_bytes,
            info::LTS_COUNT => known.units.slices(),
            _ => 0,
        };
        NVXXXX_CTRL_XXX_INFO { data, ..entry }
    })
}
