//! REGION_READ, REGION_WRITE and DEVICE_GET_REGION_INFO.

use crate::common::Running;
use crate::common::client::write_body;
use crate::common::function::{BAR1_SIZE, BELL, Event, LOST};
use gpuvmk::frontend::vfio_user::wire::{self, MAX_DATA, command};
use gpuvmk::pci::Region;
use gpuvmk::pci::mapping::create_memory_file;
use std::os::unix::fs::FileExt;
use zerocopy::IntoBytes;

#[test]
fn written_bytes_are_read_back_by_an_independent_client() {
    let server = Running::start();
    let mut peer = server.peer();

    peer.region_write(0, 0x10, &[1, 2, 3, 4]).unwrap();
    let mut data = [0; 4];
    peer.region_read(0, 0x10, &mut data).unwrap();

    assert_eq!(data, [1, 2, 3, 4]);
    let mut id = [0; 4];
    peer.region_read(7, 0, &mut id).unwrap();
    assert_eq!(id, [0xde, 0x10, 0xc0, 0x06]);
}

#[test]
fn reply_repeats_the_request() {
    let server = Running::start();
    let mut client = server.client();

    let write = client.write(0, 0x20, &[9, 8]);
    let read = client.read(0, 0x20, 2);

    let access = wire::RegionAccess { offset: 0x20, region: 0, count: 2 };
    assert_eq!(write.body, access.as_bytes());
    assert_eq!(read.body, [access.as_bytes(), &[9, 8]].concat());
}

#[test]
fn write_that_nobody_needs_to_wait_for_is_answered_before_it_is_carried_out() {
    let server = Running::start();
    let mut client = server.client();
    server.function.take_events();

    let turn = server.function.bell.lock().unwrap();
    let reply = client.write(0, BELL, &[7; 4]);
    assert_eq!(server.function.take_bar_events(), []);
    drop(turn);

    let access = wire::RegionAccess { offset: BELL, region: 0, count: 4 };
    assert_eq!((reply.errno(), reply.body.as_slice()), (0, access.as_bytes()));
    assert_eq!(client.read(0, BELL, 4).body[16..], [7; 4]);
    // One that QEMU does not wait for is not answered for that, and what is no such write is answered as
    // ever.
    client.post(command::REGION_WRITE, &write_body(0, BELL, &[8; 4]));
    let other = client.write(0, BELL, &[9; 2]);
    assert_eq!((other.errno(), other.body.len()), (0, 16));
    assert_eq!(client.read(0, BELL, 4).body[16..], [9, 9, 8, 8]);
}

#[test]
fn posted_writes_are_carried_out_in_order_and_not_answered() {
    let server = Running::start();
    let mut client = server.client();

    for value in 0..100u8 {
        client.post(command::REGION_WRITE, &write_body(0, 0x40, &[value; 4]));
    }
    let read = client.read(0, 0x40, 4);

    assert_eq!(read.body[16..], [99; 4]);
    let writes: Vec<Event> =
        (0..100).map(|value| Event::Write(Region::Bar(0), 0x40, vec![value; 4])).collect();
    assert_eq!(server.function.take_bar_events()[1..101], writes);
}

#[test]
fn refused_posted_write_is_not_answered() {
    let server = Running::start();
    let mut client = server.client();

    client.post(command::REGION_WRITE, &write_body(0, 0xffe, &[0; 4]));
    client.post(command::REGION_WRITE, &write_body(5, 0, &[0; 4]));

    client.assert_in_step();
}

#[test]
fn unaligned_and_long_accesses_of_a_bar_are_cut_into_aligned_pieces() {
    let server = Running::start();
    let mut client = server.client();
    server.function.take_events();

    client.read(0, 3, 4);
    client.write(0, 6, &[0; 15]);

    let pieces: Vec<(u64, usize)> = server
        .function
        .take_bar_events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Read(_, offset, size) => Some((offset, size)),
            Event::Write(_, offset, data) => Some((offset, data.len())),
            _ => None,
        })
        .collect();
    assert_eq!(pieces, [(3, 1), (4, 2), (6, 1), (6, 2), (8, 8), (16, 4), (20, 1)]);
}

#[test]
fn configuration_space_is_accessed_as_it_comes() {
    let server = Running::start();
    let mut client = server.client();
    server.function.take_events();

    let whole = client.read(7, 0, 4096);

    assert_eq!(whole.body.len(), 16 + 4096);
    assert_eq!(server.function.take_events(), [Event::Read(Region::Config, 0, 4096)]);
}

#[test]
fn largest_transfer_works_both_ways() {
    let server = Running::start();
    let mut client = server.client();
    let data: Vec<u8> = (0..=255).cycle().take(MAX_DATA as usize).collect();

    let write = client.write(1, BAR1_SIZE - u64::from(MAX_DATA), &data);
    let read = client.read(1, BAR1_SIZE - u64::from(MAX_DATA), MAX_DATA);

    assert_eq!(write.errno(), 0);
    assert!(read.body[16..] == data);
}

