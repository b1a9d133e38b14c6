//! The machine over the driver of a real GPU, whose calls take the times that were measured on hardware: no
//! step of the thread that owns the GPU is longer than a slice and one call, whatever a tenant makes it do,
//! and a neighbour is served in between.

use super::*;
use crate::protocol::GuestRange;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::{ChannelStop, StopCause};
use gpuvmk_gpu::rm::timed::Timed;
use gpuvmk_host::clock::Clock;

const GIB: u64 = 1 << 30;
const MICRO: u64 = 1000;
const MILLI: u64 = 1000 * MICRO;

/// A slice, and the longest call that maps, unmaps or asks.
const SLICE_AND_CALL: u64 = 100 * MICRO + 100 * MICRO;

/// A channel that is made or destroyed is a call of 1.5 ms that cannot be cut.
const SLICE_AND_CHANNEL: u64 = 100 * MICRO + 1600 * MICRO;

/// Steps between two requests of the neighbour.
const ASKS_EVERY: usize = 64;

struct Rig {
    machine: Machine,
    timed: Timed,
    a: TenantId,
    b: TenantId,
    /// When what is judged began.
    began: u64,
    longest: u64,
    steps: usize,
    served: usize,
}

impl Rig {
    fn new(vram: u64, channels: u16) -> Self {
        let (driver, timed) = Timed::new(2 * GIB);
        let clock: Arc<dyn Clock> = Arc::clone(&timed.clock) as _;
        let scheduler = Scheduler::new(PolicyKind::Fifo, Settings::default());
        let machine =
            Machine::new(Box::new(driver), None, scheduler).with_clock(clock).with_unlimited_cleanups();
        let (a, b) = (TenantId(0), TenantId(0));
        let mut rig = Self { machine, timed, a, b, began: 0, longest: 0, steps: 0, served: 0 };
        rig.a = rig.admit("a", vram, channels);
        rig.b = rig.admit("b", 64 * MIB, 8);
        for tenant in [rig.a, rig.b] {
            rig.done(tenant, Request::CreateSpace(SpaceId(0)));
        }
        rig.longest = 0;
        rig
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.timed.clock.now())
    }

    fn hello(name: &str, vram: u64, channels: u16) -> Hello {
        Hello { chip: Chip::GH100.into(), vram, channels, ..hello(name) }
    }

    fn admit(&mut self, name: &str, vram: u64, channels: u16) -> TenantId {
        let hello = Self::hello(name, vram, channels);
        let admitted = self.act(|machine, now| machine.admit(&hello, now)).unwrap();
        let tenant = admitted.tenant;
        if !admitted.ready {
            self.until(|output| *output == Output::Ready(tenant));
        }
        tenant
    }

    /// What the machine does now, timed.
    fn act<T>(&mut self, act: impl FnOnce(&mut Machine, Duration) -> T) -> T {
        let (now, start) = (self.now(), self.timed.clock.now());
        let result = act(&mut self.machine, now);
        self.longest = self.longest.max(self.timed.clock.now() - start);
        self.steps += 1;
        result
    }

    /// Steps until something leaves, with the neighbour's requests in between; time passes while there is no
    /// work.
    fn until(&mut self, wanted: impl Fn(&Output) -> bool) {
        for step in 0..2_000_000 {
            let more = self.act(|machine, now| {
                machine.gpu_events(now);
                machine.step(now)
            });
            if outputs(&mut self.machine).iter().any(&wanted) {
                return;
            }
            if self.b != TenantId(0) && step % ASKS_EVERY == 0 {
                self.neighbour();
            }
            if !more {
                self.timed.clock.advance(MILLI);
            }
        }
        panic!("it does not end");
    }

    /// The neighbour asks for a page.
    fn neighbour(&mut self) {
        let b = self.b;
        let outcome = self.act(|machine, now| {
            machine.request(b, map(0x20_0000, GuestTarget::Vram(GuestVram(0))), None, now)
        });
        assert_eq!(outcome, Outcome::Now(Reply::Done), "the neighbour waits");
        self.served += 1;
    }

    fn ask(&mut self, tenant: TenantId, request: Request, file: Option<OwnedFd>) -> Reply {
        match self.act(|machine, now| machine.request(tenant, request, file, now)) {
            Outcome::Now(reply) => reply,
            Outcome::Later => {
                let told = std::cell::RefCell::new(None);
                self.until(|output| match output {
                    Output::Reply(to, reply) if *to == tenant => {
                        *told.borrow_mut() = Some(reply.clone());
                        true
                    }
                    _ => false,
                });
                told.into_inner().unwrap()
            }
        }
    }

    fn done(&mut self, tenant: TenantId, request: Request) {
        let what = format!("{request:?}");
        assert_eq!(self.ask(tenant, request, None), Reply::Done, "{what:.200}");
    }

    fn ram(&mut self, gpa: u64, size: u64, writable: bool, file: OwnedFd, offset: u64) {
        let request = Request::DmaMap { gpa: Gpa(gpa), size, offset, writable };
        assert_eq!(self.ask(self.a, request, Some(file)), Reply::Done);
    }

    /// Forgets what came before.
    fn begin(&mut self) {
        (self.longest, self.steps, self.served) = (0, 0, 0);
        self.began = self.timed.clock.now();
    }

    /// That the neighbour was served as often as the time that went by allows, where no step is longer than
    /// `limit`, and no pause without work longer than a millisecond.
    fn judge_service(&self, limit: u64) {
        let took = self.timed.clock.now() - self.began;
        let due = took / (ASKS_EVERY as u64 * (limit + MILLI));
        assert!(
            self.served > 0 && self.served as u64 + 1 >= due,
            "the neighbour was served {} times in {took} ns, {due} were due",
            self.served
        );
    }

    fn judge(&self, what: &str, limit: u64) {
        println!(
            "{what}: longest step {:.3} ms of {}, neighbour served {} times",
            self.longest as f64 / 1e6,
            self.steps,
            self.served
        );
        assert!(self.longest <= limit, "{what}: a step of {} ns", self.longest);
    }

    /// That everything is free again once the first tenant has left.
    fn everything_comes_back(&mut self) {
        let (a, b) = (self.a, self.b);
        for tenant in [a, b] {
            self.b = TenantId(0);
            self.act(|machine, now| machine.leave(tenant, false, now));
            self.until(|output| *output == Output::Gone(tenant));
        }
        let now = self.now();
        let all = self.machine.admit(&Self::hello("all", 2 * GIB, 8), now);
        assert!(all.is_ok(), "{:?}", all.map(|_| ()));
    }
}

