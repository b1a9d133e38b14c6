//! `cargo xtask guest`: one stock guest in front of whatever listens on the given sockets.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::kernel::{GuestKernel, KernelSeries};
use gpuvmk_lab::machine::{Accelerator, Beside, Machine, MachineSpec, Said};
use gpuvmk_lab::qemu::Qemu;
use gpuvmk_lab::verdict::{self, Expected};
use gpuvmk_lab::{guest_build, initramfs, nvk};

use crate::workshop;

/// What to boot.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The guest's kernel: 6.1, 6.12, 7.2 or newest
    #[arg(long, default_value = "6.12")]
    kernel: KernelSeries,
    /// A vfio-user socket to put a GPU behind; may be given several times
    #[arg(long = "socket", value_name = "PATH")]
    sockets: Vec<PathBuf>,
    /// Guest programs, such as probe+copy
    #[arg(long = "run", default_value = "probe", value_delimiter = '+')]
    programs: Vec<String>,
    /// nouveau's options, such as config=NvMSI=0
    #[arg(long = "nouveau", value_name = "OPTION")]
    nouveau_options: Vec<String>,
    /// The guest's processors
    #[arg(long, default_value_t = 1)]
    cpus: u32,
    /// The guest's memory
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: u32,
    /// How often the guest reboots before it powers off
    #[arg(long, default_value_t = 0)]
    reboots: u32,
    /// Give it Mesa's NVK, for the program nvk; needs --memory 1024
    #[arg(long)]
    nvk: bool,
    /// Give it NVIDIA's own GSP firmware for this chip, from Debian's package (about 100 MB, fetched once); a
    /// version takes 40 to 70 MB of the guest's memory
    #[arg(long, value_name = "CHIP")]
    debian_firmware: Option<Chip>,
    /// Where its logs go
    #[arg(long, default_value = "target/guest")]
    folder: PathBuf,
    /// Seconds that it may take
    #[arg(long, default_value_t = 180)]
    timeout: u64,
    /// Show the whole console, not nouveau's lines only
    #[arg(long)]
    verbose: bool,
    /// Give the guest an IOMMU, which its kernel uses: each page that its driver shows the GPU is mapped by
    /// itself
    #[arg(long)]
    iommu: bool,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let cache = Cache::open()?;
    let qemu = Qemu::obtain(&cache)?;
    let kernel = GuestKernel::obtain(&cache, arguments.kernel)?;
    let init = guest_build::obtain(&cache)?;
    let firmware = match arguments.debian_firmware {
        Some(chip) => Firmware::Debian(chip),
        None => Firmware::for_kernel(arguments.kernel),
    };
    // Only GPUs with a GSP need files; the program that makes them is what the user has built already.
    let files = match firmware {
        Firmware::None => Vec::new(),
        _ => firmware.files(&cache, &workshop::build_gpuvmk()?, arguments.kernel)?,
    };
    let image = initramfs::obtain(&cache, &kernel, &init, &files, &firmware.label())?;
    let spec = MachineSpec {
        name: "guest".into(),
        folder: arguments.folder.clone(),
        initramfs: if arguments.nvk { nvk::behind(&cache, &image, arguments.kernel)? } else { image },
        kernel,
        memory_mib: arguments.memory,
        cpus: arguments.cpus,
        sockets: arguments.sockets.clone(),
        accelerator: Accelerator::of_this_machine(),
        iommu: arguments.iommu,
        beside: Beside::Nothing,
        programs: arguments.programs.clone(),
        nouveau_options: arguments.nouveau_options.clone(),
        kernel_words: Vec::new(),
        reboots: arguments.reboots,
        timeout: Duration::from_secs(arguments.timeout),
        takes_orders: false,
        monitor: None,
    };
    let mut machine = Machine::start(&qemu, spec)?;
    let outcome = machine.wait(&mut |said| match said {
        Said::Console(line) if arguments.verbose || line.contains("nouveau") || line.contains("init:") => {
            println!("{line}");
        }
        Said::Console(_) => {}
        Said::Report(report) => println!("{report:?}"),
    })?;
    println!("{:.1} s; logs in {}", outcome.wall.as_secs_f64(), arguments.folder.display());
    let expected = Expected {
        programs: arguments.programs.clone(),
        gpus: arguments.sockets.len(),
        boots: arguments.reboots as usize + 1,
    };
    let verdict = verdict::judge(&outcome, &expected);
    verdict.problems.iter().for_each(|problem| println!("{problem}"));
    println!("{}", if verdict.ok() { "passed" } else { "FAILED" });
    Ok(verdict.ok())
}
