//! Ways through a map: the end of one chunk, whole chunks, and the beginning of another.

use std::fmt;
use std::iter::FusedIterator;
use std::slice;

/// Entries in order.
pub struct Iter<'a, K, V> {
    front: slice::Iter<'a, (K, V)>,
    chunks: slice::Iter<'a, Vec<(K, V)>>,
    back: slice::Iter<'a, (K, V)>,
}

impl<'a, K, V> Iter<'a, K, V> {
    pub(crate) fn new(front: &'a [(K, V)], chunks: &'a [Vec<(K, V)>], back: &'a [(K, V)]) -> Self {
        Self { front: front.iter(), chunks: chunks.iter(), back: back.iter() }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.front.next() {
                return Some((key, value));
            }
            match self.chunks.next() {
                Some(chunk) => self.front = chunk.iter(),
                None => return self.back.next().map(|(key, value)| (key, value)),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let ends = self.front.len().saturating_add(self.back.len());
        let len = self.chunks.clone().map(Vec::len).fold(ends, usize::saturating_add);
        (len, Some(len))
    }
}

impl<K, V> DoubleEndedIterator for Iter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.back.next_back() {
                return Some((key, value));
            }
            match self.chunks.next_back() {
                Some(chunk) => self.back = chunk.iter(),
                None => return self.front.next_back().map(|(key, value)| (key, value)),
            }
        }
    }
}

impl<K, V> ExactSizeIterator for Iter<'_, K, V> {}
impl<K, V> FusedIterator for Iter<'_, K, V> {}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Self { front: self.front.clone(), chunks: self.chunks.clone(), back: self.back.clone() }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Iter<'_, K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.clone()).finish()
    }
}

/// Entries in order, with values that may be changed.
#[derive(Debug)]
pub struct IterMut<'a, K, V> {
    front: slice::IterMut<'a, (K, V)>,
    chunks: slice::IterMut<'a, Vec<(K, V)>>,
    back: slice::IterMut<'a, (K, V)>,
}

impl<'a, K, V> IterMut<'a, K, V> {
    pub(crate) fn new(
        front: &'a mut [(K, V)],
        chunks: &'a mut [Vec<(K, V)>],
        back: &'a mut [(K, V)],
    ) -> Self {
        Self { front: front.iter_mut(), chunks: chunks.iter_mut(), back: back.iter_mut() }
    }
}

impl<'a, K, V> Iterator for IterMut<'a, K, V> {
    type Item = (&'a K, &'a mut V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.front.next() {
                return Some((key, value));
            }
            match self.chunks.next() {
                Some(chunk) => self.front = chunk.iter_mut(),
                None => return self.back.next().map(|(key, value)| (&*key, value)),
            }
        }
    }
}

impl<K, V> DoubleEndedIterator for IterMut<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.back.next_back() {
                return Some((key, value));
            }
            match self.chunks.next_back() {
                Some(chunk) => self.back = chunk.iter_mut(),
                None => return self.front.next_back().map(|(key, value)| (&*key, value)),
            }
        }
    }
}

impl<K, V> FusedIterator for IterMut<'_, K, V> {}

/// Keys in order.
pub type Keys<'a, K, V> = std::iter::Map<Iter<'a, K, V>, fn((&'a K, &'a V)) -> &'a K>;

/// Values in the order of their keys.
pub type Values<'a, K, V> = std::iter::Map<Iter<'a, K, V>, fn((&'a K, &'a V)) -> &'a V>;

/// The same, to be changed.
pub type ValuesMut<'a, K, V> = std::iter::Map<IterMut<'a, K, V>, fn((&'a K, &'a mut V)) -> &'a mut V>;
