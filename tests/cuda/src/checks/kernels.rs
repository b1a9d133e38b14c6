//! Kernels that use more of the GPU than a sum does: `kernels.ptx`.

use std::ffi::CStr;
use std::rc::Rc;

use anyhow::{Context as _, Result, ensure};

use super::{Figures, SUMS, bytes, figures, pattern, same, sum, words};
use crate::driver::{Context, DeviceMemory, Graph, Module, PinnedMemory, Shape, Stream};
use crate::stdout;

const KERNELS: &str = concat!(include_str!("../kernels.ptx"), "\0");

fn load(context: &Rc<Context>, text: &str) -> Result<Module> {
    Module::load(context, CStr::from_bytes_with_nul(text.as_bytes())?)
}

fn filled(context: &Rc<Context>, bytes: &[u8]) -> Result<DeviceMemory> {
    let memory = DeviceMemory::allocate(context, bytes.len())?;
    memory.write(bytes)?;
    Ok(memory)
}

/// Two copies, a kernel and a copy, taken down once and launched several times with other contents.
pub fn graph(context: &Rc<Context>) -> Result<Figures> {
    const COUNT: usize = 10_007;
    const TIMES: u32 = 5;
    let module = load(context, SUMS)?;
    let kernel = module.kernel(c"vector_sum")?;
    let stream = Stream::create(context)?;
    let [one, two, result] = [(); 3].map(|()| DeviceMemory::allocate(context, COUNT * 4));
    let device = [one?, two?, result?];
    let [one, two, result] = [(); 3].map(|()| PinnedMemory::allocate(context, COUNT * 4));
    let mut host = [one?, two?];
    let result = result?;
    let [first, second, third] = device.each_ref().map(DeviceMemory::address);
    let graph = Graph::take_down(context, &stream, || {
        device[0].write_later(&host[0], &stream)?;
        device[1].write_later(&host[1], &stream)?;
        kernel.launch_in(&stream, Shape::row(7, 128), &[first, second, third, COUNT as u64])?;
        device[2].read_later(&result, &stream)
    })?;
    ensure!(graph.nodes() == 4, "the graph has {} nodes", graph.nodes());
    for time in 0..TIMES {
        let inputs = [0, 1].map(|which| pattern(COUNT * 4, 20 + 2 * time + which));
        for (host, input) in host.iter_mut().zip(&inputs) {
            host.write(input)?;
        }
        // In the usual stream and in another, by turns.
        if time % 2 == 0 { graph.launch() } else { graph.launch_in(&stream) }?;
        context.synchronize()?;
        same(&result.read(), &sum(&inputs)).with_context(|| format!("launch {time}"))?;
    }
    Ok(figures(&[("nodes", graph.nodes()), ("words", COUNT)]))
}

/// A matrix product by tiles in shared memory. All values are whole, so that no order of sums matters.
pub fn product(context: &Rc<Context>) -> Result<Figures> {
    const SIDE: usize = 96;
    const TILE: usize = 16;
    let module = load(context, KERNELS)?;
    let matrices = [30, 31].map(|seed| {
        let values = words(&pattern(SIDE * SIDE * 4, seed)).into_iter();
        values.map(|word| f32::from((word % 64) as u8) - 32.0).collect::<Vec<f32>>()
    });
    let in_bytes = |values: &[f32]| bytes(values.iter().map(|value| value.to_bits()));
    let one = filled(context, &in_bytes(&matrices[0]))?;
    let two = filled(context, &in_bytes(&matrices[1]))?;
    let result = DeviceMemory::allocate(context, SIDE * SIDE * 4)?;
    result.fill_words(u32::MAX)?;
    let blocks = u32::try_from(SIDE / TILE)?;
    let tile = u32::try_from(TILE)?;
    let shape = Shape { blocks: [blocks, blocks, 1], threads: [tile, tile, 1] };
    let parameters = [one.address(), two.address(), result.address(), SIDE as u64];
    module.kernel(c"product")?.launch(shape, &parameters)?;
    context.synchronize()?;
    let [left, right] = &matrices;
    let expected: Vec<f32> = left
        .chunks(SIDE)
        .flat_map(|row| {
            let column = |at: usize| right.iter().skip(at).step_by(SIDE);
            (0..SIDE).map(move |at| row.iter().zip(column(at)).map(|(one, two)| one * two).sum())
        })
        .collect();
    same(&result.read()?, &in_bytes(&expected))?;
    Ok(figures(&[("side", SIDE)]))
}

/// The sum of all words by shuffles, shared memory and an atomic.
pub fn reduction(context: &Rc<Context>) -> Result<Figures> {
    const COUNT: usize = 50_021;
    const THREADS: u32 = 256;
    let module = load(context, KERNELS)?;
    let input = pattern(COUNT * 4, 40);
    let memory = filled(context, &input)?;
    let result = filled(context, &[0; 4])?;
    let blocks = u32::try_from(COUNT)?.div_ceil(THREADS);
    let parameters = [memory.address(), result.address(), COUNT as u64];
    module.kernel(c"reduce")?.launch(Shape::row(blocks, THREADS), &parameters)?;
    context.synchronize()?;
    let total = words(&input).into_iter().fold(0, u32::wrapping_add);
    same(&result.read()?, &total.to_le_bytes())?;
    Ok(figures(&[("words", COUNT)]))
}

