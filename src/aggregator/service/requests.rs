//! What porters say: admitted, served one request at a time, closed.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll;

use super::connection::{Connection, Stage, TenantLink, Welcoming};
use super::porter::handle::{Admitted, Answer, Arrival, ChangeOfMessage, FromPorter, Rings};
use super::rate::DoorbellRate;
use super::turn::{Loop, PROCESS, unwatch, watch, watch_doorbells};
use crate::machine::{Outcome, SLICE, Wait};
use crate::protocol::{Hello, RefusalKind, Reply, Request};
use crate::steps::Step;
use crate::tenant::Refusal;
use crate::wire;
use gpuvmk_chip::addr::TenantId;
use gpuvmk_host::reaper::Reaped;

/// How long a hello waits for a tenant that is not known to leave: the kernel reports a killed process only
/// after it has taken its memory apart.
const GONE_PATIENCE: Duration = Duration::from_secs(1);

impl Loop {
    /// Takes what a connection's porter has.
    pub(super) fn serve(&mut self, number: u32, said: FromPorter) {
        let now = self.now();
        match said {
            FromPorter::Hello(arrival) => {
                self.arrive(number, *arrival);
                self.machine.note_step(Step::Hello, self.now().saturating_sub(now));
            }
            FromPorter::Gone => {
                self.close(number);
                self.machine.note_step(Step::Leave, self.now().saturating_sub(now));
            }
            FromPorter::Unsent(error) => {
                if let Some(link) = self.connections.get_mut(&number).and_then(Connection::tenant) {
                    link.events.unsent(&error);
                }
            }
            FromPorter::Request(..) | FromPorter::Bad(_) => {
                self.adaptive_poll.note_request(number, now);
                if self.shut_out(number, now) {
                    if let Some(link) = self.connections.get_mut(&number).and_then(Connection::tenant) {
                        link.kept = Some(said);
                    }
                    return;
                }
                self.take(number, said);
            }
        }
    }

    /// Takes a request that came by the socket.
    pub(super) fn take(&mut self, number: u32, said: FromPorter) {
        let Some(link) = self.connections.get_mut(&number).and_then(Connection::tenant) else { return };
        // It speaks while it is being answered: it is not one of ours.
        if link.answering {
            return self.close(number);
        }
        match said {
            FromPorter::Request(Request::MessageEvent { given }, _) => self.message_event(number, given),
            FromPorter::Request(request, file) => {
                let tenant = link.id;
                let now = self.started.elapsed();
                // Whatever becomes of the copy, it is not the last: `file` is, and is given up.
                let copy = file.as_ref().and_then(Reaped::get).map(OwnedFd::try_clone).transpose();
                let outcome = match copy {
                    Ok(copy) => self.machine.request(tenant, request, copy, now),
                    Err(error) => {
                        let text = format!("its descriptor cannot be used: {error}");
                        let refusal = Refusal::new(RefusalKind::Exhausted, text);
                        Outcome::Now(self.machine.refuse(tenant, refusal, now))
                    }
                };
                drop(file);
                self.charge(tenant, now);
                self.answer_or_wait(number, outcome);
            }
            FromPorter::Bad(refusal) => {
                let (tenant, now) = (link.id, self.started.elapsed());
                let reply = self.machine.refuse(tenant, refusal, now);
                self.charge(tenant, now);
                self.reply(number, &reply);
            }
            FromPorter::Hello(_) | FromPorter::Unsent(_) | FromPorter::Gone => {}
        }
    }

    /// A tenant's request has taken the thread since `began`.
    fn charge(&mut self, tenant: TenantId, began: Duration) {
        let took = self.started.elapsed().saturating_sub(began);
        self.machine.charge(tenant, took);
        self.machine.note_step(Step::Request, took);
    }

    fn answer_or_wait(&mut self, number: u32, outcome: Outcome) {
        match outcome {
            Outcome::Now(reply) => {
                // Events that the request caused are in the ring before its answer.
                self.flush();
                self.reply(number, &reply);
            }
            Outcome::Later => {
                if let Some(link) = self.connections.get_mut(&number).and_then(Connection::tenant) {
                    link.answering = true;
                }
            }
        }
    }

