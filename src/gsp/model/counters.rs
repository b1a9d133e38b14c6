//! Observation of a virtual GSP for operators: counters, and notes about unusual actions of a driver.

use std::collections::VecDeque;
use std::fmt;

use crate::abi::status::Status;
use crate::abi::{Abi, names};
use crate::model::error::Refused;
use crate::model::error::SavedError;
use gpuvmk_fifo_virt::Refusal;
use gpuvmk_ordered::OrderedSet;

/// Counters since the function was reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// RPCs carried out or refused.
    pub rpcs: u64,
    /// RPCs of functions that are not known.
    pub rpcs_unknown: u64,
    /// Controls among the RPCs.
    pub controls: u64,
    /// Controls that are not known.
    pub controls_unknown: u64,
    /// RPCs, allocations and controls that were answered with an error.
    pub refused: u64,
    /// Records of the command queue that were not taken.
    pub records_refused: u64,
    /// Records with a number that was not the next.
    pub sequence_gaps: u64,
    /// RPCs given up, because their continuation did not come or was too large, and continuations of nothing.
    pub continuations_refused: u64,
    /// Answers that did not fit the message queue.
    pub replies_dropped: u64,
    /// Events sent.
    pub events: u64,
    /// Events that did not fit the message queue.
    pub events_dropped: u64,
    /// Channels that the back stopped.
    pub channels_stopped: u64,
    /// Times that what a suspension keeps was not written, for want of memory that the driver must name.
    pub saves_refused: u64,
    /// Times that what a driver handed over after a suspension was not taken.
    pub restores_refused: u64,
    /// Notes that were dropped because earlier ones had not been taken.
    pub notes_lost: u64,
}

/// Something that a reader of a log wants to know. Told once for each number, where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// A call that is not known was answered NV_ERR_NOT_SUPPORTED (a function or a control) or
    /// NV_ERR_INVALID_CLASS.
    Unknown {
        /// Function, control or class.
        what: Call,
        /// Its name in the version that the driver speaks.
        name: Option<&'static str>,
    },
    /// A known call was refused.
    Refused {
        /// Function, control or class.
        what: Call,
        /// Its name in the version that the driver speaks.
        name: Option<&'static str>,
        /// The answer.
        status: Status,
    },
    /// A record of the command queue was not taken.
    Record(Refused),
    /// The message queue is full.
    QueueFull,
    /// The state for a suspension was not written.
    NotSaved(SavedError),
    /// A channel of the driver's kernel was stopped.
    KernelChannel {
        /// What rings for it.
        doorbell: u32,
        /// Why.
        refusal: Refusal,
    },
}

/// A call of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// An RPC function.
    Function(u32),
    /// A control.
    Control(u32),
    /// An allocation of a class.
    Allocation(u32),
}

impl Call {
    /// NVIDIA's name of it in a version of the firmware, where one is known.
    pub fn name(self, abi: &Abi) -> Option<&'static str> {
        match self {
            Self::Function(number) => names::function(number),
            Self::Control(number) => names::control(abi, number),
            Self::Allocation(_) => None,
        }
    }
}

/// A call as a reader sees it.
struct Named(Call, Option<&'static str>);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Call::Function(number) => write!(f, "RPC function {number:#x}")?,
            Call::Control(number) => write!(f, "control {number:#x}")?,
            Call::Allocation(class) => write!(f, "allocation of class {class:#06x}")?,
        }
        self.1.map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { what, name } => {
                write!(f, "The virtual GSP does not know {}", Named(*what, *name))
            }
            Self::Refused { what, name, status } => {
                let named = Named(*what, *name);
                write!(f, "The virtual GSP refused {named}: {status} ({:#x})", status.code())
            }
            Self::Record(refused) => write!(f, "{refused}"),
            Self::NotSaved(error) => {
                write!(f, "The virtual GSP cannot be suspended in the memory that the driver named: {error}")
            }
            Self::KernelChannel { doorbell, refusal } => {
                write!(f, "Channel {doorbell:#x} of the driver's kernel is stopped: {refusal}")
            }
            Self::QueueFull => f.write_str("The driver does not read its message queue, which is full"),
        }
    }
}

/// Notes that are not taken yet: a few, each kind once.
#[derive(Debug, Default)]
pub(super) struct Notes {
    waiting: VecDeque<Note>,
    told: OrderedSet<u64>,
}

impl Notes {
    /// Notes kept at most.
    const WAITING: usize = 64;
    /// Numbers that are remembered as told.
    const TOLD: usize = 256;

    /// Keeps `note`, unless it was reported before or there is no room.
    pub(super) fn add(&mut self, note: Note, counters: &mut Counters) {
        let key = key(&note);
        if self.told.contains(&key) {
            return;
        }
        if self.waiting.len() >= Self::WAITING || self.told.len() >= Self::TOLD {
            counters.notes_lost = counters.notes_lost.saturating_add(1);
            return;
        }
        self.told.insert(key);
        self.waiting.push_back(note);
    }

    /// Takes what is there.
    pub(super) fn take(&mut self) -> Vec<Note> {
        self.waiting.drain(..).collect()
    }
}

/// The key by which notes are equal: kind and number, not details.
fn key(note: &Note) -> u64 {
    let (kind, number) = match *note {
        Note::Unknown { what: Call::Function(number), .. } => (0, number),
        Note::Unknown { what: Call::Control(number), .. } => (1, number),
        Note::Unknown { what: Call::Allocation(number), .. } => (2, number),
        Note::Refused { what: Call::Function(number), .. } => (3, number),
        Note::Refused { what: Call::Control(number), .. } => (4, number),
        Note::Refused { what: Call::Allocation(number), .. } => (5, number),
        Note::Record(Refused::WritePointer(_)) => (6, 0),
        Note::Record(Refused::NoMemory) => (6, 1),
        Note::Record(Refused::Length(_)) => (6, 2),
        Note::Record(Refused::Elements { .. }) => (6, 3),
        Note::Record(Refused::Checksum { .. }) => (6, 4),
        Note::Record(Refused::Header) => (6, 5),
        Note::QueueFull => (7, 0),
        Note::NotSaved(_) => (8, 0),
        Note::KernelChannel { doorbell, .. } => (9, doorbell),
    };
    u64::from(number) | kind << 32
}
