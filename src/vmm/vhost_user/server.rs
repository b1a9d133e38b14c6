//! The thread that has to do with a back end.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::deadline::Deadlines;
use super::known::Known;
use super::link::{Begun, Link, LinkError, RunningQueue};
use super::wanted::{Orders, Wanted};
use crate::virtio::{QueuePlace, Setup, Transport};

/// How long until a back end that is gone is looked for, at first and at most.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(2);
/// One that was there for so long is looked for as at first.
const STEADY: Duration = Duration::from_secs(10);
/// How often a configuration may change.
const CONFIG_PACE: Duration = Duration::from_millis(100);
/// Requests of a back end that are not granted, before it is not listened to any more.
const MOST_REFUSED: u32 = 64;

/// epoll's data for what the thread waits for.
const ORDER: u64 = 0;
const LINK: u64 = 1;
const REQUESTS: u64 = 2;
const CALL: u64 = 3;

/// Queues that a back end serves.
struct Running {
    /// Which start of the driver's they are of.
    number: u64,
    queues: Vec<usize>,
}

/// Where queues were when they were stopped.
struct Paused {
    number: u64,
    bases: Vec<(usize, u16)>,
}

/// A connection and what is made of it.
struct Connected {
    link: Link,
    since: Instant,
    running: Option<Running>,
    refused: u32,
    /// When the configuration is asked for again.
    config_due: Option<Instant>,
}

/// The thread's data.
pub(super) struct Server {
    known: Arc<Known>,
    orders: Arc<Orders>,
    deadlines: Arc<Deadlines>,
    transport: Arc<Transport>,
    epoll: Epoll,
    /// What calls where the driver has no message for a queue.
    call: EventFd,
    connected: Option<Connected>,
    paused: Option<Paused>,
    /// A back end was lost while queues ran: those of that start go on where they were.
    resumes: Option<u64>,
    /// What back ends have begun since that start, if they keep a record of it.
    begun: (u64, Option<Begun>),
    /// The driver's mistake of that start was said.
    refused: Option<u64>,
    retry: Duration,
    retry_at: Instant,
    last_config: Instant,
}

impl Server {
    pub(super) fn new(
        known: Arc<Known>,
        orders: Arc<Orders>,
        deadlines: Arc<Deadlines>,
        transport: Arc<Transport>,
        link: Link,
    ) -> io::Result<Self> {
        let (epoll, call) = (Epoll::new()?, EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?);
        let now = Instant::now();
        let mut server = Self {
            known,
            orders,
            deadlines,
            transport,
            epoll,
            call,
            connected: None,
            paused: None,
            resumes: None,
            begun: (0, None),
            refused: None,
            retry: FIRST_RETRY,
            retry_at: now,
            last_config: now,
        };
        server.watch(server.orders.event().as_raw_fd(), ORDER)?;
        // Never read: back ends have it too, and can have readers wait. Each write of theirs is an event.
        let edge = EventSet::IN | EventSet::EDGE_TRIGGERED;
        let (call, event) = (server.call.as_raw_fd(), EpollEvent::new(edge, CALL));
        server.epoll.ctl(ControlOperation::Add, call, event)?;
        server.take_in(link)?;
        Ok(server)
    }

    fn watch(&self, descriptor: i32, number: u64) -> io::Result<()> {
        self.epoll.ctl(ControlOperation::Add, descriptor, EpollEvent::new(EventSet::IN, number))
    }

    fn take_in(&mut self, mut link: Link) -> io::Result<()> {
        self.watch(link.socket().as_raw_fd(), LINK)?;
        if let Some(requests) = link.requests() {
            self.watch(requests.socket().as_raw_fd(), REQUESTS)?;
        }
        let since = Instant::now();
        self.connected = Some(Connected { link, since, running: None, refused: 0, config_due: None });
        Ok(())
    }

    /// The thread's work.
    pub(super) fn serve(mut self) {
        loop {
            let wanted = self.orders.take();
            if wanted.end {
                return;
            }
            if self.connected.is_none() && Instant::now() >= self.retry_at {
                self.reconnect();
            }
            if let Err(error) = self.follow(&wanted) {
                self.lose(&format!("{:#}", anyhow::Error::new(error)));
            }
            if wanted.setup.is_none() && self.connected.as_ref().is_none_or(|now| now.running.is_none()) {
                (self.paused, self.resumes, self.begun.1) = (None, None, None);
                self.transport.reset_done();
            }
            if let Err(error) = self.wait() {
                log::error!("A back end's device is given up: {error}");
                self.connected = None;
                self.transport.reset_done();
                self.transport.needs_reset();
                return;
            }
        }
    }

