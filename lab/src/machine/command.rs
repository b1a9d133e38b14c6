//! QEMU's command line for one guest.
//!
//! Guest memory is a shared memfd: the GPU's server maps it by the file descriptors that QEMU sends. Each GPU
//! sits below a PCIe root port of its own, as a card does.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Beside, MachineSpec, fits_socket_address};
use crate::qemu::Qemu;

/// What runs a guest's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor's own virtualisation.
    Kvm,
    /// QEMU's translator: slower, and works everywhere.
    Tcg,
    /// The same with AMD's virtualisation, so that the guest has a KVM of its own.
    TcgWithSvm,
}

impl Accelerator {
    /// KVM if the processor has virtualisation and this user may use it, else TCG.
    ///
    /// `/dev/kvm` alone says too little: a hypervisor may offer one that cannot run a stock kernel.
    pub fn of_this_machine() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let usable = || OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
        if has_virtualisation(&cpuinfo) && usable() { Self::Kvm } else { Self::Tcg }
    }

    /// Its name, as QEMU spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg | Self::TcgWithSvm => "tcg",
        }
    }

    fn cpu(self) -> &'static str {
        match self {
            Self::Kvm => "host",
            Self::Tcg => "qemu64",
            Self::TcgWithSvm => "max",
        }
    }
}

fn has_virtualisation(cpuinfo: &str) -> bool {
    cpuinfo
        .lines()
        .filter(|line| line.starts_with("flags"))
        .any(|line| line.split_whitespace().any(|flag| matches!(flag, "vmx" | "svm")))
}

/// What is behind a guest's two serial ports.
#[derive(Debug, Clone, Copy)]
pub struct Serial<'a> {
    /// The file for the console.
    pub console: &'a Path,
    /// The file for reports.
    pub report: &'a Path,
    /// The pipe that the report port reads, if any.
    pub orders: Option<&'a Path>,
}

/// The command that starts QEMU for `spec`.
pub fn build(qemu: &Qemu, spec: &MachineSpec, serial: &Serial<'_>) -> Result<Command> {
    let mut command = qemu.command()?;
    let memory = spec.memory_mib;
    command.args(["-accel", spec.accelerator.name(), "-cpu", spec.accelerator.cpu()]);
    command.args(["-machine", "q35,memory-backend=mem", "-nodefaults"]);
    command.arg("-m").arg(format!("{memory}M")).arg("-smp").arg(spec.cpus.to_string());
    command.arg("-object").arg(format!("memory-backend-memfd,id=mem,size={memory}M,share=on"));
    command.args(["-display", "none", "-vga", "none", "-nic", "none"]);
    if spec.reboots == 0 {
        // A guest that resets itself unasked has crashed; its run ends there.
        command.arg("-no-reboot");
    }
    command.arg("-serial").arg(format!("file:{}", serial.console.display()));
    match serial.orders {
        None => command.arg("-serial").arg(format!("file:{}", serial.report.display())),
        Some(orders) => {
            let (report, orders) = (serial.report.display(), orders.display());
            command.arg("-chardev").arg(format!("file,id=report,path={report},input-path={orders}"));
            command.args(["-serial", "chardev:report"])
        }
    };
    if let Some(monitor) = &spec.monitor {
        command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", monitor.display()));
    }
    // Behind an IOMMU; and a link that is up where the kernel looks after it has reset the bus below a port.
    let link = if spec.iommu { ",x-speed=5,x-width=16" } else { "" };
    if spec.iommu {
        command.args(["-device", "intel-iommu,intremap=on,caching-mode=on"]);
    }
    for (index, socket) in spec.sockets.iter().enumerate() {
        ensure!(
            fits_socket_address(socket),
            "The socket path {} is longer than 107 bytes, which no unix socket can have",
            socket.display()
        );
        let port = index + 1;
        command.arg("-device").arg(format!("pcie-root-port,id=rp{port},chassis={port},slot={port}{link}"));
        let mut device = gpu(index, socket);
        // Some function with a driver: what it is for is all the same.
        let other = |bus: &str, place: &str| format!("virtio-balloon-pci,bus={bus}{port},addr={place}");
        let beside = match spec.beside {
            Beside::Nothing => None,
            Beside::Function => {
                (device["addr"], device["multifunction"]) = (json!("0.0"), json!(true));
                Some(other("rp", "0.1"))
            }
            Beside::Neighbour => {
                command.arg("-device").arg(format!("pcie-pci-bridge,id=pci{port},bus=rp{port}"));
                (device["bus"], device["addr"]) = (json!(format!("pci{port}")), json!("1"));
                Some(other("pci", "2"))
            }
        };
        command.arg("-device").arg(device.to_string());
        if let Some(beside) = beside {
            command.arg("-device").arg(beside);
        }
    }
    if let Some(socket) = spec.sockets.first() {
        command.arg("-blockdev").arg(no_migration(socket));
    }
    command.arg("-kernel").arg(&spec.kernel.image).arg("-initrd").arg(&spec.initramfs);
    command.arg("-append").arg(kernel_command_line(spec));
    Ok(command)
}

