//! Controls about power, clocks and what libraries show of a GPU. What a virtual GPU has no value for is 0,
//! and shown as not available.

use crate::abi::nvidia::numbers::numbers;
use crate::abi::table::{Answer, controls};

numbers! {
    NV0080_CTRL_CMD_INTERNAL_PERF_CUDA_LIMIT_SET_CONTROL = 0x0080_2009, 1;
    NV2080_CTRL_CMD_INTERNAL_PERF_GPU_BOOST_SYNC_GET_INFO = 0x2080_0a80, 16;
    NV2080_CTRL_CMD_INTERNAL_PERF_BOOST_SET_2X = 0x2080_0a9a, 8;
    NV2080_CTRL_CMD_INTERNAL_CCU_MAP = 0x2080_0ab3, 72;
    NV2080_CTRL_CMD_INTERNAL_CCU_UNMAP = 0x2080_0ab4, 2;
    NV2080_CTRL_CMD_MC_SERVICE_INTERRUPTS = 0x2080_1702, 4;
    NV2080_CTRL_CMD_PMGR_GET_MODULE_INFO = 0x2080_2609, 8;
    NV402C_CTRL_CMD_I2C_GET_PORT_INFO = 0x402c_0101, 16;
}

controls! {
    source "open-gpu-kernel-modules ctrl0080internal.h, ctrl2080internal.h, ctrl2080mc.h, ctrl2080pmgr.h, ctrl402c.h";
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
    /// Looks after interrupts that may have been missed: none can be.
    NV2080_CTRL_CMD_MC_SERVICE_INTERRUPTS on Subdevice, size::NV2080_CTRL_CMD_MC_SERVICE_INTERRUPTS
        => Answer::Acknowledged;
    /// The board's power supply: not known.
    NV2080_CTRL_CMD_PMGR_GET_MODULE_INFO on Subdevice, size::NV2080_CTRL_CMD_PMGR_GET_MODULE_INFO => Answer::Zeroes;
    /// Which I2C buses there are: none.
    NV402C_CTRL_CMD_I2C_GET_PORT_INFO on I2c, size::NV402C_CTRL_CMD_I2C_GET_PORT_INFO => Answer::Zeroes;
}
