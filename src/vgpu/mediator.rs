//! The mediator: what executes behind a guest's register face, by asking the aggregator.
//!
//! Threads and locks. Front-end threads come in through [`Backend`] and what its chip adds to it; the link's
//! thread comes in through [`EventPath`], which takes no lock of ours. Lock order:
//!
//! 1. `control`: held across requests to the aggregator, so the guest's requests are carried out one by one;
//! 2. `connection`: held for a moment to copy the reference, or to replace it at a reset;
//! 3. those of `copies`: held while a channel's new commands are looked through.
//!
//! The register face is never called with `control` held. Memory accesses do not take it, nor do doorbells of
//! channels that use no new engine.

mod completions;
mod dma;
mod fermi;
mod gsp;
mod reports;
mod windows;

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use super::control::{ChannelControl, Control};
use super::copies::Copies;
use super::events::{EventPath, Face};
use super::host::{Host, Terms};
use super::memory::{Memory, Window};
use super::placement::{Bar3, PagePlacement};
use super::quotas::{Meters, PacedInterrupts};
use super::status::{Counters, FailSafe, State};
use super::traced_link::TracedLink;
use super::{MediatorConfig, VgpuError};
use gpuvmk_aggregator::link::{AggregatorLink, Deferred, EventHandler, Grant, LinkError};
use gpuvmk_aggregator::protocol::{Doorbell, Event, Request};
use gpuvmk_backend::{Backend, Completions, EngineEvents, FlushScope, NoTarget, VramPiece, Windows};
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_pci::dma::{DmaSpace, MemoryOwner};
use gpuvmk_pci::mapping::sigbus;
use gpuvmk_pci::{DmaError, DmaMapping, InterruptSink, SharedMemory};
use gpuvmk_shadow_pagetable::{Limits, MmuFormat};

/// One connection to an aggregator, with what it granted.
struct Connection {
    link: Arc<dyn AggregatorLink>,
    window: Window,
    events: Arc<EventPath>,
    terms: Terms,
}

/// The back of a guest's vGPU, for chips whose drivers get channels by `C`.
pub struct Mediator<C: ChannelControl> {
    config: MediatorConfig,
    /// Page tables after power-on.
    format: C::Format,
    vram: u64,
    face: Face,
    counters: Arc<Counters>,
    meters: Arc<Meters>,
    copies: Copies,
    /// Accesses of the guest that were answered here.
    trapped: AtomicU64,
    system: DmaSpace,
    /// BAR3's memory, if front ends map it.
    placement: Option<PagePlacement>,
    control: Mutex<Control<C>>,
    connection: RwLock<Arc<Connection>>,
}