fn update(map: Vec<GuestMapping>) -> Request {
    Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map }
}

fn page(va: u64, target: GuestTarget) -> GuestMapping {
    GuestMapping { va: GpuVa(va), pages: 1, page_shift: 12, target, read_only: false, kind: 0 }
}

/// Pages that do not follow each other, on either side.
fn scattered(pages: u64) -> Vec<GuestMapping> {
    let target = |n: u64| GuestTarget::Vram(GuestVram((n * 7 % pages) << 12));
    (0..pages).map(|n| page(0x1000_0000 + n * 0x2000, target(n))).collect()
}

fn channel(id: u16, engines: EngineSet) -> Request {
    Request::CreateChannel {
        context_of: None,
        channel: GuestChannel(id),
        space: SpaceId(0),
        gpfifo: GpuVa(0x1_1000),
        gpfifo_entries_log2: 10,
        userd: GuestVram(0x1000 + 512 * u64::from(id)),
        engines,
    }
}

impl Rig {
    /// Channels that run.
    fn channels(&mut self, count: u16) {
        for id in 0..count {
            self.done(self.a, channel(id, EngineSet::COPY1));
            self.done(self.a, Request::EnableChannel { channel: GuestChannel(id), enabled: true });
        }
        for id in 1..=count {
            // One after the other: a guest may list all at once, and then pays for it.
            self.done(self.a, Request::SetRunlist((0..id).map(GuestChannel).collect()));
        }
        self.begin();
    }
}

#[test]
fn pages_all_over_a_large_memory_are_pinned_beside_the_thread() {
    let mut rig = Rig::new(64 * MIB, 8);
    rig.ram(0, 1020 * 64 * MIB, true, memfd(1020 * 64 * MIB), 0);
    rig.begin();
    let pages = (0..1020).map(|n| page(0x1000_0000 + n * 0x2000, system(n * 64 * MIB))).collect();

    rig.done(rig.a, update(pages));

    rig.judge("1020 pages, one in each 64 MiB", SLICE_AND_CALL);
    rig.judge_service(SLICE_AND_CALL);
}

#[test]
fn memory_of_a_whole_vm_that_is_named_at_once_is_pinned_beside_the_thread() {
    let mut rig = Rig::new(64 * MIB, 8);
    rig.ram(0, 4 * GIB, true, memfd(4 * GIB), 0);
    rig.begin();
    let all = GuestMapping { pages: 2048, page_shift: 21, ..page(1 << 40, system(0)) };

    rig.done(rig.a, update(vec![all]));

    rig.judge("4 GiB in one run", SLICE_AND_CALL);
    rig.judge_service(SLICE_AND_CALL);
    rig.begin();
    rig.done(rig.a, Request::DmaUnmap { gpa: Gpa(0), size: 4 * GIB });
    rig.judge("4 GiB taken away", SLICE_AND_CALL);
}

