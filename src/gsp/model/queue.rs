//! The two queues between driver and GSP: rings of one-page elements in shared memory.
//!
//! The command queue is written by the driver and read here, the message queue the other way round. A record
//! (an RPC or a piece of one) takes whole elements in a row and wraps at the end of the ring. Each side keeps
//! its own pointer and only publishes it; of the guest's memory nothing is used that was not copied first.

mod record;
mod ring;
mod state;

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::common::calls;
use crate::abi::common::queue::{
    GSP_MSG_QUEUE_ELEMENT, GSP_MSG_QUEUE_RPC_SIZE_MAX, GSP_PAGE_SIZE, NV_VGPU_MSG_SIGNATURE_VALID,
    RPC_HEADER_VERSION, checksum, msgqTxHeader,
};
use crate::abi::common::rpc::{NV_VGPU_MSG_FUNCTION_CONTINUATION_RECORD, NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC};
use crate::abi::values::QueueArguments;
use crate::model::error::{BootError, Refused};
use crate::model::shared::SharedMemory;
use gpuvmk_backend::{GspBackend, NoTarget};

use record::{HEADERS, RPC_HEADER, elements_of, pieces_of, record, split};
use ring::{Ring, ring};
pub use state::{QueueRingState, QueuesState};

/// Offset of the write pointer in a queue's header.
const WRITE_POINTER: u64 = 0x10;

/// A piece of an RPC, as it was in the queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Function, or CONTINUATION_RECORD.
    pub(super) function: u32,
    /// The driver's number for it.
    pub(super) sequence: u32,
    /// What follows the headers.
    pub(super) body: Vec<u8>,
    /// It is as large as a record can be: there may be more.
    pub(super) full: bool,
    /// Elements are numbered; this one was not the next.
    pub(super) gap: bool,
}

/// Why nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsent {
    /// The driver does not read its queue, or the message is longer than the queue.
    Full,
    /// The queue's memory is gone.
    NoMemory,
}

impl From<NoTarget> for Unsent {
    fn from(_: NoTarget) -> Self {
        Self::NoMemory
    }
}

/// Where queues are, and how far they were read and written: enough to go on with them after a suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    arguments: QueueArguments,
    read: u32,
    write: u32,
    sequence_in: u32,
    sequence_out: u32,
}

impl Spot {
    /// Says it in numbers.
    pub(super) fn write(self, mut put: impl FnMut(u64)) {
        let QueueArguments { shared_memory, pages, command_queue, message_queue } = self.arguments;
        [shared_memory, pages.into(), command_queue, message_queue].into_iter().for_each(&mut put);
        [self.read, self.write, self.sequence_in, self.sequence_out]
            .into_iter()
            .for_each(|word| put(word.into()));
    }

    /// From such numbers. One that is too large is no queue's, and refused when the queues are opened.
    pub(super) fn read<E>(mut take: impl FnMut() -> Result<u64, E>) -> Result<Self, E> {
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let arguments = QueueArguments {
            shared_memory: take()?,
            pages: small(take()?),
            command_queue: take()?,
            message_queue: take()?,
        };
        Ok(Self {
            arguments,
            read: small(take()?),
            write: small(take()?),
            sequence_in: small(take()?),
            sequence_out: small(take()?),
        })
    }
}

/// Both queues.
#[derive(Debug)]
pub(super) struct Queues {
    arguments: QueueArguments,
    memory: SharedMemory,
    commands: Ring,
    messages: Ring,
    /// Next element of the command queue.
    read: u32,
    /// Next element of the message queue.
    write: u32,
    /// Number of the next element of either.
    sequence_in: u32,
    sequence_out: u32,
}

impl Queues {
    /// Finds the queues, and writes the message queue's header.
    pub(super) fn open(back: &dyn GspBackend, arguments: QueueArguments) -> Result<Self, BootError> {
        let memory = SharedMemory::open(back, arguments)?;
        let gone = |_| BootError::NoMemory(arguments.shared_memory);
        let (header, commands, messages, size) = Self::find(back, &memory, arguments)?;
        let own = msgqTxHeader {
            version: header.version,
            // CAST: not larger than header.size.
            #[allow(clippy::cast_possible_truncation, reason = "the minimum of this and a u32")]
            size: size as u32,
            msgCount: messages.count,
            writePtr: 0,
            ..header
        };
        memory.write(back, messages.header, own.as_bytes()).map_err(gone)?;
        memory.write(back, messages.reader, &0u32.to_le_bytes()).map_err(gone)?;
        Ok(Self { arguments, memory, commands, messages, read: 0, write: 0, sequence_in: 0, sequence_out: 0 })
    }

