//! A CTA: its warps, shared memory, and barriers.

use crate::launch::Launch;
use crate::warp::{Reduction, Warp};

/// Barriers of a CTA.
pub(crate) const BARRIERS: usize = 16;

/// What a group does at a barrier of its CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub barrier: u8,
    /// Lanes that arrive.
    pub mask: u32,
    /// Lanes for which the predicate of a reduction holds.
    pub holds: u32,
    /// Threads that the barrier waits for; 0 for all.
    pub count: u32,
    /// The group does not wait.
    pub arrive_only: bool,
    /// It reduces, and asks whether the predicate holds for all.
    pub reduces: Option<bool>,
}

/// What a warp contributed to a barrier.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    arrived: u32,
    holds: u32,
}

/// A barrier of a CTA.
#[derive(Debug, Default)]
struct Barrier {
    parts: Vec<Part>,
    count: u32,
    /// See [`Arrival::reduces`].
    reduces: Option<bool>,
}

/// A CTA.
#[derive(Debug, Default)]
pub(crate) struct Cta {
    /// Place in the grid.
    pub place: [u32; 3],
    pub warps: Vec<Warp>,
    pub shared: Shared,
    barriers: [Barrier; BARRIERS],
    /// Barriers at which some lane has arrived since the last time that they opened, a bit each.
    armed: u16,
    /// Which part of local memory is its own.
    pub slot: u64,
    /// The warp whose turn is next.
    pub turn: usize,
}

/// Shared memory, by words.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub words: Vec<u32>,
}

impl Cta {
    /// Makes it a CTA of which nothing has run. Its room is used again, of what it held nothing stays.
    pub fn start(&mut self, launch: &Launch, place: [u32; 3], slot: u64) {
        self.place = place;
        self.warps.resize_with(launch.warps() as usize, Warp::default);
        for (warp, index) in self.warps.iter_mut().zip(0..) {
            warp.start(launch.registers, launch.entry, launch.threads(), index);
        }
        self.shared.words.clear();
        self.shared.words.resize(launch.shared.div_ceil(4) as usize, 0);
        let mut armed = std::mem::take(&mut self.armed);
        while armed != 0 {
            if let Some(barrier) = self.barriers.get_mut(armed.trailing_zeros() as usize) {
                barrier.parts.clear();
            }
            armed &= armed - 1;
        }
        self.slot = slot;
        self.turn = 0;
    }

    /// Whether all lanes have ended.
    pub fn is_done(&self) -> bool {
        self.warps.iter().all(|warp| warp.live == 0)
    }

    /// A group of a warp arrives at a barrier; it is parked there already, if it waits.
    pub fn arrive(&mut self, warp: usize, arrival: Arrival) {
        let warps = self.warps.len();
        let Some(barrier) = self.barriers.get_mut(usize::from(arrival.barrier)) else { return };
        barrier.parts.resize_with(warps, Part::default);
        if let Some(part) = barrier.parts.get_mut(warp) {
            part.arrived |= arrival.mask;
            part.holds |= arrival.holds & arrival.mask;
        }
        barrier.count = arrival.count;
        self.armed |= 1 << arrival.barrier;
        barrier.reduces = arrival.reduces;
        self.open();
    }

    /// Opens barriers at which all have arrived. Lanes that ended are not waited for.
    pub fn open(&mut self) {
        if self.armed == 0 {
            return;
        }
        for (number, barrier) in (0_u8..).zip(&mut self.barriers) {
            if self.armed >> number & 1 == 0 {
                continue;
            }
            let parts = || self.warps.iter().zip(&barrier.parts);
            let full = |(warp, part): (&Warp, &Part)| warp.live & !part.arrived == 0;
            let complete = if barrier.count == 0 {
                parts().all(full)
            } else {
                // A warp counts as a whole, even one with fewer threads.
                let arrived = parts().map(|(warp, part)| match part.arrived {
                    0 => 0,
                    _ if full((warp, part)) => 32,
                    lanes => lanes.count_ones(),
                });
                arrived.sum::<u32>() >= barrier.count
            };
            if !complete {
                continue;
            }
            let holds: u32 = barrier.parts.iter().map(|part| part.holds.count_ones()).sum();
            let arrived: u32 = barrier.parts.iter().map(|part| part.arrived.count_ones()).sum();
            let reduction = barrier.reduces.map(|of_all| Reduction { holds, arrived, of_all });
            self.armed &= !(1 << number);
            barrier.parts.clear();
            for warp in &mut self.warps {
                warp.barrier_opened(number, reduction);
            }
        }
    }
}
