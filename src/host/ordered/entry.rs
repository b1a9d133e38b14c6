//! The place of a key, taken or not.

use std::fmt;

use crate::map::{OrderedMap, Place};

/// The place of a key.
#[derive(Debug)]
pub enum Entry<'a, K, V> {
    /// There is an entry with this key.
    Occupied(OccupiedEntry<'a, K, V>),
    /// There is none.
    Vacant(VacantEntry<'a, K, V>),
}

/// An entry that is there.
pub struct OccupiedEntry<'a, K, V> {
    pub(crate) map: &'a mut OrderedMap<K, V>,
    pub(crate) place: Place,
}

/// A key whose place is free.
pub struct VacantEntry<'a, K, V> {
    pub(crate) map: &'a mut OrderedMap<K, V>,
    pub(crate) place: Place,
    pub(crate) key: K,
}

impl<'a, K, V> Entry<'a, K, V> {
    /// The value, made by `value` if there is none.
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> &'a mut V {
        match self {
            Self::Occupied(entry) => entry.into_mut(),
            Self::Vacant(entry) => entry.insert(value()),
        }
    }

    /// The value, which is `value` if there is none.
    pub fn or_insert(self, value: V) -> &'a mut V {
        self.or_insert_with(|| value)
    }

    /// The value, which is the usual one of its type if there is none.
    pub fn or_default(self) -> &'a mut V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// Changes the value, if there is one.
    #[must_use]
    pub fn and_modify(mut self, change: impl FnOnce(&mut V)) -> Self {
        if let Self::Occupied(entry) = &mut self {
            change(entry.get_mut());
        }
        self
    }
}

impl<'a, K, V> OccupiedEntry<'a, K, V> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.map.there(self.place).0
    }

    /// The value.
    pub fn get(&self) -> &V {
        &self.map.there(self.place).1
    }

    /// The value, to be changed.
    pub fn get_mut(&mut self) -> &mut V {
        &mut self.map.there_mut(self.place).1
    }

    /// The value, to be changed, for as long as the map is borrowed.
    pub fn into_mut(self) -> &'a mut V {
        &mut self.map.there_mut(self.place).1
    }

    /// Puts another value in; the one before.
    pub fn insert(&mut self, value: V) -> V {
        std::mem::replace(self.get_mut(), value)
    }

    /// Takes the entry out; its value.
    pub fn remove(self) -> V {
        self.map.take(self.place).1
    }
}

impl<'a, K, V> VacantEntry<'a, K, V> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Puts a value in.
    pub fn insert(self, value: V) -> &'a mut V {
        let place = self.map.put(self.place, self.key, value);
        &mut self.map.there_mut(place).1
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for OccupiedEntry<'_, K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("OccupiedEntry").field(self.key()).field(self.get()).finish()
    }
}

impl<K: fmt::Debug, V> fmt::Debug for VacantEntry<'_, K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("VacantEntry").field(self.key()).finish()
    }
}