    /// Finds them where they were, and goes on.
    pub(super) fn reopen(back: &dyn GspBackend, spot: Spot) -> Result<Self, BootError> {
        let Spot { arguments, read, write, sequence_in, sequence_out } = spot;
        let memory = SharedMemory::open(back, arguments)?;
        let (_, commands, messages, _) = Self::find(back, &memory, arguments)?;
        if read >= commands.count || write >= messages.count {
            return Err(BootError::Arguments("a place in a queue is behind its end"));
        }
        Ok(Self { arguments, memory, commands, messages, read, write, sequence_in, sequence_out })
    }

    /// Where they will be once an answer with a body of `bytes` bytes has been sent.
    pub(super) fn spot_after(&self, bytes: usize) -> Spot {
        let (mut write, mut sequence_out) = (self.write, self.sequence_out);
        for piece in pieces_of(bytes) {
            write = self.messages.after(write, elements_of(HEADERS.saturating_add(piece)));
            sequence_out = sequence_out.wrapping_add(1);
        }
        Spot { write, sequence_out, ..self.spot() }
    }

    /// Where the queues are, and how far they were read and written.
    pub(super) const fn spot(&self) -> Spot {
        let Self { arguments, read, write, sequence_in, sequence_out, .. } = *self;
        Spot { arguments, read, write, sequence_in, sequence_out }
    }

    /// The command queue's header, both queues, and the bytes of the message queue.
    fn find(
        back: &dyn GspBackend,
        memory: &SharedMemory,
        arguments: QueueArguments,
    ) -> Result<(msgqTxHeader, Ring, Ring, u64), BootError> {
        let gone = |_| BootError::NoMemory(arguments.shared_memory);
        let mut raw = [0; size_of::<msgqTxHeader>()];
        memory.read(back, arguments.command_queue, &mut raw).map_err(gone)?;
        let header = msgqTxHeader::read_from_bytes(&raw)
            .map_err(|_| BootError::Arguments("the command queue has no header"))?;

        let commands = ring(&header, arguments.command_queue, u64::from(header.size), memory.size())?;
        let end = if arguments.command_queue > arguments.message_queue {
            arguments.command_queue
        } else {
            memory.size()
        };
        let size = end.saturating_sub(arguments.message_queue).min(u64::from(header.size));
        let messages = ring(&header, arguments.message_queue, size, memory.size())?;
        if arguments.command_queue < arguments.message_queue
            && arguments.command_queue.saturating_add(header.size.into()) > arguments.message_queue
        {
            return Err(BootError::Arguments("the queues overlap"));
        }
        Ok((header, commands, messages, size))
    }

    /// Elements that the driver has written and that were not read yet.
    pub(super) fn available(&self, back: &dyn GspBackend) -> Result<u32, Refused> {
        let pointer = self
            .pointer(back, self.commands.header.saturating_add(WRITE_POINTER))
            .map_err(|_| Refused::NoMemory)?;
        if pointer >= self.commands.count {
            return Err(Refused::WritePointer(pointer));
        }
        Ok(self.commands.distance(self.read, pointer))
    }

    /// Takes one record off the command queue, of which `available` elements may be read. A record that is
    /// refused is taken off as well if its extent is known; else all elements are.
    /// `parameters_follow`: those of an allocation lie behind the length that its record says.
    pub(super) fn receive(
        &mut self,
        back: &dyn GspBackend,
        available: &mut u32,
        parameters_follow: bool,
    ) -> Result<Record, Refused> {
        let first = self.read;
        let (outcome, elements) = match self.copy(back, *available) {
            Ok((raw, elements)) => {
                let outcome = match self.parse(&raw) {
                    Ok(record) if parameters_follow => self.with_parameters(back, first, elements, record),
                    outcome => outcome,
                };
                (outcome, elements)
            }
            Err(refused) => (Err(refused), *available),
        };
        self.read = self.commands.after(self.read, elements);
        *available = available.saturating_sub(elements);
        self.memory
            .write(back, self.messages.reader, &self.read.to_le_bytes())
            .map_err(|_| Refused::NoMemory)?;
        outcome
    }

    /// Copies the record at the read pointer.
    fn copy(&self, back: &dyn GspBackend, available: u32) -> Result<(Vec<u8>, u32), Refused> {
        let mut headers = [0; HEADERS];
        self.read_ring(back, &self.commands, self.read, 0, &mut headers)?;
        let (element, rpc) = split(&headers).ok_or(Refused::Header)?;
        let length = rpc.length;
        let bytes = usize::try_from(length).map_err(|_| Refused::Length(length))?;
        if !(RPC_HEADER..=GSP_MSG_QUEUE_RPC_SIZE_MAX).contains(&bytes) {
            return Err(Refused::Length(length));
        }
        let total = size_of::<GSP_MSG_QUEUE_ELEMENT>().saturating_add(bytes);
        let elements = elements_of(total);
        if elements > available || element.elemCount != elements {
            return Err(Refused::Elements { elements: element.elemCount, length });
        }
        // The headers come from the first copy: what the guest changes meanwhile breaks its checksum only.
        let mut raw = vec![0; total.next_multiple_of(8)];
        let (head, tail) = raw.split_at_mut(HEADERS);
        head.copy_from_slice(&headers);
        self.read_ring(back, &self.commands, self.read, HEADERS, tail)?;
        Ok((raw, elements))
    }

