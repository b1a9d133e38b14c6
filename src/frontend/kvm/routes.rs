//! Interrupt routes: which message or pin an interrupt number of KVM's stands for.

use super::KvmError;
use gpuvmk_pci::header::Message;
use kvm_bindings::{
    KVM_IRQ_ROUTING_IRQCHIP, KVM_IRQ_ROUTING_MSI, KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER,
    KVM_IRQCHIP_PIC_SLAVE, KvmIrqRouting, kvm_irq_routing_entry,
};
use kvm_ioctls::VmFd;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Pins of the I/O APIC, whose interrupt numbers come first.
pub(super) const PINS: u32 = 24;
/// Pins of the two older controllers together.
const PIC_PINS: u32 = 16;
/// Most numbers for messages.
const MESSAGES: u32 = 1024;

/// The routes of one machine.
#[derive(Debug)]
pub(super) struct Routes {
    vm: Arc<VmFd>,
    /// Messages by interrupt number; none for a number that is taken and has no message yet.
    messages: Mutex<BTreeMap<u32, Option<Message>>>,
}

impl Routes {
    pub(super) fn new(vm: Arc<VmFd>) -> Self {
        Self { vm, messages: Mutex::default() }
    }

    /// A number for messages.
    pub(super) fn take(&self) -> Result<u32, KvmError> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (PINS..PINS + MESSAGES).find(|number| !messages.contains_key(number));
        let number = free.ok_or(KvmError::Exhausted { what: "interrupt", limit: MESSAGES as usize })?;
        messages.insert(number, None);
        Ok(number)
    }

    /// Gives a number back.
    pub(super) fn give_back(&self, number: u32) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    /// Has an interrupt number stand for a message.
    pub(super) fn set(&self, number: u32, message: Option<Message>) -> Result<(), KvmError> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.get(&number) == Some(&message) {
            return Ok(());
        }
        messages.insert(number, message);
        let mut entries: Vec<_> = pins().collect();
        entries
            .extend(messages.iter().filter_map(|(number, message)| Some(to_message(*number, (*message)?))));
        let routing = KvmIrqRouting::from_entries(&entries)
            .map_err(|_| KvmError::Exhausted { what: "interrupt route", limit: entries.len() })?;
        self.vm.set_gsi_routing(&routing).map_err(KvmError::call("Setting interrupt routes"))
    }
}

fn to_message(number: u32, message: Message) -> kvm_irq_routing_entry {
    let mut entry = kvm_irq_routing_entry { gsi: number, type_: KVM_IRQ_ROUTING_MSI, ..Default::default() };
    let [b0, b1, b2, b3, h0, h1, h2, h3] = message.address.to_le_bytes();
    entry.u.msi.address_lo = u32::from_le_bytes([b0, b1, b2, b3]);
    entry.u.msi.address_hi = u32::from_le_bytes([h0, h1, h2, h3]);
    entry.u.msi.data = message.data.into();
    entry
}

/// The routes that a machine has from the beginning, which a new table must repeat.
fn pins() -> impl Iterator<Item = kvm_irq_routing_entry> {
    let to_pin = |number, chip, pin| {
        let mut entry =
            kvm_irq_routing_entry { gsi: number, type_: KVM_IRQ_ROUTING_IRQCHIP, ..Default::default() };
        entry.u.irqchip.irqchip = chip;
        entry.u.irqchip.pin = pin;
        entry
    };
    let older = (0..PIC_PINS).map(move |number| {
        let chip = if number < 8 { KVM_IRQCHIP_PIC_MASTER } else { KVM_IRQCHIP_PIC_SLAVE };
        to_pin(number, chip, number % 8)
    });
    let newer = (0..PINS).map(move |number| to_pin(number, KVM_IRQCHIP_IOAPIC, number));
    older.chain(newer)
}
