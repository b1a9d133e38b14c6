//! `weighted`: VMs with work get the engine in proportion to their weights, up to their caps.
//!
//! **Whose idea.** Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996), as Linux's CFS and disk
//! schedulers use it. Each VM has a virtual time that grows by its use divided by its weight; the one whose
//! virtual time is earliest has the next turn. Only use counts, so a VM that overruns a turn, or ends it
//! early, is neither better nor worse off. But a VM that left the engine idle for more than half of its turn
//! is charged for all of it: no other VM could use it meanwhile. A VM that slept starts one turn behind the
//! others at the most: sleep saves nothing beyond that. A new one starts as if it just had a turn: leaving
//! and coming back saves nothing either.
//!
//! **Light VMs.** A VM that is a whole turn behind the one that has the engine seldom wants it. It gets the
//! engine at once, unless the other has had it for less than [`LEAST`] times the cost of a change, and gives
//! it back after an eighth of a turn if it left it idle for more than half of that. No VM gets more of the
//! engine's time by this than its weight allows, and a VM that always wants the engine is soon level with the
//! others, whose turns are whole then. Wake-up preemption in CFS does the same. It is left out where an
//! eighth of a turn is less than [`WORTH`] times the cost of a change.
//!
//! A `cap` is a bucket that fills at that percentage of time and holds two turns. An empty one keeps its VM
//! from the engine until there is half a turn in it, even while others are idle.
//!
//! **When.** The policy to choose when nothing else is asked for: fair for any mix, all time is used, a VM
//! that seldom wants something has it at once. **When not.** When a VM must not be faster because others rest
//! (`fixed-share`), or needs so much in each period (`deadline`).
//!
//! Turns are as long as NVIDIA's, unless the operator says otherwise.

use std::time::Duration;

use super::vm_table::{VmRow, VmTable, nanos, time};
use super::{Admission, Decision, Policy, SHORTEST, Settings, VmView, slice};
use gpuvmk_chip::addr::TenantId;

/// Virtual nanoseconds for each nanosecond of use at weight 1.
const SCALE: u64 = 1_000_000;

/// A VM that wakes up during a turn ends it if it is this part of a turn behind.
const WAKES: u32 = 16;
/// A light VM has this part of a turn,
const PART: u32 = 8;
/// if that is so many times what it costs to change over,
const WORTH: u32 = 16;
/// and waits until the one before had the engine for so many times.
const LEAST: u32 = 4;

/// State of a VM.
#[derive(Clone, Copy, Debug)]
struct Vm {
    /// Its virtual time.
    time: u128,
    /// True when it was ready at the last decision.
    ready: bool,
    /// Nanoseconds in its bucket.
    bucket: i64,
    /// Its bucket ran empty and has not filled enough since.
    empty: bool,
    /// When it last began to want the engine.
    woke: Duration,
    /// When its last turn began. Looks miss most of very short work, so virtual times may be equal for long.
    served: Option<Duration>,
    /// Time that it was charged in advance.
    prepaid: Duration,
}

/// The present turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    vm: TenantId,
    since: Duration,
    /// What was accounted of it,
    got: Duration,
    /// and what others had of it, who were still on the engine.
    others: Duration,
    /// The VM was a whole turn behind another that waits.
    light: bool,
}

impl Turn {
    /// Passed time that is not accounted yet.
    fn open(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since).saturating_sub(self.got)
    }

    /// The idle part of that, without others' time.
    fn idle(&self, now: Duration) -> Duration {
        self.open(now).saturating_sub(self.others)
    }

    /// The engine was idle for the most.
    fn is_idle(&self, now: Duration) -> bool {
        self.idle(now) > now.saturating_sub(self.since) / 2
    }
}

/// The policy; see the module.
#[derive(Debug)]
pub struct Weighted {
    settings: Settings,
    /// Time of a change from one VM to the next.
    switch: Duration,
    book: VmTable<Vm>,
    turn: Option<Turn>,
    /// The VM that gave the engine back although it had work: another is next.
    gave_back: Option<TenantId>,
    /// Virtual time that everybody with work has reached.
    floor: u128,
    last: Option<Duration>,
}

impl Weighted {
    /// A policy with these settings, for an engine that goes from one VM to the next in `switch`.
    pub fn new(settings: &Settings, switch: Duration) -> Self {
        let book = VmTable::default();
        Self { settings: *settings, switch, book, turn: None, gave_back: None, floor: 0, last: None }
    }

