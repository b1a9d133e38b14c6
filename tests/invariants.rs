//! What must hold always, as properties: several hostile tenants do random things to one software GPU, next
//! to one that works, and the ledger inside the hardware is the judge.
//!
//! `GPUVMK_INVARIANT_CASES` says how many scripts each property tries (a few by default; hundreds find more).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on panics"
)]

#[path = "common/gsp_driver/mod.rs"]
mod gsp_driver;
#[path = "invariants/guests.rs"]
mod guests;
#[path = "common/hostile.rs"]
mod hostile;
#[path = "common/soft_host.rs"]
mod soft_host;
#[path = "common/tenant.rs"]
mod tenant;

use std::time::{Duration, Instant};

use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::{ServiceHandle, connect_in_process};
use gpuvmk::chip::Chip;
use gpuvmk::scheduler::policy::PolicyKind;
use hostile::{Op, PARTITION, foreign_marks, is_blank, script, sign};
use proptest::prelude::*;
use soft_host::soft_host;
use tenant::{DATA, RAM_VA, Tenant, VRAM_VA, hello, pattern, wait_until};

/// Hostile tenants.
const TENANTS: usize = 3;
/// Things that they do.
const STEPS: usize = 40;
/// An engine that hangs is back for the others within this.
const BACK: Duration = Duration::from_secs(2);
/// An answer comes within this, on a machine with other things to do.
const ANSWER: Duration = Duration::from_secs(5);
/// The worker's number, for marks.
const WORKER: usize = TENANTS;

