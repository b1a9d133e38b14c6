//! `credit`: each VM is given its part of every period as credit, and keeps the engine while it has some.
//!
//! **Whose idea.** Xen's credit scheduler, taken to GPUs by Gdev (Kato and others, USENIX ATC 2012) and GPUvm
//! (Suzuki and others, USENIX ATC 2014). VMs stand in a line, and the first with work runs. A VM that has
//! used up its credit goes to the end of the line at the end of its turn. A VM without credit still runs when
//! its turn in the line comes, so nothing is wasted. Their scheduler hands out the engine one submission at a
//! time, and all VMs are equal. Here a turn is at least one slice where hardware can preempt, credit follows
//! `weight`, and each engine has its own line, so that copies cost credit as computing does.
//!
//! **When.** To compare with GPUvm; for a few VMs that are always busy. **When not.** With VMs that come and
//! go, or mix long and short work: credit is checked only when a turn ends, so VMs with long pieces of work
//! get more than their part. A VM keeps the engine until its credit is gone, so others wait for up to a whole
//! period.
//!
//! Not handled: Gdev forgets all credit beyond a limit; here it stays at the limit.

use std::time::Duration;

use super::vm_table::{VmTable, nanos, portion, time};
use super::{Admission, Decision, Policy, Settings, VmView, slice};
use gpuvmk_chip::addr::TenantId;

/// Gdev's period. GPUvm's evaluation used 500 ms, which makes others wait for as long.
pub(super) const PERIOD: Duration = Duration::from_millis(30);
/// The most credit that can be saved up, in budgets of one period (GPUvm's limit).
const SAVED: i64 = 2;
/// The most debt that is remembered, in budgets.
const OWED: i64 = -10;

/// A VM's credit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    /// Nanoseconds; may be negative.
    pub left: i64,
    /// Its place in the line: lower is nearer to the engine.
    pub line: u64,
}

/// Credit of all VMs, and the line that they stand in.
#[derive(Debug, Default)]
pub(super) struct Credits {
    pub book: VmTable<Credit>,
    period: Option<Duration>,
    /// When credit is next given out.
    renewal: Option<Duration>,
    last_in_line: u64,
}

impl Credits {
    pub fn new(settings: &Settings) -> Self {
        Self { period: settings.period, ..Self::default() }
    }

    pub fn period(&self) -> Duration {
        self.period.unwrap_or(PERIOD).max(Duration::from_millis(1))
    }

    /// Charges what was used and gives out what is due. Returns true when a period is over.
    pub fn update(&mut self, now: Duration, vms: &[VmView]) -> bool {
        let period = self.period();
        let weights = weights(vms);
        let last_in_line = &mut self.last_in_line;
        self.book.update(vms, |view| {
            *last_in_line = last_in_line.saturating_add(1);
            Credit { left: nanos(budget(period, view, weights)), line: *last_in_line }
        });
        for row in &mut self.book.rows {
            row.state.left = row.state.left.saturating_sub(nanos(row.grown));
        }
        let renewal = *self.renewal.get_or_insert(now.saturating_add(period));
        let Some(late) = now.checked_sub(renewal) else { return false };
        let periods = late.as_nanos().checked_div(period.as_nanos()).unwrap_or(0).saturating_add(1);
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        self.renewal = Some(renewal.saturating_add(period.saturating_mul(periods)));
        for (row, view) in self.book.rows.iter_mut().zip(vms) {
            let budget = nanos(budget(period, view, weights));
            let given = row.state.left.saturating_add(budget.saturating_mul(periods.into()));
            row.state.left = given.clamp(budget.saturating_mul(OWED), budget.saturating_mul(SAVED));
        }
        true
    }

    pub fn left(&self, place: usize) -> i64 {
        self.book.rows.get(place).map_or(0, |row| row.state.left)
    }

    pub fn line(&self, place: usize) -> u64 {
        self.book.rows.get(place).map_or(u64::MAX, |row| row.state.line)
    }

    /// Sends a VM to the end of the line.
    pub fn move_to_the_end(&mut self, place: usize) {
        if let Some(row) = self.book.rows.get_mut(place) {
            self.last_in_line = self.last_in_line.saturating_add(1);
            row.state.line = self.last_in_line;
        }
    }
}

