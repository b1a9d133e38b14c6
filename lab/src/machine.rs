//! One guest: a QEMU process with its GPUs behind vfio-user sockets, a stock kernel and our initramfs.
//!
//! QEMU writes the guest's two serial ports to files (the console with the kernel's messages, and the reports
//! of our programs); both are followed while it runs and stay there for whoever looks into a failure. There
//! is no thread here: the caller pumps, so several machines run side by side from one loop.

mod command;
mod monitor;
mod tail;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

pub use command::{Accelerator, NO_MIGRATION, no_migration};
use tail::Tail;

use crate::interrupt;
use crate::kernel::GuestKernel;
use crate::process::{Priority, Process};
use crate::qemu::Qemu;
use crate::report::Report;

/// How often a running machine is looked at.
pub const LOOK: Duration = Duration::from_millis(20);

/// How long a guest may take to let go of a device.
const UNPLUGGED: Duration = Duration::from_secs(60);

/// How long QEMU may take to close the socket of a device that is gone.
const CLOSED: Duration = Duration::from_secs(5);

/// What a guest is and does.
#[derive(Debug, Clone)]
pub struct MachineSpec {
    /// What messages call it.
    pub name: String,
    /// The folder for its serial files and QEMU's own output.
    pub folder: PathBuf,
    /// The kernel it boots.
    pub kernel: GuestKernel,
    /// Its initramfs.
    pub initramfs: PathBuf,
    /// Its memory.
    pub memory_mib: u32,
    /// Its processors.
    pub cpus: u32,
    /// One vfio-user socket for each of its GPUs.
    pub sockets: Vec<PathBuf>,
    /// What runs its processors.
    pub accelerator: Accelerator,
    /// Whether it has an IOMMU, so that it can give its GPUs away.
    pub iommu: bool,
    /// What is beside its GPUs.
    pub beside: Beside,
    /// The guest programs to run, in order.
    pub programs: Vec<String>,
    /// Options for nouveau, such as `config=NvMSI=0`.
    pub nouveau_options: Vec<String>,
    /// More words for the kernel's command line.
    pub kernel_words: Vec<String>,
    /// How often the guest reboots itself before it powers off.
    pub reboots: u32,
    /// How long it may take, boot to power-off.
    pub timeout: Duration,
    /// Whether its report port also takes orders from the host ([`Machine::order`]).
    pub takes_orders: bool,
    /// The socket of QEMU's monitor, for whoever stops the machine ([`Machine::stop_processors`]).
    pub monitor: Option<PathBuf>,
}

/// What a machine has beside each of its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Beside {
    /// Nothing: each GPU has a port for itself.
    #[default]
    Nothing,
    /// Another function of the same card.
    Function,
    /// Another card on the same bus, which no IOMMU can tell from it.
    Neighbour,
}

/// Something a guest said.
#[derive(Debug)]
pub enum Said<'a> {
    /// A line on its console.
    Console(&'a str),
    /// A report of `/init` or a program.
    Report(&'a Report),
}

/// How a guest's run ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Why it did not end by itself with success, if it did not.
    pub problem: Option<String>,
    /// Every line of its console.
    pub console: Vec<String>,
    /// Every report.
    pub reports: Vec<Report>,
    /// From QEMU's start to its end.
    pub wall: Duration,
}

/// A running guest.
#[derive(Debug)]
pub struct Machine {
    spec: MachineSpec,
    qemu: Process,
    orders: Option<File>,
    started: Instant,
    console_tail: Tail,
    report_tail: Tail,
    console: Vec<String>,
    reports: Vec<Report>,
}

impl Machine {
    /// Starts the guest. Its GPUs' servers must be listening: QEMU connects while it starts.
    pub fn start(qemu: &Qemu, spec: MachineSpec) -> Result<Self> {
        fs::create_dir_all(&spec.folder)
            .with_context(|| format!("Cannot create {}", spec.folder.display()))?;
        let console = spec.folder.join("console.log");
        let report = spec.folder.join("report.log");
        for path in [&console, &report] {
            File::create(path).with_context(|| format!("Cannot create {}", path.display()))?;
        }
        let orders = spec.folder.join("orders");
        let pipe = if spec.takes_orders { Some(pipe(&orders)?) } else { None };
        let serial = command::Serial {
            console: &console,
            report: &report,
            orders: pipe.is_some().then_some(&*orders),
        };
        let mut command = command::build(qemu, &spec, &serial)?;
        fs::write(spec.folder.join("qemu.cmd"), format!("{command:?}\n"))
            .context("Cannot note QEMU's command")?;
        let log = File::create(spec.folder.join("qemu.log")).context("Cannot create QEMU's log")?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = Process::start(command, &format!("QEMU of {}", spec.name))?;
        Ok(Self {
            console_tail: Tail::of(&console),
            report_tail: Tail::of(&report),
            spec,
            orders: pipe,
            qemu: process,
            started: Instant::now(),
            console: Vec::new(),
            reports: Vec::new(),
        })
    }

