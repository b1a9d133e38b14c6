//! The service's loop: doorbells first, then the GPU's events, then requests, then what is due. No descriptor
//! of a tenant or an unadmitted connection is received, written to or closed here: see [`super::porter`].

mod accounts;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use super::adaptive_poll::AdaptivePoll;
use super::commands::{Command, Commands};
use super::connection::{Connection, Stage, TenantLink};
use super::gate::{Gate, OpenGate};
use crate::machine::{Machine, Output, SLICE, SLICE_BESIDE_OTHERS};
use crate::message::MessageSender;
use crate::steps::Step;
use crate::wire;
use gpuvmk_chip::addr::TenantId;
use gpuvmk_host::processors::to_spare;
use gpuvmk_host::socket_path::Guard;
use gpuvmk_ordered::OrderedMap;

/// Descriptors looked at in one turn.
const MAX_READY: usize = 64;

/// Limit of messages that are taken from porters and operators in one turn.
const MAX_SAID: usize = 256;

/// Kinds of descriptor, in the upper half of a token; the lower half is the connection's number.
const WAKE: u64 = 2 << 32;
const GPU: u64 = 3 << 32;
const DOORBELLS: u64 = 5 << 32;
pub(super) const PROCESS: u64 = 6 << 32;
const NUMBER: u64 = 0xffff_ffff;

/// The loop's state.
pub(super) struct Loop {
    pub(super) machine: Machine,
    /// The guards of these sockets and of those of other threads.
    pub(super) guards: Vec<Arc<Guard>>,
    pub(super) refused_hellos: u64,
    commands: Commands,
    inbox: Receiver<Command>,
    /// One that was found in the last look before sleep.
    found: Option<Command>,
    gate: Gate,
    _open: OpenGate,
    backend: String,
    pub(super) epoll: OwnedFd,
    pub(super) connections: OrderedMap<u32, Connection>,
    pub(super) by_tenant: OrderedMap<TenantId, u32>,
    /// Processes of tenants that left, still alive.
    pub(super) exiting_peers: OrderedMap<u32, (TenantId, OwnedFd)>,
    /// Connections whose doorbells are looked at in each turn, because their sender sees us awake.
    pub(super) awake: Vec<u32>,
    /// Whose mailbox was looked into last.
    pub(super) last_mailbox: u32,
    /// Connections whose requests are not taken for a while.
    pub(super) shut: Vec<u32>,
    pub(super) started: Instant,
    pub(super) bytes: Vec<u8>,
    pub(super) answer: Vec<u8>,
    outputs: Vec<Output>,
    /// Sends messages to drivers; without it, back ends send their own.
    pub(super) messages: Option<Arc<MessageSender>>,
    pub(super) adaptive_poll: AdaptivePoll,
    /// When tenants were told last for how long engines have worked for them.
    told_times: Duration,
}

