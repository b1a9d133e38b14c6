//! All programs in their small size on a software GPU, and what is said of wrong results.

#![cfg(feature = "soft")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeSet;
use std::time::Instant;

use gpuvmk_papers::reference::mix;
use gpuvmk_papers::{CUBIN, Gpu as _, Job, Launch, PROGRAMS, Prepared, Size, SoftGpu, find, measure};

/// The checksum of POSIX's `cksum`.
fn checksum(bytes: &[u8]) -> u32 {
    let length = bytes.len().to_le_bytes();
    let used = length.len() - length.iter().rev().take_while(|byte| **byte == 0).count();
    let all = bytes.iter().chain(&length[..used]);
    !all.fold(0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte) << 24, |sum, _| {
            sum << 1 ^ if sum >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    })
}

#[test]
fn machine_code_was_made_of_the_source_that_lies_beside_it() {
    let made = include_str!("../kernels/papers.cksum");
    let files = [("papers.cu", &include_bytes!("../kernels/papers.cu")[..]), ("papers.cubin", CUBIN)];
    for (line, (name, bytes)) in made.lines().zip(files) {
        assert_eq!(line, format!("{} {} {name}", checksum(bytes), bytes.len()), "run kernels/build.sh");
    }
    assert_eq!(made.lines().count(), 2);
}

/// What comes back.
fn results(job: &Job) -> Vec<Vec<u8>> {
    let mut gpu = SoftGpu::new().unwrap();
    let prepared = Prepared::new(&mut gpu, job).unwrap();
    gpu.run(&prepared.launches).unwrap();
    let part = |part: &gpuvmk_papers::Part| prepared.areas[part.room].part(part.at, part.bytes);
    job.results.iter().map(|one| gpu.read(part(one)).unwrap()).collect()
}

#[test]
fn all_programs_give_what_a_processor_computes_however_often_they_run() {
    let mut gpu = SoftGpu::new().unwrap();
    let mut before = 0;
    for program in &PROGRAMS {
        let measured = measure(&mut gpu, &program.job(Size::Small), 2);
        let measured = measured.map_err(|error| format!("{}: {error:#}", program.name)).unwrap();
        assert_eq!(measured.on_gpu.len(), 2, "{}", program.name);
        println!("{}: {} instructions of warps", program.name, gpu.instructions() - before);
        before = gpu.instructions();
    }
}

#[test]
fn a_wrong_bit_in_any_result_is_found() {
    for program in &PROGRAMS {
        let job = program.job(Size::Small);
        let found = results(&job);
        (job.check)(&found).unwrap();
        for (number, bytes) in found.iter().enumerate() {
            // A high bit of words and of scores, in the first, the last and one between.
            let last = bytes.len() - 1;
            for at in [3, bytes.len() / 8 * 4 + 3, last].map(|at| at.min(last)) {
                let mut wrong = found.clone();
                wrong[number][at] ^= 0x40;
                let told = (job.check)(&wrong);
                assert!(told.is_err(), "{}, result {number}, byte {at}", program.name);
            }
        }
        if !found.is_empty() {
            assert!((job.check)(&[]).is_err(), "{}: no results", program.name);
        }
    }
}

#[test]
fn what_was_left_out_is_found() {
    // All programs but those that copy: memory holds no results before.
    for program in PROGRAMS.iter().filter(|program| !["NOP", "CPY", "PINCPY"].contains(&program.name)) {
        let mut job = program.job(Size::Small);
        let whole = job.steps.len();
        for missing in 0..whole {
            let mut steps = program.job(Size::Small).steps;
            steps.remove(missing);
            job.steps = steps;
            let told = (job.check)(&results(&job));
            // Levels of a graph are done before the last of the launches.
            let is_spare = program.name == "BFS" && missing + 2 > whole - 1;
            assert!(told.is_err() || is_spare, "{} without launch {missing}", program.name);
        }
    }
}

#[test]
fn full_sizes_fit_a_gibibyte_and_have_the_same_kernels() {
    for program in &PROGRAMS {
        let (small, full) = (program.job(Size::Small), program.job(Size::Full));
        let kernels = |job: &Job| job.steps.iter().map(|step| step.kernel).collect::<BTreeSet<_>>();
        assert_eq!(kernels(&small), kernels(&full), "{}", program.name);
        let bytes: usize = full.rooms.iter().map(|room| room.bytes).sum();
        assert!(bytes <= 512 << 20, "{}: {bytes} bytes", program.name);
        for (number, part) in full.results.iter().enumerate() {
            assert!(part.at + part.bytes <= full.rooms[part.room].bytes, "{}, {number}", program.name);
        }
    }
    assert!(find("LUD").is_some() && find("lud").is_none());
}

#[test]
fn kernels_that_measure_do_what_they_are_for() {
    let mut gpu = SoftGpu::new().unwrap();
    let launch = |kernel, arguments: Vec<u64>| Launch { kernel, grid: [1; 3], block: [1; 3], arguments };
    let (word, count) = (gpu.allocate(4).unwrap(), gpu.allocate(4).unwrap());
    let stamps = gpu.allocate(24).unwrap();
    // A gate that is open, and one that nobody opens.
    for open in [1_u32, 0] {
        gpu.write(word, &open.to_le_bytes()).unwrap();
        gpu.run(&[launch("gate", vec![word.address, 20])]).unwrap();
    }
    gpu.write(count, &[0; 4]).unwrap();
    // There is room for two.
    let stamp = launch("stamp", vec![stamps.address, count.address, 2]);
    gpu.write(stamps, &[0; 24]).unwrap();
    gpu.run(&vec![stamp; 3]).unwrap();
    let found = gpu.read(stamps).unwrap();
    let found: Vec<u64> = found.as_chunks().0.iter().map(|stamp| u64::from_le_bytes(*stamp)).collect();
    assert!(found[0] > 0 && found[1] > found[0] && found[2] == 0, "{found:?}");
    assert_eq!(gpu.read(count).unwrap(), 3_u32.to_le_bytes());
    for seed in [0_u32, 7, 0xffff_0000] {
        for limit in [u32::MAX, 10] {
            let fill = vec![word.address, 1, seed.into(), limit.into()];
            gpu.run(&[launch("fill_below", fill)]).unwrap();
            assert_eq!(gpu.read(word).unwrap(), (mix(seed) % limit).to_le_bytes());
        }
    }
}

/// Minutes: `cargo test -p gpuvmk-papers -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn full_sizes_give_what_a_processor_computes() {
    let only = std::env::var("GPUVMK_PROGRAM").ok();
    for program in PROGRAMS.iter().filter(|program| only.as_deref().is_none_or(|name| name == program.name)) {
        let mut gpu = SoftGpu::new().unwrap();
        let start = Instant::now();
        let job = program.job(Size::Full);
        let made = start.elapsed();
        let prepared = Prepared::new(&mut gpu, &job).unwrap();
        gpu.run(&prepared.launches).unwrap();
        let ran = start.elapsed() - made;
        let start = Instant::now();
        let compared = prepared.check(&mut gpu, &job);
        println!(
            "{}: made in {made:?}, ran in {ran:?}, compared in {:?}: {compared:?}",
            program.name,
            start.elapsed()
        );
        compared.map_err(|error| format!("{}: {error:#}", program.name)).unwrap();
    }
}