    /// What it was started as.
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// The reports so far.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// The console so far.
    pub fn console(&self) -> &[String] {
        &self.console
    }

    /// Writes a line to the guest's report port, for whichever program reads it.
    pub fn order(&mut self, line: &str) -> Result<()> {
        let orders = self.orders.as_mut().with_context(|| format!("{} takes no orders", self.spec.name))?;
        writeln!(orders, "{line}").with_context(|| format!("Cannot give {} an order", self.spec.name))
    }

    /// Stops the guest's processors and clocks, as for a migration. QEMU and the GPU's server go on.
    pub fn stop_processors(&self) -> Result<()> {
        self.tell_monitor("stop")
    }

    /// Lets them run again.
    pub fn continue_processors(&self) -> Result<()> {
        self.tell_monitor("cont")
    }

    /// What QEMU says when it is told to migrate the machine to a file, and to save it: both are to be
    /// refused. An error if one is not.
    pub fn refused_migrations(&self) -> Result<[String; 2]> {
        let file = json!({ "uri": format!("file:{}", self.spec.folder.join("migrated").display()) });
        let migrate = match self.ask_monitor("migrate", &file) {
            Ok(_) => bail!("QEMU takes an order to migrate {}", self.spec.name),
            Err(error) => format!("{error:#}"),
        };
        let savevm = self.ask_monitor("human-monitor-command", &json!({ "command-line": "savevm now" }))?;
        // That monitor says nothing of what went well.
        let savevm = savevm.as_str().unwrap_or_default().trim().to_owned();
        ensure!(!savevm.is_empty(), "QEMU has saved {}", self.spec.name);
        Ok([migrate, savevm])
    }

    /// True while the guest sleeps (S3).
    pub fn is_asleep(&self) -> Result<bool> {
        Ok(self.ask_monitor("query-status", &json!({}))?["status"] == "suspended")
    }

    /// Wakes a guest that sleeps. QEMU resets its devices on the way.
    pub fn wake(&self) -> Result<()> {
        self.tell_monitor("system_wakeup")
    }

    /// Has the guest let go of a GPU, and waits until QEMU has.
    pub fn unplug(&self, gpu: usize) -> Result<()> {
        let name = command::gpu_name(gpu);
        let start = Instant::now();
        loop {
            match self.ask_monitor("device_del", &json!({ "id": name })) {
                // The guest is being asked, once more or still.
                Ok(_) => {}
                Err(error) if error.to_string().contains("not found") => return Ok(()),
                Err(error) if error.to_string().contains("in the process of unplug") => {}
                Err(error) => return Err(error),
            }
            ensure!(start.elapsed() < UNPLUGGED, "{} does not let go of its GPU", self.spec.name);
            thread::sleep(LOOK);
        }
    }

    /// Plugs a GPU in again that was unplugged. QEMU says that a device is gone a few milliseconds before it
    /// closes the device's socket, and nobody else may have the device until then: QEMU is asked again.
    pub fn plug_in(&self, gpu: usize) -> Result<()> {
        let socket = self.spec.sockets.get(gpu).context("The machine never had that GPU")?;
        let device = command::gpu(gpu, socket);
        let start = Instant::now();
        loop {
            match self.ask_monitor("device_add", &device) {
                Ok(_) => return Ok(()),
                Err(error) if error.to_string().contains("resource busy") && start.elapsed() < CLOSED => {}
                Err(error) => return Err(error),
            }
            thread::sleep(LOOK);
        }
    }

    fn tell_monitor(&self, command: &str) -> Result<()> {
        self.ask_monitor(command, &json!({})).map(drop)
    }

    fn ask_monitor(&self, command: &str, arguments: &Value) -> Result<Value> {
        let socket = self.spec.monitor.as_ref();
        let socket = socket.with_context(|| format!("{} has no monitor", self.spec.name))?;
        monitor::execute(socket, command, arguments)
    }

    /// QEMU's process id.
    pub fn id(&self) -> u32 {
        self.qemu.id()
    }

    /// The processor time that QEMU has used.
    pub fn cpu_time(&self) -> Duration {
        self.qemu.cpu_time()
    }

    /// Gives all threads of QEMU a priority: a low one, so that what the guest does to the GPU is told from
    /// what its processors cost the host.
    pub fn set_priority(&self, priority: Priority) -> Result<()> {
        self.qemu.set_priority(priority)
    }

