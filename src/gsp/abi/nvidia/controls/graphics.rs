//! Controls of the graphics engine: which units it has, and how large its contexts' buffers are. Tables have
//! places for eight engines; there is one.

use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::abi::common::control::{NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS, put};
use crate::abi::nvidia::control::{
    GLOBAL_SM_ID, GRAPHICS_ENGINES, NV2080_CTRL_INTERNAL_STATIC_GR_FLOORSWEEPING_MASKS,
    NV2080_CTRL_INTERNAL_STATIC_GR_GLOBAL_SM_ORDER, NV2080_CTRL_INTERNAL_STATIC_GR_INFO,
    NVXXXX_CTRL_XXX_INFO,
};
use crate::abi::nvidia::numbers::numbers;
use crate::abi::table::{Answer, ControlCall, controls};
use crate::abi::values::Graphics;

numbers! {
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CAPS = 0x2080_0a1f, 184;
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_GLOBAL_SM_ORDER = 0x2080_0a22, 23072;
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_FLOORSWEEPING_MASKS = 0x2080_0a26, 2368;
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_ZCULL_INFO = 0x2080_0a2c, 320;
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_ROP_INFO = 0x2080_0a2e, 96;
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_PPC_MASKS = 0x2080_0a30, 384;
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_SM_ISSUE_RATE_MODIFIER = 0x2080_0a34, 72;
    NV2080_CTRL_CMD_INTERNAL_GR_SET_FECS_TRACE_HW_ENABLE = 0x2080_0a37, 24;
    NV2080_CTRL_CMD_INTERNAL_GR_GET_FECS_TRACE_HW_ENABLE = 0x2080_0a38, 24;
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_FECS_RECORD_SIZE = 0x2080_0a3d, 32;
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_FECS_TRACE_DEFINES = 0x2080_0a3f, 256;
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_PDB_PROPERTIES = 0x2080_0a48, 8;
    NV2080_CTRL_CMD_INTERNAL_GPU_GET_SMC_MODE = 0x2080_0a4c, 4;
}

/// Bytes of a record of context switches, for each engine; drivers divide by it.
static RECORD_SIZES: [[u8; 4]; GRAPHICS_ENGINES] = {
    let mut sizes = [[0; 4]; GRAPHICS_ENGINES];
    sizes[0] = [64, 0, 0, 0];
    sizes
};
/// Each subcontext has a header of its own, on the first engine.
static PDB_PROPERTIES: [u8; GRAPHICS_ENGINES] = [1, 0, 0, 0, 0, 0, 0, 0];

controls! {
    source "open-gpu-kernel-modules ctrl2080internal.h, ctrl0080gr.h";
    /// Which features of the graphics engine differ between cards: none.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CAPS on Subdevice, size::NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CAPS
        => Answer::Zeroes;
    /// The multiprocessors in the order that all of the GPU numbers them in.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_GLOBAL_SM_ORDER on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_GLOBAL_SM_ORDER => Answer::Handler(ControlCall::Graphics(put_order));
    /// Which graphics and texture processing clusters there are.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_FLOORSWEEPING_MASKS on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_FLOORSWEEPING_MASKS => Answer::Handler(ControlCall::Graphics(put_masks));
    /// The zcull memory: there is none to lay out.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_ZCULL_INFO on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_ZCULL_INFO => Answer::Zeroes;
    /// The raster units.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_ROP_INFO on Subdevice, size::NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_ROP_INFO
        => Answer::Zeroes;
    /// The primitive engines' masks.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_PPC_MASKS on Subdevice, size::NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_PPC_MASKS
        => Answer::Zeroes;
    /// How fast multiprocessors may issue: as fast as they can.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_SM_ISSUE_RATE_MODIFIER on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_SM_ISSUE_RATE_MODIFIER => Answer::Zeroes;
    /// Switches the trace of context switches; there is none. A driver sends what was on its stack beside
    /// that.
    NV2080_CTRL_CMD_INTERNAL_GR_SET_FECS_TRACE_HW_ENABLE on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_GR_SET_FECS_TRACE_HW_ENABLE => Answer::Zeroes;
    /// Whether it is on.
    NV2080_CTRL_CMD_INTERNAL_GR_GET_FECS_TRACE_HW_ENABLE on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_GR_GET_FECS_TRACE_HW_ENABLE => Answer::Zeroes;
    /// How long a record of that trace is.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_FECS_RECORD_SIZE on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_FECS_RECORD_SIZE => Answer::Constant(RECORD_SIZES.as_flattened());
    /// What a record means.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_FECS_TRACE_DEFINES on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_FECS_TRACE_DEFINES => Answer::Zeroes;
    /// Whether each subcontext has a header of its own.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_PDB_PROPERTIES on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_PDB_PROPERTIES => Answer::Constant(&PDB_PROPERTIES);
    /// Whether the GPU is cut into instances: it cannot be.
    NV2080_CTRL_CMD_INTERNAL_GPU_GET_SMC_MODE on Subdevice, size::NV2080_CTRL_CMD_INTERNAL_GPU_GET_SMC_MODE
        => Answer::Zeroes;
}

