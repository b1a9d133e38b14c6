//! The aggregator's machine under hostile tenants: whatever several of them ask for, in any order, with a GPU
//! that may fail and report anything, no page of one's address space ever points at another's memory, memory
//! is zero before it changes hands, and everything comes back when all are gone.

mod books;
mod judge;
mod judge_gpu;
mod wish;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use gpuvmk::addr::{GuestChannel, HostChannel, TenantId};
use gpuvmk::aggregator::machine::{Machine, Outcome, Output};
use gpuvmk::aggregator::protocol::{Doorbell, Reply, Request};
use gpuvmk::gpu::OwnershipLedger;
use gpuvmk::scheduler::Scheduler;
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::policy::Settings;
use rustix::fs::MemfdFlags;

use crate::input::Input;
use crate::log_sink;
use judge::Judge;
use judge_gpu::JudgeGpu;

/// Turns in which everything must have come back.
const TURNS: usize = 2000;

/// What the harness knows of a tenant.
#[derive(Debug, Default)]
struct Known {
    /// A request waits for its answer.
    waits: bool,
    leaving: bool,
}

struct World {
    machine: Machine,
    judge: Judge,
    tenants: BTreeMap<TenantId, Known>,
    now: Duration,
    outputs: Vec<Output>,
}

/// Lets tenants loose on a machine.
pub fn run(data: &[u8]) {
    log_sink::install();
    let mut input = Input::new(data);
    let (gpu, judge) = JudgeGpu::new(input.flag());
    let ledger: Arc<dyn OwnershipLedger> = Arc::new(judge.clone());
    let kind = input.pick(&[PolicyKind::Fifo, PolicyKind::BestEffort]);
    let machine = Machine::new(Box::new(gpu), Some(ledger), Scheduler::new(kind, Settings::default()));
    let mut world =
        World { machine, judge, tenants: BTreeMap::new(), now: Duration::ZERO, outputs: Vec::new() };
    // Two that are sure to be there.
    for _ in 0..2 {
        world.admit(&mut Input::new(&[]));
    }
    let mut steps = 0;
    while input.more() && steps < 128 {
        steps += 1;
        world.step(&mut input);
        world.take_outputs();
        world.judge.check();
    }
    world.end();
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(24) {
            0 => self.admit(input),
            1 => self.leave(input),
            2 => {
                if let Some(tenant) = self.any(input) {
                    self.machine.peer_exited(tenant);
                }
            }
            3..=5 => {
                self.now += Duration::from_millis(input.pick(&[0, 1, 20, 600]));
                self.machine.step(self.now);
            }
            6 => {
                self.judge.report(input);
                self.machine.gpu_events(self.now);
            }
            7 => self.judge.misbehave(input),
            8 | 9 => {
                let Some(tenant) = self.any(input) else { return };
                let channel = GuestChannel(wish::id(input));
                let doorbell = Doorbell { channel, gp_put: input.u16().into() };
                self.machine.doorbell(tenant, doorbell, 0, self.now);
            }
            10 => drop(format!("{:?}", self.machine.status("fuzz"))),
            _ => self.request(input),
        }
    }

    fn any(&self, input: &mut Input<'_>) -> Option<TenantId> {
        let at = usize::from(input.u8()).checked_rem(self.tenants.len())?;
        self.tenants.keys().nth(at).copied()
    }

    fn admit(&mut self, input: &mut Input<'_>) {
        let hello = wish::hello(input, self.judge.hopper(), self.tenants.len());
        match self.machine.admit(&hello, self.now) {
            Ok(admitted) => {
                let shown: u64 = admitted.window.iter().map(|piece| piece.size).sum();
                assert_eq!(shown, admitted.welcome.vram, "the window is not the partition");
                assert!(shown >= hello.vram);
                let before = self.tenants.insert(admitted.tenant, Known::default());
                assert!(before.is_none(), "a tenant's number is used twice");
            }
            Err(refusal) => {
                assert!(!refusal.message.is_empty());
                let _ = self.machine.worth_waiting(&hello, &refusal, self.now);
            }
        }
    }

    fn leave(&mut self, input: &mut Input<'_>) {
        let Some(tenant) = self.any(input) else { return };
        self.machine.leave(tenant, input.flag(), self.now);
        if let Some(known) = self.tenants.get_mut(&tenant) {
            *known = Known { waits: false, leaving: true };
        }
    }

    fn request(&mut self, input: &mut Input<'_>) {
        let Some(tenant) = self.any(input) else { return };
        let Some(request) = wish::request(input) else { return };
        let file = match &request {
            Request::DmaMap { .. } if input.below(16) != 0 => Some(memory()),
            _ if input.below(64) == 1 => Some(memory()),
            _ => None,
        };
        let answer = self.machine.request(tenant, request, file, self.now);
        let Some(known) = self.tenants.get_mut(&tenant) else { return };
        match answer {
            Outcome::Now(Reply::Refused { message, .. }) => assert!(!message.is_empty()),
            Outcome::Now(_) => assert!(!known.waits && !known.leaving, "two requests of one tenant at once"),
            Outcome::Later => {
                assert!(!known.waits && !known.leaving, "two requests of one tenant at once");
                known.waits = true;
            }
        }
    }

    fn take_outputs(&mut self) {
        self.machine.take_outputs(&mut self.outputs);
        for output in self.outputs.drain(..) {
            match output {
                Output::Event(tenant, _) => {
                    assert!(self.tenants.contains_key(&tenant), "an event for nobody");
                }
                Output::Reply(tenant, _) => {
                    let known = self.tenants.get_mut(&tenant).expect("an answer for somebody");
                    assert!(std::mem::take(&mut known.waits), "an answer that nobody waits for");
                }
                Output::Ready(tenant) => {
                    assert!(!self.tenants.contains_key(&tenant), "nobody's memory is dirty here");
                }
                Output::Gone(tenant) => {
                    let known = self.tenants.remove(&tenant).expect("somebody to be gone");
                    assert!(known.leaving, "a tenant is gone that did not leave");
                }
            }
        }
    }

    /// All leave, and nothing stays.
    fn end(mut self) {
        self.judge.behave();
        let all: Vec<TenantId> = self.tenants.keys().copied().collect();
        for tenant in all {
            self.machine.leave(tenant, false, self.now);
            self.machine.peer_exited(tenant);
            if let Some(known) = self.tenants.get_mut(&tenant) {
                *known = Known { waits: false, leaving: true };
            }
        }
        for _ in 0..TURNS {
            self.now += Duration::from_millis(50);
            self.machine.step(self.now);
            self.machine.gpu_events(self.now);
            self.take_outputs();
            self.judge.check();
            if self.tenants.is_empty() {
                break;
            }
        }
        assert!(self.tenants.is_empty(), "tenants never go: {:?}", self.tenants);
        self.judge.check_empty();
    }
}

fn memory() -> OwnedFd {
    rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memory file")
}

/// A host channel of that number.
fn host(number: u16) -> HostChannel {
    HostChannel(number)
}
