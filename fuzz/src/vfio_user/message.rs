//! What the client sends: messages that are right in most respects, so that they get far, and bytes that are
//! in none.

use std::os::fd::OwnedFd;

use gpuvmk::frontend::vfio_user::wire::{
    self, DmaMap, DmaUnmap, HEADER_SIZE, Header, RegionAccess, SetIrqs, SmallWrite, Version, WriteMulti,
    command, flags,
};
use rustix::event::EventfdFlags;
use rustix::fs::MemfdFlags;
use zerocopy::IntoBytes;

use super::client::MAX_FILES;
use crate::input::Input;

/// Bytes that are sent at once, with descriptors.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    pub(super) files: Vec<OwnedFd>,
}

/// Bytes of the files behind client memory.
const FILE: u64 = 0x4_0000;

const PROPOSAL: &[u8] =
    b"{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":1048576,\"write_multiple\":true}}\0";

/// All that the client sends.
pub(super) fn pieces(input: &mut Input<'_>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    if input.below(8) != 0 {
        let body = [Version { major: 0, minor: 1 }.as_bytes(), PROPOSAL].concat();
        let header = header(command::VERSION, body.len());
        pieces.push(Piece { bytes: [header.as_bytes(), &body].concat(), files: Vec::new() });
    }
    while input.more() && pieces.len() < 48 {
        let piece = piece(input);
        if input.below(8) == 0 && piece.bytes.len() > 1 {
            // In two parts; the descriptors come with the first.
            let (first, second) = piece.bytes.split_at(1 + usize::from(input.u8()) % (piece.bytes.len() - 1));
            pieces.push(Piece { bytes: first.to_vec(), files: piece.files });
            pieces.push(Piece { bytes: second.to_vec(), files: files(input) });
        } else {
            pieces.push(piece);
        }
    }
    pieces
}

fn header(command: u16, body: usize) -> Header {
    let size = u32::try_from(body).unwrap_or(u32::MAX).saturating_add(HEADER_SIZE);
    Header { message_id: command, command, size, flags: flags::COMMAND, error: 0 }
}

fn piece(input: &mut Input<'_>) -> Piece {
    if input.below(16) == 0 {
        return Piece { bytes: input.bytes(64).to_vec(), files: files(input) };
    }
    let command = u16::from(input.below(20));
    let mut body = body(input, command);
    let mut header = header(command, body.len());
    match input.below(24) {
        0 => header.flags = input.u32(),
        1 => header.size = input.u32(),
        2 => header.size = header.size.wrapping_add(u32::from(input.u8())).wrapping_sub(128),
        3 => header.command = input.u16(),
        4 => body.extend_from_slice(input.bytes(32)),
        5..10 => header.flags |= flags::NO_REPLY,
        _ => {}
    }
    let wants_files = matches!(command, command::DMA_MAP | command::DEVICE_SET_IRQS);
    let files = if wants_files || input.below(16) == 0 { files(input) } else { Vec::new() };
    Piece { bytes: [header.as_bytes(), &body].concat(), files }
}

fn body(input: &mut Input<'_>, command: u16) -> Vec<u8> {
    let address = |input: &mut Input<'_>| input.near(&[0, 0x10_0000, FILE, 1 << 32]);
    match command {
        command::VERSION => {
            let version = Version { major: input.below(2).into(), minor: input.u8().into() };
            [version.as_bytes(), if input.flag() { PROPOSAL } else { input.bytes(200) }].concat()
        }
        command::DMA_MAP => {
            let (offset, address) = (input.near(&[0, 0x1000, FILE]), address(input));
            let size = input.near(&[0x1000, FILE, 0x1_0000, 1 << 40]);
            DmaMap { argsz: 32, flags: input.below(5).into(), offset, address, size }.as_bytes().to_vec()
        }
        command::DMA_UNMAP => {
            let (address, size) = (address(input), input.near(&[0x1000, FILE, 0x1_0000, 0]));
            DmaUnmap { argsz: 24, flags: input.below(4).into(), address, size }.as_bytes().to_vec()
        }
        command::DEVICE_GET_INFO => words(&[16, 0, 0, 0]),
        command::DEVICE_GET_REGION_INFO => {
            words(&[input.below(100).into(), 0, input.below(11).into(), 0, 0, 0, 0, 0])
        }
        command::DEVICE_GET_IRQ_INFO => words(&[16, 0, input.below(5).into(), 0]),
        command::DEVICE_SET_IRQS => {
            let set = SetIrqs {
                argsz: 20,
                flags: input.u8().into(),
                index: input.below(4).into(),
                start: near_u32(input),
                count: near_u32(input),
            };
            [set.as_bytes(), input.bytes(4)].concat()
        }
        command::REGION_READ => access(input).as_bytes().to_vec(),
        command::REGION_WRITE => {
            let data = input.bytes(64);
            let mut access = access(input);
            if input.below(8) != 0 {
                access.count = u32::try_from(data.len()).unwrap_or(0);
            }
            [access.as_bytes(), data].concat()
        }
        command::REGION_WRITE_MULTI => {
            let count = input.below(6);
            let announced = if input.below(8) == 0 { input.u64() } else { count.into() };
            let mut body = WriteMulti { count: announced }.as_bytes().to_vec();
            for _ in 0..count {
                let write = SmallWrite { access: access(input), data: input.u64().to_le_bytes() };
                body.extend_from_slice(write.as_bytes());
            }
            body
        }
        command::DEVICE_RESET => Vec::new(),
        _ => input.bytes(64).to_vec(),
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn near_u32(input: &mut Input<'_>) -> u32 {
    if input.below(8) == 0 { input.u32() } else { input.below(3).into() }
}

fn access(input: &mut Input<'_>) -> RegionAccess {
    let offset = input.near(&[0, 0x40, 0xff0, 0x1000, 0x20_0000]);
    let region = if input.below(16) == 0 { input.u32() } else { input.pick(&[0, 0, 1, 1, 7, 7, 2, 6, 8]) };
    let count = match input.below(8) {
        0 => input.u32(),
        1 => wire::MAX_DATA,
        _ => input.pick(&[1, 2, 4, 8, 3, 64]),
    };
    RegionAccess { offset, region, count }
}

/// Descriptors of all kinds: memory of several sizes, eventfds, a pipe, a folder, none.
fn files(input: &mut Input<'_>) -> Vec<OwnedFd> {
    let count = match input.below(16) {
        0 => usize::from(input.below(24)),
        1..=4 => 0,
        5 | 6 => 2,
        _ => 1,
    };
    (0..count.min(MAX_FILES)).map(|_| file(input)).collect()
}

fn file(input: &mut Input<'_>) -> OwnedFd {
    match input.below(8) {
        0..=2 => memory(FILE),
        3 => memory(input.near(&[0, 0x1000, FILE - 1]) & 0xf_ffff),
        4 | 5 => {
            let flags = if input.flag() { EventfdFlags::NONBLOCK } else { EventfdFlags::empty() };
            rustix::event::eventfd(input.u8().into(), flags | EventfdFlags::CLOEXEC).expect("an eventfd")
        }
        6 => rustix::pipe::pipe().expect("a pipe").1,
        _ => std::fs::File::open("/").expect("a folder").into(),
    }
}

fn memory(size: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memory file");
    rustix::fs::ftruncate(&file, size).expect("a size");
    file
}
