//! Budgets for each round: what `equal-share`, `fixed-share`, `best-effort` and the unreserved part of
//! `deadline` have in common.
//!
//! **Rounds.** In each round every VM may use the engine for its budget, in turns. Where parts are promised,
//! a round has a length, budgets are parts of it, and unused time stays unused until the round is over. Where
//! nothing is promised, a round is over as soon as no VM with work has budget left.
//!
//! **Order.** A VM that used less than half of its budget in the last two rounds goes first: its work is rare
//! and short, and its budget limits it as all others. The others go round: the one that had the engine
//! longest ago is next. So a VM with little work waits for the end of a turn, and not for a turn of each
//! other VM.
//!
//! **Overrun.** Work that hardware cannot interrupt runs on into another's turn, and a late scheduler ends a
//! turn late. Used time counts: a VM that overran its budget has that much less in the next round, for whole
//! rounds if need be. A VM that had to wait until the round was over keeps the rest of its budget for the
//! next one (up to [`KEPT`] budgets). Where unused time was lost (engines change hands) and all VMs had to
//! wait, all lose it by their parts.
//!
//! **Pauses.** Where parts are promised, a VM without work keeps its turn for an eighth of one, and is
//! charged for that. So a VM that waits for one piece of work before it brings the next is not put behind all
//! others each time. The rest of its budget stays for the round.
//!
//! **What accounting cannot know at once.** The end of a turn is accounted a moment later, when another VM
//! has the engine. For [`LAG`], the passed time of a turn counts as used although it is not accounted.

use std::time::Duration;

use super::vm_table::{VmRow, VmTable, nanos, portion, time};
use super::{Admission, Decision, SHORTEST, VmView};
use gpuvmk_chip::addr::TenantId;

/// How late use is accounted at the most: when the window after it has been looked at.
const LAG: Duration = crate::sampling::WINDOW.saturating_mul(2);

/// Budgets that may be kept for later.
const KEPT: u32 = 4;

/// Resolution of a budget.
const WHOLE: u64 = 1_000_000;

const UNLIMITED: Decision = Decision { admission: Admission::All, review_after: None };

/// How the engine is given out.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// Length of a turn.
    slice: Duration,
    /// Length of a round; `None`: it is over when no VM can go on.
    round: Option<Duration>,
    /// How long a VM keeps its turn without work.
    hold: Duration,
}

/// State of a VM.
#[derive(Clone, Copy, Debug, Default)]
struct Vm {
    /// Time that it may use in a round.
    budget: Duration,
    /// Nanoseconds of that which are left; negative after an overrun.
    left: i64,
    /// Used in this round,
    used: Duration,
    /// and in the one before.
    before: Duration,
    /// Time in which it had work and others had the engine: in this round, and what was kept for that before.
    waited: Duration,
    /// Time of its last turn that is not accounted,
    open: Duration,
    /// until when it may yet be,
    open_until: Duration,
    /// and what of it is of a round that counts no more.
    forgiven: Duration,
    /// When its last turn was over.
    served: Option<Duration>,
    /// True when it had work at the last decision.
    ready: bool,
}

impl Vm {
    /// It may have used so much: what is left less what may yet be accounted.
    fn usable(&self, now: Duration) -> i64 {
        let open =
            if now < self.open_until { self.open.saturating_sub(self.forgiven) } else { Duration::ZERO };
        self.left.saturating_sub(nanos(open))
    }

    /// It seldom wants anything.
    fn is_light(&self) -> bool {
        self.used.saturating_add(self.before) < self.budget / 2
    }

    /// The next round begins, `rounds` after the present one.
    fn renew(&mut self, rounds: u32) {
        let skipped = nanos(self.budget.saturating_mul(rounds.saturating_sub(1)));
        let most =
            if self.ready { self.waited.min(self.budget.saturating_mul(KEPT)) } else { Duration::ZERO };
        let kept = self.left.saturating_add(skipped).min(nanos(most));
        self.left = nanos(self.budget).saturating_add(kept);
        self.waited = time(kept);
        self.before = if rounds == 1 { self.used } else { Duration::ZERO };
        self.used = Duration::ZERO;
    }

    /// As if it had used nothing yet, and owed nothing.
    fn reset_debts(&mut self) {
        self.left = nanos(self.budget);
        self.before = self.used.min(self.budget);
        (self.used, self.waited, self.forgiven) = (Duration::ZERO, Duration::ZERO, self.open);
    }
}

/// The present turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    owner: TenantId,
    since: Duration,
    end: Duration,
    /// Accounted time of the turn, including time of VMs that overran theirs.
    known: Duration,
    /// Since when its owner has had no work.
    idle: Option<Duration>,
}

