//! Long work on engines' own threads: who is free meanwhile, and how it ends.

use std::sync::Arc;
use std::time::Instant;

use super::commands::*;
use super::recorder::*;
use super::rig::*;
use crate::chip::{Description, EngineRow, GF100};
use crate::engine::model::{Effects, Model, Progress, Refusal, Run};
use crate::fifo::Worker;
use crate::mmu::fermi::FermiTables;
use crate::{Core, Preemption};
use gpuvmk_backend::{Backend, EngineBackend, EngineStatus, FifoState};
use gpuvmk_chip::addr::{GuestChannel, HostChannel};
use gpuvmk_chip::gf100::regs::pgraph::NV_PGRAPH_INTR;
use gpuvmk_chip::stream::Method;
use gpuvmk_chip::{Engine, EngineSet};

const VA: u64 = 0x4000_0000;
const DST: u64 = 0x5000_0000;
const SIZE: u64 = 4 << 20;

const BOTH: [Preemption; 2] = [Preemption::Anywhere, Preemption::Methods];

/// Writes `value` to VA.
fn mark(value: u32) -> Vec<u32> {
    semaphore(VA, value, 2 | 1 << 24)
}

/// 1 MiB from the beginning to the middle of what lies at DST, again and again.
fn copies(times: u32) -> Vec<u32> {
    m2mf_copy(DST, DST + SIZE / 2, 0, 1 << 20, times)
}

/// More than any test waits for.
fn endless() -> Vec<u32> {
    copies(100_000_000)
}

/// A rig with one PBDMA.
fn rig(preemption: Preemption) -> Rig {
    let rig = Rig::new();
    rig.core.set_preemption(preemption);
    rig.core.set_fifo_state(FifoState { pbdma_mask: 1, ..Rig::running() });
    rig
}

/// A channel with a page at VA and SIZE bytes at DST; their places in VRAM.
fn channel(rig: &Rig, number: u16) -> (Channel, u64, u64) {
    let mut space = rig.space();
    let (page, memory) = (rig.alloc(0x1000), rig.alloc(SIZE));
    rig.map(&mut space, VA, vram(page), 0x1000);
    rig.map_pages(&mut space, DST, vram(memory), SIZE, 17, PageFlags::default());
    (rig.channel(number, &mut space), page, memory)
}

fn worker(rig: &Rig, channel: &Channel) -> Option<Worker> {
    rig.core.worker(HostChannel(channel.number))
}

fn works_alone(rig: &Rig, channel: &Channel, engine: Engine) -> bool {
    worker(rig, channel) == Some(Worker::Engine(engine))
}

#[test]
fn others_have_the_pbdma_while_an_engine_works() {
    for preemption in BOTH {
        let rig = rig(preemption);
        let (mut long, ..) = channel(&rig, 1);
        let (mut other, page, memory) = channel(&rig, 2);
        rig.write(memory, &pattern(1, 0x1000));
        rig.submit(&mut long, &endless());
        rig.wait(|| works_alone(&rig, &long, Engine::Graphics));

        for round in 1..=50 {
            let to = DST + u64::from(round) * 0x1000;
            let words = [pcopy_copy(0x90b5, DST, to, 0, 0x1000, 1), mark(round)].concat();
            rig.run(&mut other, &words);
            assert_eq!(rig.read_u32(page), round);
            assert_eq!(rig.read(memory + (to - DST), 0x1000), pattern(1, 0x1000));
        }
        // An acquire that waits for the CPU, beside it.
        rig.submit(&mut other, &[semaphore(VA, 7000, 1), mark(7001)].concat());
        rig.write_u32(page, 7000);
        rig.wait_done(&other);

        assert!(works_alone(&rig, &long, Engine::Graphics), "nobody wants its engine");
        let status = rig.core.engine_status(Engine::Graphics);
        assert!(status.busy && status.channel == Some(GuestChannel(1)) && !rig.done(&long));
        assert_eq!(rig.events.all(), []);
    }
}

#[test]
fn engine_that_works_is_waited_for_and_its_pbdma_is_not() {
    let rig = rig(Preemption::Methods);
    let (mut long, ..) = channel(&rig, 1);
    let (mut rival, rivals_page, _) = channel(&rig, 2);
    let (mut other, page, _) = channel(&rig, 3);
    rig.submit(&mut long, &endless());
    rig.wait(|| works_alone(&rig, &long, Engine::Graphics));

    rig.submit(&mut rival, &[mark(1), copies(1), mark(2)].concat());
    rig.wait(|| rig.read_u32(rivals_page) == 1);
    for round in 1..=20 {
        rig.run(&mut other, &mark(round));
        assert_eq!(rig.read_u32(page), round);
    }
    assert!(rig.read_u32(rivals_page) == 1 && works_alone(&rig, &long, Engine::Graphics));

    rig.core.reset_engines(EngineSet::GRAPHICS);
    rig.wait_done(&rival);
    assert_eq!(rig.read_u32(rivals_page), 2);
    assert!(!rig.done(&long) && worker(&rig, &long).is_none());
}

