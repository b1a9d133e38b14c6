//! The seam between a GPU's register face and what executes channel work behind it.
//!
//! The face calls [`EngineBackend`]; the back reports through [`EngineEvents`]. Nothing here waits for GPU
//! work: preemption is started and polled, everything else takes effect at once.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

pub use crate::interrupt::InterruptInterest;
use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::{AccessKind, Engine, EngineSet, FaultReason, PhysicalAddress};
use gpuvmk_pci::{DmaError, DmaMapping, SharedMemory};

/// A memory access that has no target: outside VRAM, or a bus address that nobody mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{size} bytes at {address:?} have no target")]
pub struct NoTarget {
    /// First byte.
    pub address: PhysicalAddress,
    /// Bytes.
    pub size: usize,
}

/// Which translations a TLB invalidation drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushScope {
    /// The page directory whose translations go.
    pub page_directory: PhysicalAddress,
    /// True when only the hub's TLBs are meant (BAR1, BAR3 and host), not the engines'.
    pub hub_only: bool,
}

/// Preconditions of execution that the driver has set up in the register face.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FifoState {
    /// PFIFO is out of reset and enabled.
    pub enabled: bool,
    /// PBDMA units that are enabled, a bit each.
    pub pbdma_mask: u32,
    /// Engines that are out of reset and whose firmware runs.
    pub ready: EngineSet,
    /// True: large pages are 64 KiB; false: 128 KiB (MMU control register, bit 0).
    pub large_pages_64k: bool,
}

/// What an engine does now, for its status register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EngineStatus {
    /// Channel whose context is loaded.
    pub channel: Option<u16>,
    /// True while it executes.
    pub busy: bool,
    /// True while it saves or loads a context.
    pub switching: bool,
}

/// A part of VRAM, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct VramPiece<'a> {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// The file. The same one has the same number until the function is reset or lost.
    pub fd: BorrowedFd<'a>,
    /// Offset of the first byte in the file.
    pub offset: u64,
}

/// The page tables that a window goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowTables {
    /// The uppermost one.
    pub table: PhysicalAddress,
    /// It is a root directory; false: it is what the first entry of one names.
    pub is_root: bool,
    /// Virtual addresses are below this.
    pub end: u64,
}

/// What every GPU function has behind its register face: memory, page tables, doorbells, a way back. Channel
/// numbers, addresses and VRAM offsets are those of this function (a vGPU's own, or the software GPU's).
pub trait Backend: Send + Sync {
    /// Bytes of VRAM of this function.
    fn vram_size(&self) -> u64;

