//! One connection of a device backend, from its first request to its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags};

use super::rate::DoorbellRate;
use crate::addr::TenantId;
use crate::aggregator::claimant::Claimant;
use crate::aggregator::doorbells::DoorbellReceiver;
use crate::aggregator::event_ring::EventProducer;
use crate::aggregator::protocol::{Hello, Reply};

/// Who is at the other end.
#[derive(Debug)]
pub(super) struct Peer {
    pub pid: i32,
    pub uid: u32,
    /// Readable once the process is gone; absent for this very process, and where its number is hidden.
    process: Option<OwnedFd>,
}

impl Peer {
    pub fn of(socket: &OwnedFd) -> io::Result<Self> {
        let credentials = rustix::net::sockopt::socket_peercred(socket)?;
        let pid = credentials.pid;
        let process = if pid == rustix::process::getpid() {
            None
        } else {
            match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
                Ok(process) => Some(process),
                Err(errno) => {
                    log::warn!("process {} cannot be watched: {errno}", Pid::as_raw(Some(pid)));
                    None
                }
            }
        };
        Ok(Self { pid: Pid::as_raw(Some(pid)), uid: credentials.uid.as_raw(), process })
    }

    /// True unless it is this very process.
    pub fn is_other(&self) -> bool {
        self.pid != Pid::as_raw(Some(rustix::process::getpid()))
    }

    /// The descriptor to wait on until the process is gone; `None` when it is gone, or is this one.
    pub fn living_process(self) -> Option<OwnedFd> {
        let process = self.process?;
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
    /// Nothing was said yet.
    Silent {
        /// When it connected.
        since: Duration,
    },
    /// It wants something that another tenant still has.
    Waiting {
        /// Its wish.
        hello: Hello,
        /// When it is refused after all; `None` while somebody is leaving.
        until: Option<Duration>,
    },
    /// A tenant.
    Tenant(TenantLink),
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
    /// What it is told when its partition is zero.
    pub welcome: Option<(Reply, Vec<OwnedFd>)>,
    /// True while a request is being carried out whose answer follows.
    pub answering: bool,
    /// True while the request at hand is one of the mailbox.
    pub in_mailbox: bool,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub socket: OwnedFd,
    pub peer: Peer,
    /// The VM whose own socket it came by.
    pub door: Option<String>,
    pub stage: Stage,
}

impl Connection {
    /// Who may become a tenant by it.
    pub fn claimant(&self) -> Claimant {
        let Peer { pid, uid, .. } = self.peer;
        Claimant { uid, pid, inside: !self.peer.is_other(), door: self.door.clone() }
    }

    pub fn tenant(&mut self) -> Option<&mut TenantLink> {
        match &mut self.stage {
            Stage::Tenant(link) => Some(link),
            Stage::Silent { .. } | Stage::Waiting { .. } => None,
        }
    }

    /// Until when its requests are not taken.
    pub fn shut_until(&self) -> Option<Duration> {
        match &self.stage {
            Stage::Tenant(link) => link.shut_until,
            Stage::Silent { .. } | Stage::Waiting { .. } => None,
        }
    }

    pub fn socket_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
