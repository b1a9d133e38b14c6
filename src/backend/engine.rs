//! The additional calls of a back for a chip whose driver programs the FIFO itself.

use std::time::Duration;

use super::Backend;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::{Engine, EngineSet, PhysicalAddress};

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

/// State of an engine, for its status register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EngineStatus {
    /// Channel whose context is loaded.
    pub channel: Option<GuestChannel>,
    /// True while it executes.
    pub busy: bool,
    /// True while it saves or loads a context.
    pub switching: bool,
}

/// The back of a chip whose driver programs the FIFO itself (GF100): channel table, runlists, engine control.
pub trait EngineBackend: Backend {
    /// The driver changed what may execute (PMC_ENABLE, PFIFO enables, falcon starts, large-page size).
    fn set_fifo_state(&self, state: FifoState);

    /// The driver bound `channel` to an instance block (`None`: unbound). State cached for the channel number
    /// is dropped either way.
    fn bind_channel(&self, channel: GuestChannel, instance: Option<PhysicalAddress>);

    /// The driver set or cleared the channel's start bit.
    fn enable_channel(&self, channel: GuestChannel, enabled: bool);

    /// The driver committed a runlist of `count` entries.
    fn commit_runlist(&self, list: PhysicalAddress, count: u32);

    /// Starts taking `channel` off the hardware.
    fn preempt_channel(&self, channel: GuestChannel);

    /// True while a preemption that was started is not complete.
    fn preempt_pending(&self) -> bool;

    /// The driver told FECS to make the context of this instance block current (`None`: unload it). Used by
    /// drivers to create their golden context.
    fn bind_graphics_context(&self, instance: Option<PhysicalAddress>);

    /// The driver told FECS to save the current context to its image.
    fn save_graphics_context(&self, instance: PhysicalAddress);

    /// Resets engines through their PMC_ENABLE bits: work in flight is dropped.
    fn reset_engines(&self, engines: EngineSet);

    /// State of `engine`.
    fn engine_status(&self, engine: Engine) -> EngineStatus;

    /// Busy time of `engine` since the start, including work under way. Always zero where the load of others
    /// must stay hidden.
    fn engine_busy_time(&self, engine: Engine) -> Duration;

    /// The driver blocks (or allows again) the scheduling of the runlist; part of fault recovery.
    fn block_runlist(&self, blocked: bool);
}
