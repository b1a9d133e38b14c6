//! The doorbell board: how a tenant rings doorbells at the aggregator without a message.
//!
//! A doorbell is a level, not a record: only the channel's last GP_PUT counts. So the board holds one word a
//! channel (and a time, for statistics) and a bitmap of channels that were rung. It cannot overflow, whatever
//! the sender does; rings that come faster than they are taken merge. While the receiver is awake, a ring
//! costs the sender no system call. Before it sleeps, it sets `waiting`, and the sender wakes it by an
//! eventfd. The [`Mailbox`] for requests lies behind the board.
//!
//! The receiver never reads the eventfd (it polls it edge-triggered), because the sender could make it block:
//! both share one open file description.
//!
//! The last words of the board are the sender's report of itself ([`super::report`]), of what its guest
//! copied, and of what is counted of its guest's driver.

pub use super::mailbox::{Found, Mailbox};

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use rustix::event::EventfdFlags;

use super::counts;
use super::mailbox;
use super::protocol::Doorbell;
use super::report::{self, Report, load_copied, load_driver, store_copied, store_driver};
use super::shared::SharedWords;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_control_client::DriverCounters;
use gpuvmk_fifo_virt::CopiedBytes;
use gpuvmk_observe::latency;

/// Channels that a board can carry.
pub const MAX_CHANNELS: u16 = 512;

/// Doorbells and report, and the mailbox behind them.
const PAGES: usize = 3;
const MAILBOX: usize = 2048;
const WAITING: usize = 0;
const PENDING: usize = 16;
const PENDING_WORDS: usize = 16;
const PUTS: usize = 32;
const STAMPS: usize = PUTS + MAX_CHANNELS as usize;
const REPORT: usize = STAMPS + MAX_CHANNELS as usize;
const COPIED: usize = REPORT + report::WORDS;
const TRAPPED: usize = COPIED + report::COPIED_WORDS;
const DRIVER: usize = TRAPPED + counts::words(1);

/// Words of a board that mean something by their place, for those who attack it.
pub const LANDMARKS: [usize; 12] = {
    let [state, length, data] = mailbox::LANDMARKS;
    let (state, length, data) = (MAILBOX + state, MAILBOX + length, MAILBOX + data);
    [WAITING, PENDING, PENDING + 1, PUTS, STAMPS, REPORT, COPIED, TRAPPED, DRIVER, state, length, data]
};

const _: () = assert!(PENDING + PENDING_WORDS <= PUTS && PENDING_WORDS * 32 == MAX_CHANNELS as usize);
const _: () = assert!(DRIVER + report::DRIVER_WORDS <= MAILBOX && MAILBOX + mailbox::WORDS <= PAGES * 1024);

/// The aggregator's end.
#[derive(Debug)]
pub struct DoorbellReceiver {
    board: SharedWords,
    wake: OwnedFd,
}

/// The tenant's end.
#[derive(Debug)]
pub struct DoorbellSender {
    board: SharedWords,
    wake: OwnedFd,
}

/// Makes a board: the receiver, the board's file and the eventfd for the sender.
///
/// # Errors
/// Out of memory or descriptors.
pub fn create() -> io::Result<(DoorbellReceiver, OwnedFd, OwnedFd)> {
    let (board, file) = SharedWords::create("gpuvmk-doorbells", PAGES)?;
    let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let theirs = wake.try_clone()?;
    Ok((DoorbellReceiver { board, wake }, file, theirs))
}

