//! Connections of the service: accepted, admitted, served one request at a time, closed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll;

use super::connection::{Connection, Peer, Stage, TenantLink};
use super::rate::DoorbellRate;
use super::turn::{Door, Loop, PROCESS, SOCKET, unwatch, watch_doorbells};
use super::watch;
use crate::aggregator::machine::{Outcome, Wait};
use crate::aggregator::message::{Message, MessageSender};
use crate::aggregator::protocol::{Hello, RefusalKind, Reply, Request};
use crate::aggregator::seqpacket::{self, Received};
use crate::aggregator::tenant::Refusal;
use crate::aggregator::{doorbells, event_ring, wire};
use crate::socket_path::peer::Credentials;

/// Connections that were accepted and are not tenants (yet).
const MAX_STRANGERS: usize = 32;

/// The same of one process: it shall not keep others out.
const MAX_STRANGERS_OF_ONE: usize = 4;

/// How long a wish waits for a tenant that is not known to leave: the kernel tells of a killed process only after
/// it has taken its memory apart.
const GONE_PATIENCE: Duration = Duration::from_secs(1);

/// How long a connection may stay silent.
pub(super) const HELLO_PATIENCE: Duration = Duration::from_secs(5);

impl Loop {
    /// Accepts at the socket with this number.
    pub(super) fn accept(&mut self, number: u32) {
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        match self.listeners.get(place).map(|door| door.listener.accept()) {
            Some(Ok(Some(socket))) => self.add_connection(socket, Some(place)),
            Some(Ok(None)) | None => {}
            Some(Err(error)) => {
                log::error!("a backend could not connect, trying again: {error}");
                self.be_deaf();
            }
        }
    }

    /// Takes a connection in that came by a socket, or was handed over in this process.
    pub(super) fn add_connection(&mut self, socket: OwnedFd, place: Option<usize>) {
        let strangers = self.connections.len().saturating_sub(self.by_tenant.len());
        if strangers >= MAX_STRANGERS {
            log::warn!("a connection was closed: {MAX_STRANGERS} are waiting to say hello");
            return;
        }
        let number = self.next_connection;
        self.next_connection = self.next_connection.wrapping_add(1).max(1);
        let door = place.and_then(|place| self.listeners.get(place));
        if let Some(door) = door
            && let Some(refusal) = turned_away(door, &socket)
        {
            wire::encode_reply(&refused(&refusal), &mut self.answer);
            // Who does not take it is not waited for.
            let _ = seqpacket::send(&socket, &self.answer, &[], true);
            return;
        }
        let door = door.and_then(|door| door.vm.clone());
        let added = Peer::of(&socket).and_then(|peer| {
            watch(&self.epoll, &socket, SOCKET | u64::from(number), epoll::EventFlags::IN)?;
            Ok(peer)
        });
        match added {
            Ok(peer) if peer.is_other() && self.strangers_of(peer.pid) >= MAX_STRANGERS_OF_ONE => {
                // The descriptor is the only one: the kernel forgets to watch it.
                log::debug!("process {} has {MAX_STRANGERS_OF_ONE} connections that say nothing", peer.pid);
            }
            Ok(peer) => {
                log::debug!("connection {number} of process {} (user {})", peer.pid, peer.uid);
                let stage = Stage::Silent { since: self.now() };
                self.connections.insert(number, Connection { socket, peer, door, stage });
            }
            Err(error) => log::error!("a backend could not be taken in: {error}"),
        }
    }

    /// Connections of a process that are not tenants (yet).
    fn strangers_of(&self, pid: i32) -> usize {
        let stranger = |connection: &&Connection| {
            connection.peer.pid == pid && !matches!(connection.stage, Stage::Tenant(_))
        };
        self.connections.values().filter(stranger).count()
    }

