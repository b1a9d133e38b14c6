//! The machine put together, and its run from the kernel's first instruction to its end.

use std::io;
use std::sync::Arc;

use kvm_ioctls::Kvm;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::boot::{BootFile, Image};
use super::error::VmmError;
use super::layout::{self, CONFIG_PORTS, ECAM, KEYBOARD, MMIO32, MMIO64, POWER, SERIAL, SERIAL_LINE};
use super::pci_bus::{ConfigPorts, Ecam, PciBus};
use super::power::{AcpiPower, ExitReason, Keyboard, StopVmm};
use super::processors::{self, Running};
use super::serial::{Console, Typing};
use super::{boot, host};
use gpuvmk_frontend::kvm::{BusDevice, KvmError, Machine, Placement, ShortcutCounts};
use gpuvmk_pci::PciFunction;

/// Settings of a machine.
#[derive(Debug)]
pub struct VmmConfig {
    /// What it runs on: [`open_kvm`].
    pub kvm: Arc<Kvm>,
    /// The kernel: a bzImage.
    pub kernel: BootFile,
    /// The initramfs, if there is one.
    pub initrd: Option<BootFile>,
    /// Its command line.
    pub command_line: String,
    /// Bytes of main memory, whole pages.
    pub memory: u64,
    /// Number of processors.
    pub processors: u8,
    /// Map what windows show, and have KVM signal doorbells; else every access stops the guest.
    pub direct: bool,
    /// Start again when the guest resets the machine.
    pub reboot: bool,
}

/// This host's KVM, if it runs stock kernels. Takes [`run`]'s signal as well: all that it needs of the
/// process before a jail is put on.
///
/// # Errors
/// The host is none for it, or KVM lacks something.
pub fn open_kvm() -> Result<Arc<Kvm>, VmmError> {
    host::check()?;
    processors::catch_kicks()?;
    Ok(Machine::open_kvm()?)
}

/// Boots the kernel with `functions` in the slots of its PCI bus, and runs until the guest turns the machine
/// off or `stop` is called. Opens no file: all it needs is open already. Functions are as after a reset when
/// it returns, and belong to no machine.
///
/// # Errors
/// The kernel cannot be loaded, or KVM refuses something. Nothing of it runs then.
pub fn run(
    config: &VmmConfig,
    functions: &[Arc<dyn PciFunction>],
    stop: &StopVmm,
) -> Result<ExitReason, VmmError> {
    let typing = Typing::start().map_err(|source| VmmError::System("Starting the console", source))?;
    loop {
        let ending = boot_once(config, functions, stop, &typing)?;
        functions.iter().for_each(|function| function.reset());
        if !config.reboot || !stop.start_again() {
            return Ok(ending);
        }
        log::info!("The guest resets the machine");
    }
}

/// One life of the machine, until `stop` ends it.
fn boot_once(
    config: &VmmConfig,
    functions: &[Arc<dyn PciFunction>],
    stop: &StopVmm,
    typing: &Typing,
) -> Result<ExitReason, VmmError> {
    let machine = Machine::new(&config.kvm, &layout::memory(config.memory))?;
    let ram = machine.ram().guest_memory().map_err(|error| VmmError::Memory(error.to_string()))?;
    let image = Image {
        kernel: &config.kernel,
        initrd: config.initrd.as_ref(),
        command_line: &config.command_line,
        memory: config.memory,
        processors: config.processors,
    };
    let entry = boot::load(&ram, &image)?;
    let mut attached = Vec::new();
    for (slot, function) in (1..).zip(functions) {
        let pin = Some(layout::slot_pin(slot));
        let placement = Placement { memory: vec![MMIO32, MMIO64], pin, direct: config.direct };
        attached.push(machine.attach(Arc::clone(function), placement)?);
    }
    let bus = PciBus::new(attached);
    bus.place_bars()?;
    let console = put_devices(&machine, &bus, stop)?;
    typing.connect(&console);
    let processors = processors::make_all(&machine, config.processors, entry)?;
    let running = Running::start(processors, stop)?;
    let ending = stop.wait();
    log::info!("Counts: exits={}", running.end());
    for function in bus.functions() {
        let ShortcutCounts { windows, doorbells } = function.shortcuts();
        log::info!(
            "Counts: runs_mapped={} runs_unmapped={} pages_moved={} blocks_refused={} doorbells_signalled={doorbells} messages={}",
            windows.mapped,
            windows.unmapped,
            windows.moved,
            windows.too_many,
            function.messages_sent()
        );
    }
    Ok(ending)
}

fn put_devices(machine: &Machine, bus: &Arc<PciBus>, stop: &StopVmm) -> Result<Arc<Console>, VmmError> {
    let line =
        EventFd::new(EFD_NONBLOCK).map_err(|source| VmmError::System("Creating an eventfd", source))?;
    let registered = machine.vm().register_irqfd(&line, SERIAL_LINE);
    registered.map_err(KvmError::call("Adding the console's irqfd"))?;
    let console = Console::new(line, Box::new(io::stdout()));
    let buses = machine.buses();
    let ecam: Arc<dyn BusDevice> = Arc::new(Ecam(Arc::downgrade(bus)));
    buses.put_memory(ECAM.start, ECAM.end - ECAM.start, ecam)?;
    let ports: [(std::ops::Range<u16>, Arc<dyn BusDevice>); 4] = [
        (CONFIG_PORTS, Arc::new(ConfigPorts(Arc::downgrade(bus)))),
        (SERIAL, console.clone()),
        (KEYBOARD, Arc::new(Keyboard::new(stop.clone()))),
        (POWER, Arc::new(AcpiPower(stop.clone()))),
    ];
    for (range, device) in ports {
        buses.put_ports(range.start, range.end - range.start, device)?;
    }
    Ok(console)
}
