//! `best-effort`: VMs with work take turns of equal length; no time is reserved.
//!
//! NVIDIA's default for vGPUs ("best effort", a round robin over those who have work). Nothing is wasted, and
//! a VM is promised only its turn among those with work. A VM that is alone with work is not limited. A turn
//! ends early when its VM has no work left. A VM that does not leave the engine in time keeps it longer, and
//! is not charged for it; the VM whose turn it was gets the rest in another turn.
//!
//! The order of turns is in [`super::rounds`].

use std::time::Duration;

use super::rounds::Rounds;
use super::{Decision, Policy, Settings, VmView, slice};

/// The policy; see the module.
#[derive(Clone, Debug)]
pub struct BestEffort {
    settings: Settings,
    rounds: Rounds,
}

impl BestEffort {
    /// A policy with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self { settings: *settings, rounds: Rounds::default() }
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
        self.rounds.decide_by_turns(now, vms, slice(&self.settings, vms.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Admission;
    use super::super::tests::{ms, view};
    use super::*;
    use gpuvmk_chip::addr::TenantId;

    fn vms(ready: &[(u32, bool)]) -> Vec<VmView> {
        ready.iter().map(|&(id, ready)| view(id, ready, 0)).collect()
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
    fn newcomer_waits_for_the_first_turn_of_one_that_was_alone_and_no_longer() {
        let mut policy = BestEffort::new(&Settings::default());
        policy.decide(ms(0), &vms(&[(1, false), (2, true)]));
        let both = |used| [view(1, true, 0), view(2, true, used)];

        assert_eq!(policy.clone().decide(ms(1), &both(1)), only(2, ms(1)));
        assert_eq!(policy.decide(ms(7), &both(7)), only(1, ms(2)));
    }

    #[test]
    fn overrun_takes_nothing_from_whose_turn_it_was() {
        let mut policy = BestEffort::new(&Settings::default());
        let at = |policy: &mut BestEffort, now, used: [u64; 2]| {
            policy.decide(ms(now), &[view(1, true, used[0]), view(2, true, used[1])])
        };

        // VM 1 runs on for one of the two milliseconds of VM 2's turn.
        let turns = [(0, [0, 0]), (2, [2, 0]), (4, [3, 1]), (5, [3, 2])]
            .map(|(now, used)| at(&mut policy, now, used));

        assert_eq!(turns, [only(1, ms(2)), only(2, ms(2)), only(2, ms(1)), only(1, ms(2))]);
    }

    #[test]
    fn turn_ends_early_without_work() {
        let mut policy = BestEffort::new(&Settings::default());
        policy.decide(ms(0), &vms(&[(1, true), (2, true), (3, true)]));

        let decision = policy.decide(ms(1), &vms(&[(1, false), (2, true), (3, true)]));

        assert_eq!(decision, only(2, ms(2)));
    }
}
