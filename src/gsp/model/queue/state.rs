//! The saved state of the queues.

use crate::abi::common::queue::msgqTxHeader;
use crate::abi::values::QueueArguments;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use super::Queues;
use super::ring::Ring;
use crate::model::shared::SharedMemory;

/// State of [`Queues`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueuesState {
    /// Bus address of the shared memory's page table, as it was when GSP booted.
    pub shared_memory: u64,
    /// Bus addresses of the shared memory's pages, as the table said then.
    pub pages: Vec<u64>,
    /// The command queue.
    pub commands: QueueRingState,
    /// The message queue.
    pub messages: QueueRingState,
    /// Next element of the command queue.
    pub read: u32,
    /// Next element of the message queue.
    pub write: u32,
    /// Number of the next element of the command queue.
    pub sequence_in: u32,
    /// Number of the next element of the message queue.
    pub sequence_out: u32,
}

/// Where a queue lies in shared memory, as its header said when GSP booted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueRingState {
    /// Offset of its header.
    pub header: u64,
    /// Offset of its first element, from the header.
    pub entries: u64,
    /// How many there are.
    pub count: u32,
    /// Offset of the read pointer, from the header.
    pub reader: u64,
}

const fn saved(ring: &Ring) -> QueueRingState {
    let Ring { header, entries, count, reader } = *ring;
    QueueRingState {
        header,
        entries: entries.saturating_sub(header),
        count,
        reader: reader.saturating_sub(header),
    }
}

/// The ring, if it fits below `end`.
fn ring(state: &QueueRingState, end: u64) -> Option<Ring> {
    let QueueRingState { header, entries, count, reader } = *state;
    let bytes = u64::from(count).checked_mul(PAGE_SIZE)?.checked_add(entries)?;
    // CAST: widening.
    let fits = header.is_multiple_of(PAGE_SIZE)
        && entries.is_multiple_of(PAGE_SIZE)
        && reader >= size_of::<msgqTxHeader>() as u64
        && reader.checked_add(4)? <= entries
        && header.checked_add(bytes)? <= end
        && count >= 2;
    let ring =
        Ring { header, entries: header.checked_add(entries)?, count, reader: header.checked_add(reader)? };
    fits.then_some(ring)
}

impl Queues {
    /// The state to save.
    pub(in super::super) fn state(&self) -> QueuesState {
        let Self { arguments, memory, commands, messages, read, write, sequence_in, sequence_out } = self;
        QueuesState {
            shared_memory: arguments.shared_memory,
            pages: memory.pages().to_vec(),
            commands: saved(commands),
            messages: saved(messages),
            read: *read,
            write: *write,
            sequence_in: *sequence_in,
            sequence_out: *sequence_out,
        }
    }

    /// Queues in a saved state, of which nothing is looked up again.
    ///
    /// # Errors
    /// No boot could have found such queues, or a place is behind the end of one.
    pub(in super::super) fn from_state(state: &QueuesState) -> Result<Self, StateError> {
        let check = Check("queues");
        let QueuesState { shared_memory, pages, commands, messages, .. } = state;
        let memory = SharedMemory::of(pages.clone())
            .filter(|_| shared_memory.is_multiple_of(PAGE_SIZE))
            .ok_or_else(|| StateError::new("queues", format!("no table has {} such pages", pages.len())))?;
        // The one that comes first ends where the other begins.
        let end = |own: &QueueRingState, other: &QueueRingState| {
            if own.header < other.header { other.header } else { memory.size() }
        };
        let rings = ring(commands, end(commands, messages)).zip(ring(messages, end(messages, commands)));
        let (command_ring, message_ring) =
            rings.ok_or_else(|| StateError::new("queues", "they do not fit their memory"))?;
        check.that(state.read < command_ring.count && state.write < message_ring.count, || {
            format!("they are at {} and {}", state.read, state.write)
        })?;
        let arguments = QueueArguments {
            shared_memory: *shared_memory,
            pages: u32::try_from(pages.len()).unwrap_or(u32::MAX),
            command_queue: commands.header,
            message_queue: messages.header,
        };
        Ok(Self {
            arguments,
            memory,
            commands: command_ring,
            messages: message_ring,
            read: state.read,
            write: state.write,
            sequence_in: state.sequence_in,
            sequence_out: state.sequence_out,
        })
    }
}
