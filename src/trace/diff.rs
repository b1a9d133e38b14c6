//! Where two traces differ: their accesses are aligned, and those without a partner are reported.
//!
//! Times do not count. Consecutive reads of one register count as one: a driver polls as often as its machine
//! is fast, and the last value ended the loop. Accesses are compared by register, direction, size and, for
//! writes, value. Different values of reads are a separate kind of difference.

use std::collections::VecDeque;

use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::event::{Access, Direction};

/// How many accesses of each trace are aligned at a time.
const WINDOW: usize = 2048;

/// How much of a window is used: near its end an alignment may be wrong, because what follows was not seen.
const USED: usize = WINDOW * 3 / 4;

/// An access in its place in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of the access in its trace.
    pub number: u64,
    /// Time in nanoseconds.
    pub nanos: u64,
    /// The access.
    pub access: Access,
    /// Reads that it stands for.
    pub times: u64,
}

/// A difference between two traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Both read the same, and got different values.
    Value {
        /// In the first trace.
        first: Step,
        /// In the second.
        second: Step,
    },
    /// What has no partner; one of the two may be empty.
    Accesses {
        /// In the first trace.
        first: Vec<Step>,
        /// In the second.
        second: Vec<Step>,
    },
}

/// What alignment compares.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key(Direction, super::event::Place, u8, u64, u64);

impl Step {
    const fn key(&self) -> Key {
        let Access { direction, place, size, offset, value, .. } = self.access;
        Key(direction, place, size, offset, if matches!(direction, Direction::Read) { 0 } else { value })
    }
}

/// Joins reads that follow each other.
struct Steps<I: Iterator<Item = (u64, Access)>> {
    accesses: std::iter::Peekable<I>,
    number: u64,
}

impl<I: Iterator<Item = (u64, Access)>> Iterator for Steps<I> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let (nanos, access) = self.accesses.next()?;
        let mut step = Step { number: self.number, nanos, access, times: 1 };
        self.number += 1;
        if access.direction == Direction::Read {
            let key = step.key();
            let same = |(nanos, access): &(u64, Access)| {
                Step { number: 0, nanos: *nanos, access: *access, times: 1 }.key() == key
            };
            while let Some((_, again)) = self.accesses.next_if(same) {
                step.access.value = again.value;
                step.times += 1;
                self.number += 1;
            }
        }
        Some(step)
    }
}

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Steps that are the same in both, but for the values of reads.
    pub same: u64,
    /// Differences, in order.
    pub differences: Vec<Difference>,
    /// There may be more.
    pub more: bool,
}

/// Compares two traces' accesses, until so many differences are found.
pub fn compare(
    first: impl Iterator<Item = (u64, Access)>,
    second: impl Iterator<Item = (u64, Access)>,
    most: usize,
) -> Comparison {
    let mut first = Steps { accesses: first.peekable(), number: 0 };
    let mut second = Steps { accesses: second.peekable(), number: 0 };
    let (mut ours, mut theirs) = (VecDeque::new(), VecDeque::new());
    let mut found = Comparison::default();
    loop {
        ours.extend(first.by_ref().take(WINDOW.saturating_sub(ours.len())));
        theirs.extend(second.by_ref().take(WINDOW.saturating_sub(theirs.len())));
        if ours.is_empty() && theirs.is_empty() {
            return found;
        }
        let (a, b): (&[Step], &[Step]) = (ours.make_contiguous(), theirs.make_contiguous());
        let last = a.len() < WINDOW && b.len() < WINDOW;
        let used = if last { usize::MAX } else { USED };
        let (taken_a, taken_b) = window(a, b, used, most, &mut found);
        if found.more {
            return found;
        }
        ours.drain(..taken_a);
        theirs.drain(..taken_b);
    }
}

