//! The machine: KVM's virtual machine with its memory, buses and interrupt controllers.

use super::KvmError;
use super::attached::{Attached, Placement, Shortcuts};
use super::bus::Buses;
use super::doorbells::Doorbells;
use super::kicks::Kicks;
use super::lines::{Line, Lines};
use super::messages::Messages;
use super::msix;
use super::processor::Processor;
use super::ram::Ram;
use super::routes::Routes;
use super::slots::Slots;
use super::windows::Windows;
use gpuvmk_pci::{PciFunction, header};
use kvm_bindings::{KVM_API_VERSION, KVM_PIT_SPEAKER_DUMMY, kvm_pit_config};
use kvm_ioctls::{Cap, Kvm, VmFd};
use std::sync::Arc;

/// Three pages below 4 GiB that KVM needs for real mode on Intel's processors; nothing else may lie there.
const TSS_ADDRESS: usize = 0xfffb_d000;

/// Capabilities that a machine needs, with their names in KVM's documentation.
const NEEDED: [(Cap, &str); 6] = [
    (Cap::Irqchip, "interrupt controllers (KVM_CAP_IRQCHIP)"),
    (Cap::Irqfd, "irqfd (KVM_CAP_IRQFD)"),
    (Cap::IrqRouting, "interrupt routes (KVM_CAP_IRQ_ROUTING)"),
    (Cap::Ioeventfd, "ioeventfd (KVM_CAP_IOEVENTFD)"),
    (Cap::UserMemory, "memory slots (KVM_CAP_USER_MEMORY)"),
    (Cap::ReadonlyMem, "read-only memory slots (KVM_CAP_READONLY_MEM)"),
];

/// A virtual machine.
#[derive(Debug)]
pub struct Machine {
    kvm: Arc<Kvm>,
    vm: Arc<VmFd>,
    slots: Arc<Slots>,
    routes: Arc<Routes>,
    lines: Arc<Lines>,
    buses: Arc<Buses>,
    ram: Arc<Ram>,
}

impl Machine {
    /// KVM, which has what machines need. It opens a file, and [`Self::new`] none.
    ///
    /// # Errors
    /// KVM cannot be opened, or lacks something.
    pub fn open_kvm() -> Result<Arc<Kvm>, KvmError> {
        let kvm = Kvm::new().map_err(KvmError::call("Opening /dev/kvm"))?;
        if u32::try_from(kvm.get_api_version()) != Ok(KVM_API_VERSION) {
            return Err(KvmError::Missing("interface of version 12"));
        }
        if let Some((_, name)) = NEEDED.iter().find(|(cap, _)| !kvm.check_extension(*cap)) {
            return Err(KvmError::Missing(name));
        }
        Ok(Arc::new(kvm))
    }

    /// A machine with memory at the places `(first address, bytes)`, interrupt controllers and a timer, and
    /// without processors.
    ///
    /// # Errors
    /// See [`KvmError`].
    pub fn new(kvm: &Arc<Kvm>, ram: &[(u64, u64)]) -> Result<Self, KvmError> {
        let vm = Arc::new(kvm.create_vm().map_err(KvmError::call("Creating a virtual machine"))?);
        vm.set_tss_address(TSS_ADDRESS).map_err(KvmError::call("Placing the task state"))?;
        vm.create_irq_chip().map_err(KvmError::call("Creating the interrupt controllers"))?;
        let timer = kvm_pit_config { flags: KVM_PIT_SPEAKER_DUMMY, ..Default::default() };
        vm.create_pit2(timer).map_err(KvmError::call("Creating the timer"))?;
        let slots = Slots::new(Arc::clone(&vm));
        let ram = Arc::new(Ram::new(&slots, ram)?);
        let routes = Arc::new(Routes::new(Arc::clone(&vm)));
        let lines = Arc::new(Lines::new(Arc::clone(&vm)));
        Ok(Self { kvm: Arc::clone(kvm), vm, slots, routes, lines, buses: Arc::default(), ram })
    }

    /// The guest's main memory.
    pub fn ram(&self) -> &Arc<Ram> {
        &self.ram
    }

    /// The buses with their devices.
    pub fn buses(&self) -> &Arc<Buses> {
        &self.buses
    }

    /// KVM itself, for what processors can do.
    pub fn kvm(&self) -> &Kvm {
        &self.kvm
    }

    /// KVM's descriptor of the machine.
    pub fn vm(&self) -> &Arc<VmFd> {
        &self.vm
    }

    /// A new processor, in its reset state.
    ///
    /// # Errors
    /// See [`KvmError`].
    pub fn processor(&self, id: u64) -> Result<Processor, KvmError> {
        let fd = self.vm.create_vcpu(id).map_err(KvmError::call("Creating a processor"))?;
        Ok(Processor::new(fd, Arc::clone(&self.buses)))
    }

    /// Connects a function to the machine: its interrupts, its DMA to all of main memory, its regions where
    /// its base address registers say. Its configuration space is reached through what is returned.
    ///
    /// # Errors
    /// The function does not take the memory, or an interrupt cannot be had.
    pub fn attach(
        &self,
        function: Arc<dyn PciFunction>,
        placement: Placement,
    ) -> Result<Arc<Attached>, KvmError> {
        let vectors = msix::vectors(&*function);
        let pin = placement.pin.filter(|_| header::has_line(&*function));
        let line = pin.map(|pin| Line::new(Arc::clone(&self.lines), pin));
        let messages = Messages::new(Arc::clone(&self.vm), Arc::clone(&self.routes), vectors, line)?;
        let shortcuts = if placement.direct {
            let (slots, ram) = (Arc::clone(&self.slots), Arc::clone(&self.ram));
            let windows = Windows::new(Arc::clone(&function), slots, ram);
            let doorbells = function
                .direct_map()
                .map(|_| Doorbells::new(Arc::clone(&function), Arc::clone(&self.vm)))
                .transpose()?;
            let kicks = Kicks::new(&*function, Arc::clone(&self.vm))?;
            Some(Shortcuts::new(windows, doorbells, kicks))
        } else {
            None
        };
        self.ram.announce(&*function)?;
        Ok(Attached::new(function, placement, Arc::clone(&self.buses), messages, shortcuts))
    }
}
