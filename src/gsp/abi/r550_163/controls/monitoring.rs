//! Controls about what libraries show of a GPU, where other versions have none or have them in another way.

use crate::abi::common::control::parameters;
use crate::abi::nvidia::numbers::numbers;
use crate::abi::table::{Answer, ControlCall, controls};

numbers! {
    NV2080_CTRL_CMD_INTERNAL_INIT_USER_SHARED_DATA = 0x2080_0afe, 8;
    NV2080_CTRL_CMD_INTERNAL_USER_SHARED_DATA_SET_DATA_POLL = 0x2080_0aff, 8;
    NV2080_CTRL_CMD_PERF_GET_CURRENT_PSTATE = 0x2080_2068, 4;
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

controls! {
    source "open-gpu-kernel-modules ctrl2080internal.h, ctrl2080perf.h, cl00de.h";
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
    /// The state of clocks: the fastest, which is the only one. Libraries show an error for none.
    NV2080_CTRL_CMD_PERF_GET_CURRENT_PSTATE on Subdevice, size::NV2080_CTRL_CMD_PERF_GET_CURRENT_PSTATE
        => Answer::Constant(&NV2080_CTRL_PERF_PSTATES_P0.to_le_bytes());
}