impl<C: ChannelControl> fmt::Debug for Mediator<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mediator").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl<C: ChannelControl> Mediator<C> {
    /// A mediator over an admitted tenant's link, for a chip whose page tables have `format` after power-on.
    ///
    /// # Errors
    /// The granted memory does not make up VRAM of the granted size, or cannot be mapped.
    pub fn new(
        link: Arc<dyn AggregatorLink>,
        grant: Grant,
        format: C::Format,
        mut config: MediatorConfig,
    ) -> Result<Self, VgpuError> {
        if let Some(tables) = config.quotas.guest_tables {
            let usual = config.limits.unwrap_or_else(|| format.limits());
            let tables = usize::try_from(tables).unwrap_or(usize::MAX);
            config.limits = Some(Limits { tables, ..usual });
        }
        let face = Face::default();
        let counters = Arc::<Counters>::default();
        let meters = Arc::new(Meters::new(config.quotas));
        let link = Arc::new(TracedLink::new(link, config.tracer.clone()));
        let direct = match (config.bar3, grant.slow_vram_reads) {
            (Bar3::Trapped, _) | (Bar3::WherePossible, true) => false,
            (Bar3::Direct | Bar3::WherePossible, false) => true,
            (Bar3::Direct, true) => return Err(VgpuError::Bar3Slow),
        };
        let connection = Connection::new(link, grant, config.table_cache, &face, &counters)?;
        let vram = connection.window.size();
        Ok(Self {
            format,
            vram,
            placement: direct.then(|| PagePlacement::new(vram)).transpose()?,
            face,
            counters,
            meters,
            copies: Copies::new(connection.terms.channels),
            trapped: AtomicU64::new(0),
            system: DmaSpace::with_owner(MemoryOwner::new(
                usize::try_from(config.quotas.memory_ranges).unwrap_or(usize::MAX),
            )),
            control: Mutex::new(Control::new(&connection.terms, config.limits, format)),
            connection: RwLock::new(Arc::new(connection)),
            config,
        })
    }

    /// Limits the guest's interrupts to the rate that it may have. Reports to operators when the limit is
    /// met.
    pub(super) fn paced(self: &Arc<Self>, sink: Arc<dyn InterruptSink>) -> Arc<dyn InterruptSink> {
        let mediator = Arc::downgrade(self);
        Arc::new(PacedInterrupts::new(sink, self.meters.clone(), move || {
            if let Some(mediator) = mediator.upgrade() {
                mediator.report_to_operators();
            }
        }))
    }

    fn control(&self) -> MutexGuard<'_, Control<C>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection(&self) -> Arc<Connection> {
        self.connection.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Calls `access` with the guest's memory.
    fn with_memory<R>(&self, access: impl FnOnce(&Memory<'_>) -> R) -> R {
        let connection = self.connection.read().unwrap_or_else(PoisonError::into_inner);
        access(&Memory { window: &connection.window, system: &self.system })
    }

    fn host<'a>(&'a self, connection: &'a Connection) -> Host<'a> {
        Host {
            terms: &connection.terms,
            link: &*connection.link,
            memory: Memory { window: &connection.window, system: &self.system },
            placement: self.placement.as_ref(),
            live: &connection.events.live,
            copies: &self.copies,
            counters: &self.counters,
            meters: &self.meters,
            tracer: &self.config.tracer,
            step: Cell::new(Instant::now()),
        }
    }

    /// Carries out a request of the guest. `None` in fail-safe state, and when the request leads there.
    fn serve<R>(&self, request: impl FnOnce(&mut Control<C>, &Host<'_>) -> Result<R, FailSafe>) -> Option<R> {
        let mut control = self.control();
        let connection = self.connection();
        let host = self.host(&connection);
        // The process is ending: no one needs the request.
        if connection.link.is_ending() {
            return None;
        }
        let text = if let Some(reason) = fail_safe_reason(&mut control, &connection.events, &host) {
            self.counters.dropped_in_fail_safe.one();
            // Told again only after a reset that did not bring the vGPU back.
            reason.to_string()
        } else {
            match request(&mut control, &host) {
                Ok(result) => return Some(result),
                Err(_) if connection.link.is_ending() => return None,
                Err(reason) => {
                    let text = reason.to_string();
                    control.fail(reason, host.step.get(), &host);
                    text
                }
            }
        };
        connection.link.report(&self.report(&control));
        drop(control);
        connection.events.report_lost(&text);
        None
    }

    /// A new connection in place of one whose aggregator is gone.
    fn reconnect(&self, control: &Control<C>) -> Result<(), FailSafe> {
        let lost = |why: String| FailSafe::AggregatorLost(why);
        let Some(factory) = &self.config.reconnect else {
            return Err(lost("nothing is known to connect to again".to_owned()));
        };
        let (link, grant) = factory().map_err(|error| lost(error.to_string()))?;
        if grant.vram != self.vram {
            return Err(lost(format!("{} bytes of VRAM were granted instead of {}", grant.vram, self.vram)));
        }
        if self.placement.is_some() && grant.slow_vram_reads {
            return Err(lost(VgpuError::Bar3Slow.to_string()));
        }
        let link = Arc::new(TracedLink::new(link, self.config.tracer.clone()));
        let connection = Connection::new(link, grant, self.config.table_cache, &self.face, &self.counters)
            .map_err(|error| lost(error.to_string()))?;
        let host = self.host(&connection);
        if let Some(placement) = &self.placement {
            placement.forget_announcement();
        }
        for range in control.ram.iter() {
            self.announce(range, &host)?;
        }
        if control.message.is_some() {
            self.announce_message(control, &host);
        }
        if self.face.get().is_some() {
            connection.link.connect(connection.events.clone());
        }
        let mut place = self.connection.write().unwrap_or_else(PoisonError::into_inner);
        place.events.disarm();
        *place = Arc::new(connection);
        self.counters.reconnects.one();
        Ok(())
    }

    /// The host side of a function reset.
    fn reset_host(&self, control: &Control<C>) -> Result<(), FailSafe> {
        let connection = self.connection();
        let host = self.host(&connection);
        if connection.events.loss().is_none() && !is_lost(&control.state) {
            match host.request(&Request::Reset { scrub: self.config.scrub_on_reset }) {
                Err(LinkError::Lost(_)) => {}
                result => return Ok(result?),
            }
        }
        self.reconnect(control)
    }

    /// Instance memory as after power-on, after the host's side with its result: no engine reaches it any
    /// more.
    fn reset_placement(&self, connection: &Connection, host: Result<(), FailSafe>) -> Result<(), FailSafe> {
        let Some(placement) = &self.placement else { return host };
        let withdrawn = host.and_then(|()| Ok(placement.withdraw(&self.host(connection))?));
        placement.reset(&connection.window);
        withdrawn
    }
}

impl Connection {
    fn new(
        link: Arc<dyn AggregatorLink>,
        grant: Grant,
        table_cache: usize,
        face: &Face,
        counters: &Arc<Counters>,
    ) -> Result<Self, VgpuError> {
        let Grant {
            vram,
            channels,
            spaces,
            engines,
            va_bits,
            page_shifts,
            slow_vram_reads,
            texture_clusters,
            window,
        } = grant;
        let terms = Terms { channels, spaces, engines, texture_clusters, va_bits, page_shifts };
        let window = Window::new(vram, window, slow_vram_reads.then_some(table_cache))?;
        let events = Arc::new(EventPath::new(face.clone(), counters.clone(), channels));
        Ok(Self { link, window, events, terms })
    }

    /// Delivers notifications that were held back. True if a message was sent for them.
    fn deliver_deferred(&self, kept: Deferred) -> bool {
        let Deferred { engines, sent } = kept;
        if sent {
            self.events.message_delivered(engines);
        } else {
            engines.engines().for_each(|engine| self.events.event(Event::NonStall(engine)));
        }
        sent
    }
}

/// Why the guest is not served, if it is not. Notices a loss that the link's thread reported.
fn fail_safe_reason<'a, C: ChannelControl>(
    control: &'a mut Control<C>,
    events: &EventPath,
    host: &Host<'_>,
) -> Option<&'a FailSafe> {
    if control.state == State::Running
        && let Some(reason) = events.loss()
    {
        control.fail(FailSafe::AggregatorLost(reason), Instant::now(), host);
    }
    if control.state == State::Running && sigbus::lost() > 0 {
        let pages = host.memory.system.owner().lost_pages();
        if pages > 0 {
            let why = format!("{pages} pages; is its file system full, or no huge page left?");
            log::error!("A page of the guest's memory could not be had: {why}");
            control.fail(FailSafe::MemoryLost(why), Instant::now(), host);
        }
    }
    match &control.state {
        State::Running => None,
        State::FailSafe(reason) => Some(reason),
    }
}

