//! The service's loop: doorbells first, then the GPU's events, then requests, then what is due.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use super::connection::{Connection, Peer, Stage, TenantLink};
use super::{Command, watch};
use crate::addr::TenantId;
use crate::aggregator::machine::{Machine, Outcome, Output};
use crate::aggregator::protocol::{Hello, RefusalKind, Reply, Request};
use crate::aggregator::seqpacket::{self, Received};
use crate::aggregator::tenant::Refusal;
use crate::aggregator::{doorbells, event_ring, wire};
use crate::socket_path::PathListener;

/// Connections that were accepted and are not tenants (yet).
const MAX_STRANGERS: usize = 32;

/// Descriptors looked at in one turn.
const MAX_READY: usize = 64;

/// How long a connection may stay silent.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);

/// Kinds of descriptor, in the upper half of a token; the lower half is the connection's number.
const LISTENER: u64 = 1 << 32;
const WAKE: u64 = 2 << 32;
const GPU: u64 = 3 << 32;
const SOCKET: u64 = 4 << 32;
const DOORBELLS: u64 = 5 << 32;
const PROCESS: u64 = 6 << 32;
const NUMBER: u64 = 0xffff_ffff;

/// The loop's state.
pub(super) struct Loop {
    machine: Machine,
    listener: Option<PathListener>,
    commands: Receiver<Command>,
    wake: Arc<OwnedFd>,
    backend: String,
    epoll: OwnedFd,
    connections: BTreeMap<u32, Connection>,
    by_tenant: BTreeMap<TenantId, u32>,
    /// Processes of tenants that left, still alive.
    leavers: BTreeMap<u32, (TenantId, OwnedFd)>,
    /// Connections whose doorbells are looked at in each turn, because their sender was told we are awake.
    awake: Vec<u32>,
    next_connection: u32,
    started: Instant,
    bytes: Vec<u8>,
    answer: Vec<u8>,
    files: Vec<OwnedFd>,
    outputs: Vec<Output>,
}