/// As many cases as the environment says.
pub(crate) fn cases() -> ProptestConfig {
    let cases = std::env::var("GPUVMK_INVARIANT_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(24);
    ProptestConfig { cases, max_shrink_iters: 64, failure_persistence: None, ..ProptestConfig::default() }
}

fn service(policy: PolicyKind) -> ServiceHandle {
    soft_host(Chip::GF100, 128 << 20, policy, ScrubPolicy::default())
}

/// Foreign accesses of all tenants. The service must be there to say.
pub(crate) fn foreign(service: &ServiceHandle) -> u64 {
    let status = service.status().expect("the aggregator is alive");
    status.tenants.iter().map(|tenant| tenant.foreign_accesses.expect("a ledger")).sum()
}

/// One GPU, hostile tenants, and one that works on channel 0.
struct World {
    service: ServiceHandle,
    hostile: Vec<Tenant>,
    worker: Tenant,
    names: usize,
}

impl World {
    fn new(policy: PolicyKind) -> Self {
        let service = service(policy);
        let mut worker = join(&service, "worker");
        worker.channel(0, 0);
        worker.list(&[0]);
        sign(&worker, WORKER);
        let mut world = Self { service, hostile: Vec::new(), worker, names: 0 };
        for number in 0..TENANTS {
            let tenant = world.comes(number);
            world.hostile.push(tenant);
        }
        world
    }

    /// A tenant with two channels that run.
    fn comes(&mut self, number: usize) -> Tenant {
        self.names += 1;
        let mut tenant = join(&self.service, &format!("hostile-{}", self.names));
        for id in 0..2 {
            tenant.channel(id, id as u8);
        }
        tenant.list(&[0, 1]);
        sign(&tenant, number);
        tenant
    }

    /// Does what one of them does. Returns how long it took.
    fn step(&mut self, who: usize, op: &Op) -> Duration {
        let start = Instant::now();
        let stays = op.apply(&mut self.hostile[who]);
        let time = start.elapsed();
        if !stays {
            let place = self.hostile.swap_remove(who);
            drop(place);
            let next = self.comes(who);
            self.hostile.push(next);
            let last = self.hostile.len() - 1;
            self.hostile.swap(who, last);
        }
        time
    }

    /// The worker's data go to VRAM and back; how long that took.
    fn work(&mut self, seed: u8) -> Duration {
        const SIZE: u64 = 0x4000;
        let start = Instant::now();
        let data = pattern(seed, SIZE);
        self.worker.ram.write(0, &data).unwrap();
        self.worker.copy(0, 0, RAM_VA, VRAM_VA + DATA + 0x10_0000, SIZE);
        self.worker.copy(0, 0, VRAM_VA + DATA + 0x10_0000, RAM_VA + SIZE, SIZE);
        self.worker.finish(0);
        let mut back = vec![0; SIZE as usize];
        self.worker.ram.read(SIZE, &mut back).unwrap();
        assert!(back == data, "the worker's data came back changed");
        start.elapsed()
    }
}

fn join(service: &ServiceHandle, name: &str) -> Tenant {
    let (link, grant) = connect_in_process(service, hello(name, PARTITION)).unwrap();
    Tenant::new(link, &grant)
}

fn policies() -> impl Strategy<Value = PolicyKind> {
    prop_oneof![Just(PolicyKind::Fifo), Just(PolicyKind::BestEffort)]
}

proptest! {
    #![proptest_config(cases())]

    /// 1. No engine access leaves the partition of the VM that it works for.
    #[test]
    fn no_engine_access_leaves_its_tenant(policy in policies(), script in script(TENANTS, STEPS)) {
        let mut world = World::new(policy);
        for (who, op) in &script {
            world.step(*who, op);
            prop_assert_eq!(foreign(&world.service), 0, "after {:?} of {}", op, who);
        }
        world.work(1);
        prop_assert_eq!(foreign(&world.service), 0);
    }

    /// 3. Nothing that a tenant says panics, blocks or grows the aggregator.
    #[test]
    fn every_request_is_answered_and_everything_comes_back(policy in policies(), script in script(TENANTS, STEPS)) {
        let mut world = World::new(policy);
        for (who, op) in &script {
            let time = world.step(*who, op);
            prop_assert!(time < ANSWER, "{:?} took {:?}", op, time);
        }
        world.hostile.clear();
        wait_until("the leavers to be gone", || world.service.status().unwrap().tenants.len() == 1);
        // What they had can be had again, all of it.
        for number in 0..TENANTS {
            let tenant = world.comes(number);
            world.hostile.push(tenant);
        }
        world.work(3);
    }

    /// 4. A VM never sees another VM's data; freed VRAM is zero before reuse.
    #[test]
    fn nobody_finds_anything_of_anybody_else(policy in policies(), script in script(TENANTS, STEPS)) {
        let mut world = World::new(policy);
        for (who, op) in &script {
            if matches!(op, Op::Leave) {
                // A leaver's memory is the next one's, which looks before it writes.
                drop(world.hostile.swap_remove(*who));
                world.names += 1;
                let next = join(&world.service, &format!("next-{}", world.names));
                prop_assert!(is_blank(&next), "something of a tenant that left");
                drop(next);
                let next = world.comes(*who);
                world.hostile.push(next);
                let last = world.hostile.len() - 1;
                world.hostile.swap(*who, last);
            } else {
                world.step(*who, op);
            }
        }
        for (number, tenant) in world.hostile.iter().chain([&world.worker]).enumerate() {
            let found = foreign_marks(tenant, number, TENANTS + 1);
            prop_assert!(found.is_empty(), "tenant {} has marks of {:?}", number, found);
        }
    }

    /// 5. A hang is contained: the engine is back for the others within 2 s.
    #[test]
    fn worker_goes_on_whatever_hangs(policy in policies(), script in script(TENANTS, STEPS / 2)) {
        let mut world = World::new(policy);
        for (round, (who, op)) in script.iter().enumerate() {
            // Every channel of theirs waits for ever, or is given something worse to do.
            world.step(*who, &Op::Hang((round % 2) as u16));
            world.step(*who, op);
            let time = world.work(round as u8);
            prop_assert!(time < BACK, "after {:?} the worker waited {:?}", op, time);
        }
    }
}
