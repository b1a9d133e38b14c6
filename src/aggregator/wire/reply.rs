//! Replies as bytes.

use zerocopy::byteorder::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Head, MAX_MESSAGE, MAX_WINDOW_PIECES, WireError, bounded, engines, flag, kind, split_head};
use crate::protocol::{RefusalKind, Reply, Welcome};
use gpuvmk_chip::{MOST_GPCS, TextureClusters};

/// No reply is longer than this.
pub const MAX_REPLY_BYTES: usize =
    size_of::<Head>() + if WELCOME_BYTES > MAX_MESSAGE { WELCOME_BYTES } else { MAX_MESSAGE };

const WELCOME_BYTES: usize = size_of::<WireWelcome>() + MAX_WINDOW_PIECES * size_of::<WirePiece>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct WireWelcome {
    vram: U64,
    engines: U64,
    /// Bit n: pages of 2^n bytes.
    page_shifts: U64,
    channels: U16,
    spaces: U16,
    va_bits: u8,
    reserved: [u8; 3],
    /// Of each graphics processing cluster; all 0: what the chip has.
    texture_clusters: [u8; MOST_GPCS],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct WirePiece {
    offset: U64,
    size: U64,
}

const _: () = assert!(size_of::<WireWelcome>() == 64);
const _: () = assert!(size_of::<WirePiece>() == 16);

/// Writes `reply` into `out`, which is emptied first.
pub fn encode_reply(reply: &Reply, out: &mut Vec<u8>) {
    out.clear();
    let mut head = |kind, first, second| out.extend_from_slice(Head::new(kind, first, second).as_bytes());
    match reply {
        Reply::Done => head(kind::DONE, 0, 0),
        Reply::Welcome(welcome) => {
            let pieces = u32::try_from(welcome.window.len()).unwrap_or(u32::MAX);
            head(kind::WELCOME, pieces, u32::from(welcome.slow_vram_reads));
            let wire = WireWelcome {
                vram: welcome.vram.into(),
                channels: welcome.channels.into(),
                spaces: welcome.spaces.into(),
                engines: welcome.engines.bits().into(),
                page_shifts: mask(&welcome.page_shifts).into(),
                va_bits: welcome.va_bits,
                reserved: [0; 3],
                texture_clusters: welcome.texture_clusters.map_or([0; MOST_GPCS], TextureClusters::counts),
            };
            out.extend_from_slice(wire.as_bytes());
            for (offset, size) in &welcome.window {
                let piece = WirePiece { offset: (*offset).into(), size: (*size).into() };
                out.extend_from_slice(piece.as_bytes());
            }
        }
        Reply::Refused { kind, message } => {
            let mut end = message.len().min(MAX_MESSAGE);
            while !message.is_char_boundary(end) {
                end = end.saturating_sub(1);
            }
            let text = message.get(..end).unwrap_or("");
            head(kind::REFUSED, u32::from(*kind as u16), u32::try_from(text.len()).unwrap_or(0));
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// Reads a reply.
///
/// # Errors
/// The datagram is not one.
pub fn decode_reply(bytes: &[u8]) -> Result<Reply, WireError> {
    let (head, body) = split_head(bytes)?;
    let kind = head.kind.get();
    let length = WireError::Length { kind, got: bytes.len() };
    match kind {
        kind::DONE if body.is_empty() => Ok(Reply::Done),
        kind::DONE => Err(length),
        kind::WELCOME => {
            let (wire, rest) = WireWelcome::read_from_prefix(body).map_err(|_| length)?;
            let count = bounded(u64::from(head.first.get()), MAX_WINDOW_PIECES, kind)?;
            let pieces = <[WirePiece]>::ref_from_bytes_with_elems(rest, count).map_err(|_| length)?;
            Ok(Reply::Welcome(Welcome {
                vram: wire.vram.get(),
                channels: wire.channels.get(),
                spaces: wire.spaces.get(),
                engines: engines(wire.engines.get(), kind)?,
                va_bits: wire.va_bits,
                page_shifts: shifts(wire.page_shifts.get()),
                slow_vram_reads: flag(head.second.get(), kind, "slow-reads flag")?,
                texture_clusters: Some(TextureClusters::of(&wire.texture_clusters))
                    .filter(|clusters| clusters.total() > 0),
                window: pieces.iter().map(|p| (p.offset.get(), p.size.get())).collect(),
            }))
        }
        kind::REFUSED => {
            let count = bounded(u64::from(head.second.get()), MAX_MESSAGE, kind)?;
            if body.len() != count {
                return Err(length);
            }
            Ok(Reply::Refused {
                kind: refusal_kind(head.first.get())
                    .ok_or(WireError::Field { kind, field: "class of refusal" })?,
                message: String::from_utf8_lossy(body).into_owned(),
            })
        }
        _ => Err(WireError::Kind(kind)),
    }
}

fn mask(shifts: &[u8]) -> u64 {
    shifts.iter().filter_map(|shift| 1_u64.checked_shl(u32::from(*shift))).fold(0, |mask, bit| mask | bit)
}

fn shifts(mask: u64) -> Vec<u8> {
    (0..64).filter(|shift| mask >> shift & 1 != 0).collect()
}

pub(super) fn refusal_kind(value: u32) -> Option<RefusalKind> {
    const ALL: [RefusalKind; 11] = [
        RefusalKind::Protocol,
        RefusalKind::Version,
        RefusalKind::Name,
        RefusalKind::Exhausted,
        RefusalKind::OutsidePartition,
        RefusalKind::BadId,
        RefusalKind::Chip,
        RefusalKind::Hardware,
        RefusalKind::Quota,
        RefusalKind::Class,
        RefusalKind::MemoryLost,
    ];
    ALL.into_iter().find(|kind| u32::from(*kind as u16) == value)
}