/// Compares the present steps, up to `used` of either; returns how many that were.
fn window(a: &[Step], b: &[Step], used: usize, most: usize, found: &mut Comparison) -> (usize, usize) {
    let keys = |steps: &[Step]| -> Vec<Key> { steps.iter().map(Step::key).collect() };
    let (mut taken_a, mut taken_b) = (0, 0);
    for op in capture_diff_slices(Algorithm::Myers, &keys(a), &keys(b)) {
        let begins = op.old_range().start.max(op.new_range().start);
        if begins >= used && (taken_a > 0 || taken_b > 0) {
            break;
        }
        match op {
            DiffOp::Equal { old_index, new_index, len } => {
                let pairs = a.iter().skip(old_index).zip(b.iter().skip(new_index)).take(len);
                for (first, second) in pairs.take(used.saturating_sub(begins).max(1)) {
                    found.same += 1;
                    (taken_a, taken_b) = (taken_a + 1, taken_b + 1);
                    if first.access.value != second.access.value {
                        add(Difference::Value { first: *first, second: *second }, most, found);
                    }
                }
            }
            op => {
                let first = a.get(op.old_range()).unwrap_or_default().to_vec();
                let second = b.get(op.new_range()).unwrap_or_default().to_vec();
                (taken_a, taken_b) = (taken_a + first.len(), taken_b + second.len());
                add(Difference::Accesses { first, second }, most, found);
            }
        }
        if found.more {
            break;
        }
    }
    (taken_a, taken_b)
}

fn add(difference: Difference, most: usize, found: &mut Comparison) {
    if found.differences.len() >= most {
        found.more = true;
    } else {
        found.differences.push(difference);
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Place;
    use super::*;
    use gpuvmk_pci::Region;

    fn access(direction: Direction, offset: u64, value: u64) -> (u64, Access) {
        let place = Place::Region(Region::Bar(0));
        (offset, Access { direction, place, size: 4, offset, value, took: offset })
    }

    fn write(offset: u64, value: u64) -> (u64, Access) {
        access(Direction::Write, offset, value)
    }

    fn read(offset: u64, value: u64) -> (u64, Access) {
        access(Direction::Read, offset, value)
    }

    fn difference(first: &[(u64, Access)], second: &[(u64, Access)]) -> Comparison {
        compare(first.iter().copied(), second.iter().copied(), 10)
    }

    #[test]
    fn polls_and_times_are_no_difference() {
        let first = [write(0, 1), read(8, 0), read(8, 0), read(8, 1), write(4, 2)];
        let second = [write(0, 1), read(8, 1), write(4, 2)];

        assert_eq!(difference(&first, &second), Comparison { same: 3, ..Comparison::default() });
    }

    #[test]
    fn value_of_a_read_is_told_and_the_rest_is_compared() {
        let found = difference(&[read(0, 1), write(4, 2)], &[read(0, 5), write(4, 2)]);

        assert_eq!(found.same, 2);
        let [Difference::Value { first, second }] = found.differences.as_slice() else { panic!("{found:?}") };
        assert_eq!((first.access.value, second.access.value, second.number), (1, 5, 0));
    }

    #[test]
    fn what_one_has_more_is_told_and_both_are_aligned_again() {
        let common: Vec<_> = (0..10_000).map(|i| write(4 * i, i)).collect();
        let mut more = common.clone();
        more.splice(5000..5000, (0..40).map(|i| write(0x10_0000 + i, 1)));
        let found = difference(&common, &more);

        assert_eq!(found.same, 10_000);
        let [Difference::Accesses { first, second }] = found.differences.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!((first.len(), second.len(), second[0].number), (0, 40, 5000));
    }

    #[test]
    fn long_tail_of_one_is_told_and_differences_are_limited() {
        let found = difference(&[write(0, 0)], &[write(0, 0), write(1, 1), read(2, 2)]);
        assert_eq!(found.differences.len(), 1);

        let ones: Vec<_> = (0..5000).map(|i| read(i, 1)).collect();
        let twos: Vec<_> = (0..5000).map(|i| read(i, 2)).collect();
        let found = difference(&ones, &twos);
        assert_eq!((found.differences.len(), found.more), (10, true));
    }

    #[test]
    fn nothing_in_common_ends() {
        let first: Vec<_> = (0..5000).map(|i| write(i, 1)).collect();
        let second: Vec<_> = (0..7000).map(|i| write(i, 2)).collect();
        let found = difference(&first, &second);

        assert_eq!(found.same, 0);
        assert!(!found.differences.is_empty());
    }
}
