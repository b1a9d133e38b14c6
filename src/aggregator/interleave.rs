//! For tests: every order in which threads can do their steps on what they share.
//!
//! A run's threads take turns. Each stops before every step that others can notice ([`point`],
//! [`wait_until`], [`word`] before each access to memory that processes share), and one of those that can go
//! on is chosen. [`explore`] runs the same threads again and again until every choice has been made in every
//! state. So the code under test is the real one, executed by real threads, with memory as if each step took
//! effect everywhere at once (as `SeqCst` promises).
//!
//! Two orders that lead to the same state go on in the same way, and only one is followed. A state is the
//! fingerprint of the shared memory (`World::fingerprint`), and for each thread the number of its steps and
//! the values that it has seen since its last call of [`forget`]. These determine what threads do next.
//!
//! Orders with very many interruptions are numerous, and find little that others do not: a search tries all
//! orders with up to a given number of interruptions. A switch away from a thread that waits does not count.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "for tests alone, of this room and of others"
)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The memory that the threads of a run share.
pub trait World: Send + Sync + 'static {
    /// The state of what is shared, as a number. Called between two steps.
    fn fingerprint(&self) -> u64;

    /// As before the first step.
    fn reset(&self);

    /// Judges the end of a run: all threads are done, or those in `stuck` wait for ever. Returns what is
    /// wrong, in words.
    fn judge(&self, stuck: &[usize]) -> Option<String>;

    /// True if accesses to the shared word at `index` are steps.
    fn is_shared(&self, index: usize) -> bool {
        let _ = index;
        true
    }
}

/// As many interruptions as there can be.
pub const ALL: u32 = u32::MAX;

/// The program of a thread.
pub type Program<W> = fn(&Arc<W>);

/// One thread as its run sees it.
enum Status {
    Ready,
    /// Until this holds.
    Waiting(Box<dyn Fn() -> bool + Send>),
    Done,
}

struct State {
    threads: Vec<Status>,
    seen: Vec<u64>,
    turn: usize,
    /// Choices to be made again, then those of this run.
    path: Vec<u8>,
    replayed: usize,
    at: usize,
    /// So often threads may still be interrupted.
    interruptions: u32,
    over: bool,
    stuck: Vec<usize>,
    /// It came to a state that was there before.
    known: bool,
    steps: u64,
}

/// What outlives runs.
#[derive(Default)]
struct Search {
    /// States, each with the interruptions that were left there.
    visited: HashMap<u64, u32>,
    open: Vec<Vec<u8>>,
}

struct Run {
    state: Mutex<State>,
    turns: Vec<Condvar>,
    search: Arc<Mutex<Search>>,
    world: Arc<dyn World>,
}

thread_local! {
    static ME: RefCell<Option<(Arc<Run>, usize)>> = const { RefCell::new(None) };
}

/// The run is over: unwinds its threads.
struct Over;

fn me() -> Option<(Arc<Run>, usize)> {
    ME.with_borrow(Clone::clone)
}

/// Others may go first.
pub fn point() {
    if let Some((run, number)) = me() {
        run.stop(number, Status::Ready);
    }
}

/// The same before an access to a shared word, which has this value now.
pub fn word<T: Hash>(index: usize, value: impl Fn() -> T) {
    if let Some((run, number)) = me()
        && run.world.is_shared(index)
    {
        run.stop(number, Status::Ready);
        run.note(number, (index, value()));
    }
}

/// Notes a value that the calling thread has seen by its last step.
pub fn saw(what: impl Hash) {
    if let Some((run, number)) = me() {
        run.note(number, what);
    }
}

/// The calling thread is at its place number `place`, and what it did before does not matter any more.
pub fn forget(place: u64) {
    if let Some((run, number)) = me() {
        run.lock().seen[number] = place;
    }
}

/// Sleeps until it holds.
pub fn wait_until(condition: impl Fn() -> bool + Send + 'static) {
    let Some((run, number)) = me() else { panic!("outside of a run nobody is there to wait for") };
    run.stop(number, Status::Waiting(Box::new(condition)));
}

