//! The control socket: operators ask in JSON-RPC 2.0, a line a request, a line an answer.
//!
//! [`methods`] has the methods. One thread serves all operators from one event loop. Few connections are
//! allowed. None may be silent, or leave answers unread, for long: the one that did so for longest makes room
//! for the next. The aggregator's thread only ever hands over a finished status; while one operator waits for
//! it, so do the others.

pub mod methods;
mod operator;
pub mod rpc;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use event_manager::{EventManager, EventOps, Events, MutEventSubscriber, SubscriberOps};
use rustix::event::EventfdFlags;
use vmm_sys_util::epoll::EventSet;

use self::operator::{Operator, Wants};
use super::service::ServiceRemote;
use gpuvmk_host::socket_path::{Listener, NotAllowed};
use gpuvmk_jail::{self as jail, Role};
use gpuvmk_ordered::OrderedMap;

/// Operators at a time.
const MAX_OPERATORS: usize = 8;

/// How long an operator may be silent, or not read.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often that is looked at, in milliseconds, while there are operators.
const LOOK_MS: i32 = 1000;

/// Wait after a failed `accept`: it fails for want of descriptors or memory, which does not pass at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What events are about: these two, or an operator's number.
const LISTENER: u32 = 0;
const STOP: u32 = 1;
const FIRST_OPERATOR: u32 = 2;

/// The control socket's server; ends when dropped.
#[derive(Debug)]
pub struct ControlServer {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Starts the server's thread.
    ///
    /// # Errors
    /// Out of descriptors or threads.
    pub fn start(listener: Listener, remote: ServiceRemote) -> io::Result<Self> {
        let stop = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut manager = EventManager::new().map_err(io::Error::other)?;
        let sessions = ControlSessions {
            listener,
            stop: Arc::clone(&stop),
            remote,
            operators: OrderedMap::new(),
            next: FIRST_OPERATOR,
            ended: false,
        };
        let sessions = manager.add_subscriber(sessions);
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(move || {
            jail::enter(Role::Control);
            loop {
                // Without connections, nothing is due.
                let idle =
                    manager.subscriber_mut(sessions).is_ok_and(|sessions| sessions.operators.is_empty());
                if let Err(error) = manager.run_with_timeout(if idle { -1 } else { LOOK_MS }) {
                    log::error!("the control socket ends: {error}");
                    return;
                }
                let late = match manager.subscriber_mut(sessions) {
                    Ok(sessions) if !sessions.ended => sessions.late(Instant::now()),
                    Ok(_) | Err(_) => return,
                };
                for operator in late {
                    // Its descriptor must leave the loop before it is closed.
                    if let Ok(mut ops) = manager.event_ops(sessions) {
                        forget(&operator, &mut ops);
                    }
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the control socket's thread broke down");
        }
    }
}

/// Where operators are served: what the event loop calls.
struct ControlSessions {
    listener: Listener,
    stop: Arc<OwnedFd>,
    remote: ServiceRemote,
    operators: OrderedMap<u32, Operator>,
    next: u32,
    ended: bool,
}

impl MutEventSubscriber for ControlSessions {
    fn init(&mut self, ops: &mut EventOps<'_>) {
        let listener = Events::with_data(self.listener.socket(), LISTENER, EventSet::IN);
        let stop = Events::with_data(self.stop.as_ref(), STOP, EventSet::IN);
        if let Err(error) = ops.add(listener).and_then(|()| ops.add(stop)) {
            log::error!("the control socket cannot be waited for: {error}");
            self.ended = true;
        }
    }

    fn process(&mut self, events: Events, ops: &mut EventOps<'_>) {
        match events.data() {
            STOP => self.ended = true,
            LISTENER => self.accept(ops),
            number => self.serve(number, ops),
        }
    }
}

impl ControlSessions {
    fn accept(&mut self, ops: &mut EventOps<'_>) {
        let (socket, peer) = match self.listener.accept_allowed(refusal_line) {
            Ok(Some((socket, peer))) => (UnixStream::from(socket), peer),
            Ok(None) => return,
            Err(error) => {
                log::error!("an operator could not connect: {error}");
                std::thread::sleep(ACCEPT_PAUSE);
                return;
            }
        };
        self.make_room(ops);
        let number = self.number();
        let events = Events::with_data(&socket, number, EventSet::IN);
        match Operator::new(socket, peer) {
            Ok(operator) if ops.add(events).is_ok() => {
                self.operators.insert(number, operator);
            }
            Ok(_) => log::error!("an operator could not be served"),
            Err(error) => log::error!("an operator could not be served: {error}"),
        }
    }

    /// Drops the connection that has kept us waiting for longest, if as many as allowed are open: operators
    /// ask and leave.
    fn make_room(&mut self, ops: &mut EventOps<'_>) {
        let now = Instant::now();
        let longest =
            self.operators.iter().max_by_key(|(_, operator)| operator.idle(now)).map(|(number, _)| *number);
        if self.operators.len() >= MAX_OPERATORS
            && let Some(number) = longest
        {
            log::warn!("an operator was dropped for another: {MAX_OPERATORS} are connected");
            self.close_connection(number, ops);
        }
    }

    /// A number that no operator has.
    fn number(&mut self) -> u32 {
        loop {
            let number = self.next;
            self.next = number.checked_add(1).unwrap_or(FIRST_OPERATOR);
            if !self.operators.contains_key(&number) {
                return number;
            }
        }
    }

    fn serve(&mut self, number: u32, ops: &mut EventOps<'_>) {
        let Some(operator) = self.operators.get_mut(&number) else { return };
        let (remote, peer) = (&self.remote, operator.peer());
        let wants = match operator.turn(|line| {
            rpc::answer(line, |method, params| {
                if methods::changes(method) {
                    log::info!("{method}, by {peer}: {params}");
                }
                methods::serve(method, params, remote)
            })
        }) {
            Ok(Wants::ToAsk) => EventSet::IN,
            Ok(Wants::Room) => EventSet::OUT,
            Ok(Wants::Nothing) => return self.close_connection(number, ops),
            Err(error) => {
                log::debug!("an operator's connection ended: {error}");
                return self.close_connection(number, ops);
            }
        };
        if let Err(error) = ops.modify(Events::with_data(operator.socket(), number, wants)) {
            log::error!("an operator can be served no more: {error}");
            self.close_connection(number, ops);
        }
    }

    fn close_connection(&mut self, number: u32, ops: &mut EventOps<'_>) {
        if let Some(operator) = self.operators.remove(&number) {
            forget(&operator, ops);
        }
    }

    /// Takes out those who kept us waiting.
    fn late(&mut self, now: Instant) -> Vec<Operator> {
        let late: Vec<u32> = self
            .operators
            .iter()
            .filter(|(_, operator)| operator.idle(now) > PATIENCE)
            .map(|(number, _)| *number)
            .collect();
        late.iter().filter_map(|number| self.operators.remove(number)).collect()
    }
}

/// The answer to a peer that may not operate.
fn refusal_line(refused: NotAllowed) -> Vec<u8> {
    let failure = rpc::Code::NotAllowed.because(refused.to_string());
    let mut line = rpc::failed(&serde_json::Value::Null, &failure).to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Takes an operator's descriptor out of the loop.
fn forget(operator: &Operator, ops: &mut EventOps<'_>) {
    if let Err(error) = ops.remove(Events::empty(operator.socket())) {
        log::debug!("an operator's descriptor was not watched: {error}");
    }
}
