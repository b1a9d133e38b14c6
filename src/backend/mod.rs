//! The seam between a GPU's register face and what executes channel work behind it.
//!
//! The face calls [`Backend`] and the trait that its chip adds to it: [`EngineBackend`] or [`GspBackend`].
//! The back reports through [`EngineEvents`]. Nothing here waits for GPU work: preemption is started and
//! polled, everything else takes effect at once.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod completions;
mod engine;
mod gsp;
mod interest;
#[cfg(feature = "testing")]
pub mod testing;
mod windows;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub use self::completions::Completions;
pub use self::engine::{EngineBackend, EngineStatus, FifoState};
pub use self::gsp::{ChannelRefusal, EngineTime, GspBackend, GspChannel, ObjectUsage};
pub use self::interest::InterruptInterest;
pub use self::windows::{WindowTables, Windows};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::{ChannelStop, MmuFault};
use gpuvmk_chip::{Engine, EngineSet, PhysicalAddress};
use gpuvmk_pci::{DmaError, DmaMapping, SharedMemory};

/// A memory access that has no target: outside VRAM, or an unmapped bus address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{size} bytes at {address:?} have no target")]
pub struct NoTarget {
    /// Address of the first byte.
    pub address: PhysicalAddress,
    /// Size in bytes.
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

/// A part of VRAM, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct VramPiece<'a> {
    /// Its first address.
    pub start: u64,
    /// Size in bytes.
    pub size: u64,
    /// The file. The same one has the same number until the function is reset or lost.
    pub fd: BorrowedFd<'a>,
    /// Offset of the first byte in the file.
    pub offset: u64,
}

/// The back of a GPU function, behind its register face: memory, page tables, doorbells, and events in
/// return.
///
/// Channel numbers, addresses and VRAM offsets are those of this function (a vGPU's own, or the software
/// GPU's). Every method may be called from any thread, and none waits for the GPU's work. Abilities that only
/// some backs have are reached through [`Self::windows`] and [`Self::completions`]. No method has a default,
/// so a back must decide about each.
pub trait Backend: Send + Sync {
    /// Bytes of VRAM of this function.
    fn vram_size(&self) -> u64;

    /// Reads memory by physical address.
    ///
    /// # Errors
    /// The range is not all in VRAM or in mapped system memory.
    fn read_memory(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget>;

    /// Reads memory that only CPUs write: page tables that a window walks, and instance memory (PRAMIN,
    /// BAR2). A back whose VRAM is slow to read may answer from a copy, without what engines wrote there
    /// since. Everything else (BAR1's data, USERD) is read with [`Backend::read_memory`].
    ///
    /// # Errors
    /// The range is not all in VRAM or in mapped system memory.
    fn read_tables(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget>;

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
    /// The back cannot do that with the range: an error of kind `Unsupported`.
    fn renew_vram(&self, offset: u64, size: u64) -> std::io::Result<()>;

    /// Calls `visit` for the files that hold `[offset, offset + size)` of VRAM, in order, so that a front end
    /// may map them. It must trap accesses to parts that are not visited.
    fn show_vram(&self, offset: u64, size: u64, visit: &mut dyn FnMut(VramPiece<'_>));

    /// Makes system memory reachable.
    ///
    /// # Errors
    /// As [`gpuvmk_pci::PciFunction::dma_map`].
    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError>;

    /// Removes mappings of system memory.
    ///
    /// # Errors
    /// As [`gpuvmk_pci::PciFunction::dma_unmap`].
    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError>;

    /// Removes all mappings of system memory.
    fn dma_unmap_all(&self);

    /// Limit of mappings at a time ([`gpuvmk_pci::dma::MAX_MAPPINGS`] where nothing else limits them).
    fn most_dma_ranges(&self) -> usize;

    /// Connects the receiver of events. Called once, before any other method that can cause an event.
    fn connect_events(&self, events: Arc<dyn EngineEvents>);

    /// Drops translations. When it returns, no engine uses them any more.
    fn flush_tlb(&self, scope: FlushScope);

    /// New work: GP_PUT of `channel` was stored to its USERD before the call.
    fn doorbell(&self, channel: GuestChannel, gp_put: u32);

    /// Function reset: drops all state, as after power-on. After the return no access of an engine lands in
    /// memory.
    fn reset(&self);

    /// The part of the back that has its own memory for BAR3 and PRAMIN, and must know their positions;
    /// `None`: it has none.
    fn windows(&self) -> Option<&dyn Windows>;

    /// The part of the back that may hold back notifications of finished work, or send a message for them by
    /// itself; `None`: it calls [`EngineEvents::non_stall`] at once.
    fn completions(&self) -> Option<&dyn Completions>;
}

/// Events of the back for the face. Called from engine or link threads; calls never block for long.
pub trait EngineEvents: Send + Sync {
    /// A NON_STALL_INTERRUPT method was executed.
    fn non_stall(&self, engine: Engine);
    /// The same on several engines, or on none that is not known yet. The message for it was sent already, so
    /// the function must not send it.
    fn message_delivered(&self, engines: EngineSet);
    /// A message that was reported as sent could not be sent: the function must send it now. Backs that send
    /// no messages do not call it.
    fn unsent(&self);
    /// A channel was stopped. It stays so until the driver starts it again.
    fn stopped(&self, stop: ChannelStop<GuestChannel>);
    /// An access that belongs to no channel was refused: a context that the driver loads or saves by hand.
    fn fault(&self, fault: MmuFault);
    /// A preemption that was started is complete. A face whose driver polls
    /// [`EngineBackend::preempt_pending`] need not do anything.
    fn preempted(&self, channel: GuestChannel);
    /// FECS applied an entry of a context's patch list: a write to a register of this function.
    fn patch_register(&self, offset: u32, value: u32);
    /// An operator has plugged in a monitor that prefers that width and height, or none. Faces without a head
    /// do nothing.
    fn monitor(&self, size: Option<(u16, u16)>);
    /// The back is gone for good (its physical GPU or aggregator died).
    fn lost(&self, reason: &str);
}
