//! The aggregator as a service: one thread owns the physical GPU and serves everybody.
//!
//! The thread `aggregator` waits for the tenants' doorbells, the GPU's events and its own commands, all at
//! once. It never waits for a tenant, nor for anything that a tenant or an unadmitted connection can delay. A
//! thread for each connection ([`porter`]), started by the thread `gate` ([`gate`]), handles its socket, its
//! descriptors and its wake-ups. In one turn each tenant gets one request and one look at its doorbells.
//! Another thread serves operators (see [`super::control`]), and asks this one by command.
//!
//! Locks: none. Commands and porters' messages come over a channel, and an eventfd signals them while the
//! thread sleeps.

mod adaptive_poll;
mod commands;
mod connection;
mod files;
mod forecast;
mod gate;
mod peer;
mod places;
mod porter;
mod porter_signals;
mod rate;
mod remote;
mod requests;
mod turn;
mod waiting;

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gpuvmk_control_client::Status;
use rustix::net::SocketType;

use self::commands::Commands;
use self::gate::{Door, Gate};
pub use self::remote::ServiceRemote;
use self::turn::Loop;
use super::control::ControlServer;
use super::machine::Machine;
use super::machine::guests::GuestList;
use super::machine::settings::{EffectiveSettings, Order};
use crate::scrub_policy::ScrubPolicy;
use gpuvmk_gpu::scrub::EngineScrub;
use gpuvmk_gpu::{GpuDriver, GpuError, OwnershipLedger};
use gpuvmk_host::reaper;
use gpuvmk_host::socket_path::SocketSpec;
use gpuvmk_host::socket_path::{BindError, Listener};
use gpuvmk_host::urgency;
use gpuvmk_jail::{self as jail, Role};
use gpuvmk_pci::mapping::absent;
use gpuvmk_scheduler::HangLimits;
use gpuvmk_scheduler::Scheduler;
use gpuvmk_scheduler::policy::PolicyKind;
use gpuvmk_scheduler::policy::Settings;
use gpuvmk_scheduler::share::Rejection;
use gpuvmk_trace::header::program;
use gpuvmk_trace::recording_server::RecordingServer;
use gpuvmk_trace::{Header, Tracer};

/// How the service is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Socket for device backends; without one, only connections in process are served.
    pub socket: Option<SocketSpec>,
    /// Socket for operators.
    pub control: Option<SocketSpec>,
    /// How VMs share the GPU.
    pub policy: PolicyKind,
    /// Settings of the policy.
    pub settings: Settings,
    /// The kind of physical GPU, for operators (`soft`).
    pub backend: String,
    /// How long after a doorbell to look for more without sleeping; zero never does.
    pub poll: Duration,
    /// When partitions are zeroed.
    pub scrub: ScrubPolicy,
    /// Limits for channels that make no progress, and the penalties of their VMs.
    pub hang: HangLimits,
    /// The VMs that may come, and no others; `None`: any VM.
    pub guests: Option<GuestList>,
    /// The sockets of VMs that have their own, by name.
    pub doors: Vec<(String, SocketSpec)>,
    /// Where the schedule is recorded, and what traces of it are called.
    pub recorder: Option<(SocketSpec, String)>,
}

impl Config {
    /// A software GPU without sockets, everything else as usual: for connections in process.
    pub fn in_process(policy: PolicyKind) -> Self {
        Self {
            socket: None,
            control: None,
            policy,
            settings: Settings::default(),
            backend: "soft".to_owned(),
            poll: Duration::ZERO,
            scrub: ScrubPolicy::default(),
            hang: HangLimits::default(),
            guests: None,
            doors: Vec::new(),
            recorder: None,
        }
    }
}

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The physical GPU.
    #[error("The video memory cannot be cleared")]
    Gpu(#[from] GpuError),
    /// Out of descriptors or threads.
    #[error("The aggregator's thread cannot be set up")]
    Setup(#[from] io::Error),
}

/// The running service; dropping it ends it.
#[derive(Debug)]
pub struct ServiceHandle {
    remote: ServiceRemote,
    /// Says nothing, and hangs up when the thread ends.
    ended: Mutex<Receiver<()>>,
    thread: Option<JoinHandle<bool>>,
    control: Option<ControlServer>,
}

impl ServiceHandle {
    /// A way to give commands, for other threads.
    pub fn remote(&self) -> ServiceRemote {
        self.remote.clone()
    }

    /// The state now; `None` when the service has ended.
    pub fn status(&self) -> Option<Status> {
        self.remote.status()
    }

    /// Carries out an operator's order; `None` when the service has ended.
    pub fn set(&self, order: Order) -> Option<Result<EffectiveSettings, Rejection>> {
        self.remote.set(order)
    }

    /// Ends the service soon.
    pub fn stop(&self) {
        self.remote.stop();
    }

    /// Waits for the service to end, and no longer than `limit`. True when it has ended.
    pub fn ends_within(&self, limit: Duration) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected)
    }

    /// Waits for the service to end. True if it was ordered to end; false if its GPU is gone, or its thread
    /// panicked.
    pub fn join(mut self) -> bool {
        self.thread.take().is_none_or(|thread| thread.join().unwrap_or(false))
    }
}