    /// Reads memory by physical address.
    ///
    /// # Errors
    /// The range is not all in VRAM or in mapped system memory.
    fn read_memory(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget>;

    /// Reads memory that only CPUs write: page tables that a window walks, and instance memory (PRAMIN,
    /// BAR2). What engines wrote there since somebody last looked may be missed: a back whose VRAM is slow to
    /// read answers from a copy. Everything else (BAR1's data, USERD) is read with [`Backend::read_memory`].
    ///
    /// # Errors
    /// The range is not all in VRAM or in mapped system memory.
    fn read_tables(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        self.read_memory(address, data)
    }

    /// Writes memory by physical address.
    ///
    /// # Errors
    /// The range is not all in VRAM or in mapped system memory.
    fn write_memory(&self, address: PhysicalAddress, data: &[u8]) -> Result<(), NoTarget>;

    /// Shares VRAM with another process (see [`gpuvmk_pci::SharedRegions::share`]).
    ///
    /// # Errors
    /// The back cannot share that range.
    fn share_vram(&self, offset: u64, size: u64) -> std::io::Result<Vec<SharedMemory>>;

    /// Puts fresh memory in the place of VRAM (see [`gpuvmk_pci::SharedRegions::renew`]).
    ///
    /// # Errors
    /// The back cannot do that with the range.
    fn renew_vram(&self, offset: u64, size: u64) -> std::io::Result<()> {
        let _ = (offset, size);
        Err(std::io::ErrorKind::Unsupported.into())
    }

    /// Calls `visit` for the files that hold `[offset, offset + size)` of VRAM, in order, so that a front end
    /// may map them. What is not visited cannot be mapped.
    fn show_vram(&self, offset: u64, size: u64, visit: &mut dyn FnMut(VramPiece<'_>)) {
        let _ = (offset, size, visit);
    }

    /// Memory for the first bytes of BAR3 that a front end may map for good, where the back sees to it that
    /// what BAR3 shows there is in that memory (see [`Backend::show_bar3`]).
    ///
    /// # Errors
    /// There is such memory and it cannot be shared.
    fn bar3_memory(&self) -> std::io::Result<Option<SharedMemory>> {
        Ok(None)
    }

    /// Whoever was given [`Backend::bar3_memory`] and [`Backend::pramin_memory`] is gone: from the next reset
    /// on they are other memory, and none is given before.
    fn client_gone(&self) {}

    /// What BAR3 shows may have changed: it goes through `tables`, or through none.
    fn show_bar3(&self, tables: Option<WindowTables>) {
        let _ = tables;
    }

    /// As [`Backend::bar3_memory`], for PRAMIN.
    ///
    /// # Errors
    /// There is such memory and it cannot be shared.
    fn pramin_memory(&self) -> std::io::Result<Option<SharedMemory>> {
        Ok(None)
    }

    /// PRAMIN shows VRAM from an address on, or something else.
    fn show_pramin(&self, start: Option<u64>) {
        let _ = start;
    }

    /// What the driver would notice now if [`EngineEvents::non_stall`] were called. A back that is told of
    /// nothing may keep such calls to itself until it is told of something, which brings what it kept, or
    /// until it is asked for them. One that is told of a message may send it, once. True if it had: then
    /// [`EngineEvents::message_delivered`] was called.
    fn set_completion_interest(&self, interest: InterruptInterest) -> bool {
        let _ = interest;
        false
    }

    /// Brings the calls of [`EngineEvents::non_stall`] that the back has kept to itself. True if it had sent
    /// a message: then it was [`EngineEvents::message_delivered`] that was called, and the back sends none
    /// before it is told of one again.
    fn take_completions(&self) -> bool {
        false
    }

    /// Makes system memory reachable.
    ///
    /// # Errors
    /// As [`gpuvmk_pci::PciFunction::dma_map`].
    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError>;

    /// Takes system memory away.
    ///
    /// # Errors
    /// As [`gpuvmk_pci::PciFunction::dma_unmap`].
    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError>;

    /// Takes all system memory away.
    fn dma_unmap_all(&self);

    /// Most pieces of it at a time.
    fn most_dma_ranges(&self) -> usize {
        gpuvmk_pci::dma::MAX_MAPPINGS
    }

    /// Connects the way back. Called once, before any other method that can cause an event.
    fn connect_events(&self, events: Arc<dyn EngineEvents>);

    /// Drops translations. When it returns, no engine uses them any more.
    fn flush_tlb(&self, scope: FlushScope);

    /// New work: GP_PUT of `channel` was written to its USERD (the store itself has been done).
    fn doorbell(&self, channel: u16, gp_put: u32);

    /// Function reset: everything dropped, as after power-on. No access lands after it returns.
    fn reset(&self);
}

/// The back of a chip whose driver programs the FIFO itself (GF100): channel table, runlists, engine control.
pub trait EngineBackend: Backend {
    /// The driver changed what may execute (PMC_ENABLE, PFIFO enables, falcon starts, large-page size).
    fn set_fifo_state(&self, state: FifoState);

    /// The driver bound `channel` to an instance block (`None`: unbound). State cached for the channel number
    /// is dropped either way.
    fn bind_channel(&self, channel: u16, instance: Option<PhysicalAddress>);

    /// The driver set or cleared the channel's start bit.
    fn enable_channel(&self, channel: u16, enabled: bool);

    /// The driver committed a runlist of `count` entries.
    fn commit_runlist(&self, list: PhysicalAddress, count: u32);

    /// Starts taking `channel` off the hardware.
    fn preempt_channel(&self, channel: u16);

    /// True while a preemption that was started is not complete.
    fn preempt_pending(&self) -> bool;

    /// The driver told FECS to make the context of this instance block current (`None`: unload it). Used by
    /// drivers to create their golden context.
    fn bind_graphics_context(&self, instance: Option<PhysicalAddress>);

    /// The driver told FECS to save the current context to its image.
    fn save_graphics_context(&self, instance: PhysicalAddress);

    /// Resets engines through their PMC_ENABLE bits: work in flight is dropped.
    fn reset_engines(&self, engines: EngineSet);

    /// What `engine` does now.
    fn engine_status(&self, engine: Engine) -> EngineStatus;

    /// How long `engine` has worked since the start; what is under way counts. Zero where nobody is to know.
    fn engine_busy_time(&self, engine: Engine) -> Duration {
        let _ = engine;
        Duration::ZERO
    }

    /// The driver blocks (or allows again) the scheduling of the runlist; part of fault recovery.
    fn block_runlist(&self, blocked: bool);
}

/// A channel as a driver asks the GPU's firmware (GSP) for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GspChannel {
    /// Page directory of its address space.
    pub page_directory: PhysicalAddress,
    /// Virtual address of its GPFIFO ring.
    pub gpfifo: GpuVa,
    /// log2 of the ring's entries.
    pub gpfifo_entries_log2: u8,
    /// VRAM address of its USERD (512 bytes).
    pub userd: u64,
    /// Engines that it can use; the first is the one whose runlist it is on.
    pub engines: EngineSet,
}

/// Why the back cannot have a channel or an object; the driver is told a status, and goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ChannelRefusal {
    /// No channel, address space or memory left.
    #[error("no resources are left")]
    Exhausted,
    /// An address outside this function's memory, or a number that is not in use or in use already.
    #[error("the request names what is not there")]
    Invalid,
    /// The class or engine is not offered.
    #[error("the class or engine is not offered")]
    Unsupported,
    /// The back does not serve this function any more, see [`EngineEvents::lost`].
    #[error("the back is gone")]
    Lost,
}

