//! `equal-share`: as many equal parts as there are VMs. No VM gets another one's part, used or not.
//!
//! **Whose idea.** NVIDIA's vGPU scheduler of that name: each of N running vGPUs has one Nth of the GPU's
//! time, and time that it does not use stays unused. The parts change when VMs come and go. A turn is 2 ms
//! with up to 8 vGPUs and 1 ms with more.
//!
//! **When.** When VMs of one kind are to be equally fast whatever the others do, and their number seldom
//! changes. **When not.** When throughput counts (`best-effort` and `weighted` give unused time away), or
//! when a VM's speed must not change as others start (`fixed-share`).
//!
//! The order of turns and what happens to those who overrun theirs is in [`super::rounds`].

use std::time::Duration;

use super::rounds::Rounds;
use super::{Decision, Policy, Settings, VmView, slice};

/// The policy; see the module.
#[derive(Debug)]
pub struct EqualShare {
    settings: Settings,
    rounds: Rounds,
}

impl EqualShare {
    /// A policy with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self { settings: *settings, rounds: Rounds::default() }
    }
}

impl Policy for EqualShare {
    fn name(&self) -> &'static str {
        "equal-share"
    }

    fn arbitrates(&self) -> bool {
        true
    }

    fn decide(&mut self, now: Duration, vms: &[VmView]) -> Decision {
        let slice = slice(&self.settings, vms.len());
        let round = slice.saturating_mul(u32::try_from(vms.len()).unwrap_or(u32::MAX));
        self.rounds.decide_by_parts(now, vms, slice, round, |_| slice)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Admission;
    use super::super::tests::{Bench, ms, view};
    use super::*;

    fn equal() -> Box<EqualShare> {
        Box::new(EqualShare::new(&Settings::default()))
    }

    #[test]
    fn turns_go_round_in_order_two_milliseconds_each_and_those_of_idle_vms_stay_unused() {
        let turns = Bench::new(equal(), &[100, 900, 100]).turns(ms(12), |vm| vm != 2);

        assert_eq!(turns, [1, 3, 0, 1, 3, 0].map(|vm| (vm, ms(2))));
    }

    #[test]
    fn turns_of_more_than_eight_vms_are_of_one_millisecond() {
        let turns = Bench::new(equal(), &[100; 9]).turns(ms(3), |_| true);

        assert_eq!(turns, [1, 2, 3].map(|vm| (vm, ms(1))));
    }

    #[test]
    fn time_of_idle_vms_is_nobodys() {
        let shares = Bench::new(equal(), &[100; 4]).shares(Duration::from_secs(2), |vm| vm == 3);

        assert!((shares[2] - 0.25).abs() < 0.002, "{shares:?}");
    }

    #[test]
    fn parts_grow_when_a_vm_goes_and_one_that_is_alone_has_all() {
        let mut policy = equal();
        policy.decide(ms(0), &[view(1, true, 0), view(2, true, 0)]);

        let alone = policy.decide(ms(2), &[view(1, true, 2)]);

        assert_eq!(alone, Decision { admission: Admission::All, review_after: None });
    }
}
