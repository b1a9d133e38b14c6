//! `best-effort`: VMs with work take turns of equal length; nobody's time is kept for him.
//!
//! NVIDIA's default for vGPUs ("best effort", a round robin over those who have work). Nothing is wasted, and nobody
//! is promised anything but his turn among those who want one. A VM that is alone with work is not limited. A turn
//! ends early when its VM has no work left. Who does not leave the engine in time keeps it longer, and is not
//! called to account for it.

use std::time::Duration;

use super::{Admission, Decision, Policy, Settings, VmView, slice};
use crate::addr::TenantId;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct BestEffort {
    settings: Settings,
    /// Whose turn it is, and when it ends.
    turn: Option<(TenantId, Duration)>,
}

impl BestEffort {
    /// A policy with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self { settings: *settings, turn: None }
    }
}

impl Policy for BestEffort {
    fn name(&self) -> &'static str {
        "best-effort"
    }

    fn arbitrates(&self) -> bool {
        true
    }

    fn decide(&mut self, now: Duration, vms: &[VmView]) -> Decision {
        let length = slice(&self.settings, vms.len());
        let mut ready = vms.iter().filter(|vm| vm.ready).map(|vm| vm.vm);
        let Some(first) = ready.next() else {
            self.turn = None;
            return Decision { admission: Admission::All, review_after: None };
        };
        if ready.next().is_none() {
            self.turn = Some((first, now.saturating_add(length)));
            return Decision { admission: Admission::All, review_after: None };
        }
        let goes_on =
            |(vm, end): &(TenantId, Duration)| now < *end && vms.iter().any(|v| v.ready && v.vm == *vm);
        let (vm, end) = self.turn.filter(goes_on).unwrap_or_else(|| {
            let begun = self.turn.map_or(now, |(_, due)| beat(due, now, length));
            let next = self.turn.and_then(|(last, _)| vms.iter().find(|vm| vm.ready && vm.vm > last));
            (next.map_or(first, |vm| vm.vm), begun.saturating_add(length))
        });
        self.turn = Some((vm, end));
        Decision { admission: Admission::Only(vm), review_after: Some(end.saturating_sub(now)) }
    }
}

/// When a turn counts as begun that begins now, after one that was due to end at `due`. A scheduler that is a little late
/// does not make rounds longer; one that is very late takes nobody's turn for that.
fn beat(due: Duration, now: Duration, length: Duration) -> Duration {
    if now.saturating_sub(due) > length / 4 { now } else { due.min(now) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::share::Share;

    fn vms(ready: &[(u32, bool)]) -> Vec<VmView> {
        let view = |&(id, ready): &(u32, bool)| VmView {
            vm: TenantId(id),
            share: Share::default(),
            ready,
            used: Duration::ZERO,
        };
        ready.iter().map(view).collect()
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn only(vm: u32, after: Duration) -> Decision {
        Decision { admission: Admission::Only(TenantId(vm)), review_after: Some(after) }
    }

    #[test]
    fn those_with_work_take_turns_of_two_milliseconds() {
        let mut policy = BestEffort::new(&Settings::default());
        let three = vms(&[(1, true), (2, true), (3, false), (4, true)]);

        let order: Vec<_> = (0..5).map(|i| policy.decide(ms(2 * i), &three)).collect();

        assert_eq!(order, [1, 2, 4, 1, 2].map(|vm| only(vm, ms(2))));
    }

    #[test]
    fn turns_are_shorter_among_many_and_as_the_operator_says() {
        let many: Vec<_> = (1..=9).map(|id| (id, true)).collect();
        let mut policy = BestEffort::new(&Settings::default());
        assert_eq!(policy.decide(ms(0), &vms(&many)), only(1, ms(1)));

        let mut policy = BestEffort::new(&Settings { slice: Some(ms(5)), period: None });
        assert_eq!(policy.decide(ms(0), &vms(&many)), only(1, ms(5)));
    }

    #[test]
    fn vm_alone_is_not_limited() {
        let mut policy = BestEffort::new(&Settings::default());

        let decision = policy.decide(ms(5), &vms(&[(2, false), (3, true)]));

        assert_eq!(decision, Decision { admission: Admission::All, review_after: None });
    }

    #[test]
    fn newcomer_waits_for_the_turn_to_end_and_no_longer() {
        let mut policy = BestEffort::new(&Settings::default());
        policy.decide(ms(0), &vms(&[(1, false), (2, true)]));
        let both = vms(&[(1, true), (2, true)]);

        assert_eq!(policy.decide(ms(1), &both), only(2, ms(1)));
        assert_eq!(policy.decide(ms(2), &both), only(1, ms(2)));
    }

    #[test]
    fn scheduler_that_is_a_little_late_makes_no_round_longer() {
        let mut policy = BestEffort::new(&Settings::default());
        let both = vms(&[(1, true), (2, true)]);
        let us = Duration::from_micros;
        policy.decide(ms(0), &both);

        assert_eq!(policy.decide(us(2300), &both), only(2, us(1700)));
        assert_eq!(policy.decide(us(4600), &both), only(1, ms(2)), "but not a part of the turn");
    }

    #[test]
    fn turn_ends_early_without_work() {
        let mut policy = BestEffort::new(&Settings::default());
        policy.decide(ms(0), &vms(&[(1, true), (2, true), (3, true)]));

        let decision = policy.decide(ms(1), &vms(&[(1, false), (2, true), (3, true)]));

        assert_eq!(decision, only(2, ms(2)));
    }
}