/// A GPU as QEMU takes it, on its command line and from its monitor.
pub fn gpu(index: usize, socket: &Path) -> Value {
    json!({
        "driver": "vfio-user-pci",
        "id": gpu_name(index),
        "bus": format!("rp{}", index + 1),
        "socket": { "type": "unix", "path": socket },
    })
}

/// What QEMU calls it.
pub fn gpu_name(index: usize) -> String {
    format!("gpu{index}")
}

/// The name of the block node with which QEMU refuses to migrate.
pub const NO_MIGRATION: &str = "gpuvmk-no-migration";

/// QEMU's `-blockdev` of that node: of the file that a back end writes beside its socket.
pub fn no_migration(socket: &Path) -> String {
    // QEMU takes two commas for one of a value.
    let file = socket.with_extension("no-migration").display().to_string().replace(',', ",,");
    format!("driver=vdi,node-name={NO_MIGRATION},read-only=on,file.driver=file,file.filename={file}")
}

/// The kernel's command line; `/init` reads the words that begin with `gpuvmk.`.
pub fn kernel_command_line(spec: &MachineSpec) -> String {
    let mut words = vec![
        "console=ttyS0".to_owned(),
        "panic=-1".to_owned(),
        "loglevel=7".to_owned(),
        "gpuvmk.report=ttyS1".to_owned(),
        format!("gpuvmk.run={}", spec.programs.join("+")),
    ];
    if !spec.nouveau_options.is_empty() {
        words.push(format!("gpuvmk.opts={}", spec.nouveau_options.join("+")));
    }
    if spec.iommu {
        words.extend(["intel_iommu=on", "iommu.strict=1"].map(str::to_owned));
    }
    if spec.reboots > 0 {
        words.push(format!("gpuvmk.reboots={}", spec.reboots));
    }
    words.extend(spec.kernel_words.iter().cloned());
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{GuestKernel, KernelSeries};
    use crate::qemu::Version;
    use std::path::PathBuf;
    use std::time::Duration;

    fn spec(sockets: &[&str]) -> MachineSpec {
        MachineSpec {
            name: "vm1".into(),
            folder: "/run/vm1".into(),
            kernel: GuestKernel {
                series: KernelSeries::V6_12,
                release: "6.12.0".into(),
                image: "/k/vmlinuz".into(),
                modules: Vec::new(),
            },
            initramfs: "/k/initramfs".into(),
            memory_mib: 512,
            cpus: 2,
            sockets: sockets.iter().map(PathBuf::from).collect(),
            accelerator: Accelerator::Tcg,
            iommu: false,
            beside: Beside::Nothing,
            programs: vec!["probe".into(), "copy".into()],
            nouveau_options: vec!["config=NvMSI=0".into(), "debug=info".into()],
            kernel_words: vec!["gpuvmk.limit=9".into()],
            reboots: 0,
            timeout: Duration::from_secs(1),
            takes_orders: false,
            monitor: None,
        }
    }

    fn arguments(spec: &MachineSpec) -> Result<Vec<String>> {
        let qemu = Qemu {
            command: vec!["qemu".into()],
            data_folders: Vec::new(),
            module_folder: None,
            version: Version { major: 11, minor: 1 },
        };
        let orders = spec.takes_orders.then_some(Path::new("/run/orders"));
        let serial = Serial { console: Path::new("/run/console"), report: Path::new("/run/report"), orders };
        let command = build(&qemu, spec, &serial)?;
        Ok(command.get_args().map(|word| word.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn each_gpu_has_a_root_port_and_a_json_device() {
        let words = arguments(&spec(&["/run/a.sock", "/run/b.sock"])).unwrap();
        assert!(words.contains(&"pcie-root-port,id=rp2,chassis=2,slot=2".to_owned()));
        let device = words.iter().find(|word| word.contains("b.sock")).unwrap();
        let device: Value = serde_json::from_str(device).unwrap();
        assert_eq!(device["driver"], "vfio-user-pci");
        assert_eq!(device["bus"], "rp2");
        assert_eq!(device["socket"], json!({ "type": "unix", "path": "/run/b.sock" }));
    }

    #[test]
    fn machine_with_a_gpu_is_refused_migration() {
        let words = arguments(&spec(&["/run/a,b.sock"])).unwrap();
        let at = words.iter().position(|word| word == "-blockdev").unwrap();
        assert!(words[at + 1].ends_with("file.filename=/run/a,,b.no-migration"), "{words:?}");
        assert!(!arguments(&spec(&[])).unwrap().contains(&"-blockdev".to_owned()));
    }

    #[test]
    fn what_is_beside_a_gpu_shares_its_slot_or_its_bus() {
        let mut spec = spec(&["/run/a.sock"]);
        for (beside, place, other) in [
            (Beside::Function, json!("0.0"), "virtio-balloon-pci,bus=rp1,addr=0.1"),
            (Beside::Neighbour, json!("1"), "virtio-balloon-pci,bus=pci1,addr=2"),
        ] {
            spec.beside = beside;
            let words = arguments(&spec).unwrap();
            let device = words.iter().find(|word| word.contains("a.sock")).unwrap();
            let device: Value = serde_json::from_str(device).unwrap();
            assert_eq!(device["addr"], place);
            assert!(words.contains(&other.to_owned()), "{words:?}");
        }
    }

    #[test]
    fn guest_memory_is_shared() {
        let words = arguments(&spec(&[])).unwrap();
        assert!(
            words.iter().any(|word| word.starts_with("memory-backend-memfd") && word.ends_with("share=on"))
        );
    }

    #[test]
    fn report_port_reads_a_pipe_where_orders_are_taken() {
        let mut spec = spec(&[]);
        assert!(arguments(&spec).unwrap().contains(&"file:/run/report".to_owned()));
        spec.takes_orders = true;
        let words = arguments(&spec).unwrap();
        let chardev = "file,id=report,path=/run/report,input-path=/run/orders";
        assert!(
            words.contains(&chardev.to_owned()) && words.contains(&"chardev:report".to_owned()),
            "{words:?}"
        );
    }

    #[test]
    fn guest_that_is_to_reboot_may_do_so() {
        let mut spec = spec(&[]);
        assert!(arguments(&spec).unwrap().contains(&"-no-reboot".to_owned()));
        spec.reboots = 1;
        assert!(!arguments(&spec).unwrap().contains(&"-no-reboot".to_owned()));
    }

    #[test]
    fn kernel_command_line_carries_programs_and_options() {
        let line = kernel_command_line(&spec(&[]));
        assert!(line.contains("gpuvmk.run=probe+copy"));
        assert!(line.contains("gpuvmk.opts=config=NvMSI=0+debug=info"));
        assert!(line.ends_with("gpuvmk.limit=9"));
    }

    #[test]
    fn socket_path_that_cannot_be_one_is_refused() {
        let long = format!("/run/{}/a.sock", "x".repeat(120));
        assert!(arguments(&spec(&[&long])).unwrap_err().to_string().contains("107 bytes"));
    }

    #[test]
    fn virtualisation_is_a_flag_of_its_own() {
        assert!(has_virtualisation("flags\t\t: fpu vmx sse"));
        assert!(!has_virtualisation("flags\t\t: fpu svm_lock vmx_other"));
        assert!(!has_virtualisation("model name : svm"));
    }
}
