//! Turns of equal length in a fixed order, kept for their owners whether they have work or not: what `equal-share` and
//! `fixed-share` have in common.
//!
//! **Order.** Smooth weighted round robin: each turn, every VM gains its part and the one that has gained most pays the
//! whole. Parts of 50, 25 and 25 give 1 2 1 3, not 1 1 2 3. What is left of the whole is a turn that nobody owns.
//!
//! **Overrun.** Work that hardware cannot interrupt runs on into the next turn, and a scheduler that is late ends a
//! turn late. Then the next turn is that much longer, so that its owner (who may be idle, or nobody) loses nothing, and
//! the VM that overran owes the time: it is taken from its next turns, whole turns if need be. A round that grew
//! shrinks again, so parts are kept over time.
//!
//! **What accounting cannot know at once.** The end of a turn is accounted a moment later, when the next turn has
//! begun. As long as a VM's turns are not accounted in full, what comes in is taken for that (up to [`LAG`]).
//!
//! **Changes of the engine's owner** cost time in which nobody works. It is the VM's own, but where turns are idle it
//! gets it back from them, so that a busy VM among idle ones has its full part.

use std::time::Duration;

use super::book::{Book, nanos, time};
use super::{Admission, Decision, SHORTEST, Settings, VmView, slice};
use crate::addr::TenantId;

/// How late use is accounted at the most: when the window after it has been looked at.
const LAG: Duration = crate::scheduler::sampling::WINDOW.saturating_mul(2);

/// Turns beyond one for each VM that are sat out at once, at the most.
const SIT_OUT: usize = 64;

/// What is kept of a VM.
#[derive(Clone, Copy, Debug, Default)]
struct Vm {
    /// Gained and paid in the order of turns.
    gained: i64,
    /// Nanoseconds of others that it used and has not given back; negative when it gave back more.
    owes: i64,
    /// Time of its last turn that it was ready for and that was not accounted as used.
    open: Duration,
    /// What of that may yet be accounted.
    lag: Duration,
    /// What was accounted of its last turn.
    got: Duration,
    /// Time of its turns that went by while the engine was made over to it.
    lost: Duration,
}

/// The present turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// `None`: nobody's.
    owner: Option<TenantId>,
    end: Duration,
    /// True when its owner was ready at the last decision.
    ready: bool,
}

/// The turns of one engine.
#[derive(Debug, Default)]
pub(super) struct Slots {
    settings: Settings,
    book: Book<Vm>,
    /// As [`Vm::gained`], of what nobody owns.
    nobody: i64,
    turn: Option<Turn>,
    /// When was last decided.
    last: Duration,
    /// Time that idle turns were late, to be taken from idle turns.
    late: Duration,
    /// Time that was taken from idle turns for those who lost some.
    bank: Duration,
}

impl Slots {
    pub fn new(settings: &Settings) -> Self {
        Self { settings: *settings, ..Self::default() }
    }

    /// Decides. Each VM has `part` of `whole`.
    pub fn decide(
        &mut self,
        now: Duration,
        vms: &[VmView],
        whole: u32,
        part: impl Fn(&VmView) -> u32,
    ) -> Decision {
        self.book.update(vms, |_| Vm::default());
        let all = Decision { admission: Admission::All, review_after: None };
        if !vms.iter().any(|view| view.ready) {
            self.turn = None;
            self.last = now;
            return all;
        }
        if let [alone] = vms
            && part(alone) >= whole
        {
            self.turn = None;
            self.last = now;
            return all;
        }
        self.account(now);
        let length = slice(&self.settings, vms.len());
        let turn = match self.turn.filter(|turn| now < turn.end && self.is_present(turn.owner)) {
            Some(turn) => turn,
            None => self.next(now, vms, length, whole, part),
        };
        let place = turn.owner.and_then(|owner| self.book.place(owner));
        let ready = place.and_then(|place| vms.get(place)).is_some_and(|view| view.ready);
        self.turn = Some(Turn { ready, ..turn });
        Decision {
            admission: turn.owner.map_or(Admission::Nobody, Admission::Only),
            review_after: Some(turn.end.saturating_sub(now).max(SHORTEST)),
        }
    }

    fn is_present(&self, owner: Option<TenantId>) -> bool {
        owner.is_none_or(|owner| self.book.place(owner).is_some())
    }

