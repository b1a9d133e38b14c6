//! A channel as a PBDMA has it loaded: its state, and what it reaches in memory.

use super::ending::{Ending, host_error};
use super::shared::Shared;
use crate::fifo::Job;
use crate::fifo::ramfc::{AddressMasks, HostState, engine_number};
use crate::ledger::Actor;
use crate::mmu::AddressSpace;
use crate::mmu::client::Client;
use crate::mmu::instance::read_instance;
use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::channel_event::{FaultUnit, MmuFault};
use gpuvmk_chip::gf100::engines::SOFTWARE_NUMBER;
use gpuvmk_chip::gf100::ramin::USERD_GP_PUT;
use gpuvmk_chip::gf100::regs::pfifo::NV_PPBDMA_INTR_0;
use gpuvmk_chip::registers::Field;
use gpuvmk_chip::stream::Method;
use gpuvmk_chip::{AccessKind, Engine, FaultReason, PhysicalAddress};

/// A loaded channel.
#[derive(Debug)]
pub(crate) struct Loaded<'a> {
    shared: &'a Shared,
    pbdma: u8,
    pub(super) job: Job,
    pub(super) state: HostState,
    pub(super) space: AddressSpace,
}

impl<'a> Loaded<'a> {
    /// Loads a channel from its instance block.
    pub(super) fn load(
        shared: &'a Shared,
        masks: &AddressMasks,
        pbdma: u8,
        job: Job,
    ) -> Result<Self, Ending> {
        let host_fault =
            |reason| MmuFault { unit: FaultUnit::Host, address: GpuVa(0), access: AccessKind::Read, reason };
        let block = read_instance(&shared.system.memory, job.instance);
        let block = block.ok_or(host_fault(FaultReason::NoChannel))?;
        let state = HostState::load(&block, masks);
        let mut loaded = Self { shared, pbdma, job, state, space: shared.system.mmu.address_space(&block) };
        if !loaded.state.signed {
            return Err(loaded.host_error(NV_PPBDMA_INTR_0::SIGNATURE, None));
        }
        loaded.read_put()?;
        Ok(loaded)
    }

    /// Takes a new end of the ring's valid entries from USERD.
    pub(super) fn read_put(&mut self) -> Result<(), Ending> {
        self.state.gp_put = self.read_userd(USERD_GP_PUT)?;
        Ok(())
    }

    /// Writes the state back to RAMFC.
    pub(super) fn save(&self) {
        let Job { channel, instance, .. } = self.job;
        let ramfc = self.state.save();
        let system = &self.shared.system;
        system.ledger.check(Actor::Firmware, Some(channel), instance, ramfc.len() as u64);
        if let Err(missed) = system.memory.write(instance, &ramfc) {
            log::debug!("softgpu: RAMFC of channel {} is gone: {missed}", channel.0);
        }
    }

    /// The host unit's way to the channel's memory.
    pub(super) fn client(&self) -> Client<'_> {
        let channel = Some(self.job.channel);
        let system = &self.shared.system;
        Client { system, space: &self.space, channel, unit: FaultUnit::Host, privileged: false }
    }

    fn userd(&self, offset: u64) -> PhysicalAddress {
        let userd = self.state.userd;
        let target = PhysicalAddress { address: userd.address.saturating_add(offset), ..userd };
        self.shared.system.ledger.check(Actor::Work, Some(self.job.channel), target, 4);
        target
    }

    fn userd_fault(&self, access: AccessKind) -> Ending {
        let fault = MmuFault {
            unit: FaultUnit::Host,
            address: GpuVa(self.state.userd.address),
            access,
            reason: FaultReason::UnsupportedAperture,
        };
        fault.into()
    }

    fn read_userd(&self, offset: u64) -> Result<u32, Ending> {
        let word = self.shared.system.memory.read_u32(self.userd(offset));
        word.map_err(|_| self.userd_fault(AccessKind::Read))
    }

    /// Writes a word of USERD.
    pub(super) fn write_userd(&self, offset: u64, word: u32) -> Result<(), Ending> {
        let written = self.shared.system.memory.write(self.userd(offset), &word.to_le_bytes());
        written.map_err(|_| self.userd_fault(AccessKind::Write))
    }

    /// The channel stops because the host unit refuses something.
    pub(super) fn host_error(&self, status: Field, method: Option<Method>) -> Ending {
        host_error(self.pbdma, status, method)
    }

    /// The engine with this number, if the chip has it.
    pub(super) fn engine_of(&self, number: u8) -> Option<Engine> {
        self.shared.engines().find(|engine| engine_number(*engine) == Some(number))
    }

    /// The engine number that a subchannel is bound to.
    pub(super) fn bound(&self, subchannel: u8) -> u8 {
        self.state.engines.get(usize::from(subchannel)).copied().unwrap_or(SOFTWARE_NUMBER)
    }

    /// Sends the driver a notification.
    pub(super) fn notify(&self, engine: Engine) {
        self.shared.events.tell(|events| events.non_stall(engine));
    }

    /// A report was written: acquires that wait look again.
    pub(super) fn released(&self) {
        self.shared.released();
    }
}
