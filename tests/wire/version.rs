//! VERSION: the first message, and what may go wrong with it.

use crate::common::Running;
use crate::common::client::{QEMU_PROPOSAL, version};
use gpuvmk::frontend::vfio_user::wire::{self, command, flags};

#[test]
fn proposal_of_qemu_is_answered_in_fewer_bytes() {
    let server = Running::start();
    let mut client = server.stranger();

    let reply = client.command(command::VERSION, &version(0, 0, QEMU_PROPOSAL));

    assert_eq!(reply.errno(), 0);
    assert!(reply.body.len() <= 4 + QEMU_PROPOSAL.len(), "QEMU has no room for a longer reply");
    assert_eq!(reply.parse::<wire::Version>(), wire::Version { major: 0, minor: 0 });
    let json = std::str::from_utf8(&reply.body[4..]).unwrap().strip_suffix('\0').unwrap();
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    let capabilities = &value["capabilities"];
    assert_eq!(capabilities["write_multiple"], true);
    assert_eq!(capabilities["max_msg_fds"], 16);
    assert_eq!(capabilities["max_data_xfer_size"], 1 << 20);
    assert_eq!(capabilities["pgsizes"], 4096);
    assert_eq!(capabilities["max_dma_maps"], 65_535);
    client.assert_in_step();
}

#[test]
fn version_data_is_optional() {
    let server = Running::start();
    let mut client = server.stranger();

    let reply = client.command(command::VERSION, &version(0, 0, b""));

    assert_eq!((reply.errno(), reply.body.len()), (0, 4));
    client.assert_in_step();
}

#[test]
fn independent_client_negotiates_and_finds_the_regions() {
    let server = Running::start();

    let peer = server.peer();

    assert_eq!(peer.region(0).unwrap().size, 0x1000);
    assert_eq!(peer.region(2).unwrap().size, 0, "upper half of BAR 1");
    assert_eq!(peer.region(7).unwrap().size, 4096);
}

#[test]
fn bad_proposal_gets_an_error_and_the_end() {
    let deep = [vec![b'['; 3000], vec![0]].concat();
    let proposals: [&[u8]; 6] = [
        &version(1, 0, QEMU_PROPOSAL),
        &version(0, 0, b"{}"),
        &version(0, 0, b"\0"),
        &version(0, 0, b"{\"capabilities\":7}\0"),
        &version(0, 0, &deep),
        &[0, 0, 0],
    ];
    let server = Running::start();
    for proposal in proposals {
        let mut client = server.stranger();

        let reply = client.command(command::VERSION, proposal);

        assert_eq!(reply.errno(), libc::EINVAL);
        assert!(client.is_closed());
    }
    server.client().assert_in_step();
}

#[test]
fn other_first_message_is_refused() {
    let server = Running::start();
    let mut client = server.stranger();

    let reply = client.command(command::DEVICE_RESET, &[]);

    assert_eq!(reply.errno(), libc::EINVAL);
    assert!(client.is_closed());
    assert!(server.function.take_events().is_empty());
    assert!(server.log.lines().is_empty(), "a client that did not negotiate does not count");
}

#[test]
fn second_negotiation_is_refused_and_harmless() {
    let server = Running::start();
    let mut client = server.client();

    let reply = client.command(command::VERSION, &version(0, 0, QEMU_PROPOSAL));

    assert_eq!(reply.errno(), libc::EINVAL);
    client.assert_in_step();
}

#[test]
fn negotiation_in_single_bytes_works() {
    use zerocopy::IntoBytes;
    let server = Running::start();
    let mut client = server.stranger();
    let body = version(0, 0, QEMU_PROPOSAL);
    let header = client.header(command::VERSION, body.len());

    for byte in [header.as_bytes(), &body].concat() {
        client.send_raw(&[byte]);
    }

    let reply = client.receive();
    assert_eq!(reply.errno(), 0);
    assert_eq!(reply.header.flags, flags::REPLY);
}
