//! The reaper: ends what belongs to others, on threads that may wait.
//!
//! The last `close` of a file, and the last `munmap`, may take long: they free gigabytes of memory, wait for
//! a connection to send its data, or ask a server. A thread that serves all tenants must not do that for one.
//! It gives such things up here instead ([`give_up`]): that is a message to another thread, and nothing is
//! closed, unmapped or waited for.
//!
//! Each [`Account`] (a VM, or a user who is no VM yet) has its own queue, and at most one thread at a time
//! works on it. So a thing that takes long holds up things of its own account only. Threads start on demand,
//! end when there is nothing to do for a while, and are at most [`MAX_THREADS`]. The things that an account
//! has given up and that are not closed yet are its [`Account::backlog`]. Check it before taking new things
//! in the account's name.
//!
//! Where no reaper was started ([`start`]), things end where they are given up: in a device back end, which
//! serves one VM, in tests.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gpuvmk_jail::{self as jail, Role};

/// Threads that end things at a time.
pub const MAX_THREADS: usize = 96;

/// Room on the stack of a thread that ends things.
const STACK: usize = 256 << 10;

/// How long a thread without work stays.
const LINGER: Duration = Duration::from_secs(2);

/// Something to be ended by dropping it.
type Thing = Box<dyn Any + Send>;

/// The result of work on another thread, once it is done.
#[derive(Debug)]
pub struct Pending<T>(Arc<OnceLock<T>>);

impl<T> Pending<T> {
    /// The result; `None` as long as the work is under way.
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }
}

/// Work that is done when it is dropped.
struct Later<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Later<F> {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work();
        }
    }
}

/// A message to the reaper's first thread.
type Parcel = (Account, Thing);

/// The way to the reaper; unset where there is none.
static REAPER: OnceLock<Sender<Parcel>> = OnceLock::new();

thread_local! {
    /// In whose name this thread gives things up just now.
    static CHARGED: RefCell<Option<Account>> = const { RefCell::new(None) };
}

/// In whose name things are given up. Clones are the same account.
#[derive(Clone, Debug, Default)]
pub struct Account {
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// Things given up and not ended yet.
    backlog: AtomicUsize,
}

#[derive(Default)]
struct Waiting {
    things: VecDeque<Thing>,
    /// A thread works on it, or it is among those that wait for one.
    scheduled: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("backlog", &self.backlog).finish_non_exhaustive()
    }
}

impl Account {
    /// Gives a thing up in this account's name. Never waits where there is a reaper.
    pub fn give_up(&self, thing: impl Any + Send) {
        match REAPER.get() {
            None => drop(thing),
            Some(reaper) => {
                self.queue.backlog.fetch_add(1, Ordering::Relaxed);
                // The reaper's first thread never ends, so the thing cannot come back.
                let _ = reaper.send((self.clone(), Box::new(thing)));
            }
        }
    }

    /// Does long work on a reaper's thread, in this account's name; at once where there is no reaper.
    pub fn later<T: Send + Sync + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Pending<T> {
        let outcome = Arc::new(OnceLock::new());
        let told = Arc::clone(&outcome);
        self.give_up(Later(Some(move || drop(told.set(work())))));
        Pending(outcome)
    }

