//! What decides whether a channel runs, and for how long.

use std::time::{Duration, Instant};

use super::commands::*;
use super::rig::*;
use gpuvmk_backend::{EngineBackend, FifoState};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::gf100::ramin::USERD_GP_PUT;
use gpuvmk_chip::{Engine, EngineSet};

const VA: u64 = 0x4000_0000;
const DST: u64 = 0x5000_0000;
const SIZE: u64 = 4 << 20;

/// Writes `value` to VA.
fn mark(value: u32) -> Vec<u32> {
    semaphore(VA, value, 2 | 1 << 24)
}

/// A space with a page at VA.
fn marked_space(rig: &Rig) -> (Space, u64) {
    let mut space = rig.space();
    let page = rig.alloc(0x1000);
    rig.map(&mut space, VA, vram(page), 0x1000);
    (space, page)
}

/// A space with a page at VA and SIZE bytes at DST.
fn busy_space(rig: &Rig) -> (Space, u64) {
    let (mut space, page) = marked_space(rig);
    let memory = rig.alloc(SIZE);
    rig.map_pages(&mut space, DST, vram(memory), SIZE, 17, PageFlags::default());
    (space, page)
}

/// About a second of copying, in one method.
fn long_copy() -> Vec<u32> {
    m2mf_copy(DST, DST + 64, 0, SIZE as u32 - 64, 2000)
}

#[test]
fn start_bit_and_runlist_are_both_needed() {
    let rig = Rig::new();
    let (mut space, page) = marked_space(&rig);
    let mut channel = rig.unlisted_channel(1, &mut space);
    rig.submit(&mut channel, &mark(1));
    rig.settle();
    assert_eq!(rig.read_u32(page), 0);

    rig.core.enable_channel(GuestChannel(1), true);
    rig.settle();
    assert_eq!(rig.read_u32(page), 0);

    rig.list(1);
    rig.wait_done(&channel);
    assert_eq!(rig.read_u32(page), 1);

    rig.unlist(1);
    rig.submit(&mut channel, &mark(2));
    rig.settle();
    assert_eq!(rig.read_u32(page), 1);

    rig.core.enable_channel(GuestChannel(1), false);
    rig.list(1);
    rig.settle();
    assert_eq!(rig.read_u32(page), 1);

    rig.core.enable_channel(GuestChannel(1), true);
    rig.wait_done(&channel);
    assert_eq!(rig.read_u32(page), 2);
}

#[test]
fn put_is_read_from_userd_when_the_channel_is_loaded() {
    let rig = Rig::new();
    let (mut space, page) = marked_space(&rig);
    let mut channel = rig.unlisted_channel(1, &mut space);
    rig.prepare(&mut channel, &mark(3));
    rig.write_u32(channel.userd + USERD_GP_PUT, channel.put);
    rig.core.enable_channel(GuestChannel(1), true);
    rig.list(1);
    rig.wait_done(&channel);
    assert_eq!(rig.read_u32(page), 3);
}

#[test]
fn fifo_pbdmas_and_engines_must_be_enabled() {
    let running = Rig::running();
    let states = [
        FifoState { enabled: false, ..running },
        FifoState { pbdma_mask: 0, ..running },
        FifoState { ready: EngineSet::COPY0 | EngineSet::COPY1, ..running },
    ];
    for state in states {
        let rig = Rig::new();
        rig.core.set_fifo_state(state);
        let (mut space, page) = marked_space(&rig);
        let mut channel = rig.channel(1, &mut space);
        rig.submit(&mut channel, &[inc(0, 0, &[0x9097]), mark(4)].concat());
        rig.settle();
        assert_eq!(rig.read_u32(page), 0, "{state:?}");

        rig.core.set_fifo_state(running);
        rig.wait_done(&channel);
        assert_eq!(rig.read_u32(page), 4, "{state:?}");
    }
}

