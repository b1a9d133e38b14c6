//! The same thing many times, for somebody who counts what it costs.

use std::ffi::CStr;
use std::rc::Rc;

use anyhow::Result;

use super::{Figures, SUMS, figures};
use crate::driver::{Context, DeviceMemory, Graph, Module, Shape, Stream};

/// Memory that is allocated, and given back.
pub fn allocations(context: &Rc<Context>) -> Result<Figures> {
    const COUNT: usize = 100;
    const SIZE: usize = 2 << 20;
    let all = (0..COUNT).map(|_| DeviceMemory::allocate(context, SIZE)).collect::<Result<Vec<_>>>()?;
    all.into_iter().try_for_each(DeviceMemory::free)?;
    Ok(figures(&[("count", COUNT), ("bytes", SIZE)]))
}

/// Launches of a kernel that has nothing to do, one after the other.
pub fn launches(context: &Rc<Context>) -> Result<Figures> {
    const COUNT: usize = 1000;
    let module = Module::load(context, CStr::from_bytes_with_nul(SUMS.as_bytes())?)?;
    let kernel = module.kernel(c"vector_sum")?;
    for _ in 0..COUNT {
        kernel.launch(Shape::row(1, 32), &[0; 4])?;
    }
    context.synchronize()?;
    Ok(figures(&[("count", COUNT)]))
}

/// Launches of a graph of such kernels in a row.
pub fn graph_launches(context: &Rc<Context>) -> Result<Figures> {
    const COUNT: usize = 100;
    const KERNELS: usize = 200;
    let module = Module::load(context, CStr::from_bytes_with_nul(SUMS.as_bytes())?)?;
    let kernel = module.kernel(c"vector_sum")?;
    let stream = Stream::create(context)?;
    let graph = Graph::take_down(context, &stream, || {
        (0..KERNELS).try_for_each(|_| kernel.launch_in(&stream, Shape::row(1, 32), &[0; 4]))
    })?;
    for _ in 0..COUNT {
        graph.launch_in(&stream)?;
    }
    stream.synchronize()?;
    Ok(figures(&[("count", COUNT), ("kernels", KERNELS)]))
}
