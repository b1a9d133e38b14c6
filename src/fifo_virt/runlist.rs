//! A guest's runlist: the channels that it wants to run, filtered to what can be its own.
//!
//! An entry is two words: the channel number and a type. Entries of another type, numbers that were not
//! granted, and repetitions are dropped and counted; a list longer than the guest has channels can only hold
//! such.

use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::gf100::ramin::{RUNLIST_ENTRY_CHANNEL, RUNLIST_ENTRY_SIZE};

/// CAST: eight.
#[expect(clippy::cast_possible_truncation, reason = "eight")]
const ENTRY_BYTES: usize = RUNLIST_ENTRY_SIZE as usize;

/// A filtered runlist.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Runlist {
    /// Channels in the guest's order, each once, all below the granted number.
    pub channels: Vec<GuestChannel>,
    /// Number of dropped entries.
    pub dropped: u32,
}

impl Runlist {
    /// Bytes of a list of `count` entries that are worth reading when `granted` channels exist. Longer lists
    /// are cut: room for every channel twice is plenty.
    pub fn bytes_to_read(count: u32, granted: u16) -> usize {
        let entries = count.min(u32::from(granted).saturating_mul(2));
        let bytes = u64::from(entries).saturating_mul(RUNLIST_ENTRY_SIZE);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Filters a copy of the list, which has `count` entries by the guest's register.
    pub fn parse(raw: &[u8], count: u32, granted: u16) -> Self {
        let mut seen = vec![false; usize::from(granted)];
        let mut channels = Vec::new();
        for entry in raw.chunks_exact(ENTRY_BYTES) {
            let (Some(id), Some(kind)) = (word(entry, 0), word(entry, 4)) else { continue };
            let Ok(id) = u16::try_from(id) else { continue };
            let fresh = seen.get_mut(usize::from(id)).filter(|seen| !**seen && kind == RUNLIST_ENTRY_CHANNEL);
            if let Some(seen) = fresh {
                *seen = true;
                channels.push(GuestChannel(id));
            }
        }
        let kept = u32::try_from(channels.len()).unwrap_or(u32::MAX);
        Self { channels, dropped: count.saturating_sub(kept) }
    }
}

fn word(entry: &[u8], at: usize) -> Option<u32> {
    let bytes = entry.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn raw(entries: &[(u32, u32)]) -> Vec<u8> {
        entries.iter().flat_map(|(id, kind)| [id.to_le_bytes(), kind.to_le_bytes()].concat()).collect()
    }

    #[test]
    fn good_entries_keep_their_order() {
        let list = Runlist::parse(&raw(&[(3, 4), (0, 4), (1, 4)]), 3, 4);
        assert_eq!(list.channels, [GuestChannel(3), GuestChannel(0), GuestChannel(1)]);
        assert_eq!(list.dropped, 0);
    }

    #[test]
    fn repeated_foreign_and_mistyped_entries_are_dropped_and_counted() {
        let list = Runlist::parse(&raw(&[(1, 4), (1, 4), (4, 4), (0x1_0001, 4), (2, 0)]), 5, 4);
        assert_eq!(list.channels, [GuestChannel(1)]);
        assert_eq!(list.dropped, 4);
    }

    #[test]
    fn overlong_list_is_cut_before_it_is_read() {
        assert_eq!(Runlist::bytes_to_read(u32::MAX, 128), 256 * 8);
        assert_eq!(Runlist::bytes_to_read(3, 128), 24);
    }

    proptest! {
        #[test]
        fn result_is_distinct_granted_channels(
            bytes in proptest::collection::vec(any::<u8>(), 0..512), count: u32, granted in 0u16..300,
        ) {
            let list = Runlist::parse(&bytes, count, granted);
            let mut ids: Vec<_> = list.channels.iter().map(|id| id.0).collect();
            ids.sort_unstable();
            ids.dedup();
            prop_assert_eq!(ids.len(), list.channels.len());
            prop_assert!(list.channels.iter().all(|id| id.0 < granted));
        }
    }
}
