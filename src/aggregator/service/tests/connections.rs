//! Connections: how they begin and end, and whose doing it is.

use super::*;

#[test]
fn second_vm_of_the_same_name_is_refused() {
    let setup = Setup::new();
    let (_link, _grant) = setup.join("vm1");

    let refusal = connect(&setup.path(), hello("vm1"), &LinkTimeouts::none()).err().unwrap();

    assert!(matches!(refusal, LinkError::Refused { kind: RefusalKind::Name, .. }), "{refusal}");
}

#[test]
fn dropped_link_gives_everything_back_and_the_name_is_free() {
    let setup = Setup::new();
    // The last two wait: a VM that comes and goes has its memory zeroed so often at once, and not more.
    for _ in 0..6 {
        let (link, _grant) = setup.join("vm1");
        furnish(&*link);
        let file = rustix::fs::memfd_create("ram", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, MIB).unwrap();
        let map = Request::DmaMap { gpa: Gpa(0), size: MIB, offset: 0, writable: true };
        link.request(&map, Some(file)).unwrap();
    }

    until("everything back", || {
        let state = setup.fake.state();
        state.channels.is_empty() && state.spaces.is_empty() && state.dma.is_empty()
    });
    until("no tenants", || setup.service().status().unwrap().tenants.is_empty());
}

#[test]
fn aggregators_end_is_reported_to_the_handler_and_to_requests() {
    let mut setup = Setup::new();
    let (link, _grant) = setup.join("vm1");
    let events = receiver(&*link);

    drop(setup.service.take());

    assert_eq!(events.recv_timeout(PATIENCE), Ok(None));
    let error = link.request(&Request::CreateSpace(SpaceId(0)), None).unwrap_err();
    assert!(matches!(error, LinkError::Lost(_)), "{error}");
}

#[test]
fn card_that_is_taken_away_is_closed_once_everybody_was_told() {
    let mut setup = Setup::on(FakeGpu::card());
    let (link, _grant) = setup.join("vm1");
    let events = receiver(&*link);

    setup.fake.report(GpuEvent::Lost);

    assert_eq!(events.recv_timeout(PATIENCE), Ok(Some(Event::Lost)));
    assert_eq!(events.recv_timeout(PATIENCE), Ok(None));
    assert!(!setup.service.take().unwrap().join(), "it was not told to end");
}

#[test]
fn client_waits_for_an_aggregator_that_starts_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpu");
    let client = {
        let path = path.clone();
        let timeouts = LinkTimeouts::until(Cancel::default());
        std::thread::spawn(move || connect(&path, hello("vm1"), &timeouts).map(|_| ()))
    };
    std::thread::sleep(Duration::from_millis(150));
    let (gpu, _fake) = FakeGpu::new();

    let _service = Service::start(Box::new(gpu), None, &config(path, folder.path().join("c"))).unwrap();

    client.join().unwrap().unwrap();
}

#[test]
fn absent_aggregator_and_cancelled_wait_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nobody");
    let cancelled = Cancel::new().unwrap();
    cancelled.cancel();

    assert!(matches!(connect(&path, hello("x"), &LinkTimeouts::none()), Err(LinkError::Lost(_))));
    assert!(matches!(connect(&path, hello("x"), &LinkTimeouts::until(cancelled)), Err(LinkError::Lost(_))));
}

#[test]
fn garbage_is_refused_and_others_are_served_meanwhile() {
    let setup = Setup::new();
    let (link, _grant) = setup.join("vm1");
    let unadmitted = gpuvmk_host::socket_path::connect(&setup.path(), SocketType::SEQPACKET).unwrap();
    let mut answer = [0; 4096];

    for length in [1, 15, 16, 17, 400, 20_000] {
        rustix::net::send(&unadmitted, &vec![0xa5; length], rustix::net::SendFlags::empty()).unwrap();
        let (got, _) = rustix::net::recv(&unadmitted, &mut answer, rustix::net::RecvFlags::empty()).unwrap();
        let reply = crate::wire::decode_reply(&answer[..got]).unwrap();
        assert!(matches!(reply, crate::protocol::Reply::Refused { kind: RefusalKind::Protocol, .. }));
    }
    link.request(&Request::CreateSpace(SpaceId(1)), None).unwrap();
    rustix::net::send(&unadmitted, &vec![0xa5; 100_000], rustix::net::SendFlags::empty()).unwrap();
    let (got, _) = rustix::net::recv(&unadmitted, &mut answer, rustix::net::RecvFlags::empty()).unwrap();

    assert_eq!(got, 0, "an oversized message ends the connection");
    link.request(&Request::CreateSpace(SpaceId(2)), None).unwrap();
}

#[test]
fn client_that_does_not_read_answers_is_dropped_and_blocks_nobody() {
    let setup = Setup::new();
    let (link, _grant) = setup.join("vm1");
    let flood = gpuvmk_host::socket_path::connect(&setup.path(), SocketType::SEQPACKET).unwrap();

    let end = (0..1_000_000)
        .find_map(|_| rustix::net::send(&flood, &[0; 16], rustix::net::SendFlags::NOSIGNAL).err());

    assert!(end.is_some());
    link.request(&Request::CreateSpace(SpaceId(1)), None).unwrap();
}

#[test]
fn socket_in_use_is_refused() {
    let setup = Setup::new();
    let (gpu, _fake) = FakeGpu::new();

    let second = Service::start(Box::new(gpu), None, &config(setup.path(), setup.folder.path().join("x")));

    assert!(matches!(second, Err(StartError::Bind(BindError::InUse(_)))));
}
