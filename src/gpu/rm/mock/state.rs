//! What the module knows, and what tests set.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;

use zerocopy::{FromBytes, IntoBytes};

use super::super::abi::calls::{CardInfo, EventData};
use super::super::abi::{Handle, RmStatus, classes};
use super::super::kernel::CallError;

/// An object of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MockObject {
    pub parent: Handle,
    pub class: u32,
    /// Bytes, of memory; first address and end, of reservations.
    pub range: (u64, u64),
}

/// A mapping in a GPU address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MockMapping {
    pub dma: Handle,
    pub memory: Handle,
    pub offset: u64,
    pub length: u64,
    pub flags: u32,
}

/// State that tests read and set.
#[derive(Debug, Default)]
pub struct State {
    pub cards: Vec<CardInfo>,
    /// `NV2080_ENGINE_TYPE` of each engine.
    pub engines: Vec<u32>,
    /// True if the GPUs' nodes may not be opened.
    pub closed: bool,
    pub objects: BTreeMap<Handle, MockObject>,
    /// By address space's reservation and address.
    pub mappings: BTreeMap<(Handle, u64), MockMapping>,
    pub architecture: u32,
    /// Class numbers that the GPU lists.
    pub classes: Vec<u32>,
    pub vram_free: u64,
    pub disabled: Vec<Handle>,
    pub scheduled: Vec<Handle>,
    /// Time slices of groups, in microseconds, one after the other.
    pub slices: Vec<u64>,
    pub events: VecDeque<EventData>,
    pub maps: usize,
    pub unmaps: usize,
    /// A class whose objects stay although they were freed.
    pub keep_class: Option<u32>,
    /// Answers of the next calls for a class: refused with the status.
    pub refuse_class: Option<(u32, RmStatus)>,
    /// The map call that is refused: this many succeed before it.
    pub refuse_map_after: Option<usize>,
    /// Channels do not leave their engines when they are preempted.
    pub clings: bool,
    /// The file that all nodes are, for tests of its lock.
    pub node: Option<OwnedFd>,
    /// Memory that becomes an object is really got, as by the module; before that, the first page of this
    /// file is taken out of it.
    pub punched: Option<OwnedFd>,
    /// Handle of the next client.
    pub(super) next_client: u32,
}

impl State {
    /// Objects of a class.
    pub fn handles(&self, class: classes::Class) -> Vec<Handle> {
        let of_class = self.objects.iter().filter(|(_, object)| object.class == class.number);
        of_class.map(|(handle, _)| *handle).collect()
    }

    pub fn count(&self, class: classes::Class) -> usize {
        self.objects.values().filter(|object| object.class == class.number).count()
    }

    /// Where `va` of the reservation's address space leads: memory and offset.
    pub fn translate(&self, va: u64) -> Option<(Handle, u64, u32)> {
        self.mappings.iter().find_map(|((_, start), mapping)| {
            let into = va.checked_sub(*start)?;
            (into < mapping.length).then_some((mapping.memory, mapping.offset + into, mapping.flags))
        })
    }
}

/// The answer of a call that is refused.
pub(super) fn refuse<T>(status: RmStatus) -> Result<T, CallError> {
    Err(CallError::Status(status))
}

/// The parameters of a call.
pub(super) fn params<T: FromBytes>(bytes: &[u8]) -> Result<T, CallError> {
    T::read_from_bytes(bytes).map_err(|_| CallError::Status(RmStatus::ERR_INVALID_PARAM_STRUCT))
}

/// Stores the parameters that a call returns.
pub(super) fn answer<T: IntoBytes + zerocopy::Immutable>(value: &T, bytes: &mut [u8]) {
    bytes.copy_from_slice(value.as_bytes());
}