/// Sum of the weights of all VMs.
pub(super) fn weights(vms: &[VmView]) -> u64 {
    vms.iter().map(|view| u64::from(view.share.weight)).sum()
}

fn budget(period: Duration, view: &VmView, weights: u64) -> Duration {
    portion(period, view.share.weight.into(), weights)
}

/// The policy; see the module.
#[derive(Debug)]
pub struct CreditPolicy {
    settings: Settings,
    credits: Credits,
    /// Whose turn it is, and since when.
    turn: Option<(TenantId, Duration)>,
}

impl CreditPolicy {
    /// A policy with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self { settings: *settings, credits: Credits::new(settings), turn: None }
    }
}

impl Policy for CreditPolicy {
    fn name(&self) -> &'static str {
        "credit"
    }

    fn arbitrates(&self) -> bool {
        true
    }

    fn decide(&mut self, now: Duration, vms: &[VmView]) -> Decision {
        self.credits.update(now, vms);
        let turn = slice(&self.settings, vms.len());
        let current = self.turn.and_then(|(vm, since)| Some((self.credits.book.place(vm)?, since)));
        let is_ready = |place: usize| vms.get(place).is_some_and(|view| view.ready);
        if let Some((place, since)) = current {
            let ended = now.saturating_sub(since) >= turn;
            if is_ready(place) && !ended {
                return self.go_on(now, place, vms, turn);
            }
            if self.credits.left(place) <= 0 {
                self.credits.move_to_the_end(place);
            }
        }
        let next =
            (0..vms.len()).filter(|place| is_ready(*place)).min_by_key(|place| self.credits.line(*place));
        let Some(place) = next else {
            self.turn = None;
            return Decision { admission: Admission::All, review_after: None };
        };
        self.turn = vms.get(place).map(|view| (view.vm, now));
        self.go_on(now, place, vms, turn)
    }
}

impl CreditPolicy {
    fn go_on(&self, now: Duration, place: usize, vms: &[VmView], turn: Duration) -> Decision {
        let Some(view) = vms.get(place).filter(|_| vms.iter().filter(|view| view.ready).nth(1).is_some())
        else {
            return Decision { admission: Admission::All, review_after: None };
        };
        let since = self.turn.map_or(now, |(_, since)| since);
        let rest = turn.saturating_sub(now.saturating_sub(since));
        // No other VM would get the engine before the credit is gone, unless it is nearer to the front.
        let alone_in_front = (0..vms.len()).all(|other| self.credits.line(other) >= self.credits.line(place));
        let until = if alone_in_front { rest.max(time(self.credits.left(place))) } else { rest };
        Decision { admission: Admission::Only(view.vm), review_after: Some(until.max(super::SHORTEST)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Bench, ms};
    use super::*;

    #[test]
    fn vm_keeps_the_engine_until_its_credit_is_gone() {
        let mut bench = Bench::new(Box::new(CreditPolicy::new(&Settings::default())), &[100, 100, 100]);

        let order = bench.turns(ms(30), |_| true);

        // 30 ms among three: ten each, in turns of two.
        assert_eq!(order, [1, 2, 3].map(|vm| (vm, ms(10))));
    }

    #[test]
    fn credit_follows_weight() {
        let mut bench = Bench::new(Box::new(CreditPolicy::new(&Settings::default())), &[100, 200, 300]);

        let shares = bench.shares(Duration::from_secs(3), |_| true);

        assert!(
            shares.iter().zip([1.0 / 6.0, 2.0 / 6.0, 0.5]).all(|(a, b)| (a - b).abs() < 0.02),
            "{shares:?}"
        );
    }

    #[test]
    fn vm_without_credit_runs_when_nobody_else_wants_to() {
        let mut bench = Bench::new(Box::new(CreditPolicy::new(&Settings::default())), &[100, 100]);

        let shares = bench.shares(Duration::from_secs(1), |vm| vm == 2);

        assert!(shares[1] > 0.99, "{shares:?}");
    }

    #[test]
    fn long_sleep_saves_two_budgets_and_no_more() {
        let settings = Settings { period: Some(ms(20)), slice: None };
        let mut credits = Credits::new(&settings);
        let views = [super::super::tests::view(1, false, 0), super::super::tests::view(2, false, 0)];
        credits.update(ms(0), &views);

        assert!(credits.update(ms(60_000), &views));

        assert_eq!(time(credits.left(0)), ms(20));
    }
}
