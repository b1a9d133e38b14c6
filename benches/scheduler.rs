//! What a decision of the scheduler costs with many VMs, each with a channel that has work, under each
//! policy: the doorbell that says so, the look at hardware, and the decision itself. No hardware and no
//! guest.
//!
//! `cargo bench --bench scheduler`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that cannot be set up ends")]

use std::time::Duration;

use divan::{Bencher, black_box};
use gpuvmk::addr::{HostChannel, TenantId};
use gpuvmk::chip::{Engine, EngineSet};
use gpuvmk::scheduler::Scheduler;
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::policy::Settings;
use gpuvmk::scheduler::share::Share;

fn main() {
    divan::main();
}

const VMS: [u16; 3] = [1, 8, 64];
const SEED: u64 = 1;
/// Time that passes between two looks.
const STEP: Duration = Duration::from_micros(500);

/// A scheduler with so many VMs, all of them at work.
struct Busy {
    scheduler: Scheduler,
    now: Duration,
    gp_put: u32,
    vms: u16,
}

impl Busy {
    fn new(policy: PolicyKind, vms: u16) -> Self {
        let mut scheduler = Scheduler::seeded(policy, Settings::default(), SEED);
        for number in 0..vms {
            let (vm, channel) = (TenantId(number.into()), HostChannel(number));
            scheduler.add_vm(vm, Share::default()).unwrap();
            scheduler.add_channel(channel, vm, EngineSet::GRAPHICS, 10);
            scheduler.set_list(vm, vec![channel]);
        }
        let mut busy = Self { scheduler, now: Duration::ZERO, gp_put: 0, vms };
        busy.ring_all();
        busy.scheduler.decide(busy.now);
        busy
    }

    fn ring_all(&mut self) {
        self.gp_put = (self.gp_put + 1) % 1024;
        for number in 0..self.vms {
            self.scheduler.doorbell(HostChannel(number), self.gp_put, self.now);
        }
    }
}

fn decide(bencher: Bencher<'_, '_>, policy: PolicyKind, vms: u16) {
    let mut busy = Busy::new(policy, vms);
    bencher.bench_local(|| {
        busy.now += STEP;
        black_box(busy.scheduler.decide(busy.now))
    });
}

#[divan::bench(args = VMS)]
fn decide_fifo(bencher: Bencher<'_, '_>, vms: u16) {
    decide(bencher, PolicyKind::Fifo, vms);
}

#[divan::bench(args = VMS)]
fn decide_best_effort(bencher: Bencher<'_, '_>, vms: u16) {
    decide(bencher, PolicyKind::BestEffort, vms);
}

#[divan::bench(args = VMS)]
fn decide_weighted(bencher: Bencher<'_, '_>, vms: u16) {
    decide(bencher, PolicyKind::Weighted, vms);
}

#[divan::bench(args = VMS)]
fn look(bencher: Bencher<'_, '_>, vms: u16) {
    let mut busy = Busy::new(PolicyKind::BestEffort, vms);
    let running = [(Engine::Graphics, Some(HostChannel(0)))];
    bencher.bench_local(|| {
        busy.now += STEP;
        busy.scheduler.sample(busy.now, &running, &[], |_| Some(0));
    });
}

/// A doorbell of each of the VMs.
#[divan::bench(args = VMS)]
fn doorbells(bencher: Bencher<'_, '_>, vms: u16) {
    let mut busy = Busy::new(PolicyKind::BestEffort, vms);
    bencher.bench_local(|| busy.ring_all());
}
