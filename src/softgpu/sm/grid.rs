//! A grid in flight: CTAs that are resident take turns, on one worker or on several.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cta::Cta;
use crate::exec::{Context, Turn, run};
use crate::fault::Fault;
use crate::launch::{Launch, LaunchError};
use crate::memory::{Memory, View};
use crate::program::Program;

/// Instructions of a warp's turn.
const WARP_TURN: u32 = 512;

/// Turns of warps after which a CTA goes behind the others.
const CTA_TURNS: usize = 64;

/// CTAs that are resident at most: a grid whose CTAs wait for each other has no more.
const RESIDENT: u64 = 64;

/// How a slice of a grid ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do.
    Paused,
    /// All CTAs have ended.
    Done,
    /// A warp cannot go on: nor does the grid.
    Faulted(Fault),
}

/// What workers share.
#[derive(Debug)]
struct State {
    /// Resident CTAs that wait for their turn.
    waiting: VecDeque<Box<Cta>>,
    /// Resident CTAs, those that run included.
    resident: u64,
    /// Parts of local memory that are free.
    slots: Vec<u64>,
    /// The next CTA.
    next: u64,
    fault: Option<Fault>,
    /// Instructions that ended CTAs ran.
    instructions: u64,
}

/// A grid in flight.
#[derive(Debug)]
pub struct Grid {
    launch: Launch,
    program: Program,
    state: Mutex<State>,
}

impl Grid {
    /// A grid of which nothing has run.
    ///
    /// # Errors
    /// What the launch asks for is more than an SM has.
    pub fn new(launch: Launch) -> Result<Self, LaunchError> {
        launch.check()?;
        let of_cta = launch.local.of_lane() * u64::from(launch.warps()) * 32;
        let parts = launch.local.size.checked_div(of_cta).unwrap_or(RESIDENT).min(RESIDENT);
        let program = Program::new(launch.arch, launch.registers, launch.constants.clone());
        let state = State {
            waiting: VecDeque::new(),
            resident: 0,
            slots: (0..parts).rev().collect(),
            next: 0,
            fault: None,
            instructions: 0,
        };
        Ok(Self { launch, program, state: Mutex::new(state) })
    }

    /// Runs the grid on `workers` threads until it ends, or `go_on` says no: it is asked some thousand
    /// instructions apart, by every worker. One worker runs in the caller's thread, and always the same way.
    pub fn run(&self, memory: &dyn Memory, workers: usize, go_on: &(dyn Fn() -> bool + Sync)) -> Progress {
        if workers <= 1 {
            self.work(&mut *memory.view(), go_on);
        } else {
            std::thread::scope(|scope| {
                for _ in 0..workers {
                    scope.spawn(|| self.work(&mut *memory.view(), go_on));
                }
            });
        }
        let state = self.state();
        match state.fault {
            Some(fault) => Progress::Faulted(fault),
            None if state.resident == 0 && state.next >= self.launch.ctas() => Progress::Done,
            None => Progress::Paused,
        }
    }

    /// Instructions of warps that CTAs ran that have ended.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        self.state().instructions
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new CTA while there is room, else the one that waited longest.
    fn take(&self) -> Option<Box<Cta>> {
        let mut state = self.state();
        if state.fault.is_some() {
            return None;
        }
        if state.next < self.launch.ctas()
            && let Some(slot) = state.slots.pop()
        {
            let index = state.next;
            state.next += 1;
            state.resident += 1;
            drop(state);
            return Some(Box::new(Cta::new(&self.launch, self.place(index), slot)));
        }
        state.waiting.pop_front()
    }

    /// Place of a CTA: X runs fastest.
    fn place(&self, index: u64) -> [u32; 3] {
        let [x, y, _] = self.launch.grid.map(|size| u64::from(size).max(1));
        [index % x, index / x % y, index / x / y].map(|part| u32::try_from(part).unwrap_or(u32::MAX))
    }

    fn work(&self, view: &mut dyn View, go_on: &(dyn Fn() -> bool + Sync)) {
        while go_on() {
            let Some(mut cta) = self.take() else { return };
            let outcome = self.turn(&mut cta, view, go_on);
            let mut state = self.state();
            match outcome {
                Err(fault) => {
                    state.fault.get_or_insert(fault);
                    return;
                }
                Ok(()) if cta.is_done() => {
                    state.resident -= 1;
                    state.slots.push(cta.slot);
                    state.instructions += cta.warps.iter().map(|warp| warp.count).sum::<u64>();
                }
                Ok(()) => state.waiting.push_back(cta),
            }
        }
    }

    /// Runs a CTA's warps in turns.
    fn turn(
        &self,
        cta: &mut Cta,
        view: &mut dyn View,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), Fault> {
        let mut idle = 0;
        for _ in 0..CTA_TURNS {
            let count = cta.warps.len();
            if idle >= count || !go_on() {
                return Ok(());
            }
            let index = cta.turn % count;
            cta.turn = (index + 1) % count;
            match self.warp(cta, index, view)? {
                Turn::Arrived(arrival) => {
                    cta.arrive(index, arrival);
                    idle = 0;
                }
                Turn::Quantum => idle = 0,
                Turn::Ended => {
                    cta.open();
                    idle += 1;
                }
                Turn::Blocked => idle += 1,
            }
        }
        Ok(())
    }

    fn warp(&self, cta: &mut Cta, index: usize, view: &mut dyn View) -> Result<Turn, Fault> {
        let slot = cta.slot * u64::from(self.launch.warps()) + index as u64;
        let place = cta.place;
        let Some(warp) = cta.warps.get_mut(index) else { return Ok(Turn::Ended) };
        let mut context = Context {
            launch: &self.launch,
            program: &self.program,
            view,
            shared: &mut cta.shared,
            place,
            slot,
        };
        run(warp, &mut context, WARP_TURN).map_err(|cause| Fault {
            cause,
            pc: warp.group.pc,
            cta: place,
            warp: warp.index,
            lanes: warp.group.mask,
        })
    }
}
