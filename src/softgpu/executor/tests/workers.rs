//! Grids that several threads execute.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::compute::{BASE, DATA, Fixture};
use crate::Workers;
use gpuvmk_kernels::launch::{Parameters, Size3};
use gpuvmk_kernels::{ALL, SM90, spin};

/// More than most machines that run tests have, so that threads are taken off in the middle of anything.
pub(super) const MANY: Workers = Workers::new(5).unwrap();

#[test]
fn results_are_those_of_one_thread_and_others_help() {
    for kernels in ALL {
        let mut fixture = Fixture::with(kernels, MANY);
        let parameters = Parameters::default().pointer(BASE + DATA).word(2000).word(5);
        let (blocks, threads) = (256, 64);
        fixture.run(&kernels.spin, Size3(blocks, 1, 1), Size3(threads, 1, 1), &parameters);
        let wanted: Vec<u32> = (0..blocks * threads).map(|thread| spin::result(5 + thread, 2000)).collect();
        assert_eq!(fixture.words(DATA, wanted.len()), wanted);
        assert!(fixture.rig.gpu.helped() > 0, "a grid of 256 blocks is for more than one");
    }
}

#[test]
fn a_small_grid_calls_nobody() {
    let mut fixture = Fixture::with(&SM90, MANY);
    let parameters = Parameters::default().pointer(BASE + DATA).word(2).word(5);
    fixture.run(&SM90.spin, Size3(2, 1, 1), Size3(64, 1, 1), &parameters);
    assert_eq!(fixture.rig.gpu.helped(), 0);
}

/// Words to add, of which each has its own.
const COUNT: u32 = 1 << 18;

#[test]
fn atomics_hold_against_other_workers_and_processors() {
    const ADDED: u64 = 1 << 40;
    let mut fixture = Fixture::with(&SM90, MANY);
    fixture.write_words(DATA, (0..COUNT).map(|index| index % 1000));
    let sum = fixture.memory + 2 * DATA;
    let offset = sum - fixture.rig.base;
    let parameters = Parameters::default().pointer(BASE + DATA).pointer(BASE + 2 * DATA).word(COUNT);
    // One atomic for each block of 32 threads: thousands of them, by all workers.
    let shared = Arc::clone(&fixture.rig.memory);
    let done = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let processor = scope.spawn(|| {
            let mut rounds = 0_u64;
            while !done.load(Ordering::Relaxed) {
                shared.update_u64(offset, |old| Some(old.wrapping_add(ADDED))).unwrap();
                rounds += 1;
            }
            rounds
        });
        for _ in 0..4 {
            fixture.run(&SM90.reduce_sum, Size3(COUNT / 256, 1, 1), Size3(256, 1, 1), &parameters);
        }
        done.store(true, Ordering::Relaxed);
        processor.join().unwrap()
    });
    let words: u64 = (0..COUNT).map(|index| u64::from(index % 1000)).sum();
    assert_eq!(fixture.rig.read_u64(sum), (4 * words).wrapping_add(rounds.wrapping_mul(ADDED)));
    assert!(rounds > 1000 && fixture.rig.gpu.helped() > 0, "{rounds}");
}

#[test]
fn a_grid_without_an_end_is_taken_away_from_all_of_them() {
    let mut fixture = Fixture::with(&SM90, MANY);
    let parameters = Parameters::default().pointer(BASE + DATA).word(u32::MAX).word(5);
    let launch = fixture.launch(&SM90.spin, Size3(64, 1, 1), Size3(256, 1, 1), &parameters);
    let commands = fixture.place(SM90.spin.code, &launch);
    fixture.rig.submit(&mut fixture.channel, &commands);
    let started = std::time::Instant::now();
    while fixture.rig.gpu.helped() == 0 && started.elapsed() < super::rig::PATIENCE {
        // A slice has ended once somebody has helped in it.
        std::thread::yield_now();
    }
    assert!(fixture.rig.gpu.helped() > 0);
    fixture.rig.destroy(&fixture.channel);
    let after = fixture.rig.gpu.helped();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(fixture.rig.gpu.helped(), after, "nobody works for it any more");
    assert_eq!(fixture.words(DATA, 1), [0], "it has no end");
}
