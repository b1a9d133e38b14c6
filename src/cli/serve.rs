//! The common parts of device back ends: the options of QEMU's back-end program conventions, the socket, the
//! end by SIGTERM.

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config::TraceFile;
use crate::frontend::vfio_user::no_migration::NoMigration;
use crate::frontend::vfio_user::{self, Server, SessionObserver, StopHandle};
use crate::host::service_manager;
use crate::host::socket_path::Guard;
use crate::host::socket_path::SocketSpec;
use crate::jail::{self, Mode, Role};
use crate::pci::PciFunction;
use crate::trace::{self, Recorder, Traced, Tracer};

/// Options that QEMU's back-end program conventions demand.
#[derive(Debug, clap::Args)]
pub(super) struct BackendOptions {
    /// Listen for QEMU at this path.
    #[arg(long, value_name = "PATH", conflicts_with = "fd")]
    pub(super) socket_path: Option<PathBuf>,
    /// Use this open file descriptor: a listening or a connected Unix socket.
    #[arg(long, value_name = "FDNUM", value_parser = clap::value_parser!(RawFd).range(3..))]
    pub(super) fd: Option<RawFd>,
    /// Print what this program can do as JSON, and do nothing else.
    #[arg(long)]
    pub(super) print_capabilities: bool,
}

impl BackendOptions {
    /// A descriptor to serve on, which is open already: as the options say, or else as the service manager
    /// has it.
    pub(super) fn descriptor(&self) -> anyhow::Result<Option<RawFd>> {
        match (self.fd, &self.socket_path) {
            (None, None) => Ok(service_manager::listener()?),
            (fd, _) => Ok(fd),
        }
    }

    /// The server for these options: at the descriptor if there is one; `configured` is the configuration
    /// file's socket.
    pub(super) fn server(
        &self,
        descriptor: Option<RawFd>,
        configured: Option<&SocketSpec>,
    ) -> anyhow::Result<Server> {
        if let Some(fd) = descriptor {
            let server =
                Server::from_fd(adopt(fd)?).with_context(|| format!("Cannot serve on descriptor {fd}"))?;
            return Ok(match configured {
                Some(spec) => server.guarded(Guard::new(spec)?),
                None => server,
            });
        }
        let spec = match (&self.socket_path, configured) {
            // Another place, for the same users.
            (Some(path), spec) => SocketSpec {
                users: spec.and_then(|spec| spec.users.clone()),
                ..SocketSpec::private(path.clone())
            },
            (None, Some(spec)) => spec.clone(),
            (None, None) => anyhow::bail!(
                "No socket to serve on: give --socket-path or --fd, or a [socket] section in the configuration"
            ),
        };
        let server = Server::bind(&spec)?;
        Ok(match NoMigration::beside(&spec.path) {
            Ok(file) => server.with_no_migration(file),
            Err(error) => {
                let path = NoMigration::path(&spec.path);
                log::warn!(
                    "Cannot write {}, with which QEMU would refuse to migrate: {error}",
                    path.display()
                );
                server
            }
        })
    }
}

/// Takes over a descriptor that a manager left open for us.
#[allow(unsafe_code, reason = "a descriptor inherited by number has no owner that the compiler knows")]
fn adopt(fd: RawFd) -> anyhow::Result<OwnedFd> {
    let flags = vmm_flags(fd);
    anyhow::ensure!(flags >= 0, "descriptor {fd} is not open (--fd, or LISTEN_FDS)");
    // SAFETY: the descriptor is open (checked above), it is above the standard ones, and by the program
    // conventions it is ours alone; nothing in this process has opened it before the options are read.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The descriptor's flags, or -1 where it is not open.
#[allow(unsafe_code, reason = "libc call on a plain number")]
fn vmm_flags(fd: RawFd) -> libc::c_int {
    // SAFETY: F_GETFD reads the flags of a descriptor by number and touches no memory.
    unsafe { libc::fcntl(fd, libc::F_GETFD) }
}

/// Prints the capabilities in the form of QEMU's conventions.
pub(super) fn print_capabilities(kind: &str, features: &[&str]) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    say!("{}", serde_json::json!({ "type": kind, "features": features, "version": version }))
}

/// Catches SIGTERM and SIGINT: they stop a server, and every wait for the aggregator.
pub(super) fn stop_on_signals() -> anyhow::Result<StopHandle> {
    stop_on_signals_and(|| {})
}

/// The same, and does something else then.
pub(super) fn stop_on_signals_and(also: impl FnOnce() + Send + 'static) -> anyhow::Result<StopHandle> {
    let stop = StopHandle::new().context("Cannot make the stop event")?;
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("Cannot catch signals")?;
    let told = stop.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        jail::enter(Role::Signals);
        if let Some(signal) = signals.forever().next() {
            log::info!("Signal {signal}: ending");
            told.stop();
            also();
        }
    })?;
    Ok(stop)
}

/// Wraps `function`, which `source` names and which has `vram` bytes if that is known, so that `tracer`
/// records it: from now on where a file is given for that.
pub(super) fn traced<F: PciFunction + 'static>(
    function: Arc<F>,
    (source, vram): (&str, Option<u64>),
    tracer: &Tracer,
    trace: Option<OpenTrace>,
) -> anyhow::Result<Arc<dyn PciFunction>> {
    if let Some(OpenTrace { file, name, filter }) = trace {
        let header = trace::Header::of_function(source, vram, &*function)
            .context("Cannot read what the function says of itself for the head of its trace")?;
        let recorder = Recorder::start(file, &name, header, filter, trace::recorder::RING)
            .with_context(|| format!("Cannot write the trace {name}"))?;
        tracer.start(recorder);
    }
    Ok(Arc::new(Traced::new(function, tracer.clone())))
}

/// The file of a trace, which has been created, and what is wanted in it.
pub(super) struct OpenTrace {
    file: File,
    name: String,
    filter: trace::Filter,
}

impl OpenTrace {
    /// Creates the file.
    pub(super) fn create(path: &Path, filter: trace::Filter) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let file = File::create(path).with_context(|| format!("Cannot create the trace {name}"))?;
        Ok(Self { file, name, filter })
    }

    /// Creates the one that a VM's file names, if it does.
    pub(super) fn of_vm(named: Option<&TraceFile>) -> anyhow::Result<Option<Self>> {
        named.map(|trace| Self::create(&trace.path, trace.filter.clone())).transpose()
    }
}

/// Resets the function when its client goes, so that the next one finds it as after power-on. There is no
/// next one for a process that is to end, and what a reset would zero is zeroed after its end.
pub(super) struct ResetBetweenClients(pub(super) Arc<dyn PciFunction>);

impl SessionObserver for ResetBetweenClients {
    fn disconnected(&self, end: &vfio_user::SessionEnd) {
        if matches!(end, vfio_user::SessionEnd::Stopped) {
            return;
        }
        log::debug!("{end}; resetting for the next client");
        self.0.client_gone();
        self.0.reset();
    }
}

/// The switch that every daemon has.
#[derive(Debug, clap::Args)]
pub(super) struct JailOptions {
    /// What the process gives up once it is set up, whatever a configuration file says: `enforce` ends it at
    /// a forbidden system call, `log` notes such calls in the kernel's log, `off` is for debuggers only.
    #[arg(long = "jail", value_name = "MODE")]
    mode: Option<Mode>,
}

impl JailOptions {
    /// The mode, where the file says `configured`.
    pub(super) fn mode(&self, configured: Mode) -> Mode {
        self.mode.unwrap_or(configured)
    }
}
