//! Effects of a register access outside the unit models. The models return these as values; the function
//! carries them out after it has released the models' lock.

use super::idle::CounterChange;
use gpuvmk_backend::FifoState;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::{Engine, EngineSet, PhysicalAddress};

/// One of the two translated memory BARs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowId {
    /// BAR1: frame buffers and the USERD poll area.
    Bar1,
    /// BAR3: instance memory.
    Bar3,
}

/// How a translated BAR is to find memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowBlock {
    /// The window shows VRAM directly.
    Physical,
    /// Through this instance block's page tables.
    Instance(PhysicalAddress),
}

/// Which translations an MMU invalidation names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushTarget {
    /// Those of one page directory.
    Directory(PhysicalAddress),
    /// Those of every page directory.
    All,
}

/// A consequence of a register write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The set of units that may execute has changed.
    FifoState(FifoState),
    /// Large pages have another size.
    LargePages {
        /// 64 KiB instead of 128 KiB.
        is_64k: bool,
    },
    /// Translations must be dropped.
    Flush {
        /// The translations to drop.
        target: FlushTarget,
        /// The engines' translations may stay.
        hub_only: bool,
    },
    /// PRAMIN shows memory from there on.
    MovePramin(PhysicalAddress),
    /// A translated BAR finds memory in another way.
    BindWindow(WindowId, WindowBlock),
    /// A channel was bound to an instance block, or unbound.
    BindChannel(GuestChannel, Option<PhysicalAddress>),
    /// A channel's start bit was written.
    EnableChannel(GuestChannel, bool),
    /// A runlist was committed.
    CommitRunlist(PhysicalAddress, u32),
    /// A channel is to leave its engine.
    Preempt(GuestChannel),
    /// The driver's interest in notifications of finished work may have changed.
    UpdateInterest,
    /// Runlist processing is stopped or resumed.
    BlockRunlist(bool),
    /// FECS is to save the current graphics context.
    SaveGraphics(PhysicalAddress),
    /// FECS is to make a graphics context current.
    BindGraphics(Option<PhysicalAddress>),
    /// Engines were reset.
    ResetEngines(EngineSet),
    /// The driver pretends an MMU fault of an engine.
    TriggerFault {
        /// Whose channel is named.
        engine: Engine,
        /// Fault unit to report.
        unit: u32,
    },
    /// The alarm was set or cancelled.
    AlarmChanged,
    /// The PMU's idle counter is to count something else, or anew.
    IdleCounter(u32, CounterChange),
    /// Configuration space was asked for a function-level reset.
    FunctionReset,
}

/// A register read that needs values from outside the unit models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// Nothing: this is the value.
    Value(u32),
    /// PFIFO's view of an engine.
    EngineStatus(Engine),
    /// Whether the graphics engine works.
    GraphicsBusy,
    /// Whether a preemption of this channel is under way.
    PreemptStatus(u32),
    /// Which engines rest.
    IdleStatus,
    /// The value of an idle counter.
    IdleCount(u32),
}