/// The back of a chip whose driver asks firmware for channels (GH100 and its GSP). Channel numbers are slots
/// that the face chooses, below [`GspBackend::channels`]; what the driver calls its channels is the face's
/// business.
pub trait GspBackend: Backend {
    /// Channel slots.
    fn channels(&self) -> u16;

    /// Engines that channels can be made for. Copy engine 0 sits on the graphics runlist (the "GRCE").
    fn engines(&self) -> EngineSet;

    /// A new channel in a free slot, disabled, with its address space synchronised.
    ///
    /// # Errors
    /// See [`ChannelRefusal`]; the slot stays free.
    fn create_channel(&self, slot: u16, channel: GspChannel) -> Result<(), ChannelRefusal>;

    /// An object of `class` for `engine` on a channel. An object of a class that the channel has is the same
    /// one.
    ///
    /// # Errors
    /// See [`ChannelRefusal`].
    fn create_object(&self, slot: u16, class: u32, engine: Engine) -> Result<(), ChannelRefusal>;

    /// Lets a channel run, or holds it back.
    ///
    /// # Errors
    /// See [`ChannelRefusal`].
    fn schedule_channel(&self, slot: u16, scheduled: bool) -> Result<(), ChannelRefusal>;

    /// Takes a channel away. An empty slot stays empty.
    fn destroy_channel(&self, slot: u16);

    /// How many objects the driver has now, for operators.
    fn note_objects(&self, usage: ObjectUsage) {
        // A back that nobody asks need not know.
        let _ = usage;
    }
}

