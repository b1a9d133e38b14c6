mod connections;
mod control_socket;
mod unadmitted;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use serde_json::json;

use super::*;
use crate::control::{methods, rpc};
use crate::fake_gpu::{Fake, FakeGpu, MIB};
use crate::link::{AggregatorLink, EventHandler, Grant, LinkError};
use crate::protocol::{
    Doorbell, Event, GuestMapping, GuestTarget, Hello, PROTOCOL_VERSION, RefusalKind, Request, SpaceId,
    TenantLimits,
};
use crate::wire::MAX_RUNLIST;
use crate::{LinkTimeouts, connect, connect_in_process};
use gpuvmk_chip::addr::{Gpa, GpuVa, GuestChannel, GuestVram, HostChannel};
use gpuvmk_chip::{Chip, Engine, EngineSet};
use gpuvmk_control_client::DriverCounters;
use gpuvmk_gpu::GpuEvent;
use gpuvmk_host::cancel::Cancel;
use gpuvmk_scheduler::share::Share;

const PATIENCE: Duration = Duration::from_secs(10);

struct Recorder {
    events: Mutex<Sender<Option<Event>>>,
}

impl EventHandler for Recorder {
    fn event(&self, event: Event) {
        let _ = self.events.lock().unwrap().send(Some(event));
    }

    fn lost(&self, _reason: &str) {
        let _ = self.events.lock().unwrap().send(None);
    }
}

/// Events as they arrive; `None` is the loss of the aggregator.
fn receiver(link: &dyn AggregatorLink) -> Receiver<Option<Event>> {
    let (sender, receiver) = mpsc::channel();
    link.connect(Arc::new(Recorder { events: Mutex::new(sender) }));
    receiver
}

fn hello(name: &str) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        name: name.into(),
        chip: Chip::GF100.into(),
        vram: 64 * MIB,
        channels: 4,
        share: Share::default(),
        limits: TenantLimits::default(),
    }
}

struct Setup {
    service: Option<ServiceHandle>,
    fake: Fake,
    folder: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        Self::on(FakeGpu::new())
    }

    fn on((gpu, fake): (FakeGpu, Fake)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path().join("gpu"), folder.path().join("control"));
        let service = Service::start(Box::new(gpu), None, &config).unwrap();
        Self { service: Some(service), fake, folder }
    }

    fn service(&self) -> &ServiceHandle {
        self.service.as_ref().unwrap()
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("gpu")
    }

    fn join(&self, name: &str) -> (Arc<dyn AggregatorLink>, Grant) {
        connect(&self.path(), hello(name), &LinkTimeouts::none()).unwrap()
    }
}

fn config(socket: PathBuf, control: PathBuf) -> Config {
    let spec = |path| Some(SocketSpec::private(path));
    Config {
        socket: spec(socket),
        control: spec(control),
        backend: "fake".into(),
        poll: Duration::from_micros(50),
        ..Config::in_process(PolicyKind::Fifo)
    }
}

/// An enabled and listed channel 0 with address space 0.
fn furnish(link: &dyn AggregatorLink) {
    let channel = GuestChannel(0);
    let create = Request::CreateChannel {
        context_of: None,
        channel,
        space: SpaceId(0),
        gpfifo: GpuVa(0),
        gpfifo_entries_log2: 9,
        userd: GuestVram(0),
        engines: EngineSet::GRAPHICS,
    };
    for request in [
        Request::CreateSpace(SpaceId(0)),
        create,
        Request::EnableChannel { channel, enabled: true },
        Request::SetRunlist(vec![channel]),
    ] {
        link.request(&request, None).unwrap();
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} does not come true");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn tenant_over_a_socket_gets_its_window_and_is_served() {
    let setup = Setup::new();

    let (link, grant) = setup.join("vm1");
    furnish(&*link);

    assert_eq!((grant.vram, grant.channels), (64 * MIB, 4));
    assert_eq!(grant.window.iter().map(|piece| piece.size).sum::<u64>(), 64 * MIB);
    assert_eq!(setup.fake.state().channels.len(), 1);
}

#[test]
fn tenant_in_process_is_served_the_same() {
    let setup = Setup::new();

    let (link, grant) = connect_in_process(setup.service(), hello("vm1")).unwrap();
    furnish(&*link);

    assert_eq!(grant.vram, 64 * MIB);
    assert_eq!(setup.fake.state().runlist.len(), 1);
}

#[test]
fn status_has_what_backends_report_each_with_its_tenant() {
    let setup = Setup::new();
    let links = ["vm1", "vm2"].map(|name| setup.join(name).0);
    let reports = [1, 100].map(|first: u64| {
        let numbers: [u64; DriverCounters::NUMBERS] = std::array::from_fn(|place| first + place as u64);
        DriverCounters::from_numbers(numbers)
    });

    for (count, (link, report)) in (7..).zip(links.iter().zip(&reports)) {
        link.report_trapped(count);
        link.report_driver(report);
    }

    let status = setup.service().status().unwrap();
    let told: Vec<_> = status.tenants.iter().map(|tenant| (tenant.trapped, tenant.driver)).collect();
    assert_eq!(told, [(7, reports[0]), (8, reports[1])]);
}

#[test]
fn doorbells_arrive_and_are_counted() {
    let setup = Setup::new();
    let (link, _grant) = setup.join("vm1");
    furnish(&*link);

    for gp_put in 1..=50 {
        setup.fake.state().stored.insert(HostChannel(1), gp_put);
        link.doorbell(Doorbell { channel: GuestChannel(0), gp_put });
        std::thread::sleep(Duration::from_micros(300));
    }

    until("the last doorbell", || setup.fake.state().rung.last().is_some_and(|(_, put)| *put == 50));
    assert!(setup.service().status().unwrap().tenants[0].submissions > 1);
}