impl Turn {
    fn new(owner: TenantId, now: Duration, length: Duration) -> Self {
        Self { owner, since: now, end: now.saturating_add(length), known: Duration::ZERO, idle: None }
    }

    /// When it is over, unless its owner has work before.
    fn until(&self, hold: Duration) -> Duration {
        self.idle.map_or(self.end, |since| self.end.min(since.saturating_add(hold)))
    }

    /// Passed time that is not accounted yet.
    fn open(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since).saturating_sub(self.known)
    }
}

/// The rounds of one engine.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    book: VmTable<Vm>,
    turn: Option<Turn>,
    /// When the present round is over, if rounds have a length.
    end: Duration,
    /// When was last decided.
    last: Duration,
    /// The engine had no VM for some of this round.
    rested: bool,
}

impl Rounds {
    /// Decides where each VM has its budget in each round, and no more.
    pub fn decide_by_parts(
        &mut self,
        now: Duration,
        vms: &[VmView],
        slice: Duration,
        round: Duration,
        budget: impl Fn(&VmView) -> Duration + Copy,
    ) -> Decision {
        if !vms.iter().any(|view| view.ready) {
            self.rest(now, vms, budget);
            return UNLIMITED;
        }
        if let [alone] = vms
            && budget(alone) >= round
        {
            self.reset_debts(now, vms, budget);
            return UNLIMITED;
        }
        self.decide(now, vms, Rule { slice, round: Some(round), hold: slice / 8 }, budget)
    }

    /// Decides where a turn for each VM that has work is all that is promised.
    pub fn decide_by_turns(&mut self, now: Duration, vms: &[VmView], slice: Duration) -> Decision {
        let mut ready = vms.iter().filter(|view| view.ready);
        let (first, second) = (ready.next(), ready.next());
        if second.is_some() {
            return self.decide(now, vms, Rule { slice, round: None, hold: Duration::ZERO }, |_| slice);
        }
        let before = self.turn;
        self.reset_debts(now, vms, |_| slice);
        // A later VM waits for the end of its first turn, and no longer: changes have their price.
        self.turn = first.map(|view| {
            let same = before.filter(|turn| turn.owner == view.vm);
            same.unwrap_or_else(|| Turn::new(view.vm, now, slice))
        });
        UNLIMITED
    }

    fn decide(
        &mut self,
        now: Duration,
        vms: &[VmView],
        rule: Rule,
        budget: impl Fn(&VmView) -> Duration + Copy,
    ) -> Decision {
        self.account(now, vms, budget);
        if let Some(round) = rule.round {
            self.begin_rounds(now, round);
        }
        let goes_on = |turn: &Turn| now < turn.until(rule.hold) && self.can_go_on(turn, now);
        let turn = match self.turn.filter(goes_on) {
            Some(turn) => Some(turn),
            None => self.next(now, rule),
        };
        self.turn = turn;
        match turn {
            Some(turn) => Decision {
                admission: Admission::Only(turn.owner),
                review_after: Some(turn.until(rule.hold).saturating_sub(now).max(SHORTEST)),
            },
            None => {
                self.rested = true;
                let rest = self.end.saturating_sub(now).max(SHORTEST);
                Decision { admission: Admission::Nobody, review_after: Some(rest) }
            }
        }
    }

    /// No VM has work.
    fn rest(&mut self, now: Duration, vms: &[VmView], budget: impl Fn(&VmView) -> Duration) {
        self.account(now, vms, budget);
        self.interrupt(now);
        self.rested = true;
    }

    /// The VM with work needs no turns, and owes nothing for that time.
    fn reset_debts(&mut self, now: Duration, vms: &[VmView], budget: impl Fn(&VmView) -> Duration) {
        self.rest(now, vms, budget);
        self.book.rows.iter_mut().for_each(|row| row.state.reset_debts());
    }

    /// Ends the present turn: another VM has the engine.
    pub fn interrupt(&mut self, now: Duration) {
        let Some(turn) = self.turn.take() else { return };
        if let Some(row) = self.book.place(turn.owner).and_then(|place| self.book.rows.get_mut(place)) {
            row.state.open = turn.open(now).min(LAG);
            row.state.open_until = now.saturating_add(LAG);
            row.state.forgiven = Duration::ZERO;
            row.state.served = Some(now);
        }
    }

