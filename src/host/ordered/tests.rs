//! What a map of the standard library does, this one does.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::{MOST, OrderedMap, OrderedSet};

#[derive(Clone, Debug)]
enum Deed {
    Insert(u16, u32),
    Remove(u16),
    Entry(u16, u32),
    PopFirst,
    PopLast,
    Retain(u16),
    SplitOff(u16),
    Range(u16, u16),
    Change(u16, u16),
    Ascending(u16),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let key = || 0..400_u16;
    let deed = prop_oneof![
        8 => (key(), any::<u32>()).prop_map(|(key, value)| Deed::Insert(key, value)),
        4 => key().prop_map(Deed::Remove),
        2 => (key(), any::<u32>()).prop_map(|(key, value)| Deed::Entry(key, value)),
        1 => Just(Deed::PopFirst),
        1 => Just(Deed::PopLast),
        1 => (2..9_u16).prop_map(Deed::Retain),
        1 => key().prop_map(Deed::SplitOff),
        2 => (key(), key()).prop_map(|(from, to)| Deed::Range(from.min(to), from.max(to))),
        1 => (key(), key()).prop_map(|(from, to)| Deed::Change(from.min(to), from.max(to))),
        1 => (0..200_u16).prop_map(Deed::Ascending),
    ];
    prop::collection::vec(deed, 0..120)
}

/// Chunks are as they must be.
fn judge<K: Ord + Copy, V>(map: &OrderedMap<K, V>) {
    assert!(map.chunk_lengths().all(|len| (1..=MOST).contains(&len)));
    assert_eq!(map.chunk_lengths().sum::<usize>(), map.len());
    assert!(map.keys().is_sorted_by(|one, next| one < next));
}

proptest! {
    #[test]
    fn a_map_is_as_one_of_the_standard_library(deeds in deeds()) {
        let (mut ours, mut theirs) = (OrderedMap::new(), BTreeMap::new());
        for deed in deeds {
            match deed {
                Deed::Insert(key, value) => prop_assert_eq!(ours.insert(key, value), theirs.insert(key, value)),
                Deed::Remove(key) => prop_assert_eq!(ours.remove(&key), theirs.remove(&key)),
                Deed::Entry(key, value) => {
                    *ours.entry(key).and_modify(|old| *old = old.wrapping_add(1)).or_insert(value) ^= 1;
                    *theirs.entry(key).and_modify(|old| *old = old.wrapping_add(1)).or_insert(value) ^= 1;
                }
                Deed::PopFirst => prop_assert_eq!(ours.pop_first(), theirs.pop_first()),
                Deed::PopLast => prop_assert_eq!(ours.pop_last(), theirs.pop_last()),
                Deed::Retain(part) => {
                    ours.retain(|key, _| key % part != 0);
                    theirs.retain(|key, _| key % part != 0);
                }
                Deed::SplitOff(key) => {
                    let (mut upper, other) = (ours.split_off(&key), theirs.split_off(&key));
                    judge(&upper);
                    prop_assert!(upper.iter().eq(other.iter()));
                    ours.append(&mut upper);
                    prop_assert!(upper.is_empty());
                    theirs.extend(other);
                }
                Deed::Range(from, to) => {
                    prop_assert!(ours.range(from..to).eq(theirs.range(from..to)));
                    prop_assert!(ours.range(from..=to).rev().eq(theirs.range(from..=to).rev()));
                    prop_assert!(ours.range(..to).eq(theirs.range(..to)));
                    prop_assert!(ours.range(from..).eq(theirs.range(from..)));
                    let beyond = (std::ops::Bound::Excluded(from), std::ops::Bound::Unbounded);
                    prop_assert!(ours.range(beyond).eq(theirs.range(beyond)));
                    prop_assert_eq!(ours.range(from..to).len(), theirs.range(from..to).count());
                }
                Deed::Change(from, to) => {
                    ours.range_mut(from..to).for_each(|(key, value)| *value = value.wrapping_add((*key).into()));
                    theirs.range_mut(from..to).for_each(|(key, value)| *value = value.wrapping_add((*key).into()));
                    ours.values_mut().rev().take(3).for_each(|value| *value = 7);
                    theirs.values_mut().rev().take(3).for_each(|value| *value = 7);
                }
                Deed::Ascending(count) => {
                    ours.extend((1000..1000 + count).map(|key| (key, 0)));
                    theirs.extend((1000..1000 + count).map(|key| (key, 0)));
                }
            }
            judge(&ours);
            prop_assert!(ours.iter().eq(theirs.iter()));
            prop_assert!(ours.iter().rev().eq(theirs.iter().rev()));
            prop_assert_eq!(ours.first_key_value(), theirs.first_key_value());
            prop_assert_eq!(ours.last_key_value(), theirs.last_key_value());
        }
        prop_assert!(ours.keys().all(|key| ours.get(key) == theirs.get(key) && ours.contains_key(key)));
        prop_assert!(ours.into_iter().eq(theirs));
    }

    #[test]
    fn a_set_is_as_one_of_the_standard_library(some in prop::collection::vec(0..300_u16, 0..200), more in prop::collection::vec(0..300_u16, 0..200)) {
        let (ours, theirs): (OrderedSet<_>, BTreeSet<_>) = (some.iter().copied().collect(), some.iter().copied().collect());
        let (ours_2, theirs_2): (OrderedSet<_>, BTreeSet<_>) = (more.iter().copied().collect(), more.iter().copied().collect());
        prop_assert!(ours.iter().eq(theirs.iter()));
        prop_assert!(ours.difference(&ours_2).eq(theirs.difference(&theirs_2)));
        prop_assert_eq!(ours.is_subset(&ours_2), theirs.is_subset(&theirs_2));
        prop_assert!(ours.range(20..70).eq(theirs.range(20..70)));
        prop_assert_eq!((ours.first(), ours.last()), (theirs.first(), theirs.last()));
    }
}

#[test]
fn keys_that_ascend_fill_chunks_and_few_entries_are_in_few() {
    let mut map: OrderedMap<usize, ()> = (0..10 * MOST).map(|key| (key, ())).collect();
    assert_eq!(map.chunk_lengths().collect::<Vec<_>>(), [MOST; 10]);

    for key in (0..10 * MOST).filter(|key| key % MOST != 5) {
        assert_eq!(map.remove(&key), Some(()));
    }

    assert_eq!(map.len(), 10);
    assert!(map.chunk_lengths().count() <= 2, "{:?}", map.chunk_lengths().collect::<Vec<_>>());

    map.extend((0..10 * MOST).map(|key| (key, ())));
    map.retain(|key, ()| key % MOST == 7);

    assert_eq!(map.chunk_lengths().collect::<Vec<_>>(), [10]);
}