    /// Books what was used since the last decision: within turns, and beyond them.
    fn account(&mut self, now: Duration) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.last, now));
        let owner = self.turn.and_then(|turn| turn.owner);
        let mut overrun = Duration::ZERO;
        for row in &mut self.book.rows {
            let (vm, grown) = (&mut row.state, row.grown);
            if owner == Some(row.vm) {
                vm.got = vm.got.saturating_add(grown);
            } else {
                let late = grown.min(vm.lag);
                vm.lag = vm.lag.saturating_sub(late);
                vm.open = vm.open.saturating_sub(late);
                vm.got = vm.got.saturating_add(late);
                let over = grown.saturating_sub(late);
                vm.owes = vm.owes.saturating_add(nanos(over));
                overrun = overrun.saturating_add(over);
            }
        }
        let Some(turn) = &mut self.turn else { return };
        turn.end = turn.end.saturating_add(overrun);
        let late = now.saturating_sub(turn.end).min(passed);
        let place = turn.owner.filter(|_| turn.ready).and_then(|owner| self.book.place(owner));
        if let Some(row) = place.and_then(|place| self.book.rows.get_mut(place)) {
            let own = row.state.open.saturating_add(passed.saturating_sub(overrun));
            row.state.open = own.saturating_sub(row.grown);
            // It keeps the engine until now.
            row.state.owes = row.state.owes.saturating_add(nanos(late));
        } else {
            self.late = self.late.saturating_add(late).min(LAG);
        }
    }

    /// Ends the present turn and begins the next.
    fn next(
        &mut self,
        now: Duration,
        vms: &[VmView],
        length: Duration,
        whole: u32,
        part: impl Fn(&VmView) -> u32,
    ) -> Turn {
        let ended = self.turn.and_then(|turn| turn.owner).and_then(|owner| self.book.place(owner));
        if let Some(row) = ended.and_then(|place| self.book.rows.get_mut(place)) {
            row.state.lag = row.state.open.min(LAG);
        }
        // Where all owe each other, all sit out some turns, which takes no time.
        for _ in 0..vms.len().saturating_add(SIT_OUT) {
            let Some(place) = self.pick(vms, whole, &part) else { break };
            let (Some(row), Some(view)) = (self.book.rows.get_mut(place), vms.get(place)) else { break };
            let vm = &mut row.state;
            if vm.owes >= nanos(quarters(length, 3)) {
                vm.owes = vm.owes.saturating_sub(nanos(length));
                continue;
            }
            // Two turns of one VM in a row are one as to what is accounted late.
            if ended != Some(place) {
                // What was lost counts only where the rest was used.
                if vm.got >= quarters(length, 2) {
                    vm.lost = vm.lost.saturating_add(vm.open).min(length);
                }
                (vm.open, vm.got) = (Duration::ZERO, Duration::ZERO);
            }
            vm.lag = Duration::ZERO;
            let own = if view.ready {
                let back = vm.lost.min(quarters(length, 1)).min(self.bank);
                vm.lost = vm.lost.saturating_sub(back);
                self.bank = self.bank.saturating_sub(back);
                time(nanos(length.saturating_add(back)).saturating_sub(std::mem::take(&mut vm.owes)))
            } else {
                self.idle_turn(length)
            };
            return Turn { owner: Some(view.vm), end: now.saturating_add(own), ready: view.ready };
        }
        Turn { owner: None, end: now.saturating_add(self.idle_turn(length)), ready: false }
    }

    /// Length of a turn that nobody uses.
    fn idle_turn(&mut self, length: Duration) -> Duration {
        let late = self.late.min(quarters(length, 1));
        self.late = self.late.saturating_sub(late);
        let lost = self.book.rows.iter().fold(Duration::ZERO, |sum, row| sum.saturating_add(row.state.lost));
        let taken = lost.saturating_sub(self.bank).min(quarters(length, 1).saturating_sub(late));
        self.bank = self.bank.saturating_add(taken);
        length.saturating_sub(late).saturating_sub(taken)
    }

    /// Whose turn is next by the order; `None`: nobody's.
    fn pick(&mut self, vms: &[VmView], whole: u32, part: &impl Fn(&VmView) -> u32) -> Option<usize> {
        let mut sum: u32 = 0;
        let mut best: Option<(usize, i64)> = None;
        for (place, (row, view)) in self.book.rows.iter_mut().zip(vms).enumerate() {
            let part = part(view);
            sum = sum.saturating_add(part);
            row.state.gained = row.state.gained.saturating_add(part.into());
            if best.is_none_or(|(_, most)| row.state.gained > most) {
                best = Some((place, row.state.gained));
            }
        }
        let whole = whole.max(sum);
        self.nobody = self.nobody.saturating_add(whole.saturating_sub(sum).into());
        let (place, most) = best?;
        if self.nobody > most {
            self.nobody = self.nobody.saturating_sub(whole.into());
            return None;
        }
        if let Some(row) = self.book.rows.get_mut(place) {
            row.state.gained = row.state.gained.saturating_sub(whole.into());
        }
        Some(place)
    }
}