impl Run {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, number: usize, what: impl Hash) {
        let mut state = self.lock();
        let mut hasher = DefaultHasher::new();
        (state.seen[number], what).hash(&mut hasher);
        state.seen[number] = hasher.finish();
    }

    /// A thread stops before its next step, and goes on when it is its turn.
    fn stop(&self, number: usize, status: Status) {
        // Where it is belongs to what it knows: at another place it does something else.
        self.note(number, "stop");
        let mut state = self.lock();
        state.threads[number] = status;
        self.choose(&mut state);
        self.wait_for_turn(state, number);
    }

    fn wait_for_turn(&self, mut state: MutexGuard<'_, State>, number: usize) {
        while !state.over && state.turn != number {
            state = self.turns[number].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.threads[number] = Status::Ready;
        if state.over {
            drop(state);
            resume_unwind(Box::new(Over));
        }
    }

    /// A thread is done.
    fn finish(&self, number: usize) {
        let mut state = self.lock();
        state.threads[number] = Status::Done;
        if !state.over {
            self.choose(&mut state);
        }
    }

    fn choose(&self, state: &mut State) {
        state.steps += 1;
        let current = state.turn;
        let can = |status: &Status| match status {
            Status::Ready => true,
            Status::Waiting(condition) => condition(),
            Status::Done => false,
        };
        let mut enabled: Vec<usize> = (0..state.threads.len()).filter(|i| can(&state.threads[*i])).collect();
        enabled.sort_by_key(|i| (*i != current, *i));
        let next = match enabled[..] {
            [] => {
                let waits = |i: &usize| matches!(state.threads[*i], Status::Waiting(_));
                state.stuck = (0..state.threads.len()).filter(waits).collect();
                return self.end(state);
            }
            [only] => only,
            _ if enabled[0] == current && state.interruptions == 0 => current,
            _ if state.at < state.replayed => {
                let choice = state.path[state.at];
                state.at += 1;
                enabled[usize::from(choice)]
            }
            _ => {
                let mut hasher = DefaultHasher::new();
                self.world.fingerprint().hash(&mut hasher);
                for (thread, seen) in state.threads.iter().zip(&state.seen) {
                    (std::mem::discriminant(thread), seen).hash(&mut hasher);
                }
                let left = state.interruptions;
                let mut search = self.search.lock().unwrap();
                let before = search.visited.insert(hasher.finish(), left);
                if let Some(before) = before.filter(|before| *before >= left) {
                    search.visited.insert(hasher.finish(), before);
                    state.known = true;
                    return self.end(state);
                }
                for other in 1..enabled.len() {
                    let mut path = state.path.clone();
                    path.push(u8::try_from(other).unwrap());
                    search.open.push(path);
                }
                state.path.push(0);
                enabled[0]
            }
        };
        if enabled[0] == current && next != current {
            state.interruptions -= 1;
        }
        state.turn = next;
        self.turns[next].notify_one();
    }

    fn end(&self, state: &mut State) {
        state.over = true;
        self.turns.iter().for_each(Condvar::notify_one);
    }
}

/// Result of a search.
#[derive(Debug)]
pub struct Found {
    /// States in which there was a choice.
    pub states: usize,
    /// Number of runs.
    pub runs: u64,
    /// The first problem, and the choices that lead to it.
    pub problem: Option<String>,
}

/// Runs the threads in every order with so many interruptions at the most; ends with the first that is wrong.
pub fn explore<W: World>(world: &Arc<W>, programs: &[Program<W>], interruptions: u32) -> Found {
    let search = Arc::new(Mutex::new(Search { open: vec![Vec::new()], ..Search::default() }));
    let mut runs = 0;
    loop {
        let Some(path) = search.lock().unwrap().open.pop() else {
            return Found { states: search.lock().unwrap().visited.len(), runs, problem: None };
        };
        runs += 1;
        world.reset();
        let state = one(world, programs, &search, path, interruptions);
        if !state.known
            && let Some(problem) = world.judge(&state.stuck)
        {
            let problem = Some(format!("{problem}; choices {:?}, {} steps", state.path, state.steps));
            return Found { states: search.lock().unwrap().visited.len(), runs, problem };
        }
    }
}

