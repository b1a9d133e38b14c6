//! One connection of a device backend, from its hello to its end.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::peer::Peer;
use super::porter::handle::{FromPorter, PorterHandle, Rings};
use super::rate::DoorbellRate;
use crate::claimant::Claimant;
use crate::doorbells::DoorbellReceiver;
use crate::event_ring::EventProducer;
use crate::protocol::{Hello, Reply};
use gpuvmk_chip::addr::TenantId;

/// Stage of a connection.
#[derive(Debug)]
pub(super) enum Stage {
    /// It wants to be a tenant, and perhaps something that another tenant still has.
    Waiting {
        /// Its hello.
        hello: Hello,
        /// When it is refused after all; `None` while a tenant is leaving.
        until: Option<Duration>,
        /// The shared memory that it gets when it is admitted.
        rings: Box<Rings>,
    },
    /// It is a tenant.
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
    /// A message that it sent meanwhile.
    pub kept: Option<FromPorter>,
    /// The answer that it gets when its partition is zero.
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

/// A connection of a device backend.
#[derive(Debug)]
pub(super) struct Connection {
    pub porter: PorterHandle,
    pub peer: Peer,
    /// The VM whose own socket it came by.
    pub door: Option<String>,
    pub stage: Stage,
}

impl Connection {
    /// The peer as a claimant.
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
