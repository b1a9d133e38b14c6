//! SRAD and SRAD2: an image is smoothed where it is smooth (speckle reducing anisotropic diffusion).
//!
//! How even the image is decides how much each pixel gives. SRAD computes that from all of it before each
//! step; SRAD2 is told, as a number that falls from step to step.

use anyhow::{Context as _, Result};

use super::window::Window;
use super::{Size, blocks, row};
use crate::job::{Check, Job, Part, Room, Step, Value};
use crate::reference::{close, equal, floats, mix, result};

const SEED: u32 = 51;
const RATE: f32 = 0.5;
/// Sums over an image are in another order.
const TOLERANCE: f64 = 1e-3;

/// Rooms: the image, by turns with the next one; shares; sums of blocks; how even the image was.
const SHARES: usize = 2;
const PARTS: usize = 3;
const EVEN: usize = 4;

/// Blocks that sum up an image.
const SUMS: u32 = 528;

/// The image, and where the next one goes.
const fn turn(time: usize) -> [Value; 2] {
    [Value::Room(time % 2), Value::Room((time + 1) % 2)]
}

fn image(side: u32) -> Step {
    let count = side * side;
    row("srad_image", blocks(count), 256, &[Value::Room(0), Value::Word(count), Value::Word(SEED)])
}

pub(super) fn with_statistics(size: Size) -> Job {
    let (side, times): (u32, usize) = size.pick((48, 2), (4096, 8));
    let (count, block) = (side * side, [32, 8, 1]);
    let sums = blocks(count).min(SUMS);
    let grid = [side.div_ceil(block[0]), side.div_ceil(block[1]), 1];
    let step = |kernel, arguments| Step { kernel, grid, block, arguments };
    let mut steps = vec![image(side)];
    for time in 0..times {
        let ([from, to], even) = (turn(time), Value::Inside(EVEN, time * 4));
        let (shares, parts) = (Value::Room(SHARES), Value::Room(PARTS));
        steps.push(row("srad_sums", sums, 256, &[from, parts, Value::Word(count)]));
        steps.push(row("srad_total", 1, 32, &[parts, Value::Word(sums), even, Value::Word(count)]));
        steps.push(step("srad_shares", vec![from, shares, even, Value::Word(side)]));
        steps.push(step("srad_update", vec![from, shares, to, Value::Word(side), Value::Float(RATE)]));
    }
    let bytes = count as usize * 4;
    let mut job = job(size, (side, times), steps, move |results| {
        let even = floats(result(results, 1)?);
        let (sum, square) = statistics(count);
        let mean = sum / f64::from(count);
        let wanted = (square / f64::from(count) - mean * mean) / (mean * mean);
        close(even.first(), wanted, TOLERANCE, "how even the image is at first")?;
        // Smoothing makes it more even: each step's is below the one before.
        for pair in even.windows(2) {
            anyhow::ensure!(pair[1] < pair[0] && pair[1] > 0.0, "{} and then {}", pair[0], pair[1]);
        }
        Ok(even)
    });
    job.rooms.extend([Room::empty(SUMS as usize * 8), Room::empty(times * 4)]);
    job.results.push(Part { room: EVEN, at: 0, bytes: times * 4 });
    debug_assert_eq!(job.rooms.first().map(|room| room.bytes), Some(bytes));
    job
}

/// Sum and sum of squares of the image's pixels.
fn statistics(count: u32) -> (f64, f64) {
    let pixel = |at: u32| u64::from((mix(at.wrapping_add(SEED)) >> 24) + 1);
    let add = |(sum, square), at| (sum + pixel(at), square + pixel(at) * pixel(at));
    let (sum, square) = (0..count).fold((0_u64, 0_u64), add);
    (sum as f64 / 256.0, square as f64 / 65_536.0)
}

pub(super) fn by_tiles(size: Size) -> Job {
    let (side, times): (u32, usize) = size.pick((48, 2), (4096, 8));
    let grid = [side / 16, side / 16, 1];
    let step = |kernel, arguments| Step { kernel, grid, block: [16, 16, 1], arguments };
    let even: Vec<f32> = (0..times).map(|time| 0.3 / (1.0 + time as f32)).collect();
    let mut steps = vec![image(side)];
    for (time, even) in even.iter().enumerate() {
        let ([from, to], shares) = (turn(time), Value::Room(SHARES));
        let (side, even) = (Value::Word(side), Value::Float(*even));
        steps.push(step("srad2_shares", vec![from, shares, even, side]));
        steps.push(step("srad2_update", vec![from, shares, to, side, Value::Float(RATE)]));
    }
    job(size, (side, times), steps, move |_| Ok(even.clone()))
}

/// Both: images and shares, and the first rows of what comes of it, compared where `even` says what each step
/// was told.
fn job(
    size: Size,
    (side, times): (u32, usize),
    steps: Vec<Step>,
    even: impl Fn(&[Vec<u8>]) -> Result<Vec<f32>> + 'static,
) -> Job {
    let side = side as usize;
    let height = side.min(256);
    let check: Check = Box::new(move |results| {
        let found = floats(result(results, 0)?);
        let even = even(results)?;
        // A pixel's share looks one place far, and a step at shares of others.
        for (window, places) in Window::all(size, (side, height), 2 * times) {
            let window = after(&window, side, &even).context("the image")?;
            for (y, x) in places {
                equal(found.get(y * side + x), window.get(y, x), format_args!("row {y}, column {x}"))?;
            }
        }
        Ok(())
    });
    Job {
        rooms: vec![Room::empty(side * side * 4); 3],
        steps,
        transfers: vec![],
        results: vec![Part { room: times % 2, at: 0, bytes: height * side * 4 }],
        check,
    }
}

/// What a part of the image is like after steps that were told this.
fn after(window: &Window, side: usize, even: &[f32]) -> Result<Window> {
    let pixel = |y: usize, x: usize| (mix(SEED.wrapping_add((y * side + x) as u32)) >> 24) + 1;
    let first = window.made(|y, x| pixel(y, x) as f32 / 256.0);
    Ok(even.iter().fold(first, |image, even| {
        let shares = image.made(|y, x| share(image.get(y, x), image.beside(y, x), *even));
        image.made(|y, x| {
            let (here, mine) = (image.get(y, x), shares.get(y, x));
            let [north, south, west, east] = image.beside(y, x);
            let [_, below, _, right] = shares.beside(y, x);
            let mut sum = mine * (north - here) + below * (south - here);
            sum += mine * (west - here);
            sum += right * (east - here);
            here + 0.25 * RATE * sum
        })
    }))
}

/// How much a pixel gives.
fn share(here: f32, beside: [f32; 4], even: f32) -> f32 {
    let [north, south, west, east] = beside.map(|value| value - here);
    let steep = (north * north + south * south + west * west + east * east) / (here * here);
    let bend = (north + south + west + east) / here;
    let low = 1.0 + 0.25 * bend;
    let own = (0.5 * steep - 0.0625 * (bend * bend)) / (low * low);
    (1.0 / (1.0 + (own - even) / (even * (1.0 + even)))).clamp(0.0, 1.0)
}
