//! Controls of heads and outputs, that no display engine without them knows.
//!
//! There is one output: a connector of type HDMI-A, whose monitor says that it is a DVI one, so drivers ask
//! for no sound and no infoframes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::common::control::{parameters, put};
use crate::abi::common::object::{ADDR_FBMEM, ADDR_SYSMEM};
use crate::abi::display::DisplayCall;
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall, controls};
use crate::abi::values::{ChannelPush, Monitor};
use gpuvmk_chip::{Aperture, PhysicalAddress, layout};

pub const NV0073_CTRL_CMD_SPECIFIC_GET_EDID_V2: u32 = 0x0073_0245;
pub const NV0073_CTRL_CMD_SPECIFIC_GET_CONNECTOR_DATA: u32 = 0x0073_0250;
pub const NV0073_CTRL_CMD_SPECIFIC_OR_GET_INFO: u32 = 0x0073_028b;
pub const NV0073_CTRL_CMD_DFP_GET_INFO: u32 = 0x0073_1140;
pub const NV0073_CTRL_CMD_DFP_ASSIGN_SOR: u32 = 0x0073_1152;
pub const NV2080_CTRL_CMD_INTERNAL_DISPLAY_CHANNEL_PUSHBUFFER: u32 = 0x2080_0a58;

/// `type`: a serial output resource.
const NV0073_CTRL_SPECIFIC_OR_TYPE_SOR: u32 = 2;
/// `protocol`: TMDS on the first link.
const NV0073_CTRL_SPECIFIC_OR_PROTOCOL_SOR_SINGLE_TMDS_A: u32 = 1;
/// `type` of a connector, as the VBIOS has it: HDMI-A.
const DCB_CONNECTOR_HDMI_1: u32 = 0x61;

gpuvmk_chip::fields! {
    /// `flags` of `NV0073_CTRL_DFP_GET_INFO_PARAMS`.
    NV0073_CTRL_DFP_FLAGS { 5:3 LANE = { NONE: 0, SINGLE: 1, DUAL: 2 } }
}

