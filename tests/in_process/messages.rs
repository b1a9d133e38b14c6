//! Messages to drivers that the aggregator sends itself, when a copy ends on the software GPU.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests may fail as tests do"
)]

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::soft_host::soft_host;
use crate::tenant;
use crate::tenant::{DATA, Tenant, VRAM_VA, hello};
use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::link::LinkError;
use gpuvmk::aggregator::protocol::{Event, RefusalKind, Request};
use gpuvmk::aggregator::{ServiceHandle, connect_in_process};
use gpuvmk::backend::InterruptInterest;
use gpuvmk::chip::{Chip, Engine, EngineSet};
use gpuvmk::scheduler::policy::PolicyKind;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

const MIB: u64 = 1 << 20;
const ARMED: InterruptInterest = InterruptInterest::Message(EngineSet::COPY0);

fn join(service: &ServiceHandle, name: &str) -> Tenant {
    let (link, grant) = connect_in_process(service, hello(name, 32 * MIB)).unwrap();
    let mut tenant = Tenant::new(link, &grant);
    tenant.channel(0, 0);
    tenant.list(&[0]);
    tenant
}

fn copy(tenant: &mut Tenant) {
    tenant.copy(0, 0, VRAM_VA + DATA, VRAM_VA + DATA + MIB, 0x1000);
    tenant.finish(0);
}

/// An eventfd, and a second descriptor of it for the aggregator.
fn event() -> (OwnedFd, OwnedFd) {
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let copy = event.try_clone().unwrap();
    (event, copy)
}

fn give(tenant: &Tenant, event: OwnedFd) {
    tenant.link.request(&Request::MessageEvent { given: true }, Some(event)).unwrap();
}

/// Waits for a message and takes it.
fn message(event: &OwnedFd) -> u64 {
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&patience)), Ok(1), "no message");
    let mut raw = [0; 8];
    rustix::io::read(event, &mut raw).unwrap();
    u64::from_ne_bytes(raw)
}

#[test]
fn end_of_a_copy_is_a_message_and_no_event_until_the_driver_has_handled_it() {
    let service = soft_host(Chip::GF100, 128 * MIB, PolicyKind::Fifo, ScrubPolicy::default());
    let mut vm = join(&service, "vm");
    let (driver, copy_of_it) = event();
    give(&vm, copy_of_it);

    for _ in 0..20 {
        vm.link.set_notification_interest(ARMED);
        copy(&mut vm);
        assert_eq!(message(&driver), 1);
        let kept = vm.link.take_notifications();
        assert_eq!((kept.engines, kept.sent), (EngineSet::COPY0, true));
    }
    assert!(vm.events.try_recv().is_err());

    // Handled, and the next is not allowed yet: the tenant hears of the work.
    copy(&mut vm);
    assert_eq!(vm.next_event(), Event::NonStall(Engine::COPY0));
    // Nobody knows how to send it any more.
    vm.link.request(&Request::MessageEvent { given: false }, None).unwrap();
    vm.link.set_notification_interest(ARMED);
    copy(&mut vm);
    assert_eq!(vm.next_event(), Event::NonStall(Engine::COPY0));
}

#[test]
fn eventfd_without_room_that_waits_for_some_keeps_nobody_waiting() {
    let service = soft_host(Chip::GF100, 128 * MIB, PolicyKind::Fifo, ScrubPolicy::default());
    let (mut hostile, mut honest) = (join(&service, "hostile"), join(&service, "honest"));
    let (full, copy_of_it) = event();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    give(&hostile, copy_of_it);

    let start = Instant::now();
    for _ in 0..20 {
        hostile.link.set_notification_interest(ARMED);
        copy(&mut hostile);
        tenant::wait_until("the message", || hostile.link.take_notifications().sent);
        copy(&mut honest);
    }

    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(service.status().is_some());
}

#[test]
fn only_an_eventfd_that_is_given_is_taken() {
    let service = soft_host(Chip::GF100, 128 * MIB, PolicyKind::Fifo, ScrubPolicy::default());
    let mut vm = join(&service, "vm");
    let ask = |given, file| vm.link.request(&Request::MessageEvent { given }, file);
    for (given, file) in [(true, None), (false, Some(event().0))] {
        let refused = ask(given, file).unwrap_err();
        assert!(matches!(refused, LinkError::Refused { kind: RefusalKind::Protocol, .. }), "{refused}");
    }
    // What it is, the kernel says when it is to be signalled.
    give(&vm, rustix::pipe::pipe().unwrap().1);
    vm.link.set_notification_interest(ARMED);
    copy(&mut vm);
    assert_eq!(vm.next_event(), Event::Unsent);
    assert!(vm.link.take_notifications().sent);
    vm.link.set_notification_interest(ARMED);
    copy(&mut vm);
    assert_eq!(vm.next_event(), Event::NonStall(Engine::COPY0));
}