impl DoorbellReceiver {
    /// Signalled, edge by edge, when a sender rang while the receiver was waiting. Not to be read.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The tenant's requests.
    pub fn mailbox(&self) -> Mailbox<'_> {
        Mailbox::new(&self.board, MAILBOX)
    }

    /// Takes all pending doorbells, lowest channel first: one call of `ring` for each channel, with the time
    /// at which it was rung (see [`latency::stamp`]). Returns their number.
    pub fn take(&self, mut ring: impl FnMut(Doorbell, u32)) -> usize {
        let mut taken: usize = 0;
        for word in 0..PENDING_WORDS {
            // A plain load first: a board without doorbells costs no locked instruction.
            if self.board.word(PENDING + word).load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = self.board.word(PENDING + word).swap(0, Ordering::AcqRel);
            while bits != 0 {
                let bit = bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
                let channel = word.wrapping_mul(32).wrapping_add(bit as usize);
                let gp_put = self.board.word(PUTS + channel).load(Ordering::Acquire);
                let rung = self.board.word(STAMPS + channel).load(Ordering::Relaxed);
                ring(Doorbell { channel: GuestChannel(u16::try_from(channel).unwrap_or(0)), gp_put }, rung);
                taken = taken.saturating_add(1);
            }
        }
        taken
    }

    /// The sender's report about itself.
    pub fn report(&self) -> Report {
        Report::load(&self.board, REPORT)
    }

    /// Bytes that the guest copied, by the sender's report.
    pub fn copied(&self) -> CopiedBytes {
        load_copied(&self.board, COPIED)
    }

    /// Number of the guest's accesses that were answered, by the sender's report.
    pub fn trapped(&self) -> u64 {
        let [trapped] = counts::load(&self.board, TRAPPED);
        trapped
    }

    /// What is counted of the guest's driver, by the sender's report.
    pub fn driver(&self) -> DriverCounters {
        load_driver(&self.board, DRIVER)
    }

    /// Announces that the receiver is going to sleep. False when doorbells or a request are pending: take
    /// them first. A request that is being carried out (`answering`) does not count.
    pub fn prepare_to_sleep(&self, answering: bool) -> bool {
        self.board.word(WAITING).store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let rung = (0..PENDING_WORDS).any(|word| self.board.word(PENDING + word).load(Ordering::SeqCst) != 0);
        let pending = rung || (!answering && self.mailbox().has_request());
        if pending {
            self.board.word(WAITING).store(0, Ordering::SeqCst);
        }
        !pending
    }
}

impl DoorbellSender {
    /// The tenant's end, from the files that the aggregator sent.
    ///
    /// # Errors
    /// The memory is not a board.
    pub fn open(file: BorrowedFd<'_>, wake: OwnedFd) -> io::Result<Self> {
        Ok(Self { board: SharedWords::open(file, PAGES)?, wake })
    }

    /// Tells operators how this side is. Never blocks.
    pub fn report(&self, report: &Report) {
        report.store(&self.board, REPORT);
    }

    /// Tells operators how much the guest copied so far. Never blocks; calls must not overlap.
    pub fn report_copied(&self, copied: &CopiedBytes) {
        store_copied(copied, &self.board, COPIED);
    }

    /// Tells operators how many of its guest's accesses were answered so far. Never blocks; calls must not
    /// overlap.
    pub fn report_trapped(&self, accesses: u64) {
        counts::store([accesses], &self.board, TRAPPED);
    }

    /// Tells operators what was counted of the guest's driver so far. Never blocks; calls must not overlap.
    pub fn report_driver(&self, counters: &DriverCounters) {
        store_driver(counters, &self.board, DRIVER);
    }

    /// Rings: stores GP_PUT, marks the channel, and wakes the receiver if it sleeps. Never blocks.
    pub fn ring(&self, doorbell: Doorbell) {
        let channel = usize::from(doorbell.channel.0);
        if channel >= usize::from(MAX_CHANNELS) {
            return;
        }
        self.board.word(STAMPS + channel).store(latency::stamp(), Ordering::Relaxed);
        self.board.word(PUTS + channel).store(doorbell.gp_put, Ordering::Release);
        self.board.word(PENDING + channel / 32).fetch_or(1 << (channel % 32), Ordering::SeqCst);
        self.wake();
    }

