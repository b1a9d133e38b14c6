//! What a hostile or broken client may send: sizes, unknown commands, replies, fragments, floods.

use crate::common::client::{Client, write_body};
use crate::common::{Running, descriptors_of};
use gpuvmk::frontend::vfio_user::MAX_MESSAGE;
use gpuvmk::frontend::vfio_user::wire::{Header, RegionAccess, command, flags};
use gpuvmk::pci::mapping::create_memory_file;
use proptest::prelude::*;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;
use zerocopy::IntoBytes;

#[test]
fn unknown_commands_are_answered_and_the_stream_stays_in_step() {
    let server = Running::start();
    let mut client = server.client();

    for (command, errno) in [
        (0, libc::EINVAL),
        (command::DEVICE_GET_REGION_IO_FDS, libc::EOPNOTSUPP),
        (command::DMA_READ, libc::EINVAL),
        (command::DMA_WRITE, libc::EINVAL),
        (command::DIRTY_PAGES, libc::EOPNOTSUPP),
        (command::DEVICE_FEATURE, libc::ENOTTY),
        (command::MIG_DATA_READ, libc::EOPNOTSUPP),
        (command::MIG_DATA_WRITE, libc::EOPNOTSUPP),
        (19, libc::EINVAL),
        (u16::MAX, libc::EINVAL),
    ] {
        for body in [0, 8, 1000] {
            assert_eq!(client.command(command, &vec![0xff; body]).errno(), errno, "{command}");
        }
    }
    client.assert_in_step();
}

#[test]
fn unknown_command_without_reply_is_not_answered() {
    let server = Running::start();
    let mut client = server.client();

    client.post(99, &[0; 8]);
    client.post(command::DEVICE_FEATURE, &[0; 8]);

    client.assert_in_step();
}

#[test]
fn unsolicited_reply_is_ignored() {
    let server = Running::start();
    let mut client = server.client();
    let file = create_memory_file(c"error-reply", 4096).unwrap();

    let mut header = client.header(command::DMA_READ, 4);
    header.flags = flags::REPLY;
    client.send(header, &[0; 4], &[file.as_raw_fd()]);

    client.assert_in_step();
    assert_eq!(descriptors_of("error-reply"), 1);
}

#[test]
fn message_that_is_neither_command_nor_reply_is_refused() {
    let server = Running::start();
    let mut client = server.client();

    let mut header = client.header(command::DEVICE_RESET, 0);
    header.flags = 7;
    client.send(header, &[], &[]);

    assert_eq!(client.receive().errno(), libc::EINVAL);
    client.assert_in_step();
}

#[test]
fn impossible_sizes_get_an_error_and_the_end() {
    let server = Running::start();
    for size in [0, 1, 15, u32::try_from(MAX_MESSAGE + 1).unwrap(), u32::MAX] {
        let mut client = server.client();
        let mut header = client.header(command::REGION_READ, 0);
        header.size = size;

        client.send(header, &[], &[]);

        assert_eq!(client.receive().errno(), libc::EINVAL, "{size}");
        assert!(client.is_closed());
    }
    server.client().assert_in_step();
}

#[test]
fn impossible_size_before_negotiation_ends_the_session() {
    let server = Running::start();
    for size in [0, 15, u32::MAX] {
        let mut client = server.stranger();
        let mut header = client.header(command::VERSION, 0);
        header.size = size;

        client.send(header, &[], &[]);

        assert_eq!(client.receive().errno(), libc::EINVAL);
        assert!(client.is_closed());
    }
    server.client().assert_in_step();
}

#[test]
fn body_too_short_or_too_long_is_refused_for_every_command() {
    let server = Running::start();
    let mut client = server.client();

    for command in 2..=16 {
        if command == command::DEVICE_RESET {
            continue;
        }
        for size in [0, 1, 7] {
            assert_ne!(client.command(command, &vec![0; size]).errno(), 0, "{command} with {size}");
        }
    }
    for command in [4, 5, 7, 9] {
        assert_eq!(client.command(command, &[0; 100]).errno(), libc::EINVAL, "{command}");
    }
    client.assert_in_step();
}

#[test]
fn descriptors_on_commands_that_take_none_are_refused_and_closed() {
    let server = Running::start();
    let mut client = server.client();
    let file = create_memory_file(c"error-unwanted", 4096).unwrap();
    let access = RegionAccess { offset: 0, region: 0, count: 4 };

    for fds in [1, 3, 16, 40] {
        let read = client.command_with(command::REGION_READ, access.as_bytes(), &vec![file.as_fd(); fds]);
        let unknown = client.command_with(77, &[], &vec![file.as_fd(); fds]);
        assert_eq!((read.errno(), unknown.errno()), (libc::EINVAL, libc::EINVAL), "{fds}");
    }
    assert_eq!(descriptors_of("error-unwanted"), 1);
    client.assert_in_step();
}

