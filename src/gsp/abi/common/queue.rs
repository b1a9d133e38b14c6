//! Shared-memory queues: headers, elements, RPC header.
//!
//! A queue is a header page (transmit header of the side that writes it, receive header of the side that
//! reads the OTHER queue) and elements of one page. A message takes as many elements as it needs, in a row,
//! wrapping.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use gpuvmk_chip::layout;

/// Page and element size.
pub const GSP_PAGE_SIZE: usize = 0x1000;
/// The largest message of one record, element header included.
pub const GSP_MSG_QUEUE_ELEMENT_SIZE_MAX: usize = 16 * GSP_PAGE_SIZE;

/// Header of a queue's writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct msgqTxHeader {
    pub version: u32,
    pub size: u32,
    pub msgSize: u32,
    pub msgCount: u32,
    pub writePtr: u32,
    pub flags: u32,
    pub rxHdrOff: u32,
    pub entryOff: u32,
}
layout!(msgqTxHeader, 0x20, msgSize @ 8, writePtr @ 0x10, rxHdrOff @ 0x18, entryOff @ 0x1c);

/// `flags`: the read pointer of a queue lies behind the header of the other queue.
pub const MSGQ_FLAGS_SWAP_RX: u32 = 1;

/// Header of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GSP_MSG_QUEUE_ELEMENT {
    pub authTagBuffer: [u8; 16],
    pub aadBuffer: [u8; 16],
    pub checkSum: u32,
    pub seqNum: u32,
    pub elemCount: u32,
    pub pad: u32,
}
layout!(GSP_MSG_QUEUE_ELEMENT, 0x30, checkSum @ 0x20, seqNum @ 0x24, elemCount @ 0x28);

/// Header of an RPC, behind the element header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_message_header_v03_00 {
    pub header_version: u32,
    pub signature: u32,
    /// Bytes of this header and what follows it.
    pub length: u32,
    pub function: u32,
    pub rpc_result: u32,
    pub rpc_result_private: u32,
    pub sequence: u32,
    pub spare: u32,
}
layout!(rpc_message_header_v03_00, 0x20, length @ 8, function @ 0xc, rpc_result @ 0x10, sequence @ 0x18);

/// `header_version`.
pub const RPC_HEADER_VERSION: u32 = 0x0300_0000;
/// `signature`: "VRPC".
pub const NV_VGPU_MSG_SIGNATURE_VALID: u32 = 0x4350_5256;
/// The largest `length` of one record.
pub const GSP_MSG_QUEUE_RPC_SIZE_MAX: usize =
    GSP_MSG_QUEUE_ELEMENT_SIZE_MAX - size_of::<GSP_MSG_QUEUE_ELEMENT>();

/// Checksum of an element: all its 64-bit words combined, folded; 0 for a good one. Bytes that do not fill a
/// word count as if zeros followed.
pub fn checksum(element: &[u8]) -> u32 {
    let folded = element.chunks(8).fold(0u64, |sum, chunk| {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        sum ^ u64::from_le_bytes(word)
    });
    // CAST: the two halves of the word.
    #[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
    let low = folded as u32;
    low ^ (folded >> 32) as u32
}
