//! Graphs: work that was taken down once and is launched as often as one likes.
#![allow(unsafe_code, reason = "libcuda's functions are unsafe to call")]

use std::rc::Rc;

use anyhow::Result;

use super::{Context, Handle, Stream};

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const THREAD: u32 = 1;

/// A graph that can be launched.
#[derive(Debug)]
pub struct Graph {
    context: Rc<Context>,
    handle: Handle,
    /// How many pieces of work it has.
    nodes: usize,
}

impl Graph {
    /// Of what this puts into a stream, none of which runs now.
    pub fn take_down(
        context: &Rc<Context>,
        stream: &Stream,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let driver = &context.driver;
        // SAFETY: the handle is a stream's.
        let status = unsafe { (driver.functions.stream_begin_capture)(stream.handle(), THREAD) };
        driver.check("cuStreamBeginCapture", status)?;
        let put = work();
        let mut graph = std::ptr::null_mut();
        // SAFETY: the handle is a stream's; the place for the answer is borrowed over the call.
        let status = unsafe { (driver.functions.stream_end_capture)(stream.handle(), &raw mut graph) };
        put?;
        driver.check("cuStreamEndCapture", status)?;
        let (mut handle, mut nodes) = (std::ptr::null_mut(), 0);
        // SAFETY: the handle is a graph's; the place for the number is borrowed, null asks for nothing else.
        let counted =
            unsafe { (driver.functions.graph_get_nodes)(graph, std::ptr::null_mut(), &raw mut nodes) };
        // SAFETY: the handle is a graph's; the place for the answer is borrowed over the call.
        let made = unsafe { (driver.functions.graph_instantiate)(&raw mut handle, graph, 0) };
        // SAFETY: the handle is a graph's, and is not used afterwards.
        let destroyed = unsafe { (driver.functions.graph_destroy)(graph) };
        driver.check("cuGraphInstantiate", made)?;
        let graph = Self { context: Rc::clone(context), handle, nodes };
        driver.check("cuGraphGetNodes", counted)?;
        driver.check("cuGraphDestroy", destroyed)?;
        Ok(graph)
    }

    /// How many pieces of work it has.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Puts all of it into the usual stream.
    pub fn launch(&self) -> Result<()> {
        self.launch_by(std::ptr::null_mut())
    }

    /// Puts all of it into a stream.
    pub fn launch_in(&self, stream: &Stream) -> Result<()> {
        self.launch_by(stream.handle())
    }

    fn launch_by(&self, stream: Handle) -> Result<()> {
        // SAFETY: the handles are that of a graph that can be launched, and a stream's or null, the usual
        // one.
        let status = unsafe { (self.context.driver.functions.graph_launch)(self.handle, stream) };
        self.context.driver.check("cuGraphLaunch", status)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the handle is that of a graph that can be launched, and is not used afterwards.
        let _ = unsafe { (self.context.driver.functions.graph_exec_destroy)(self.handle) };
    }
}