#[test]
fn access_outside_its_region_is_refused() {
    let server = Running::start();
    let mut client = server.client();
    server.function.take_events();

    for (region, offset, count) in [
        (0, 0xffd, 4),
        (0, 0x1000, 1),
        (0, u64::MAX, 1),
        (0, u64::MAX - 3, 4),
        (2, 0, 4),
        (6, 0, 4),
        (7, 4093, 4),
        (8, 0, 1),
        (9, 0, 4),
        (u32::MAX, 0, 4),
        (1, 0, MAX_DATA + 1),
        (1, 0, 3 << 30),
        (1, 0, u32::MAX),
    ] {
        assert_eq!(client.read(region, offset, count).errno(), libc::EINVAL, "{region} {offset:#x} {count}");
    }
    assert_eq!(client.write(0, 0xffd, &[0; 4]).errno(), libc::EINVAL);
    client.assert_in_step();
    assert!(server.function.take_bar_events().is_empty());
}

#[test]
fn count_that_disagrees_with_the_message_is_refused() {
    let server = Running::start();
    let mut client = server.client();

    for (count, data) in [(4, 3), (4, 5), (0, 1), (u32::MAX, 4)] {
        let access = wire::RegionAccess { offset: 0, region: 0, count };
        let body = [access.as_bytes(), &vec![0; data]].concat();
        assert_eq!(client.command(command::REGION_WRITE, &body).errno(), libc::EINVAL, "{count} {data}");
    }
    let long_read = [wire::RegionAccess { offset: 0, region: 0, count: 4 }.as_bytes(), &[0; 4]].concat();
    assert_eq!(client.command(command::REGION_READ, &long_read).errno(), libc::EINVAL);
    client.assert_in_step();
}

#[test]
fn lost_device_is_an_input_output_error() {
    let server = Running::start();
    let mut client = server.client();

    assert_eq!(client.read(0, LOST, 4).errno(), libc::EIO);
    assert_eq!(client.write(0, LOST, &[0; 4]).errno(), libc::EIO);
    client.assert_in_step();
}

#[test]
fn region_info_tells_sizes_and_offers_no_mapping() {
    let server = Running::start();
    let mut client = server.client();
    let mut info = |index| {
        let request = wire::RegionInfo { argsz: 32, flags: 0, index, cap_offset: 0, size: 0, offset: 0 };
        let reply = client.command(command::DEVICE_GET_REGION_INFO, request.as_bytes());
        (reply.errno() == 0).then(|| reply.parse::<wire::RegionInfo>())
    };

    let table: Vec<(u64, u32)> =
        (0..9).map(|index| info(index).unwrap()).map(|info| (info.size, info.flags)).collect();

    let absent = (0, 0);
    let expected = [(0x1000, 3), (BAR1_SIZE, 3), absent, absent, absent, absent, absent, (4096, 3), absent];
    assert_eq!(table, expected);
    assert_eq!(info(9), None);
    assert_eq!(info(u32::MAX), None);
}

#[test]
fn client_without_room_for_the_reply_is_refused() {
    let server = Running::start();
    let mut client = server.client();
    let region = wire::RegionInfo { argsz: 31, flags: 0, index: 0, cap_offset: 0, size: 0, offset: 0 };
    let device = wire::DeviceInfo { argsz: 15, flags: 0, num_regions: 0, num_irqs: 0 };

    assert_eq!(client.command(command::DEVICE_GET_REGION_INFO, region.as_bytes()).errno(), libc::EINVAL);
    assert_eq!(client.command(command::DEVICE_GET_INFO, device.as_bytes()).errno(), libc::EINVAL);
}

#[test]
fn plain_memory_is_told_with_its_file_once_there_is_room_for_it() {
    let server = Running::start();
    let file = create_memory_file(c"plain", 0x4000).unwrap();
    *server.function.plain.lock().unwrap() = Some(file);
    let mut client = server.client();
    let ask = |argsz| wire::RegionInfo { argsz, flags: 0, index: 1, cap_offset: 0, size: 0, offset: 0 };

    let short = client.command(command::DEVICE_GET_REGION_INFO, ask(32).as_bytes());
    let whole = client.command(command::DEVICE_GET_REGION_INFO, ask(64).as_bytes());

    let info: wire::RegionInfo = short.parse();
    assert_eq!((info.argsz, info.flags, info.cap_offset, short.body.len()), (64, 0b111, 0, 32));
    let info: wire::RegionInfo = whole.parse();
    assert_eq!((info.argsz, info.flags, info.cap_offset, info.offset), (64, 0b1111, 32, 0x2000));
    let area = wire::SparseMmap {
        id: 1,
        version: 1,
        next: 0,
        nr_areas: 1,
        reserved: 0,
        offset: 0x1000,
        size: 0x1000,
    };
    assert_eq!(whole.body[32..], *area.as_bytes());
}

#[test]
fn an_independent_client_maps_plain_memory() {
    let server = Running::start();
    let file = create_memory_file(c"plain", 0x4000).unwrap();
    std::fs::File::from(file.try_clone().unwrap()).write_at(b"hello", 0x3008).unwrap();
    *server.function.plain.lock().unwrap() = Some(file);

    let peer = server.peer();

    let region = peer.region(1).unwrap();
    assert_eq!((region.sparse_areas[0].offset, region.sparse_areas[0].size), (0x1000, 0x1000));
    let place = region.file_offset.as_ref().unwrap();
    let mut bytes = [0; 5];
    place.file().read_at(&mut bytes, place.start() + region.sparse_areas[0].offset + 8).unwrap();
    assert_eq!(&bytes, b"hello");
    assert!(peer.region(0).unwrap().file_offset.is_none());
}