#[test]
fn one_enabled_pbdma_serves_all_channels() {
    let rig = Rig::new();
    rig.core.set_fifo_state(FifoState { pbdma_mask: 2, ..Rig::running() });
    let mut channels = Vec::new();
    for number in 1..6 {
        let (mut space, page) = marked_space(&rig);
        channels.push((rig.channel(number, &mut space), page));
    }
    for round in 1..20 {
        for (channel, _) in &mut channels {
            rig.submit(channel, &mark(round));
        }
    }
    for (channel, page) in &channels {
        rig.wait_done(channel);
        assert_eq!(rig.read_u32(*page), 19);
    }
}

#[test]
fn blocked_runlist_runs_nothing() {
    let rig = Rig::new();
    let (mut space, page) = marked_space(&rig);
    let mut channel = rig.channel(1, &mut space);
    rig.core.block_runlist(true);
    rig.submit(&mut channel, &mark(5));
    rig.settle();
    assert_eq!(rig.read_u32(page), 0);
    rig.core.block_runlist(false);
    rig.wait_done(&channel);
}

#[test]
fn long_copy_shares_its_engine() {
    let rig = Rig::new();
    let (mut space, _) = busy_space(&rig);
    let mut hog = rig.channel(1, &mut space);
    let (mut other_space, page) = busy_space(&rig);
    let mut other = rig.channel(2, &mut other_space);
    rig.submit(&mut hog, &long_copy());
    rig.wait(|| rig.core.engine_status(Engine::Graphics).busy);

    for count in 1..=5 {
        rig.run(&mut other, &[m2mf_copy(DST, DST + 64, 64, 64, 1), mark(count)].concat());
        assert_eq!(rig.read_u32(page), count);
    }

    assert!(!rig.done(&hog), "the long copy was not long enough to tell");
}

#[test]
fn equal_loads_get_equal_time() {
    let rig = Rig::new();
    let mut channels = Vec::new();
    for number in 1..=4 {
        let (mut space, page) = busy_space(&rig);
        let mut channel = rig.channel(number, &mut space);
        // 600 MiB in steps of 256 KiB, each marked.
        for round in 0..60 {
            let mut words = Vec::new();
            for step in 1..=40 {
                words.extend(m2mf_copy(DST, DST + (1 << 20), 0, 1 << 18, 1));
                words.extend(mark(round * 40 + step));
            }
            rig.prepare(&mut channel, &words);
        }
        channels.push((channel, page));
    }
    for (channel, _) in &channels {
        rig.ring_doorbell(channel);
    }

    rig.wait(|| channels.iter().any(|(channel, _)| rig.done(channel)));
    let steps: Vec<u32> = channels.iter().map(|(_, page)| rig.read_u32(*page)).collect();

    assert!(steps.iter().all(|&steps| steps > 60 * 40 / 2), "{steps:?} of {}", 60 * 40);
}

