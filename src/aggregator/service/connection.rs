//! One connection of a device backend, from its hello to its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::porter::{PorterHandle, Rings, Said};
use super::rate::DoorbellRate;
use crate::claimant::Claimant;
use crate::doorbells::DoorbellReceiver;
use crate::event_ring::EventProducer;
use crate::protocol::{Hello, Reply};
use gpuvmk_chip::addr::TenantId;
use gpuvmk_host::socket_path::peer::{self, Credentials};

/// Who is at the other end.
#[derive(Debug)]
pub(super) struct Peer {
    /// 0 where it has no number here.
    pub pid: i32,
    pub uid: u32,
    gid: u32,
    process: Process,
}

#[derive(Debug)]
enum Process {
    /// This one.
    Own,
    /// Readable once it is gone.
    Other(OwnedFd),
    /// Nobody would know when it is gone.
    Unwatched(io::Error),
}

impl Peer {
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let credentials = Credentials::of(socket)?;
        let own = i32::try_from(std::process::id()) == Ok(credentials.pid);
        let process = if own {
            Process::Own
        } else {
            peer::process(socket, credentials).map_or_else(Process::Unwatched, Process::Other)
        };
        Ok(Self { pid: credentials.pid, uid: credentials.uid, gid: credentials.gid, process })
    }

    /// What the kernel says of it.
    pub const fn credentials(&self) -> Credentials {
        Credentials { pid: self.pid, uid: self.uid, gid: self.gid }
    }

    /// True unless it is this very process.
    pub const fn is_other(&self) -> bool {
        !matches!(self.process, Process::Own)
    }

    /// Why it cannot be a tenant, if it cannot: what a tenant maps is given to somebody else once its process
    /// is gone, which somebody has to tell.
    pub fn unwatched(&self) -> Option<String> {
        match &self.process {
            Process::Own | Process::Other(_) => None,
            Process::Unwatched(error) if self.pid == 0 => Some(format!(
                "the process that connected is of another PID namespace, and cannot be watched: {error}"
            )),
            Process::Unwatched(error) => Some(format!("process {} cannot be watched: {error}", self.pid)),
        }
    }

    /// The descriptor to wait on until the process is gone; `None` when it is gone, or is this one.
    pub fn living_process(self) -> Option<OwnedFd> {
        let Process::Other(process) = self.process else { return None };
        let mut fds = [PollFd::new(&process, PollFlags::IN)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&now)) {
            Ok(1..) => None,
            Ok(0) | Err(_) => Some(process),
        }
    }
}

/// What a connection is about.
#[derive(Debug)]
pub(super) enum Stage {
    /// It wants to be a tenant, and perhaps something that another tenant still has.
    Waiting {
        /// Its wish.
        hello: Hello,
        /// When it is refused after all; `None` while somebody is leaving.
        until: Option<Duration>,
        /// What it gets when it is admitted.
        rings: Box<Rings>,
    },
    /// A tenant.
    Tenant(Box<TenantLink>),
}

/// A tenant's side channels.
#[derive(Debug)]
pub(super) struct TenantLink {
    pub id: TenantId,
    pub doorbells: DoorbellReceiver,
    pub events: EventProducer,
    pub rate: DoorbellRate,
    /// True when the sender knows that it has to wake us.
    pub armed: bool,
    /// Its requests are not taken until then.
    pub shut_until: Option<Duration>,
    /// What it said meanwhile.
    pub kept: Option<Said>,
    /// What it is told when its partition is zero.
    pub welcome: Option<Welcoming>,
    /// True while a request is being carried out whose answer follows.
    pub answering: bool,
    /// True while the request at hand is one of the mailbox.
    pub in_mailbox: bool,
}

/// A welcome with its files, and the pipe that wakes the consumer of events up.
#[derive(Debug)]
pub(super) struct Welcoming {
    pub reply: Reply,
    pub files: Vec<OwnedFd>,
    pub pipe: OwnedFd,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub porter: PorterHandle,
    pub peer: Peer,
    /// The VM whose own socket it came by.
    pub door: Option<String>,
    pub stage: Stage,
}

impl Connection {
    /// Who may become a tenant by it.
    pub fn claimant(&self) -> Claimant {
        let (pid, uid) = (self.peer.pid, self.peer.uid);
        Claimant { uid, pid, inside: !self.peer.is_other(), door: self.door.clone() }
    }

    pub fn tenant(&mut self) -> Option<&mut TenantLink> {
        match &mut self.stage {
            Stage::Tenant(link) => Some(link),
            Stage::Waiting { .. } => None,
        }
    }

    /// Until when its requests are not taken.
    pub fn shut_until(&self) -> Option<Duration> {
        match &self.stage {
            Stage::Tenant(link) => link.shut_until,
            Stage::Waiting { .. } => None,
        }
    }
}
