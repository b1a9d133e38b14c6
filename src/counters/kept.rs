//! A count that many threads add to.

use std::sync::atomic::{AtomicU64, Ordering};

/// One count. Adding to it orders nothing and waits for nobody.
#[derive(Debug, Default)]
pub struct Kept(AtomicU64);

impl Kept {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn one(&self) {
        self.add(1);
    }

    /// How many there are.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