/// So many quarters of a time.
fn quarters(time: Duration, quarters: u64) -> Duration {
    super::book::portion(time, quarters, 4)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ms, view};
    use super::*;

    /// The turns of VMs 1 and 2, which have half each; `used` in milliseconds.
    fn at(slots: &mut Slots, now: u64, first: (bool, u64), second: (bool, u64)) -> Decision {
        slots.decide(ms(now), &[view(1, first.0, first.1), view(2, second.0, second.1)], 2, |_| 1)
    }

    fn only(vm: u32, after: u64) -> Decision {
        Decision { admission: Admission::Only(TenantId(vm)), review_after: Some(ms(after)) }
    }

    #[test]
    fn order_spreads_the_turns_of_large_parts() {
        let mut slots = Slots::default();
        let vms = [view(1, true, 0), view(2, true, 0), view(3, true, 0)];
        let part = |view: &VmView| if view.vm.0 == 1 { 50 } else { 25 };

        let order: Vec<_> = (0..8).map(|i| slots.decide(ms(2 * i), &vms, 100, part).admission).collect();

        assert_eq!(order, [1, 2, 3, 1, 1, 2, 3, 1].map(|vm| Admission::Only(TenantId(vm))));
    }

    #[test]
    fn overrun_lengthens_the_next_turn_and_shortens_the_debtors_own() {
        let mut slots = Slots::default();
        assert_eq!(at(&mut slots, 0, (true, 0), (true, 0)), only(1, 2));
        assert_eq!(at(&mut slots, 2, (true, 2), (true, 0)), only(2, 2));

        // VM 1 runs on for one of the two milliseconds.
        let lengthened = at(&mut slots, 3, (true, 3), (true, 0));
        let shortened = at(&mut slots, 5, (true, 3), (true, 2));
        let as_before = at(&mut slots, 6, (true, 4), (true, 2));

        assert_eq!(lengthened, only(2, 2));
        assert_eq!(shortened, only(1, 1));
        assert_eq!(as_before, only(2, 2));
    }

    #[test]
    fn long_overrun_costs_whole_turns() {
        let mut slots = Slots::default();
        at(&mut slots, 0, (true, 0), (true, 0));
        at(&mut slots, 2, (true, 2), (true, 0));

        // VM 1 runs on for six milliseconds: three of its turns.
        assert_eq!(at(&mut slots, 8, (true, 8), (true, 0)), only(2, 2));
        let then: Vec<_> =
            [10, 12, 14, 16].map(|now| at(&mut slots, now, (true, 8), (true, now - 8)).admission).into();

        assert_eq!(then, [2, 2, 2, 1].map(|vm| Admission::Only(TenantId(vm))));
    }

    #[test]
    fn overrun_into_an_idle_vms_turn_is_owed_too() {
        let mut slots = Slots::default();
        at(&mut slots, 0, (true, 0), (false, 0));
        at(&mut slots, 2, (true, 2), (false, 0));

        assert_eq!(at(&mut slots, 3, (true, 3), (false, 0)), only(2, 2));
        assert_eq!(at(&mut slots, 5, (true, 3), (false, 0)), only(1, 1));
    }

    #[test]
    fn what_is_accounted_late_is_no_overrun() {
        let mut slots = Slots::default();
        at(&mut slots, 0, (true, 0), (true, 0));

        // One of VM 1's two milliseconds is accounted when its turn is over.
        assert_eq!(at(&mut slots, 2, (true, 1), (true, 0)), only(2, 2));
        assert_eq!(at(&mut slots, 3, (true, 2), (true, 0)), only(2, 1));
        assert_eq!(at(&mut slots, 4, (true, 2), (true, 2)), only(1, 2));
    }

    #[test]
    fn late_look_shortens_the_next_turn_of_who_gained_by_it() {
        let mut slots = Slots::default();
        at(&mut slots, 0, (true, 0), (true, 0));

        assert_eq!(at(&mut slots, 3, (true, 3), (true, 0)), only(2, 2));
        assert_eq!(at(&mut slots, 5, (true, 3), (true, 2)), only(1, 1));
    }

    #[test]
    fn nothing_ticks_while_nobody_has_work() {
        let mut slots = Slots::default();
        at(&mut slots, 0, (true, 0), (true, 0));

        let idle = at(&mut slots, 1, (false, 1), (false, 0));

        assert_eq!(idle, Decision { admission: Admission::All, review_after: None });
    }
}
