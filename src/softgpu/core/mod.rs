//! The engine core: memory, engines, the threads of PBDMAs and engines, and what the register face or the
//! executor calls.

mod backend;
mod engine_backend;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::chip::{Description, GF100};
use crate::engine::crew::Crew;
use crate::engine::unit::Unit;
use crate::fifo::sleepers::Pbdmas;
use crate::fifo::{Fifo, Worker};
use crate::ledger::Ledger;
use crate::mmu::Mmu;
use crate::mmu::fermi::FermiTables;
use crate::mmu::system::MemorySystem;
use crate::mmu::walker::Walker;
use crate::pbdma::engine_thread;
use crate::pbdma::host::HostUnit;
use crate::pbdma::shared::Shared;
use crate::pbdma::thread;
use crate::vram::renewals::Renewals;
use crate::{Preemption, Workers};
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_jail::{self as jail, Role};

/// The engine core of the software GPU. Dropping it ends its threads.
#[derive(Debug)]
pub struct Core {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    renewals: Renewals,
    crew: Arc<Crew>,
}

impl Core {
    /// A GF100's core with `vram` bytes of zeroed VRAM, everything in reset.
    ///
    /// # Errors
    /// The size is not a multiple of 1 MiB, or the host has not the memory or threads.
    pub fn new(vram: u64) -> std::io::Result<Self> {
        Self::of(&GF100, Arc::new(FermiTables::default()), vram, Workers::ONE)
    }

    /// The core of any chip. So many threads execute its grids.
    pub(crate) fn of(
        chip: &'static Description,
        walker: Arc<dyn Walker>,
        vram: u64,
        workers: Workers,
    ) -> std::io::Result<Self> {
        let mmu = Mmu::new(walker, chip.masks.va_max, chip.page_shifts);
        let system = MemorySystem::new(vram, mmu, chip.channels)?;
        let fifo = Fifo::new(chip.channels, chip.pbdmas);
        let helpers = workers.count().saturating_sub(1);
        let crew = Arc::new(Crew::new(helpers.into()));
        let units = chip.engines.iter().map(|row| Unit::new(row.engine, row.model, &crew)).collect();
        let shared = Arc::new(Shared::new(system, fifo, units, chip.pbdmas));
        let mut core = Self { shared, threads: Vec::new(), renewals: Renewals::default(), crew };
        // Threads that were started before an error end when `core` is dropped.
        for pbdma in 0..chip.pbdmas {
            core.start(format!("pbdma{pbdma}"), Role::Pbdma, move |shared| {
                thread::run(shared, HostUnit { class: chip.host, masks: chip.masks }, pbdma);
            })?;
        }
        for helper in 0..helpers {
            let crew = Arc::clone(&core.crew);
            core.start(format!("shader{helper}"), Role::Engine, move |_| crew.serve())?;
        }
        for engine in chip.engines().engines() {
            core.start(format!("engine-{engine}"), Role::Engine, move |shared| {
                engine_thread::run(shared, engine);
            })?;
        }
        Ok(core)
    }

    /// Starts a thread, which ends with the core.
    fn start(
        &mut self,
        name: String,
        role: Role,
        run: impl FnOnce(&Shared) + Send + 'static,
    ) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        self.threads.push(std::thread::Builder::new().name(name).spawn(move || {
            jail::enter(role);
            run(&shared);
        })?);
        Ok(())
    }

    /// The ledger of true owners.
    pub fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&self.shared.system.ledger)
    }

    /// Where work leaves an engine that others want.
    pub(crate) fn set_preemption(&self, preemption: Preemption) {
        self.shared.set_preemption(preemption);
    }

    /// Launches that ended because this model does not execute them.
    pub(crate) fn not_executed(&self) -> u64 {
        self.shared.unit(Engine::Graphics).map_or(0, Unit::not_executed)
    }

    /// How often threads of the crew have helped with a grid.
    #[cfg(test)]
    pub(crate) fn helped(&self) -> u64 {
        self.crew.helped()
    }

    /// The mode that [`Core::set_preemption`] has set.
    pub(crate) fn preemption(&self) -> Preemption {
        self.shared.preemption()
    }

    /// The PBDMA or engine that works for the channel now.
    pub(crate) fn worker(&self, channel: HostChannel) -> Option<Worker> {
        self.shared.fifo().channel(channel).and_then(|channel| channel.worker)
    }

    /// Takes a runlist: the channels that may run, in this order.
    pub(crate) fn set_runlist(&self, numbers: impl IntoIterator<Item = HostChannel>) {
        let mut fifo = self.shared.fifo();
        fifo.set_runlist(numbers);
        fifo.to_leave().for_each(|worker| self.shared.alert(worker));
        let called = fifo.call(Instant::now(), 0);
        drop(fifo);
        self.shared.wake_these(called);
    }

    /// Waits until a channel that may not run has left whoever has it, and saves its contexts: its instance
    /// block is all that there is of it then.
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
        let waits = entry.worker.is_none() && fifo.may_run(channel);
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
        self.shared.close_inboxes();
        self.crew.close();
        // An operation that cannot pause would hold the PBDMA's thread up.
        for unit in &self.shared.units {
            unit.reset();
        }
        for thread in self.threads.drain(..) {
            // A core that is dropped by a callback on one of its own threads leaves that one to end by
            // itself.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                log::error!("softgpu: a thread of the GPU ended by a panic");
            }
        }
    }
}
