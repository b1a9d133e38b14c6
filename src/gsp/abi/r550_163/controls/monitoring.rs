//! Controls about power, clocks and what libraries show of a GPU. What a virtual GPU has no value for is 0,
//! and shown as not available.

use super::numbers::numbers;
use crate::abi::common::control::parameters;
use crate::abi::table::{Answer, ControlCall, controls};

numbers! {
    NV0080_CTRL_CMD_INTERNAL_PERF_CUDA_LIMIT_SET_CONTROL = 0x0080_2009, 1;
    NV2080_CTRL_CMD_INTERNAL_PERF_GPU_BOOST_SYNC_GET_INFO = 0x2080_0a80, 16;
    NV2080_CTRL_CMD_INTERNAL_PERF_BOOST_SET_2X = 0x2080_0a9a, 8;
    NV2080_CTRL_CMD_INTERNAL_CCU_MAP = 0x2080_0ab3, 72;
    NV2080_CTRL_CMD_INTERNAL_CCU_UNMAP = 0x2080_0ab4, 2;
    NV2080_CTRL_CMD_INTERNAL_INIT_USER_SHARED_DATA = 0x2080_0afe, 8;
    NV2080_CTRL_CMD_INTERNAL_USER_SHARED_DATA_SET_DATA_POLL = 0x2080_0aff, 8;
    NV2080_CTRL_CMD_MC_SERVICE_INTERRUPTS = 0x2080_1702, 4;
    NV2080_CTRL_CMD_PERF_GET_CURRENT_PSTATE = 0x2080_2068, 4;
    NV2080_CTRL_CMD_PMGR_GET_MODULE_INFO = 0x2080_2609, 8;
    NV402C_CTRL_CMD_I2C_GET_PORT_INFO = 0x402c_0101, 16;
}

const NV2080_CTRL_PERF_PSTATES_P0: u32 = 1;

/// Where `perfDevUtil` is in `NV00DE_SHARED_DATA`: behind four domains' clocks, and what holds them back.
const PERF_DEV_UTIL: u64 = 0x48;

gpuvmk_chip::fields! {
    u64;
    /// What of `NV00DE_SHARED_DATA` is wanted.
    NV00DE_RUSD_POLL {
        0:0 CLOCK,
        1:1 PERF,
    }
}

/// Controls that libraries send and no public header names, by their numbers.
const UNNAMED_2080_8159: u32 = 0x2080_8159;
const UNNAMED_2080_9038: u32 = 0x2080_9038;
const UNNAMED_2081_0108: u32 = 0x2081_0108;

controls! {
    source "open-gpu-kernel-modules ctrl0080internal.h, ctrl2080internal.h, ctrl2080mc.h, ctrl2080perf.h, ctrl2080pmgr.h, ctrl402c.h";
    /// Whether clocks are held for a CUDA program.
    NV0080_CTRL_CMD_INTERNAL_PERF_CUDA_LIMIT_SET_CONTROL on Device,
        size::NV0080_CTRL_CMD_INTERNAL_PERF_CUDA_LIMIT_SET_CONTROL => Answer::Acknowledged;
    /// How GPUs raise clocks together: they do not.
    NV2080_CTRL_CMD_INTERNAL_PERF_GPU_BOOST_SYNC_GET_INFO on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_PERF_GPU_BOOST_SYNC_GET_INFO => Answer::Zeroes;
    /// Raises clocks for a while.
    NV2080_CTRL_CMD_INTERNAL_PERF_BOOST_SET_2X on Subdevice, size::NV2080_CTRL_CMD_INTERNAL_PERF_BOOST_SET_2X
        => Answer::Acknowledged;
    /// Memory in which firmware is to count. It stays as it is.
    NV2080_CTRL_CMD_INTERNAL_CCU_MAP on Subdevice, size::NV2080_CTRL_CMD_INTERNAL_CCU_MAP => Answer::Acknowledged;
    /// It is gone.
    NV2080_CTRL_CMD_INTERNAL_CCU_UNMAP on Subdevice, size::NV2080_CTRL_CMD_INTERNAL_CCU_UNMAP => Answer::Acknowledged;
    /// Memory in which firmware is to keep what programs read. Utilisation is kept there; the rest stays as
    /// it is, which means that it is not known.
    NV2080_CTRL_CMD_INTERNAL_INIT_USER_SHARED_DATA on Subdevice, size::NV2080_CTRL_CMD_INTERNAL_INIT_USER_SHARED_DATA
        => Answer::Handler(ControlCall::SharedUtilization(|raw| {
            let page: u64 = parameters(raw);
            Ok((page != 0).then(|| page.saturating_add(PERF_DEV_UTIL)))
        }));
    /// What of it is to be brought up to date.
    NV2080_CTRL_CMD_INTERNAL_USER_SHARED_DATA_SET_DATA_POLL on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_USER_SHARED_DATA_SET_DATA_POLL
        => Answer::Handler(ControlCall::WantUtilization(|raw| Ok(NV00DE_RUSD_POLL::PERF.is_set(parameters(raw)))));
    /// Looks after interrupts that may have been missed: none can be.
    NV2080_CTRL_CMD_MC_SERVICE_INTERRUPTS on Subdevice, size::NV2080_CTRL_CMD_MC_SERVICE_INTERRUPTS
        => Answer::Acknowledged;
    /// The state of clocks: the fastest, which is the only one. Libraries show an error for none.
    NV2080_CTRL_CMD_PERF_GET_CURRENT_PSTATE on Subdevice, size::NV2080_CTRL_CMD_PERF_GET_CURRENT_PSTATE
        => Answer::Constant(&NV2080_CTRL_PERF_PSTATES_P0.to_le_bytes());
    /// The board's power supply: not known.
    NV2080_CTRL_CMD_PMGR_GET_MODULE_INFO on Subdevice, size::NV2080_CTRL_CMD_PMGR_GET_MODULE_INFO => Answer::Zeroes;
    /// Which I2C buses there are: none.
    NV402C_CTRL_CMD_I2C_GET_PORT_INFO on I2c, size::NV402C_CTRL_CMD_I2C_GET_PORT_INFO => Answer::Zeroes;
}

/// What closed libraries send.
pub mod unnamed {
    use super::*;

    controls! {
        source "a recording of libcuda and nvidia-smi 550.163.01";
        /// Values by number, which stay 0.
        UNNAMED_2080_8159 on Subdevice, 332 => Answer::Acknowledged;
        /// A number.
        UNNAMED_2080_9038 on Subdevice, 4 => Answer::Zeroes;
        /// A table.
        UNNAMED_2081_0108 on BinaryApi, 992 => Answer::Zeroes;
    }
}
