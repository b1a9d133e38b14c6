//! Which PBDMAs sleep, and which of them are woken when channels have become ready: one for each channel, and
//! no more.
//!
//! To wake all for every doorbell, runlist or bind would be right as well, and costs processor time that a VM
//! can make others lose: all but one find nothing and go to sleep again. A pure model, part of the FIFO's
//! tables and locked with them. A PBDMA that has been called and has not come yet counts as one that will
//! take a channel.

/// PBDMAs as bits.
pub(crate) type Pbdmas = u32;

/// The bit of a PBDMA.
pub(crate) const fn bit(pbdma: u8) -> Pbdmas {
    1 << (pbdma % 32)
}

/// The set of PBDMAs that sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sleepers {
    asleep: Pbdmas,
    /// The sleeping PBDMAs that have been called.
    called: Pbdmas,
}

impl Sleepers {
    /// A PBDMA goes to sleep.
    pub(crate) fn lie_down(&mut self, pbdma: u8) {
        self.asleep |= bit(pbdma);
        self.called &= !bit(pbdma);
    }

    /// A PBDMA is up, called or not.
    pub(crate) fn get_up(&mut self, pbdma: u8) {
        self.asleep &= !bit(pbdma);
        self.called &= !bit(pbdma);
    }

    /// True when somebody of `enabled` could be called.
    pub(crate) fn any(&self, enabled: Pbdmas) -> bool {
        self.asleep & !self.called & enabled != 0
    }

    /// True when somebody of `enabled` was called, and has not come yet.
    pub(crate) fn is_anybody_coming(&self, enabled: Pbdmas) -> bool {
        self.called & enabled != 0
    }

    /// Calls as many of `enabled` as `ready` channels need; `last` only if there is nobody else. Returns
    /// them.
    pub(crate) fn call(&mut self, ready: u32, enabled: Pbdmas, last: Option<u8>) -> Pbdmas {
        let coming = (self.called & enabled).count_ones();
        let mut wanted = ready.saturating_sub(coming);
        let last = last.map_or(0, bit);
        let candidates = self.asleep & !self.called & enabled;
        let mut chosen = 0;
        for mut group in [candidates & !last, candidates & last] {
            while wanted > 0 && group != 0 {
                let first = group & group.wrapping_neg();
                chosen |= first;
                group &= !first;
                wanted = wanted.saturating_sub(1);
            }
        }
        self.called |= chosen;
        chosen
    }

    /// Calls one of `enabled`, whoever else comes.
    pub(crate) fn call_one(&mut self, enabled: Pbdmas) -> Pbdmas {
        let coming = (self.called & enabled).count_ones();
        self.call(coming.saturating_add(1), enabled, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Pbdmas = 0b111;

    fn asleep() -> Sleepers {
        let mut sleepers = Sleepers::default();
        (0..3).for_each(|pbdma| sleepers.lie_down(pbdma));
        sleepers
    }

    #[test]
    fn one_is_called_for_each_ready_channel_and_nobody_twice() {
        let mut sleepers = asleep();
        assert_eq!(sleepers.call(1, ALL, None), 0b001);
        assert_eq!(sleepers.call(1, ALL, None), 0, "the one who was called has not come yet");
        assert_eq!(sleepers.call(2, ALL, None), 0b010);
        sleepers.get_up(0);
        assert_eq!(sleepers.call(2, ALL, None), 0b100, "two are ready, and one is coming");
        assert_eq!(sleepers.call(9, ALL, None), 0, "nobody is left");
    }

    #[test]
    fn whoever_watches_the_clock_is_called_last() {
        let mut sleepers = asleep();
        assert_eq!(sleepers.call(1, ALL, Some(0)), 0b010);
        assert_eq!(sleepers.call(3, ALL, Some(0)), 0b101);
    }

    #[test]
    fn disabled_ones_are_not_called_and_do_not_count_as_coming() {
        let mut sleepers = asleep();
        assert_eq!(sleepers.call(1, 0b001, None), 0b001);
        assert_eq!(sleepers.call(1, 0b110, None), 0b010, "number 0 was disabled meanwhile");
        assert!(!sleepers.any(0b011) && sleepers.any(0b100));
    }

    #[test]
    fn sleeper_that_was_called_in_vain_can_be_called_again() {
        let mut sleepers = asleep();
        sleepers.call(1, ALL, None);
        sleepers.lie_down(0);
        assert_eq!(sleepers.call(1, ALL, None), 0b001);
        assert_eq!(sleepers.call_one(ALL), 0b010);
    }
}