    /// Takes one request of a connection.
    pub(super) fn serve(&mut self, number: u32) {
        let now = self.now();
        self.looking.asked(number, now);
        let Some(connection) = self.connections.get_mut(&number) else { return };
        // It is not listened to: only its end is told.
        if connection.shut_until().is_some() {
            return self.close(number);
        }
        if self.shut_out(number, now) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&number) else { return };
        self.files.clear();
        let received = seqpacket::receive(&connection.socket, &mut self.bytes, &mut self.files, true);
        match received {
            Ok(Received::Datagram(length)) => self.handle(number, length),
            Ok(Received::Nothing) => {}
            Ok(Received::End) => self.close(number),
            Err(error) => {
                log::warn!("connection {number} is closed: {error}");
                self.close(number);
            }
        }
    }

    /// True when a tenant has used up its part of the thread: it is not listened to until it has earned it back.
    fn shut_out(&mut self, number: u32, now: Duration) -> bool {
        let Some(link) = self.connections.get_mut(&number).and_then(Connection::tenant) else { return false };
        let Some(until) = self.machine.thread_wait(link.id, now) else { return false };
        link.shut_until = Some(until);
        self.shut.push(number);
        self.listen_to(number, epoll::EventFlags::empty());
        true
    }

    /// Takes the requests that lie in mailboxes, one of each tenant that is awake.
    pub(super) fn serve_mailboxes(&mut self) {
        for index in 0..self.awake.len() {
            let Some(number) = self.awake.get(index).copied() else { break };
            let asks = |link: &mut TenantLink| {
                !link.answering && link.shut_until.is_none() && link.doorbells.mailbox().asked()
            };
            let tenant = self.connections.get_mut(&number).and_then(Connection::tenant);
            if !tenant.is_some_and(asks) || self.shut_out(number, self.now()) {
                continue;
            }
            let Some(link) = self.connections.get_mut(&number).and_then(Connection::tenant) else { continue };
            let length = link.doorbells.mailbox().take(&mut self.bytes);
            link.in_mailbox = true;
            self.files.clear();
            self.looking.asked(number, self.now());
            self.handle(number, length);
        }
    }

    /// Carries out the request in the first `length` bytes of the buffer.
    fn handle(&mut self, number: u32, length: usize) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let request = match wire::decode_request(self.bytes.get(..length).unwrap_or_default()) {
            Ok(request) => request,
            Err(error) => {
                self.files.clear();
                if let Stage::Tenant(link) = &connection.stage {
                    self.machine.violation(link.id, self.started.elapsed());
                }
                let reply = Reply::Refused { kind: RefusalKind::Protocol, message: error.to_string() };
                return self.reply(number, &reply, &[]);
            }
        };
        match &mut connection.stage {
            Stage::Silent { .. } => match request {
                Request::Hello(hello) => {
                    let patience = self.now().saturating_add(GONE_PATIENCE);
                    self.hello(number, hello, patience);
                }
                _ => self.reply(number, &refused(&not_admitted()), &[]),
            },
            // It speaks while it is being answered: it is not one of ours.
            Stage::Waiting { .. } => self.close(number),
            Stage::Tenant(link) if link.answering => self.close(number),
            Stage::Tenant(link) => {
                let tenant = link.id;
                let now = self.started.elapsed();
                let file = if self.files.len() > 1 { None } else { self.files.pop() };
                self.files.clear();
                if let Request::MessageEvent { given } = request {
                    let message = message(given, file, self.messages.as_ref());
                    let reply = match message {
                        Ok(message) => {
                            link.events.set_message(message);
                            Reply::Done
                        }
                        Err(refusal) => self.machine.refuse(tenant, refusal, now),
                    };
                    self.machine.charge(tenant, self.started.elapsed().saturating_sub(now));
                    return self.reply(number, &reply, &[]);
                }
                let outcome = self.machine.request(tenant, request, file, now);
                self.machine.charge(tenant, self.started.elapsed().saturating_sub(now));
                match outcome {
                    Outcome::Now(reply) => {
                        // Events that the request caused are in the ring before its answer.
                        self.flush();
                        self.reply(number, &reply, &[]);
                    }
                    Outcome::Later => {
                        link.answering = true;
                        self.listen_to(number, epoll::EventFlags::empty());
                    }
                }
            }
        }
    }

    /// A first request.
    fn hello(&mut self, number: u32, hello: Hello, patience: Duration) {
        self.files.clear();
        let now = self.now();
        let Some(claimant) = self.connections.get(&number).map(Connection::claimant) else { return };
        let admitted = match self.machine.admit_from(&hello, &claimant, now) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                let until = match self.machine.worth_waiting_for(&hello, &claimant, &refusal, now) {
                    Wait::UntilSomebodyIsGone => Some(None),
                    Wait::Briefly if self.now() < patience => Some(Some(patience)),
                    Wait::Until(until) => {
                        log::info!("{} waits: {}", hello.name, refusal.message);
                        Some(Some(until))
                    }
                    Wait::Briefly | Wait::No => None,
                };
                if let (Some(until), Some(connection)) = (until, self.connections.get_mut(&number)) {
                    connection.stage = Stage::Waiting { hello, until };
                    return self.listen_to(number, epoll::EventFlags::empty());
                }
                log::warn!("{}: not admitted: {}", hello.name, refusal.message);
                self.refused_hellos = self.refused_hellos.saturating_add(1);
                return self.reply(number, &refused(&refusal), &[]);
            }
        };
        let tenant = admitted.tenant;
        let channels = doorbells::create().and_then(|bells| Ok((bells, event_ring::create()?)));
        let ((doorbells, board, bell), (events, ring, pipe)) = match channels {
            Ok(channels) => channels,
            Err(error) => {
                log::error!("{}: not admitted: {error}", hello.name);
                self.machine.leave(tenant, false, self.now());
                let refusal = Refusal::new(RefusalKind::Exhausted, format!("no rings can be had: {error}"));
                return self.reply(number, &refused(&refusal), &[]);
            }
        };
        let Some(connection) = self.connections.get_mut(&number) else { return };
        log::info!("{}: process {} of user {}", hello.name, connection.peer.pid, connection.peer.uid);
        let mut link = TenantLink {
            id: tenant,
            doorbells,
            events,
            rate: DoorbellRate::new(admitted.doorbell_rate),
            shut_until: None,
            welcome: None,
            armed: false,
            answering: !admitted.ready,
            in_mailbox: false,
        };
        watch_doorbells(&self.epoll, number, &link);
        let mut files = vec![board, bell, ring, pipe];
        files.extend(admitted.window.into_iter().map(|piece| piece.fd));
        link.welcome = Some((Reply::Welcome(admitted.welcome), files));
        connection.stage = Stage::Tenant(link);
        self.by_tenant.insert(tenant, number);
        self.awake.push(number);
        if admitted.ready {
            self.listen_to(number, epoll::EventFlags::IN);
            self.welcome(number);
        } else {
            self.listen_to(number, epoll::EventFlags::empty());
        }
    }

    /// Gives a tenant what it was granted.
    pub(super) fn welcome(&mut self, number: u32) {
        let link = self.connections.get_mut(&number).and_then(Connection::tenant);
        let Some((reply, files)) = link.and_then(|link| link.welcome.take()) else { return };
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        self.reply(number, &reply, &files);
    }

    /// Those who wait for somebody's resources look again, as far as `due` says of their patience.
    pub(super) fn retry_waiting(&mut self, due: impl Fn(Option<Duration>) -> bool) {
        let now = self.now();
        let waiting: Vec<_> = self
            .connections
            .iter()
            .filter_map(|(number, connection)| match &connection.stage {
                Stage::Waiting { hello, until } if due(*until) => {
                    Some((*number, hello.clone(), until.unwrap_or(now)))
                }
                _ => None,
            })
            .collect();
        for (number, hello, patience) in waiting {
            if let Some(connection) = self.connections.get_mut(&number) {
                connection.stage = Stage::Silent { since: now };
            }
            self.listen_to(number, epoll::EventFlags::IN);
            self.hello(number, hello, patience);
        }
    }

    pub(super) fn listen_to(&mut self, number: u32, flags: epoll::EventFlags) {
        if let Some(connection) = self.connections.get(&number) {
            let data = epoll::EventData::new_u64(SOCKET | u64::from(number));
            if let Err(errno) = epoll::modify(&self.epoll, connection.socket_fd(), data, flags) {
                log::error!("connection {number} cannot be watched: {errno}");
            }
        }
    }

    /// Answers. Whoever does not read answers is dropped.
    pub(super) fn reply(&mut self, number: u32, reply: &Reply, files: &[BorrowedFd<'_>]) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        wire::encode_reply(reply, &mut self.answer);
        if let Some(link) = connection.tenant()
            && std::mem::take(&mut link.in_mailbox)
            && link.doorbells.mailbox().answer(&self.answer)
        {
            return;
        }
        if let Err(error) = seqpacket::send(&connection.socket, &self.answer, files, true) {
            log::warn!("connection {number} is closed: its answer cannot be sent: {error}");
            self.close(number);
        }
    }

    /// Whoever said nothing for too long is dropped; whoever waited long enough gets an answer.
    pub(super) fn look_after_strangers(&mut self, now: Duration) {
        self.retry_waiting(|until| until.is_some_and(|until| now >= until));
        let late: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| {
                matches!(connection.stage, Stage::Silent { since } if now.saturating_sub(since) >= HELLO_PATIENCE)
            })
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            log::warn!("connection {number} is closed: it did not say hello");
            self.close(number);
        }
    }

    /// Ends a connection, and with it a tenant.
    fn close(&mut self, number: u32) {
        let Some(connection) = self.connections.remove(&number) else { return };
        unwatch(&self.epoll, connection.socket_fd());
        self.awake.retain(|other| *other != number);
        let Connection { peer, stage, .. } = connection;
        if let Stage::Tenant(link) = stage {
            if link.rate.closed_until().is_none() {
                unwatch(&self.epoll, link.doorbells.wake_fd());
            }
            self.by_tenant.remove(&link.id);
            let process = peer.living_process().filter(|process| {
                watch(&self.epoll, process, PROCESS | u64::from(number), epoll::EventFlags::IN).is_ok()
            });
            self.machine.leave(link.id, process.is_some(), self.started.elapsed());
            if let Some(process) = process {
                self.leavers.insert(number, (link.id, process));
            }
        }
    }
}

