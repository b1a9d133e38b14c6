//! Controls of a display engine that has no heads and no outputs: all of its counts and masks are 0, and what
//! is set has nothing to act on.
//!
//! Chips whose display can be fused off have none of these. Drivers of the others end their probe with an
//! error where one is refused.

use crate::abi::table::{Answer, controls};

pub const NV2080_CTRL_CMD_INTERNAL_DISPLAY_WRITE_INST_MEM: u32 = 0x2080_0a49;
pub const NV2080_CTRL_CMD_INTERNAL_INIT_BRIGHTC_STATE_LOAD: u32 = 0x2080_0ac6;
pub const NV0073_CTRL_CMD_SYSTEM_GET_NUM_HEADS: u32 = 0x0073_0102;
pub const NV0073_CTRL_CMD_SPECIFIC_GET_ALL_HEAD_MASK: u32 = 0x0073_0287;
pub const NV0073_CTRL_CMD_DP_SET_MANUAL_DISPLAYPORT: u32 = 0x0073_1365;

/// Bytes of `NV2080_CTRL_INTERNAL_DISPLAY_WRITE_INST_MEM_PARAMS`: address and size, address space, caching.
const WRITE_INST_MEM_SIZE: usize = 0x18;
/// Bytes of `NV2080_CTRL_INTERNAL_INIT_BRIGHTC_STATE_LOAD_PARAMS`: status, size, 4096 bytes of ACPI's data.
const INIT_BRIGHTC_STATE_LOAD_SIZE: usize = 0x1008;
/// Bytes of `NV0073_CTRL_SYSTEM_GET_NUM_HEADS_PARAMS`: subdevice, flags, heads.
const GET_NUM_HEADS_SIZE: usize = 0xc;
/// Bytes of `NV0073_CTRL_SPECIFIC_GET_ALL_HEAD_MASK_PARAMS`: subdevice, mask.
const GET_ALL_HEAD_MASK_SIZE: usize = 8;
/// Bytes of `NV0073_CTRL_SYSTEM_GET_SUPPORTED_PARAMS`, whose number differs: subdevice, and two masks of
/// outputs.
pub const GET_SUPPORTED_SIZE: usize = 0xc;
/// Bytes of `NV0073_CTRL_CMD_DP_SET_MANUAL_DISPLAYPORT_PARAMS`: subdevice.
const SET_MANUAL_DISPLAYPORT_SIZE: usize = 4;

controls! {
    source "open-gpu-kernel-modules ctrl2080internal.h, ctrl0073; nouveau gsp/rm/r535/disp.c";
    /// Where the display engine finds its channels' objects. It has no channels.
    NV2080_CTRL_CMD_INTERNAL_DISPLAY_WRITE_INST_MEM on Subdevice, WRITE_INST_MEM_SIZE => Answer::Zeroes;
    /// What ACPI knows of the panel's brightness. There is no panel.
    NV2080_CTRL_CMD_INTERNAL_INIT_BRIGHTC_STATE_LOAD on Subdevice, INIT_BRIGHTC_STATE_LOAD_SIZE => Answer::Zeroes;
    /// How many heads there are: 0.
    NV0073_CTRL_CMD_SYSTEM_GET_NUM_HEADS on Display, GET_NUM_HEADS_SIZE => Answer::Zeroes;
    /// Which heads there are: none.
    NV0073_CTRL_CMD_SPECIFIC_GET_ALL_HEAD_MASK on Display, GET_ALL_HEAD_MASK_SIZE => Answer::Zeroes;
    /// The driver trains DisplayPort links itself. There are none.
    NV0073_CTRL_CMD_DP_SET_MANUAL_DISPLAYPORT on Display, SET_MANUAL_DISPLAYPORT_SIZE => Answer::Zeroes;
}