fn one<W: World>(
    world: &Arc<W>,
    programs: &[Program<W>],
    search: &Arc<Mutex<Search>>,
    path: Vec<u8>,
    interruptions: u32,
) -> State {
    let count = programs.len();
    let state = State {
        threads: (0..count).map(|_| Status::Ready).collect(),
        seen: vec![0; count],
        turn: usize::MAX,
        replayed: path.len(),
        path,
        at: 0,
        interruptions,
        over: false,
        stuck: Vec::new(),
        known: false,
        steps: 0,
    };
    let run = Arc::new(Run {
        state: Mutex::new(state),
        turns: (0..count).map(|_| Condvar::new()).collect(),
        search: Arc::clone(search),
        world: Arc::clone(world) as Arc<dyn World>,
    });
    let threads: Vec<_> = programs
        .iter()
        .enumerate()
        .map(|(number, program)| {
            let (run, world, program) = (Arc::clone(&run), Arc::clone(world), *program);
            std::thread::spawn(move || {
                ME.set(Some((Arc::clone(&run), number)));
                let ended = catch_unwind(AssertUnwindSafe(|| {
                    run.wait_for_turn(run.lock(), number);
                    program(&world);
                }));
                ME.set(None);
                run.finish(number);
                if let Err(panic) = ended
                    && !panic.is::<Over>()
                {
                    run.end(&mut run.lock());
                    resume_unwind(panic);
                }
            })
        })
        .collect();
    // No thread has the turn: the first one interrupts none.
    run.choose(&mut run.lock());
    for thread in threads {
        if let Err(panic) = thread.join() {
            resume_unwind(panic);
        }
    }
    let run = Arc::into_inner(run).expect("all threads have ended");
    run.state.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Two threads add one to a number, each by a load and a store.
    #[derive(Default)]
    struct Sum(AtomicU32);

    impl World for Sum {
        fn fingerprint(&self) -> u64 {
            self.0.load(Ordering::SeqCst).into()
        }

        fn reset(&self) {
            self.0.store(0, Ordering::SeqCst);
        }

        fn judge(&self, stuck: &[usize]) -> Option<String> {
            assert!(stuck.is_empty(), "{stuck:?} wait");
            let sum = self.0.load(Ordering::SeqCst);
            (sum != 2).then(|| format!("one and one is {sum}"))
        }
    }

    fn carelessly(sum: &Arc<Sum>) {
        let before = sum.0.load(Ordering::SeqCst);
        saw(before);
        point();
        sum.0.store(before + 1, Ordering::SeqCst);
    }

    /// Steps that change nothing and see nothing are steps all the same.
    fn late(sum: &Arc<Sum>) {
        (0..3).for_each(|_| point());
        carelessly(sum);
    }

    fn at_once(sum: &Arc<Sum>) {
        sum.0.fetch_add(1, Ordering::SeqCst);
    }

    fn in_vain(sum: &Arc<Sum>) {
        let sum = Arc::clone(sum);
        wait_until(move || sum.0.load(Ordering::SeqCst) == 1);
    }

    #[test]
    fn order_that_is_wrong_is_found_and_right_ones_pass() {
        let found = explore(&Arc::new(Sum::default()), &[carelessly, carelessly], 1);
        assert!(found.problem.is_some_and(|problem| problem.starts_with("one and one is 1")));

        let found = explore(&Arc::new(Sum::default()), &[carelessly, carelessly], 0);
        assert!(found.problem.is_none(), "nobody is interrupted: {found:?}");

        let found = explore(&Arc::new(Sum::default()), &[late, late], ALL);
        assert!(found.problem.is_some_and(|problem| problem.starts_with("one and one is 1")));

        let found = explore(&Arc::new(Sum::default()), &[at_once, at_once], ALL);
        assert!(found.problem.is_none() && found.states > 0, "{found:?}");
    }

    #[test]
    #[should_panic(expected = "wait")]
    fn who_waits_for_ever_is_found() {
        explore(&Arc::new(Sum::default()), &[at_once, at_once, in_vain], ALL);
    }
}