    /// Charges what was used, fills buckets, and sets those forward who slept.
    fn update(&mut self, now: Duration, vms: &[VmView], turn: Duration) {
        let passed = now.saturating_sub(self.last.replace(now).unwrap_or(now));
        let floor = self.floor;
        let full = nanos(turn);
        self.book.update(vms, |view| Vm {
            time: floor.saturating_add(virtual_time(turn, view)),
            ready: false,
            bucket: full,
            empty: false,
            woke: now,
            served: None,
            prepaid: Duration::ZERO,
        });
        for (row, view) in self.book.rows.iter_mut().zip(vms) {
            let vm = &mut row.state;
            let before = std::mem::take(&mut vm.prepaid);
            vm.prepaid = before.saturating_sub(row.grown);
            vm.time = vm.time.saturating_add(virtual_time(row.grown.saturating_sub(before), view));
            if let Some(cap) = view.share.cap {
                let filled = vm.bucket.saturating_sub(nanos(row.grown)).saturating_add(fill(passed, cap));
                vm.bucket = filled.min(full.saturating_mul(2));
                vm.empty = vm.bucket <= 0 || (vm.empty && vm.bucket < full / 2);
            } else {
                (vm.bucket, vm.empty) = (full, false);
            }
            if let Some(turn) = self.turn.as_mut() {
                let part = if turn.vm == row.vm { &mut turn.got } else { &mut turn.others };
                *part = part.saturating_add(row.grown);
            }
        }
        let compete = |(row, view): &(&VmRow<Vm>, &VmView)| view.ready && !row.state.empty;
        let earliest = self.book.rows.iter().zip(vms).filter(compete).filter(|(row, _)| row.state.ready);
        self.floor = earliest.map(|(row, _)| row.state.time).min().unwrap_or(self.floor).max(self.floor);
        for (row, view) in self.book.rows.iter_mut().zip(vms) {
            let vm = &mut row.state;
            let competes = view.ready && !vm.empty;
            if competes && (view.woke || !vm.ready) {
                vm.woke = now;
                vm.time = vm.time.max(self.floor.saturating_sub(virtual_time(turn, view)));
            }
            vm.ready = competes;
        }
    }
}

impl Policy for Weighted {
    fn name(&self) -> &'static str {
        "weighted"
    }

    fn arbitrates(&self) -> bool {
        true
    }

    fn cuts_turns(&self) -> bool {
        self.brief(slice(&self.settings, 1)).is_some()
    }

    fn decide(&mut self, now: Duration, vms: &[VmView]) -> Decision {
        let length = slice(&self.settings, vms.len());
        self.update(now, vms, length);
        let mut ready = vms.iter().filter(|view| view.ready);
        let (first, more) = (ready.next(), ready.next().is_some());
        let Some(first) = first else {
            self.end_turn(now, vms);
            return Decision { admission: Admission::All, review_after: None };
        };
        if !more && first.share.cap.is_none() {
            self.end_turn(now, vms);
            return Decision { admission: Admission::All, review_after: None };
        }
        if let Some(turn) = self.turn
            && let Some(left) = self.left(&turn, now, vms, length)
        {
            return Decision { admission: Admission::Only(turn.vm), review_after: Some(left.max(SHORTEST)) };
        }
        let ended = self.end_turn(now, vms);
        let Some(view) = self.earliest(ended.as_ref(), now, vms) else {
            let filled = self.book.rows.iter().zip(vms).filter_map(|(row, view)| {
                let missing = (nanos(length) / 2).saturating_sub(row.state.bucket);
                view.ready.then(|| time_to_fill(missing, view.share.cap.unwrap_or(100)))
            });
            let soonest = filled.min().unwrap_or(length).max(SHORTEST);
            return Decision { admission: Admission::Nobody, review_after: Some(soonest) };
        };
        let mut turn =
            Turn { vm: view.vm, since: now, got: Duration::ZERO, others: Duration::ZERO, light: false };
        if let Some(row) = self.book.place(turn.vm).and_then(|place| self.book.rows.get_mut(place)) {
            row.state.served = Some(now);
            row.state.prepaid = Duration::ZERO;
            let behind = row.state.time.saturating_add(virtual_time(length, view));
            turn.light = self.book.rows.iter().any(|row| row.state.ready && row.state.time >= behind);
        }
        self.turn = Some(turn);
        self.gave_back = None;
        let left = self.left(&turn, now, vms, length).unwrap_or(length);
        Decision { admission: Admission::Only(turn.vm), review_after: Some(left.max(SHORTEST)) }
    }
}

