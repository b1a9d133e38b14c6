//! Races on shared memory: two warps of a CTA use a word, one of them changes it, and no barrier is between.
//!
//! Barriers are taken to be of all warps: what a barrier of some of them orders may be called a race, or one
//! may be missed. Lanes of one warp are not looked at.

use std::collections::HashMap;

use gpuvmk_sm::Step;

/// Who used a word between two barriers.
#[derive(Debug, Default)]
struct Use {
    /// The number of barriers that the warps had passed.
    epoch: u64,
    readers: u64,
    writers: u64,
    atomics: u64,
}

/// How a warp uses a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Read,
    Write,
    Atomic,
}

impl Use {
    /// Whether this use and those before are a race.
    fn add(&mut self, epoch: u64, warp: u32, how: How) -> bool {
        if epoch > self.epoch {
            *self = Self { epoch, ..Self::default() };
        }
        let bit = 1 << (warp % 64);
        let (readers, writers, atomics) = (self.readers & !bit, self.writers & !bit, self.atomics & !bit);
        match how {
            How::Read => {
                self.readers |= bit;
                writers | atomics != 0
            }
            How::Write => {
                self.writers |= bit;
                readers | writers | atomics != 0
            }
            How::Atomic => {
                self.atomics |= bit;
                readers | writers != 0
            }
        }
    }
}

/// Uses of shared memory.
#[derive(Debug, Default)]
pub struct Shared {
    words: HashMap<([u32; 3], u32), Use>,
    /// Barriers that a warp has passed.
    epochs: HashMap<([u32; 3], u32), u64>,
}

impl Shared {
    /// Looks at a step, and says what is wrong with it.
    pub fn step(&mut self, step: &Step<'_>) -> Option<&'static str> {
        let epoch = self.epochs.entry((step.cta, step.warp)).or_default();
        if step.barrier {
            *epoch += 1;
        }
        let (epoch, access) = (*epoch, step.shared.as_ref()?);
        let how = match (access.atomic, access.store) {
            (true, _) => How::Atomic,
            (false, true) => How::Write,
            (false, false) => How::Read,
        };
        let mut races = false;
        for (lane, address) in access.addresses.iter().enumerate() {
            if step.lanes >> lane & 1 == 0 {
                continue;
            }
            for word in address / 4..=address.saturating_add(access.bytes.max(1) - 1) / 4 {
                races |= self.words.entry((step.cta, word)).or_default().add(epoch, step.warp, how);
            }
        }
        races.then_some("races with another warp for a word of shared memory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_race_is_two_warps_one_change_and_no_barrier() {
        let mut word = Use::default();
        assert!(!word.add(0, 0, How::Write));
        assert!(!word.add(0, 0, How::Read), "its own");
        assert!(word.add(0, 1, How::Read));
        assert!(!word.add(1, 1, How::Read), "behind a barrier");
        assert!(!word.add(1, 2, How::Read));
        assert!(word.add(1, 2, How::Write));
        assert!(!word.add(2, 1, How::Atomic));
        assert!(!word.add(2, 3, How::Atomic));
        assert!(word.add(2, 3, How::Write));
    }
}
