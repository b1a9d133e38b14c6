//! `gpuvmk vmm VM.toml`: boots a VM on KVM with its GPU in the same process.

use std::io::{IsTerminal, stdin};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use vmm_sys_util::terminal::Terminal;

use super::serve::{self, JailOptions, OpenTrace};
use super::vm_gpu::Source;
use super::vmm_devices::{DeviceOptions, VmDevices};
use crate::config::VmFile;
use crate::host::size::parse_size;
use crate::jail::{self, Allowance, Drives, PathRight, Right, Role};
use crate::pci::PciFunction;
use crate::trace::Tracer;
use crate::vgpu::Bar3;
use crate::vmm::virtio::{Disk, MOST_DISK_QUEUES, disk_function};
use crate::vmm::{
    BootFile, ExitReason, MAX_MEMORY, MIN_MEMORY, StopVmm, VmmConfig, open_kvm, run as run_machine,
};

/// Most processors: what local APIC ids of 8 bits can name, and a console can stand.
const MAX_PROCESSORS: i64 = 64;

/// Most disks: the PCI bus has room for more.
const MAX_DISKS: usize = 16;

/// Arguments of `gpuvmk vmm`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The guest's serial console is standard input and output. What it has beside that and the GPU: its disks, a network and\n\
                  folders as far as they are asked for (virtio devices), an ACPI of the hardware-reduced kind, and nothing else.\n\
                  A kernel whose virtio drivers are modules, such as Debian's, needs them in its initramfs to have a disk as root.\n\n\
                  Devices that other processes serve (vhost-user back ends) can be in the VM's file too, in its section [machine].\n\
                  Such a process has all of the guest's memory. If it ends, its device waits until it is there again.\n\n\
                  The keys [socket] and [trace.socket] of the VM's file are not used: there is no QEMU, and nobody records meanwhile.\n\n\
                  Example:\n  gpuvmk vmm /etc/gpuvmk/vm1.toml --kernel /boot/vmlinuz-6.12 --initrd initrd.img --append console=ttyS0\n  \
                  gpuvmk vmm vm1.toml --kernel vmlinuz --initrd initrd.img --disk debian.raw --memory 2G --append 'root=/dev/vda1 console=ttyS0'\n  \
                  gpuvmk vmm vm1.toml --kernel vmlinuz --initrd initrd.img --net user --forward 127.0.0.1/2222:22 --share /srv/data=data"
)]
pub(super) struct Args {
    /// The VM's configuration file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The kernel: a bzImage, such as a distribution's vmlinuz.
    #[arg(long, value_name = "FILE")]
    kernel: PathBuf,
    /// Its initramfs.
    #[arg(long, value_name = "FILE")]
    initrd: Option<PathBuf>,
    /// Its command line.
    #[arg(long, value_name = "TEXT", default_value = "console=ttyS0")]
    append: String,
    /// Processors.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=MAX_PROCESSORS))]
    cpus: u8,
    /// Main memory, such as 512M or 2G.
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = memory)]
    memory: u64,
    /// A disk: a raw image or a block device, which the guest has as /dev/vda. Several are /dev/vdb and so
    /// on, in their order.
    #[arg(long, value_name = "FILE")]
    disk: Vec<PathBuf>,
    /// A disk that the guest cannot write to. Those come after the others.
    #[arg(long, value_name = "FILE")]
    disk_read_only: Vec<PathBuf>,
    #[command(flatten)]
    devices: DeviceOptions,
    /// Stop the guest at every access to its GPU: nothing is mapped into it, and no doorbell is signalled.
    /// For traces.
    #[arg(long)]
    trap_all: bool,
    /// End when the guest resets the machine, instead of starting it again.
    #[arg(long)]
    no_reboot: bool,
    #[command(flatten)]
    jail: JailOptions,
    /// Wait this many seconds for the aggregator, then give up.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
}

fn memory(text: &str) -> Result<u64, String> {
    parse_size(text)
        .filter(|size| (MIN_MEMORY..=MAX_MEMORY).contains(size) && size.is_multiple_of(1 << 20))
        .ok_or_else(|| format!("`{text}` is not a size from 128M to 32G in whole MiB"))
}

/// Opens the disks, in the order in which the guest has them.
fn open_disks(args: &Args) -> anyhow::Result<Vec<Disk>> {
    let writable = args.disk.iter().map(|path| (path, false));
    let paths: Vec<_> = writable.chain(args.disk_read_only.iter().map(|path| (path, true))).collect();
    ensure!(paths.len() <= MAX_DISKS, "{} disks are given, and a VM has {MAX_DISKS} at most", paths.len());
    paths.into_iter().map(|(path, read_only)| Ok(Disk::open(path, read_only)?)).collect()
}

