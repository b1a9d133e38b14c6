//! Semaphores between channels, and with a CPU.

use std::time::Duration;

use super::commands::*;
use super::recorder::*;
use super::rig::*;
use gpuvmk_backend::EngineBackend;
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::gf100::methods::m2mf;
use gpuvmk_chip::gf100::ramin::RAMFC_ACQUIRE;
use gpuvmk_chip::gf100::regs::pfifo::NV_PPBDMA_INTR_0;

const VA: u64 = 0x4000_0000;
const RELEASE: u32 = 2;
const RELEASE_SHORT: u32 = 2 | 1 << 24;
const ACQUIRE: u32 = 1;
const ACQUIRE_GEQUAL: u32 = 4;

/// Channels 1 and 2 in one space, and a page that both see.
fn setup(rig: &Rig) -> (Channel, Channel, u64) {
    let mut space = rig.space();
    let page = rig.alloc(0x1000);
    rig.map(&mut space, VA, vram(page), 0x1000);
    (rig.channel(1, &mut space), rig.channel(2, &mut space), page)
}

#[test]
fn long_release_has_a_time_and_short_one_has_not() {
    let rig = Rig::new();
    let (mut channel, _, page) = setup(&rig);
    rig.write(page, &[0xff; 0x40]);
    let words = [semaphore(VA, 7, RELEASE), semaphore(VA + 0x20, 9, RELEASE_SHORT)].concat();

    rig.run(&mut channel, &words);

    assert_eq!(rig.read_u64(page), 7);
    let first = rig.read_u64(page + 8);
    assert_eq!(rig.read(page + 0x20, 8), [9, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    rig.run(&mut channel, &semaphore(VA, 8, RELEASE));
    assert!(rig.read_u64(page + 8) > first);
}

#[test]
fn acquire_waits_for_another_channels_release() {
    let rig = Rig::new();
    let (mut waiter, mut releaser, page) = setup(&rig);
    let words = [semaphore(VA, 5, ACQUIRE), semaphore(VA + 0x10, 1, RELEASE_SHORT)].concat();
    rig.submit(&mut waiter, &words);
    rig.settle();
    assert_eq!(rig.read_u32(page + 0x10), 0);

    rig.run(&mut releaser, &semaphore(VA, 4, RELEASE_SHORT));
    rig.settle();
    assert_eq!(rig.read_u32(page + 0x10), 0);

    rig.run(&mut releaser, &semaphore(VA, 5, RELEASE_SHORT));
    rig.wait_done(&waiter);
    assert_eq!(rig.read_u32(page + 0x10), 1);
}

#[test]
fn acquire_of_at_least_counts_around_the_end() {
    let rig = Rig::new();
    let (mut waiter, mut releaser, page) = setup(&rig);
    rig.write_u32(page, 0xffff_fff0);
    rig.submit(&mut waiter, &semaphore(VA, 2, ACQUIRE_GEQUAL));
    rig.settle();
    assert!(!rig.done(&waiter));

    rig.run(&mut releaser, &semaphore(VA, 3, RELEASE_SHORT));

    rig.wait_done(&waiter);
}

#[test]
fn stores_by_a_cpu_are_noticed() {
    let rig = Rig::new();
    let (mut waiter, _, page) = setup(&rig);
    rig.submit(&mut waiter, &semaphore(VA, 0x10, 8));
    rig.settle();
    assert!(!rig.done(&waiter));

    rig.write_u32(page, 0x30);

    rig.wait_done(&waiter);
}

#[test]
fn many_waiting_channels_leave_the_pbdmas_to_others() {
    let rig = Rig::new();
    let (mut first, mut worker, page) = setup(&rig);
    let mut space = rig.space();
    rig.map(&mut space, VA, vram(page), 0x1000);
    let mut waiters: Vec<_> = (10..20).map(|number| rig.channel(number, &mut space)).collect();
    rig.submit(&mut first, &semaphore(VA, 1, ACQUIRE));
    for waiter in &mut waiters {
        rig.submit(waiter, &semaphore(VA, 1, ACQUIRE));
    }
    rig.settle();

    rig.run(&mut worker, &semaphore(VA + 0x10, 3, RELEASE_SHORT));
    assert_eq!(rig.read_u32(page + 0x10), 3);
    assert!(waiters.iter().all(|waiter| !rig.done(waiter)));

    rig.run(&mut worker, &semaphore(VA, 1, RELEASE_SHORT));
    for waiter in waiters.iter().chain([&first]) {
        rig.wait_done(waiter);
    }
}

#[test]
fn query_of_an_engine_releases_a_semaphore() {
    let rig = Rig::new();
    let (mut waiter, mut releaser, _) = setup(&rig);
    rig.submit(&mut waiter, &semaphore(VA, 5, ACQUIRE));
    let mut words = m2mf_copy(VA + 0x100, VA + 0x200, 16, 16, 1);
    words.extend(inc(2, m2mf::QUERY_ADDRESS_HIGH, &[hi(VA), lo(VA), 5]));
    words.extend(inc(2, m2mf::EXEC, &[0x110 | 2 << 12 | m2mf::EXEC::QUERY_SHORT.mask()]));

    rig.run(&mut releaser, &words);

    rig.wait_done(&waiter);
}

#[test]
fn acquire_that_takes_longer_than_ramfc_allows_is_an_error() {
    let rig = Rig::new();
    let (mut waiter, ..) = setup(&rig);
    // 2000 microseconds.
    rig.write_u32(waiter.instance + RAMFC_ACQUIRE, 1 << 31 | 1000 << 15 | 1 << 11);
    rig.core.bind_channel(GuestChannel(1), Some(vram(waiter.instance)));

    rig.submit(&mut waiter, &semaphore(VA, 5, ACQUIRE));

    let (channel, error) = rig.events.wait_host_error();
    assert_eq!((channel, error.status), (GuestChannel(1), NV_PPBDMA_INTR_0::ACQUIRE.mask()));
}

#[test]
fn waiting_channel_is_idle_and_can_be_taken_off() {
    let rig = Rig::new();
    let (mut waiter, mut releaser, page) = setup(&rig);
    rig.submit(&mut waiter, &[semaphore(VA, 5, ACQUIRE), semaphore(VA + 0x10, 1, RELEASE_SHORT)].concat());
    rig.settle();

    rig.core.enable_channel(GuestChannel(1), false);
    rig.core.preempt_channel(GuestChannel(1));
    rig.wait(|| !rig.core.preempt_pending());
    rig.run(&mut releaser, &semaphore(VA, 5, RELEASE_SHORT));
    rig.settle();
    assert_eq!(rig.read_u32(page + 0x10), 0);

    rig.core.enable_channel(GuestChannel(1), true);
    rig.wait_done(&waiter);
    assert_eq!(rig.read_u32(page + 0x10), 1);
}

#[test]
fn non_stall_names_the_engine_of_the_subchannel() {
    let rig = Rig::new();
    let (mut channel, ..) = setup(&rig);
    let words =
        [inc(4, 0, &[0x90b8]), immediate(4, 0x20, 0), immediate(0, 0x20, 0), semaphore(VA, 1, RELEASE)]
            .concat();

    rig.run(&mut channel, &words);

    rig.wait(|| rig.events.all().len() == 2);
    assert_eq!(rig.events.all(), [Event::NonStall(Engine::COPY1), Event::NonStall(Engine::COPY1)]);
}

#[test]
fn idle_core_burns_no_time() {
    let rig = Rig::new();
    let (mut waiter, ..) = setup(&rig);
    rig.submit(&mut waiter, &semaphore(VA, 5, ACQUIRE));
    rig.settle();
    let ticks = || -> u64 {
        // User and system time of the PBDMA threads of this process, all tests together.
        let mut sum = 0;
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            if name.starts_with("pbdma") {
                sum += stat.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            }
        }
        sum
    };
    // Other tests run at the same time: it is enough that there is one quiet moment.
    let quiet = (0..50).any(|_| {
        let before = ticks();
        std::thread::sleep(Duration::from_millis(100));
        ticks().saturating_sub(before) < 20_000_000
    });
    assert!(quiet);
}