    fn name(&self) -> String {
        self.known.back_end.kind.name()
    }

    /// Has the back end do what is wanted.
    fn follow(&mut self, wanted: &Wanted) -> Result<(), LinkError> {
        let Some(mut connected) = self.connected.take() else { return Ok(()) };
        let followed = self.follow_with(&mut connected, wanted);
        self.connected = Some(connected);
        followed
    }

    fn follow_with(&mut self, connected: &mut Connected, wanted: &Wanted) -> Result<(), LinkError> {
        let present = wanted.setup.as_ref().filter(|_| !wanted.paused && wanted.memory.num_regions() != 0);
        let goes_on = |running: &Running| present.is_some() && running.number == wanted.number;
        if let Some(running) = connected.running.take_if(|running| !goes_on(running)) {
            // If it is lost meanwhile.
            self.resumes = Some(running.number);
            let bases = connected.link.stop(&running.queues)?;
            self.resumes = None;
            let bases = running.queues.into_iter().zip(bases).collect();
            self.paused = Some(Paused { number: running.number, bases });
        }
        match (present, &connected.running) {
            (Some(setup), None) if self.refused != Some(wanted.number) => {
                self.begin(connected, setup, wanted)?;
            }
            (Some(_), Some(running)) if wanted.messages => {
                for index in &running.queues {
                    connected.link.set_call(*index, &self.call_of(*index)?)?;
                }
            }
            _ => {}
        }
        for (index, kick) in self.transport.kicks().iter().enumerate() {
            if wanted.kicks >> index & 1 != 0 {
                signal(kick);
            }
        }
        for write in &wanted.writes {
            connected.link.configure(write.offset, write.data.get(..write.size).unwrap_or_default())?;
        }
        if !wanted.writes.is_empty() || connected.config_due.is_some_and(|due| due <= Instant::now()) {
            connected.config_due = None;
            self.last_config = Instant::now();
            let told = connected.link.configuration(self.known.told_bytes())?;
            self.tell(told);
        }
        Ok(())
    }

    /// The driver is told if the configuration is another.
    fn tell(&self, configuration: Vec<u8>) {
        let changed = {
            let mut known = self.known.configuration();
            let changed = *known != configuration;
            *known = configuration;
            changed
        };
        if changed {
            self.transport.configuration_changed();
        }
    }

    fn call_of(&self, queue: usize) -> Result<EventFd, LinkError> {
        let call = self.transport.message(queue).map_or_else(|| self.call.try_clone(), Ok);
        call.map_err(|error| LinkError::System("Duplicating an eventfd", error))
    }

    fn begin(&mut self, connected: &mut Connected, setup: &Setup, wanted: &Wanted) -> Result<(), LinkError> {
        let mut queues = Vec::new();
        let resumed = self.resumes == Some(wanted.number);
        for ((index, place), kick) in setup.queues.iter().enumerate().zip(self.transport.kicks()) {
            if !place.enabled {
                continue;
            }
            if !lies_in(&wanted.memory, place) {
                log::warn!("The {}'s driver has put a queue where no memory is", self.name());
                self.refused = Some(wanted.number);
                self.transport.needs_reset();
                return Ok(());
            }
            let stopped = self.paused.as_ref().filter(|paused| paused.number == wanted.number);
            let stopped = stopped.and_then(|paused| paused.bases.iter().find(|(queue, _)| *queue == index));
            let base = match stopped {
                Some((_, base)) => *base,
                // What was answered last; it is not known what else had been begun.
                None if resumed => used_index(&wanted.memory, place),
                None => 0,
            };
            queues.push(RunningQueue { index, place: *place, base, kick, call: self.call_of(index)? });
        }
        let features = self.known.back_end.kind.told(setup.features, self.known.features);
        if self.begun.0 != wanted.number {
            self.begun = (wanted.number, None);
        }
        // One that is lost meanwhile may have answered something.
        (self.paused, self.resumes) = (None, Some(wanted.number));
        connected.link.start(features, &wanted.memory, &queues, &mut self.begun.1)?;
        for queue in &queues {
            // What was made available before, and what was answered and not told, get no notification.
            signal(queue.kick);
            if resumed {
                signal(&queue.call);
            }
        }
        let queues = queues.iter().map(|queue| queue.index).collect();
        connected.running = Some(Running { number: wanted.number, queues });
        self.resumes = None;
        Ok(())
    }

