//! The display engine of chips from Volta on, as a driver uses it: channels whose methods are gathered in an
//! assembly state and take effect together, objects in its own instance memory, what it writes to memory.
//!
//! Sources: NVIDIA/open-gpu-doc (`classes/display/clc37*.h`, `clc57*.h`, `clc67*.h`), Linux
//! `drivers/gpu/drm/nouveau` (`dispnv50`, `nvkm/engine/disp/gv100.c`, `nvkm/engine/dma/usergv100.c`).

pub mod core;
pub mod cursor;
pub mod immediate;
pub mod memory;
pub mod push;
pub mod window;

/// Heads of a virtual display engine.
pub const HEADS: usize = 1;
/// Windows of a virtual display engine: a head's picture and what lies over it.
pub const WINDOWS: usize = 2;
/// Output resources (SORs) that drivers of chips with GSP assume.
pub const OUTPUT_RESOURCES: u32 = 4;

/// What a channel of the display engine drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelKind {
    /// Modes, outputs and cursors of all heads.
    Core,
    /// The surface that a window shows.
    Window,
    /// Where a window is.
    Immediate,
    /// Where a head's cursor is.
    Cursor,
}

/// A channel of the display engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelName {
    /// What it drives.
    pub kind: ChannelKind,
    /// Which of that kind: the number of a window or of a head.
    pub instance: u32,
}

impl ChannelName {
    /// The channel, if there is such a one.
    pub fn new(kind: ChannelKind, instance: u32) -> Option<Self> {
        let count = match kind {
            ChannelKind::Core => 1,
            ChannelKind::Window | ChannelKind::Immediate => WINDOWS,
            ChannelKind::Cursor => HEADS,
        };
        usize::try_from(instance).is_ok_and(|instance| instance < count).then_some(Self { kind, instance })
    }

    /// The number by which objects of instance memory say whose they are: the core is 0, windows follow, then
    /// their immediate channels from 33 on, and cursors from 73 on.
    pub const fn number(self) -> u32 {
        let first = match self.kind {
            ChannelKind::Core => 0,
            ChannelKind::Window => 1,
            ChannelKind::Immediate => 33,
            ChannelKind::Cursor => 73,
        };
        first + self.instance
    }

    /// Its place in instance memory's names is below this.
    pub const fn is_window(self) -> bool {
        matches!(self.kind, ChannelKind::Window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_channels_for_one_head_and_two_windows() {
        let all = [ChannelKind::Core, ChannelKind::Window, ChannelKind::Immediate, ChannelKind::Cursor];
        let numbers = all.map(|kind| {
            (0..3).filter_map(|n| ChannelName::new(kind, n)).map(ChannelName::number).collect::<Vec<_>>()
        });
        assert_eq!(numbers, [vec![0], vec![1, 2], vec![33, 34], vec![73]]);
        assert_eq!(ChannelName::new(ChannelKind::Window, u32::MAX), None);
    }
}
