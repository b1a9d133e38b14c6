//! How long the session looks for the client's next message before it sleeps.
//!
//! Waking a thread costs tens of microseconds, and the guest's processor stands still meanwhile. So the
//! session polls for the next message for a time that adapts ([`PollWindow`]). How soon the next one comes
//! depends on the kind of the last one, because drivers repeat themselves: the access after a read of an
//! interrupt register follows at once, the one after a doorbell comes when the work is done. So each kind of
//! message has its own window. Polling stops where other threads want the processor ([`contention`]).

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::sys::{self, Received, Wait};
use super::wire::{RegionAccess, SmallWrite, command};
use gpuvmk_host::contention::{self, Contention};
use gpuvmk_host::poll_window::PollWindow;

/// How long a session polls at most, by default.
pub const USUAL: Duration = Duration::from_micros(200);

/// Number of kinds of message: more than the registers that a driver uses all the time. Some kinds share a
/// window.
const KINDS: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Poll {
    windows: Box<[PollWindow; KINDS]>,
    /// Kind of the last message.
    kind: u8,
    contention: Contention,
}

/// The kind of a message: its command, and the register that it reads or writes last. It predicts when the
/// next one comes.
pub(super) fn kind(command: u16, body: &[u8]) -> u8 {
    /// Spreads registers over the kinds (2^64 divided by the golden ratio).
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let access = match command {
        command::REGION_READ | command::REGION_WRITE => body.get(..size_of::<RegionAccess>()),
        command::REGION_WRITE_MULTI => body
            .len()
            .checked_sub(size_of::<SmallWrite>())
            .and_then(|last| body.get(last..)?.get(..size_of::<RegionAccess>())),
        _ => None,
    };
    let (offset, rest) = access.and_then(<[u8]>::split_first_chunk).unwrap_or((&[0; 8], &[]));
    let region = rest.first_chunk().copied().map_or(0, u32::from_le_bytes);
    let what = u64::from_le_bytes(*offset) ^ (u64::from(region) << 40) ^ (u64::from(command) << 48);
    what.wrapping_mul(SPREAD).to_be_bytes()[0]
}

impl Poll {
    /// Looks for `most` at most; zero: never.
    pub(super) fn new(most: Duration) -> Self {
        Self { windows: Box::new([PollWindow::new(most); KINDS]), kind: 0, contention: Contention::default() }
    }

    /// A message of this kind is dealt with next.
    pub(super) const fn note_kind(&mut self, kind: u8) {
        self.kind = kind;
    }

    /// The next bytes from the client, and descriptors: however long that takes.
    pub(super) fn receive(
        &mut self,
        socket: &UnixStream,
        buffer: &mut [u8],
        fds: &mut Vec<OwnedFd>,
    ) -> io::Result<Received> {
        let began = Instant::now();
        if let Some(result) = self.look(began, socket, buffer, fds) {
            return result;
        }
        let result = sys::receive(socket, buffer, fds, Wait::Yes);
        self.slept(began.elapsed());
        result
    }

