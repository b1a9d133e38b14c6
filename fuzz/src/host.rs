//! A physical GPU, its aggregator and tenants, in one thread as far as there are threads of ours: requests
//! are carried out by the caller, so that an input does the same every time.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpuvmk::addr::TenantId;
use gpuvmk::aggregator::link::{AggregatorLink, Deferred, EventHandler, Grant, LinkError};
use gpuvmk::aggregator::machine::{Machine, Outcome, Output};
use gpuvmk::aggregator::protocol::{Doorbell, Event, Hello, PROTOCOL_VERSION, Reply, Request, TenantLimits};
use gpuvmk::aggregator::report::Report;
use gpuvmk::backend::{EngineTime, InterruptInterest};
use gpuvmk::chip::{Chip, Face};
use gpuvmk::fifo_virt::CopiedBytes;
use gpuvmk::gpu::register::RegisterDriver;
use gpuvmk::gpu::{GpuDriver, OwnershipLedger};
use gpuvmk::scheduler::Scheduler;
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::policy::Settings;
use gpuvmk::scheduler::share::Share;
use gpuvmk::softgpu::executor::{Executor, ExecutorConfig};
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};
use gpuvmk::units::DriverCounters;

/// How long an answer may take that waits for hardware.
const PATIENCE: Duration = Duration::from_secs(20);

/// The aggregator.
pub(crate) struct Host {
    machine: Mutex<Machine>,
    ledger: Arc<dyn OwnershipLedger>,
    handlers: Mutex<BTreeMap<TenantId, Arc<dyn EventHandler>>>,
    chip: Chip,
    start: Instant,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// A software GPU of the chip.
    pub(crate) fn new(chip: Chip, vram: u64) -> Arc<Self> {
        let (driver, ledger): (Box<dyn GpuDriver>, Arc<dyn OwnershipLedger>) = match chip.face {
            Face::Registers => {
                let gpu = SoftGpu::new(SoftGpuConfig { vram, ..SoftGpuConfig::default() });
                let gpu = gpu.expect("a software GPU");
                let ledger = gpu.ledger();
                (Box::new(RegisterDriver::new(gpu).expect("a GPU that comes up")), ledger)
            }
            Face::Gsp => {
                let gpu = Executor::new(ExecutorConfig { vram, ..ExecutorConfig::default() })
                    .expect("a software GPU");
                let ledger = gpu.ledger();
                (Box::new(gpu), ledger)
            }
        };
        let scheduler = Scheduler::new(PolicyKind::BestEffort, Settings::default());
        // Each input has a tenant of the same name, and resets it.
        let machine = Machine::new(driver, Some(Arc::clone(&ledger)), scheduler).with_unlimited_cleanups();
        Arc::new(Self {
            machine: Mutex::new(machine),
            ledger,
            handlers: Mutex::default(),
            chip,
            start: Instant::now(),
        })
    }

    /// Admits a tenant.
    pub(crate) fn join(self: &Arc<Self>, name: &str, vram: u64) -> (Arc<Link>, Grant) {
        let hello = Hello {
            version: PROTOCOL_VERSION,
            name: name.to_owned(),
            chip: self.chip.into(),
            vram,
            channels: 8,
            share: Share::default(),
            limits: TenantLimits::default(),
        };
        let admitted = locked(&self.machine).admit(&hello, Duration::ZERO).expect("room for a tenant");
        let welcome = admitted.welcome;
        let grant = Grant {
            vram: welcome.vram,
            channels: welcome.channels,
            spaces: welcome.spaces,
            engines: welcome.engines,
            va_bits: welcome.va_bits,
            page_shifts: welcome.page_shifts,
            slow_vram_reads: welcome.slow_vram_reads,
            texture_clusters: welcome.texture_clusters,
            window: admitted.window,
        };
        (Arc::new(Link { host: Arc::clone(self), tenant: admitted.tenant }), grant)
    }

