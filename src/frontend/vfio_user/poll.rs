//! How long the session looks for the client's next message before it sleeps.
//!
//! To wake a thread up costs tens of microseconds, and the guest's processor stands still meanwhile: what a client sends soon after
//! the last message is better looked for, for a time that adapts ([`PollWindow`]). And where others want the processor, it is theirs
//! ([`Contention`]).

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::sys::{self, Received, Wait};
use crate::contention::{Contention, PUT_OFF};
use crate::poll_window::PollWindow;

/// How long a session looks, at most, unless it is told otherwise.
pub const USUAL: Duration = Duration::from_micros(200);

/// See the module.
#[derive(Debug)]
pub(super) struct Poll {
    window: PollWindow,
    contention: Contention,
}

impl Poll {
    /// Looks for `most` at most; zero: never.
    pub(super) fn new(most: Duration) -> Self {
        Self { window: PollWindow::new(most), contention: Contention::default() }
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
            if last.duration_since(began) >= self.window.time() {
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
        if self.contention.note(last.duration_since(began), away) {
            self.window.close();
        }
        if let Some(result) = found {
            return result;
        }
        let result = sys::receive(socket, buffer, fds, Wait::Yes);
        self.slept(began.elapsed());
        result
    }

    /// A message came after so long, most of it asleep.
    fn slept(&mut self, waited: Duration) {
        if self.contention.rests() {
            self.window.close();
        } else {
            self.window.waited(waited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROS: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn where_others_want_the_processor_nobody_looks() {
        let mut poll = Poll::new(MICROS(200));
        poll.slept(MICROS(60));
        assert!(poll.contention.note(MICROS(5000), MICROS(4000)));
        let mut windows = (0..258).map(|_| {
            poll.slept(MICROS(1));
            poll.window.time()
        });
        assert!(windows.by_ref().take(256).all(|window| window.is_zero()));
        assert!(windows.all(|window| !window.is_zero()));
    }

    #[test]
    fn message_is_found_by_looking_and_by_sleeping() {
        use std::io::Write;

        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut poll = Poll::new(MICROS(10_000));
        for round in 0..4 {
            if round == 2 {
                poll.window = PollWindow::new(Duration::from_secs(3600));
                (0..40).for_each(|_| poll.window.waited(Duration::ZERO));
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