fn is_lost(state: &State) -> bool {
    matches!(state, State::FailSafe(FailSafe::AggregatorLost(_)))
}

impl<C: ChannelControl> Backend for Mediator<C> {
    fn vram_size(&self) -> u64 {
        self.vram
    }

    fn read_memory(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        self.with_memory(|memory| memory.load(address, data))
    }

    fn read_tables(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        self.with_memory(|memory| memory.load_tables(address, data))
    }

    fn write_memory(&self, address: PhysicalAddress, data: &[u8]) -> Result<(), NoTarget> {
        self.with_memory(|memory| memory.store(address, data))
    }

    fn share_vram(&self, offset: u64, size: u64) -> std::io::Result<Vec<SharedMemory>> {
        self.connection().window.share(offset, size)
    }

    fn show_vram(&self, offset: u64, size: u64, visit: &mut dyn FnMut(VramPiece<'_>)) {
        self.connection().window.show(offset, size, visit);
    }

    fn renew_vram(&self, _: u64, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn windows(&self) -> Option<&dyn Windows> {
        self.placement.is_some().then_some(self)
    }

    fn completions(&self) -> Option<&dyn Completions> {
        Some(self)
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        self.give_memory(mapping)
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        self.take_memory_between(iova, size)
    }

    fn dma_unmap_all(&self) {
        self.take_memory(|control| control.ram.iter().cloned().collect());
    }

    fn most_dma_ranges(&self) -> usize {
        self.system.owner().most_ranges()
    }

    fn connect_events(&self, events: Arc<dyn EngineEvents>) {
        if self.face.set(events).is_err() {
            log::error!("The register face of a vGPU was connected twice; the first one stays");
            return;
        }
        let connection = self.connection();
        connection.link.connect(connection.events.clone());
    }

    fn flush_tlb(&self, scope: FlushScope) {
        self.serve(|control, host| control.flush(scope, host));
    }

    fn doorbell(&self, channel: GuestChannel, gp_put: u32) {
        let connection = self.connection.read().unwrap_or_else(PoisonError::into_inner);
        let live = &connection.events.live;
        if !live.is_live(channel) {
            self.counters.doorbells_dropped.one();
            let events = live.take_refusal(channel).then(|| connection.events.clone());
            drop(connection);
            if let Some(events) = events {
                events.report_refused(channel);
            }
            return;
        }
        let memory = Memory { window: &connection.window, system: &self.system };
        let engines = C::new_engines(channel, live, &memory);
        self.counters.doorbells.one();
        if engines.is_empty() {
            let doorbell = Doorbell { channel, gp_put };
            connection.link.doorbell(doorbell);
            self.copies.count(doorbell, &memory, &*connection.link);
            return;
        }
        drop(connection);
        // Rings by itself when the channel is started again.
        self.serve(|control, host| C::add_engines(control, channel, engines, host));
    }

    fn reset(&self) {
        let start = Instant::now();
        let mut control = self.control();
        self.counters.resets.one();
        let result = self.reset_host(&control);
        let connection = self.connection();
        let result = self.reset_placement(&connection, result);
        // Late events of the link's thread then find no channel.
        connection.events.live.clear_all();
        // It may have been zeroed; and what the last driver kept there is nothing to the next one.
        connection.window.forget_tables();
        self.system.owner().restore_file();
        self.system.forget_populated();
        control.reset(&connection.terms, self.config.limits, self.format);
        // The face forgets the loss with the reset: if there is still one, the next request tells it again.
        connection.events.rearm_loss();
        if let Err(reason) = result
            && !connection.link.is_ending()
        {
            control.fail(reason, start, &self.host(&connection));
        }
        connection.link.report(&self.report(&control));
    }
}