impl Drop for ServiceHandle {
    fn drop(&mut self) {
        self.remote.stop();
        self.control = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the aggregator's thread broke down");
        }
    }
}

/// The service's sockets. They are bound before the GPU is opened, while the process may still write to their
/// folders.
#[derive(Debug)]
pub struct Sockets {
    backends: Vec<Door>,
    /// The user who made them: the aggregator's own, whatever it becomes.
    own: u32,
    control: Option<Listener>,
    recorder: Option<Listener>,
}

impl Sockets {
    /// Binds what is configured.
    ///
    /// # Errors
    /// A socket cannot be had; nothing is left behind.
    pub fn bind(config: &Config) -> Result<Self, BindError> {
        let bind = |spec: &Option<SocketSpec>, kind| {
            spec.as_ref().map(|spec| Listener::bind(spec, kind)).transpose()
        };
        let common = bind(&config.socket, SocketType::SEQPACKET)?;
        let mut backends: Vec<_> = common.into_iter().map(|listener| Door { listener, vm: None }).collect();
        for (vm, spec) in &config.doors {
            let listener = Listener::bind(spec, SocketType::SEQPACKET)?;
            backends.push(Door { listener, vm: Some(vm.clone()) });
        }
        let control = bind(&config.control, SocketType::STREAM)?;
        let recorder = config.recorder.as_ref().map(|(spec, _)| Listener::bind(spec, SocketType::STREAM));
        let own = rustix::process::geteuid().as_raw();
        Ok(Self { backends, own, control, recorder: recorder.transpose()? })
    }
}

/// Starts the aggregator's thread.
#[derive(Debug)]
pub struct Service;

impl Service {
    /// Binds its sockets and starts serving.
    ///
    /// # Errors
    /// A socket cannot be had; nothing is left behind.
    pub fn start(
        driver: Box<dyn GpuDriver>,
        ledger: Option<Arc<dyn OwnershipLedger>>,
        config: &Config,
    ) -> Result<ServiceHandle, StartError> {
        Self::start_on(Sockets::bind(config)?, driver, ledger, config)
    }

    /// Starts serving at sockets that are there.
    ///
    /// # Errors
    /// VRAM cannot be cleared, or there are no descriptors or threads left; nothing is left behind.
    pub fn start_on(
        sockets: Sockets,
        driver: Box<dyn GpuDriver>,
        ledger: Option<Arc<dyn OwnershipLedger>>,
        config: &Config,
    ) -> Result<ServiceHandle, StartError> {
        let Sockets { backends, own, control, recorder } = sockets;
        reaper::start()?;
        // A software GPU meets pages one by one; a card has them held in place, which makes those that are
        // not there.
        if let Err(error) = absent::refuse_here() {
            log::warn!(
                "VMs' memory that is touched or held in place here first is charged to this process, not to theirs: no userfaultfd: {error}"
            );
        }
        // No tenant may see what a former owner of the GPU left in its memory.
        let mut driver = Box::new(EngineScrub::new(driver));
        if config.scrub.at_release() {
            driver.scrub_all()?;
        }
        let scheduler =
            Scheduler::new(config.policy, config.settings).with_switch_time(driver.info().switch_time);
        let tracer = Tracer::default();
        let machine = Machine::new(driver, ledger, scheduler)
            .with_scrub(config.scrub)
            .with_hang(config.hang)
            .with_guests(config.guests.clone(), own)
            .with_tracer(tracer.clone());
        let (commands, inbox) = Commands::new()?;
        let gate = Gate::new();
        let remote = ServiceRemote::new(commands.clone(), gate.clone());
        let own_guards = backends.iter().map(|door| &door.listener).chain(&control).chain(&recorder);
        let guards = own_guards.map(|listener| Arc::clone(listener.guard())).collect();
        let open = gate.open(backends, commands.clone())?;
        let mut turns =
            Loop::new(machine, (gate, open), (commands, inbox), config.backend.clone(), config.poll)?;
        turns.guards = guards;
        let recording = recorder.zip(config.recorder.as_ref()).map(|(listener, (_, name))| {
            let header = Header { source: name.clone(), program: program(), ..Header::default() };
            RecordingServer::start(listener, tracer, header)
        });
        let recording = recording.transpose()?;
        let (running, ended) = sync_channel(0);
        let thread = std::thread::Builder::new().name("aggregator".to_owned()).spawn(move || {
            let _running: SyncSender<()> = running;
            match urgency::raise() {
                Ok(nice) => log::info!("the GPU's thread has short time slices and nice value {nice}"),
                Err(error) => log::info!("the GPU's thread has no short time slices: {error}"),
            }
            jail::enter(Role::Owner);
            let ended = turns.run();
            if let Err(error) = &ended {
                log::error!("the aggregator stops: {error}");
            }
            // Its socket is removed by a thread that may.
            drop(recording);
            ended.is_ok()
        })?;
        let mut handle = ServiceHandle {
            remote: remote.clone(),
            ended: Mutex::new(ended),
            thread: Some(thread),
            control: None,
        };
        if let Some(listener) = control {
            handle.control = Some(ControlServer::start(listener, remote)?);
        }
        Ok(handle)
    }
}

#[cfg(test)]
mod tests;
