//! An engine without faults for tests of policies: it changes over at once, and its accounting is exact.

use std::time::Duration;

use super::{Admission, Policy, Settings, VmView};
use crate::policy::PolicyKind;
use crate::share::Share;
use gpuvmk_chip::addr::TenantId;

/// A policy where it costs little to change over.
fn policy(kind: PolicyKind, settings: &Settings) -> Box<dyn Policy> {
    super::policy(kind, settings, Duration::ZERO)
}

/// Interval of looks at the engine while a VM has work.
const SAMPLE: Duration = Duration::from_millis(1);

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A VM that used so many milliseconds.
pub(super) fn view(vm: u32, ready: bool, used: u64) -> VmView {
    VmView { vm: TenantId(vm), share: Share::default(), ready, woke: false, used: ms(used) }
}

/// VMs 1, 2, 3 ... on an engine that a policy gives out.
#[derive(Debug)]
pub(super) struct Bench {
    pub policy: Box<dyn Policy>,
    pub now: Duration,
    pub vms: Vec<VmView>,
}

impl Bench {
    pub fn new(policy: Box<dyn Policy>, weights: &[u32]) -> Self {
        let shares = weights.iter().map(|weight| Share { weight: *weight, ..Share::default() });
        Self::with(policy, shares)
    }

    pub fn with(policy: Box<dyn Policy>, shares: impl IntoIterator<Item = Share>) -> Self {
        let vms = (1..).zip(shares).map(|(vm, share)| VmView { share, ..view(vm, false, 0) }).collect();
        Self { policy, now: Duration::ZERO, vms }
    }

    /// Lets time go on to the next look. Returns who was admitted, and for how long.
    pub fn step(&mut self, ready: impl Fn(u32) -> bool) -> (Admission, Duration) {
        for vm in &mut self.vms {
            vm.ready = ready(vm.vm.0);
        }
        let decision = self.policy.decide(self.now, &self.vms);
        let any = self.vms.iter().any(|vm| vm.ready);
        assert!(any || decision.review_after.is_none(), "ticks while nobody is ready");
        let length = decision.review_after.map_or(SAMPLE, |after| after.min(SAMPLE));
        assert!(!length.is_zero(), "asks to look again at once");
        let admitted = self.vms.iter().filter(|vm| vm.ready && decision.admission.admits(vm.vm)).count();
        for vm in self.vms.iter_mut().filter(|vm| vm.ready && decision.admission.admits(vm.vm)) {
            vm.used += length / u32::try_from(admitted).unwrap();
        }
        self.now += length;
        (decision.admission, length)
    }

    /// The VMs that had the engine alone, in order, with the times; 0 is none.
    pub fn turns(&mut self, total: Duration, ready: impl Fn(u32) -> bool) -> Vec<(u32, Duration)> {
        let mut turns: Vec<(u32, Duration)> = Vec::new();
        while self.now < total {
            let (admission, length) = self.step(&ready);
            let vm = match admission {
                Admission::Only(vm) => vm.0,
                Admission::Nobody => 0,
                Admission::All => panic!("all are admitted"),
            };
            match turns.last_mut() {
                Some((last, sum)) if *last == vm => *sum += length,
                _ => turns.push((vm, length)),
            }
        }
        turns
    }

    /// What part of the time each VM used.
    pub fn shares(&mut self, total: Duration, ready: impl Fn(u32) -> bool) -> Vec<f64> {
        let (start, before) = (self.now, self.vms.clone());
        while self.now < start + total {
            self.step(&ready);
        }
        let used = self.vms.iter().zip(before).map(|(now, before)| now.used - before.used);
        used.map(|used| used.as_secs_f64() / (self.now - start).as_secs_f64()).collect()
    }
}

#[test]
fn policies_have_the_names_that_configuration_files_use() {
    for (name, kind) in PolicyKind::ALL {
        let policy = policy(kind, &Settings::default());

        assert_eq!((policy.name(), policy.arbitrates()), (name, kind != PolicyKind::Fifo));
    }
}

#[test]
fn no_policy_ticks_while_nobody_has_work_or_limits_a_vm_that_is_alone_on_the_gpu() {
    for (name, kind) in PolicyKind::ALL {
        // Fixed parts are kept even then.
        let share = Share { fixed: Some(100), ..Share::default() };
        let mut bench = Bench::with(policy(kind, &Settings::default()), [share]);

        bench.shares(ms(20), |_| false);
        let shares = bench.shares(ms(1000), |_| true);

        assert!(shares[0] > 0.999, "{name}: {shares:?}");
    }
}

#[test]
fn every_busy_vm_has_turns_under_every_policy() {
    for (name, kind) in PolicyKind::ALL {
        let mut bench = Bench::new(policy(kind, &Settings::default()), &[1, 100, 100, 10_000]);
        // With these weights, credit gives the first VM three thousandths of a permille.
        let least = if matches!(kind, PolicyKind::Weighted | PolicyKind::Credit | PolicyKind::Band) {
            0.00005
        } else {
            0.009
        };

        let shares = bench.shares(Duration::from_secs(60), |_| true);

        assert!(shares.iter().all(|share| *share > least), "{name}: {shares:?}");
    }
}
