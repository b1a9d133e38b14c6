//! DMA_MAP and DMA_UNMAP.

use crate::common::{Running, descriptors_of};
use gpuvmk::frontend::vfio_user::wire::{self, command, dma_map, dma_unmap};
use gpuvmk::pci::mapping::create_memory_file;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use zerocopy::IntoBytes;

const PAGE: u64 = 4096;

/// A memory file with a name that no other test uses.
fn memory(name: &str, pages: u64) -> OwnedFd {
    create_memory_file(&CString::new(name).unwrap(), pages * PAGE).unwrap()
}

fn map(flags: u32, offset: u64, address: u64, size: u64) -> Vec<u8> {
    wire::DmaMap { argsz: 32, flags, offset, address, size }.as_bytes().to_vec()
}

fn read_write(offset: u64, address: u64, size: u64) -> Vec<u8> {
    map(dma_map::READ | dma_map::WRITE, offset, address, size)
}

fn unmap(flags: u32, address: u64, size: u64) -> Vec<u8> {
    wire::DmaUnmap { argsz: 24, flags, address, size }.as_bytes().to_vec()
}

#[test]
fn independent_client_shares_memory_and_takes_it_back() {
    let server = Running::start();
    let mut peer = server.peer();
    let file = memory("dma-peer", 4);

    peer.dma_map(PAGE, 0x10000, 2 * PAGE, file.as_raw_fd()).unwrap();

    server.function.dma.write_u32(0x11000, 0xcafe).unwrap();
    let mut bytes = [0; 4];
    File::from(file.try_clone().unwrap()).read_exact_at(&mut bytes, 2 * PAGE).unwrap();
    assert_eq!(u32::from_le_bytes(bytes), 0xcafe);
    peer.dma_unmap(0x10000, 2 * PAGE).unwrap();
    assert!(server.function.dma.is_empty());
}

#[test]
fn one_descriptor_of_a_file_is_kept_while_it_is_mapped() {
    let server = Running::start();
    let mut client = server.client();
    let file = memory("dma-kept", 1);

    for page in 0..1 {
        let reply = client.command_with(command::DMA_MAP, &read_write(0, page * PAGE, PAGE), &[file.as_fd()]);
        assert_eq!(reply.errno(), 0);
    }
    assert_eq!(descriptors_of("dma-kept"), 2, "the test's own, and one that tells how long the file is");
    assert_eq!(client.command(command::DMA_UNMAP, &unmap(0, 0, PAGE)).errno(), 0);
    assert_eq!(descriptors_of("dma-kept"), 1);
}

#[test]
fn memory_without_a_descriptor_is_known_and_out_of_reach() {
    let server = Running::start();
    let mut client = server.client();

    let reply = client.command(command::DMA_MAP, &map(dma_map::READ, 0, 0xc0000, 0x20000));

    assert_eq!(reply.errno(), 0);
    let ranges = server.function.dma.ranges();
    assert!(ranges.len() == 1 && !ranges[0].reachable && !ranges[0].writable);
    assert_eq!(client.command(command::DMA_UNMAP, &unmap(0, 0xc0000, 0x20000)).errno(), 0);
}

#[test]
fn pipelined_maps_keep_their_own_descriptors() {
    let server = Running::start();
    let mut client = server.client();
    let files: Vec<OwnedFd> = (0..16).map(|index| memory(&format!("dma-burst-{index}"), 1)).collect();
    for (index, file) in (0u8..).zip(&files) {
        File::from(file.try_clone().unwrap()).write_all_at(&[index + 1], 0).unwrap();
    }

    for (index, file) in (0u64..).zip(&files) {
        let body = read_write(0, index * 0x10000, PAGE);
        let header = client.header(command::DMA_MAP, body.len());
        client.send(header, &body, &[file.as_raw_fd()]);
    }
    let errors: Vec<i32> = files.iter().map(|_| client.receive().errno()).collect();

    assert_eq!(errors, [0; 16]);
    for index in 0..16 {
        let mut byte = [0];
        server.function.dma.read(u64::from(index) * 0x10000, &mut byte).unwrap();
        assert_eq!(byte, [index + 1], "the descriptor of message {index} went astray");
    }
}

