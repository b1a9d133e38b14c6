//! The map.

use std::borrow::Borrow;
use std::fmt;
use std::ops::{Bound, Index, RangeBounds};

use crate::MOST;
use crate::entry::{Entry, OccupiedEntry, VacantEntry};
use crate::iter::{Iter, IterMut, Keys, Values, ValuesMut};

/// A map in the order of its keys.
#[derive(Clone)]
pub struct OrderedMap<K, V> {
    /// None is empty. Their keys ascend, within each and from one to the next.
    chunks: Vec<Vec<(K, V)>>,
    len: usize,
}

/// Where an entry is, or would be: the chunk, and the place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub chunk: usize,
    pub at: usize,
}

impl<K, V> OrderedMap<K, V> {
    /// Without entries, and without memory.
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }

    /// How many entries there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops all entries.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.len = 0;
    }

    /// All entries, in order.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter::new(&[], &self.chunks, &[])
    }

    /// All entries, in order, with values that may be changed.
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        IterMut::new(&mut [], &mut self.chunks, &mut [])
    }

    /// All keys, in order.
    pub fn keys(&self) -> Keys<'_, K, V> {
        self.iter().map(|(key, _)| key)
    }

    /// All values, in the order of their keys.
    pub fn values(&self) -> Values<'_, K, V> {
        self.iter().map(|(_, value)| value)
    }

    /// All values, in the order of their keys, to be changed.
    pub fn values_mut(&mut self) -> ValuesMut<'_, K, V> {
        self.iter_mut().map(|(_, value)| value)
    }

    /// All keys, in order.
    pub fn into_keys(self) -> impl DoubleEndedIterator<Item = K> {
        self.into_iter().map(|(key, _)| key)
    }

    /// All values, in the order of their keys.
    pub fn into_values(self) -> impl DoubleEndedIterator<Item = V> {
        self.into_iter().map(|(_, value)| value)
    }

    /// The entry with the lowest key.
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.chunks.first()?.first().map(|(key, value)| (key, value))
    }

    /// The entry with the highest key.
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.chunks.last()?.last().map(|(key, value)| (key, value))
    }

    /// Takes the entry with the lowest key out.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        (self.len > 0).then(|| self.take(Place { chunk: 0, at: 0 }))
    }

    /// Takes the entry with the highest key out.
    pub fn pop_last(&mut self) -> Option<(K, V)> {
        let chunk = self.chunks.len().checked_sub(1)?;
        let at = self.chunks.get(chunk)?.len().checked_sub(1)?;
        Some(self.take(Place { chunk, at }))
    }

    /// Keeps the entries of which `keep` says so. They are asked in order.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for chunk in &mut self.chunks {
            chunk.retain_mut(|(key, value)| keep(key, value));
        }
        let len = self.chunks.iter().map(Vec::len).sum();
        if len == self.len {
            return;
        }
        self.len = len;
        let mut joined: Vec<Vec<(K, V)>> = Vec::new();
        for chunk in std::mem::take(&mut self.chunks).into_iter().filter(|chunk| !chunk.is_empty()) {
            match joined.last_mut().filter(|last| last.len().saturating_add(chunk.len()) <= MOST / 2) {
                Some(last) => last.extend(chunk),
                None => joined.push(chunk),
            }
        }
        self.chunks = joined;
    }

    #[cfg(test)]
    pub(crate) fn chunk_lengths(&self) -> impl Iterator<Item = usize> {
        self.chunks.iter().map(Vec::len)
    }

    /// The entry that a search has found.
    pub(crate) fn there(&self, place: Place) -> &(K, V) {
        &self.chunks[place.chunk][place.at]
    }

    /// The same, to be changed.
    pub(crate) fn there_mut(&mut self, place: Place) -> &mut (K, V) {
        &mut self.chunks[place.chunk][place.at]
    }

    /// Whether a chunk and the next have so few entries that they are to be one.
    fn are_few(&self, chunk: usize) -> bool {
        let pair = self.chunks.get(chunk).zip(self.chunks.get(chunk.saturating_add(1)));
        pair.is_some_and(|(one, next)| one.len().saturating_add(next.len()) <= MOST / 2)
    }

    /// Makes a chunk and the next one.
    fn join(&mut self, chunk: usize) {
        let next = self.chunks.remove(chunk.saturating_add(1));
        self.chunks[chunk].extend(next);
    }

    /// Takes out the entry that a search has found.
    pub(crate) fn take(&mut self, place: Place) -> (K, V) {
        let chunk = &mut self.chunks[place.chunk];
        let taken = chunk.remove(place.at);
        self.len = self.len.saturating_sub(1);
        if chunk.is_empty() {
            self.chunks.remove(place.chunk);
        } else if self.are_few(place.chunk) {
            self.join(place.chunk);
        } else if let Some(before) = place.chunk.checked_sub(1).filter(|before| self.are_few(*before)) {
            self.join(before);
        }
        taken
    }

    /// Puts an entry where a search says that it belongs. Where it is then.
    pub(crate) fn put(&mut self, place: Place, key: K, value: V) -> Place {
        self.len = self.len.saturating_add(1);
        let Some(chunk) = self.chunks.get_mut(place.chunk) else {
            self.chunks.push(vec![(key, value)]);
            return Place { chunk: self.chunks.len().saturating_sub(1), at: 0 };
        };
        if chunk.len() < MOST {
            chunk.insert(place.at, (key, value));
            return place;
        }
        // Keys that ascend leave full chunks behind.
        let next = place.chunk.saturating_add(1);
        if place.at >= chunk.len() {
            self.chunks.insert(next, vec![(key, value)]);
            return Place { chunk: next, at: 0 };
        }
        let mut upper = chunk.split_off(MOST / 2);
        let at = place.at.checked_sub(MOST / 2);
        match at {
            Some(at) => upper.insert(at, (key, value)),
            None => chunk.insert(place.at, (key, value)),
        }
        self.chunks.insert(next, upper);
        at.map_or(place, |at| Place { chunk: next, at })
    }
}