#[test]
fn requests_through_the_mailbox_are_answered_awake_and_asleep() {
    let setup = Setup::new();
    for awake in [Duration::from_secs(1), Duration::from_nanos(1)] {
        let timeouts = LinkTimeouts { awake, ..LinkTimeouts::none() };
        let (link, _grant) = connect(&setup.path(), hello("vm1"), &timeouts).unwrap();
        furnish(&*link);

        let long = Request::SetRunlist(vec![GuestChannel(9); MAX_RUNLIST]);
        for round in 0..200 {
            let refusal = link.request(&Request::DestroyChannel(GuestChannel(3)), None).unwrap_err();
            assert!(matches!(&refusal, LinkError::Refused { kind: RefusalKind::BadId, .. }), "{refusal}");
            // Files go by the socket, with nothing left in the mailbox.
            let file = rustix::fs::memfd_create("ram", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, MIB).unwrap();
            let gpa = Gpa(0);
            let map = Request::DmaMap { gpa, size: MIB, offset: 0, writable: true };
            link.request(&map, Some(file)).unwrap();
            link.request(&Request::DmaUnmap { gpa, size: MIB }, None).unwrap();
            if round % 50 == 0 {
                std::thread::sleep(Duration::from_millis(1));
                link.request(&long, None).unwrap_err();
            }
        }
        // An answer that comes later.
        link.request(&Request::Reset { scrub: true }, None).unwrap();
        drop(link);
        until("no tenants", || setup.service().status().unwrap().tenants.is_empty());
    }
}

#[test]
fn flood_of_doorbells_is_limited_and_its_last_one_arrives() {
    let setup = Setup::new();
    let (flood, _grant) = setup.join("flood");
    let (victim, _grant) = setup.join("victim");
    furnish(&*flood);
    let start = Instant::now();
    let mut gp_put = 0;

    while start.elapsed() < Duration::from_millis(300) {
        gp_put += 1;
        setup.fake.state().stored.insert(HostChannel(1), gp_put);
        flood.doorbell(Doorbell { channel: GuestChannel(0), gp_put });
        if gp_put % 1000 == 0 {
            victim.request(&Request::CreateSpace(SpaceId(0)), None).unwrap();
            victim.request(&Request::DestroySpace(SpaceId(0)), None).unwrap();
        }
    }

    until("the last doorbell", || setup.fake.state().rung.last().is_some_and(|(_, put)| *put == gp_put));
    let taken = setup.fake.state().rung.len() as u128;
    assert!(taken <= 201 * (start.elapsed().as_millis() + 2), "{taken} of {gp_put} doorbells were taken");
}

#[test]
fn events_arrive_in_order() {
    let setup = Setup::new();
    let (link, _grant) = setup.join("vm1");
    furnish(&*link);
    let events = receiver(&*link);

    setup.fake.report(GpuEvent::NonStall(Engine::Graphics));
    assert_eq!(events.recv_timeout(PATIENCE), Ok(Some(Event::NonStall(Engine::Graphics))));
    link.request(&Request::Preempt(GuestChannel(0)), None).unwrap();
    assert_eq!(events.recv_timeout(PATIENCE), Ok(Some(Event::Preempted(GuestChannel(0)))));
}

#[test]
fn refusals_carry_their_text() {
    let setup = Setup::new();
    let (link, _grant) = setup.join("vm1");

    let refusal = link.request(&Request::DestroyChannel(GuestChannel(3)), None).unwrap_err();

    assert!(
        matches!(&refusal, LinkError::Refused { kind: RefusalKind::BadId, message } if message.contains("channel 3")),
        "{refusal}"
    );
}

#[test]
fn reset_is_answered_after_the_hardware_let_go() {
    let setup = Setup::new();
    let (link, _grant) = setup.join("vm1");
    furnish(&*link);

    link.request(&Request::Reset { scrub: true }, None).unwrap();

    assert!(setup.fake.state().channels.is_empty());
    furnish(&*link);
}

#[test]
fn storm_is_held_to_its_part_of_the_thread_and_nobody_is_stuck() {
    let setup = Setup::new();
    let storm = |name: &str, thread_time: u8| {
        let limits = TenantLimits { thread_time, ..TenantLimits::default() };
        let (link, _grant) =
            connect(&setup.path(), Hello { limits, ..hello(name) }, &LinkTimeouts::none()).unwrap();
        furnish(&*link);
        let mapping = |page: u64| GuestMapping {
            va: GpuVa(page << 12),
            pages: 1,
            page_shift: 12,
            target: GuestTarget::Vram(GuestVram(0)),
            read_only: false,
            kind: 0,
        };
        let request =
            Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map: (0..512).map(mapping).collect() };
        std::thread::spawn(move || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(400) {
                link.request(&request, None).unwrap();
            }
            (link, start.elapsed())
        })
    };

    let storms = [storm("held", 5), storm("free", 100)].map(|thread| thread.join().unwrap());

    let status = setup.service().status().unwrap();
    let of = |name: &str| {
        let tenant = status.tenants.iter().find(|tenant| tenant.name == name).unwrap();
        tenant.limits["thread_time"]
    };
    assert!(of("held").hits > 0, "{:?}", of("held"));
    // A twentieth, what it had saved, and one request more.
    let most = storms[0].1.as_millis() / 20 + 5 + 20;
    assert!(u128::from(of("held").used) <= most, "{:?} of {most} ms", of("held"));
    for (link, _) in &storms {
        link.request(&Request::CreateSpace(SpaceId(1)), None).unwrap();
    }
}
