//! GF100's channels: the driver binds instance blocks, sets start bits and commits runlists, and all three
//! are read, checked and carried out on the host.

use super::channel_flags::{ChannelFlags, Watched};
use super::control::{
    ChannelControl, Control, UserdOffsets, is_about_channel, ring_if_done, ring_if_pending,
};
use super::copies::{Ring, Tables};
use super::host::{Host, Terms};
use super::memory::Memory;
use super::status::FailSafe;
use gpuvmk_aggregator::link::LinkError;
use gpuvmk_aggregator::protocol::{RefusalKind, Request};
use gpuvmk_backend::FifoState;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::gf100::mmu::LargePages;
use gpuvmk_chip::gf100::ramin::{USERD_GP_GET, USERD_GP_PUT, USERD_SIZE};
use gpuvmk_chip::{EngineSet, PhysicalAddress};
use gpuvmk_fifo_virt::{
    CONTEXTS_START, Channel, Effect, INSTANCE_BYTES, Input, InstanceBlock, InstanceError, Runlist, engines_of,
};
use gpuvmk_shadow_pagetable::Fermi;

const USERD: UserdOffsets = UserdOffsets { get: USERD_GP_GET, put: USERD_GP_PUT };

/// The FIFO as a GF100's driver programs it.
#[derive(Debug)]
pub struct FermiChannels {
    channels: Vec<Channel>,
    /// The start bits as the guest set them: a channel number keeps its bit when it is bound.
    started: Vec<bool>,
    /// The guest's runlist as it committed it.
    runlist: Vec<GuestChannel>,
    /// The runlist that was sent to the aggregator.
    sent_runlist: Vec<GuestChannel>,
    fifo: FifoState,
    blocked: bool,
}

impl ChannelControl for FermiChannels {
    type Format = Fermi;

    fn new(terms: &Terms) -> Self {
        let count = usize::from(terms.channels);
        Self {
            channels: vec![Channel::Free; count],
            started: vec![false; count],
            runlist: Vec::new(),
            sent_runlist: Vec::new(),
            fifo: FifoState::default(),
            blocked: false,
        }
    }

    fn forget_all(&mut self) {
        self.channels.fill(Channel::Free);
        self.started.fill(false);
        self.runlist.clear();
        self.sent_runlist.clear();
    }

    fn bound(&self) -> usize {
        self.channels.iter().filter(|channel| **channel != Channel::Free).count()
    }

    fn placed(&self) -> usize {
        self.channels.iter().filter(|channel| channel.placed().is_some()).count()
    }

    /// The engines that a channel's instance block names beyond those that its host channel has contexts for.
    ///
    /// Hardware reads a context pointer when the channel first uses the engine. So a driver may write it
    /// while the channel runs (nouveau of Linux 6.1 does), and the next doorbell is the first chance to see
    /// it. Removed pointers are noticed at the next start.
    fn new_engines(channel: GuestChannel, live: &ChannelFlags, memory: &Memory<'_>) -> EngineSet {
        let Some(watched) = live.watched(channel) else { return EngineSet::empty() };
        let mut raw = [0; INSTANCE_BYTES - CONTEXTS_START];
        let address = watched.instance.address.saturating_add(CONTEXTS_START as u64);
        match memory.load(PhysicalAddress { address, ..watched.instance }, &mut raw) {
            Ok(()) => engines_of(&raw).difference(watched.engines),
            Err(_) => EngineSet::empty(),
        }
    }

    /// The guest gave a running channel contexts for more engines (see [`Self::new_engines`]).
    fn add_engines(
        control: &mut Control<Self>,
        channel: GuestChannel,
        engines: EngineSet,
        host: &Host<'_>,
    ) -> Result<(), FailSafe> {
        let Some(Channel::Enabled(placed)) = control.chip.channels.get(usize::from(channel.0)) else {
            return Ok(());
        };
        let block = InstanceBlock { engines: placed.block.engines | engines, ..placed.block };
        control.step(channel, Input::Start(Ok(block)), host)?;
        // Hardware may have seen the work in passing: the aggregator has to know that there was some, even if
        // it is done.
        ring_if_done(channel, block.userd, USERD, host);
        Ok(())
    }
}

