//! What single operations take: launches, copies, memory that is allocated and touched.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use gpuvmk_papers::{Launch, median, reference::mix};
use serde_json::{Value, json};

use super::Figures;
use super::table::micros;
use crate::driver::{Context, DeviceMemory, Graph, PinnedMemory, Stream};
use crate::gpu::{Clock, CudaGpu};

/// Launches that are timed one by one.
const SINGLE: u32 = 100;
/// Launches in a row, as many as the queue takes.
const ROW: usize = 400;
/// Launches of a graph.
const GRAPH: usize = 16;
/// Streams that share launches.
const STREAMS: usize = 4;

fn empty(count: usize) -> Vec<Launch> {
    vec![Launch { kernel: "nop", grid: [1; 3], block: [32, 1, 1], arguments: vec![] }; count]
}

/// Launches: one by one until the kernel has written, in a row, in several streams, and as a graph.
pub fn launches(context: &Rc<Context>) -> Result<Figures> {
    of_launches(context, Clock::Card)
}

/// The same on a software GPU, which has no clocks that go up.
pub fn small_launches(context: &Rc<Context>) -> Result<Figures> {
    of_launches(context, Clock::Gpu)
}

fn of_launches(context: &Rc<Context>, clock: Clock) -> Result<Figures> {
    let gpu = CudaGpu::new(context, clock)?;
    let word = PinnedMemory::allocate(context, 4096)?;
    let (mut seen, mut calls) = (Vec::new(), Vec::new());
    for seed in 0..SINGLE {
        // A kernel that writes a number which is another one each time.
        let (limit, wanted) = (u32::MAX, mix(seed) % u32::MAX);
        let arguments = vec![word.address(), 1, seed.into(), limit.into()];
        let write = Launch { kernel: "fill_below", grid: [1; 3], block: [32, 1, 1], arguments };
        word.first().store(!wanted, Ordering::SeqCst);
        let start = Instant::now();
        gpu.launch(std::slice::from_ref(&write), &gpu.stream)?;
        calls.push(start.elapsed());
        while word.first().load(Ordering::SeqCst) != wanted {
            ensure!(start.elapsed() < Duration::from_secs(10), "a launch did not write");
            std::hint::spin_loop();
        }
        seen.push(start.elapsed());
        gpu.stream.synchronize()?;
    }
    let row = empty(ROW);
    let on_gpu = gpu.timed(|stream| gpu.launch(&row, stream)).context("in a row")?.gpu;
    let start = Instant::now();
    gpu.launch(&row, &gpu.stream)?;
    gpu.stream.synchronize().context("in a row, at once")?;
    let in_a_row = start.elapsed();
    let streams = (0..STREAMS).map(|_| Stream::create(context)).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    for number in 0..ROW {
        let stream = streams.get(number % STREAMS).unwrap_or(&gpu.stream);
        gpu.launch(&empty(1), stream)?;
    }
    streams.iter().try_for_each(Stream::synchronize).context("in streams")?;
    let in_streams = start.elapsed();
    let row = empty(GRAPH);
    let graph = Graph::take_down(context, &gpu.stream, || gpu.launch(&row, &gpu.stream))?;
    graph.launch_in(&gpu.stream)?;
    gpu.stream.synchronize().context("as a graph")?;
    let start = Instant::now();
    graph.launch_in(&gpu.stream)?;
    gpu.stream.synchronize()?;
    let as_graph = start.elapsed();
    let graph_on_gpu = gpu.timed(|stream| graph.launch_in(stream))?.gpu;
    let each_of = |count: usize, time: Duration| micros(time / u32::try_from(count).unwrap_or(1));
    let each = |time: Duration| each_of(ROW, time);
    Ok(pairs(&[
        ("until_written_us", micros(median(&seen))),
        ("call_us", micros(median(&calls))),
        ("row_us", each(in_a_row)),
        ("row_gpu_us", each(on_gpu)),
        ("streams_us", each(in_streams)),
        ("graph_us", each_of(GRAPH, as_graph)),
        ("graph_gpu_us", each_of(GRAPH, graph_on_gpu)),
    ]))
}

fn pairs(pairs: &[(&str, f64)]) -> Figures {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect()
}

/// Sizes of copies; pinned ones go up to the second number.
const SIZES: [usize; 6] = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20];
const LARGEST_PINNED: usize = 64 << 20;
/// Copies of one size in a row, and how often that is timed.
const COPIES: u32 = 4;
const TIMES: usize = 5;

/// Copies inside of the device, and of pinned memory both ways, by both clocks.
pub fn copies(context: &Rc<Context>) -> Result<Figures> {
    let gpu = CudaGpu::new(context, Clock::Card)?;
    let mut found = Vec::new();
    for size in SIZES {
        let [one, two] = [(); 2].map(|()| DeviceMemory::allocate(context, size));
        let (one, two) = (one?, two?);
        one.fill_words(1)?;
        found.push(timed(&gpu, "inside", size, |stream| two.copy_later(&one, stream))?);
        if size <= LARGEST_PINNED {
            let host = PinnedMemory::allocate(context, size)?;
            found.push(timed(&gpu, "to_device", size, |stream| one.write_later(&host, stream))?);
            found.push(timed(&gpu, "from_device", size, |stream| one.read_later(&host, stream))?);
        }
    }
    Ok(Figures::from_iter([("copies".to_owned(), found.into())]))
}

fn timed(gpu: &CudaGpu, route: &str, size: usize, copy: impl Fn(&Stream) -> Result<()>) -> Result<Value> {
    let (mut on_gpu, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let took = gpu.timed(|stream| (0..COPIES).try_for_each(|_| copy(stream)))?;
        on_gpu.push(took.gpu / COPIES);
        let start = Instant::now();
        copy(&gpu.stream)?;
        gpu.stream.synchronize()?;
        alone.push(start.elapsed());
    }
    let (gpu, wall) = (micros(median(&on_gpu)), micros(median(&alone)));
    Ok(json!({ "route": route, "bytes": size, "gpu_us": gpu, "wall_us": wall }))
}

/// Memory that is allocated, filled and given back.
pub fn touch(context: &Rc<Context>) -> Result<Figures> {
    const SIZE: usize = 64 << 20;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..TIMES {
        let start = Instant::now();
        let memory = DeviceMemory::allocate(context, SIZE)?;
        times[0].push(start.elapsed());
        let start = Instant::now();
        memory.fill_words(7)?;
        context.synchronize()?;
        times[1].push(start.elapsed());
        let start = Instant::now();
        memory.free()?;
        times[2].push(start.elapsed());
    }
    let [allocate, touch, free] = times.map(|times| micros(median(&times)));
    Ok(pairs(&[("bytes", SIZE as f64), ("allocate_us", allocate), ("touch_us", touch), ("free_us", free)]))
}
