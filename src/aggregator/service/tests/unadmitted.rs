//! Work that a peer makes slow delays no other peer: descriptors whose last close waits, eventfds with many
//! waiters, silence.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::MemfdFlags;

use super::*;
use crate::protocol::Reply;
use crate::seqpacket::{self, Received};
use crate::wire;
use gpuvmk_backend::InterruptInterest;

/// How long the last close of a [`lingering`] socket takes.
const LINGER: Duration = Duration::from_secs(4);

/// What no request of a neighbour takes, on a machine that is busy with something else.
const LONG: Duration = Duration::from_millis(1500);

/// A connection that still has something to send when it is closed. The second one does not read.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.write(&[0; 65536]).is_ok() {}
    sender.set_nonblocking(false).unwrap();
    rustix::net::sockopt::set_socket_linger(&sender, Some(LINGER)).unwrap();
    (sender, receiver)
}

/// A tenant that speaks the protocol by hand.
struct Raw {
    socket: OwnedFd,
}

impl Raw {
    fn unadmitted(setup: &Setup) -> Self {
        Self { socket: gpuvmk_host::socket_path::connect(&setup.path(), SocketType::SEQPACKET).unwrap() }
    }

    fn tenant(setup: &Setup, name: &str) -> Self {
        let raw = Self::unadmitted(setup);
        raw.send(&Request::Hello(hello(name)), &[]);
        assert!(matches!(raw.receive(), Some(Reply::Welcome(_))));
        raw
    }

    fn send(&self, request: &Request, files: &[BorrowedFd<'_>]) {
        let mut bytes = Vec::new();
        wire::encode_request(request, &mut bytes);
        seqpacket::send(&self.socket, &bytes, files, false).unwrap();
    }

    fn receive(&self) -> Option<Reply> {
        let mut bytes = vec![0; wire::MAX_REPLY_BYTES];
        match seqpacket::receive(&self.socket, &mut bytes, &mut Vec::new(), false).unwrap() {
            Received::Datagram(length) => Some(wire::decode_reply(&bytes[..length]).unwrap()),
            Received::End | Received::Nothing => None,
        }
    }
}

fn dma_map() -> Request {
    Request::DmaMap { gpa: Gpa(0), size: MIB, offset: 0, writable: true }
}

/// The longest of some requests.
fn longest(link: &dyn AggregatorLink, requests: usize) -> Duration {
    let ask = |_| {
        let start = Instant::now();
        link.request(&Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map: vec![] }, None).unwrap();
        start.elapsed()
    };
    (0..requests).map(ask).max().unwrap()
}

#[test]
fn descriptor_whose_close_waits_costs_neither_neighbours_nor_newcomers_anything() {
    let setup = Setup::new();
    let (link, _grant) = setup.join("neighbour");
    furnish(&*link);
    let mut kept = Vec::new();
    let mut give = |raw: &Raw, request: &Request, times: usize| {
        let (sender, receiver) = lingering();
        raw.send(request, &vec![sender.as_fd(); times]);
        kept.push(receiver);
    };

    // An unadmitted connection's first message, with one and with several; and one that is closed before it
    // is looked at.
    for times in [1, 3] {
        let unadmitted = Raw::unadmitted(&setup);
        give(&unadmitted, &Request::Hello(hello("x")), times);
        assert!(
            matches!(unadmitted.receive(), Some(Reply::Refused { kind: RefusalKind::Protocol, message }) if message.contains("descriptors"))
        );
        let unadmitted = Raw::unadmitted(&setup);
        give(&unadmitted, &dma_map(), times);
        drop(unadmitted);
        assert!(longest(&*link, 20) < LONG);
    }
    // A tenant's, in each kind of request; it is told what was wrong, if it still can be.
    for (name, request, times) in [
        ("memory", dma_map(), 1),
        ("message", Request::MessageEvent { given: true }, 1),
        ("many", dma_map(), 2),
        ("more", Request::CreateSpace(SpaceId(0)), 1),
    ] {
        let tenant = Raw::tenant(&setup, name);
        give(&tenant, &request, times);
        // A message's eventfd is judged when it is used.
        if name == "message" {
            assert!(matches!(tenant.receive(), Some(Reply::Done)));
        }
        assert!(longest(&*link, 20) < LONG, "{name}");
        drop(tenant);
        assert!(longest(&*link, 20) < LONG, "{name}");
        // The VM comes back at once.
        let start = Instant::now();
        let (_again, _grant) = setup.join(if name == "more" { "memory" } else { "fresh" });
        assert!(start.elapsed() < LONG, "{name}: {:?}", start.elapsed());
        assert!(longest(&*link, 20) < LONG, "{name}");
    }
}

