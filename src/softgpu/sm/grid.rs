//! A grid in flight: CTAs that are resident take turns, on one worker or on several.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::crew::Crew;
use crate::cta::Cta;
use crate::exec::{Context, Turn};
use crate::fault::Fault;
use crate::launch::{Launch, LaunchError};
use crate::memory::{Memory, View};
use crate::observe::{self, Observer};
use crate::program::{Code, Program};
use crate::twin::Twin;

/// Instructions of a warp's turn.
const WARP_TURN: u32 = 512;

/// Instructions of its warps after which a CTA goes behind the others.
const CTA_TURN: u64 = 64 * WARP_TURN as u64;

/// Turns of warps that one worker takes before others are called for: most grids are done by then.
const ALONE: u32 = 16;

/// CTAs that are resident, unless they wait for each other.
const RESIDENT: u64 = 64;

/// CTAs that wait for each other, at most: as many as 144 SMs hold.
const MOST_TOGETHER: u64 = 144 * 32;

/// Bytes of registers and shared memory of resident CTAs, at most: 64 that have all of an SM.
const MOST_BYTES: u64 = RESIDENT * (256 + 228) * 1024;

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

impl State {
    /// CTAs that have not ended.
    fn left(&self, launch: &Launch) -> u64 {
        self.resident + (launch.ctas() - self.next)
    }
}

/// What each worker has for itself.
struct Worker<'a> {
    view: Box<dyn View + 'a>,
    code: Code,
    /// Room of a CTA that has ended.
    spare: Option<Box<Cta>>,
    observer: Option<&'a mut dyn Observer>,
}

impl<'a> Worker<'a> {
    fn new(memory: &'a dyn Memory) -> Self {
        Self { view: memory.view(), code: Code::default(), spare: None, observer: None }
    }
}

/// CTAs for which there is local memory.
fn local_parts(launch: &Launch) -> u64 {
    let of_cta = launch.local.of_lane() * u64::from(launch.warps()) * 32;
    launch.local.size.checked_div(of_cta).unwrap_or(u64::MAX)
}

/// A grid in flight.
#[derive(Debug)]
pub struct Grid {
    launch: Launch,
    program: Program,
    twin: Twin,
    state: Mutex<State>,
}

impl Grid {
    /// A grid of which nothing has run.
    ///
    /// # Errors
    /// What the launch asks for is more than an SM has.
    pub fn new(launch: Launch) -> Result<Self, LaunchError> {
        Self::with(launch, Twin::of_host())
    }