    /// Books what was used, and how long others waited, since the last decision.
    fn account(&mut self, now: Duration, vms: &[VmView], budget: impl Fn(&VmView) -> Duration) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.last, now));
        self.book.update(vms, |view| {
            let budget = budget(view);
            Vm { budget, left: nanos(budget), ..Vm::default() }
        });
        let mut overrun = Duration::ZERO;
        for (row, view) in self.book.rows.iter_mut().zip(vms) {
            let (vm, grown) = (&mut row.state, row.grown);
            vm.used = vm.used.saturating_add(grown);
            if let Some(turn) = self.turn.as_mut().filter(|turn| turn.owner == row.vm) {
                // Pauses in its turn are its own.
                let charged = if turn.idle.is_some() { passed.max(grown) } else { grown };
                turn.known = turn.known.saturating_add(charged);
                turn.idle = if view.ready { None } else { turn.idle.or(Some(now)) };
                vm.left = vm.left.saturating_sub(nanos(charged));
            } else {
                let late = grown.min(vm.open);
                let forgiven = late.min(vm.forgiven);
                vm.open = vm.open.saturating_sub(late);
                vm.forgiven = vm.forgiven.saturating_sub(forgiven);
                vm.left = vm.left.saturating_sub(nanos(grown.saturating_sub(forgiven)));
                overrun = overrun.saturating_add(grown.saturating_sub(late));
                if vm.ready {
                    vm.waited = vm.waited.saturating_add(passed);
                }
            }
            vm.ready = view.ready;
            vm.budget = budget(view);
        }
        // Whose turn it is had not all of it.
        let Some(turn) = &mut self.turn else { return };
        turn.known = turn.known.saturating_add(overrun);
        turn.end = turn.end.saturating_add(overrun);
        if let Some(row) = self.book.place(turn.owner).and_then(|place| self.book.rows.get_mut(place)) {
            row.state.waited = row.state.waited.saturating_add(overrun);
        }
    }

    /// Begins the rounds that are due.
    fn begin_rounds(&mut self, now: Duration, round: Duration) {
        let Some(late) = now.checked_sub(self.end) else { return };
        let over = late.as_nanos().checked_div(round.as_nanos()).unwrap_or(0);
        let rounds = u32::try_from(over).unwrap_or(u32::MAX).saturating_add(1);
        self.end = self.end.saturating_add(round.saturating_mul(rounds));
        if !std::mem::take(&mut self.rested) {
            self.lose_evenly();
        }
        self.book.rows.iter_mut().for_each(|row| row.state.renew(rounds));
    }

    /// All VMs had to wait for time that no VM used: all lose it, by their parts.
    fn lose_evenly(&mut self) {
        let part = |vm: &Vm| {
            let left = time(vm.left.min(nanos(vm.waited)));
            left.as_nanos().saturating_mul(WHOLE.into()).checked_div(vm.budget.as_nanos()).unwrap_or(0)
        };
        let least = self.book.rows.iter().map(|row| part(&row.state)).min().unwrap_or(0);
        let least = u64::try_from(least).unwrap_or(0);
        for row in &mut self.book.rows {
            let lost = portion(row.state.budget, least, WHOLE);
            row.state.left = row.state.left.saturating_sub(nanos(lost));
        }
    }

    fn can_go_on(&self, turn: &Turn, now: Duration) -> bool {
        let row = self.book.place(turn.owner).and_then(|place| self.book.rows.get(place));
        row.is_some_and(|row| row.state.left > nanos(turn.open(now)))
    }

    /// Ends the present turn and begins the next; `None` while no VM with work has budget left.
    fn next(&mut self, now: Duration, rule: Rule) -> Option<Turn> {
        let before = self.turn;
        self.interrupt(now);
        let mut next = self.pick(now, rule.slice);
        if next.is_none() && rule.round.is_none() {
            self.book.rows.iter_mut().for_each(|row| row.state.reset_debts());
            next = self.pick(now, rule.slice);
        }
        let (owner, usable) = next?;
        // A little more than a turn is not worth another one.
        let most = rule.slice.saturating_add(rule.slice / 4);
        let length = if usable <= most { usable } else { rule.slice };
        let turn = Turn::new(owner, now, length);
        // Two turns of one VM in a row are one as to what is accounted late.
        let goes_on = before.filter(|before| before.owner == owner);
        Some(goes_on.map_or(turn, |before| Turn { end: turn.end, ..before }))
    }

    /// The next VM, and the time that it may use.
    fn pick(&self, now: Duration, slice: Duration) -> Option<(TenantId, Duration)> {
        let able = |row: &&VmRow<Vm>| {
            // Small rests are kept for the next round, but for those who want little.
            let least = if row.state.is_light() { SHORTEST } else { slice / 4 }.min(row.state.budget / 2);
            row.state.ready && row.state.usable(now) >= nanos(least)
        };
        let order = |row: &&VmRow<Vm>| (!row.state.is_light(), row.state.served, row.vm);
        let row = self.book.rows.iter().filter(able).min_by_key(order)?;
        Some((row.vm, time(row.state.usable(now))))
    }
}

#[cfg(test)]
mod tests;