/// What a QEMU with a vIOMMU sends: its guest's pages one by one, each with a descriptor of the same file,
/// and in no order.
#[test]
fn tens_of_thousands_of_pages_of_one_file_are_one_mapping_and_go_in_one_unmap() {
    const PAGES: u64 = 40_000;
    const FIRST: u64 = 0x1_0000_0000;
    let server = Running::start();
    let mut client = server.client();
    let file = memory("dma-viommu", PAGES);
    // 7 divides 40,000 not: each page of the file once.
    let place = |page: u64| page * 7 % PAGES * PAGE;
    for page in 0..PAGES {
        let body = read_write(place(page), FIRST + page * PAGE, PAGE);
        assert_eq!(client.command_with(command::DMA_MAP, &body, &[file.as_fd()]).errno(), 0, "page {page}");
    }

    assert_eq!(server.function.dma.len() as u64, PAGES);
    assert_eq!(descriptors_of("dma-viommu"), 2, "the test's own, and one for all of it");
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert_eq!(maps.lines().filter(|line| line.contains("dma-viommu")).count(), 1);
    let contents = File::from(file.try_clone().unwrap());
    contents.write_all_at(b"before", place(11) + PAGE - 6).unwrap();
    contents.write_all_at(b"behind", place(12)).unwrap();
    let mut across = [0; 12];
    server.function.dma.read(FIRST + 12 * PAGE - 6, &mut across).unwrap();
    assert_eq!(&across, b"beforebehind", "an access is split where pages are");

    // All of them, and nothing more than the rest of the address space.
    let last = u64::MAX - FIRST - (PAGES * PAGE) + 1;
    assert_eq!(client.command(command::DMA_UNMAP, &unmap(0, FIRST, PAGES * PAGE)).errno(), 0);
    assert!(server.function.dma.is_empty());
    let nothing = client.command(command::DMA_UNMAP, &unmap(0, FIRST + PAGES * PAGE, last));
    assert_eq!(nothing.errno(), 0, "covers nothing, and ends at 2^64");
    assert_eq!(client.command(command::DMA_UNMAP, &unmap(2, 0, 0)).errno(), 0, "the session goes on");
}

#[test]
fn overlap_is_eexist() {
    let server = Running::start();
    let mut client = server.client();
    let file = memory("dma-overlap", 4);
    client.command_with(command::DMA_MAP, &read_write(0, 0x4000, 4 * PAGE), &[file.as_fd()]);

    let same = client.command_with(command::DMA_MAP, &read_write(0, 0x4000, PAGE), &[file.as_fd()]);
    let across = client.command_with(command::DMA_MAP, &read_write(0, 0x3000, 2 * PAGE), &[file.as_fd()]);

    assert_eq!((same.errno(), across.errno()), (libc::EEXIST, libc::EEXIST));
    assert_eq!(descriptors_of("dma-overlap"), 2);
}

#[test]
fn invalid_maps_are_refused_and_their_descriptors_closed() {
    let server = Running::start();
    let mut client = server.client();
    let file = memory("dma-invalid", 1);
    let mut errno = |body: &[u8]| client.command_with(command::DMA_MAP, body, &[file.as_fd()]).errno();

    assert_eq!(errno(&read_write(0, 0, 2 * PAGE)), libc::EFAULT, "file smaller than claimed");
    assert_eq!(errno(&read_write(u64::MAX - PAGE + 1, 0, PAGE)), libc::EFAULT, "offset wraps");
    assert_eq!(errno(&read_write(0, u64::MAX - PAGE + 1, 2 * PAGE)), libc::EINVAL, "address wraps");
    assert_eq!(errno(&read_write(0, 0, 0)), libc::EINVAL, "empty");
    assert_eq!(errno(&read_write(0, 1, PAGE)), libc::EINVAL, "unaligned");
    assert_eq!(errno(&read_write(0x800, 0, 0x800)), libc::EINVAL, "unaligned offset");
    assert_eq!(errno(&map(0, 0, 0, PAGE)), libc::EINVAL, "neither readable nor writable");
    assert_eq!(errno(&map(0x13, 0, 0, PAGE)), libc::EINVAL, "unknown flag");
    assert_eq!(errno(&read_write(0, 0, PAGE)[..31]), libc::EINVAL, "short");
    assert_eq!(errno(&[read_write(0, 0, PAGE), vec![0]].concat()), libc::EINVAL, "long");
    assert!(server.function.dma.is_empty());
    assert_eq!(descriptors_of("dma-invalid"), 1);
    client.assert_in_step();
}

#[test]
fn descriptor_that_is_no_memory_is_refused() {
    let server = Running::start();
    let mut client = server.client();
    let device = File::open("/dev/zero").unwrap();

    let reply = client.command_with(command::DMA_MAP, &read_write(0, 0, PAGE), &[device.as_fd()]);

    assert_eq!(reply.errno(), libc::EFAULT);
}

#[test]
fn file_of_a_disk_is_refused_and_one_of_shared_memory_is_taken() {
    let server = Running::start();
    let mut client = server.client();
    // Beside the test program: what it was built on is a disk.
    let program = std::env::current_exe().unwrap();
    let disk = tempfile::tempfile_in(program.parent().unwrap()).unwrap();
    let shared = tempfile::tempfile_in("/dev/shm").unwrap();
    let mut errno = |file: &File| {
        file.set_len(PAGE).unwrap();
        client.command_with(command::DMA_MAP, &read_write(0, 0, PAGE), &[file.as_fd()]).errno()
    };

    assert_eq!(errno(&disk), libc::EFAULT);
    assert_eq!(errno(&shared), 0);
}