    /// The mailbox for requests.
    pub fn mailbox(&self) -> Mailbox<'_> {
        Mailbox::new(&self.board, MAILBOX)
    }

    /// Puts a request into the mailbox and wakes the receiver if it sleeps; false when it is too long.
    pub fn ask(&self, request: &[u8]) -> bool {
        let asked = self.mailbox().ask(request);
        if asked {
            self.wake();
        }
        asked
    }

    fn wake(&self) {
        fence(Ordering::SeqCst);
        let waiting = || self.board.word(WAITING);
        if waiting().load(Ordering::SeqCst) != 0 && waiting().swap(0, Ordering::SeqCst) != 0 {
            // A full counter means that a wake-up is pending.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod orders;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpuvmk_chip::Engine;
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn pair() -> (DoorbellReceiver, DoorbellSender) {
        let (receiver, file, wake) = create().unwrap();
        (receiver, DoorbellSender::open(file.as_fd(), wake).unwrap())
    }

    fn bell(channel: u16, gp_put: u32) -> Doorbell {
        Doorbell { channel: GuestChannel(channel), gp_put }
    }

    fn take(receiver: &DoorbellReceiver) -> Vec<Doorbell> {
        let mut all = Vec::new();
        receiver.take(|b, _| all.push(b));
        all
    }

    fn woken(receiver: &DoorbellReceiver) -> bool {
        let fd = receiver.wake_fd();
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }

    #[test]
    fn rings_of_one_channel_merge_into_the_last() {
        let (receiver, sender) = pair();

        sender.ring(bell(3, 1));
        sender.ring(bell(200, 9));
        sender.ring(bell(3, 2));

        assert_eq!(take(&receiver), [bell(3, 2), bell(200, 9)]);
        assert_eq!(take(&receiver), []);
    }

    #[test]
    fn awake_receiver_costs_no_wakeup() {
        let (receiver, sender) = pair();

        sender.ring(bell(1, 1));
        assert!(!woken(&receiver));
        assert!(!receiver.prepare_to_sleep(false));
        take(&receiver);
        assert!(receiver.prepare_to_sleep(false));
        sender.ring(bell(1, 2));

        assert!(woken(&receiver));
    }

    #[test]
    fn channels_beyond_the_board_are_ignored() {
        let (receiver, sender) = pair();

        sender.ring(bell(MAX_CHANNELS, 1));
        sender.ring(bell(u16::MAX, 1));

        assert_eq!(take(&receiver), []);
    }

    #[test]
    fn highest_channel_rings_nobody_else_and_leaves_the_report_alone() {
        let (receiver, sender) = pair();
        let report = Report { fail_safe_count: 9, ..Report::default() };
        sender.report(&report);
        let mut copied = CopiedBytes::of_unread(7);
        Engine::ALL.into_iter().for_each(|engine| copied.add(engine, u64::MAX >> engine.place()));
        sender.report_copied(&copied);

        for channel in 480..MAX_CHANNELS {
            sender.ring(bell(channel, u32::MAX));
        }

        let rung: Vec<_> = take(&receiver).iter().map(|bell| bell.channel.0).collect();
        assert_eq!(rung, (480..MAX_CHANNELS).collect::<Vec<_>>());
        assert_eq!(receiver.report(), report);
        assert_eq!(receiver.copied(), copied);
        sender.report_trapped(5 << 33 | 7);
        assert_eq!((receiver.trapped(), receiver.copied()), (5 << 33 | 7, copied));
        let driver = DriverCounters::from_numbers(std::array::from_fn(|place| u64::MAX >> place));
        sender.report_driver(&driver);
        assert_eq!((receiver.driver(), receiver.trapped()), (driver, 5 << 33 | 7));
        assert_eq!(receiver.take(|_, _| ()), 0);
        assert!(!receiver.mailbox().has_request());
    }

    #[test]
    fn no_ring_is_lost_between_two_threads() {
        const LAST: u32 = 20_000;
        let (receiver, sender) = pair();
        let ringer = std::thread::spawn(move || {
            for put in 1..=LAST {
                sender.ring(bell((put % 2) as u16 * 100, put));
            }
        });

        let mut last = [0_u32; 2];
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while last.iter().max() != Some(&LAST) {
            receiver.take(|b, _| last[usize::from(b.channel.0 == 100)] = b.gp_put);
            if receiver.prepare_to_sleep(false) {
                let fd = receiver.wake_fd();
                let mut fds = [PollFd::new(&fd, PollFlags::IN)];
                poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap();
                let mut counter = [0; 8];
                let _ = rustix::io::read(&receiver.wake, &mut counter);
            }
            assert!(std::time::Instant::now() < deadline, "stuck at {last:?}");
        }

        ringer.join().unwrap();
        receiver.take(|b, _| last[usize::from(b.channel.0 == 100)] = b.gp_put);
        assert_eq!(last, [LAST, LAST - 1]);
    }
}
