//! Streams and events.
#![allow(unsafe_code, reason = "libcuda's functions are unsafe to call")]

use std::rc::Rc;

use anyhow::Result;

use super::{Context, Handle};

/// Work in order.
#[derive(Debug)]
pub struct Stream {
    context: Rc<Context>,
    handle: Handle,
}

/// A place in a stream.
#[derive(Debug)]
pub struct Event {
    context: Rc<Context>,
    handle: Handle,
}

impl Stream {
    /// A new one.
    pub fn create(context: &Rc<Context>) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place for the answer is borrowed over the call; the flags are those of no wish.
        let status = unsafe { (context.driver.functions.stream_create)(&raw mut handle, 0) };
        context.driver.check("cuStreamCreate", status)?;
        Ok(Self { context: Rc::clone(context), handle })
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// Has what comes next wait for what comes before an event, in another stream.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        let functions = &self.context.driver.functions;
        // SAFETY: the handles are a stream's and an event's; the flags must be 0.
        let status = unsafe { (functions.stream_wait_event)(self.handle, event.handle, 0) };
        self.context.driver.check("cuStreamWaitEvent", status)
    }

    /// Waits for all of its work.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle is a stream's.
        let status = unsafe { (self.context.driver.functions.stream_synchronize)(self.handle) };
        self.context.driver.check("cuStreamSynchronize", status)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the handle is a stream's, and is not used afterwards.
        let _ = unsafe { (self.context.driver.functions.stream_destroy)(self.handle) };
    }
}

impl Event {
    /// A new one; who waits for a blocking one sleeps.
    pub fn create(context: &Rc<Context>, blocking: bool) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place for the answer is borrowed over the call; 1 is CU_EVENT_BLOCKING_SYNC.
        let status = unsafe { (context.driver.functions.event_create)(&raw mut handle, blocking.into()) };
        context.driver.check("cuEventCreate", status)?;
        Ok(Self { context: Rc::clone(context), handle })
    }

    /// Puts it behind a stream's work so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the handles are an event's and a stream's.
        let status = unsafe { (self.context.driver.functions.event_record)(self.handle, stream.handle) };
        self.context.driver.check("cuEventRecord", status)
    }

    /// Waits until the work before it is done.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle is an event's.
        let status = unsafe { (self.context.driver.functions.event_synchronize)(self.handle) };
        self.context.driver.check("cuEventSynchronize", status)
    }

    /// Milliseconds from another to this one.
    pub fn since(&self, other: &Self) -> Result<f32> {
        let mut time = 0.0;
        let functions = &self.context.driver.functions;
        // SAFETY: the place for the answer is borrowed over the call; the handles are events'.
        let status = unsafe { (functions.event_elapsed_time)(&raw mut time, other.handle, self.handle) };
        self.context.driver.check("cuEventElapsedTime", status)?;
        Ok(time)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle is an event's, and is not used afterwards.
        let _ = unsafe { (self.context.driver.functions.event_destroy)(self.handle) };
    }
}