#[test]
fn descriptors_that_trickle_in_with_single_bytes_are_bounded_and_closed() {
    let server = Running::start();
    let mut client = server.client();
    let file = create_memory_file(c"error-trickle", 4096).unwrap();
    let body = write_body(0, 0, &[0; 200]);
    let header = client.header(command::REGION_WRITE, body.len());
    let bytes = [header.as_bytes(), &body].concat();
    let (last, first) = bytes.split_last().unwrap();

    for byte in first {
        use vmm_sys_util::sock_ctrl_msg::ScmSocket;
        client.socket.send_with_fds(&[&[*byte][..]], &[file.as_raw_fd(); 10]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(20));
    assert!(descriptors_of("error-trickle") <= 1 + 32);
    client.send_raw(&[*last]);

    assert_eq!(client.receive().errno(), libc::EINVAL);
    assert_eq!(descriptors_of("error-trickle"), 1);
    client.assert_in_step();
}

#[test]
fn fragmented_messages_are_put_together() {
    let server = Running::start();
    let mut client = server.client();
    let body = write_body(0, 0x80, &[5; 8]);
    let header = client.header(command::REGION_WRITE, body.len());
    let bytes = [header.as_bytes(), &body].concat();

    for size in [1, 3, 7, 15, 16, 17, 31] {
        for piece in bytes.chunks(size) {
            client.send_raw(piece);
            std::thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(client.receive().errno(), 0, "{size}");
    }
}

#[test]
fn pipelined_commands_are_answered_in_order() {
    let server = Running::start();
    let mut client = server.client();
    let mut bytes = Vec::new();
    let mut ids = Vec::new();
    for _ in 0..500 {
        let access = RegionAccess { offset: 0, region: 0, count: 4 };
        let header = client.header(command::REGION_READ, 16);
        ids.push(header.message_id);
        bytes.extend([header.as_bytes(), access.as_bytes()].concat());
    }

    client.send_raw(&bytes);

    let answered: Vec<u16> = ids.iter().map(|_| client.receive().header.message_id).collect();
    assert_eq!(answered, ids);
}

#[test]
fn closing_in_the_middle_of_a_message_is_no_trouble_to_the_next_client() {
    let server = Running::start();
    for cut in [1, 15, 16, 20] {
        let mut client = server.client();
        let body = write_body(0, 0, &[1; 8]);
        let header = client.header(command::REGION_WRITE, body.len());
        client.send_raw(&[header.as_bytes(), &body].concat()[..cut]);
    }

    server.client().assert_in_step();
    let ends = server.log.lines().iter().filter(|line| line.contains("middle of a message")).count();
    assert_eq!(ends, 4);
}

#[test]
fn client_that_never_reads_can_be_stopped() {
    let mut server = Running::start();
    let mut client = server.client();
    client.socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let access = RegionAccess { offset: 0, region: 1, count: 1 << 20 };
    let header = client.header(command::REGION_READ, 16);
    let bytes = [header.as_bytes(), access.as_bytes()].concat();
    // The server's replies fill the socket, then our requests do.
    while client.socket.write_all(&bytes).is_ok() {}

    let start = std::time::Instant::now();
    server.finish();

    assert!(start.elapsed() < Duration::from_millis(500), "took {:?}", start.elapsed());
}

/// Any bytes: the server may answer what it likes or close, and must serve the next client.
fn survives(bytes: &[u8]) {
    let server = Running::start();
    let mut client = server.client();
    let _ = client.socket.write_all(bytes);
    drop(client);
    server.client().assert_in_step();
}

/// A message whose parts are partly sensible.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![Just(0u64), Just(4), Just(16), Just(4096), Just(u64::MAX), any::<u64>()];
    let body = proptest::collection::vec(number, 0..6);
    (0u16..20, body, any::<bool>(), -3i32..4).prop_map(|(command, body, post, lie)| {
        let body: Vec<u8> = body.into_iter().flat_map(u64::to_ne_bytes).collect();
        // Mostly true, sometimes a few bytes off.
        let lie = if lie == 3 { 5 } else { 0 };
        let size = u32::try_from(16 + body.len() + lie).unwrap();
        let flags = if post { flags::NO_REPLY } else { 0 };
        let header = Header { message_id: 1, command, size, flags, error: 0 };
        [header.as_bytes(), &body].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        survives(&bytes);
    }

    #[test]
    fn random_messages_do_no_harm(messages in proptest::collection::vec(message(), 0..40)) {
        survives(&messages.concat());
    }
}

#[test]
fn greeting_is_not_waited_for_for_ever() {
    // The limit is 10 s; here only that a silent client does not stop the server from stopping.
    let mut server = Running::start();
    let silent = Client::connect(&server.path);
    std::thread::sleep(Duration::from_millis(20));

    let start = std::time::Instant::now();
    server.finish();

    assert!(start.elapsed() < Duration::from_millis(500));
    drop(silent);
}
