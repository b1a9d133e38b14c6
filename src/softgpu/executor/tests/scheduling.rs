use super::rig::*;
use crate::Preemption;
use gpuvmk_backend::{EngineBackend as _, FifoState};
use gpuvmk_chip::gh100::methods::{copy, host, inline};
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_gpu::*;

const SRC: u64 = 0x30_0000_0000;
const DST: u64 = 0x31_0000_0000;
const SEM: u64 = 0x32_0000_0000;
const SIZE: u64 = 4 << 20;

/// A copy of 4 MiB, many times.
fn long_copy(times: usize) -> Vec<u32> {
    let mut words = copy_lines(SRC, DST, 0, SIZE as u32, 1, 0);
    let launch = words.split_off(words.len() - 2);
    words.extend(std::iter::repeat_n(launch, times).flatten());
    words
}

fn setup(rig: &mut Rig) -> (SpaceHandle, u64) {
    let space = rig.space();
    rig.buffer(space, SRC, SIZE);
    rig.buffer(space, DST, SIZE);
    let memory = rig.buffer(space, SEM, 0x1000);
    (space, memory)
}

fn busy(rig: &mut Rig) -> Vec<Engine> {
    let sample = rig.gpu.sample_engines();
    sample.into_iter().filter_map(|(engine, channel)| channel.map(|_| engine)).collect()
}

#[test]
fn engines_work_at_the_same_time() {
    let mut rig = Rig::new();
    let (space, _) = setup(&mut rig);
    let engines = [graphics(), EngineSet::COPY1, EngineSet::COPY2];
    let mut channels: Vec<_> = engines.into_iter().map(|engines| rig.channel(space, engines)).collect();
    for channel in &mut channels {
        rig.submit(channel, &long_copy(500));
    }
    let all = [Engine::COPY0, Engine::COPY1, Engine::COPY2];
    rig.wait(|rig| busy(rig) == all);
    for channel in &channels {
        rig.gpu.destroy_channel(channel.id).unwrap();
    }
    assert_eq!(busy(&mut rig), []);
}

#[test]
fn one_host_unit_serves_the_graphics_runlist_while_other_engines_work() {
    let mut rig = Rig::new();
    let (space, memory) = setup(&mut rig);
    let ready = EngineSet::GRAPHICS | EngineSet::COPY0 | EngineSet::COPY1 | EngineSet::COPY2;
    let state = FifoState { enabled: true, pbdma_mask: 1, ready, large_pages_64k: false };
    rig.gpu.core.set_fifo_state(state);
    // Nobody is taken off an engine for others.
    rig.gpu.core.set_preemption(Preemption::Methods);
    let mut long = [EngineSet::COPY1, EngineSet::COPY2].map(|engines| rig.channel(space, engines));
    let mut short = rig.channel(space, graphics());
    for channel in &mut long {
        // 4 TiB.
        rig.submit(channel, &copy_lines(SRC, DST, 0, SIZE as u32, 1 << 20, 0));
    }
    let both = [Engine::COPY1, Engine::COPY2];
    rig.wait(|rig| busy(rig) == both);

    for round in 1..=20 {
        let words = [copy_lines(SRC, DST, 0, 64, 1, 0), semaphore(SEM, round, 1)].concat();
        rig.run(&mut short, &words);
        assert_eq!(u64::from(rig.read_u32(memory)), round);
    }

    assert!(busy(&mut rig).ends_with(&both));
    assert!(long.iter().all(|channel| !rig.done(channel)) && rig.errors().is_empty());
}

#[test]
fn channels_of_an_engine_take_turns() {
    let mut rig = Rig::new();
    let (space, memory) = setup(&mut rig);
    let mut long = rig.channel(space, EngineSet::COPY1);
    let mut short = rig.channel(space, EngineSet::COPY1);
    rig.submit(&mut long, &long_copy(1000));
    rig.wait(|rig| busy(rig) == [Engine::COPY1]);
    for round in 1..10 {
        let words = [copy_lines(SRC, DST, 0, 64, 1, 0), semaphore(SEM, round, 1)].concat();
        rig.run(&mut short, &words);
        assert_eq!(u64::from(rig.read_u32(memory)), round);
    }
    assert!(!rig.done(&long), "too short to tell");
}

