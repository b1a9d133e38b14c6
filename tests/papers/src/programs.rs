//! The table: names and what they do.

mod alignment;
mod arithmetic;
mod copies;
mod decomposition;
mod graph;
mod heat;
mod image;
mod nearest;
mod network;
mod window;

use crate::job::{Job, Step, Value};

/// How much a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For a software GPU: all of the result is compared.
    Small,
    /// For a card: a millisecond and more. Of large results samples are compared.
    Full,
}

impl Size {
    /// One of two things.
    const fn pick<T: Copy>(self, small: T, full: T) -> T {
        match self {
            Self::Small => small,
            Self::Full => full,
        }
    }
}

/// A program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name in the papers.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    job: fn(Size) -> Job,
}

impl Program {
    /// What it does, in this size.
    #[must_use]
    pub fn job(&self, size: Size) -> Job {
        (self.job)(size)
    }
}

/// All programs.
pub const PROGRAMS: [Program; 16] = [
    Program { name: "NOP", about: "an empty kernel", job: arithmetic::nop },
    Program { name: "LOOP", about: "a long loop in each thread", job: arithmetic::looped },
    Program { name: "MADD", about: "sums of matrices of integers", job: arithmetic::madd },
    Program { name: "MMUL", about: "product of matrices of integers", job: arithmetic::mmul },
    Program { name: "FMADD", about: "sums of matrices", job: arithmetic::fmadd },
    Program { name: "FMMUL", about: "product of matrices", job: arithmetic::fmmul },
    Program { name: "CPY", about: "memory there and back", job: copies::pageable },
    Program { name: "PINCPY", about: "pinned memory there and back", job: copies::pinned },
    Program { name: "BP", about: "back propagation", job: network::job },
    Program { name: "BFS", about: "breadth-first search", job: graph::job },
    Program { name: "HS", about: "heat on a chip", job: heat::job },
    Program { name: "LUD", about: "lower and upper triangular matrices", job: decomposition::job },
    Program { name: "NN", about: "nearest neighbours", job: nearest::job },
    Program { name: "NW", about: "alignment after Needleman and Wunsch", job: alignment::job },
    Program { name: "SRAD", about: "smoothing, with statistics of the image", job: image::with_statistics },
    Program { name: "SRAD2", about: "smoothing, by tiles in shared memory", job: image::by_tiles },
];

/// The program of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}

/// A launch of a row of blocks.
fn row(kernel: &'static str, blocks: u32, threads: u32, arguments: &[Value]) -> Step {
    Step { kernel, grid: [blocks, 1, 1], block: [threads, 1, 1], arguments: arguments.to_vec() }
}

/// Fills a room with numbers from `base` on.
fn fill_unit(room: usize, count: u32, seed: u32, scale: f32, base: f32) -> Step {
    let arguments =
        [Value::Room(room), Value::Word(count), Value::Word(seed), Value::Float(scale), Value::Float(base)];
    row("fill_unit", blocks(count), 256, &arguments)
}

/// Fills a room with zeros.
fn fill_zero(room: usize, count: u32) -> Step {
    row("fill_zero", blocks(count), 256, &[Value::Room(room), Value::Word(count)])
}

/// Blocks of 256 threads that go over so many things: no more than run at once.
const fn blocks(count: u32) -> u32 {
    let blocks = count.div_ceil(256);
    if blocks < 1056 { blocks } else { 1056 }
}
