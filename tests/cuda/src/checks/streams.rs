//! Kernels in several streams at once.

use std::ffi::CStr;
use std::rc::Rc;

use anyhow::{Context as _, Result};

use super::{Figures, SUMS, figures, pattern, same, sum};
use crate::driver::{Context, DeviceMemory, Event, Module, PinnedMemory, Shape, Stream};

const COUNT: usize = 20_011;
const STREAMS: usize = 4;
const ROUNDS: usize = 3;

/// A stream with memory of its own.
struct Lane {
    stream: Stream,
    done: Event,
    device: [DeviceMemory; 3],
    result: PinnedMemory,
}

impl Lane {
    fn make(context: &Rc<Context>) -> Result<Self> {
        let [one, two, three] = [(); 3].map(|()| DeviceMemory::allocate(context, COUNT * 4));
        Ok(Self {
            stream: Stream::create(context)?,
            done: Event::create(context, false)?,
            device: [one?, two?, three?],
            result: PinnedMemory::allocate(context, COUNT * 4)?,
        })
    }
}

/// Each stream adds two lists, several times, at the same time as the others. Then each adds to its sum that
/// of the stream before, for which it waits by an event: every stream's result has those of all before it.
pub fn streams(context: &Rc<Context>) -> Result<Figures> {
    let module = Module::load(context, CStr::from_bytes_with_nul(SUMS.as_bytes())?)?;
    let kernel = module.kernel(c"vector_sum")?;
    let lanes = (0..STREAMS).map(|_| Lane::make(context)).collect::<Result<Vec<_>>>()?;
    let mut expected = Vec::new();
    for (lane, seed) in lanes.iter().zip((100..).step_by(2)) {
        let inputs = [seed, seed + 1].map(|seed| pattern(COUNT * 4, seed));
        lane.device[0].write(&inputs[0])?;
        lane.device[1].write(&inputs[1])?;
        expected.push(sum(&inputs));
    }
    let (shape, count) = (Shape::row(11, 128), COUNT as u64);
    for _ in 0..ROUNDS {
        for Lane { stream, device, result, .. } in &lanes {
            let [one, two, three] = device.each_ref().map(DeviceMemory::address);
            kernel.launch_in(stream, shape, &[one, two, three, count])?;
            device[2].read_later(result, stream)?;
        }
    }
    for (number, (lane, expected)) in lanes.iter().zip(&expected).enumerate() {
        lane.stream.synchronize()?;
        same(&lane.result.read(), expected).with_context(|| format!("stream {number}"))?;
    }
    for pair in lanes.windows(2) {
        let [before, lane] = pair else { continue };
        before.done.record(&before.stream)?;
        lane.stream.wait_for(&before.done)?;
        let parameters =
            [lane.device[2].address(), before.device[2].address(), lane.device[2].address(), count];
        kernel.launch_in(&lane.stream, shape, &parameters)?;
    }
    context.synchronize()?;
    let mut all = expected[0].clone();
    for (lane, own) in lanes.iter().zip(&expected).skip(1) {
        all = sum(&[all, own.clone()]);
        same(&lane.device[2].read()?, &all).context("the sum of all before")?;
    }
    Ok(figures(&[("streams", STREAMS), ("kernels", STREAMS * ROUNDS + STREAMS - 1)]))
}