    /// How a tenant's messages are sent from now on. The eventfd itself is its porter's.
    fn message_event(&mut self, number: u32, given: bool) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let Stage::Tenant(link) = &mut connection.stage else { return };
        let refusal = if !given {
            None
        } else if link.in_mailbox {
            Some(Refusal::new(
                RefusalKind::Protocol,
                "an eventfd for messages comes if it is given, and one only",
            ))
        } else if self.messages.is_none() {
            Some(Refusal::new(RefusalKind::Exhausted, "the kernel has no asynchronous requests left"))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            let (tenant, now) = (link.id, self.started.elapsed());
            let reply = self.machine.refuse(tenant, refusal, now);
            return self.reply(number, &reply);
        }
        link.events.set_messages(given);
        if link.in_mailbox {
            connection.porter.forget_message();
            return self.reply(number, &Reply::Done);
        }
        let send_first = connection.porter.take_message();
        let message = Some(ChangeOfMessage { given, send_first });
        wire::encode_reply(&Reply::Done, &mut self.answer);
        connection.porter.answer(Answer { bytes: self.answer.clone(), message, ..Answer::default() });
    }

    /// True when a tenant has used up its part of the thread: it is not listened to until it has earned it
    /// back.
    fn shut_out(&mut self, number: u32, now: Duration) -> bool {
        let Some(link) = self.connections.get_mut(&number).and_then(Connection::tenant) else { return false };
        if link.shut_until.is_some() {
            return true;
        }
        let Some(until) = self.machine.thread_wait(link.id, now) else { return false };
        link.shut_until = Some(until);
        self.shut.push(number);
        true
    }

    /// Takes the requests that lie in mailboxes, one of each tenant that is awake, for as long as the turn's
    /// time for that lasts. The next turn begins with the tenant that would have been next. True if the time
    /// ended before all were asked.
    pub(super) fn serve_mailboxes(&mut self) -> bool {
        let until = self.now().saturating_add(SLICE);
        self.awake.sort_unstable();
        let behind = self.awake.partition_point(|number| *number <= self.last_mailbox);
        self.awake.rotate_left(behind);
        for index in 0..self.awake.len() {
            let Some(number) = self.awake.get(index).copied() else { break };
            if self.now() >= until {
                return true;
            }
            self.last_mailbox = number;
            let asks = |link: &mut TenantLink| {
                !link.answering && link.shut_until.is_none() && link.doorbells.mailbox().has_request()
            };
            let tenant = self.connections.get_mut(&number).and_then(Connection::tenant);
            if !tenant.is_some_and(asks) || self.shut_out(number, self.now()) {
                continue;
            }
            let Some(link) = self.connections.get_mut(&number).and_then(Connection::tenant) else { continue };
            let length = link.doorbells.mailbox().take(&mut self.bytes);
            link.in_mailbox = true;
            let tenant = link.id;
            self.adaptive_poll.note_request(number, self.now());
            let now = self.started.elapsed();
            match wire::decode_request(self.bytes.get(..length).unwrap_or_default()) {
                Ok(Request::MessageEvent { given }) => self.message_event(number, given),
                Ok(request) => {
                    let outcome = self.machine.request(tenant, request, None, now);
                    self.charge(tenant, now);
                    self.answer_or_wait(number, outcome);
                }
                Err(error) => {
                    let refusal = Refusal::new(RefusalKind::Protocol, error.to_string());
                    let reply = self.machine.refuse(tenant, refusal, now);
                    self.charge(tenant, now);
                    self.reply(number, &reply);
                }
            }
        }
        false
    }

    /// An unadmitted connection wants to be a tenant.
    fn arrive(&mut self, number: u32, arrival: Arrival) {
        let Arrival { hello, peer, door, porter, rings } = arrival;
        let unwatched = peer.unwatched();
        let patience = self.now().saturating_add(GONE_PATIENCE);
        let name = hello.name.clone();
        let stage = Stage::Waiting { hello: hello.clone(), until: Some(patience), rings: Box::new(rings) };
        self.connections.insert(number, Connection { porter, peer, door, stage });
        match unwatched {
            Some(why) => self.turn_down(number, &name, &Refusal::new(RefusalKind::Protocol, why)),
            None => self.hello(number, &hello, patience),
        }
    }

    /// Refuses an unadmitted connection.
    fn turn_down(&mut self, number: u32, name: &str, refusal: &Refusal) {
        let Some(connection) = self.connections.get(&number) else { return };
        self.refused_hellos = self.refused_hellos.saturating_add(1);
        if connection.porter.place.turned_down() {
            log::warn!("{name}: not admitted: {}", refusal.message);
        }
        let reply = Reply::Refused { kind: refusal.kind, message: refusal.message.clone() };
        self.reply(number, &reply);
        self.close(number);
    }

    /// An unadmitted connection's wish.
    fn hello(&mut self, number: u32, hello: &Hello, patience: Duration) {
        let now = self.now();
        let Some(claimant) = self.connections.get(&number).map(Connection::claimant) else { return };
        let admitted = match self.machine.admit_from(hello, &claimant, now) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                let until = match self.machine.worth_waiting_for(hello, &claimant, &refusal, now) {
                    Wait::UntilSomebodyIsGone => Some(None),
                    Wait::Briefly if self.now() < patience => Some(Some(patience)),
                    Wait::Until(until) => {
                        log::info!("{} waits: {}", hello.name, refusal.message);
                        Some(Some(until))
                    }
                    Wait::Briefly | Wait::No => None,
                };
                if let (Some(longer), Some(connection)) = (until, self.connections.get_mut(&number)) {
                    if let Stage::Waiting { until, .. } = &mut connection.stage {
                        *until = longer;
                    }
                    return;
                }
                return self.turn_down(number, &hello.name, &refusal);
            }
        };
        let tenant = admitted.tenant;
        let Some(Connection { porter, peer, door, stage }) = self.connections.remove(&number) else { return };
        let Stage::Waiting { rings, .. } = stage else { return };
        let Rings { doorbells, mut events, files } = *rings;
        let Some(wake) = events.hand_over(porter.helper()) else { return };
        let mut files = Vec::from(files);
        files.extend(admitted.window.into_iter().map(|piece| piece.fd));
        let welcome = Welcoming { reply: Reply::Welcome(admitted.welcome), files, pipe: wake };
        let link = TenantLink {
            id: tenant,
            doorbells,
            events,
            rate: DoorbellRate::new(admitted.doorbell_rate),
            shut_until: None,
            kept: None,
            welcome: Some(welcome),
            armed: false,
            answering: !admitted.ready,
            in_mailbox: false,
        };
        watch_doorbells(&self.epoll, number, &link);
        let stage = Stage::Tenant(Box::new(link));
        self.connections.insert(number, Connection { porter, peer, door, stage });
        self.by_tenant.insert(tenant, number);
        self.awake.push(number);
        if admitted.ready {
            self.welcome(number);
        }
    }

    /// Gives a tenant what it was granted.
    pub(super) fn welcome(&mut self, number: u32) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let Stage::Tenant(link) = &mut connection.stage else { return };
        let Some(Welcoming { reply, files, pipe }) = link.welcome.take() else { return };
        wire::encode_reply(&reply, &mut self.answer);
        let account = self.machine.account(link.id);
        let admitted = Some(Admitted { pipe, account, sender: self.messages.clone() });
        connection.porter.answer(Answer { bytes: self.answer.clone(), files, admitted, message: None });
    }

    /// Retries connections that wait for resources of a leaving tenant, those for which `due` is true of
    /// their time limit.
    pub(super) fn retry_waiting(&mut self, due: impl Fn(Option<Duration>) -> bool) {
        let now = self.now();
        let waiting: Vec<_> = self
            .connections
            .iter()
            .filter_map(|(number, connection)| match &connection.stage {
                Stage::Waiting { hello, until, .. } if due(*until) => {
                    Some((*number, hello.clone(), until.unwrap_or(now)))
                }
                _ => None,
            })
            .collect();
        for (number, hello, patience) in waiting {
            self.hello(number, &hello, patience);
        }
    }

    /// Sends an answer.
    pub(super) fn reply(&mut self, number: u32, reply: &Reply) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        wire::encode_reply(reply, &mut self.answer);
        if let Some(link) = connection.tenant()
            && std::mem::take(&mut link.in_mailbox)
            && link.doorbells.mailbox().answer(&self.answer)
        {
            return;
        }
        connection.porter.answer(Answer { bytes: self.answer.clone(), ..Answer::default() });
    }

    /// Answers connections that have waited long enough.
    pub(super) fn serve_unadmitted(&mut self, now: Duration) {
        self.retry_waiting(|until| until.is_some_and(|until| now >= until));
    }

    /// Ends a connection, and with it a tenant. Its porter closes the files.
    fn close(&mut self, number: u32) {
        let Some(connection) = self.connections.remove(&number) else { return };
        self.awake.retain(|other| *other != number);
        let Connection { porter, peer, stage, .. } = connection;
        match stage {
            Stage::Waiting { rings, .. } => porter.take(rings),
            Stage::Tenant(link) => {
                unwatch(&self.epoll, link.doorbells.wake_fd());
                let id = link.id;
                self.by_tenant.remove(&id);
                let process = peer.living_process().filter(|process| {
                    watch(&self.epoll, process, PROCESS | u64::from(number), epoll::EventFlags::IN).is_ok()
                });
                self.machine.leave(id, process.is_some(), self.started.elapsed());
                if let Some(process) = process {
                    self.exiting_peers.insert(number, (id, process));
                }
                porter.take(link);
            }
        }
    }
}