    /// Adds the parameters of an allocation that lie behind its record, as far as its elements go. No
    /// checksum is over them.
    fn with_parameters(
        &self,
        back: &dyn GspBackend,
        first: u32,
        elements: u32,
        mut record: Record,
    ) -> Result<Record, Refused> {
        let have = record.body.len();
        let wanted = if record.function == NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC {
            calls::length(record.function, &record.body)
        } else {
            have
        };
        let room =
            usize::try_from(elements).unwrap_or(0).saturating_mul(GSP_PAGE_SIZE).saturating_sub(HEADERS);
        if wanted > have && wanted <= room {
            let mut more = vec![0; wanted.saturating_sub(have)];
            self.read_ring(back, &self.commands, first, HEADERS.saturating_add(have), &mut more)?;
            record.body.extend(more);
        }
        Ok(record)
    }

    /// Checks a record that was copied.
    fn parse(&mut self, raw: &[u8]) -> Result<Record, Refused> {
        let (element, rpc) = split(raw).ok_or(Refused::Header)?;
        if rpc.header_version != RPC_HEADER_VERSION || rpc.signature != NV_VGPU_MSG_SIGNATURE_VALID {
            return Err(Refused::Header);
        }
        if checksum(raw) != 0 {
            return Err(Refused::Checksum { function: rpc.function, sequence: rpc.sequence });
        }
        let gap = element.seqNum != self.sequence_in;
        self.sequence_in = element.seqNum.wrapping_add(1);
        let bytes = usize::try_from(rpc.length).map_err(|_| Refused::Length(rpc.length))?;
        let end = size_of::<GSP_MSG_QUEUE_ELEMENT>().saturating_add(bytes);
        Ok(Record {
            function: rpc.function,
            sequence: rpc.sequence,
            body: raw.get(HEADERS..end).unwrap_or_default().to_vec(),
            full: bytes == GSP_MSG_QUEUE_RPC_SIZE_MAX,
            gap,
        })
    }

    /// Sends a message: an answer or an event. All of it, or nothing.
    pub(super) fn send(
        &mut self,
        back: &dyn GspBackend,
        function: u32,
        sequence: u32,
        result: u32,
        body: &[u8],
    ) -> Result<(), Unsent> {
        let most = GSP_MSG_QUEUE_RPC_SIZE_MAX - RPC_HEADER;
        let (first, rest) = body.split_at(body.len().min(most));
        let pieces = || std::iter::once(first).chain(rest.chunks(most));
        let needed = pieces()
            .fold(0u32, |sum, piece| sum.saturating_add(elements_of(HEADERS.saturating_add(piece.len()))));
        let reader = self.pointer(back, self.commands.reader)?;
        if reader >= self.messages.count || needed > self.messages.free(self.write, reader) {
            return Err(Unsent::Full);
        }

        let mut write = self.write;
        let mut number = self.sequence_out;
        for (index, piece) in pieces().enumerate() {
            let function = if index == 0 { function } else { NV_VGPU_MSG_FUNCTION_CONTINUATION_RECORD };
            let raw = record(function, sequence, result, number, piece);
            self.write_ring(back, write, &raw)?;
            write = self.messages.after(write, elements_of(raw.len()));
            number = number.wrapping_add(1);
        }
        self.write = write;
        self.sequence_out = number;
        self.memory.write(
            back,
            self.messages.header.saturating_add(WRITE_POINTER),
            &self.write.to_le_bytes(),
        )?;
        Ok(())
    }

    fn pointer(&self, back: &dyn GspBackend, offset: u64) -> Result<u32, NoTarget> {
        let mut raw = [0; 4];
        self.memory.read(back, offset, &mut raw)?;
        Ok(u32::from_le_bytes(raw))
    }

    /// Reads `data.len()` bytes of a record that begins at element `first`, from its byte `skip` on.
    fn read_ring(
        &self,
        back: &dyn GspBackend,
        ring: &Ring,
        first: u32,
        skip: usize,
        data: &mut [u8],
    ) -> Result<(), Refused> {
        let (start, room) = ring.place(first, skip);
        let (part, wrapped) = data.split_at_mut(room.min(data.len()));
        self.memory.read(back, start, part).map_err(|_| Refused::NoMemory)?;
        self.memory.read(back, ring.entries, wrapped).map_err(|_| Refused::NoMemory)
    }

    fn write_ring(&self, back: &dyn GspBackend, first: u32, data: &[u8]) -> Result<(), NoTarget> {
        let (start, room) = self.messages.place(first, 0);
        let (part, wrapped) = data.split_at(room.min(data.len()));
        self.memory.write(back, start, part)?;
        self.memory.write(back, self.messages.entries, wrapped)
    }
}