    /// Takes in what the guest said since the last look. `Some` once it has ended, or was ended for its time
    /// being up.
    pub fn pump(&mut self, listen: &mut dyn FnMut(&Said<'_>)) -> Result<Option<Outcome>> {
        interrupt::check()?;
        // Whether QEMU has ended is asked before the files are read: what it wrote last is then not missed.
        let ended = self.qemu.ended()?;
        self.read(listen)?;
        let problem = match ended {
            Some(status) => self.explain(status)?,
            None if self.started.elapsed() > self.spec.timeout => {
                self.qemu.kill()?;
                self.read(listen)?;
                Some(format!("still running after {} s", self.spec.timeout.as_secs()))
            }
            None => return Ok(None),
        };
        Ok(Some(self.outcome(problem)))
    }

    /// Runs it to its end.
    pub fn wait(&mut self, listen: &mut dyn FnMut(&Said<'_>)) -> Result<Outcome> {
        loop {
            if let Some(outcome) = self.pump(listen)? {
                return Ok(outcome);
            }
            thread::sleep(LOOK);
        }
    }

    /// Runs until a report satisfies `wanted`; an error if the guest ends first.
    pub fn wait_for(&mut self, what: &str, wanted: impl Fn(&Report) -> bool) -> Result<Report> {
        let mut next = 0;
        loop {
            let ended = self.pump(&mut |_| {})?;
            if let Some(report) = self.reports.iter().skip(next).find(|report| wanted(report)) {
                return Ok(report.clone());
            }
            next = self.reports.len();
            if let Some(outcome) = ended {
                let problem = outcome.problem.unwrap_or_else(|| "it powered off".into());
                bail!("{} ended before {what}: {problem}", self.spec.name);
            }
            thread::sleep(LOOK);
        }
    }

    /// Kills QEMU at once, as `kill -9` does.
    pub fn kill(&mut self) -> Result<Outcome> {
        self.qemu.kill()?;
        if let Some(monitor) = &self.spec.monitor {
            // QEMU removes it only when it ends by itself.
            let _ = fs::remove_file(monitor);
        }
        self.read(&mut |_| {})?;
        Ok(self.outcome(Some("killed on purpose".into())))
    }

    fn outcome(&self, problem: Option<String>) -> Outcome {
        Outcome {
            problem,
            console: self.console.clone(),
            reports: self.reports.clone(),
            wall: self.started.elapsed(),
        }
    }

    fn explain(&self, status: ExitStatus) -> Result<Option<String>> {
        let log = fs::read_to_string(self.spec.folder.join("qemu.log")).unwrap_or_default();
        if status.success() {
            // QEMU goes on without memory that its device does not take, and its guest is wrong about what
            // the device reaches.
            let refused = log.lines().filter(|line| line.contains("dma_map(") || line.contains("dma_unmap("));
            let (first, count) = (refused.clone().next(), refused.count());
            return Ok(first.map(|first| format!("QEMU was refused memory {count} times: {first}")));
        }
        Ok(Some(format!("QEMU ended with {status}: {}", last_lines(&log, 3))))
    }

    fn read(&mut self, listen: &mut dyn FnMut(&Said<'_>)) -> Result<()> {
        for line in self.console_tail.lines()? {
            // Without a second port (a QEMU started by hand) reports come on the console.
            if let Some(report) = Report::parse(&line) {
                listen(&Said::Report(&report));
                self.reports.push(report);
            } else {
                listen(&Said::Console(&line));
                self.console.push(line);
            }
        }
        for line in self.report_tail.lines()? {
            if let Some(report) = Report::parse(&line) {
                listen(&Said::Report(&report));
                self.reports.push(report);
            }
        }
        Ok(())
    }
}

/// A new pipe at `path`, open: whoever reads it finds neither its end nor a wait for its writer.
fn pipe(path: &Path) -> Result<File> {
    let made = Command::new("mkfifo").arg(path).status().context("Cannot start mkfifo")?;
    ensure!(made.success(), "Cannot make a pipe at {}: mkfifo ended with {made}", path.display());
    let opened = File::options().read(true).write(true).open(path);
    opened.with_context(|| format!("Cannot open {}", path.display()))
}

/// Runs several machines to their ends, side by side.
pub fn wait_all(machines: &mut [Machine], listen: &mut dyn FnMut(&str, &Said<'_>)) -> Result<Vec<Outcome>> {
    let mut outcomes: Vec<Option<Outcome>> = machines.iter().map(|_| None).collect();
    loop {
        for (machine, outcome) in machines.iter_mut().zip(&mut outcomes) {
            if outcome.is_none() {
                let name = machine.spec.name.clone();
                *outcome = machine.pump(&mut |said| listen(&name, said))?;
            }
        }
        if outcomes.iter().all(Option::is_some) {
            return Ok(outcomes.into_iter().flatten().collect());
        }
        thread::sleep(LOOK);
    }
}

/// The last lines of a text, on one line.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(count);
    match lines.get(from..) {
        Some(last) if !last.is_empty() => last.join(" | "),
        _ => "it said nothing".to_owned(),
    }
}

/// Whether a path fits into a unix socket's address.
pub fn fits_socket_address(path: &Path) -> bool {
    // sockaddr_un holds 108 bytes, the last of which is zero.
    path.as_os_str().len() < 108
}
