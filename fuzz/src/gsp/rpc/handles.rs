//! Numbers of objects, mostly of those that a driver has made.

use zerocopy::IntoBytes;

use crate::input::Input;

/// Handles: two clients, then what lies below them.
pub(super) const CLIENTS: [u32; 4] = [0xc1d0_0000, 0xc1d0_0001, 0xc1e0_0004, 0xc1f0_0004];
pub(super) const DEVICE: u32 = 0xde1d_0000;
pub(super) const SUBDEVICE: u32 = 0x5d1d_0000;
pub(super) const SPACE: u32 = 0x90f1_0000;
pub(super) const CHANNEL: u32 = 0xf1f0_0000;
/// A group of channels, and a share of its contexts.
pub(super) const GROUP: u32 = 0xa06c_0000;
pub(super) const SHARE: u32 = 0x9067_0000;
pub(super) const HANDLES: [u32; 11] = [
    CLIENTS[0],
    DEVICE,
    SUBDEVICE,
    SPACE,
    CHANNEL,
    CHANNEL + 1,
    CHANNEL + 2,
    GROUP,
    SHARE,
    0xabcd_0080,
    0xabcd_2080,
];

pub(super) fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.as_bytes().to_vec()
}

pub(super) fn handle(input: &mut Input<'_>) -> u32 {
    if input.below(16) == 15 { input.u32() } else { input.pick(&HANDLES) }
}

pub(super) fn client(input: &mut Input<'_>) -> u32 {
    if input.below(8) == 7 {
        input.u32()
    } else {
        input.pick(&[CLIENTS[0], CLIENTS[0], CLIENTS[0], CLIENTS[1], CLIENTS[2], CLIENTS[3]])
    }
}
