//! A program of one size, as data: memory, launches, and what must come of them.

use anyhow::{Context, Result};

use crate::gpu::{Area, Direction, Launch};

/// Says what is wrong with the bytes that came back, in the order of [`Job::results`].
pub type Check = Box<dyn Fn(&[Vec<u8>]) -> Result<()>>;

/// A piece of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes.
    pub bytes: usize,
    /// What is copied there first; none: launches fill it.
    pub input: Option<Vec<u8>>,
}

impl Room {
    /// So many bytes, which launches fill.
    #[must_use]
    pub const fn empty(bytes: usize) -> Self {
        Self { bytes, input: None }
    }

    /// One with these bytes.
    #[must_use]
    pub fn with(input: Vec<u8>) -> Self {
        Self { bytes: input.len(), input: Some(input) }
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// The address of a room, by its number.
    Room(usize),
    /// So many bytes behind it.
    Inside(usize, usize),
    /// A word.
    Word(u32),
    /// A number.
    Float(f32),
}

/// A kernel that is launched.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its name.
    pub kernel: &'static str,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of one.
    pub block: [u32; 3],
    /// Its arguments.
    pub arguments: Vec<Value>,
}

/// Bytes of a room that come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The room.
    pub room: usize,
    /// From which byte on.
    pub at: usize,
    /// How many.
    pub bytes: usize,
}

/// What a program does.
pub struct Job {
    /// Its memory.
    pub rooms: Vec<Room>,
    /// Kernels, one after the other. They give the same however often all of them are repeated.
    pub steps: Vec<Step>,
    /// Copies by an engine that are measured instead of kernels: a room, and where to.
    pub transfers: Vec<(usize, Direction)>,
    /// What comes back.
    pub results: Vec<Part>,
    /// Compares it.
    pub check: Check,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes: usize = self.rooms.iter().map(|room| room.bytes).sum();
        f.debug_struct("Job").field("bytes", &bytes).field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl Job {
    /// Its launches, for rooms that lie there.
    ///
    /// # Errors
    /// An argument names a room that there is not.
    pub fn launches(&self, areas: &[Area]) -> Result<Vec<Launch>> {
        let place = |room: usize, at: usize| -> Result<u64> {
            let area = areas.get(room).with_context(|| format!("There is no room {room}"))?;
            Ok(area.address.saturating_add(at as u64))
        };
        let value = |value: &Value| match *value {
            Value::Room(room) => place(room, 0),
            Value::Inside(room, at) => place(room, at),
            Value::Word(word) => Ok(word.into()),
            Value::Float(number) => Ok(number.to_bits().into()),
        };
        let launch = |step: &Step| {
            let arguments: Result<Vec<u64>> = step.arguments.iter().map(value).collect();
            Ok(Launch { kernel: step.kernel, grid: step.grid, block: step.block, arguments: arguments? })
        };
        self.steps.iter().map(launch).collect()
    }
}
