//! Tests doorbells and requests in every order of both ends' steps: neither end sleeps while something is
//! pending for it.

use gpuvmk_chip::addr::GuestChannel;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::interleave::{World, explore, forget, point, saw, wait_until};

/// Channels of different words of the bitmap.
const CHANNELS: [u16; 2] = [1, 40];
/// GP_PUT that each is rung with at last, and how many requests there are.
const LAST: u32 = 2;
/// So often threads are interrupted, at the most.
const INTERRUPTIONS: u32 = 3;

struct Board {
    receiver: Mutex<DoorbellReceiver>,
    sender: Mutex<DoorbellSender>,
    /// The same memory.
    words: SharedWords,
    /// Readable when the receiver is called.
    called: OwnedFd,
    /// GP_PUT of each channel as it arrived last.
    arrived: [AtomicU32; 2],
    /// The answer at the socket; 0: none.
    at_socket: AtomicU32,
    /// Requests that were answered.
    answered: AtomicU32,
}

impl Board {
    fn new() -> Arc<Self> {
        let (receiver, file, wake) = create().unwrap();
        Arc::new(Self {
            called: receiver.wake.try_clone().unwrap(),
            receiver: Mutex::new(receiver),
            words: SharedWords::open(file.as_fd(), PAGES).unwrap(),
            sender: Mutex::new(DoorbellSender::open(file.as_fd(), wake).unwrap()),
            arrived: Default::default(),
            at_socket: AtomicU32::new(0),
            answered: AtomicU32::new(0),
        })
    }

    fn is_called(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.called, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    fn take_call(&self) {
        let _ = rustix::io::read(&self.called, &mut [0_u8; 8]);
    }

    /// The receiver sleeps, unless something is pending.
    fn sleep(self: &Arc<Self>, receiver: &DoorbellReceiver) {
        if receiver.prepare_to_sleep(false) {
            let asleep = Arc::clone(self);
            wait_until(move || asleep.is_called());
            self.take_call();
        }
    }

    fn numbers(&self) -> impl Iterator<Item = &AtomicU32> {
        self.arrived.iter().chain([&self.at_socket, &self.answered])
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The words that both ends' steps access: the waiting flag, the pending doorbells, and the mailbox with its
/// first word.
fn shared() -> [usize; 8] {
    let [first, second] = CHANNELS.map(usize::from);
    let pending = [PENDING + first / 32, PENDING + second / 32];
    let puts = [PUTS + first, PUTS + second];
    [WAITING, pending[0], pending[1], puts[0], puts[1], MAILBOX, MAILBOX + 1, MAILBOX + 16]
}

impl World for Board {
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for index in shared() {
            self.words.at(index).load(Ordering::SeqCst).hash(&mut hasher);
        }
        self.numbers().for_each(|number| number.load(Ordering::SeqCst).hash(&mut hasher));
        self.is_called().hash(&mut hasher);
        hasher.finish()
    }

    fn reset(&self) {
        self.take_call();
        for index in shared() {
            self.words.at(index).store(0, Ordering::SeqCst);
        }
        self.numbers().for_each(|number| number.store(0, Ordering::SeqCst));
    }

    fn judge(&self, stuck: &[usize]) -> Option<String> {
        let words = shared().map(|index| self.words.at(index).load(Ordering::SeqCst));
        (!stuck.is_empty()).then(|| format!("{stuck:?} sleep for ever: {words:x?}"))
    }

    fn is_shared(&self, index: usize) -> bool {
        shared().contains(&index)
    }
}

fn ringer(board: &Arc<Board>) {
    let sender = locked(&board.sender);
    for gp_put in 1..=LAST {
        for channel in CHANNELS {
            forget(u64::from(gp_put) << 8 | u64::from(channel));
            sender.ring(Doorbell { channel: GuestChannel(channel), gp_put });
        }
    }
    forget(0);
}

fn listener(board: &Arc<Board>) {
    let receiver = locked(&board.receiver);
    loop {
        forget(1);
        receiver.take(|doorbell, _| {
            for (arrived, channel) in board.arrived.iter().zip(CHANNELS) {
                if doorbell.channel.0 == channel {
                    arrived.store(doorbell.gp_put, Ordering::SeqCst);
                }
            }
        });
        let all = board.arrived.iter().all(|put| put.load(Ordering::SeqCst) == LAST);
        forget(2 + u64::from(all));
        if all {
            return;
        }
        board.sleep(&receiver);
    }
}

/// Looks for its answers once, and then sleeps.
fn asker(board: &Arc<Board>) {
    let sender = locked(&board.sender);
    for request in 1..=LAST {
        forget(request.into());
        assert!(sender.ask(&request.to_le_bytes()));
        let mut answer = [0; 4];
        let mut found = sender.mailbox().look(&mut answer);
        if found == Found::Nothing && !sender.mailbox().sleep() {
            found = sender.mailbox().look(&mut answer);
            assert_ne!(found, Found::Nothing, "it has come");
        }
        if matches!(found, Found::Nothing | Found::AtSocket) {
            let asleep = Arc::clone(board);
            wait_until(move || asleep.at_socket.load(Ordering::SeqCst) != 0);
            answer = board.at_socket.swap(0, Ordering::SeqCst).to_le_bytes();
        }
        assert_eq!(u32::from_le_bytes(answer), request + 100);
    }
}

fn answerer(board: &Arc<Board>) {
    let receiver = locked(&board.receiver);
    while board.answered.load(Ordering::SeqCst) < LAST {
        forget(1);
        if receiver.mailbox().has_request() {
            let mut request = [0; 4];
            assert_eq!(receiver.mailbox().take(&mut request), 4);
            let answer = u32::from_le_bytes(request) + 100;
            board.answered.fetch_add(1, Ordering::SeqCst);
            if !receiver.mailbox().answer(&answer.to_le_bytes()) {
                point();
                assert_eq!(board.at_socket.swap(answer, Ordering::SeqCst), 0, "one at a time");
            }
        }
        forget(2);
        saw(board.answered.load(Ordering::SeqCst));
        if board.answered.load(Ordering::SeqCst) < LAST {
            board.sleep(&receiver);
        }
    }
}

fn all_arrive(found: &crate::interleave::Found) {
    assert!(found.problem.is_none() && found.states > 20, "{found:?}");
}

#[test]
fn last_doorbell_of_each_channel_arrives_in_every_order() {
    all_arrive(&explore(&Board::new(), &[ringer, listener], INTERRUPTIONS));
}

#[test]
fn every_request_is_answered_in_every_order() {
    all_arrive(&explore(&Board::new(), &[asker, answerer], INTERRUPTIONS));
}