/// To hold 64 MiB takes 20 ms, and to let them go 5.
#[test]
fn partition_in_system_memory_is_held_beside_the_thread() {
    let mut rig = Rig::new(64 * MIB, 8);
    rig.timed.fill_bar1();
    rig.begin();

    let c = rig.admit("c", GIB, 8);
    rig.judge("admission to system memory", SLICE_AND_CALL);
    rig.done(c, Request::CreateSpace(SpaceId(0)));
    rig.begin();

    let all = GuestMapping { pages: 512, page_shift: 21, ..page(1 << 40, GuestTarget::Vram(GuestVram(0))) };
    rig.done(c, update(vec![all]));
    rig.judge("1 GiB of such a partition in one run", SLICE_AND_CALL);
    assert_eq!(rig.timed.held(), 512);
    rig.judge_service(SLICE_AND_CALL);
    rig.begin();

    rig.done(c, Request::Reset { scrub: true });
    rig.judge("reset with it", SLICE_AND_CALL);
    assert_eq!(rig.timed.held(), 0);
    rig.done(c, Request::CreateSpace(SpaceId(0)));
    rig.done(c, channel(0, EngineSet::COPY1));
    assert_eq!(rig.timed.held(), 1, "what its USERD is in");
    rig.begin();

    rig.act(|machine, now| machine.leave(c, false, now));
    rig.until(|output| *output == Output::Gone(c));
    rig.judge("departure with it", SLICE_AND_CHANNEL);
    assert_eq!(rig.timed.held(), 0);
}

#[test]
fn update_of_runs_that_do_not_join_and_reset_afterwards() {
    let mut rig = Rig::new(GIB, 8);
    rig.begin();
    let before = rig.timed.calls();

    rig.done(rig.a, update(scattered(1 << 16)));

    rig.judge("update of 65,536 runs", SLICE_AND_CALL);
    assert_eq!(rig.timed.calls().0 - before.0, (1 << 16) + rig.served);
    rig.judge_service(SLICE_AND_CALL);

    rig.begin();
    rig.done(rig.a, Request::Reset { scrub: false });

    rig.judge("reset with 65,536 runs", SLICE_AND_CALL);
    assert!(rig.timed.calls().1 - before.1 >= 1 << 16);
    rig.judge_service(SLICE_AND_CALL);
}

#[test]
fn reset_with_many_channels_takes_one_off_after_the_other() {
    let mut rig = Rig::new(64 * MIB, 504);
    rig.channels(500);

    rig.done(rig.a, Request::Reset { scrub: false });

    rig.judge("reset with 500 channels", SLICE_AND_CHANNEL);
    rig.judge_service(SLICE_AND_CHANNEL);
}

#[test]
fn zeroing_behind_busy_channels_keeps_nobody() {
    let mut rig = Rig::new(64 * MIB, 8);
    rig.timed.zeroing_takes(Duration::from_millis(512));
    rig.begin();
    let a = rig.a;

    rig.act(|machine, now| machine.leave(a, false, now));
    rig.until(|output| *output == Output::Gone(a));

    rig.judge("departure while others have the copy engine", SLICE_AND_CALL);
    rig.judge_service(SLICE_AND_CALL);
}

#[test]
fn channels_that_do_not_yield_are_asked_in_turn() {
    let mut rig = Rig::new(64 * MIB, 128);
    rig.channels(100);
    rig.timed.cling();
    for id in 0..100 {
        rig.done(rig.a, Request::Preempt(GuestChannel(id)));
    }
    let asked = rig.longest;
    for _ in 0..200 {
        rig.act(|machine, now| {
            machine.gpu_events(now);
            machine.step(now)
        });
        rig.neighbour();
    }

    rig.judge("100 channels that do not yield", 5 * SLICE_AND_CALL);
    assert!(asked <= 3 * SLICE_AND_CALL, "{asked}");
    let a = rig.a;
    rig.until(|output| matches!(output, Output::Event(to, Event::Stopped(ChannelStop { cause: StopCause::Hang(_), .. })) if *to == a));
    rig.judge("and are taken off", 2 * SLICE_AND_CHANNEL);
}

