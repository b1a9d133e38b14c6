//! `fixed-share`: each VM has its part of the GPU's time. No other VM gets any of it, used or not.
//!
//! **Whose idea.** NVIDIA's vGPU scheduler of that name: every vGPU has the part that goes with its size,
//! however many others there are, and time that it does not use stays unused. A turn is 2 ms with up to 8
//! vGPUs and 1 ms with more. Here the part is `fixed` in percent, or the VM's part of the VRAM; different
//! parts in one GPU are allowed, and they can be changed while VMs run.
//!
//! **When.** When a VM's speed must not depend on its neighbours at all, not even upwards: measured and
//! billed performance, tests, tenants who must not learn from their own speed what others do. **When not.**
//! When throughput counts: with one busy VM of eight the GPU rests seven eighths of the time.
//!
//! The order of turns and what happens to those who overrun theirs is in [`super::rounds`].

use std::time::Duration;

use super::rounds::Rounds;
use super::vm_table::portion;
use super::{Decision, Policy, Settings, VmView, slice};
use crate::share::{Rejection, Share};

/// The whole, in percent.
const WHOLE: u32 = 100;

/// The most turns in a round. A round is long enough for the smallest part to be a whole turn, up to this
/// limit: very small parts get less than a turn.
const MOST_TURNS: u32 = 50;

/// The policy; see the module.
#[derive(Debug)]
pub struct FixedShare {
    settings: Settings,
    rounds: Rounds,
}

impl FixedShare {
    /// A policy with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self { settings: *settings, rounds: Rounds::default() }
    }
}

impl Policy for FixedShare {
    fn name(&self) -> &'static str {
        "fixed-share"
    }

    fn arbitrates(&self) -> bool {
        true
    }

    fn decide(&mut self, now: Duration, vms: &[VmView]) -> Decision {
        let slice = slice(&self.settings, vms.len());
        let smallest = vms.iter().map(part).min().unwrap_or(WHOLE);
        let round = slice.saturating_mul(WHOLE.div_ceil(smallest).min(MOST_TURNS));
        let budget = |view: &VmView| portion(round, part(view).into(), WHOLE.into());
        self.rounds.decide_by_parts(now, vms, slice, round, budget)
    }

    fn accepts(&self, others: &[Share], new: &Share) -> Result<(), Rejection> {
        let taken: u32 = others.iter().map(|share| u32::from(share.fixed.unwrap_or(0))).sum();
        let wanted = u32::from(new.fixed.unwrap_or(0));
        if taken.saturating_add(wanted) > WHOLE {
            let free = WHOLE.saturating_sub(taken);
            return Err(Rejection(format!(
                "fixed {wanted} percent is more than the {free} percent that other VMs leave"
            )));
        }
        Ok(())
    }
}

/// A missing part is filled in before policies see it; a VM without any part would wait for ever.
fn part(view: &VmView) -> u32 {
    view.share.fixed.map_or(1, u32::from).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bench;
    use super::*;

    fn fixed(parts: &[u8]) -> Bench {
        let policy = FixedShare::new(&Settings::default());
        Bench::with(
            Box::new(policy),
            parts.iter().map(|part| Share { fixed: Some(*part), ..Share::default() }),
        )
    }

    #[test]
    fn each_vm_gets_its_part_and_the_rest_is_nobodys() {
        let shares = fixed(&[50, 25, 10]).shares(Duration::from_secs(4), |_| true);

        assert!(shares.iter().zip([0.5, 0.25, 0.1]).all(|(a, b)| (a - b).abs() < 0.002), "{shares:?}");
    }

    #[test]
    fn vm_gets_no_more_while_others_are_idle_or_absent() {
        let idle = fixed(&[25, 75]).shares(Duration::from_secs(4), |vm| vm == 1);
        let absent = fixed(&[25]).shares(Duration::from_secs(4), |_| true);

        assert!((idle[0] - 0.25).abs() < 0.002 && (absent[0] - 0.25).abs() < 0.002, "{idle:?} {absent:?}");
    }

    #[test]
    fn more_than_the_whole_is_refused() {
        let policy = FixedShare::new(&Settings::default());
        let share = |part| Share { fixed: Some(part), ..Share::default() };

        assert_eq!(policy.accepts(&[share(60)], &share(40)), Ok(()));
        let error = policy.accepts(&[share(60), share(20)], &share(21)).unwrap_err();
        assert_eq!(error.0, "fixed 21 percent is more than the 20 percent that other VMs leave");
    }
}
