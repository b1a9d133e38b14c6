//! Records as bytes: their two headers, and how many elements they take.

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::common::queue::{
    GSP_MSG_QUEUE_ELEMENT, GSP_MSG_QUEUE_RPC_SIZE_MAX, GSP_PAGE_SIZE, NV_VGPU_MSG_SIGNATURE_VALID,
    RPC_HEADER_VERSION, checksum, rpc_message_header_v03_00,
};

/// Bytes of both headers of a record.
pub(super) const HEADERS: usize = size_of::<GSP_MSG_QUEUE_ELEMENT>() + size_of::<rpc_message_header_v03_00>();
/// Bytes of a record's RPC header.
pub(super) const RPC_HEADER: usize = size_of::<rpc_message_header_v03_00>();

/// Both headers of a record.
pub(super) fn split(raw: &[u8]) -> Option<(GSP_MSG_QUEUE_ELEMENT, rpc_message_header_v03_00)> {
    let (element, rest) = GSP_MSG_QUEUE_ELEMENT::read_from_prefix(raw).ok()?;
    let (rpc, _) = rpc_message_header_v03_00::read_from_prefix(rest).ok()?;
    Some((element, rpc))
}

/// Bytes of the records that a body of `bytes` bytes is sent in.
pub(super) fn pieces_of(bytes: usize) -> impl Iterator<Item = usize> {
    const MOST: usize = GSP_MSG_QUEUE_RPC_SIZE_MAX - RPC_HEADER;
    let (full, rest) = (bytes / MOST, bytes % MOST);
    let last = (rest > 0 || bytes == 0).then_some(rest);
    std::iter::repeat_n(MOST, full).chain(last)
}

/// Elements that a record of `bytes` bytes takes.
pub(super) fn elements_of(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(GSP_PAGE_SIZE)).unwrap_or(u32::MAX)
}

/// A record with its headers and a right checksum, padded to whole words.
pub(super) fn record(function: u32, sequence: u32, result: u32, number: u32, body: &[u8]) -> Vec<u8> {
    let total = HEADERS.saturating_add(body.len());
    let length = RPC_HEADER.saturating_add(body.len());
    let rpc = rpc_message_header_v03_00 {
        header_version: RPC_HEADER_VERSION,
        signature: NV_VGPU_MSG_SIGNATURE_VALID,
        length: u32::try_from(length).unwrap_or(u32::MAX),
        function,
        rpc_result: result,
        rpc_result_private: result,
        sequence,
        spare: 0,
    };
    let mut element = GSP_MSG_QUEUE_ELEMENT {
        authTagBuffer: [0; 16],
        aadBuffer: [0; 16],
        checkSum: 0,
        seqNum: number,
        elemCount: elements_of(total),
        pad: 0,
    };
    let assemble = |element: &GSP_MSG_QUEUE_ELEMENT| {
        let mut raw = [element.as_bytes(), rpc.as_bytes(), body].concat();
        raw.resize(total.next_multiple_of(8), 0);
        raw
    };
    element.checkSum = checksum(&assemble(&element));
    assemble(&element)
}