    /// Lets the aggregator do what is due, and tells tenants what there is to tell.
    pub(crate) fn turn(&self) {
        let outputs = self.work();
        self.deliver(outputs);
    }

    fn work(&self) -> Vec<Output> {
        let mut outputs = Vec::new();
        let mut machine = locked(&self.machine);
        let now = self.start.elapsed();
        machine.gpu_events(now);
        machine.step(now);
        machine.take_outputs(&mut outputs);
        outputs
    }

    /// Events go to their tenants; the first answer is returned.
    fn deliver(&self, outputs: Vec<Output>) -> Option<Reply> {
        let mut answer = None;
        for output in outputs {
            match output {
                Output::Event(tenant, event) => self.tell(tenant, event),
                Output::Reply(_, reply) => answer = Some(reply),
                Output::Ready(_) | Output::Gone(_) => {}
            }
        }
        answer
    }

    fn tell(&self, tenant: TenantId, event: Event) {
        let handler = locked(&self.handlers).get(&tenant).cloned();
        if let Some(handler) = handler {
            handler.event(event);
        }
    }

    fn request(&self, tenant: TenantId, request: Request, file: Option<OwnedFd>) -> Reply {
        let outcome = locked(&self.machine).request(tenant, request, file, self.start.elapsed());
        let start = Instant::now();
        match outcome {
            Outcome::Now(reply) => {
                self.turn();
                reply
            }
            Outcome::Later => loop {
                let outputs = self.work();
                if let Some(reply) = self.deliver(outputs) {
                    return reply;
                }
                assert!(start.elapsed() < PATIENCE, "a request is never answered");
                std::thread::yield_now();
            },
        }
    }

    /// A tenant leaves; returns when nothing of it is left.
    pub(crate) fn leave(&self, tenant: TenantId) {
        let start = Instant::now();
        locked(&self.handlers).remove(&tenant);
        locked(&self.machine).leave(tenant, false, self.start.elapsed());
        while !self.work().contains(&Output::Gone(tenant)) {
            assert!(start.elapsed() < PATIENCE, "a tenant never goes");
        }
    }

    /// Accesses of these tenants that left their own memory.
    pub(crate) fn foreign_accesses(&self, tenants: &[TenantId]) -> u64 {
        tenants.iter().map(|tenant| self.ledger.foreign_accesses(*tenant)).sum()
    }
}

/// A tenant's link.
pub(crate) struct Link {
    host: Arc<Host>,
    tenant: TenantId,
}

impl Link {
    /// Whose it is.
    pub(crate) fn tenant(&self) -> TenantId {
        self.tenant
    }
}

impl AggregatorLink for Link {
    fn is_ending(&self) -> bool {
        false
    }

    fn request(&self, request: &Request, file: Option<OwnedFd>) -> Result<(), LinkError> {
        match self.host.request(self.tenant, request.clone(), file) {
            Reply::Done => Ok(()),
            Reply::Refused { kind, message } => Err(LinkError::Refused { kind, message }),
            Reply::Welcome(_) => panic!("a request is answered with a welcome"),
        }
    }

    fn doorbell(&self, doorbell: Doorbell) {
        locked(&self.host.machine).doorbell(self.tenant, doorbell, 0, self.host.start.elapsed());
    }

    /// What a vGPU says of itself is for operators.
    fn report(&self, _report: &Report) {}

    fn report_copied(&self, _copied: &CopiedBytes) {}

    fn report_trapped(&self, _accesses: u64) {}

    fn report_driver(&self, _counters: &DriverCounters) {}

    fn connect(&self, handler: Arc<dyn EventHandler>) {
        locked(&self.host.handlers).insert(self.tenant, handler);
    }

    fn set_notification_interest(&self, _interest: InterruptInterest) -> Deferred {
        Deferred::default()
    }

    fn engine_time(&self) -> EngineTime {
        EngineTime::default()
    }

    fn take_notifications(&self) -> Deferred {
        Deferred::default()
    }
}