#[test]
fn preempted_channel_goes_on_where_it_was() {
    let mut rig = Rig::new();
    let (space, memory) = setup(&mut rig);
    let mut channel = rig.channel(space, EngineSet::COPY1);
    rig.submit(&mut channel, &[long_copy(20), semaphore(SEM, 5, 1)].concat());
    rig.wait(|rig| busy(rig) == [Engine::COPY1]);

    rig.gpu.enable_channel(channel.id, false).unwrap();
    rig.gpu.preempt_channel(channel.id).unwrap();
    let wanted = GpuEvent::Preempted(channel.id);
    rig.wait_event(|event| (*event == wanted).then_some(()));
    assert_eq!(busy(&mut rig), []);
    rig.settle();
    assert_eq!(rig.read_u32(memory), 0, "nothing runs meanwhile");

    rig.gpu.enable_channel(channel.id, true).unwrap();
    rig.wait_done(&channel);
    assert_eq!(rig.read_u32(memory), 5);
    assert!(rig.errors().is_empty());
}

#[test]
fn idle_channel_is_preempted_at_once() {
    let mut rig = Rig::new();
    let space = rig.space();
    let channel = rig.channel(space, EngineSet::COPY1);
    rig.gpu.preempt_channel(channel.id).unwrap();
    rig.gpu.take_events(&mut rig.events);
    assert_eq!(rig.events, [GpuEvent::Preempted(channel.id)]);
}

#[test]
fn contexts_are_kept_apart_and_across_switches() {
    let mut rig = Rig::new();
    let (space, _) = setup(&mut rig);
    let mut channels: Vec<_> = (0..3).map(|_| rig.channel(space, graphics())).collect();
    let memory = rig.buffer(space, SEM + 0x10_0000, 0x1000);
    let word = |number: u64| SEM + 0x10_0000 + number * 16;
    for (number, channel) in (0..).zip(&mut channels) {
        let words = [
            inc(2, inline::LINE_LENGTH_IN, &[4, 1, hi(word(number)), lo(word(number)), 0]),
            inc(2, inline::LAUNCH_DMA, &[1]),
            inc(4, copy::OFFSET_IN_UPPER, &[hi(word(number)), lo(word(number))]),
            inc(4, copy::OFFSET_OUT_UPPER, &[hi(word(number)), lo(word(number)) + 8]),
            inc(4, copy::LINE_LENGTH_IN, &[4, 1]),
        ];
        rig.run(channel, &words.concat());
    }
    for (number, channel) in (1u32..).zip(&mut channels) {
        let data = fixed(2, inline::LOAD_INLINE_DATA, &[number]);
        rig.run(channel, &[data, inc(4, copy::LAUNCH_DMA, &[0x386])].concat());
    }
    for number in 0..3 {
        let expected = number + 1;
        assert_eq!(rig.read_u64(memory + number * 16), expected);
        assert_eq!(rig.read_u64(memory + number * 16 + 8), expected);
    }
}

#[test]
fn only_enabled_and_listed_channels_run() {
    let mut rig = Rig::new();
    let (space, memory) = setup(&mut rig);
    let mut channel = rig.idle_channel(space, EngineSet::COPY1);
    rig.submit(&mut channel, &semaphore(SEM, 1, 1));
    rig.settle();
    rig.gpu.enable_channel(channel.id, true).unwrap();
    rig.settle();
    assert_eq!(rig.read_u32(memory), 0);
    rig.list(channel.id);
    rig.wait_done(&channel);
    assert_eq!(rig.read_u32(memory), 1);

    rig.unlist(channel.id);
    rig.submit(&mut channel, &semaphore(SEM, 2, 1));
    rig.settle();
    assert_eq!(rig.read_u32(memory), 1);
}

#[test]
fn destroyed_channel_writes_nothing_more() {
    let mut rig = Rig::new();
    let (space, _) = setup(&mut rig);
    let target = rig.alloc(0x1000);
    rig.map(space, SEM + 0x2000, target, 0x1000);
    let mut channel = rig.channel(space, EngineSet::COPY1);
    rig.submit(&mut channel, &long_copy(500));
    rig.wait(|rig| busy(rig) == [Engine::COPY1]);

    let start = std::time::Instant::now();
    rig.gpu.destroy_channel(channel.id).unwrap();
    assert!(start.elapsed().as_millis() < 1000, "{:?}", start.elapsed());
    rig.gpu.clear_space(space).unwrap();
    rig.gpu.destroy_space(space).unwrap();

    let size = rig.memory.size() as usize;
    let before = rig.read(rig.base, size);
    rig.settle();
    assert!(rig.read(rig.base, size) == before);
    assert!(rig.errors().is_empty());
}

#[test]
fn executor_ends_in_the_middle_of_work() {
    let mut rig = Rig::new();
    let (space, _) = setup(&mut rig);
    let mut channel = rig.channel(space, EngineSet::COPY1);
    rig.submit(&mut channel, &[long_copy(500), immediate(0, host::NOP, 0)].concat());
    rig.wait(|rig| busy(rig) == [Engine::COPY1]);
    let start = std::time::Instant::now();
    drop(rig);
    assert!(start.elapsed().as_millis() < 1000, "{:?}", start.elapsed());
}
