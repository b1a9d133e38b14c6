//! Convergence barriers of a warp: sixteen registers, each with the lanes that meet there.
//!
//! All lanes of a warp share them. A compiler gives two groups of lanes the same register where they go the
//! same way one after the other: on a GPU a group runs until it waits, ends or yields. Here it may have to
//! pause elsewhere, so that others get on at last. So a register that a group writes keeps beside it what
//! another group has set by BSSY, and has yet to meet at. What is written by BMOV may be any number, and is
//! not kept.

/// Registers of a warp.
const BARRIERS: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Barriers {
    registers: [u32; BARRIERS],
    /// Registers that BSSY has set, a bit each.
    set: u16,
    /// What groups that have paused had set, with the register's number.
    kept: Vec<(u8, u32)>,
    /// Lanes whom others left a barrier without, since they had yielded: they wait for nobody there.
    excused: [u32; BARRIERS],
}

impl Barriers {
    /// None is set.
    pub fn clear(&mut self) {
        self.registers = [0; BARRIERS];
        self.set = 0;
        self.kept.clear();
        self.excused = [0; BARRIERS];
    }

    /// Lanes leave a barrier, which is 0 afterwards. Those of the others that have `yielded` need not wait
    /// there any more.
    pub fn open(&mut self, number: u8, lanes: u32, yielded: u32) {
        let left = std::mem::take(self.seen_by(number, lanes)) & !lanes & yielded;
        self.excused_at(number, left, 0);
    }

    /// Whether some of these lanes need not wait there; they need to the next time.
    pub fn takes_excuse(&mut self, number: u8, lanes: u32) -> bool {
        self.excused_at(number, 0, lanes) & lanes != 0
    }

    /// Changes who need not wait at a barrier, and gives who did not before.
    fn excused_at(&mut self, number: u8, set: u32, clear: u32) -> u32 {
        let excused = &mut self.excused[usize::from(number) % BARRIERS];
        let before = *excused;
        *excused = before & !clear | set;
        before
    }

    fn register(&mut self, number: u8) -> &mut u32 {
        &mut self.registers[usize::from(number) % BARRIERS]
    }

    /// BSSY: sets a register to the lanes that run, of those that `live`.
    pub fn set(&mut self, number: u8, lanes: u32, live: u32) {
        self.write(number, lanes, lanes, live);
        self.set |= 1 << (number % 16);
    }

    /// BMOV: writes a register, as lanes do that run.
    pub fn write(&mut self, number: u8, value: u32, lanes: u32, live: u32) {
        self.kept.retain(|(of, kept)| *of != number || kept & lanes == 0 && kept & live != 0);
        let before = std::mem::replace(self.register(number), value);
        if self.set & 1 << (number % 16) != 0 && before & lanes == 0 && before & live != 0 {
            self.kept.push((number, before));
        }
        self.set &= !(1 << (number % 16));
        self.excused_at(number, 0, value);
    }

    /// The register as lanes see it that run.
    pub fn seen_by(&mut self, number: u8, lanes: u32) -> &mut u32 {
        if !self.kept.is_empty() && *self.register(number) & lanes == 0 {
            let theirs = |(of, kept): &(u8, u32)| *of == number && kept & lanes != 0;
            if let Some(place) = self.kept.iter().position(theirs) {
                let (_, kept) = self.kept.swap_remove(place);
                let before = std::mem::replace(self.register(number), kept);
                if before != 0 && self.set & 1 << (number % 16) != 0 {
                    self.kept.push((number, before));
                }
                self.set |= 1 << (number % 16);
            }
        }
        self.register(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: u32 = 0xffff;

    #[test]
    fn group_that_paused_finds_its_own_again() {
        let mut barriers = Barriers::default();
        barriers.set(2, 0x00f0, LIVE);
        barriers.set(2, 0x000f, LIVE);
        assert_eq!(*barriers.seen_by(2, 0x0003), 0x000f);
        assert_eq!(*barriers.seen_by(2, 0x0010), 0x00f0);
        assert_eq!(*barriers.seen_by(3, 0x0010), 0, "it is another register");
        *barriers.seen_by(2, 0x0003) = 0;
        assert_eq!(*barriers.seen_by(2, 0x00f0), 0x00f0);
        assert_eq!(*barriers.seen_by(2, 0xff00), 0x00f0, "who has none sees what is there");
    }

    #[test]
    fn who_was_left_behind_waits_for_nobody_once() {
        let mut barriers = Barriers::default();
        barriers.set(4, 0x00ff, LIVE);
        barriers.open(4, 0x000f, 0x0030);
        assert_eq!(*barriers.seen_by(4, 0x00f0), 0);
        assert!(!barriers.takes_excuse(4, 0x00c0), "these have not yielded");
        barriers.set(4, 0x000f, LIVE);
        assert!(barriers.takes_excuse(4, 0x0010), "others have it now, who wait for each other");
        assert!(!barriers.takes_excuse(4, 0x0010));
        barriers.set(4, 0x00f0, LIVE);
        assert!(!barriers.takes_excuse(4, 0x0020), "they are to meet there anew");
    }

    #[test]
    fn numbers_of_bmov_are_everybodys() {
        let mut barriers = Barriers::default();
        barriers.write(5, 0x0001, 0x00f0, LIVE);
        barriers.write(5, 0x0002, 0x0f00, LIVE);
        assert_eq!(*barriers.seen_by(5, 0x00f0), 2);
        assert_eq!(*barriers.seen_by(5, 0x0001), 2);
        barriers.set(5, 0x00f0, LIVE);
        barriers.write(5, 0x0f00, 0x0f00, LIVE);
        assert_eq!(*barriers.seen_by(5, 0x0f00), 0x0f00);
        assert_eq!(*barriers.seen_by(5, 0x00f0), 0x00f0, "the other group has yet to meet");
    }

    #[test]
    fn what_nobody_will_meet_at_is_not_kept() {
        let mut barriers = Barriers::default();
        barriers.set(2, 0x00f0, LIVE);
        barriers.set(2, 0x0f00, LIVE & !0x00f0);
        barriers.set(2, 0x0f00, LIVE);
        barriers.set(2, 0x0ff0, LIVE);
        assert_eq!((*barriers.seen_by(2, 0x0010), barriers.kept.len()), (0x0ff0, 0));
        for turn in 0..1000 {
            barriers.set(2, 1 << (turn % 16), LIVE);
        }
        assert!(barriers.kept.len() < 16, "{}", barriers.kept.len());
        barriers.clear();
        assert_eq!(*barriers.seen_by(2, 1), 0);
    }
}