impl Loop {
    pub fn new(
        machine: Machine,
        (gate, open): (Gate, OpenGate),
        (commands, inbox): (Commands, Receiver<Command>),
        backend: String,
        poll: Duration,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let messages = MessageSender::new();
        if let Err(error) = &messages {
            log::warn!("back ends send all of their messages themselves, which takes longer: {error}");
        }
        // Edge by edge: the counter is never read.
        watch(&epoll, commands.wake_fd(), WAKE, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        watch(&epoll, machine.event_fd(), GPU, epoll::EventFlags::IN)?;
        Ok(Self {
            machine,
            guards: Vec::new(),
            refused_hellos: 0,
            commands,
            inbox,
            found: None,
            gate,
            _open: open,
            backend,
            epoll,
            connections: OrderedMap::new(),
            by_tenant: OrderedMap::new(),
            exiting_peers: OrderedMap::new(),
            awake: Vec::new(),
            last_mailbox: 0,
            shut: Vec::new(),
            started: Instant::now(),
            bytes: vec![0; wire::MAX_REQUEST_BYTES],
            answer: Vec::with_capacity(wire::MAX_REPLY_BYTES),
            outputs: Vec::new(),
            messages: messages.ok().map(Arc::new),
            adaptive_poll: AdaptivePoll::new(poll, to_spare()),
            told_times: Duration::ZERO,
        })
    }

    /// Serves until ordered to stop.
    ///
    /// # Errors
    /// The GPU is gone, and the kernel waits for this process to close it. Tenants got the event.
    pub fn run(&mut self) -> io::Result<()> {
        let mut more = false;
        let mut ready = Vec::with_capacity(MAX_READY);
        loop {
            let begin = self.now();
            let looks = self.adaptive_poll.is_on(begin);
            if looks {
                rustix::thread::sched_yield();
                self.adaptive_poll.offered(begin, self.now());
            }
            let pending = !looks && self.prepare_to_sleep();
            let timeout = if looks || pending || more || self.found.is_some() {
                Some(Timespec { tv_sec: 0, tv_nsec: 0 })
            } else {
                self.time_to_sleep()
            };
            ready.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let Some(mailboxes_left) = self.turn(&ready) else { return Ok(()) };
            self.reopen();
            let now = self.now();
            more = self.machine.step(now) || mailboxes_left;
            let stepped = self.now();
            self.flush();
            self.tell_times(stepped);
            self.machine.note_step(Step::Tell, self.now().saturating_sub(stepped));
            if self.machine.is_to_be_closed() {
                return Err(io::Error::other("the physical GPU is gone, and has to be closed"));
            }
            self.serve_unadmitted(now);
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// One round over everything that is ready. True when there is more, `None` when ordered to stop.
    fn turn(&mut self, ready: &[epoll::Event]) -> Option<bool> {
        let tokens = || ready.iter().map(|event| event.data.u64());
        for token in tokens().filter(|token| token & !NUMBER == DOORBELLS) {
            let number = number_of(token);
            if let Some(link) = self.connections.get_mut(&number).and_then(Connection::tenant)
                && std::mem::take(&mut link.armed)
            {
                self.awake.push(number);
            }
        }
        let now = self.now();
        self.take_doorbells();
        let rung = self.now();
        self.machine.note_step(Step::Doorbells, rung.saturating_sub(now));
        if tokens().any(|token| token == GPU) {
            self.machine.gpu_events(rung);
            self.adaptive_poll.worked(rung);
            self.flush();
            self.machine.note_step(Step::Events, self.now().saturating_sub(rung));
        }
        let mailboxes_left = self.serve_mailboxes();
        for token in tokens() {
            if token & !NUMBER == PROCESS
                && let Some((tenant, process)) = self.exiting_peers.remove(&number_of(token))
            {
                unwatch(&self.epoll, process.as_fd());
                self.machine.peer_exited(tenant);
            }
        }
        if !self.take_commands() {
            return None;
        }
        // A request that came meanwhile waits for one of both, not for both.
        self.take_doorbells();
        Some(self.serve_mailboxes() || mailboxes_left)
    }

    /// Tells porters and the senders of doorbells to wake us from now on. True when one has something
    /// meanwhile.
    fn prepare_to_sleep(&mut self) -> bool {
        self.commands.set_sleeping(true);
        if self.found.is_none() {
            self.found = self.inbox.try_recv().ok();
        }
        if self.found.is_some() {
            self.commands.set_sleeping(false);
            return true;
        }
        let connections = &mut self.connections;
        let mut pending = false;
        self.awake.retain(|number| {
            let Some(link) = connections.get_mut(number).and_then(Connection::tenant) else { return false };
            if link.rate.closed_until().is_some() || link.shut_until.is_some() {
                return true;
            }
            link.armed = link.doorbells.prepare_to_sleep(link.answering);
            pending |= !link.armed;
            !link.armed
        });
        pending
    }

    fn take_doorbells(&mut self) {
        let now = self.started.elapsed();
        let mut begin = now;
        for number in &self.awake {
            let Some(link) = self.connections.get_mut(number).and_then(Connection::tenant) else { continue };
            if let Some(until) = link.rate.closed_until() {
                if now < until {
                    continue;
                }
                link.rate.open();
                listen_to_doorbells(&self.epoll, *number, link, true);
            }
            let (machine, tenant) = (&mut self.machine, link.id);
            let mut new: usize = 0;
            let taken = link.doorbells.take(|doorbell, rung| {
                new = new.saturating_add(usize::from(machine.doorbell(tenant, doorbell, rung, now)));
            });
            let mut wait = None;
            if new > 0 {
                self.adaptive_poll.rang(*number, now);
            }
            if taken > 0 {
                let end = self.started.elapsed();
                machine.charge(tenant, end.saturating_sub(begin));
                begin = end;
                wait = machine.thread_wait(tenant, now);
            }
            let flood = link.rate.note(taken, new, now);
            if let Some(until) = wait {
                link.rate.close(until);
            }
            if flood || wait.is_some() {
                // Its eventfd would wake us all the same: it is not listened to until the rate is open again.
                listen_to_doorbells(&self.epoll, *number, link, false);
                if flood {
                    machine.note_throttled(tenant);
                }
            }
        }
    }

    /// Takes requests again of those whose wait is over.
    fn reopen(&mut self) {
        if self.shut.is_empty() {
            return;
        }
        let now = self.now();
        let until = now.saturating_add(SLICE);
        for number in std::mem::take(&mut self.shut) {
            if self.now() >= until {
                // In the next turn, which comes at once.
                self.shut.push(number);
                continue;
            }
            let Some(link) = self.connections.get_mut(&number).and_then(Connection::tenant) else { continue };
            if link.shut_until.is_some_and(|until| now < until) {
                self.shut.push(number);
                continue;
            }
            link.shut_until = None;
            if let Some(said) = link.kept.take() {
                self.take(number, said);
            }
        }
    }

    fn time_to_sleep(&self) -> Option<Timespec> {
        let now = self.now();
        let silent = self.connections.values().filter_map(|connection| match connection.stage {
            Stage::Waiting { until, .. } => until,
            Stage::Tenant(_) => None,
        });
        let throttled = self.awake.iter().filter_map(|number| match &self.connections.get(number)?.stage {
            Stage::Tenant(link) => link.rate.closed_until(),
            Stage::Waiting { .. } => None,
        });
        let shut = self.shut.iter().filter_map(|number| self.connections.get(number)?.shut_until());
        let due = silent
            .chain(throttled)
            .chain(shut)
            .chain(self.adaptive_poll.next(now))
            .chain(self.machine.next_due(now))
            .min()?;
        Timespec::try_from(due.saturating_sub(now)).ok()
    }

    /// Takes one command, and more while little time has passed. False when ordered to stop.
    fn take_commands(&mut self) -> bool {
        let until = self.now().saturating_add(SLICE_BESIDE_OTHERS);
        // No more than there can be porters, of whom each says one thing at a time.
        for _ in 0..MAX_SAID {
            if self.now() >= until {
                break;
            }
            let command = self.found.take().map_or_else(|| self.inbox.try_recv(), Ok);
            let began = self.now();
            let is_order = !matches!(command, Ok(Command::FromPorter(..)));
            match command {
                Ok(Command::FromPorter(number, said)) => self.serve(number, said),
                Ok(Command::Status(answer)) => {
                    // The asker may have given up.
                    let _ = answer.try_send(self.status());
                }
                Ok(Command::Reset(name, answer)) => {
                    let now = self.now();
                    let _ = answer.try_send(self.machine.reset_vm(&name, now));
                }
                Ok(Command::List(name, guest, answer)) => {
                    let done = match guest {
                        Some(guest) => self.machine.allow_guest(&name, guest),
                        None => self.machine.forbid_guest(&name),
                    };
                    let _ = answer.try_send(done);
                }
                Ok(Command::Set(order, answer)) => {
                    let now = self.now();
                    let _ = answer.try_send(self.machine.set(&order, now));
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
            if is_order {
                self.machine.note_step(Step::Order, self.now().saturating_sub(began));
            }
        }
        if self.found.is_none() {
            self.found = self.inbox.try_recv().ok();
        }
        true
    }

    /// Lets what the machine has to say out.
    pub(super) fn flush(&mut self) {
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
                        self.reply(number, &reply);
                    }
                }
                Output::Ready(tenant) => {
                    if let Some(link) = self.link_of(tenant) {
                        link.answering = false;
                    }
                    if let Some(number) = self.by_tenant.get(&tenant).copied() {
                        self.welcome(number);
                    }
                }
                Output::Gone(_) => self.retry_waiting(|_| true),
            }
        }
        self.outputs = outputs;
    }

    fn link_of(&mut self, tenant: TenantId) -> Option<&mut TenantLink> {
        let number = self.by_tenant.get(&tenant)?;
        self.connections.get_mut(number)?.tenant()
    }
}

fn number_of(token: u64) -> u32 {
    u32::try_from(token & NUMBER).unwrap_or(0)
}

/// Listens to a tenant's doorbells, edge by edge: the counter is never read.
pub(super) fn watch_doorbells(epoll: &OwnedFd, number: u32, link: &TenantLink) {
    let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
    if let Err(error) = watch(epoll, link.doorbells.wake_fd(), DOORBELLS | u64::from(number), edges) {
        log::error!("doorbells of connection {number} are not heard: {error}");
    }
}

/// Listens to them, or does not for a while.
fn listen_to_doorbells(epoll: &OwnedFd, number: u32, link: &TenantLink, listens: bool) {
    let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
    let flags = if listens { edges } else { epoll::EventFlags::empty() };
    let data = epoll::EventData::new_u64(DOORBELLS | u64::from(number));
    if let Err(error) = epoll::modify(epoll, link.doorbells.wake_fd(), data, flags) {
        log::error!("doorbells of connection {number} are not heard: {error}");
    }
}

/// Both kinds of descriptor of the loop are watched by borrowed reference.
pub(super) fn watch(epoll: &OwnedFd, fd: impl AsFd, token: u64, flags: epoll::EventFlags) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, epoll::EventData::new_u64(token), flags)?)
}

/// Descriptors that others have too stay watched unless they are taken out by hand.
pub(super) fn unwatch(epoll: &OwnedFd, fd: BorrowedFd<'_>) {
    if let Err(errno) = epoll::delete(epoll, fd) {
        log::debug!("a descriptor was not watched: {errno}");
    }
}