#[test]
fn channel_goes_on_behind_its_long_work_and_not_before() {
    let rig = rig(Preemption::Anywhere);
    let (mut channel, page, memory) = channel(&rig, 1);
    for round in 1..=20 {
        let data = pattern(round, 1 << 20);
        rig.write(memory, &data);
        let short = pcopy_copy(0x90b5, DST + SIZE / 2, DST + SIZE - 0x1000, 0, 0x1000, 1);
        rig.submit(&mut channel, &[mark(2 * round), copies(8), short, mark(2 * round + 1)].concat());
        while rig.read_u32(page) != 2 * round + 1 {
            std::hint::spin_loop();
        }
        assert!(rig.read(memory + SIZE / 2, 1 << 20) == data, "round {round}");
        assert_eq!(rig.read(memory + SIZE - 0x1000, 0x1000), data[..0x1000]);
        rig.wait_done(&channel);
    }
    rig.wait(|| {
        rig.core.engine_status(Engine::Graphics)
            == EngineStatus { busy: false, channel: Some(GuestChannel(1)), switching: false }
    });
}

#[test]
fn preempted_channel_leaves_its_engine_and_goes_on_later() {
    let rig = rig(Preemption::Anywhere);
    let (mut channel, page, memory) = channel(&rig, 1);
    let data = pattern(3, 1 << 20);
    rig.write(memory, &data);
    rig.submit(&mut channel, &[copies(3000), mark(5)].concat());
    for _ in 0..20 {
        rig.wait(|| works_alone(&rig, &channel, Engine::Graphics));
        rig.core.enable_channel(GuestChannel(1), false);
        rig.core.preempt_channel(GuestChannel(1));
        rig.wait(|| !rig.core.preempt_pending());

        assert_eq!(worker(&rig, &channel), None);
        assert_eq!(rig.core.engine_status(Engine::Graphics), EngineStatus::default());
        assert!(!rig.done(&channel) && rig.read_u32(page) == 0);
        rig.core.enable_channel(GuestChannel(1), true);
    }
    rig.wait_done(&channel);
    assert_eq!(rig.read_u32(page), 5);
    assert!(rig.read(memory + SIZE / 2, 1 << 20) == data);
    assert_eq!(rig.events.all(), []);
}

#[test]
fn preemption_between_methods_waits_for_the_end_of_long_work() {
    let rig = rig(Preemption::Methods);
    let (mut channel, page, memory) = channel(&rig, 1);
    let data = pattern(4, 1 << 20);
    rig.write(memory, &data);
    rig.submit(&mut channel, &[copies(500), mark(5)].concat());
    rig.wait(|| works_alone(&rig, &channel, Engine::Graphics));

    rig.core.enable_channel(GuestChannel(1), false);
    rig.core.preempt_channel(GuestChannel(1));
    rig.wait(|| !rig.core.preempt_pending());

    assert!(rig.read(memory + SIZE / 2, 1 << 20) == data, "it was finished");
    assert_eq!((worker(&rig, &channel), rig.read_u32(page)), (None, 0));
    assert_eq!(rig.core.engine_status(Engine::Graphics), EngineStatus::default());
    rig.core.enable_channel(GuestChannel(1), true);
    rig.wait_done(&channel);
    assert_eq!(rig.read_u32(page), 5);
}

#[test]
fn reset_of_an_engine_ends_its_long_work() {
    for preemption in BOTH {
        let rig = rig(preemption);
        let (mut long, page, _) = channel(&rig, 1);
        let (mut other, others_page, _) = channel(&rig, 2);
        rig.submit(&mut long, &[endless(), mark(1)].concat());
        rig.wait(|| works_alone(&rig, &long, Engine::Graphics));

        rig.core.reset_engines(EngineSet::GRAPHICS);

        rig.wait(|| worker(&rig, &long).is_none());
        assert_eq!(rig.core.engine_status(Engine::Graphics), EngineStatus::default());
        rig.run(&mut other, &[copies(20), mark(2)].concat());
        assert_eq!((rig.read_u32(page), rig.read_u32(others_page)), (0, 2));
        assert!(!rig.done(&long), "its channel is stopped");
    }
}