/// How far a driver is from its limit of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectUsage {
    /// Objects that it may have.
    pub limit: u32,
    /// Objects that it has.
    pub used: u32,
    /// Objects that it was refused for want of room, since this was last told.
    pub refused: u32,
}

/// The unit that an MMU fault is reported for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultUnit {
    /// An engine.
    Engine(Engine),
    /// The FIFO's own accesses: ring, pushbuffers, semaphores.
    Host,
    /// CPU access through BAR1.
    Bar1,
    /// CPU access through BAR3.
    Bar3,
}

/// An MMU fault as hardware reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmuFault {
    /// Channel that the access belonged to, where it belonged to one.
    pub channel: Option<u16>,
    /// Who accessed.
    pub unit: FaultUnit,
    /// Where.
    pub address: GpuVa,
    /// Load or store.
    pub access: AccessKind,
    /// Why it was refused.
    pub reason: FaultReason,
}

/// A command that the host unit (PBDMA) refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostError {
    /// Channel.
    pub channel: u16,
    /// PBDMA unit.
    pub pbdma: u8,
    /// Interrupt bits of the PBDMA.
    pub status: u32,
    /// Method being executed: byte address in bits 13:0, subchannel in bits 18:16.
    pub method: u32,
    /// Its data.
    pub data: u32,
}

/// A method or state that the graphics engine refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphicsError {
    /// Channel.
    pub channel: u16,
    /// Interrupt bits of PGRAPH.
    pub status: u32,
    /// Subchannel.
    pub subchannel: u8,
    /// Class bound to it.
    pub class: u16,
    /// Method address in bytes.
    pub method: u16,
    /// Its data.
    pub data: u32,
}

/// A channel stopped by a GPU that manages its channels itself, without the details that registers would
/// give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelError {
    /// Channel.
    pub channel: u16,
    /// `ROBUST_CHANNEL_*` number, such as 31 for an MMU fault.
    pub code: u32,
}

/// What a hung channel could not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HangKind {
    /// Work on its engine, which it did not leave either.
    Engine,
    /// An acquire of a semaphore.
    Acquire,
}

/// A channel that the host took off the hardware for good, because it made no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelHang {
    /// Channel.
    pub channel: u16,
    /// The engine that it held, or that it would have used.
    pub engine: Engine,
    /// What it could not finish.
    pub kind: HangKind,
}

/// What the back tells the face. Called from engine or link threads; never blocks for long.
pub trait EngineEvents: Send + Sync {
    /// A NON_STALL_INTERRUPT method was executed.
    fn non_stall(&self, engine: Engine);
    /// The same on several engines, or on none that is not known yet. The message that follows was sent.
    fn message_delivered(&self, engines: EngineSet) {
        engines.engines().for_each(|engine| self.non_stall(engine));
    }
    /// A message that was said to be sent was not: it is to be sent now. Backs that send none do not call it.
    fn unsent(&self) {}
    /// An access was refused. The channel is stopped.
    fn mmu_fault(&self, fault: MmuFault);
    /// The host unit stopped a channel.
    fn host_error(&self, error: HostError);
    /// The graphics engine stopped a channel.
    fn graphics_error(&self, error: GraphicsError);
    /// The physical GPU's own manager stopped a channel, for a reason in its numbering of robust-channel
    /// errors (`ROBUST_CHANNEL_*`, the Xid).
    fn channel_error(&self, error: ChannelError);
    /// The host took a channel off because it made no progress. The channel is stopped.
    fn hung(&self, hang: ChannelHang);
    /// A preemption that was started is complete. For those who do not poll
    /// [`EngineBackend::preempt_pending`].
    fn preempted(&self, channel: u16) {
        let _ = channel;
    }
    /// FECS applied an entry of a context's patch list: a write to a register of this function.
    fn patch_register(&self, offset: u32, value: u32);
    /// The back is gone for good (its physical GPU or aggregator died).
    fn lost(&self, reason: &str);
}