impl Weighted {
    /// The rest of a turn; `None` when it is over.
    fn left(&self, turn: &Turn, now: Duration, vms: &[VmView], length: Duration) -> Option<Duration> {
        let place = self.book.place(turn.vm)?;
        let (row, view) = (self.book.rows.get(place)?, vms.get(place)?);
        let left = length.saturating_sub(now.saturating_sub(turn.since));
        let mut left = match view.share.cap {
            Some(_) => left.min(time(row.state.bucket.saturating_sub(nanos(turn.open(now))))),
            None => left,
        };
        if let Some(brief) = self.brief(length) {
            let ran = now.saturating_sub(turn.since);
            let reached = row.state.time.saturating_add(virtual_time(turn.open(now), view));
            // How long the VM may go on until a waiting VM is far enough behind it. For one that has waited
            // since before the turn, that is about the end of the turn, and is checked then.
            let until = |(row, other): (&VmRow<Vm>, &VmView)| {
                let vm = &row.state;
                let woke = vm.woke >= turn.since;
                let by = if woke { self.wakes(length) } else { length };
                let ends = vm.time.saturating_add(virtual_time(by, other));
                let waits = vm.ready && row.vm != turn.vm && (woke || ends <= reached);
                waits.then(|| use_of(ends.saturating_sub(reached), view))
            };
            let until = self.book.rows.iter().zip(vms).filter_map(until).min();
            if let Some(until) = until {
                left = left.min(until.max(self.switch.saturating_mul(LEAST).saturating_sub(ran)));
            }
            if turn.light && turn.is_idle(now) {
                left = left.min(brief.saturating_sub(ran));
            } else if turn.light {
                // Whether it uses what it has is looked at again.
                left = left.min(brief);
            }
        }
        (row.state.ready && !left.is_zero()).then_some(left)
    }

    /// By how much who wakes up is behind if he is not to wait for the end of the turn.
    fn wakes(&self, length: Duration) -> Duration {
        (length / WAKES).max(self.switch.saturating_mul(LEAST))
    }

    /// How long a light VM has its turn; `None` where that is not worth while.
    fn brief(&self, length: Duration) -> Option<Duration> {
        let brief = length / PART;
        (brief >= self.switch.saturating_mul(WORTH)).then_some(brief)
    }

    /// The present turn is over. Its idle time is charged if it was most of the turn, and then not again when
    /// it is accounted later.
    fn end_turn(&mut self, now: Duration, vms: &[VmView]) -> Option<Turn> {
        let turn = self.turn.take()?;
        let place = self.book.place(turn.vm)?;
        let (vm, view) = (&mut self.book.rows.get_mut(place)?.state, vms.get(place)?);
        if !turn.is_idle(now) {
            return Some(turn);
        }
        let idle = turn.idle(now);
        vm.time = vm.time.saturating_add(virtual_time(idle, view));
        vm.prepaid = idle;
        self.gave_back = (turn.light && vm.ready).then_some(turn.vm);
        None
    }

    /// The VM with the earliest virtual time of those that may have the engine. The time of a turn that just
    /// ended counts as used even if it is not accounted yet.
    fn earliest<'a>(&self, ended: Option<&Turn>, now: Duration, vms: &'a [VmView]) -> Option<&'a VmView> {
        let key = |(row, view): &(&VmRow<Vm>, &'a VmView)| {
            let ended = ended.filter(|turn| turn.vm == row.vm);
            let open = ended.map_or(Duration::ZERO, |turn| turn.open(now));
            let time = row.state.time.saturating_add(virtual_time(open, view));
            (self.gave_back == Some(row.vm), time, row.state.served)
        };
        let able = self.book.rows.iter().zip(vms).filter(|(row, _)| row.state.ready);
        able.min_by_key(key).map(|(_, view)| view)
    }
}

/// How much later a VM's virtual time is after this use.
fn virtual_time(used: Duration, view: &VmView) -> u128 {
    used.as_nanos().saturating_mul(SCALE.into()).checked_div(view.share.weight.into()).unwrap_or(u128::MAX)
}

/// How much use makes a VM's virtual time so much later.
fn use_of(later: u128, view: &VmView) -> Duration {
    let nanos = later.saturating_mul(view.share.weight.into()) / u128::from(SCALE);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Growth of a bucket in a time.
fn fill(passed: Duration, cap: u8) -> i64 {
    nanos(passed).saturating_mul(cap.into()) / 100
}

/// How long a bucket takes to gain so much.
fn time_to_fill(missing: i64, cap: u8) -> Duration {
    time(missing.saturating_mul(100).checked_div(cap.into()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
