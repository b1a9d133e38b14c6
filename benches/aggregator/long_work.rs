//! What a VM may make the thread that owns the GPU do: how long that takes in all, and its longest step, in
//! which nobody else is served.
//!
//! A step is timed twice: by the clock, and by what its thread used of a processor. Where the longest by the
//! clock used little, somebody else had the processor meanwhile (or Linux halted a real-time thread): that is
//! the machine's doing, since a step waits for nothing.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gpuvmk::addr::{Gpa, GpuVa, GuestVram, TenantId};
use gpuvmk::aggregator::machine::{Machine, Outcome, Output};
use gpuvmk::aggregator::protocol::{
    GuestMapping, GuestTarget, Hello, PROTOCOL_VERSION, Reply, Request, SpaceId, TenantLimits,
};
use gpuvmk::chip::Chip;
use gpuvmk::scheduler::Scheduler;
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::policy::Settings;
use gpuvmk::scheduler::share::Share;
use gpuvmk::softgpu::executor::{Executor, ExecutorConfig};
use rustix::time::{ClockId, clock_gettime};

const GIB: u64 = 1 << 30;
const RANGES: u64 = 512;

/// Runs of a request, and pages of each.
const RUNS: u64 = 1020;
const PAGES: u64 = 64;

struct Rig {
    machine: Machine,
    tenant: TenantId,
    start: Instant,
    steps: Vec<Step>,
}

/// How long one step took.
#[derive(Clone, Copy)]
struct Step {
    clock: Duration,
    /// Of this thread's time on a processor.
    used: Duration,
}

/// What this thread has used of its processors so far.
fn used() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

impl Rig {
    fn new() -> Self {
        let gpu = Executor::new(ExecutorConfig { vram: 4 * GIB, ..ExecutorConfig::default() }).unwrap();
        let scheduler = Scheduler::new(PolicyKind::Fifo, Settings::default());
        let mut machine = Machine::new(Box::new(gpu), None, scheduler).with_unlimited_cleanups();
        let hello = Hello {
            version: PROTOCOL_VERSION,
            name: "a".into(),
            chip: Chip::GH100.into(),
            vram: 3 * GIB,
            channels: 8,
            share: Share::default(),
            limits: TenantLimits::default(),
        };
        let tenant = machine.admit(&hello, Duration::ZERO).unwrap().tenant;
        let mut rig = Self { machine, tenant, start: Instant::now(), steps: Vec::new() };
        rig.carry_out(Request::CreateSpace(SpaceId(0)), None);
        // One file, of which each page is a range that no other goes on from.
        let memory = memory(RANGES << 12);
        for n in 0..RANGES {
            let request = Request::DmaMap { gpa: Gpa(n << 12), size: 4096, offset: n << 12, writable: true };
            rig.carry_out(request, Some(memory.try_clone().unwrap()));
        }
        rig
    }

    /// A step, timed.
    fn timed<T>(&mut self, step: impl FnOnce(&mut Machine, Duration) -> T) -> T {
        let (begin, before) = (Instant::now(), used());
        let result = step(&mut self.machine, begin.duration_since(self.start));
        self.steps.push(Step { used: used().saturating_sub(before), clock: begin.elapsed() });
        result
    }

    /// A request to its end: false when it was refused.
    fn carry_out(&mut self, request: Request, file: Option<OwnedFd>) -> bool {
        let tenant = self.tenant;
        let mut outputs = Vec::new();
        let mut outcome = self.timed(|machine, now| machine.request(tenant, request, file, now));
        loop {
            if let Outcome::Now(reply) = outcome {
                return reply == Reply::Done;
            }
            self.timed(Machine::step);
            self.machine.take_outputs(&mut outputs);
            for output in outputs.drain(..) {
                if let Output::Reply(_, reply) = output {
                    outcome = Outcome::Now(reply);
                }
            }
        }
    }

    fn print(&mut self, what: &str, work: impl FnOnce(&mut Self)) {
        self.steps.clear();
        let begin = Instant::now();
        work(self);
        let whole = begin.elapsed().as_secs_f64() * 1e3;
        let most = |by: fn(&Step) -> Duration| {
            let mut times: Vec<_> = self.steps.iter().map(by).collect();
            times.sort_unstable();
            let at = |index: usize| times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e6);
            (at(times.len() - 1), at((times.len() * 999 / 1000).min(times.len() - 1)))
        };
        let (clock, used) = (most(|step| step.clock), most(|step| step.used));
        let steps = self.steps.len();
        println!("{what:<44} {whole:>8.1} ms in {steps:>6} steps, in microseconds:");
        for (how, (longest, usual)) in [("by the clock", clock), ("on a processor", used)] {
            println!("{how:>60}: longest {longest:>6.0}, 999 of 1000 within {usual:>6.0}");
        }
    }
}

fn memory(size: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, size).unwrap();
    fd
}

/// A request of 24 KiB that becomes 65,280 runs of a page, because each page is in a range of its own.
fn of_ranges(number: u64) -> Request {
    let run = |n: u64| GuestMapping {
        va: GpuVa(((number * RUNS + n) * PAGES) << 12),
        pages: 64,
        page_shift: 12,
        target: GuestTarget::System { address: Gpa((n % (RANGES / PAGES) * PAGES) << 12), coherent: true },
        read_only: false,
        kind: 0,
    };
    Request::UpdateSpace { space: SpaceId(0), unmap: Vec::new(), map: (0..RUNS).map(run).collect() }
}

/// Runs of one request that do not go on from each other.
const SCATTERED: u64 = 4096;

fn scattered(number: u64, target: fn(u64) -> GuestTarget) -> Request {
    let run = |n: u64| GuestMapping {
        va: GpuVa((1 << 40) + ((number * SCATTERED + n) << 13)),
        pages: 1,
        page_shift: 12,
        target: target(n),
        read_only: false,
        kind: 0,
    };
    Request::UpdateSpace { space: SpaceId(0), unmap: Vec::new(), map: (0..SCATTERED).map(run).collect() }
}

/// Prints all of it.
pub fn print() {
    // As in an aggregator.
    gpuvmk::host::reaper::start().unwrap();
    let mut rig = Rig::new();
    rig.print("request of 24 KiB into 65,280 runs", |rig| {
        assert!(rig.carry_out(of_ranges(0), None));
    });
    let fill = |rig: &mut Rig, target: fn(u64) -> GuestTarget| {
        let filled = (1_u64..).take_while(|n| rig.carry_out(scattered(*n, target), None));
        filled.count() as u64 * SCATTERED
    };
    let runs = fill(&mut rig, |n| GuestTarget::System { address: Gpa((n % RANGES) << 12), coherent: true });
    rig.print(&format!("{RANGES} ranges taken away, {runs} runs"), |rig| {
        assert!(rig.carry_out(Request::DmaUnmap { gpa: Gpa(0), size: RANGES << 12 }, None));
    });
    let runs = fill(&mut rig, |n| GuestTarget::Vram(GuestVram((n * 7 % 4096) << 12)));
    rig.print(&format!("reset with {runs} runs"), |rig| {
        assert!(rig.carry_out(Request::Reset { scrub: false }, None));
    });
}
