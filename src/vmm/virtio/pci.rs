//! Layout of a virtio function: its identity, the structures in its BAR and the capabilities that name them
//! (virtio 1.2, 4.1.4).

use super::common;
use gpuvmk_pci::config_space::{
    BuildError, CONFIG_SIZE, Capability, ConfigSpace, ConfigSpaceBuilder, Identity,
};
use gpuvmk_pci::{RegionInfo, RegionKind, RegionTable};

/// The BAR with all structures.
pub(super) const BAR: u8 = 0;
/// Size of the BAR in bytes.
const BAR_SIZE: u64 = 0x8000;
/// Bytes between structures: a page, so that the page number identifies each.
pub(super) const STRUCTURE: u64 = 0x1000;
/// Where the place to notify of a queue is, and bytes from one to the next.
const NOTIFY: u64 = 3 * STRUCTURE;
const NOTIFY_STEP: u8 = 4;
/// Where the table of messages is, and which of them wait.
const TABLE: u32 = 0x4000;
const PENDING: u32 = 0x5000;
/// Most messages of a function, and so most queues, but for the one for its configuration: what is pending is
/// told in 16 bytes, and notifications have a page.
pub(super) const MOST_VECTORS: u16 = 128;
const _: () = assert!(MOST_VECTORS as u64 * NOTIFY_STEP as u64 <= STRUCTURE);

/// The structures, by their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Structure {
    /// [`common`].
    Common,
    /// Interrupt status; a read clears it.
    Interrupt,
    /// The device's own configuration.
    Device,
    /// A write notifies that a queue has requests.
    Notify,
    /// The table of messages.
    Table,
    /// Which messages wait.
    Pending,
}

impl Structure {
    /// The one at an offset of the BAR, and the offset in it.
    pub(super) const fn at(offset: u64) -> Option<(Self, u64)> {
        let structure = match offset / STRUCTURE {
            0 => Self::Common,
            1 => Self::Interrupt,
            2 => Self::Device,
            3 => Self::Notify,
            4 => Self::Table,
            5 => Self::Pending,
            _ => return None,
        };
        Some((structure, offset % STRUCTURE))
    }
}

/// Where in the BAR a queue is notified.
pub(super) fn notify_place(queue: u16) -> u64 {
    NOTIFY + u64::from(NOTIFY_STEP) * u64::from(queue)
}

/// The queue that is notified at an offset of its structure.
pub(super) fn notified(offset: u64) -> usize {
    usize::try_from(offset / u64::from(NOTIFY_STEP)).unwrap_or(usize::MAX)
}

/// Capability types (`cfg_type`).
const COMMON_CFG: u8 = 1;
const NOTIFY_CFG: u8 = 2;
const ISR_CFG: u8 = 3;
const DEVICE_CFG: u8 = 4;
const PCI_CFG: u8 = 5;

/// Bytes of a capability, and of one with a word more.
const LENGTH: u8 = 16;
const LONG: u8 = 20;
/// Bytes of a device's own configuration that are offered: what any has; what lies behind its own is 0.
pub(super) const DEVICE_SIZE: usize = 0x100;

/// Where the capability for access to the BAR through configuration space lies.
const WINDOW: u8 = 0x84;
/// In it: the BAR, the offset, the bytes, and the data.
pub(super) const WINDOW_BAR: u64 = WINDOW as u64 + 4;
pub(super) const WINDOW_OFFSET: u64 = WINDOW as u64 + 8;
pub(super) const WINDOW_LENGTH: u64 = WINDOW as u64 + 12;
pub(super) const WINDOW_DATA: u64 = WINDOW as u64 + 16;

/// A capability from its length on: type, BAR, no id, offset (a page's number) and bytes.
const fn content(length: u8, kind: u8, page: u8, bytes: u16) -> [u8; 14] {
    let [low, high] = bytes.to_le_bytes();
    [length, kind, BAR, 0, 0, 0, 0, page << 4, 0, 0, low, high, 0, 0]
}

/// The same with a word more.
const fn long(kind: u8, page: u8, bytes: u16, more: u8) -> [u8; 18] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = content(LONG, kind, page, bytes);
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, more, 0, 0, 0]
}

static COMMON: [u8; 14] = content(LENGTH, COMMON_CFG, 0, COMMON_SIZE);
static NOTIFICATIONS: [u8; 18] = long(NOTIFY_CFG, 3, 0x200, NOTIFY_STEP);
static ISR: [u8; 14] = content(LENGTH, ISR_CFG, 1, 1);
static DEVICE: [u8; 14] = content(LENGTH, DEVICE_CFG, 2, 0x100);
static ACCESS: [u8; 18] = long(PCI_CFG, 0, 0, 0);
/// The driver sets BAR, offset and bytes; the data is not stored.
static ACCESS_WRITABLE: [u8; 18] =
    [0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
const COMMON_SIZE: u16 = 56;
const _: () = assert!(COMMON_SIZE as usize == common::SIZE && DEVICE_SIZE == 0x100);
const _: () = assert!(0x200 == MOST_VECTORS * NOTIFY_STEP as u16);

/// Where the table of messages is named.
const MESSAGES: u8 = 0x98;

/// What a function is, for drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Virtio's number of the kind of device (virtio 1.2, 5).
    pub(crate) device: u16,
    /// PCI's class, subclass and programming interface.
    pub(crate) class: u32,
}

impl Kind {
    /// Red Hat's vendor id, and the modern device id of that kind.
    const fn identity(self) -> Identity {
        Identity {
            vendor: 0x1af4,
            device: 0x1040 + self.device,
            revision: 1,
            class: self.class,
            subsystem_vendor: 0x1af4,
            subsystem: 0x0040,
        }
    }
}

/// The function's regions.
pub(super) const fn regions() -> RegionTable {
    let mut regions = [RegionInfo::ABSENT; 8];
    regions[BAR as usize] = RegionInfo { kind: RegionKind::Memory32, size: BAR_SIZE };
    regions[7] = RegionInfo { kind: RegionKind::Config, size: CONFIG_SIZE as u64 };
    regions
}

/// Its configuration space, with that many messages.
pub(super) fn config_space(kind: Kind, vectors: u16) -> Result<ConfigSpace, BuildError> {
    let fixed = |content| Capability::Vendor { content, writable: &[] };
    ConfigSpaceBuilder::new(kind.identity(), regions())
        .capability(0x40, fixed(&COMMON))
        .capability(0x50, fixed(&NOTIFICATIONS))
        .capability(0x64, fixed(&ISR))
        .capability(0x74, fixed(&DEVICE))
        .capability(WINDOW, Capability::Vendor { content: &ACCESS, writable: &ACCESS_WRITABLE })
        .capability(MESSAGES, Capability::MsiX { vectors, bar: BAR, table: TABLE, pending: PENDING })
        .build()
}