    /// The same, executed by a twin of one's choice.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn with(launch: Launch, twin: Twin) -> Result<Self, LaunchError> {
        launch.check()?;
        let parts = RESIDENT.min(local_parts(&launch));
        let program = Program::new(launch.arch, launch.registers, launch.constants.clone());
        let state = State {
            waiting: VecDeque::new(),
            resident: 0,
            slots: (0..parts).rev().collect(),
            next: 0,
            fault: None,
            instructions: 0,
        };
        Ok(Self { launch, program, twin, state: Mutex::new(state) })
    }

    /// Number of its CTAs.
    pub fn blocks(&self) -> u64 {
        self.launch.ctas()
    }

    /// Has all CTAs resident at the same time, for they wait for each other. Before the grid has begun. The
    /// error is how many can be.
    ///
    /// # Errors
    /// Local memory, or the bytes of this process that a grid may take, are too few.
    pub fn gather(&mut self) -> Result<(), u64> {
        let launch = &self.launch;
        let registers = u64::from(launch.warps()) * u64::from(launch.registers) * 128;
        let of_cta = registers.saturating_add(launch.shared.into()).max(1);
        let most = MOST_TOGETHER.min(MOST_BYTES / of_cta).min(local_parts(launch));
        if launch.ctas() > most {
            return Err(most);
        }
        self.state().slots = (0..launch.ctas()).rev().collect();
        Ok(())
    }

    /// Runs the grid until it ends, or `go_on` says no: it is asked some thousand instructions apart, by
    /// every worker. The caller's thread is one of the crew; the others are called where there is enough to
    /// do. A crew of one always runs a grid the same way.
    pub fn run(&self, memory: &dyn Memory, crew: &dyn Crew, go_on: &(dyn Fn() -> bool + Sync)) -> Progress {
        let mut own = Worker::new(memory);
        if crew.size() <= 1 {
            self.work(&mut own, go_on);
        } else {
            let turns = AtomicU32::new(0);
            self.work(&mut own, &|| turns.fetch_add(1, Ordering::Relaxed) < ALONE && go_on());
            drop(own);
            let helpers =
                usize::try_from(self.left()).unwrap_or(usize::MAX).min(crew.size()).saturating_sub(1);
            if go_on() {
                crew.together(helpers, &|| self.work(&mut Worker::new(memory), go_on));
            }
        }
        self.progress()
    }

    /// Runs the grid to its end on one worker, in the caller's thread, and tells `observer` of every
    /// instruction.
    pub fn observe(&self, memory: &dyn Memory, observer: &mut dyn Observer) -> Progress {
        let mut worker = Worker { observer: Some(observer), ..Worker::new(memory) };
        self.work(&mut worker, &|| true);
        self.progress()
    }

    fn progress(&self) -> Progress {
        let state = self.state();
        match state.fault {
            Some(fault) => Progress::Faulted(fault),
            None if state.left(&self.launch) == 0 => Progress::Done,
            None => Progress::Paused,
        }
    }

    /// CTAs that have not ended; none if the grid cannot go on.
    fn left(&self) -> u64 {
        let state = self.state();
        if state.fault.is_some() { 0 } else { state.left(&self.launch) }
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
    fn take(&self, worker: &mut Worker<'_>) -> Option<Box<Cta>> {
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
            let mut cta = worker.spare.take().unwrap_or_default();
            cta.start(&self.launch, self.place(index), slot);
            return Some(cta);
        }
        state.waiting.pop_front()
    }

    /// Place of a CTA: X runs fastest.
    fn place(&self, index: u64) -> [u32; 3] {
        let [x, y, _] = self.launch.grid.map(|size| u64::from(size).max(1));
        [index % x, index / x % y, index / x / y].map(|part| u32::try_from(part).unwrap_or(u32::MAX))
    }

    fn work(&self, worker: &mut Worker<'_>, go_on: &(dyn Fn() -> bool + Sync)) {
        while go_on() {
            let Some(mut cta) = self.take(worker) else { return };
            let outcome = self.turn(&mut cta, worker, go_on);
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
                    worker.spare = Some(cta);
                }
                Ok(()) => state.waiting.push_back(cta),
            }
        }
    }

    /// Runs a CTA's warps in turns.
    fn turn(
        &self,
        cta: &mut Cta,
        worker: &mut Worker<'_>,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), Fault> {
        let (mut idle, mut ran, mut asked) = (0, 0, 0);
        while ran < CTA_TURN {
            let count = cta.warps.len();
            if idle >= count {
                return Ok(());
            }
            let index = cta.turn % count;
            cta.turn = (index + 1) % count;
            let (turn, instructions) = self.warp(cta, index, worker)?;
            match turn {
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
            ran += instructions.max(1);
            if ran - asked >= u64::from(WARP_TURN) {
                asked = ran;
                if !go_on() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Gives a warp its turn, and says how many instructions it ran.
    fn warp(&self, cta: &mut Cta, index: usize, worker: &mut Worker<'_>) -> Result<(Turn, u64), Fault> {
        let slot = cta.slot * u64::from(self.launch.warps()) + index as u64;
        let place = cta.place;
        let Some(warp) = cta.warps.get_mut(index) else { return Ok((Turn::Ended, 0)) };
        let before = warp.count;
        warp.prepare();
        let mut context = Context {
            launch: &self.launch,
            program: &self.program,
            view: &mut *worker.view,
            shared: &mut cta.shared,
            place,
            slot,
        };
        let turn = match &mut worker.observer {
            None => self.twin.run(warp, &mut context, &mut worker.code, WARP_TURN),
            Some(observer) => {
                observe::run(&mut **observer, self.twin, warp, &mut context, &mut worker.code, WARP_TURN)
            }
        };
        let turn = turn.map_err(|cause| Fault {
            cause,
            pc: warp.group.pc,
            cta: place,
            warp: warp.index,
            lanes: warp.group.mask,
        })?;
        Ok((turn, warp.count - before))
    }
}
