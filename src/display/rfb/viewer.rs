//! A viewer's connection: what can be read goes to its session, and what that makes is written.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;
use thiserror::Error;

use super::counts::ViewerCounts;
use super::input::ViewerInput;
use super::message::Fault;
use super::session::Session;
use crate::source::Picture;
use crate::watch::FRAME_TIME;

/// Bytes that a viewer may say in the time of a picture. What is more waits.
const INPUT_MAX: usize = 1 << 14;

/// Times that output is made for a viewer before others have their turn.
const TURNS: usize = 8;

/// Why a viewer is let go.
#[derive(Debug, Error)]
pub(super) enum Gone {
    #[error("it is gone")]
    Closed,
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error("it has not greeted in time")]
    Greeting,
    #[error("it takes no bytes any more")]
    Stalled,
    #[error("its socket fails: {0}")]
    Socket(#[from] io::Error),
}

/// How long viewers may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) greeting: Duration,
    pub(super) stalled: Duration,
}

/// A viewer.
#[derive(Debug)]
pub(super) struct Viewer {
    socket: OwnedFd,
    session: Session,
    /// When it came, then when it last took something.
    since: Duration,
    /// Bytes that it may still say, and since when.
    allowance: (usize, Duration),
    /// Its socket takes no more for the moment.
    is_full: bool,
}

impl Viewer {
    pub(super) fn new(socket: OwnedFd, name: &str, now: Duration) -> Self {
        Self { socket, session: Session::new(name), since: now, allowance: (INPUT_MAX, now), is_full: false }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn wants_picture(&self) -> bool {
        self.session.wants_picture()
    }

    /// What to wait for.
    pub(super) fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.allowance.0 > 0);
        flags.set(PollFlags::OUT, self.is_full);
        flags
    }

    /// When it is to be looked at again even if nothing comes from it.
    pub(super) fn deadline(&self, limits: Limits) -> Option<Duration> {
        let mut times = Vec::with_capacity(3);
        if !self.session.is_greeted() {
            times.push(self.since + limits.greeting);
        } else if self.is_full {
            times.push(self.since + limits.stalled);
        } else if self.session.wants_picture() {
            // A time that is past: it waits for a picture, of which the server is told.
            times.push(self.session.next_update());
        }
        if self.allowance.0 == 0 {
            times.push(self.allowance.1 + FRAME_TIME);
        }
        times.into_iter().min()
    }

    /// Takes what it says, after `ready` was found of its socket.
    pub(super) fn receive(
        &mut self,
        ready: PollFlags,
        input: &dyn ViewerInput,
        now: Duration,
    ) -> Result<(), Gone> {
        if now.saturating_sub(self.allowance.1) >= FRAME_TIME {
            self.allowance = (INPUT_MAX, now);
        }
        if ready.intersects(PollFlags::OUT | PollFlags::ERR | PollFlags::HUP) {
            self.is_full = false;
        }
        if !ready.intersects(PollFlags::IN | PollFlags::ERR | PollFlags::HUP) || self.allowance.0 == 0 {
            return Ok(());
        }
        let mut bytes = [0; 4096];
        let room = bytes.len().min(self.allowance.0);
        match rustix::io::read(&self.socket, bytes.get_mut(..room).unwrap_or_default()) {
            Ok(0) => Err(Gone::Closed),
            Ok(count) => {
                self.allowance.0 -= count.min(self.allowance.0);
                Ok(self.session.receive(bytes.get(..count).unwrap_or_default(), input)?)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(Errno::CONNRESET) => Err(Gone::Closed),
            Err(error) => Err(Gone::Socket(error.into())),
        }
    }

    /// Makes output and writes it, until the viewer takes no more, there is no more, or others have a turn.
    /// True if there may be more.
    pub(super) fn send(
        &mut self,
        picture: Option<&Picture>,
        limits: Limits,
        counts: &ViewerCounts,
        now: Duration,
    ) -> Result<bool, Gone> {
        for _ in 0..TURNS {
            if let Some(picture) = picture {
                self.session.fill(picture, now);
            }
            if self.session.output().is_empty() {
                return self.check(limits, now).map(|()| false);
            }
            if self.is_full {
                break;
            }
            match rustix::net::send(
                &self.socket,
                self.session.output(),
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(count) => {
                    counts.bytes.add(count as u64);
                    self.session.sent(count, now);
                    if self.session.is_greeted() {
                        self.since = now;
                    }
                }
                Err(Errno::AGAIN) => {
                    self.session.sent(0, now);
                    (self.is_full, self.since) =
                        (true, if self.session.is_greeted() { now } else { self.since });
                }
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Gone::Closed),
                Err(error) => return Err(Gone::Socket(error.into())),
            }
        }
        self.check(limits, now).map(|()| !self.is_full)
    }

    fn check(&self, limits: Limits, now: Duration) -> Result<(), Gone> {
        let waited = now.saturating_sub(self.since);
        if !self.session.is_greeted() && waited >= limits.greeting {
            Err(Gone::Greeting)
        } else if self.session.is_greeted() && self.is_full && waited >= limits.stalled {
            Err(Gone::Stalled)
        } else {
            Ok(())
        }
    }
}
