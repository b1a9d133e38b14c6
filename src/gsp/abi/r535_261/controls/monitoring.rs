//! Controls about what libraries show of a GPU, where other versions have none or have them in another way.
//!
//! Two of them are known by other numbers in later versions' headers: libraries of this one send them with
//! the bit set that marks interfaces as open to everybody since long ago.

use crate::abi::nvidia::numbers::numbers;
use crate::abi::table::{Answer, controls};

numbers! {
    NV0080_CTRL_CMD_PERF_CUDA_LIMIT_SET_CONTROL = 0x0080_9909, 1;
    NV2080_CTRL_CMD_PERF_GET_CURRENT_PSTATE = 0x2080_a068, 4;
}

const NV2080_CTRL_PERF_PSTATES_P0: u32 = 1;

controls! {
    source "recordings of libcuda and nvidia-smi 535.261.03; open-gpu-kernel-modules 570.144 ctrl0080perf.h, ctrl2080perf.h";
    /// Whether clocks are held for a CUDA program.
    NV0080_CTRL_CMD_PERF_CUDA_LIMIT_SET_CONTROL on Device, size::NV0080_CTRL_CMD_PERF_CUDA_LIMIT_SET_CONTROL
        => Answer::Acknowledged;
    /// The state of clocks: the fastest, which is the only one. Libraries show an error for none.
    NV2080_CTRL_CMD_PERF_GET_CURRENT_PSTATE on Subdevice, size::NV2080_CTRL_CMD_PERF_GET_CURRENT_PSTATE
        => Answer::Constant(&NV2080_CTRL_PERF_PSTATES_P0.to_le_bytes());
}