#[test]
fn file_that_is_no_memory_is_refused_by_name() {
    let setup = Setup::new();
    let tenant = Raw::tenant(&setup, "vm1");
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let memory = rustix::fs::memfd_create("ram", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, MIB).unwrap();

    let refused = |request: &Request, files: &[BorrowedFd<'_>], words: &str| {
        tenant.send(request, files);
        let reply = tenant.receive();
        assert!(
            matches!(&reply, Some(Reply::Refused { message, .. }) if message.contains(words)),
            "{reply:?}"
        );
    };
    refused(&dma_map(), &[reader.as_fd()], "memfd");
    refused(&dma_map(), &[], "comes with its file");
    refused(&dma_map(), &[memory.as_fd(), memory.as_fd()], "one descriptor");
    refused(&Request::CreateSpace(SpaceId(0)), &[memory.as_fd()], "comes with its file");
    refused(&Request::MessageEvent { given: false }, &[memory.as_fd()], "comes with its file");
    tenant.send(&dma_map(), &[memory.as_fd()]);
    assert!(matches!(tenant.receive(), Some(Reply::Done)));
    assert_eq!(setup.service().status().unwrap().tenants[0].counters.refusals, 5);
}

#[test]
fn wakeups_that_many_wait_for_are_counted_and_cost_a_neighbour_nothing() {
    const WATCHES: usize = 150;
    let setup = Setup::new();
    let (link, _grant) = setup.join("neighbour");
    furnish(&*link);
    let (dear, _grant) = setup.join("dear");
    furnish(&*dear);
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    // Each instance waits for each descriptor.
    let copies: Vec<_> = (0..WATCHES).map(|_| event.try_clone().unwrap()).collect();
    let waiters: Vec<_> = (0..WATCHES)
        .map(|_| {
            let waiter = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            for (copy, data) in copies.iter().zip(0..) {
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                epoll::add(&waiter, copy, epoll::EventData::new_u64(data), flags).unwrap();
            }
            waiter
        })
        .collect();
    dear.request(&Request::MessageEvent { given: true }, Some(event)).unwrap();

    let start = Instant::now();
    let mut longest_of_all = Duration::ZERO;
    let dear_wakeups = || {
        let status = setup.service().status().unwrap();
        status.tenants.iter().find(|tenant| tenant.name == "dear").unwrap().dear_wakeups
    };
    while start.elapsed() < Duration::from_secs(5) && dear_wakeups() < 3 {
        dear.set_notification_interest(InterruptInterest::Message(EngineSet::GRAPHICS));
        setup.fake.report(GpuEvent::NonStall(Engine::Graphics));
        longest_of_all = longest_of_all.max(longest(&*link, 5));
    }

    assert!(dear_wakeups() >= 3, "{}", dear_wakeups());
    assert!(longest_of_all < LONG, "{longest_of_all:?}");
    drop(waiters);
}

#[test]
fn memory_that_the_aggregator_holds_last_is_freed_beside_its_work() {
    const SIZE: u64 = 256 * MIB;
    let setup = Setup::new();
    let (link, _grant) = setup.join("neighbour");
    furnish(&*link);
    let touched = || {
        let file = rustix::fs::memfd_create("ram", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, SIZE).unwrap();
        file
    };
    let own = touched();
    let start = Instant::now();
    drop(own);
    let yardstick = start.elapsed();
    let (going, _grant) = setup.join("going");
    let map = Request::DmaMap { gpa: Gpa(0), size: SIZE, offset: 0, writable: true };
    going.request(&map, Some(touched())).unwrap();

    drop(going);
    let mut longest_of_all = Duration::ZERO;
    let start = Instant::now();
    while start.elapsed() < yardstick.saturating_mul(4) {
        longest_of_all = longest_of_all.max(longest(&*link, 5));
    }
    // A machine that is busy with something else may delay any connection.
    assert!(longest_of_all < yardstick.max(LONG), "{longest_of_all:?}, to free it takes {yardstick:?}");
}

#[test]
fn silent_strangers_keep_nobody_out() {
    let setup = Setup::new();
    let silent: Vec<_> = (0..70).map(|_| Raw::unadmitted(&setup)).collect();

    for round in 0..5 {
        let start = Instant::now();
        let (_link, _grant) = setup.join("vm1");
        assert!(start.elapsed() < LONG, "{round}: {:?}", start.elapsed());
        drop((_link, _grant));
        until("no tenants", || setup.service().status().unwrap().tenants.is_empty());
    }

    assert!(setup.service().status().unwrap().gpu.strangers_refused > 0);
    drop(silent);
}

#[test]
fn stranger_that_makes_mistakes_is_answered_slowly_and_sent_away() {
    let setup = Setup::new();
    let unadmitted = Raw::unadmitted(&setup);
    let start = Instant::now();
    let mut answers = 0;
    while seqpacket::send(&unadmitted.socket, &[7; 16], &[], false).is_ok() && unadmitted.receive().is_some()
    {
        answers += 1;
    }
    assert!((8..=16).contains(&answers), "{answers}");
    assert!(start.elapsed() > Duration::from_millis(300), "{:?}", start.elapsed());
}