/// The disks as functions of the guest's PCI bus. Each has a queue for each processor.
fn disk_functions(disks: Vec<Disk>, cpus: u8) -> anyhow::Result<Vec<Arc<dyn PciFunction>>> {
    let queues = MOST_DISK_QUEUES.min(cpus.into());
    let function =
        |disk| -> anyhow::Result<Arc<dyn PciFunction>> { Ok(Arc::new(disk_function(disk, queues)?)) };
    disks.into_iter().map(function).collect()
}

/// Why a VM ends whose card the kernel wants back: the kernel waits until the card is closed.
const CARD_GONE: &str = "its card is being taken away, or is broken";

/// Descriptors at a time: grants of the aggregator's (an old one and a new one), memory and its copies, a
/// doorbell for each channel, messages, processors, disks, sockets.
const DESCRIPTORS: u64 = 2 * 256 + 1024 + 256;
/// The same for each device of another process: notifications and messages of its queues, for us and for it.
const OF_A_BACK_END: u64 = 4 * 65 + 16;

/// Private memory beside what grows with the vGPU's memory, and for each processor. The guest's own memory is
/// shared.
const MEMORY: u64 = 512 << 20;
const PROCESSOR_MEMORY: u64 = 4 << 20;

/// Rights that the process still needs once everything is open.
fn allowance(config: &VmFile, args: &Args, devices: &VmDevices) -> Allowance {
    let processors = PROCESSOR_MEMORY.saturating_mul(args.cpus.into());
    let (mut paths, memory, drives) = match config {
        VmFile::Part(config) => {
            let paths = vec![PathRight { path: jail::folder(&config.gpu), right: Right::Connect }];
            (paths, config.vram / 4, Drives::Machine)
        }
        VmFile::Whole(_) => (Vec::new(), 0, Drives::MachineWithCard),
    };
    // Back ends that come back.
    let sockets: Vec<_> = devices.sockets().map(jail::folder).collect();
    let descriptors = OF_A_BACK_END.saturating_mul(sockets.len() as u64).saturating_add(DESCRIPTORS);
    let sockets = sockets.into_iter();
    paths.extend(sockets.map(|path| PathRight { path, right: Right::Connect }));
    let memory = Some(MEMORY.saturating_add(processors).saturating_add(memory));
    Allowance { paths, descriptors: Some(descriptors), memory, drives, beside: 0 }
}

/// Puts the terminal back as it was.
struct RawMode;

impl RawMode {
    /// Has keys reach the guest as they are typed, if standard input is a terminal.
    fn set() -> Option<Self> {
        let input = stdin();
        (input.is_terminal() && input.lock().set_raw_mode().is_ok()).then_some(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if let Err(error) = stdin().lock().set_canon_mode() {
            log::warn!("The terminal stays as the guest had it: {error}");
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // First of all: nothing has been opened yet.
    jail::prepare(None)?;
    let mut config = VmFile::load(&args.file)?;
    if let VmFile::Part(vm) = &mut config {
        // Memory of its windows is mapped here wherever it is.
        vm.bar3 = Bar3::Trapped;
    }
    // The second process is to have nothing that comes later.
    let devices = VmDevices::open(&args.devices, &config)?;
    // Before the aggregator gives anything away.
    let kvm = open_kvm()?;
    let disks = open_disks(args)?;
    let machine = VmmConfig {
        kvm,
        kernel: BootFile::open(&args.kernel)?,
        initrd: args.initrd.as_deref().map(BootFile::open).transpose()?,
        command_line: args.append.clone(),
        memory: args.memory,
        processors: args.cpus,
        direct: !args.trap_all,
        reboot: !args.no_reboot,
    };
    let trace = OpenTrace::of_vm(config.trace())?;
    let source = Source::open(config)?;
    let config = source.file();
    // Files are out of reach from here on, and the first thread starts.
    jail::confine(args.jail.mode(config.jail()), &allowance(config, args, &devices))?;
    let end = StopVmm::default();
    let told = end.clone();
    let stop = serve::stop_on_signals_and(move || told.end(ExitReason::Stopped))?;
    let tracer = Tracer::default();
    let wait = Duration::from_secs(args.wait);
    let Some(gpu) = source.gpu(&args.file, wait, stop.cancel(), &tracer)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let told = end.clone();
    gpu.when_lost(move || told.end(ExitReason::Failed(CARD_GONE.to_owned())));
    let function = gpu.traced(config.name(), &tracer, trace)?;
    let others = disk_functions(disks, args.cpus)?.into_iter().chain(devices.functions()?);
    let functions: Vec<_> = std::iter::once(function).chain(others).collect();
    let raw = RawMode::set();
    jail::enter(Role::Vmm);
    let ending = run_machine(&machine, &functions, &end);
    drop(raw);
    gpu.log_end();
    match ending.with_context(|| format!("VM `{}` does not start", config.name()))? {
        ExitReason::PowerOff | ExitReason::Reset | ExitReason::Stopped => Ok(ExitCode::SUCCESS),
        ExitReason::Failed(why) => bail!("VM `{}` cannot go on: {why}", config.name()),
    }
}
