//! Controls of a display engine without heads, where other versions have another number or size.

use crate::abi::common::controls::display::GET_SUPPORTED_SIZE;
use crate::abi::table::{Answer, controls};

pub const NV2080_CTRL_CMD_INTERNAL_DISPLAY_GET_STATIC_INFO: u32 = 0x2080_0a01;
pub const NV0073_CTRL_CMD_SYSTEM_GET_SUPPORTED: u32 = 0x0073_0120;

/// Bytes of `NV2080_CTRL_INTERNAL_DISPLAY_GET_STATIC_INFO_PARAMS`: seven words, the second a mask of windows.
const GET_STATIC_INFO_SIZE: usize = 0x1c;

controls! {
    source "open-gpu-kernel-modules ctrl2080internal.h, ctrl0073system.h; nouveau gsp/rm/r535/disp.c";
    /// What the display engine has: no windows, no heads.
    NV2080_CTRL_CMD_INTERNAL_DISPLAY_GET_STATIC_INFO on Subdevice, GET_STATIC_INFO_SIZE => Answer::Zeroes;
    /// Which outputs there are: none.
    NV0073_CTRL_CMD_SYSTEM_GET_SUPPORTED on Display, GET_SUPPORTED_SIZE => Answer::Zeroes;
}
