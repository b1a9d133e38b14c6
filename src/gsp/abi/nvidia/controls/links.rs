//! Controls of NVLink: there are no links. A driver that is told of none asks for nothing else, whatever card
//! the device's number belongs to.

use crate::abi::nvidia::numbers::numbers;
use crate::abi::table::{Answer, controls};

numbers! {
    NV2080_CTRL_CMD_INTERNAL_NVLINK_GET_NUM_ACTIVE_LINK_PER_IOCTRL = 0x2080_0ac7, 4;
    NV2080_CTRL_CMD_INTERNAL_NVLINK_GET_TOTAL_NUM_LINK_PER_IOCTRL = 0x2080_0ac8, 4;
    NV2080_CTRL_CMD_NVLINK_GET_ALI_ENABLED = 0x2080_301a, 1;
    NV2080_CTRL_CMD_NVLINK_REMOVE_NVLINK_MAPPING = 0x2080_301f, 12;
    NV2080_CTRL_CMD_NVLINK_UPDATE_CURRENT_CONFIG = 0x2080_3022, 1;
    NV2080_CTRL_CMD_NVLINK_GET_NVLINK_DEVICE_INFO = 0x2080_302c, 532;
    NV2080_CTRL_CMD_NVLINK_PROGRAM_LINK_SPEED = 0x2080_302e, 12;
    NV2080_CTRL_CMD_NVLINK_DISABLE_DL_INTERRUPTS = 0x2080_3031, 4;
    NV2080_CTRL_CMD_NVLINK_GET_LINK_AND_CLOCK_INFO = 0x2080_3032, 1420;
    NV2080_CTRL_CMD_NVLINK_SYNC_LINK_MASKS_AND_VBIOS_INFO = 0x2080_3039, 32;
    NV2080_CTRL_CMD_NVLINK_PROCESS_INIT_DISABLED_LINKS = 0x2080_303b, 8;
}

controls! {
    source "open-gpu-kernel-modules ctrl2080nvlink.h, ctrl2080internal.h";
    /// How many links are active on a controller: none.
    NV2080_CTRL_CMD_INTERNAL_NVLINK_GET_NUM_ACTIVE_LINK_PER_IOCTRL on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_NVLINK_GET_NUM_ACTIVE_LINK_PER_IOCTRL => Answer::Zeroes;
    /// How many links a controller has: none.
    NV2080_CTRL_CMD_INTERNAL_NVLINK_GET_TOTAL_NUM_LINK_PER_IOCTRL on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_NVLINK_GET_TOTAL_NUM_LINK_PER_IOCTRL => Answer::Zeroes;
    /// Whether links come up by themselves.
    NV2080_CTRL_CMD_NVLINK_GET_ALI_ENABLED on Subdevice, size::NV2080_CTRL_CMD_NVLINK_GET_ALI_ENABLED => Answer::Zeroes;
    /// Forgets what links lead to.
    NV2080_CTRL_CMD_NVLINK_REMOVE_NVLINK_MAPPING on Subdevice, size::NV2080_CTRL_CMD_NVLINK_REMOVE_NVLINK_MAPPING
        => Answer::Acknowledged;
    /// Takes the driver's settings over.
    NV2080_CTRL_CMD_NVLINK_UPDATE_CURRENT_CONFIG on Subdevice, size::NV2080_CTRL_CMD_NVLINK_UPDATE_CURRENT_CONFIG
        => Answer::Acknowledged;
    /// Which links there are: none.
    NV2080_CTRL_CMD_NVLINK_GET_NVLINK_DEVICE_INFO on Subdevice, size::NV2080_CTRL_CMD_NVLINK_GET_NVLINK_DEVICE_INFO
        => Answer::Zeroes;
    /// Sets links' speed.
    NV2080_CTRL_CMD_NVLINK_PROGRAM_LINK_SPEED on Subdevice, size::NV2080_CTRL_CMD_NVLINK_PROGRAM_LINK_SPEED
        => Answer::Zeroes;
    /// Switches links' interrupts off.
    NV2080_CTRL_CMD_NVLINK_DISABLE_DL_INTERRUPTS on Subdevice, size::NV2080_CTRL_CMD_NVLINK_DISABLE_DL_INTERRUPTS
        => Answer::Acknowledged;
    /// How links are.
    NV2080_CTRL_CMD_NVLINK_GET_LINK_AND_CLOCK_INFO on Subdevice, size::NV2080_CTRL_CMD_NVLINK_GET_LINK_AND_CLOCK_INFO
        => Answer::Zeroes;
    /// Which links are connected and wanted: none.
    NV2080_CTRL_CMD_NVLINK_SYNC_LINK_MASKS_AND_VBIOS_INFO on Subdevice,
        size::NV2080_CTRL_CMD_NVLINK_SYNC_LINK_MASKS_AND_VBIOS_INFO => Answer::Zeroes;
    /// Which links are switched off.
    NV2080_CTRL_CMD_NVLINK_PROCESS_INIT_DISABLED_LINKS on Subdevice,
        size::NV2080_CTRL_CMD_NVLINK_PROCESS_INIT_DISABLED_LINKS => Answer::Zeroes;
}