    /// Gives a back end up that is of no use any more.
    fn lose(&mut self, why: &str) {
        let Some(lost) = self.connected.take() else { return };
        log::warn!("The {}'s back end is lost, and looked for: {why}", self.name());
        if let Some(running) = &lost.running {
            self.resumes = Some(running.number);
            self.paused = None;
        }
        if lost.since.elapsed() > STEADY {
            self.retry = FIRST_RETRY;
        }
        self.retry_later();
        self.tell_of_link(false);
    }

    fn retry_later(&mut self) {
        self.retry_at = Instant::now() + self.retry;
        self.retry = (self.retry * 2).min(LAST_RETRY);
    }

    /// A network's driver is told whether there is somebody.
    fn tell_of_link(&self, connected: bool) {
        let back_end = &self.known.back_end;
        if !back_end.kind.is_told_by_back_end() {
            self.tell(back_end.kind.configuration(self.known.queues, connected));
        }
    }

    fn reconnect(&mut self) {
        let linked = self.known.connect(&self.deadlines);
        let taken = linked.and_then(|link| {
            self.take_in(link).map_err(|error| LinkError::System("Watching a socket", error))
        });
        match taken {
            Ok(()) => {
                log::info!("The {} has a back end again", self.name());
                self.tell_of_link(true);
                if let Some(connected) = &mut self.connected
                    && self.known.told_bytes() != 0
                {
                    connected.config_due = Some(Instant::now());
                }
            }
            Err(error) => {
                log::debug!("The {} has no back end yet: {:#}", self.name(), anyhow::Error::new(error));
                self.connected = None;
                self.retry_later();
            }
        }
    }

    /// How long nothing has to be done.
    fn timeout(&self) -> i32 {
        let due = match &self.connected {
            Some(connected) => connected.config_due,
            None => Some(self.retry_at),
        };
        let wait = due.map(|due| due.saturating_duration_since(Instant::now()).as_millis() + 1);
        wait.map_or(-1, |wait| i32::try_from(wait).unwrap_or(i32::MAX))
    }

    fn wait(&mut self) -> io::Result<()> {
        let mut events = [EpollEvent::default(); 4];
        let count = match self.epoll.wait(self.timeout(), &mut events) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            other => other?,
        };
        for event in events.iter().take(count) {
            match event.data() {
                // Only the line says so, for all queues.
                CALL => self.transport.raise_line(),
                LINK => self.lose("it has closed its socket, or says something unasked"),
                REQUESTS => self.take_requests(),
                _ => {}
            }
        }
        Ok(())
    }

    fn take_requests(&mut self) {
        let Some(connected) = &mut self.connected else { return };
        let Some(requests) = connected.link.requests() else { return };
        let ended = match requests.read() {
            Ok(asked) => {
                connected.refused = connected.refused.saturating_add(asked.refused);
                if asked.configuration && connected.config_due.is_none() {
                    connected.config_due = Some(self.last_config + CONFIG_PACE);
                }
                asked.closed || connected.refused > MOST_REFUSED
            }
            Err(error) => {
                log::warn!("A back end is not listened to any more: {error}");
                true
            }
        };
        if ended {
            *connected.link.requests() = None;
        }
    }
}

/// Signals an eventfd that a back end has too, unless that has filled it: who holds one may have writers
/// wait, and did so if it is full. (Between the look and the write it can still do that, to this thread.)
fn signal(event: &EventFd) {
    let takes = || {
        let epoll = Epoll::new()?;
        epoll.ctl(ControlOperation::Add, event.as_raw_fd(), EpollEvent::new(EventSet::OUT, 0))?;
        epoll.wait(0, &mut [EpollEvent::default()])
    };
    if takes().is_ok_and(|ready| ready == 1) {
        let _ = event.write(1);
    }
}

/// Whether all of a queue is memory, and where rings may begin (virtio 1.2, 2.7).
fn lies_in(memory: &GuestMemoryMmap, place: &QueuePlace) -> bool {
    let entries = usize::from(place.size);
    let parts = [
        (place.descriptors, 16, 16 * entries),
        (place.available, 2, 6 + 2 * entries),
        (place.used, 4, 6 + 8 * entries),
    ];
    let fits = |(at, alignment, bytes): (u64, u64, usize)| {
        at.is_multiple_of(alignment) && memory.check_range(GuestAddress(at), bytes)
    };
    entries != 0 && parts.into_iter().all(fits)
}

/// How many requests of a queue were answered.
fn used_index(memory: &GuestMemoryMmap, place: &QueuePlace) -> u16 {
    memory.read_obj(GuestAddress(place.used.saturating_add(2))).map_or(0, u16::from_le)
}