impl Loop {
    pub fn new(
        machine: Machine,
        listener: Option<PathListener>,
        commands: Receiver<Command>,
        wake: Arc<OwnedFd>,
        backend: String,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&epoll, &wake, WAKE, epoll::EventFlags::IN)?;
        watch(&epoll, machine.event_fd(), GPU, epoll::EventFlags::IN)?;
        if let Some(listener) = &listener {
            watch(&epoll, listener.socket(), LISTENER, epoll::EventFlags::IN)?;
        }
        Ok(Self {
            machine,
            listener,
            commands,
            wake,
            backend,
            epoll,
            connections: BTreeMap::new(),
            by_tenant: BTreeMap::new(),
            leavers: BTreeMap::new(),
            awake: Vec::new(),
            next_connection: 1,
            started: Instant::now(),
            bytes: vec![0; wire::MAX_REQUEST_BYTES],
            answer: Vec::with_capacity(wire::MAX_REPLY_BYTES),
            files: Vec::new(),
            outputs: Vec::new(),
        })
    }

    /// Serves until told to stop.
    pub fn run(&mut self) -> io::Result<()> {
        let mut more = false;
        let mut ready = Vec::with_capacity(MAX_READY);
        loop {
            let news = self.prepare_to_sleep();
            let timeout =
                if news || more { Some(Timespec { tv_sec: 0, tv_nsec: 0 }) } else { self.time_to_sleep() };
            ready.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if !self.turn(&ready) {
                return Ok(());
            }
            let now = self.now();
            more = self.machine.step(now);
            self.flush();
            self.drop_silent(now);
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// One round over everything that is ready. False when told to stop.
    fn turn(&mut self, ready: &[epoll::Event]) -> bool {
        let tokens = || ready.iter().map(|event| event.data.u64());
        for token in tokens().filter(|token| token & !NUMBER == DOORBELLS) {
            let number = number_of(token);
            if let Some(link) = self.connections.get_mut(&number).and_then(Connection::tenant)
                && std::mem::take(&mut link.armed)
            {
                self.awake.push(number);
            }
        }
        self.take_doorbells();
        if tokens().any(|token| token == GPU) {
            self.machine.gpu_events();
            self.flush();
        }
        for token in tokens() {
            match token & !NUMBER {
                LISTENER => self.accept(),
                SOCKET => self.serve(number_of(token)),
                PROCESS => {
                    if let Some((tenant, process)) = self.leavers.remove(&number_of(token)) {
                        self.unwatch(process.as_fd());
                        self.machine.peer_exited(tenant);
                    }
                }
                WAKE if !self.take_commands() => return false,
                _ => {}
            }
        }
        true
    }

    /// Tells the senders of doorbells to wake us from now on. True when one has rung meanwhile.
    fn prepare_to_sleep(&mut self) -> bool {
        let connections = &mut self.connections;
        self.awake.retain(|number| {
            let Some(link) = connections.get_mut(number).and_then(Connection::tenant) else { return false };
            link.armed = link.doorbells.prepare_to_sleep();
            !link.armed
        });
        !self.awake.is_empty()
    }

    fn take_doorbells(&mut self) {
        let now = self.started.elapsed();
        for number in &self.awake {
            if let Some(link) = self.connections.get_mut(number).and_then(Connection::tenant) {
                let (machine, tenant) = (&mut self.machine, link.id);
                link.doorbells.take(|doorbell| machine.doorbell(tenant, doorbell, now));
            }
        }
    }

    fn time_to_sleep(&self) -> Option<Timespec> {
        let now = self.now();
        let silent = self.connections.values().filter_map(|connection| match connection.stage {
            Stage::Silent { since } => Some(since.saturating_add(HELLO_PATIENCE)),
            Stage::Waiting(_) | Stage::Tenant(_) => None,
        });
        let due = silent.chain(self.machine.next_due(now)).min()?;
        let left = due.saturating_sub(now);
        Some(Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        })
    }

    fn take_commands(&mut self) -> bool {
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut counter);
        loop {
            match self.commands.try_recv() {
                Ok(Command::Adopt(socket)) => self.add_connection(socket),
                Ok(Command::Status(answer)) => {
                    // Whoever asked may have given up.
                    let _ = answer.try_send(self.machine.status(&self.backend));
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn accept(&mut self) {
        match self.listener.as_ref().map(PathListener::accept) {
            Some(Ok(Some(socket))) => self.add_connection(socket),
            Some(Ok(None)) | None => {}
            Some(Err(error)) => log::error!("a backend could not connect: {error}"),
        }
    }

    fn add_connection(&mut self, socket: OwnedFd) {
        let strangers = self.connections.len().saturating_sub(self.by_tenant.len());
        if strangers >= MAX_STRANGERS {
            log::warn!("a connection was closed: {MAX_STRANGERS} are waiting to say hello");
            return;
        }
        let number = self.next_connection;
        self.next_connection = self.next_connection.wrapping_add(1).max(1);
        let added = Peer::of(&socket).and_then(|peer| {
            watch(&self.epoll, &socket, SOCKET | u64::from(number), epoll::EventFlags::IN)?;
            Ok(peer)
        });
        match added {
            Ok(peer) => {
                log::debug!("connection {number} of process {} (user {})", peer.pid, peer.uid);
                let stage = Stage::Silent { since: self.now() };
                self.connections.insert(number, Connection { socket, peer, stage });
            }
            Err(error) => log::error!("a backend could not be taken in: {error}"),
        }
    }

    /// Takes one request of a connection.
    fn serve(&mut self, number: u32) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        self.files.clear();
        let received = seqpacket::receive(&connection.socket, &mut self.bytes, &mut self.files, true);
        let length = match received {
            Ok(Received::Datagram(length)) => length,
            Ok(Received::Nothing) => return,
            Ok(Received::End) => return self.close(number),
            Err(error) => {
                log::warn!("connection {number} is closed: {error}");
                return self.close(number);
            }
        };
        let request = match wire::decode_request(self.bytes.get(..length).unwrap_or_default()) {
            Ok(request) => request,
            Err(error) => {
                self.files.clear();
                let reply = Reply::Refused { kind: RefusalKind::Protocol, message: error.to_string() };
                return self.reply(number, &reply, &[]);
            }
        };
        match &mut connection.stage {
            Stage::Silent { .. } => match request {
                Request::Hello(hello) => self.hello(number, hello),
                _ => self.reply(number, &refused(&not_admitted()), &[]),
            },
            // It speaks while it is being answered: it is not one of ours.
            Stage::Waiting(_) => self.close(number),
            Stage::Tenant(link) if link.answering => self.close(number),
            Stage::Tenant(link) => {
                let tenant = link.id;
                let now = self.started.elapsed();
                let file = if self.files.len() > 1 { None } else { self.files.pop() };
                self.files.clear();
                match self.machine.request(tenant, request, file, now) {
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
    fn hello(&mut self, number: u32, hello: Hello) {
        self.files.clear();
        let admitted = match self.machine.admit(&hello) {
            Ok(admitted) => admitted,
            Err(refusal) if self.machine.worth_waiting(&refusal) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.stage = Stage::Waiting(hello);
                }
                return self.listen_to(number, epoll::EventFlags::empty());
            }
            Err(refusal) => {
                log::warn!("{}: not admitted: {}", hello.name, refusal.message);
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
        let token = DOORBELLS | u64::from(number);
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        if let Err(error) = watch(&self.epoll, doorbells.wake_fd(), token, edges) {
            log::error!("{}: not admitted: {error}", hello.name);
            self.machine.leave(tenant, false, self.now());
            return self.close(number);
        }
        let Some(connection) = self.connections.get_mut(&number) else { return };
        log::info!("{}: process {} of user {}", hello.name, connection.peer.pid, connection.peer.uid);
        connection.stage =
            Stage::Tenant(TenantLink { id: tenant, doorbells, events, armed: false, answering: false });
        self.by_tenant.insert(tenant, number);
        self.awake.push(number);
        self.listen_to(number, epoll::EventFlags::IN);
        let mut files = vec![board.as_fd(), bell.as_fd(), ring.as_fd(), pipe.as_fd()];
        files.extend(admitted.window.iter().map(|piece| piece.fd.as_fd()));
        self.reply(number, &Reply::Welcome(admitted.welcome), &files);
    }

    /// Those who wait for somebody's resources look again.
    fn retry_waiting(&mut self) {
        let waiting: Vec<_> = self
            .connections
            .iter()
            .filter_map(|(number, connection)| match &connection.stage {
                Stage::Waiting(hello) => Some((*number, hello.clone())),
                Stage::Silent { .. } | Stage::Tenant(_) => None,
            })
            .collect();
        for (number, hello) in waiting {
            if let Some(connection) = self.connections.get_mut(&number) {
                connection.stage = Stage::Silent { since: self.started.elapsed() };
            }
            self.listen_to(number, epoll::EventFlags::IN);
            self.hello(number, hello);
        }
    }

    fn listen_to(&mut self, number: u32, flags: epoll::EventFlags) {
        if let Some(connection) = self.connections.get(&number) {
            let data = epoll::EventData::new_u64(SOCKET | u64::from(number));
            if let Err(errno) = epoll::modify(&self.epoll, connection.socket_fd(), data, flags) {
                log::error!("connection {number} cannot be watched: {errno}");
            }
        }
    }

    /// Answers. Whoever does not read answers is dropped.
    fn reply(&mut self, number: u32, reply: &Reply, files: &[BorrowedFd<'_>]) {
        let Some(connection) = self.connections.get(&number) else { return };
        wire::encode_reply(reply, &mut self.answer);
        if let Err(error) = seqpacket::send(&connection.socket, &self.answer, files, true) {
            log::warn!("connection {number} is closed: its answer cannot be sent: {error}");
            self.close(number);
        }
    }

    /// Lets what the machine has to say out.
    fn flush(&mut self) {
        let mut outputs = std::mem::take(&mut self.outputs);
        self.machine.take_outputs(&mut outputs);
        for output in outputs.drain(..) {
            match output {
                Output::Event(tenant, event) => {
                    if let Some(link) = self.link_of(tenant)
                        && !link.events.send(event)
                        && link.events.lost().is_power_of_two()
                    {
                        log::warn!("a backend does not take its events: {} are lost", link.events.lost());
                    }
                }
                Output::Reply(tenant, reply) => {
                    if let Some(link) = self.link_of(tenant) {
                        link.answering = false;
                    }
                    if let Some(number) = self.by_tenant.get(&tenant).copied() {
                        self.listen_to(number, epoll::EventFlags::IN);
                        self.reply(number, &reply, &[]);
                    }
                }
                Output::Gone(_) => self.retry_waiting(),
            }
        }
        self.outputs = outputs;
    }

    fn link_of(&mut self, tenant: TenantId) -> Option<&mut TenantLink> {
        let number = self.by_tenant.get(&tenant)?;
        self.connections.get_mut(number)?.tenant()
    }

    fn drop_silent(&mut self, now: Duration) {
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
        self.unwatch(connection.socket_fd());
        self.awake.retain(|other| *other != number);
        let Connection { peer, stage, .. } = connection;
        if let Stage::Tenant(link) = stage {
            self.unwatch(link.doorbells.wake_fd());
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

    /// Descriptors that others have too stay watched unless they are taken out by hand.
    fn unwatch(&self, fd: BorrowedFd<'_>) {
        if let Err(errno) = epoll::delete(&self.epoll, fd) {
            log::debug!("a descriptor was not watched: {errno}");
        }
    }
}

fn number_of(token: u64) -> u32 {
    u32::try_from(token & NUMBER).unwrap_or(0)
}

fn refused(refusal: &Refusal) -> Reply {
    Reply::Refused { kind: refusal.kind, message: refusal.message.clone() }
}

fn not_admitted() -> Refusal {
    Refusal::new(RefusalKind::Protocol, "the first request must be hello")
}
