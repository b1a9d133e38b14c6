//! How long the session looks for the client's next message before it sleeps.
//!
//! To wake a thread up costs tens of microseconds, and the guest's processor stands still meanwhile: what a client sends soon after
//! the last message is better looked for. As KVM's halt polling does, the time adapts: messages that come soon make it longer, one that does
//! not come at all soon ends the looking, so that an idle guest costs nothing. And where others have the processor for most of the time in
//! which this thread looks, they need it: then it sleeps at once, for more and more messages.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::sys::{self, Received, Wait};

/// How long a session looks, at most, unless it is told otherwise.
pub const USUAL: Duration = Duration::from_micros(200);

/// How long to look at first.
const FIRST: Duration = Duration::from_micros(25);
/// Two looks are further apart than this only if somebody else had the processor in between.
const PUT_OFF: Duration = Duration::from_micros(20);
/// So much of the time of looking is weighed at a time.
const WEIGHED: Duration = Duration::from_millis(5);
/// Messages that are waited for asleep after others had the processor for more than half of that: the first time, and at most.
const REST: (u32, u32) = (256, 1 << 14);

/// See the module.
#[derive(Debug)]
pub(super) struct Poll {
    most: Duration,
    /// How long the next look takes.
    window: Duration,
    /// Time spent looking since it was weighed, and how much of it others had the processor.
    looked: Duration,
    away: Duration,
    /// Messages to be waited for asleep.
    rest: u32,
    /// How many those will be the next time.
    next_rest: u32,
}

impl Poll {
    /// Looks for `most` at most; zero: never.
    pub(super) const fn new(most: Duration) -> Self {
        let (looked, away) = (Duration::ZERO, Duration::ZERO);
        Self { most, window: Duration::ZERO, looked, away, rest: 0, next_rest: REST.0 }
    }

    /// The next bytes from the client, and descriptors: however long that takes.
    pub(super) fn receive(
        &mut self,
        socket: &UnixStream,
        buffer: &mut [u8],
        fds: &mut Vec<OwnedFd>,
    ) -> io::Result<Received> {
        let began = Instant::now();
        let (mut last, mut away) = (began, Duration::ZERO);
        let found = loop {
            if last.duration_since(began) >= self.window {
                break None;
            }
            match sys::receive(socket, buffer, fds, Wait::No) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => break Some(result),
            }
            // Whoever was woken up by what the last message did may have been put on this processor.
            rustix::thread::sched_yield();
            let now = Instant::now();
            let step = now.duration_since(last);
            if step > PUT_OFF {
                away = away.saturating_add(step);
            }
            last = now;
        };
        self.weigh(last.duration_since(began), away);
        if let Some(result) = found {
            return result;
        }
        let result = sys::receive(socket, buffer, fds, Wait::Yes);
        self.slept(began.elapsed());
        result
    }

    /// Others had the processor for `away` of the time that it was looked for a message.
    fn weigh(&mut self, looked: Duration, away: Duration) {
        self.looked = self.looked.saturating_add(looked);
        self.away = self.away.saturating_add(away);
        if self.looked < WEIGHED {
            return;
        }
        if self.away > self.looked / 2 {
            self.window = Duration::ZERO;
            self.rest = self.next_rest;
            self.next_rest = self.next_rest.saturating_mul(2).min(REST.1);
        } else {
            self.next_rest = REST.0;
        }
        (self.looked, self.away) = (Duration::ZERO, Duration::ZERO);
    }

    /// A message came after so long, most of it asleep.
    fn slept(&mut self, waited: Duration) {
        self.window = if self.rest > 0 {
            self.rest -= 1;
            Duration::ZERO
        } else if waited > self.most {
            Duration::ZERO
        } else {
            self.window.saturating_mul(2).max(FIRST).min(self.most)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROS: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn window_grows_with_messages_that_come_soon_and_closes_with_one_that_does_not() {
        let mut poll = Poll::new(MICROS(200));
        let windows: Vec<u128> = [60, 60, 60, 60, 60, 60, 201, 60]
            .into_iter()
            .map(|waited| {
                poll.slept(MICROS(waited));
                poll.window.as_micros()
            })
            .collect();
        assert_eq!(windows, [25, 50, 100, 200, 200, 200, 0, 25]);
    }

    #[test]
    fn who_is_put_off_sleeps_for_more_and_more_messages() {
        let mut poll = Poll::new(MICROS(200));
        let mut asleep = |away: u64| {
            (0..25).for_each(|_| poll.weigh(MICROS(200), MICROS(away)));
            let mut messages = 0;
            while poll.window.is_zero() {
                poll.slept(MICROS(1));
                messages += 1;
            }
            messages
        };
        assert_eq!([asleep(101), asleep(150), asleep(200)], [257, 513, 1025]);
        assert_eq!([asleep(100), asleep(101)], [0, 257]);
        assert_eq!((0..20).map(|_| asleep(200)).max(), Some(REST.1 + 1));
    }

    #[test]
    fn time_of_zero_is_never_looked() {
        let mut poll = Poll::new(Duration::ZERO);
        (0..10).for_each(|_| poll.slept(Duration::ZERO));
        assert_eq!(poll.window, Duration::ZERO);
    }

    #[test]
    fn message_is_found_by_looking_and_by_sleeping() {
        use std::io::Write;

        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut poll = Poll::new(MICROS(10_000));
        for round in 0..4 {
            if round == 2 {
                poll.window = Duration::from_secs(3600);
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