/// Output resources that can be asked for.
const MAX_SORS: usize = 4;
/// Bytes of an EDID, at most.
const MAX_EDID_BYTES: usize = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV0073_CTRL_SPECIFIC_OR_GET_INFO_PARAMS {
    pub subDeviceInstance: u32,
    pub displayId: u32,
    pub index: u32,
    pub r#type: u32,
    pub protocol: u32,
    pub ditherType: u32,
    pub ditherAlgo: u32,
    pub location: u32,
    pub rootPortId: u32,
    pub dcbIndex: u32,
    pub vbiosAddress: u64,
    /// `bIsLitByVbios`, `bIsDispDynamic`.
    pub flags: [u8; 8],
}
layout!(NV0073_CTRL_SPECIFIC_OR_GET_INFO_PARAMS, 0x38, location @ 0x1c, vbiosAddress @ 0x28);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ConnectorData {
    pub index: u32,
    pub r#type: u32,
    pub location: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV0073_CTRL_SPECIFIC_GET_CONNECTOR_DATA_PARAMS {
    pub subDeviceInstance: u32,
    pub displayId: u32,
    pub flags: u32,
    pub DDCPartners: u32,
    pub count: u32,
    pub data: [ConnectorData; 4],
    pub platform: u32,
}
layout!(NV0073_CTRL_SPECIFIC_GET_CONNECTOR_DATA_PARAMS, 0x48, count @ 0x10, platform @ 0x44);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV0073_CTRL_SYSTEM_GET_CONNECT_STATE_PARAMS {
    pub subDeviceInstance: u32,
    pub flags: u32,
    pub displayMask: u32,
    pub retryTimeMs: u32,
}
layout!(NV0073_CTRL_SYSTEM_GET_CONNECT_STATE_PARAMS, 0x10, displayMask @ 8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV0073_CTRL_DFP_GET_INFO_PARAMS {
    pub subDeviceInstance: u32,
    pub displayId: u32,
    pub flags: u32,
    /// `flags2`, `UHBRSupportedByDfp` in later versions.
    pub more: u32,
}
layout!(NV0073_CTRL_DFP_GET_INFO_PARAMS, 0x10, flags @ 8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV0073_CTRL_SPECIFIC_GET_EDID_V2_PARAMS {
    pub subDeviceInstance: u32,
    pub displayId: u32,
    pub bufferSize: u32,
    pub flags: u32,
    pub edidBuffer: [u8; MAX_EDID_BYTES],
}
layout!(NV0073_CTRL_SPECIFIC_GET_EDID_V2_PARAMS, 0x810, bufferSize @ 8, edidBuffer @ 0x10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV0073_CTRL_DFP_ASSIGN_SOR_PARAMS {
    pub subDeviceInstance: u32,
    pub displayId: u32,
    pub sorExcludeMask: u8,
    pub pad: [u8; 3],
    pub slaveDisplayId: u32,
    pub forceSublinkConfig: u32,
    pub bIs2Head1Or: u32,
    pub sorAssignList: [u32; MAX_SORS],
    /// Pairs of `displayMask` and `sorType`.
    pub sorAssignListWithTag: [[u32; 2]; MAX_SORS],
    pub reservedSorMask: u32,
    pub flags: u32,
}
layout!(NV0073_CTRL_DFP_ASSIGN_SOR_PARAMS, 0x50, sorAssignList @ 0x18, sorAssignListWithTag @ 0x28, flags @ 0x4c);

/// Versions have more at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_DISPLAY_CHANNEL_PUSHBUFFER_PARAMS {
    pub addressSpace: u32,
    pub pad: u32,
    pub physicalAddr: u64,
    pub limit: u64,
    pub cacheSnoop: u32,
    pub hclass: u32,
    pub channelInstance: u32,
    pub valid: u8,
    pub pad2: [u8; 3],
}
layout!(NV2080_CTRL_INTERNAL_DISPLAY_CHANNEL_PUSHBUFFER_PARAMS, 0x28, physicalAddr @ 8, hclass @ 0x1c, valid @ 0x24);

controls! {
    source "open-gpu-kernel-modules ctrl0073specific.h, ctrl0073dfp.h; nouveau gsp/rm/r535/disp.c";
    /// What describes the monitor: 128 bytes of ours.
    NV0073_CTRL_CMD_SPECIFIC_GET_EDID_V2 on Display, size_of::<NV0073_CTRL_SPECIFIC_GET_EDID_V2_PARAMS>()
        => Answer::Handler(ControlCall::Display(DisplayCall::Output(edid)));
    /// The connector of an output: HDMI-A.
    NV0073_CTRL_CMD_SPECIFIC_GET_CONNECTOR_DATA on Display, size_of::<NV0073_CTRL_SPECIFIC_GET_CONNECTOR_DATA_PARAMS>()
        => Answer::Handler(ControlCall::Display(DisplayCall::Output(connector)));
    /// The resource of an output: SOR 0, TMDS.
    NV0073_CTRL_CMD_SPECIFIC_OR_GET_INFO on Display, size_of::<NV0073_CTRL_SPECIFIC_OR_GET_INFO_PARAMS>()
        => Answer::Handler(ControlCall::Display(DisplayCall::Output(resource)));
    /// What an output can do: one link of TMDS.
    NV0073_CTRL_CMD_DFP_GET_INFO on Display, size_of::<NV0073_CTRL_DFP_GET_INFO_PARAMS>()
        => Answer::Handler(ControlCall::Display(DisplayCall::Output(flat_panel)));
    /// Gives an output a resource: SOR 0.
    NV0073_CTRL_CMD_DFP_ASSIGN_SOR on Display, size_of::<NV0073_CTRL_DFP_ASSIGN_SOR_PARAMS>()
        => Answer::Handler(ControlCall::Display(DisplayCall::Output(assign)));
}

/// Reads parameters, lets `write` answer over them, and puts them back, if they name the output.
fn of_output<T: FromBytes + IntoBytes + Immutable>(
    monitor: &Monitor,
    raw: &mut [u8],
    output: impl Fn(&T) -> u32,
    write: impl Fn(&mut T) -> Result<(), Status>,
) -> Result<(), Status> {
    let mut read: T = parameters(raw);
    if !monitor.is_output(output(&read)) {
        return Err(Status::InvalidArgument);
    }
    write(&mut read)?;
    put(raw, &read);
    Ok(())
}

fn resource(monitor: &Monitor, raw: &mut [u8]) -> Result<(), Status> {
    of_output::<NV0073_CTRL_SPECIFIC_OR_GET_INFO_PARAMS>(
        monitor,
        raw,
        |of| of.displayId,
        |of| {
            *of = NV0073_CTRL_SPECIFIC_OR_GET_INFO_PARAMS {
                index: 0,
                r#type: NV0073_CTRL_SPECIFIC_OR_TYPE_SOR,
                protocol: NV0073_CTRL_SPECIFIC_OR_PROTOCOL_SOR_SINGLE_TMDS_A,
                ditherType: 0,
                ditherAlgo: 0,
                location: 0,
                rootPortId: 0,
                dcbIndex: 0,
                vbiosAddress: 0,
                flags: [0; 8],
                ..*of
            };
            Ok(())
        },
    )
}

fn connector(monitor: &Monitor, raw: &mut [u8]) -> Result<(), Status> {
    of_output::<NV0073_CTRL_SPECIFIC_GET_CONNECTOR_DATA_PARAMS>(
        monitor,
        raw,
        |of| of.displayId,
        |of| {
            (of.DDCPartners, of.count, of.platform) = (0, 1, 0);
            of.data = [ConnectorData::default(); 4];
            of.data[0].r#type = DCB_CONNECTOR_HDMI_1;
            Ok(())
        },
    )
}

fn flat_panel(monitor: &Monitor, raw: &mut [u8]) -> Result<(), Status> {
    of_output::<NV0073_CTRL_DFP_GET_INFO_PARAMS>(
        monitor,
        raw,
        |of| of.displayId,
        |of| {
            let lane = NV0073_CTRL_DFP_FLAGS::LANE;
            (of.flags, of.more) = (lane.of(NV0073_CTRL_DFP_FLAGS::LANE::SINGLE), 0);
            Ok(())
        },
    )
}

fn edid(monitor: &Monitor, raw: &mut [u8]) -> Result<(), Status> {
    of_output::<NV0073_CTRL_SPECIFIC_GET_EDID_V2_PARAMS>(
        monitor,
        raw,
        |of| of.displayId,
        |of| {
            let edid = monitor.edid.as_deref().ok_or(Status::InvalidState)?;
            of.edidBuffer = [0; MAX_EDID_BYTES];
            of.edidBuffer.iter_mut().zip(edid).for_each(|(to, from)| *to = *from);
            of.bufferSize = u32::try_from(edid.len().min(MAX_EDID_BYTES)).unwrap_or(0);
            Ok(())
        },
    )
}

fn assign(monitor: &Monitor, raw: &mut [u8]) -> Result<(), Status> {
    of_output::<NV0073_CTRL_DFP_ASSIGN_SOR_PARAMS>(
        monitor,
        raw,
        |of| of.displayId,
        |of| {
            if of.sorExcludeMask & 1 != 0 {
                return Err(Status::InsufficientResources);
            }
            let mask = of.displayId;
            of.sorAssignList = [mask, 0, 0, 0];
            of.sorAssignListWithTag = [[mask, 0], [0; 2], [0; 2], [0; 2]];
            of.reservedSorMask = 0;
            Ok(())
        },
    )
}

/// Which outputs of those asked for have a monitor.
pub fn connect_state(monitor: &Monitor, raw: &mut [u8]) -> Result<(), Status> {
    let mut of: NV0073_CTRL_SYSTEM_GET_CONNECT_STATE_PARAMS = parameters(raw);
    of.displayMask &= monitor.connected();
    of.retryTimeMs = 0;
    put(raw, &of);
    Ok(())
}

/// Where a channel's push buffer is; versions have more behind.
pub fn channel_push(raw: &[u8]) -> Result<ChannelPush, Status> {
    let size = size_of::<NV2080_CTRL_INTERNAL_DISPLAY_CHANNEL_PUSHBUFFER_PARAMS>();
    let of: NV2080_CTRL_INTERNAL_DISPLAY_CHANNEL_PUSHBUFFER_PARAMS =
        parameters(raw.get(..size).ok_or(Status::InvalidParamStruct)?);
    let aperture = match (of.addressSpace, of.cacheSnoop) {
        (ADDR_FBMEM, _) => Some(Aperture::Vram),
        (ADDR_SYSMEM, 0) => Some(Aperture::SystemNonCoherent),
        (ADDR_SYSMEM, _) => Some(Aperture::SystemCoherent),
        _ => None,
    };
    let at = aperture.map(|aperture| PhysicalAddress { aperture, address: of.physicalAddr });
    let buffer = match (of.valid, at) {
        (0, _) => None,
        (_, Some(at)) => Some((at, of.limit)),
        (_, None) => return Err(Status::InvalidArgument),
    };
    Ok(ChannelPush { class: of.hclass, instance: of.channelInstance, buffer })
}
