//! Sockets and clients: where a server listens, who may come, what stays when a client goes.

use crate::common::client::{Client, QEMU_PROPOSAL, version};
use crate::common::function::{Event, TestFunction};
use crate::common::{Log, Running, descriptors_of, eventually};
use gpuvmk::frontend::vfio_user::wire::{self, command, dma_map, irq};
use gpuvmk::frontend::vfio_user::{BindError, Server, SocketSpec, StopHandle};
use gpuvmk::pci::PciFunction;
use gpuvmk::pci::mapping::create_memory_file;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use zerocopy::IntoBytes;

fn spec(path: &Path) -> SocketSpec {
    SocketSpec::private(path)
}

fn function() -> Arc<dyn PciFunction> {
    Arc::new(TestFunction::new())
}

/// Gives the client's memory and one MSI eventfd, both named, to the server.
#[allow(unsafe_code, reason = "the eventfd crate hands out raw descriptors only")]
fn attach(client: &mut Client, memory: &OwnedFd, event: &EventFd) {
    let flags = dma_map::READ | dma_map::WRITE;
    let map = wire::DmaMap { argsz: 32, flags, offset: 0, address: 0, size: 4096 };
    let reply = client.command_with(command::DMA_MAP, map.as_bytes(), &[memory.as_fd()]);
    assert_eq!(reply.errno(), 0);
    let flags = irq::DATA_EVENTFD | irq::ACTION_TRIGGER;
    let set = wire::SetIrqs { argsz: 20, flags, index: irq::MSI, start: 0, count: 1 };
    // SAFETY: the descriptor is open while `event` lives.
    let event = unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) };
    assert_eq!(client.command_with(command::DEVICE_SET_IRQS, set.as_bytes(), &[event]).errno(), 0);
}

#[test]
fn client_that_goes_leaves_the_state_and_takes_its_memory_and_interrupts() {
    let server = Running::start();
    let mut client = server.client();
    let memory = create_memory_file(c"life-memory", 4096).unwrap();
    attach(&mut client, &memory, &EventFd::new(EFD_NONBLOCK).unwrap());
    client.write(0, 0x10, &[7; 4]);
    server.function.take_events();

    drop(client);

    eventually("the client is gone", || server.log.lines().len() == 2);
    assert!(!server.function.is_connected());
    assert!(server.function.dma.is_empty());
    let order = [Event::Connected(false), Event::UnmappedAll];
    assert_eq!(server.function.take_events(), order, "interrupts first, then memory; no reset");
    assert_eq!(descriptors_of("life-memory"), 1);
    assert_eq!(server.client().read(0, 0x10, 4).body[16..], [7; 4]);
    assert_eq!(server.log.lines()[..2], ["connected", "disconnected: The client has disconnected"]);
}

#[test]
fn mapping_is_gone_from_the_process_with_its_client() {
    let server = Running::start();
    let mut client = server.client();
    let memory = create_memory_file(c"life-maps", 4096).unwrap();
    attach(&mut client, &memory, &EventFd::new(EFD_NONBLOCK).unwrap());
    let is_mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains("life-maps");
    assert!(is_mapped());

    drop(client);

    eventually("the mapping is gone", || !is_mapped());
}

#[test]
fn many_clients_in_a_row_leak_nothing() {
    let server = Running::start();
    let memory = create_memory_file(c"life-leak", 4096).unwrap();
    let event = EventFd::new(EFD_NONBLOCK).unwrap();

    for _ in 0..100 {
        attach(&mut server.client(), &memory, &event);
    }

    eventually("all are gone", || server.log.lines().len() == 200);
    assert_eq!(descriptors_of("life-leak"), 1);
}

/// Says VERSION, and returns the error of the answer.
fn knock(path: &Path) -> (i32, Duration) {
    let began = Instant::now();
    let mut client = Client::connect(path);
    let reply = client.command(command::VERSION, &version(0, 0, QEMU_PROPOSAL));
    (reply.errno(), began.elapsed())
}

#[test]
fn second_client_is_told_soon_that_the_device_is_taken() {
    let server = Running::start();
    let mut first = server.client();

    for _ in 0..3 {
        let (errno, took) = knock(&server.path);
        assert_eq!(errno, libc::EBUSY);
        assert!(took < Duration::from_secs(3), "{took:?}");
    }

    first.assert_in_step();
    drop(first);
    server.client().assert_in_step();
}

#[test]
fn clients_that_say_nothing_keep_only_others_that_are_turned_away_waiting() {
    let server = Running::start();
    let mut first = server.client();
    let silent: Vec<_> = (0..2).map(|_| UnixStream::connect(&server.path).unwrap()).collect();

    assert_eq!(knock(&server.path).0, libc::EBUSY);
    first.assert_in_step();

    drop(silent);
    drop(first);
    server.client().assert_in_step();
}

#[test]
fn client_that_comes_while_the_last_one_is_on_its_way_out_gets_in() {
    let server = Running::start();
    for _ in 0..20 {
        let first = server.client();
        let path = server.path.clone();
        let second = std::thread::spawn(move || Client::negotiated(&path).assert_in_step());
        std::thread::sleep(Duration::from_millis(30));
        assert!(!second.is_finished(), "it is waited for the first one's end");

        drop(first);

        second.join().unwrap();
    }
}

#[test]
fn session_can_be_cut_without_stopping_the_server() {
    let server = Running::start();
    let mut client = server.client();

    server.stop.cut_session();

    assert!(client.is_closed());
    server.client().assert_in_step();
}