#[test]
fn descriptor_that_may_only_read_does_not_become_writable_by_anothers_mapping() {
    let server = Running::start();
    let mut client = server.client();
    let file = memory("dma-reader", 1);
    let reader = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let mut errno =
        |body: &[u8], file: &dyn AsFd| client.command_with(command::DMA_MAP, body, &[file.as_fd()]).errno();

    assert_eq!(errno(&read_write(0, 0, PAGE), &reader), libc::EFAULT);
    assert_eq!(errno(&read_write(0, 0x10000, PAGE), &file), 0);
    assert_eq!(errno(&read_write(0, 0, PAGE), &reader), libc::EFAULT);
    assert_eq!(errno(&map(dma_map::READ, 0, 0, PAGE), &reader), 0);
}

#[test]
fn more_than_one_descriptor_is_refused_and_all_are_closed() {
    let server = Running::start();
    let mut client = server.client();
    let file = memory("dma-two", 1);

    let two = client.command_with(command::DMA_MAP, &read_write(0, 0, PAGE), &[file.as_fd(); 2]);
    let twenty = client.command_with(command::DMA_MAP, &read_write(0, 0, PAGE), &[file.as_fd(); 20]);

    assert_eq!((two.errno(), twenty.errno()), (libc::EINVAL, libc::EINVAL));
    assert_eq!(descriptors_of("dma-two"), 1);
    client.assert_in_step();
}

#[test]
fn file_that_shrinks_later_costs_its_owner_only() {
    let server = Running::start();
    let mut client = server.client();
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(2 * PAGE).unwrap();
    client.command_with(command::DMA_MAP, &read_write(0, 0, 2 * PAGE), &[file.as_fd()]);

    file.set_len(0).unwrap();

    assert_eq!(server.function.dma.read_u32(PAGE), Ok(0));
    client.assert_in_step();
}

#[test]
fn unmap_repeats_the_request() {
    let server = Running::start();
    let mut client = server.client();
    let file = memory("dma-unmap", 1);
    client.command_with(command::DMA_MAP, &read_write(0, 0x1000, PAGE), &[file.as_fd()]);

    let reply = client.command(command::DMA_UNMAP, &unmap(0, 0x1000, PAGE));

    assert_eq!(reply.body, unmap(0, 0x1000, PAGE));
}

#[test]
fn unmap_takes_what_is_there() {
    let server = Running::start();
    let mut client = server.client();
    let file = memory("dma-part", 2);
    client.command_with(command::DMA_MAP, &read_write(0, 0x1000, 2 * PAGE), &[file.as_fd()]);
    let mut errno = |address, size| client.command(command::DMA_UNMAP, &unmap(0, address, size)).errno();

    assert_eq!(errno(0x1000, PAGE), 0, "a part");
    assert_eq!(errno(0x8000, PAGE), 0, "nothing");
    assert_eq!(errno(u64::MAX - PAGE + 1, PAGE), 0, "ends where the address space ends");
    assert_eq!(errno(u64::MAX - PAGE + 1, 2 * PAGE), libc::EINVAL);
    assert_eq!(server.function.dma.len(), 1);
    assert_eq!(server.function.dma.read_u32(0x2000), Ok(0));
    assert!(server.function.dma.read_u32(0x1000).is_err());
}

#[test]
fn unmap_all_uses_the_bit_of_linux() {
    let server = Running::start();
    let mut client = server.client();
    let file = memory("dma-all", 1);
    for page in 0..3 {
        client.command_with(command::DMA_MAP, &read_write(0, page * 0x10000, PAGE), &[file.as_fd()]);
    }

    let with_a_range = client.command(command::DMA_UNMAP, &unmap(dma_unmap::ALL, 0, PAGE));
    assert_eq!((with_a_range.errno(), server.function.dma.len()), (libc::EINVAL, 3));
    let all = client.command(command::DMA_UNMAP, &unmap(2, 0, 0));

    assert_eq!(all.errno(), 0);
    assert!(server.function.dma.is_empty());
    assert_eq!(client.command(command::DMA_UNMAP, &unmap(2, 0, 0)).errno(), 0, "nothing left is fine");
}

#[test]
fn dirty_pages_are_not_offered() {
    let server = Running::start();
    let mut client = server.client();
    let file = memory("dma-dirty", 1);
    client.command_with(command::DMA_MAP, &read_write(0, 0, PAGE), &[file.as_fd()]);
    let with_bitmap = [unmap(dma_unmap::GET_DIRTY_BITMAP, 0, PAGE), vec![0; 16]].concat();

    assert_eq!(client.command(command::DMA_UNMAP, &with_bitmap).errno(), libc::EOPNOTSUPP);
    assert_eq!(client.command(command::DIRTY_PAGES, &[0; 8]).errno(), libc::EOPNOTSUPP);
    assert_eq!(server.function.dma.len(), 1);
    client.assert_in_step();
}

#[test]
fn private_main_memory_is_refused_and_the_session_goes_on() {
    let server = Running::start();
    let mut client = server.client();

    let reply = client.command(command::DMA_MAP, &read_write(0, 0, 16 * PAGE));

    assert_eq!(reply.errno(), libc::EINVAL);
    assert!(server.function.dma.ranges().is_empty());
    client.assert_in_step();
}