impl<K: Ord, V> OrderedMap<K, V> {
    /// The chunk in which a key is, or where it belongs.
    fn chunk_of<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        let below = |chunk: &Vec<(K, V)>| chunk.last().is_some_and(|(last, _)| last.borrow() < key);
        // One that is above all belongs to the end of the last chunk: nobody looks at what that has.
        self.chunks.split_last().map_or(0, |(_, others)| others.partition_point(below))
    }

    /// Where the entry with a key is, or where it belongs.
    pub(crate) fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<Place, Place>
    where
        K: Borrow<Q>,
    {
        let chunk = self.chunk_of(key);
        let Some(entries) = self.chunks.get(chunk) else { return Err(Place { chunk: 0, at: 0 }) };
        match entries.binary_search_by(|(other, _)| other.borrow().cmp(key)) {
            Ok(at) => Ok(Place { chunk, at }),
            Err(at) => Err(Place { chunk, at }),
        }
    }

    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let entries = self.chunks.get(self.chunk_of(key))?;
        let at = entries.binary_search_by(|(other, _)| other.borrow().cmp(key)).ok()?;
        entries.get(at).map(|(_, value)| value)
    }

    /// The value of a key, to be changed.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let chunk = self.chunk_of(key);
        let entries = self.chunks.get_mut(chunk)?;
        let at = entries.binary_search_by(|(other, _)| other.borrow().cmp(key)).ok()?;
        entries.get_mut(at).map(|(_, value)| value)
    }

    /// Whether there is an entry with a key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    /// Puts an entry in. The value that the key had before, whose place it takes.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(place) => Some(std::mem::replace(&mut self.there_mut(place).1, value)),
            Err(place) => {
                self.put(place, key, value);
                None
            }
        }
    }

    /// Takes the entry with a key out; its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|place| self.take(place).1)
    }

    /// The place of a key, taken or not.
    pub fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        match self.find(&key) {
            Ok(place) => Entry::Occupied(OccupiedEntry { map: self, place }),
            Err(place) => Entry::Vacant(VacantEntry { map: self, place, key }),
        }
    }

    /// Moves all entries of another map here; its values take the place of those here with the same keys.
    pub fn append(&mut self, other: &mut Self) {
        self.extend(std::mem::take(other));
    }

    /// Moves the entries from a key on into a map of their own.
    pub fn split_off<Q: Ord + ?Sized>(&mut self, key: &Q) -> Self
    where
        K: Borrow<Q>,
    {
        let (Ok(place) | Err(place)) = self.find(key);
        let mut chunks = self.chunks.split_off(place.chunk.min(self.chunks.len()));
        if let Some(chunk) = chunks.first_mut() {
            let upper = chunk.split_off(place.at.min(chunk.len()));
            let lower = std::mem::replace(chunk, upper);
            self.chunks.extend((!lower.is_empty()).then_some(lower));
        }
        chunks.retain(|chunk| !chunk.is_empty());
        let len = chunks.iter().map(Vec::len).sum();
        self.len = self.len.saturating_sub(len);
        Self { chunks, len }
    }

    /// The place of the first entry that is not before a range, or, for its end, that is behind it.
    fn bound<Q: Ord + ?Sized>(&self, bound: Bound<&Q>, is_end: bool) -> Place
    where
        K: Borrow<Q>,
    {
        let (key, includes) = match bound {
            Bound::Included(key) => (key, is_end),
            Bound::Excluded(key) => (key, !is_end),
            Bound::Unbounded if is_end => return Place { chunk: self.chunks.len(), at: 0 },
            Bound::Unbounded => return Place { chunk: 0, at: 0 },
        };
        match self.find(key) {
            Ok(place) => Place { at: place.at.saturating_add(includes.into()), ..place },
            Err(place) => place,
        }
    }

    /// The entries whose keys are in a range, in order. None if its end is before its beginning.
    pub fn range<Q: Ord + ?Sized>(&self, range: impl RangeBounds<Q>) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let from = self.bound(range.start_bound(), false);
        let to = self.bound(range.end_bound(), true);
        let chunk = |number: usize| self.chunks.get(number).map_or(&[][..], Vec::as_slice);
        if from.chunk >= to.chunk {
            let only = chunk(from.chunk).get(from.at..if from.chunk == to.chunk { to.at } else { 0 });
            return Iter::new(only.unwrap_or(&[]), &[], &[]);
        }
        let first = chunk(from.chunk).get(from.at..).unwrap_or(&[]);
        let between = self.chunks.get(from.chunk.saturating_add(1)..to.chunk).unwrap_or(&[]);
        Iter::new(first, between, chunk(to.chunk).get(..to.at).unwrap_or(&[]))
    }

    /// The entries whose keys are in a range, in order, with values that may be changed.
    pub fn range_mut<Q: Ord + ?Sized>(&mut self, range: impl RangeBounds<Q>) -> IterMut<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let from = self.bound(range.start_bound(), false);
        let to = self.bound(range.end_bound(), true);
        let Some((first, rest)) = self.chunks.get_mut(from.chunk..).and_then(<[_]>::split_first_mut) else {
            return IterMut::new(&mut [], &mut [], &mut []);
        };
        let Some(further) = to.chunk.checked_sub(from.chunk).and_then(|chunks| chunks.checked_sub(1)) else {
            let end = if from.chunk == to.chunk { to.at } else { 0 };
            return IterMut::new(first.get_mut(from.at..end).unwrap_or_default(), &mut [], &mut []);
        };
        let first = first.get_mut(from.at..).unwrap_or_default();
        let (between, behind) = rest.split_at_mut(further.min(rest.len()));
        let last = behind.first_mut().and_then(|last| last.get_mut(..to.at)).unwrap_or_default();
        IterMut::new(first, between, last)
    }
}

impl<K, V> Default for OrderedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for OrderedMap<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for OrderedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: Eq, V: Eq> Eq for OrderedMap<K, V> {}

impl<K: Ord + Borrow<Q>, Q: Ord + ?Sized, V> Index<&Q> for OrderedMap<K, V> {
    type Output = V;

    #[expect(
        clippy::expect_used,
        reason = "as maps of the standard library: a caller knows that the key is there"
    )]
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("the key is there")
    }
}

impl<K: Ord, V> Extend<(K, V)> for OrderedMap<K, V> {
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, entries: T) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for OrderedMap<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for OrderedMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K, V> IntoIterator for OrderedMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<(K, V)>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.chunks.into_iter().flatten()
    }
}

impl<'a, K, V> IntoIterator for &'a OrderedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<'a, K, V> IntoIterator for &'a mut OrderedMap<K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = IterMut<'a, K, V>;

    fn into_iter(self) -> IterMut<'a, K, V> {
        self.iter_mut()
    }
}