    /// Runs `work`. Things that this thread gives up meanwhile are charged to this account.
    pub fn charge<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = CHARGED.replace(Some(self.clone()));
        let result = work();
        CHARGED.replace(before);
        result
    }

    /// Things that were given up and are not ended yet.
    pub fn backlog(&self) -> usize {
        self.queue.backlog.load(Ordering::Relaxed)
    }

    /// Ends everything that waits, one thing after the other.
    fn work_off(&self) {
        loop {
            let next = {
                let mut waiting = locked(&self.queue.waiting);
                let next = waiting.things.pop_front();
                waiting.scheduled = next.is_some();
                next
            };
            let Some(thing) = next else { return };
            drop(thing);
            self.queue.backlog.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Gives a thing up in the name of the account that this thread works for ([`Account::charge`]); without any,
/// of one that all share. Never waits where there is a reaper.
pub fn give_up(thing: impl Any + Send) {
    static SHARED: OnceLock<Account> = OnceLock::new();
    let charged = CHARGED.with_borrow(Clone::clone);
    charged.unwrap_or_else(|| SHARED.get_or_init(Account::default).clone()).give_up(thing);
}

/// A thing that is given up when it is dropped, wherever that is.
#[derive(Debug)]
pub struct Reaped<T: Any + Send> {
    thing: Option<T>,
    account: Account,
}

impl<T: Any + Send> Reaped<T> {
    /// Of that account.
    pub const fn new(thing: T, account: Account) -> Self {
        Self { thing: Some(thing), account }
    }

    /// The thing, while it is not given up.
    pub const fn get(&self) -> Option<&T> {
        self.thing.as_ref()
    }

    /// Takes the thing out; the caller drops it.
    pub fn take(mut self) -> Option<T> {
        self.thing.take()
    }
}

impl<T: Any + Send> Drop for Reaped<T> {
    fn drop(&mut self) {
        if let Some(thing) = self.thing.take() {
            self.account.give_up(thing);
        }
    }
}

/// Starts the reaper of this process, if it has none.
///
/// # Errors
/// The kernel gives no thread.
pub fn start() -> io::Result<()> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = locked(&STARTING);
    if REAPER.get().is_some() {
        return Ok(());
    }
    let (sender, parcels) = channel();
    // One thread is there from the start, and stays.
    let team = Arc::new(Team::default());
    locked(&team.state).threads = 1;
    spawn_worker(&team)?;
    std::thread::Builder::new().name("reaper".to_owned()).stack_size(STACK).spawn(move || {
        jail::enter(Role::Reaper);
        distribute(&parcels, &team);
    })?;
    let _ = REAPER.set(sender);
    Ok(())
}

/// The threads, and the accounts that wait for one.
#[derive(Debug, Default)]
struct Team {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Account>,
    threads: usize,
    idle: usize,
}

/// Starts a thread of the team.
fn spawn_worker(team: &Arc<Team>) -> io::Result<()> {
    let team = Arc::clone(team);
    let builder = std::thread::Builder::new().name("reaper".to_owned()).stack_size(STACK);
    builder.spawn(move || {
        jail::enter(Role::Reaper);
        team.work();
    })?;
    Ok(())
}

/// The first thread: puts each thing into its account's queue, and makes sure that a thread works on that.
/// Drops nothing itself.
fn distribute(parcels: &Receiver<Parcel>, team: &Arc<Team>) {
    for (account, thing) in parcels {
        let idle = {
            let mut waiting = locked(&account.queue.waiting);
            waiting.things.push_back(thing);
            std::mem::replace(&mut waiting.scheduled, true)
        };
        if idle {
            continue;
        }
        let mut state = locked(&team.state);
        state.ready.push_back(account);
        if state.idle >= state.ready.len() || state.threads >= MAX_THREADS {
            team.changed.notify_one();
            continue;
        }
        state.threads = state.threads.saturating_add(1);
        if let Err(error) = spawn_worker(team) {
            state.threads = state.threads.saturating_sub(1);
            log::error!("a thread that closes what VMs had cannot be started, others do its work: {error}");
            team.changed.notify_one();
        }
    }
}

impl Team {
    /// A thread's life: one account after the other.
    fn work(&self) {
        let mut state = locked(&self.state);
        loop {
            if let Some(account) = state.ready.pop_front() {
                drop(state);
                account.work_off();
                state = locked(&self.state);
                continue;
            }
            state.idle = state.idle.saturating_add(1);
            let (back, waited) =
                self.changed.wait_timeout(state, LINGER).unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle = state.idle.saturating_sub(1);
            if waited.timed_out() && state.ready.is_empty() && state.threads > 1 {
                state.threads = state.threads.saturating_sub(1);
                return;
            }
        }
    }
}

/// Whatever is behind these locks is whole at any time.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
    use std::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Takes as long to end as its test likes, and tells by which thread it was ended.
    struct Slow {
        let_go: Receiver<()>,
        ended: SyncSender<std::thread::ThreadId>,
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.let_go.recv_timeout(PATIENCE);
            let _ = self.ended.send(std::thread::current().id());
        }
    }

    fn slow() -> (Slow, Sender<()>, Receiver<std::thread::ThreadId>) {
        let (hold, let_go) = channel();
        let (ended, end) = sync_channel(1);
        (Slow { let_go, ended }, hold, end)
    }

    fn until(mut condition: impl FnMut() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
    }

    #[test]
    fn thing_that_takes_long_holds_up_its_own_account_only() {
        start().unwrap();
        let (of_one, of_other) = (Account::default(), Account::default());
        let (first, hold, first_ended) = slow();
        let (second, second_let_go, second_ended) = slow();
        let (other, other_let_go, other_ended) = slow();
        drop((second_let_go, other_let_go));

        of_one.give_up(first);
        of_one.give_up(second);
        of_other.give_up(other);

        let by = other_ended.recv_timeout(PATIENCE).unwrap();
        assert_ne!(by, std::thread::current().id(), "whoever gives up does not wait");
        until(|| of_other.backlog() == 0);
        assert_eq!(of_one.backlog(), 2);
        assert_eq!(
            second_ended.recv_timeout(Duration::from_millis(50)),
            Err(RecvTimeoutError::Timeout),
            "one after the other"
        );
        drop(hold);
        first_ended.recv_timeout(PATIENCE).unwrap();
        second_ended.recv_timeout(PATIENCE).unwrap();
        until(|| of_one.backlog() == 0);
    }

    #[test]
    fn many_slow_accounts_do_not_hold_up_one_more() {
        start().unwrap();
        let slow: Vec<_> = (0..20)
            .map(|_| {
                let (thing, hold, _) = slow();
                Account::default().give_up(thing);
                hold
            })
            .collect();

        let quick = Account::default();
        (0..1000).for_each(|_| quick.give_up(vec![0_u8; 16]));

        until(|| quick.backlog() == 0);
        drop(slow);
    }

    #[test]
    fn what_is_dropped_by_the_way_counts_for_whom_the_thread_works() {
        start().unwrap();
        let account = Account::default();
        let (thing, hold, _) = slow();

        account.charge(|| give_up(thing));

        assert_eq!(account.backlog(), 1);
        let (other, let_go, _) = slow();
        drop(let_go);
        give_up(other);
        assert_eq!(account.backlog(), 1, "no longer");
        drop(hold);
        until(|| account.backlog() == 0);
    }

    #[test]
    fn reaped_thing_is_given_up_when_it_is_dropped() {
        start().unwrap();
        let account = Account::default();
        let (thing, hold, ended) = slow();

        drop(Reaped::new(thing, account.clone()));

        assert_eq!(account.backlog(), 1);
        drop(hold);
        assert_ne!(ended.recv_timeout(PATIENCE).unwrap(), std::thread::current().id());
    }
}