#[test]
fn stop_ends_a_waiting_and_a_serving_server_at_once() {
    for serving in [false, true] {
        let mut server = Running::start();
        let client = serving.then(|| server.client());

        let start = Instant::now();
        server.finish();

        assert!(start.elapsed() < Duration::from_millis(100), "took {:?}", start.elapsed());
        assert!(!server.path.exists(), "the socket is removed");
        if client.is_some() {
            assert_eq!(server.log.lines().last().unwrap(), "disconnected: The session was stopped");
        }
    }
}

#[test]
fn stop_before_the_start_ends_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::bind(&spec(&folder.path().join("s"))).unwrap();
    let stop = StopHandle::new().unwrap();

    stop.stop();

    server.run(&function(), &(), &stop).unwrap();
}

#[test]
fn socket_has_the_permissions_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let group = std::fs::metadata(folder.path()).unwrap().gid().to_string();

    let spec = SocketSpec { mode: 0o660, group: Some(group.clone()), ..SocketSpec::private(path.clone()) };
    let _server = Server::bind(&spec).unwrap();

    let facts = std::fs::metadata(&path).unwrap();
    assert_eq!(facts.permissions().mode() & 0o7777, 0o660);
    assert_eq!(facts.gid().to_string(), group);
}

#[test]
fn path_of_a_living_server_is_refused() {
    let server = Running::start();

    let second = Server::bind(&spec(&server.path)).unwrap_err();

    assert!(matches!(&second, BindError::InUse(path) if *path == server.path));
    assert!(second.to_string().contains("in use by a running server"));
    server.client().assert_in_step();
}

#[test]
fn path_of_a_living_server_with_a_full_queue_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let _server = Server::bind(&spec(&path)).unwrap();
    let waiting: Vec<UnixStream> = (0..9).map(|_| UnixStream::connect(&path).unwrap()).collect();

    assert!(matches!(Server::bind(&spec(&path)), Err(BindError::InUse(_))));
    assert_eq!(waiting.len(), 9);
}

#[test]
fn socket_of_a_dead_server_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());

    let _server = Server::bind(&spec(&path)).unwrap();

    UnixStream::connect(&path).unwrap();
}

#[test]
fn anything_else_at_the_path_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link, target) = (folder.path().join("f"), folder.path().join("l"), folder.path().join("t"));
    std::fs::write(&file, "precious").unwrap();
    drop(UnixListener::bind(&target).unwrap());
    symlink(&target, &link).unwrap();

    for (path, what) in [(file.as_path(), "a file"), (&link, "a symbolic link"), (folder.path(), "a folder")]
    {
        let error = Server::bind(&spec(path)).unwrap_err();
        assert!(matches!(&error, BindError::Occupied { what: found, .. } if *found == what), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    assert!(link.is_symlink() && target.exists());
}

#[test]
fn unusable_paths_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Server::bind(&spec(&folder.path().join("no/such/s"))).unwrap_err();
    let long = Server::bind(&spec(&folder.path().join("x".repeat(120)))).unwrap_err();
    let group = Some("no-such-group-here".to_owned());
    let path = folder.path().join("s");
    let grouped = Server::bind(&SocketSpec { group, ..SocketSpec::private(path.clone()) }).unwrap_err();

    assert!(missing.to_string().contains("does not exist"), "{missing}");
    assert!(matches!(long, BindError::TooLong(_)), "{long}");
    assert!(matches!(grouped, BindError::NoGroup(_)), "{grouped}");
    assert!(!path.exists());
}

#[test]
fn server_removes_its_own_socket_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let server = Server::bind(&spec(&path)).unwrap();
    std::fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();

    drop(server);

    assert!(path.exists());
    drop(other);
}

#[test]
fn listening_descriptor_takes_one_client_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let server = Server::from_fd(OwnedFd::from(UnixListener::bind(&path).unwrap())).unwrap();
    let stop = StopHandle::new().unwrap();
    let thread = {
        let stop = stop.clone();
        std::thread::spawn(move || server.run(&function(), &(), &stop).unwrap())
    };

    Client::negotiated(&path).assert_in_step();
    Client::negotiated(&path).assert_in_step();
    stop.stop();

    thread.join().unwrap();
    assert!(path.exists(), "the manager's socket is the manager's to remove");
}

#[test]
fn connected_descriptor_is_served_until_its_client_goes() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = Server::from_fd(OwnedFd::from(theirs)).unwrap();
    let log = Arc::new(Log::default());
    let thread = {
        let log = Arc::clone(&log);
        let stop = StopHandle::new().unwrap();
        std::thread::spawn(move || server.run(&function(), log.as_ref(), &stop).unwrap())
    };
    let mut client = Client::on(ours);

    client.negotiate();
    client.assert_in_step();
    drop(client);

    thread.join().unwrap();
    assert_eq!(log.lines().len(), 2);
}

#[test]
fn descriptor_that_is_no_stream_socket_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = OwnedFd::from(std::fs::File::create(folder.path().join("f")).unwrap());
    let datagram = OwnedFd::from(UnixDatagram::unbound().unwrap());
    let inet = OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());

    for fd in [file, datagram, inet] {
        assert!(matches!(Server::from_fd(fd), Err(BindError::NotASocket(_))));
    }
}

#[test]
fn interrupts_go_to_the_next_client() {
    let server = Running::start();
    drop(server.client());
    eventually("the client is gone", || server.log.lines().len() == 2);

    let mut client = server.client();
    let memory = create_memory_file(c"life-line", 4096).unwrap();
    let event = EventFd::new(EFD_NONBLOCK).unwrap();
    attach(&mut client, &memory, &event);
    server.function.fire_msi();

    assert_eq!(event.read().unwrap(), 1);
}