impl Control<FermiChannels> {
    /// The channel was bound to an instance block, or unbound.
    pub fn bind(
        &mut self,
        channel: GuestChannel,
        instance: Option<PhysicalAddress>,
        host: &Host<'_>,
    ) -> Result<(), FailSafe> {
        host.live.take_refusal(channel);
        self.step(channel, instance.map_or(Input::Unbind, Input::Bind), host)?;
        match self.chip.started.get(usize::from(channel.0)) {
            Some(true) if instance.is_some() => self.start(channel, host),
            _ => Ok(()),
        }
    }

    /// The channel's start bit was written.
    pub fn enable(&mut self, channel: GuestChannel, enabled: bool, host: &Host<'_>) -> Result<(), FailSafe> {
        match self.chip.started.get_mut(usize::from(channel.0)) {
            Some(started) => *started = enabled,
            None => host.counters.bad_channels.one(),
        }
        host.live.take_refusal(channel);
        if enabled && usize::from(channel.0) >= self.chip.channels.len() {
            host.live.refuse(channel);
        }
        if enabled { self.start(channel, host) } else { self.step(channel, Input::Stop, host) }
    }

    /// Reads the instance block of a channel that has one, and lets it run.
    fn start(&mut self, channel: GuestChannel, host: &Host<'_>) -> Result<(), FailSafe> {
        let instance = self.chip.channels.get(usize::from(channel.0)).and_then(Channel::instance);
        let Some(instance) = instance else { return Ok(()) };
        let block = read_instance(instance, host);
        if let Err(error) = block {
            host.counters.bad_instances.one();
            log::debug!("Channel {} does not start: {error}", channel.0);
        }
        self.step(channel, Input::Start(block), host)?;
        if matches!(self.chip.channels.get(usize::from(channel.0)), Some(Channel::NotPlaced { .. })) {
            host.live.refuse(channel);
        }
        Ok(())
    }

    /// A runlist was committed.
    pub fn commit_runlist(
        &mut self,
        list: PhysicalAddress,
        count: u32,
        host: &Host<'_>,
    ) -> Result<(), FailSafe> {
        let granted = u16::try_from(self.chip.channels.len()).unwrap_or(u16::MAX);
        let mut raw = vec![0; Runlist::bytes_to_read(count, granted)];
        let parsed = match host.memory.load(list, &mut raw) {
            Ok(()) => Runlist::parse(&raw, count, granted),
            Err(_) => Runlist { channels: Vec::new(), dropped: count },
        };
        host.counters.runlists.one();
        host.counters.runlist_entries_dropped.add(u64::from(parsed.dropped));
        self.chip.runlist = parsed.channels;
        self.send_runlist(true, host)
    }

    /// A preemption was started.
    pub fn preempt(&mut self, channel: GuestChannel, host: &Host<'_>) -> Result<(), FailSafe> {
        if self.chip.channels.get(usize::from(channel.0)).and_then(Channel::placed).is_none() {
            return Ok(());
        }
        host.live.begin_preemption(channel);
        match host.request(&Request::Preempt(channel)) {
            Ok(()) => Ok(()),
            Err(error) => {
                host.live.end_preemption(channel);
                if is_about_channel(&error) { Ok(()) } else { Err(error.into()) }
            }
        }
    }

    /// The preconditions of execution changed.
    pub fn set_fifo_state(&mut self, fifo: FifoState, host: &Host<'_>) -> Result<(), FailSafe> {
        self.chip.fifo = fifo;
        let large_pages = LargePages::from_64k(fifo.large_pages_64k);
        self.spaces.set_format(Fermi { large_pages }, host)?;
        self.follow_bar3(host)?;
        self.send_runlist(false, host)
    }

    /// Scheduling was blocked or allowed.
    pub fn block(&mut self, blocked: bool, host: &Host<'_>) -> Result<(), FailSafe> {
        self.chip.blocked = blocked;
        self.send_runlist(false, host)
    }

    fn step(&mut self, id: GuestChannel, input: Input, host: &Host<'_>) -> Result<(), FailSafe> {
        let Some(channel) = self.chip.channels.get_mut(usize::from(id.0)) else {
            if matches!(input, Input::Bind(_)) {
                host.counters.bad_channels.one();
            }
            return Ok(());
        };
        if host.live.take_fault(id) {
            *channel = channel.step(Input::Fault).0;
        }
        let (next, effects) = channel.step(input);
        *channel = next;
        for effect in effects {
            if !self.perform(id, effect, host)? {
                if let Some(channel) = self.chip.channels.get_mut(usize::from(id.0)) {
                    *channel = channel.step(Input::Refused).0;
                }
                break;
            }
        }
        if let Some(placed) = self.chip.channels.get(usize::from(id.0)).and_then(Channel::placed) {
            host.live.watch(id, Watched { instance: placed.instance, engines: placed.block.engines });
        }
        Ok(())
    }

