//! Controls of a display engine, where other versions have another number or size.

use crate::abi::common::controls::display::{GET_SUPPORTED_SIZE, second_word};
use crate::abi::common::controls::heads::{
    NV0073_CTRL_SYSTEM_GET_CONNECT_STATE_PARAMS, NV2080_CTRL_CMD_INTERNAL_DISPLAY_CHANNEL_PUSHBUFFER,
    channel_push, connect_state,
};
use crate::abi::display::DisplayCall;
use crate::abi::table::{Answer, ControlCall, controls};

pub const NV2080_CTRL_CMD_INTERNAL_DISPLAY_GET_STATIC_INFO: u32 = 0x2080_0a01;
pub const NV0073_CTRL_CMD_SYSTEM_GET_SUPPORTED: u32 = 0x0073_0120;
pub const NV0073_CTRL_CMD_SYSTEM_GET_CONNECT_STATE: u32 = 0x0073_0122;
pub const NV0073_CTRL_CMD_SYSTEM_GET_ACTIVE: u32 = 0x0073_0126;

/// Bytes of `NV2080_CTRL_INTERNAL_DISPLAY_GET_STATIC_INFO_PARAMS`: seven words, the second a mask of windows.
const GET_STATIC_INFO_SIZE: usize = 0x1c;

/// Bytes of `NV0073_CTRL_SYSTEM_GET_ACTIVE_PARAMS`: subdevice, head, flags, output.
const GET_ACTIVE_SIZE: usize = 0x10;
/// Bytes of `NV2080_CTRL_INTERNAL_DISPLAY_CHANNEL_PUSHBUFFER_PARAMS`.
const PUSHBUFFER_SIZE: usize = 0x28;

controls! {
    source "open-gpu-kernel-modules ctrl2080internal.h, ctrl0073system.h; nouveau gsp/rm/r535/disp.c";
    /// What the display engine has: its windows.
    NV2080_CTRL_CMD_INTERNAL_DISPLAY_GET_STATIC_INFO on Subdevice, GET_STATIC_INFO_SIZE
        => Answer::Handler(ControlCall::Display(DisplayCall::Windows(second_word)));
    /// Which outputs there are.
    NV0073_CTRL_CMD_SYSTEM_GET_SUPPORTED on Display, GET_SUPPORTED_SIZE
        => Answer::Handler(ControlCall::Display(DisplayCall::Outputs(second_word)));
    /// Which outputs have a monitor.
    NV0073_CTRL_CMD_SYSTEM_GET_CONNECT_STATE on Display, size_of::<NV0073_CTRL_SYSTEM_GET_CONNECT_STATE_PARAMS>()
        => Answer::Handler(ControlCall::Display(DisplayCall::Output(connect_state)));
    /// Which output firmware has lit for a head: none.
    NV0073_CTRL_CMD_SYSTEM_GET_ACTIVE on Display, GET_ACTIVE_SIZE => Answer::Zeroes;
    /// Where a channel's push buffer is.
    NV2080_CTRL_CMD_INTERNAL_DISPLAY_CHANNEL_PUSHBUFFER on Subdevice, PUSHBUFFER_SIZE
        => Answer::Handler(ControlCall::Display(DisplayCall::ChannelPush(channel_push)));
}
