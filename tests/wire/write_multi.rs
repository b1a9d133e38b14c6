//! REGION_WRITE_MULTI: many small writes in one message.

use crate::common::Running;
use crate::common::function::Event;
use gpuvmk::frontend::vfio_user::wire::{self, MAX_WRITES, command};
use gpuvmk::pci::Region;
use zerocopy::IntoBytes;

fn small(region: u32, offset: u64, count: u32, data: [u8; 8]) -> wire::SmallWrite {
    wire::SmallWrite { access: wire::RegionAccess { offset, region, count }, data }
}

fn body(count: u64, writes: &[wire::SmallWrite]) -> Vec<u8> {
    [wire::WriteMulti { count }.as_bytes(), writes.as_bytes()].concat()
}

/// As many writes as QEMU puts into one message.
fn burst() -> Vec<wire::SmallWrite> {
    (0..200u64).map(|index| small(0, index * 4, 4, (index + 1).to_le_bytes())).collect()
}

#[test]
fn posted_burst_is_carried_out_in_order() {
    let server = Running::start();
    let mut client = server.client();
    server.function.take_events();

    client.post(command::REGION_WRITE_MULTI, &body(200, &burst()));
    client.assert_in_step();

    let expected: Vec<Event> = burst()
        .iter()
        .map(|small| Event::Write(Region::Bar(0), small.access.offset, small.data[..4].to_vec()))
        .collect();
    assert_eq!(server.function.take_bar_events(), expected);
}

#[test]
fn answered_burst_tells_the_number_of_writes() {
    let server = Running::start();
    let mut client = server.client();

    let reply = client.command(command::REGION_WRITE_MULTI, &body(200, &burst()));

    assert_eq!(reply.errno(), 0);
    assert_eq!(reply.body, 200u64.as_bytes());
}

#[test]
fn every_width_writes_its_bytes_only() {
    let server = Running::start();
    let mut client = server.client();
    client.write(0, 0, &[0xff; 8]);
    client.write(0, 8, &[0xff; 8]);

    let writes =
        [small(0, 0, 1, [1; 8]), small(0, 2, 2, [2; 8]), small(0, 4, 4, [4; 8]), small(0, 8, 8, [8; 8])];
    let reply = client.command(command::REGION_WRITE_MULTI, &body(4, &writes));

    assert_eq!(reply.errno(), 0);
    let expected = [1, 0xff, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 8];
    assert_eq!([&client.read(0, 0, 8).body[16..], &client.read(0, 8, 8).body[16..]].concat(), expected);
}

#[test]
fn one_bad_write_refuses_all_of_them() {
    let server = Running::start();
    let mut client = server.client();
    server.function.take_events();

    for bad in [
        small(0, 0xffd, 4, [0; 8]),
        small(0, 0, 9, [0; 8]),
        small(5, 0, 4, [0; 8]),
        small(0, u64::MAX, 4, [0; 8]),
    ] {
        let writes = [small(0, 0, 4, [7; 8]), bad];
        let reply = client.command(command::REGION_WRITE_MULTI, &body(2, &writes));
        assert_eq!(reply.errno(), libc::EINVAL, "{bad:?}");
    }
    assert!(server.function.take_bar_events().is_empty());
    client.assert_in_step();
}

#[test]
fn count_that_disagrees_with_the_message_is_refused() {
    let server = Running::start();
    let mut client = server.client();
    server.function.take_events();

    for count in [0, 1, 3, u64::MAX, u64::MAX / 24 + 1, 1 << 61] {
        let reply = client.command(command::REGION_WRITE_MULTI, &body(count, &burst()[..2]));
        assert_eq!(reply.errno(), libc::EINVAL, "{count}");
    }
    assert_eq!(client.command(command::REGION_WRITE_MULTI, &[0; 7]).errno(), libc::EINVAL);
    assert!(server.function.take_bar_events().is_empty());
}

#[test]
fn number_of_writes_is_limited() {
    let server = Running::start();
    let mut client = server.client();
    let writes = vec![small(0, 0, 4, [1; 8]); usize::try_from(MAX_WRITES).unwrap() + 1];

    let most = client.command(command::REGION_WRITE_MULTI, &body(MAX_WRITES, &writes[1..]));
    let too_many = client.command(command::REGION_WRITE_MULTI, &body(MAX_WRITES + 1, &writes));

    assert_eq!((most.errno(), too_many.errno()), (0, libc::EINVAL));
}

#[test]
fn nothing_to_write_is_fine() {
    let server = Running::start();
    let mut client = server.client();

    assert_eq!(client.command(command::REGION_WRITE_MULTI, &body(0, &[])).errno(), 0);
}
