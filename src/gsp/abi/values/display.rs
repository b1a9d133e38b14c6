//! The display engine, as a driver sets it up by firmware.

use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::display::{ChannelKind, ChannelName};

/// The VRAM in which the display engine finds the objects of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceMemory {
    /// VRAM address.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Where a channel's push buffer is, before there is the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelPush {
    /// Class of the channel.
    pub class: u32,
    /// Which of that class.
    pub instance: u32,
    /// The push buffer, and its last byte's offset; none: the channel has none.
    pub buffer: Option<(PhysicalAddress, u64)>,
}

/// The parameters of a display channel's allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DisplayChannelParameters {
    /// Which of its class.
    pub instance: u32,
    /// Where in its push buffer it begins, in bytes.
    pub offset: u32,
}

/// A channel of the display engine that a driver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisplayChannel {
    /// Which one.
    pub name: ChannelName,
    /// Its push buffer of [`gpuvmk_chip::display::push::BYTES`]; cursors have none.
    pub buffer: Option<PhysicalAddress>,
    /// Where in its push buffer it begins, in bytes.
    pub offset: u32,
}

impl DisplayChannel {
    /// Whether it has a push buffer exactly where such a channel has one.
    pub const fn is_whole(&self) -> bool {
        self.buffer.is_some() != matches!(self.name.kind, ChannelKind::Cursor)
    }
}

/// An answer about an output: which one is asked for, and whether a monitor is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// Outputs that there are, a bit each.
    pub outputs: u32,
    /// What describes the monitor that is plugged in (EDID).
    pub edid: Option<Vec<u8>>,
}

impl Monitor {
    /// Outputs with a monitor, a bit each.
    pub const fn connected(&self) -> u32 {
        if self.edid.is_some() { self.outputs } else { 0 }
    }

    /// Whether there is such an output, and only one is named.
    pub const fn is_output(&self, mask: u32) -> bool {
        mask.is_power_of_two() && self.outputs & mask != 0
    }
}