#[test]
fn a_hog_with_three_rivals_gets_its_share_and_no_more() {
    let rig = Rig::new();
    let mut channels = Vec::new();
    for number in 1..=4 {
        let (mut space, _) = busy_space(&rig);
        let mut channel = rig.channel(number, &mut space);
        rig.submit(&mut channel, &long_copy());
        channels.push(channel);
    }
    // Turns are counted, not time: where the machine is busy with something else, any one may take long.
    let mut turns: [Vec<Duration>; 5] = Default::default();
    let mut turn: Option<(GuestChannel, Instant)> = None;
    while turns.iter().map(Vec::len).sum::<usize>() < 200 {
        assert!(channels.iter().all(|channel| !rig.done(channel)), "too short to tell: {turns:?}");
        let status = rig.core.engine_status(Engine::Graphics);
        if let (true, Some(channel)) = (status.busy, status.channel)
            && turn.is_none_or(|(last, _)| last != channel)
            && let Some((last, began)) = turn.replace((channel, Instant::now()))
        {
            turns[usize::from(last.0)].push(began.elapsed());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    for turns in &mut turns[1..] {
        assert!((26..100).contains(&turns.len()), "{turns:?} of 200");
        turns.sort_unstable();
        // A timeslice has one millisecond.
        let usual = turns[turns.len() / 2];
        assert!(usual < Duration::from_millis(50), "{turns:?}");
    }
}

#[test]
fn preempted_channel_leaves_and_goes_on_where_it_was() {
    let rig = Rig::new();
    let (mut space, page) = busy_space(&rig);
    let mut channel = rig.channel(1, &mut space);
    let data = pattern(9, 1 << 20);
    rig.write(rig.read_target(&mut space, DST), &data);
    // 1 MiB, 300 times, each time to the same place.
    rig.submit(&mut channel, &[m2mf_copy(DST, DST + (2 << 20), 0, 1 << 20, 300), mark(6)].concat());
    rig.wait(|| rig.core.engine_status(Engine::Graphics).busy);

    rig.core.enable_channel(GuestChannel(1), false);
    rig.core.preempt_channel(GuestChannel(1));
    rig.wait(|| !rig.core.preempt_pending());

    assert_eq!(rig.core.engine_status(Engine::Graphics), Default::default());
    let image = rig.read(channel.graphics_image, 0x2000);
    rig.settle();
    assert!(!rig.done(&channel) && rig.read_u32(page) == 0);
    assert!(rig.read(channel.graphics_image, 0x2000) == image, "it still runs");

    rig.core.enable_channel(GuestChannel(1), true);
    rig.wait_done(&channel);
    assert_eq!(rig.read_u32(page), 6);
    assert!(rig.read(rig.read_target(&mut space, DST + (2 << 20)), 1 << 20) == data);
}

#[test]
fn preemption_of_a_channel_that_is_not_loaded_is_done_at_once() {
    let rig = Rig::new();
    let (mut space, _) = marked_space(&rig);
    let mut channel = rig.channel(1, &mut space);
    rig.run(&mut channel, &[inc(0, 0, &[0x9097]), mark(1)].concat());
    rig.wait(|| !rig.core.engine_status(Engine::Graphics).busy);
    assert_eq!(rig.core.engine_status(Engine::Graphics).channel, Some(GuestChannel(1)));

    rig.core.preempt_channel(GuestChannel(1));
    rig.wait(|| !rig.core.preempt_pending());

    assert_eq!(rig.core.engine_status(Engine::Graphics).channel, None);
}

#[test]
fn rebound_channel_starts_afresh() {
    let rig = Rig::new();
    let (mut space, page) = busy_space(&rig);
    let mut channel = rig.channel(1, &mut space);
    rig.submit(&mut channel, &[long_copy(), mark(9)].concat());
    rig.wait(|| rig.core.engine_status(Engine::Graphics).busy);

    rig.core.bind_channel(GuestChannel(1), None);
    assert_eq!(rig.core.engine_status(Engine::Graphics).channel, None);
    let instance = rig.read(channel.instance, 0x1000);
    rig.settle();
    assert!(rig.read(channel.instance, 0x1000) == instance, "written after unbind");

    let mut again = rig.unlisted_channel(1, &mut space);
    // Its ring and push buffer took the place of the old ones.
    rig.flush(&space);
    rig.run(&mut again, &mark(7));
    assert_eq!(rig.read_u32(page), 7);
}

#[test]
fn doorbells_at_any_moment_are_never_lost() {
    let rig = Rig::new();
    let (mut space, page) = marked_space(&rig);
    let mut channel = rig.channel(1, &mut space);
    for count in 1..=3000 {
        rig.submit(&mut channel, &mark(count));
        if count % 7 == 0 {
            rig.wait_done(&channel);
            assert_eq!(rig.read_u32(page), count);
        } else if count % 40 == 39 {
            rig.wait_done(&channel);
        }
        for _ in 0..count % 97 {
            std::hint::spin_loop();
        }
    }
    rig.wait_done(&channel);
    assert_eq!(rig.read_u32(page), 3000);
}