/// What is to send a tenant's messages from now on.
fn message(
    given: bool,
    file: Option<OwnedFd>,
    sender: Option<&Arc<MessageSender>>,
) -> Result<Option<Message>, Refusal> {
    match (given, file, sender) {
        (true, Some(event), Some(sender)) => Ok(Some(Message::new(event, Arc::clone(sender)))),
        (true, Some(_), None) => {
            Err(Refusal::new(RefusalKind::Exhausted, "the kernel has no asynchronous requests left"))
        }
        (false, None, _) => Ok(None),
        (true, None, _) | (false, Some(_), _) => {
            let message = "an eventfd for messages comes if it is given, and one only";
            Err(Refusal::new(RefusalKind::Protocol, message))
        }
    }
}

/// Why somebody who came by a socket may not, if so.
fn turned_away(door: &Door, socket: &OwnedFd) -> Option<Refusal> {
    // What cannot be asked fails once more where it is taken in.
    let peer = Credentials::of(socket).ok()?;
    let refused = door.listener.guard().judge(&peer).err()?;
    Some(Refusal::new(RefusalKind::Name, refused.to_string()))
}

fn refused(refusal: &Refusal) -> Reply {
    Reply::Refused { kind: refusal.kind, message: refusal.message.clone() }
}

fn not_admitted() -> Refusal {
    Refusal::new(RefusalKind::Protocol, "the first request must be hello")
}
