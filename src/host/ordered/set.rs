//! The set.

use std::borrow::Borrow;
use std::fmt;
use std::ops::RangeBounds;

use crate::iter::Keys;
use crate::map::OrderedMap;

/// A set in order.
#[derive(Clone, PartialEq, Eq)]
pub struct OrderedSet<T> {
    map: OrderedMap<T, ()>,
}

impl<T> OrderedSet<T> {
    /// Without members, and without memory.
    pub const fn new() -> Self {
        Self { map: OrderedMap::new() }
    }

    /// How many members there are.
    pub const fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Drops all members.
    pub fn clear(&mut self) {
        self.map.clear();
    }

    /// All members, in order.
    pub fn iter(&self) -> Keys<'_, T, ()> {
        self.map.keys()
    }

    /// The lowest.
    pub fn first(&self) -> Option<&T> {
        self.map.first_key_value().map(|(member, ())| member)
    }

    /// The highest.
    pub fn last(&self) -> Option<&T> {
        self.map.last_key_value().map(|(member, ())| member)
    }

    /// Takes the lowest out.
    pub fn pop_first(&mut self) -> Option<T> {
        self.map.pop_first().map(|(member, ())| member)
    }

    /// Keeps the members of which `keep` says so. They are asked in order.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.map.retain(|member, ()| keep(member));
    }
}

impl<T: Ord> OrderedSet<T> {
    /// Whether there is such a member.
    pub fn contains<Q: Ord + ?Sized>(&self, member: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.map.contains_key(member)
    }

    /// Puts one in. False if there was such a member before, which stays.
    pub fn insert(&mut self, member: T) -> bool {
        self.map.insert(member, ()).is_none()
    }

    /// Takes one out. False if there was none.
    pub fn remove<Q: Ord + ?Sized>(&mut self, member: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.map.remove(member).is_some()
    }

    /// The members in a range, in order.
    pub fn range<Q: Ord + ?Sized>(&self, range: impl RangeBounds<Q>) -> Keys<'_, T, ()>
    where
        T: Borrow<Q>,
    {
        self.map.range(range).map(|(member, _)| member)
    }

    /// The members that another set does not have, in order.
    pub fn difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a T> + Clone {
        self.iter().filter(|member| !other.contains(*member))
    }

    /// Whether another set has all members of this one.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).next().is_none()
    }

    /// Moves all members of another set here.
    pub fn append(&mut self, other: &mut Self) {
        self.map.append(&mut other.map);
    }
}

impl<T> Default for OrderedSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OrderedSet<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

impl<T: Ord> Extend<T> for OrderedSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, members: I) {
        for member in members {
            self.insert(member);
        }
    }
}

impl<T: Ord> FromIterator<T> for OrderedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Self {
        let mut set = Self::new();
        set.extend(members);
        set
    }
}

impl<T: Ord, const N: usize> From<[T; N]> for OrderedSet<T> {
    fn from(members: [T; N]) -> Self {
        members.into_iter().collect()
    }
}

impl<T> IntoIterator for OrderedSet<T> {
    type Item = T;
    type IntoIter = std::iter::Map<<OrderedMap<T, ()> as IntoIterator>::IntoIter, fn((T, ())) -> T>;

    fn into_iter(self) -> Self::IntoIter {
        self.map.into_iter().map(|(member, ())| member)
    }
}

impl<'a, T> IntoIterator for &'a OrderedSet<T> {
    type Item = &'a T;
    type IntoIter = Keys<'a, T, ()>;

    fn into_iter(self) -> Self::IntoIter {
        self.map.keys()
    }
}
