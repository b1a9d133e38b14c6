//! How a driver names its channels.

use gpuvmk_chip::addr::{Chid, GuestChannel};

/// A channel as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Token {
    pub(super) runlist: u16,
    pub(super) chid: Chid,
}

impl Token {
    /// The value of a doorbell write.
    pub(super) fn doorbell(self) -> u32 {
        u32::from(self.runlist) << 16 | u32::from(self.chid.0)
    }
}

/// A channel that the driver's doorbell token names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorbellTarget {
    /// The channel, as the back knows it.
    pub channel: GuestChannel,
    /// VRAM address of its USERD.
    pub userd: u64,
}
