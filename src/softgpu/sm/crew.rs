//! Who executes a grid: the caller's thread, and others that help it.

use std::fmt::Debug;

/// Threads that execute a grid together.
pub trait Crew: Debug + Sync {
    /// How many there are, the caller's included.
    fn size(&self) -> usize;

    /// Calls `work` in the caller's thread, and in up to `helpers` others that are free. When it returns, all
    /// calls have returned.
    fn together(&self, helpers: usize, work: &(dyn Fn() + Sync));
}

/// The caller's thread alone.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Crew for Alone {
    fn size(&self) -> usize {
        1
    }

    fn together(&self, _helpers: usize, work: &(dyn Fn() + Sync)) {
        work();
    }
}

/// So many threads, which are started where they are needed.
#[derive(Clone, Copy, Debug)]
pub struct Started(pub usize);

impl Crew for Started {
    fn size(&self) -> usize {
        self.0
    }

    fn together(&self, helpers: usize, work: &(dyn Fn() + Sync)) {
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(work);
            }
            work();
        });
    }
}
