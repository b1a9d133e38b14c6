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
fn second_vm_of_the_same_name_is_refused() {
    let setup = Setup::new();
    let (_link, _grant) = setup.join("vm1");

    let refusal = connect(&setup.path(), hello("vm1"), &LinkTimeouts::none()).err().unwrap();

    assert!(matches!(refusal, LinkError::Refused { kind: RefusalKind::Name, .. }), "{refusal}");
}

#[test]
fn dropped_link_gives_everything_back_and_the_name_is_free() {
    let setup = Setup::new();
    for _ in 0..20 {
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
fn reset_is_answered_after_the_hardware_let_go() {
    let setup = Setup::new();
    let (link, _grant) = setup.join("vm1");
    furnish(&*link);

    link.request(&Request::Reset { scrub: true }, None).unwrap();

    assert!(setup.fake.state().channels.is_empty());
    furnish(&*link);
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
fn control_socket_answers_every_method() {
    use std::io::{BufRead, BufReader, Write};

    use serde_json::Value;
    let setup = Setup::new();
    let (_link, _grant) = setup.join("vm1");
    let stream = UnixStream::connect(setup.folder.path().join("control")).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut ask = |method: &str, params: Value| {
        let call = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        writeln!(&stream, "{call}").unwrap();
        let mut answer = String::new();
        reader.read_line(&mut answer).unwrap();
        let mut answer = serde_json::from_str::<Value>(&answer).unwrap();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)));
        let error = answer["error"].take();
        answer.get_mut("result").map_or(error, Value::take)
    };

    let status = ask("status", json!({}));
    assert_eq!(ask("vm.show", json!({ "vm": "vm1" }))["vram"], 64 * MIB);
    assert_eq!(ask("vm.show", json!({ "vm": "vm2" }))["data"], json!({ "connected": ["vm1"] }));
    assert_eq!(ask("vm.set", json!({ "vm": "vm1", "settings": ["weight=300"] }))["share"]["weight"], 300);
    assert_eq!(ask("vm.set", json!({ "vm": "vm1", "settings": ["weight=0"] }))["code"], -32002);
    assert_eq!(ask("gpu.set", json!({ "settings": ["policy=weighted"] }))["policy"], "weighted");
    assert_eq!(ask("version", Value::Null)["api"], methods::API_VERSION);
    assert_eq!(ask("rpc.discover", json!({})), methods::description());
    assert_eq!(ask("status", json!({ "vm": "vm1" }))["code"], -32602);
    assert!(ask("reboot", json!({}))["message"].as_str().unwrap().contains("vm.show"));

    assert_eq!(status["gpu"]["chip"], "GF100");
    assert_eq!(status["gpu"]["backend"], "fake");
    assert_eq!(status["gpu"]["policy"], "fifo");
    assert_eq!(status["tenants"][0]["name"], "vm1");
    assert_eq!(status["tenants"][0]["vram"], 64 * MIB);
}

#[test]
fn every_method_that_is_described_is_served() {
    let setup = Setup::new();
    let remote = setup.service().remote();

    for method in methods::METHODS {
        let failure = methods::serve(method.name, json!({ "nonsense": 1 }), &remote).unwrap_err();
        assert_eq!(failure.code, rpc::Code::Params as i32, "{}: {failure:?}", method.name);
    }
}

#[test]
fn endless_control_line_ends_the_connection() {
    use std::io::{Read, Write};
    let setup = Setup::new();
    let mut stream = UnixStream::connect(setup.folder.path().join("control")).unwrap();

    let _ = stream.write_all(&[b'x'; 8192]);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);

    assert!(rest.is_empty());
    assert!(setup.service().status().is_some());
}

#[test]
fn socket_in_use_is_refused() {
    let setup = Setup::new();
    let (gpu, _fake) = FakeGpu::new();

    let second = Service::start(Box::new(gpu), None, &config(setup.path(), setup.folder.path().join("x")));

    assert!(matches!(second, Err(StartError::Bind(BindError::InUse(_)))));
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
