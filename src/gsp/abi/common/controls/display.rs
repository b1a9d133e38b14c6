//! Controls of a display engine. Where it has no heads, all of its counts and masks are 0, and what is set
//! has nothing to act on.
//!
//! Chips whose display is fused off have none of these. Drivers of the others end their probe with an error
//! where one is refused.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::common::control::{parameters, put};
use crate::abi::common::object::ADDR_FBMEM;
use crate::abi::display::DisplayCall;
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall, controls};
use crate::abi::values::InstanceMemory;
use gpuvmk_chip::layout;

pub const NV2080_CTRL_CMD_INTERNAL_DISPLAY_WRITE_INST_MEM: u32 = 0x2080_0a49;
pub const NV2080_CTRL_CMD_INTERNAL_INIT_BRIGHTC_STATE_LOAD: u32 = 0x2080_0ac6;
pub const NV0073_CTRL_CMD_SYSTEM_GET_NUM_HEADS: u32 = 0x0073_0102;
pub const NV0073_CTRL_CMD_SPECIFIC_GET_ALL_HEAD_MASK: u32 = 0x0073_0287;
pub const NV0073_CTRL_CMD_DP_SET_MANUAL_DISPLAYPORT: u32 = 0x0073_1365;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_DISPLAY_WRITE_INST_MEM_PARAMS {
    pub instMemPhysAddr: u64,
    pub instMemSize: u64,
    pub instMemAddrSpace: u32,
    pub instMemCpuCacheAttr: u32,
}
layout!(NV2080_CTRL_INTERNAL_DISPLAY_WRITE_INST_MEM_PARAMS, 0x18, instMemAddrSpace @ 0x10);

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
    /// Where the display engine finds its channels' objects.
    NV2080_CTRL_CMD_INTERNAL_DISPLAY_WRITE_INST_MEM on Subdevice, size_of::<NV2080_CTRL_INTERNAL_DISPLAY_WRITE_INST_MEM_PARAMS>()
        => Answer::Handler(ControlCall::Display(DisplayCall::InstanceMemory(instance_memory)));
    /// What ACPI knows of the panel's brightness. There is no panel.
    NV2080_CTRL_CMD_INTERNAL_INIT_BRIGHTC_STATE_LOAD on Subdevice, INIT_BRIGHTC_STATE_LOAD_SIZE => Answer::Zeroes;
    /// How many heads there are.
    NV0073_CTRL_CMD_SYSTEM_GET_NUM_HEADS on Display, GET_NUM_HEADS_SIZE
        => Answer::Handler(ControlCall::Display(DisplayCall::HeadCount(third_word)));
    /// Which heads there are.
    NV0073_CTRL_CMD_SPECIFIC_GET_ALL_HEAD_MASK on Display, GET_ALL_HEAD_MASK_SIZE
        => Answer::Handler(ControlCall::Display(DisplayCall::HeadMask(second_word)));
    /// The driver trains DisplayPort links itself. There are none.
    NV0073_CTRL_CMD_DP_SET_MANUAL_DISPLAYPORT on Display, SET_MANUAL_DISPLAYPORT_SIZE => Answer::Zeroes;
}

fn instance_memory(raw: &[u8]) -> Result<Option<InstanceMemory>, Status> {
    let wanted: NV2080_CTRL_INTERNAL_DISPLAY_WRITE_INST_MEM_PARAMS = parameters(raw);
    let memory = InstanceMemory { address: wanted.instMemPhysAddr, size: wanted.instMemSize };
    Ok((wanted.instMemAddrSpace == ADDR_FBMEM).then_some(memory))
}

/// Writes an answer as the second word.
pub fn second_word(value: &u32, raw: &mut [u8]) {
    put(raw.get_mut(4..).unwrap_or_default(), value);
}

/// Writes an answer as the third word.
pub fn third_word(value: &u32, raw: &mut [u8]) {
    put(raw.get_mut(8..).unwrap_or_default(), value);
}