    /// Carries an effect out. False when the host refused, and the host channel is gone.
    fn perform(&mut self, channel: GuestChannel, effect: Effect, host: &Host<'_>) -> Result<bool, FailSafe> {
        let request = match effect {
            Effect::Create(block) => return self.create(channel, &block, host),
            Effect::Destroy(block) => return self.destroy(channel, &block, host).map(|()| true),
            Effect::SetEngines(engines) => Request::SetEngines { channel, engines },
            Effect::Enable => Request::EnableChannel { channel, enabled: true },
            Effect::Disable => Request::EnableChannel { channel, enabled: false },
        };
        let placed = self.chip.channels.get(usize::from(channel.0)).and_then(Channel::placed).copied();
        match host.request(&request) {
            Ok(()) => {}
            Err(error) if is_about_channel(&error) => {
                if let Some(placed) = placed {
                    self.destroy(channel, &placed.block, host)?;
                }
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        if let (Effect::Enable, Some(placed)) = (effect, placed) {
            ring_if_pending(channel, placed.block.userd, USERD, host);
        }
        Ok(true)
    }

    fn create(&mut self, id: GuestChannel, block: &InstanceBlock, host: &Host<'_>) -> Result<bool, FailSafe> {
        let Some(space) = self.spaces.acquire(block.page_directory, host)? else { return Ok(false) };
        let request = Request::CreateChannel {
            context_of: None,
            channel: id,
            space,
            gpfifo: block.gpfifo,
            gpfifo_entries_log2: block.gpfifo_entries_log2,
            userd: block.userd,
            engines: block.engines,
        };
        self.begin_userd(block.userd, USERD_SIZE, host)?;
        match host.request(&request) {
            Ok(()) => {}
            Err(error) if is_about_channel(&error) => {
                self.end_userd(block.userd, host)?;
                self.spaces.release(block.page_directory, host)?;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        let ring = Ring {
            tables: Tables::Fermi(self.spaces.format()),
            directory: block.page_directory,
            gpfifo: block.gpfifo,
            entries_log2: block.gpfifo_entries_log2,
            engines: block.engines,
        };
        host.copies.begin(id, ring);
        host.live.set(id);
        // The guest may have put it on the runlist before it started it.
        self.send_runlist(false, host)?;
        Ok(true)
    }

    fn destroy(&mut self, id: GuestChannel, block: &InstanceBlock, host: &Host<'_>) -> Result<(), FailSafe> {
        host.live.clear(id);
        self.chip.sent_runlist.retain(|channel| *channel != id);
        match host.request(&Request::DestroyChannel(id)) {
            Ok(()) | Err(LinkError::Refused { kind: RefusalKind::BadId, .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.end_userd(block.userd, host)?;
        self.spaces.release(block.page_directory, host)
    }

    /// Tells the aggregator which channels may run: those of the guest's runlist that exist on the host, and
    /// none while PFIFO is off or scheduling is blocked.
    fn send_runlist(&mut self, always: bool, host: &Host<'_>) -> Result<(), FailSafe> {
        let runs = self.chip.fifo.enabled && self.chip.fifo.pbdma_mask != 0 && !self.chip.blocked;
        let on_host = |channel: &GuestChannel| runs && host.live.is_live(*channel);
        let list: Vec<_> = self.chip.runlist.iter().copied().filter(on_host).collect();
        if list == self.chip.sent_runlist && !always {
            return Ok(());
        }
        host.request(&Request::SetRunlist(list.clone()))?;
        self.chip.sent_runlist = list;
        Ok(())
    }
}

fn read_instance(instance: PhysicalAddress, host: &Host<'_>) -> Result<InstanceBlock, InstanceError> {
    let mut raw = [0; INSTANCE_BYTES];
    host.memory.load(instance, &mut raw).map_err(|_| InstanceError::Unreadable(instance))?;
    InstanceBlock::parse(&raw, host.memory.window.size())
}