#[test]
fn reset_and_unbind_end_long_work_before_they_return() {
    for preemption in BOTH {
        for round in 0..10 {
            let rig = rig(preemption);
            let (mut long, ..) = channel(&rig, 1);
            rig.submit(&mut long, &endless());
            rig.wait(|| works_alone(&rig, &long, Engine::Graphics));
            if round % 2 == 0 || preemption == Preemption::Methods {
                rig.core.reset();
                rig.core.set_fifo_state(Rig::running());
            } else {
                rig.core.bind_channel(GuestChannel(1), None);
            }
            assert_eq!(worker(&rig, &long), None);
            assert_eq!(rig.core.engine_status(Engine::Graphics), EngineStatus::default());

            let (mut again, page, _) = channel(&rig, 2);
            rig.run(&mut again, &[copies(10), mark(9)].concat());
            assert_eq!(rig.read_u32(page), 9);
        }
    }
}

#[test]
fn fault_in_long_work_stops_its_channel_and_nobody_else() {
    let rig = rig(Preemption::Anywhere);
    let (mut long, page, _) = channel(&rig, 1);
    let (mut other, others_page, _) = channel(&rig, 2);
    // 20 MiB within what is mapped, then a line behind it.
    let words = [m2mf_copy(DST, DST + 64, SIZE as u32 - 0x1000, 1 << 20, 20), mark(1)].concat();
    rig.submit(&mut long, &words);

    let (channel, fault) = rig.events.wait_fault();

    assert_eq!(channel, Some(GuestChannel(1)));
    assert!((DST + SIZE..DST + 2 * SIZE).contains(&fault.address.0), "{fault:x?}");
    rig.run(&mut other, &[copies(20), mark(2)].concat());
    assert_eq!((rig.read_u32(page), rig.read_u32(others_page)), (0, 2));
    assert_eq!(rig.events.all().len(), 1);
}

/// Copies that are done one after the other, and the memory that comes of it.
struct Stream {
    channel: Channel,
    page: u64,
    memory: u64,
    expected: Vec<u8>,
    marks: u32,
}

const SLOT: u64 = 512 << 10;
const SLOTS: u64 = SIZE / SLOT;

/// Numbers that a seed gives.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

impl Stream {
    fn new(rig: &Rig, number: u16) -> Self {
        let (channel, page, memory) = channel(rig, number);
        let expected = pattern(number.into(), SIZE as usize);
        rig.write(memory, &expected);
        Self { channel, page, memory, expected, marks: 0 }
    }

    /// One segment of copies on any engine, some short and some long, each with a mark behind it.
    fn prepare(&mut self, rig: &Rig, random: &mut Random) {
        let mut words = Vec::new();
        for _ in 0..=random.below(6) {
            let from = random.below(SLOTS);
            let to = (from + 1 + random.below(SLOTS - 1)) % SLOTS;
            let most = [64, 4096, SLOT - 4096][random.below(3) as usize];
            let length = 1 + random.below(most);
            let (from, to) = (from * SLOT + random.below(4096), to * SLOT + random.below(4096));
            // Lines behind each other, or the same one again and again, which takes longer.
            let line = length.min(0xf000);
            let (pitch, lines, length) = match random.below(4) {
                0 => (0, 20_000_000 / line.max(1 << 14), line),
                _ => (line, length / line, length / line * line),
            };
            let (source, target) = (DST + from, DST + to);
            let [pitch, line, lines] = [pitch, line, lines].map(|value| value as u32);
            words.extend(match random.below(3) {
                0 => m2mf_copy(source, target, pitch, line, lines),
                1 => pcopy_copy(0x90b5, source, target, pitch, line, lines),
                _ => pcopy_copy(0x90b8, source, target, pitch, line, lines),
            });
            let (from, to, length) = (from as usize, to as usize, length as usize);
            self.expected.copy_within(from..from + length, to);
            self.marks += 1;
            words.extend(mark(self.marks));
        }
        rig.prepare(&mut self.channel, &words);
    }
}

/// Does something to a running channel that must change nothing of what it does.
fn disturb(rig: &Rig, number: u16, random: &mut Random) {
    let channel = GuestChannel(number);
    match random.below(6) {
        0 => rig.core.preempt_channel(channel),
        1 => {
            rig.core.enable_channel(channel, false);
            rig.core.preempt_channel(channel);
            rig.wait(|| !rig.core.preempt_pending());
            rig.core.enable_channel(channel, true);
        }
        2 => {
            rig.core.block_runlist(true);
            rig.core.block_runlist(false);
        }
        3 => {
            rig.core.enable_channel(channel, false);
            rig.core.enable_channel(channel, true);
        }
        4 => {
            rig.unlist(number);
            rig.list(number);
        }
        _ => rig.core.doorbell(channel, 0),
    }
}