    /// Looks for the next bytes, until that is no use any more.
    fn look(
        &mut self,
        began: Instant,
        socket: &UnixStream,
        buffer: &mut [u8],
        fds: &mut Vec<OwnedFd>,
    ) -> Option<io::Result<Received>> {
        let window = self.windows.get(usize::from(self.kind)).map_or(Duration::ZERO, PollWindow::time);
        if window.is_zero() || self.contention.is_resting() {
            return None;
        }
        // How long it looks, how much of that others had the processor, and before the last look.
        let (mut looked, mut away, mut put_off) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let found = loop {
            match sys::receive(socket, buffer, fds, Wait::No) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => break Some(result),
            }
            if looked >= window {
                break None;
            }
            // A thread that the last message woke may have been put on this processor.
            rustix::thread::sched_yield();
            let now = began.elapsed();
            away = away.saturating_add(put_off);
            put_off = contention::put_off(now.saturating_sub(looked));
            looked = now;
        };
        self.contention.looked(looked.saturating_sub(away), put_off, found.is_some());
        found
    }

    /// A message came after so long, most of it asleep.
    fn slept(&mut self, waited: Duration) {
        if !self.contention.rests()
            && let Some(window) = self.windows.get_mut(usize::from(self.kind))
        {
            window.waited(waited);
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::super::wire::WriteMulti;
    use super::*;

    const MICROS: fn(u64) -> Duration = Duration::from_micros;

    /// Reads of a register at `offset`.
    fn read(offset: u64) -> u8 {
        let access = RegionAccess { offset, region: 0, count: 4 };
        kind(command::REGION_READ, access.as_bytes())
    }

    fn window(poll: &Poll) -> Duration {
        poll.windows[usize::from(poll.kind)].time()
    }

    #[test]
    fn where_others_want_the_processor_nobody_looks() {
        let mut poll = Poll::new(MICROS(200));
        poll.slept(MICROS(60));
        assert!(poll.contention.looked(MICROS(20_000), MICROS(16_000), true));
        let resting = std::iter::from_fn(|| {
            let resting = poll.contention.is_resting();
            poll.slept(MICROS(1));
            resting.then_some(())
        });
        assert_eq!(resting.count(), 256);
        assert_eq!(window(&poll), MICROS(50));
    }

    #[test]
    fn each_kind_of_message_has_a_window_of_its_own() {
        let mut poll = Poll::new(MICROS(200));
        let (doorbell, interrupt) = (read(0x8c), read(0x100));
        for _ in 0..5 {
            poll.note_kind(interrupt);
            poll.slept(MICROS(40));
            poll.note_kind(doorbell);
            poll.slept(MICROS(1500));
        }
        assert_eq!(window(&poll), Duration::ZERO, "work is long");
        poll.note_kind(interrupt);
        assert_eq!(window(&poll), MICROS(200));
    }

    #[test]
    fn many_writes_are_of_the_kind_of_the_last() {
        let write =
            |offset| SmallWrite { access: RegionAccess { offset, region: 1, count: 4 }, data: [7; 8] };
        let many = |offsets: &[u64]| {
            let mut body = WriteMulti { count: offsets.len() as u64 }.as_bytes().to_vec();
            offsets.iter().for_each(|offset| body.extend(write(*offset).as_bytes()));
            kind(command::REGION_WRITE_MULTI, &body)
        };
        assert_eq!(many(&[0x10, 0x8c]), many(&[0x8c]));
        assert_ne!(many(&[0x10]), many(&[0x8c]));
        assert_ne!(many(&[0x8c]), read(0x8c));
        let kinds: std::collections::BTreeSet<u8> =
            (0..64).map(|register| read(0x2100 + 4 * register)).collect();
        assert!(kinds.len() > 48, "{} kinds", kinds.len());
        // Whatever a client sends has some kind.
        assert_eq!(kind(command::REGION_READ, &[1; 15]), kind(command::REGION_READ, &[]));
    }

    #[test]
    fn message_is_found_by_looking_and_by_sleeping() {
        use std::io::Write;

        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut poll = Poll::new(MICROS(10_000));
        for round in 0..4 {
            if round == 2 {
                poll = Poll::new(Duration::from_secs(3600));
                (0..40).for_each(|_| poll.slept(Duration::ZERO));
            }
            theirs.write_all(&[round]).unwrap();
            let (mut data, mut fds) = ([0xff; 8], Vec::new());
            let received = poll.receive(&ours, &mut data, &mut fds).unwrap();
            assert_eq!((received.bytes, data[0], fds.len()), (1, round, 0));
        }
        drop(theirs);
        assert_eq!(poll.receive(&ours, &mut [0; 8], &mut Vec::new()).unwrap().bytes, 0);
    }
}
