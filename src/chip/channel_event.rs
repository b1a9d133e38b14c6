//! How a channel ends: one type for every room, with the number space that the channel is named in.
//!
//! The software GPU and the drivers of a physical GPU report a [`ChannelStop<HostChannel>`], the aggregator
//! turns it into a [`ChannelStop<GuestChannel>`] for the tenant that owns the channel, and the register face
//! shows that to its driver. Only the channel is translated: what happened is the same for all of them.
//!
//! [`ChannelStop<HostChannel>`]: crate::addr::HostChannel
//! [`ChannelStop<GuestChannel>`]: crate::addr::GuestChannel

use serde::{Deserialize, Serialize};

use crate::addr::GpuVa;
use crate::{AccessKind, Engine, FaultReason};

/// A channel that was stopped, and why. It executes nothing more until its driver starts it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelStop<C> {
    /// Which channel, in the numbers of whoever is told.
    pub channel: C,
    /// What stopped it.
    pub cause: StopCause,
}

impl<C> ChannelStop<C> {
    /// A stop of `channel`.
    pub fn new(channel: C, cause: impl Into<StopCause>) -> Self {
        Self { channel, cause: cause.into() }
    }

    /// The same stop of the channel by another name.
    pub fn of<D>(self, channel: D) -> ChannelStop<D> {
        ChannelStop { channel, cause: self.cause }
    }
}

/// Why a channel was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum StopCause {
    /// The MMU refused one of its accesses.
    Fault(MmuFault),
    /// The host unit (a PBDMA) refused a command.
    Host(HostError),
    /// The graphics engine refused a method or its state.
    Graphics(GraphicsError),
    /// A GPU that manages its channels itself stopped it, and says nothing but a number: `ROBUST_CHANNEL_*`
    /// (the Xid), such as 31 for an MMU fault.
    Manager(u32),
    /// The host took it off the hardware for good, because it made no progress.
    Hang(Hang),
}

impl From<MmuFault> for StopCause {
    fn from(fault: MmuFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<HostError> for StopCause {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl From<GraphicsError> for StopCause {
    fn from(error: GraphicsError) -> Self {
        Self::Graphics(error)
    }
}

impl From<Hang> for StopCause {
    fn from(hang: Hang) -> Self {
        Self::Hang(hang)
    }
}

/// The unit that an MMU fault is reported for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// An access that the MMU refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MmuFault {
    /// Who accessed.
    pub unit: FaultUnit,
    /// The address that was accessed.
    pub address: GpuVa,
    /// Load or store.
    pub access: AccessKind,
    /// Why it was refused.
    pub reason: FaultReason,
}

/// A command that the host unit (PBDMA) refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostError {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphicsError {
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

/// What a hung channel did not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hang {
    /// The engine that it held, or that it would have used.
    pub engine: Engine,
    /// What it could not finish.
    pub kind: HangKind,
}

/// What a hung channel could not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum HangKind {
    /// Work on its engine, which it did not leave either.
    Engine,
    /// An acquire of a semaphore.
    Acquire,
}