/// Seeded, and compared with what one thread makes of the same copies.
#[test]
fn any_mixture_of_short_and_long_work_gives_what_one_thread_gives() {
    let mut handed_over = 0;
    for seed in 1..=12_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let rig = rig(BOTH[random.below(2) as usize]);
        let pbdma_mask = 1 + random.below(7) as u32;
        rig.core.set_fifo_state(FifoState { pbdma_mask, ..Rig::running() });
        let mut streams: Vec<_> = (1..=4).map(|number| Stream::new(&rig, number)).collect();
        for stream in &mut streams {
            (0..8).for_each(|_| stream.prepare(&rig, &mut random));
        }
        streams.iter().for_each(|stream| rig.ring_doorbell(&stream.channel));

        let start = Instant::now();
        while !streams.iter().all(|stream| rig.done(&stream.channel)) {
            assert!(start.elapsed() < PATIENCE, "seed {seed}: {:?}", rig.events.all());
            let all = streams.iter().map(|stream| worker(&rig, &stream.channel));
            handed_over += all.filter(|worker| matches!(worker, Some(Worker::Engine(_)))).count();
            disturb(&rig, 1 + random.below(4) as u16, &mut random);
        }

        for Stream { page, memory, expected, marks, .. } in &streams {
            assert_eq!(rig.read_u32(*page), *marks, "seed {seed}");
            assert!(rig.read(*memory, SIZE as usize) == *expected, "seed {seed}: other bytes");
        }
        assert_eq!(rig.events.all(), [], "seed {seed}");
    }
    assert!(handed_over > 0, "nothing was long");
}

/// Works until it is to pause, and panics when it is to go on.
#[derive(Debug, Default)]
struct Mistaken;

impl Model for Mistaken {
    fn method(&mut self, run: &Run<'_>, method: Method, _: &mut Effects) -> Result<Progress, Refusal> {
        match method.method {
            0x100 => {
                while !run.control.should_pause() {
                    std::hint::spin_loop();
                }
                Ok(Progress::Paused)
            }
            0x104 => Err(Refusal::Graphics { status: NV_PGRAPH_INTR::CLASS_ERROR.mask(), class: 1 }),
            _ => Ok(Progress::Done),
        }
    }

    fn resume(&mut self, _: &Run<'_>, _: &mut Effects) -> Result<Progress, Refusal> {
        panic!("as a mistake would");
    }

    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    fn load(&mut self, _: &[u8]) {}

    fn image_size(&self) -> usize {
        0
    }

    fn image_offset(&self) -> u64 {
        0
    }

    fn reset(&mut self) {}
}

const fn mistaken(engine: Engine) -> EngineRow {
    EngineRow { engine, model: || Box::<Mistaken>::default() }
}

static MISTAKEN: Description = Description {
    channels: GF100.channels,
    pbdmas: GF100.pbdmas,
    engines: &[mistaken(Engine::Graphics), mistaken(Engine::COPY0), mistaken(Engine::COPY1)],
    masks: GF100.masks,
    page_shifts: GF100.page_shifts,
    host: GF100.host,
};

#[test]
fn engine_whose_thread_panics_counts_as_idle_and_the_rest_goes_on() {
    let core = Core::of(&MISTAKEN, Arc::new(FermiTables::default()), 64 << 20, crate::Workers::ONE).unwrap();
    let events = Arc::new(Recorder::default());
    let receiver = events.clone();
    let mut rig = Rig::of(core, |_| receiver);
    rig.events = events;
    let (mut mistaken, page, _) = channel(&rig, 1);
    let (mut other, others_page, _) = channel(&rig, 2);
    rig.run(&mut mistaken, &inc(4, 0, &[0x90b5]));
    assert_eq!(rig.core.engine_status(Engine::COPY0).channel, Some(GuestChannel(1)));

    rig.submit(&mut mistaken, &[inc(4, 0x100, &[0]), mark(1)].concat());

    // The daemons end with such a thread. Here the channel has nobody who would go on with it.
    rig.wait(|| rig.core.engine_status(Engine::COPY0) == EngineStatus::default());
    rig.settle();
    assert_eq!(rig.core.engine_status(Engine::COPY0), EngineStatus::default());
    assert!(works_alone(&rig, &mistaken, Engine::COPY0) && rig.read_u32(page) == 0);
    rig.run(&mut other, &[inc(5, 0, &[0x90b8]), mark(2)].concat());
    assert_eq!(rig.read_u32(others_page), 2);
    rig.submit(&mut other, &inc(5, 0x104, &[3]));
    assert_eq!(rig.events.wait_graphics_error().1.method, 0x104);
}
