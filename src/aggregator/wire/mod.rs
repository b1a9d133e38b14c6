//! Requests and replies as bytes: one datagram each, fixed-size little-endian records, counts bounded, every
//! byte accounted for. Decoding is total: any datagram gives a request or a [`WireError`].
//!
//! A datagram starts with a [`Head`]; what follows depends on its kind. Files travel beside the datagram.

mod reply;
mod request;
#[cfg(test)]
mod tests;

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use reply::{MAX_REPLY_BYTES, decode_reply, encode_reply};
pub use request::{MAX_REQUEST_BYTES, decode_request, encode_request};

use gpuvmk_chip::{Engine, EngineSet};

/// Most pieces of a VRAM window (file descriptors in one message are limited to 253 by the kernel).
pub const MAX_WINDOW_PIECES: usize = 240;
/// Most channels in one runlist request.
pub const MAX_RUNLIST: usize = 4096;
/// Longest name of a VM, in bytes.
pub const MAX_NAME: usize = 64;
/// Longest chip name, in bytes.
pub const MAX_CHIP: usize = 16;
/// Longest text of a refusal; longer ones are cut.
pub const MAX_MESSAGE: usize = 1024;

/// Why a datagram is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Shorter or longer than its kind and counts say.
    #[error("Message of kind {kind} has {got} bytes, which is not what its counts say")]
    Length {
        /// Kind of message.
        kind: u32,
        /// Number of received bytes.
        got: usize,
    },
    /// A kind that does not exist.
    #[error("Message kind {0} is unknown")]
    Kind(u32),
    /// A count beyond its limit.
    #[error("Message of kind {kind} announces {count} entries; at most {limit} are allowed")]
    Count {
        /// Kind of message.
        kind: u32,
        /// Number of announced entries.
        count: u64,
        /// Limit of entries.
        limit: usize,
    },
    /// A set with bits of no engine.
    #[error(
        "Message of kind {kind} names engines that do not exist, by bits {unknown:#x}; known are bits {:#x}",
        EngineSet::all().bits()
    )]
    Engines {
        /// Kind of message.
        kind: u32,
        /// The bits.
        unknown: u64,
    },
    /// A number of no engine.
    #[error("Message of kind {kind} names engine {place}; there are {}, from 0 on", Engine::COUNT)]
    Engine {
        /// Kind of message.
        kind: u32,
        /// The number.
        place: u32,
    },
    /// A field with a value that means nothing.
    #[error("Message of kind {kind} has a bad {field}")]
    Field {
        /// Kind of message.
        kind: u32,
        /// Name of the field.
        field: &'static str,
    },
}

/// Start of every datagram.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct Head {
    kind: U32,
    first: U32,
    second: U32,
    reserved: U32,
}

impl Head {
    fn new(kind: u32, first: u32, second: u32) -> Self {
        Self { kind: kind.into(), first: first.into(), second: second.into(), reserved: 0.into() }
    }
}

const _: () = assert!(size_of::<Head>() == 16);

mod kind {
    pub const HELLO: u32 = 1;
    pub const DMA_MAP: u32 = 2;
    pub const DMA_UNMAP: u32 = 3;
    pub const CREATE_SPACE: u32 = 4;
    pub const DESTROY_SPACE: u32 = 5;
    pub const UPDATE_SPACE: u32 = 6;
    pub const CREATE_CHANNEL: u32 = 7;
    pub const DESTROY_CHANNEL: u32 = 8;
    pub const SET_ENGINES: u32 = 9;
    pub const ENABLE_CHANNEL: u32 = 10;
    pub const SET_RUNLIST: u32 = 11;
    pub const PREEMPT: u32 = 12;
    pub const RESET: u32 = 13;
    pub const CREATE_OBJECT: u32 = 14;
    pub const MESSAGE_EVENT: u32 = 15;
    pub const DONE: u32 = 0x8000_0001;
    pub const WELCOME: u32 = 0x8000_0002;
    pub const REFUSED: u32 = 0x8000_0003;
}

fn split_head(bytes: &[u8]) -> Result<(Head, &[u8]), WireError> {
    Head::read_from_prefix(bytes).map_err(|_| WireError::Length { kind: 0, got: bytes.len() })
}

fn id(value: u32, kind: u32, field: &'static str) -> Result<u16, WireError> {
    u16::try_from(value).map_err(|_| WireError::Field { kind, field })
}

fn flag(value: u32, kind: u32, field: &'static str) -> Result<bool, WireError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::Field { kind, field }),
    }
}

fn engines(bits: u64, kind: u32) -> Result<EngineSet, WireError> {
    EngineSet::from_bits(bits).ok_or(WireError::Engines { kind, unknown: bits & !EngineSet::all().bits() })
}

/// An engine by its place.
fn engine(place: u32, kind: u32) -> Result<Engine, WireError> {
    let engine = u8::try_from(place).ok().and_then(Engine::at_place);
    engine.ok_or(WireError::Engine { kind, place })
}

fn bounded(count: u64, limit: usize, kind: u32) -> Result<usize, WireError> {
    usize::try_from(count).ok().filter(|count| *count <= limit).ok_or(WireError::Count { kind, count, limit })
}
