//! The engine core: memory, engines and the threads of PBDMAs, and what the register face or the executor
//! calls.

mod backend;
mod engine_backend;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::Preemption;
use crate::chip::{Description, GF100};
use crate::engine::unit::Unit;
use crate::fifo::Fifo;
use crate::fifo::sleepers::Pbdmas;
use crate::ledger::Ledger;
use crate::mmu::Mmu;
use crate::mmu::fermi::FermiTables;
use crate::mmu::system::MemorySystem;
use crate::mmu::walker::Walker;
use crate::pbdma::host::HostUnit;
use crate::pbdma::shared::Shared;
use crate::pbdma::thread;
use crate::vram::renewals::Renewals;
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_jail::{self as jail, Role};

/// The engine core of the software GPU. Dropping it ends its threads.
#[derive(Debug)]
pub struct Core {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    renewals: Renewals,
}

impl Core {
    /// A GF100's core with `vram` bytes of zeroed VRAM, everything in reset.
    ///
    /// # Errors
    /// The size is not a multiple of 1 MiB, or the host has not the memory or threads.
    pub fn new(vram: u64) -> std::io::Result<Self> {
        Self::of(&GF100, Arc::new(FermiTables::default()), vram)
    }

    /// The core of any chip.
    pub(crate) fn of(
        chip: &'static Description,
        walker: Arc<dyn Walker>,
        vram: u64,
    ) -> std::io::Result<Self> {
        let mmu = Mmu::new(walker, chip.masks.va_max, chip.page_shifts);
        let system = MemorySystem::new(vram, mmu, chip.channels)?;
        let fifo = Fifo::new(chip.channels, chip.pbdmas);
        let units = chip.engines.iter().map(|engine| Unit::new(*engine, chip.model)).collect();
        let shared = Arc::new(Shared::new(system, fifo, units, chip.pbdmas));
        let mut core = Self { shared, threads: Vec::new(), renewals: Renewals::default() };
        for pbdma in 0..chip.pbdmas {
            let shared = Arc::clone(&core.shared);
            let name = format!("pbdma{pbdma}");
            // Those started before an error end with `core`.
            core.threads.push(std::thread::Builder::new().name(name).spawn(move || {
                jail::enter(Role::Engine);
                thread::run(&shared, HostUnit { class: chip.host, masks: chip.masks }, pbdma);
            })?);
        }
        Ok(core)
    }

    /// The ledger of true owners.
    pub fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&self.shared.system.ledger)
    }

    /// Where work leaves an engine that others want.
    pub(crate) fn set_preemption(&self, preemption: Preemption) {
        self.shared.set_preemption(preemption);
    }

    /// What [`Core::set_preemption`] has set.
    pub(crate) fn preemption(&self) -> Preemption {
        self.shared.preemption()
    }

    /// True while a PBDMA has the channel.
    pub(crate) fn is_loaded(&self, channel: HostChannel) -> bool {
        self.shared.fifo().channel(channel).is_some_and(|channel| channel.loaded.is_some())
    }

    /// Takes a runlist: the channels that may run, in this order.
    pub(crate) fn set_runlist(&self, numbers: impl IntoIterator<Item = HostChannel>) {
        let mut fifo = self.shared.fifo();
        fifo.set_runlist(numbers);
        fifo.to_leave().for_each(|pbdma| self.shared.alert(pbdma));
        let called = fifo.call(Instant::now(), 0);
        drop(fifo);
        self.shared.wake_these(called);
    }

    /// Waits until a channel that may not run has left its PBDMA, and saves its contexts: its instance block
    /// is all that there is of it then.
    pub(crate) fn settle(&self, channel: HostChannel) {
        drop(self.shared.wait_left(self.shared.fifo(), Some(channel)));
        self.shared.evict(channel, true);
    }

    /// Memory and the MMU.
    pub(crate) fn system(&self) -> &MemorySystem {
        &self.shared.system
    }

    /// A doorbell says that there is work, not how much: the PBDMA reads GP_PUT from USERD when it takes
    /// notice. One that comes late, when a newer GP_PUT has been seen already, must not take the channel
    /// back.
    pub(crate) fn ring(&self, channel: HostChannel) {
        let mut fifo = self.shared.fifo();
        let Some(entry) = fifo.channel_mut(channel) else { return };
        entry.rung = true;
        entry.pending = true;
        let waits = entry.loaded.is_none() && fifo.may_run(channel);
        let called = if waits { fifo.call(Instant::now(), 0) } else { 0 };
        drop(fifo);
        self.shared.wake_these(called);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.shared.fifo().shut_down = true;
        self.shared.alert_all();
        self.shared.wake_these(Pbdmas::MAX);
        // Work that leaves its engine between methods only would hold its thread up.
        for unit in &self.shared.units {
            unit.reset();
        }
        for thread in self.threads.drain(..) {
            // A core that is dropped by a callback on one of its own threads leaves that one to end by
            // itself.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                log::error!("softgpu: a PBDMA thread ended by a panic");
            }
        }
    }
}