/// Writes what is known of the first engine, and nothing of the others.
fn put_first<T: IntoBytes + Immutable>(raw: &mut [u8], first: &T) {
    raw.fill(0);
    put(raw, first);
}

/// Writes the buffers of a context, of every one of that many kinds.
pub fn put_context_buffers<const IDS: usize>(size: &u32, raw: &mut [u8]) {
    let mut info = NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS::<IDS>::new_zeroed();
    let [graphics, ..] = &mut info;
    for buffer in graphics {
        buffer.size = *size;
        buffer.alignment = *size;
    }
    put(raw, &info);
}

/// Multiprocessors go round: the first of each cluster's first texture cluster, and so on.
fn put_order(units: &Graphics, raw: &mut [u8]) {
    let mut order = NV2080_CTRL_INTERNAL_STATIC_GR_GLOBAL_SM_ORDER::new_zeroed();
    let mut places = order.globalSmId.iter_mut();
    let (mut multiprocessors, mut clusters) = (0_u16, 0_u16);
    for tpc in 0..32_u16 {
        for (gpc, mask) in (0_u16..).zip(units.tpc_masks) {
            if mask >> tpc & 1 == 0 {
                continue;
            }
            for sm in 0..Graphics::MULTIPROCESSORS {
                let Some(place) = places.next() else { break };
                *place = GLOBAL_SM_ID {
                    gpcId: gpc,
                    localTpcId: tpc,
                    localSmId: sm,
                    globalTpcId: clusters,
                    virtualGpcId: gpc,
                    migratableTpcId: tpc,
                };
                multiprocessors = multiprocessors.saturating_add(1);
            }
            clusters = clusters.saturating_add(1);
        }
    }
    order.numSm = multiprocessors;
    order.numTpc = clusters;
    put_first(raw, &order);
}

fn put_masks(units: &Graphics, raw: &mut [u8]) {
    let mut masks = NV2080_CTRL_INTERNAL_STATIC_GR_FLOORSWEEPING_MASKS::new_zeroed();
    masks.gpcMask = units.gpc_mask();
    masks.physGpcMask = masks.gpcMask;
    masks.physGfxGpcMask = 1;
    masks.numGfxTpc = 1;
    for (gpc, mask) in units.tpc_masks.iter().enumerate().filter(|(_, mask)| **mask != 0) {
        let set = |to: &mut [u32], value| to.get_mut(gpc).into_iter().for_each(|to| *to = value);
        set(&mut masks.tpcMask, *mask);
        set(&mut masks.tpcCount, mask.count_ones());
        set(&mut masks.mmuPerGpc, 1);
        set(&mut masks.numPesPerGpc, Graphics::PRIMITIVE_ENGINES);
    }
    for (tpc, engine) in (0_u32..).zip(&mut masks.tpcToPesMap) {
        *engine = tpc / Graphics::TPCS_OF_PRIMITIVE_ENGINE;
    }
    put_first(raw, &masks);
}

/// Numbers that are asked for by index (`NV0080_CTRL_GR_INFO_INDEX_*`).
mod info {
    pub const BUFFER_ALIGNMENT: usize = 0x03;
    pub const SWIZZLE_ALIGNMENT: usize = 0x04;
    pub const VPE_COUNT: usize = 0x06;
    pub const SHADER_PIPE_COUNT: usize = 0x07;
    pub const THREAD_STACK_SCALING_FACTOR: usize = 0x08;
    pub const SHADER_PIPE_SUB_COUNT: usize = 0x09;
    pub const SM_REG_BANK_COUNT: usize = 0x0a;
    pub const SM_REG_BANK_REG_COUNT: usize = 0x0b;
    pub const SM_VERSION: usize = 0x0c;
    pub const MAX_WARPS_PER_SM: usize = 0x0d;
    pub const MAX_THREADS_PER_WARP: usize = 0x0e;
    pub const FB_MEMORY_REQUEST_GRANULARITY: usize = 0x11;
    pub const HOST_MEMORY_REQUEST_GRANULARITY: usize = 0x12;
    pub const MAX_SP_PER_SM: usize = 0x13;
    pub const LITTER_NUM_GPCS: usize = 0x14;
    pub const LITTER_NUM_FBPS: usize = 0x15;
    pub const LITTER_NUM_ZCULL_BANKS: usize = 0x16;
    pub const LITTER_NUM_TPC_PER_GPC: usize = 0x17;
    pub const TIMESLICE_ENABLED: usize = 0x1a;
    pub const LITTER_NUM_PES_PER_GPC: usize = 0x1c;
    pub const GPU_CORE_COUNT: usize = 0x1d;
    pub const LITTER_NUM_TPCS_PER_PES: usize = 0x1e;
    pub const LITTER_NUM_SM_PER_TPC: usize = 0x20;
    pub const LITTER_NUM_GRS: usize = 0x24;
    pub const LITTER_NUM_LTCS: usize = 0x25;
    pub const LITTER_NUM_LTC_SLICES: usize = 0x26;
    pub const LITTER_NUM_GPCMMU_PER_GPC: usize = 0x27;
    pub const FAMILY_MAX_TPC_PER_GPC: usize = 0x2a;
    pub const MAX_SUBCONTEXT_COUNT: usize = 0x2c;
    pub const MAX_LEGACY_SUBCONTEXT_COUNT: usize = 0x2d;
    pub const MAX_PER_ENGINE_SUBCONTEXT_COUNT: usize = 0x2e;
    pub const LITTER_NUM_SLICES_PER_LTC: usize = 0x32;
}