/// Counters that all threads use at once, with and without answers, of 32 and 64 bits.
pub fn atomics(context: &Rc<Context>) -> Result<Figures> {
    const COUNT: usize = 5003;
    const BINS: usize = 64;
    let module = load(context, KERNELS)?;
    let input = pattern(COUNT * 4, 50);
    let memory = filled(context, &input)?;
    let counters = |bins: &[u32], greatest: u32, least: u32, odd: u32, tickets: u32, sum: u64| {
        let mut found = bytes(bins.iter().copied().chain([greatest, least, odd, tickets]));
        found.extend(sum.to_le_bytes());
        found
    };
    let result = filled(context, &counters(&[0; BINS], 0, u32::MAX, 0, 0, 0))?;
    let tickets = DeviceMemory::allocate(context, COUNT * 4)?;
    tickets.fill_words(u32::MAX)?;
    let blocks = u32::try_from(COUNT)?.div_ceil(96);
    let parameters = [memory.address(), result.address(), tickets.address(), COUNT as u64];
    module.kernel(c"count")?.launch(Shape::row(blocks, 96), &parameters)?;
    context.synchronize()?;

    let input = words(&input);
    let mut bins = [0; BINS];
    for word in &input {
        bins[*word as usize % BINS] += 1;
    }
    let greatest = input.iter().copied().max().unwrap_or_default();
    let least = input.iter().copied().min().unwrap_or_default();
    let odd = input.iter().fold(0, |odd, word| odd ^ word);
    let total = input.iter().map(|word| u64::from(*word)).sum();
    let count = u32::try_from(COUNT)?;
    same(&result.read()?, &counters(&bins, greatest, least, odd, count, total))?;
    let mut drawn = words(&tickets.read()?);
    drawn.sort_unstable();
    ensure!(drawn.into_iter().eq(0..count), "a ticket was drawn twice");
    Ok(figures(&[("words", COUNT)]))
}

/// Memory of each thread's own, and a function that calls itself.
pub fn local(context: &Rc<Context>) -> Result<Figures> {
    const THREADS: u32 = 3 * 64;
    const WORDS: u32 = 64;
    let module = load(context, KERNELS)?;
    let result = DeviceMemory::allocate(context, THREADS as usize * 4)?;
    result.fill_words(0)?;
    module.kernel(c"own")?.launch(Shape::row(3, 64), &[result.address()])?;
    context.synchronize()?;
    let fibonacci = |n: u32| (0..n).fold((0_u32, 1_u32), |(one, two), _| (two, one + two)).0;
    let expected = (0..THREADS).map(|thread| {
        let weighted = (0..WORDS).map(|step| {
            let place = (thread + 37 * step) % WORDS;
            (7 * step + thread).wrapping_mul(place)
        });
        weighted.fold(fibonacci(thread % 12), u32::wrapping_add)
    });
    same(&result.read()?, &bytes(expected))?;
    Ok(figures(&[("threads", THREADS as usize)]))
}

/// Blocks that wait for each other, which ends only if all of them run.
pub fn cooperative(context: &Rc<Context>) -> Result<Figures> {
    // One for each multiprocessor.
    const BLOCKS: u32 = 144;
    const THREADS: u32 = 64;
    const ROUNDS: usize = 6;
    const WIDTH: usize = (BLOCKS * THREADS) as usize;
    let module = load(context, KERNELS)?;
    let rows = DeviceMemory::allocate(context, (ROUNDS + 1) * WIDTH * 4)?;
    let mut row = words(&pattern(WIDTH * 4, 60));
    let mut expected = row.clone();
    rows.fill_words(0)?;
    rows.write(&bytes(row.iter().copied()))?;
    let barrier = filled(context, &[0; 4])?;
    let parameters = [rows.address(), barrier.address(), ROUNDS as u64];
    module.kernel(c"neighbours")?.launch_together(Shape::row(BLOCKS, THREADS), &parameters)?;
    context.synchronize()?;
    for _ in 0..ROUNDS {
        let right = row.iter().cycle().skip(1);
        row = row.iter().zip(right).map(|(one, two)| one.wrapping_add(*two)).collect();
        expected.extend(&row);
    }
    same(&rows.read()?, &bytes(expected))?;
    Ok(figures(&[("blocks", BLOCKS as usize), ("rounds", ROUNDS)]))
}

/// Lines that a kernel prints, in any order.
pub fn printf(context: &Rc<Context>) -> Result<Figures> {
    const BLOCKS: u32 = 2;
    const THREADS: u32 = 33;
    const ALL: u32 = BLOCKS * THREADS;
    let module = load(context, KERNELS)?;
    let kernel = module.kernel(c"say")?;
    let text = stdout::of(|| {
        kernel.launch(Shape::row(BLOCKS, THREADS), &[])?;
        context.synchronize()
    })?;
    let mut found: Vec<&str> = text.lines().collect();
    let mut expected: Vec<String> = (0..ALL)
        .map(|thread| {
            let wide = u64::from(thread) * 0x1000_0001;
            format!("thread {thread} of {ALL}: half {wide:x} {:.2}", f64::from(thread) / 2.0)
        })
        .collect();
    found.sort_unstable();
    expected.sort_unstable();
    ensure!(found == expected, "it printed {text:?}");
    Ok(figures(&[("lines", found.len())]))
}