#[test]
fn withdrawal_of_many_ranges_and_pieces_goes_by_the_clock() {
    const RANGE: u64 = 256 * MIB;
    let mut rig = Rig::new(64 * MIB, 8);
    let file = memfd(500 * RANGE);
    for n in 0..500 {
        rig.ram(n * RANGE, RANGE, true, file.try_clone().unwrap(), n * RANGE);
    }
    let pages = (0..2000).map(|n| page(0x1000_0000 + n * 0x2000, system(n * 64 * MIB))).collect();
    rig.done(rig.a, update(pages));
    rig.begin();

    rig.done(rig.a, Request::DmaUnmap { gpa: Gpa(0), size: 500 * RANGE });

    rig.judge("500 ranges of 2000 pieces", SLICE_AND_CALL);
    rig.judge_service(SLICE_AND_CALL);
}

#[test]
fn memory_that_devices_may_only_read_is_a_fault_and_costs_nothing_else() {
    let mut rig = Rig::new(GIB, 8);
    rig.ram(0xc_0000, 0x4_0000, false, memfd(0x4_0000), 0);

    let reply = rig.ask(
        rig.a,
        update(vec![page(0x20_0000, system(0xc_0000)), page(0x30_0000, system(0xc_1000))]),
        None,
    );

    let Reply::Refused { kind, message } = reply else { panic!("{reply:?}") };
    assert_eq!(kind, RefusalKind::OutsidePartition);
    assert!(message.contains("may only be read by devices"), "{message}");
    rig.done(rig.a, update(vec![page(0x20_0000, GuestTarget::Vram(GuestVram(0)))]));
    rig.everything_comes_back();
}

#[test]
fn memory_whose_file_was_cut_off_is_a_fault_and_costs_nothing_else() {
    let mut rig = Rig::new(GIB, 8);
    let file = memfd(64 * MIB);
    rig.ram(0, 64 * MIB, true, file.try_clone().unwrap(), 0);
    rustix::fs::ftruncate(&file, 0).unwrap();

    let reply = rig.ask(rig.a, update(vec![page(0x20_0000, system(0))]), None);

    let Reply::Refused { kind, message } = reply else { panic!("{reply:?}") };
    assert_eq!(kind, RefusalKind::OutsidePartition, "{message}");
    rig.done(rig.a, update(vec![page(0x20_0000, GuestTarget::Vram(GuestVram(0)))]));
    rig.everything_comes_back();
}

/// What a driver undoes twice when memory is short (as GVT-g did once, CVE-2022-3707) would show in the
/// books.
#[test]
fn update_that_fails_for_want_of_memory_is_made_again_and_undone_once() {
    let mut rig = Rig::new(GIB, 8);
    let target = |n: u64| GuestTarget::Vram(GuestVram(n << 20));
    let pages: Vec<_> = (0..4).map(|n| page(0x20_0000 + n * 0x10_0000, target(n))).collect();
    let ranges = pages.iter().map(|page| GuestRange { va: page.va, pages: 1, page_shift: 12 });
    let unmap = Request::UpdateSpace { space: SpaceId(0), unmap: ranges.collect(), map: vec![] };
    let before = rig.timed.mapped();
    for after in 0..4 {
        rig.timed.refuse_map_after(after);
        let reply = rig.ask(rig.a, update(pages.clone()), None);
        let Reply::Refused { kind, message } = reply else { panic!("{reply:?}") };
        assert_eq!(kind, RefusalKind::OutsidePartition, "{message}");
        assert_eq!(rig.timed.mapped() - before, 3, "the other pages are there");

        rig.done(rig.a, update(pages.clone()));
        assert_eq!(rig.timed.mapped() - before, 4);
        rig.done(rig.a, unmap.clone());
        rig.done(rig.a, unmap.clone());
        assert_eq!(rig.timed.mapped(), before);
    }
    rig.everything_comes_back();
}

#[test]
fn address_spaces_of_all_vms_together_are_what_there_is() {
    let mut rig = Rig::new(64 * MIB, 128);
    for id in 1..256 {
        rig.done(rig.a, Request::CreateSpace(SpaceId(id)));
    }
    let refused = rig.ask(rig.a, Request::CreateSpace(SpaceId(256)), None);
    assert!(matches!(refused, Reply::Refused { .. }), "{refused:?}");

    let others: Vec<_> = (0..3).map(|n| rig.admit(&format!("other{n}"), 64 * MIB, 120)).collect();
    for tenant in others {
        for id in 0..240 {
            rig.done(tenant, Request::CreateSpace(SpaceId(id)));
        }
    }
}