/// Subcontexts of a channel group. A driver that is told of none makes no channels.
const SUBCONTEXTS: u32 = 64;

/// Writes the numbers about the graphics engine that a version of so many knows.
pub fn put_info<const COUNT: usize>(units: &Graphics, raw: &mut [u8]) {
    let mut list = NV2080_CTRL_INTERNAL_STATIC_GR_INFO::<COUNT>::new_zeroed();
    for (index, entry) in (0..).zip(&mut list) {
        *entry = NVXXXX_CTRL_XXX_INFO { index, data: 0 };
    }
    let gpcs = units.gpc_mask().count_ones();
    let tpcs = units.tpc_masks.iter().map(|mask| mask.count_ones()).sum::<u32>();
    let most = units.tpc_masks.iter().map(|mask| mask.count_ones()).max().unwrap_or(0);
    let (sm, memory) = (units.multiprocessor, units.memory);
    let per_tpc = u32::from(Graphics::MULTIPROCESSORS);
    for (index, value) in [
        (info::BUFFER_ALIGNMENT, 32),
        (info::SWIZZLE_ALIGNMENT, 32),
        (info::VPE_COUNT, tpcs),
        (info::SHADER_PIPE_COUNT, gpcs),
        (info::THREAD_STACK_SCALING_FACTOR, 1),
        (info::SHADER_PIPE_SUB_COUNT, tpcs),
        (info::SM_REG_BANK_COUNT, sm.register_banks),
        (info::SM_REG_BANK_REG_COUNT, sm.bank_registers),
        (info::SM_VERSION, sm.version),
        (info::MAX_WARPS_PER_SM, sm.warps),
        (info::MAX_THREADS_PER_WARP, sm.warp_threads),
        (info::FB_MEMORY_REQUEST_GRANULARITY, 1),
        (info::HOST_MEMORY_REQUEST_GRANULARITY, 1),
        (info::MAX_SP_PER_SM, sm.lanes),
        (info::LITTER_NUM_GPCS, gpcs),
        (info::LITTER_NUM_FBPS, memory.partitions),
        (info::LITTER_NUM_ZCULL_BANKS, gpcs),
        (info::LITTER_NUM_TPC_PER_GPC, most),
        (info::TIMESLICE_ENABLED, 1),
        (info::LITTER_NUM_PES_PER_GPC, Graphics::PRIMITIVE_ENGINES),
        (info::GPU_CORE_COUNT, tpcs.saturating_mul(per_tpc).saturating_mul(sm.lanes)),
        (info::LITTER_NUM_TPCS_PER_PES, Graphics::TPCS_OF_PRIMITIVE_ENGINE),
        (info::LITTER_NUM_SM_PER_TPC, per_tpc),
        (info::LITTER_NUM_GRS, 8),
        (info::LITTER_NUM_LTCS, memory.partitions),
        (info::LITTER_NUM_LTC_SLICES, memory.slices()),
        (info::LITTER_NUM_GPCMMU_PER_GPC, 1),
        (info::FAMILY_MAX_TPC_PER_GPC, most),
        (info::MAX_SUBCONTEXT_COUNT, SUBCONTEXTS),
        (info::MAX_LEGACY_SUBCONTEXT_COUNT, 1),
        (info::MAX_PER_ENGINE_SUBCONTEXT_COUNT, 8),
        (info::LITTER_NUM_SLICES_PER_LTC, memory.partition_slices),
    ] {
        list.get_mut(index).into_iter().for_each(|entry| entry.data = value);
    }
    put_first(raw, &list);
}
