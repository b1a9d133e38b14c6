//! Directories that no walk gets to the end of (rows 10 and 13): what comes of a copy through one, how long a
//! flush takes.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::tool::{End, TO, Tool};
use super::{Outcome, Seen};

/// The longest that the flush of a hostile space may stop the processor that asks for it.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Walks {
    rounds: u64,
    stopped: u64,
    slowest: Duration,
}

impl Walks {
    /// Flushes the space, in time.
    pub fn flush(&mut self, tool: &dyn Tool) -> Result<()> {
        let start = Instant::now();
        tool.flush();
        // A read comes back when what was written before has taken effect.
        tool.card().reg(0);
        let took = start.elapsed();
        ensure!(took < FLUSH_LIMIT, "a flush took {took:?}");
        self.slowest = self.slowest.max(took);
        Ok(())
    }

    /// Copies a page from an address that a hostile `entry` is on the way to.
    pub fn copy(&mut self, tool: &mut dyn Tool, from: u64, entry: impl Debug) -> Result<End> {
        let end = tool.copy_page(TO, from);
        match end {
            End::Done | End::Lost => {}
            End::Silent => bail!("a copy through {entry:x?} neither ended nor failed"),
            End::Fault(_) | End::Error => self.stopped += 1,
        }
        Ok(end)
    }

    /// A hostile directory was tried.
    pub fn tried(&mut self) {
        self.rounds += 1;
    }

    /// What came of all of them.
    pub fn seen(&self) -> Result<Seen> {
        let Self { rounds, stopped, .. } = self;
        ensure!(*stopped > 0, "none of {rounds} hostile directories stopped the channel");
        let text = format!("{rounds} directories, {stopped} stopped the channel; {}", self.flushes());
        Ok(Seen::new(Outcome::Quarantined, text))
    }

    /// What came of as many tables as there is room for.
    pub fn flooded(&self, tool: &mut dyn Tool, tables: u64) -> Seen {
        if tool.is_lost() {
            let text = format!("the vGPU was taken away after {tables} tables; {}", self.flushes());
            return Seen::new(Outcome::Quarantined, text);
        }
        let end = tool.copies_honestly(1);
        let text = format!("{tables} tables, then a copy ended with {end:?}; {}", self.flushes());
        Seen::new(if end == End::Done { Outcome::Limited } else { end.outcome() }, text)
    }

    fn flushes(&self) -> String {
        format!("slowest flush {} ms", self.slowest.as_millis())
    }
}

/// The whole vGPU was taken away because of one of them.
pub fn lost() -> Seen {
    Seen::new(Outcome::Quarantined, "the vGPU was taken away")
}
