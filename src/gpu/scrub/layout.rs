//! Where things are in the scrubber's own memory and address space.
//!
//! ```text
//! own memory   USERD | ring, semaphores | marks | commands | a line of zeros | seen places
//! addresses    OWN: the above           WINDOWS: a window for each piece under way
//! ```

/// Pieces under way at a time: each has a slot. Enough for two partitions.
pub(super) const SLOTS: u64 = 16;

/// Bytes of own memory, and what its address must be a multiple of (a large page of GF100).
pub(super) const OWN_SIZE: u64 = 128 << 10;

/// USERD of the channel.
pub(super) const USERD: u64 = 0;
/// Offset of the ring.
pub(super) const RING: u64 = 0x1000;
/// log2 of its entries.
pub(super) const RING_LOG2: u8 = 6;
/// A semaphore for each slot, 16 bytes apart.
pub(super) const SEMAPHORES: u64 = 0x1800;
/// A mark for each place of a piece.
pub(super) const MARKS: u64 = 0x2000;
/// Commands of each slot.
pub(super) const COMMANDS: u64 = 0x3000;
/// Bytes of each.
pub(super) const COMMANDS_SIZE: u64 = 0x200;
/// The places of each slot, as they were read back.
pub(super) const SEEN: u64 = 0x1_0000;
/// Offset of a line of zeros.
pub(super) const ZEROS: u64 = 0x8000;

/// Bytes of the line of zeros: the largest power of two that an engine's line can have.
pub(super) const LINE: u64 = 0x8000;

/// Bytes of a mark.
pub(super) const MARK: u64 = 16;
/// One place is marked in each of these.
pub(super) const STRIDE: u64 = 0x1_0000;

/// Size of the largest piece in bytes.
pub(super) const PIECE: u64 = 4 << 20;
/// Bytes of a slot's marks.
pub(super) const SEEN_SIZE: u64 = PIECE / STRIDE * MARK;

/// Virtual address of own memory.
pub(super) const OWN_VA: u64 = 0x20_0000;
/// Virtual address of the first window. All are in the range of one page table of GF100.
pub(super) const WINDOWS_VA: u64 = 0x200_0000;

const _: () = assert!(COMMANDS + SLOTS * COMMANDS_SIZE <= ZEROS && ZEROS + LINE <= SEEN);
const _: () = assert!(SEEN + SLOTS * SEEN_SIZE <= OWN_SIZE);
const _: () = assert!(OWN_VA + OWN_SIZE <= WINDOWS_VA && WINDOWS_VA + SLOTS * PIECE <= 128 << 20);
const _: () = assert!(SLOTS < 1 << RING_LOG2);
