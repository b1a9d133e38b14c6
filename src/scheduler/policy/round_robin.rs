//! `round-robin`: VMs take turns; a turn's length follows the VM's weight.
//!
//! A VM that is alone with work is not limited. A turn ends early when its VM has no work left.

use std::time::Duration;

use super::{Admission, Candidate, Decision, Policy};
use crate::addr::TenantId;

/// Length of a turn at weight 100: some times the cost of a switch (about 0.1 ms), well below what a person or
/// a driver's timeout notices.
const TURN: Duration = Duration::from_millis(4);
/// Shortest turn, so that switching does not eat the GPU.
const SHORTEST: Duration = Duration::from_millis(1);
/// Longest turn, so that others wait at most this much for each busy VM.
const LONGEST: Duration = Duration::from_millis(40);

/// The policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    /// Whose turn it is, and when it ends.
    turn: Option<(TenantId, Duration)>,
}

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn arbitrates(&self) -> bool {
        true
    }

    fn decide(&mut self, now: Duration, runnable: &[Candidate]) -> Decision {
        match runnable {
            [] => {
                self.turn = None;
                Decision { admission: Admission::All, review_after: None }
            }
            [alone] => {
                self.turn = Some((alone.vm, now.saturating_add(length(alone.weight))));
                Decision { admission: Admission::All, review_after: None }
            }
            [first, ..] => {
                let goes_on =
                    self.turn.filter(|(vm, end)| now < *end && runnable.iter().any(|other| other.vm == *vm));
                let (vm, end) = goes_on.unwrap_or_else(|| {
                    let next = self
                        .turn
                        .and_then(|(last, _)| runnable.iter().find(|other| other.vm > last))
                        .unwrap_or(first);
                    (next.vm, now.saturating_add(length(next.weight)))
                });
                self.turn = Some((vm, end));
                Decision { admission: Admission::Only(vm), review_after: Some(end.saturating_sub(now)) }
            }
        }
    }
}

fn length(weight: u32) -> Duration {
    TURN.saturating_mul(weight).checked_div(100).unwrap_or(TURN).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vm(id: u32, weight: u32) -> Candidate {
        Candidate { vm: TenantId(id), weight }
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Runs the policy for `total` with VMs that always have work; returns the time each was admitted.
    fn share(vms: &[Candidate], total: Duration) -> Vec<Duration> {
        let mut policy = RoundRobin::default();
        let mut got = vec![Duration::ZERO; vms.len()];
        let mut now = Duration::ZERO;
        while now < total {
            let decision = policy.decide(now, vms);
            let step = decision.review_after.unwrap_or(total);
            for (vm, got) in vms.iter().zip(&mut got) {
                if decision.admission == Admission::Only(vm.vm) {
                    *got += step;
                }
            }
            now += step;
        }
        got
    }

    #[test]
    fn equal_weights_get_equal_time() {
        let got = share(&[vm(1, 100), vm(2, 100), vm(3, 100)], Duration::from_secs(12));

        assert!(got.iter().all(|t| t.abs_diff(Duration::from_secs(4)) < ms(10)), "{got:?}");
    }

    #[test]
    fn time_follows_weight() {
        let got = share(&[vm(1, 300), vm(2, 100)], Duration::from_secs(8));

        assert!(got[0].abs_diff(Duration::from_secs(6)) < ms(20), "{got:?}");
    }

    #[test]
    fn vm_alone_is_not_limited() {
        let mut policy = RoundRobin::default();

        let decision = policy.decide(ms(5), &[vm(3, 100)]);

        assert_eq!(decision, Decision { admission: Admission::All, review_after: None });
    }

    #[test]
    fn newcomer_waits_for_the_turn_to_end_and_no_longer() {
        let mut policy = RoundRobin::default();
        policy.decide(ms(0), &[vm(2, 100)]);

        let first = policy.decide(ms(1), &[vm(1, 100), vm(2, 100)]);
        let second = policy.decide(ms(4), &[vm(1, 100), vm(2, 100)]);

        assert_eq!(first, Decision { admission: Admission::Only(TenantId(2)), review_after: Some(ms(3)) });
        assert_eq!(second.admission, Admission::Only(TenantId(1)));
    }

    #[test]
    fn turn_ends_early_without_work() {
        let mut policy = RoundRobin::default();
        policy.decide(ms(0), &[vm(1, 100), vm(2, 100), vm(3, 100)]);

        let decision = policy.decide(ms(1), &[vm(2, 100), vm(3, 100)]);

        assert_eq!(decision.admission, Admission::Only(TenantId(2)));
    }

    proptest! {
        #[test]
        fn every_vm_with_work_gets_a_turn(weights in prop::collection::vec(0_u32..100_000, 2..8)) {
            let vms: Vec<_> = (0..).zip(&weights).map(|(i, w)| vm(i, *w)).collect();

            let got = share(&vms, Duration::from_secs(1));

            prop_assert!(got.iter().all(|t| *t >= SHORTEST));
        }
    }
}
