//! The display engine: channels, a head, and what takes effect when.

use std::collections::{BTreeMap, BTreeSet};

use gpuvmk_chip::display::memory::{NOTIFICATION_BYTES, NV_DISP_NOTIFIER};
use gpuvmk_chip::display::{ChannelKind, ChannelName, core, window};
use gpuvmk_gsp::abi::values::{DisplayChannel, InstanceMemory};
use gpuvmk_mmio_trap::PhysicalMemory;

use super::channel::Channel;
use super::interlock;
use super::methods::Methods;
use super::names::{NameError, Names};
use super::timing::Timing;

/// Words that are read of push buffers at a time: all of one and more, so that only endless ones end it.
const FUEL: u32 = 4096;

/// The core channel.
pub(super) const CORE: ChannelName = ChannelName { kind: ChannelKind::Core, instance: 0 };

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisplayCounters {
    /// Updates that took effect.
    pub updates: u64,
    /// Beginnings of blanking that somebody waited for.
    pub blankings: u64,
    /// Channels that stopped because their push buffer had no meaning.
    pub channels_stopped: u64,
    /// Handles that stood for no memory, or for too little.
    pub handles_refused: u64,
}

/// A cursor's channel: where it is, as was set and as has taken effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) assembly: u32,
    pub(super) armed: u32,
}

/// The head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// Its frames, while it is lit.
    pub(super) timing: Option<Timing>,
    /// When a blanking began, in nanoseconds.
    pub(super) since: u64,
    /// When the next one begins that somebody waits for.
    pub(super) next: Option<u64>,
    /// Blanking interrupts.
    pub(super) enabled: bool,
    /// One began since the driver has taken that back.
    pub(super) event: bool,
}

/// See the module above.
#[derive(Debug)]
pub struct Display {
    /// What describes the monitor; none: none is plugged in.
    pub(super) edid: Option<Vec<u8>>,
    pub(super) instance: Option<InstanceMemory>,
    pub(super) channels: BTreeMap<ChannelName, Channel>,
    pub(super) cursor: Option<Cursor>,
    pub(super) head: Head,
    pub(super) counters: DisplayCounters,
}

impl Display {
    /// Without channels. `edid` describes the monitor that is plugged in.
    pub fn new(edid: Option<Vec<u8>>) -> Self {
        Self {
            edid,
            instance: None,
            channels: BTreeMap::new(),
            cursor: None,
            head: Head::default(),
            counters: DisplayCounters::default(),
        }
    }

    /// Function reset. The monitor stays, and what was counted.
    pub fn reset(&mut self) {
        *self = Self { counters: self.counters, ..Self::new(self.edid.take()) };
    }

    /// What describes the monitor.
    pub const fn edid(&self) -> Option<&Vec<u8>> {
        self.edid.as_ref()
    }

    /// Another monitor is plugged in, or none.
    pub fn set_edid(&mut self, edid: Option<Vec<u8>>) {
        self.edid = edid;
    }

    /// Where objects are; none: nowhere.
    pub const fn set_instance_memory(&mut self, memory: Option<InstanceMemory>) {
        self.instance = memory;
    }

    /// What [`Self::set_instance_memory`] set last.
    pub const fn instance_memory(&self) -> Option<InstanceMemory> {
        self.instance
    }

    /// A driver has a channel.
    pub fn open(&mut self, channel: DisplayChannel) {
        let DisplayChannel { name, buffer, offset } = channel;
        match buffer {
            Some(buffer) => {
                self.channels.insert(name, Channel::new(name.kind, buffer, offset));
            }
            None => self.cursor = Some(Cursor::default()),
        }
        self.relight(0);
    }

    /// It has it no more: what it set is gone.
    pub fn close(&mut self, name: ChannelName) {
        self.channels.remove(&name);
        if name.kind == ChannelKind::Cursor {
            self.cursor = None;
        }
        self.relight(0);
    }

    /// The channels that a driver has, in order.
    pub fn channels(&self) -> impl Iterator<Item = ChannelName> + '_ {
        let cursor = self.cursor.and_then(|_| ChannelName::new(ChannelKind::Cursor, 0));
        self.channels.keys().copied().chain(cursor)
    }

    /// What was counted.
    pub const fn counters(&self) -> DisplayCounters {
        self.counters
    }

    /// In how many nanoseconds [`Self::blank`] is to be called; none: nobody waits for it.
    pub fn due(&self, now: u64) -> Option<u64> {
        self.head.next.map(|next| next.saturating_sub(now))
    }

    /// Blanking begins, if it is time: updates that wait for it take effect. True: the driver is to be
    /// interrupted.
    pub fn blank(&mut self, memory: &dyn PhysicalMemory, now: u64) -> bool {
        let (Some(next), Some(timing)) = (self.head.next, self.head.timing) else { return false };
        if now < next {
            return false;
        }
        self.head.next = None;
        // Those that came and went meanwhile are no more than one.
        self.head.since = next + (now - next) / timing.frame * timing.frame;
        self.counters.blankings = self.counters.blankings.saturating_add(1);
        let interrupts = self.head.enabled;
        self.head.event |= interrupts;
        let ready = self.ready();
        let mut names = None;
        self.arm(&ready, memory, now, &mut names);
        self.settle(memory, now);
        interrupts
    }

    /// The driver has written a push buffer, so far in words.
    pub(super) fn set_put(&mut self, name: ChannelName, put: usize, memory: &dyn PhysicalMemory, now: u64) {
        if let Some(channel) = self.channels.get_mut(&name) {
            channel.set_put(put);
            self.settle(memory, now);
        }
    }

    /// Reads on in all channels, and lets take effect what waits for nothing.
    fn settle(&mut self, memory: &dyn PhysicalMemory, now: u64) {
        let (mut fuel, mut names) = (FUEL, None);
        loop {
            for (name, channel) in &mut self.channels {
                if let Err(error) = channel.run(memory, &mut fuel) {
                    if self.counters.channels_stopped == 0 {
                        log::info!("Display channel {name:?} stops: {error}");
                    }
                    self.counters.channels_stopped = self.counters.channels_stopped.saturating_add(1);
                }
            }
            let is_lit = self.head.timing.is_some();
            let mut ready = self.ready();
            ready.retain(|name| {
                let methods = self.channels.get(name).map(|channel| &channel.methods);
                !is_lit || methods.is_some_and(|methods| interlock::is_immediate(*name, methods))
            });
            if ready.is_empty() {
                break;
            }
            self.arm(&ready, memory, now, &mut names);
        }
        self.schedule(now);
    }

    /// Channels whose update can take effect.
    fn ready(&self) -> BTreeSet<ChannelName> {
        let waiting = self.channels.iter().filter(|(_, channel)| channel.waits());
        interlock::ready(waiting.map(|(name, channel)| (*name, &channel.methods)))
    }

    /// What was set in these takes effect. `names` are read when they are needed.
    fn arm(
        &mut self,
        ready: &BTreeSet<ChannelName>,
        memory: &dyn PhysicalMemory,
        now: u64,
        names: &mut Option<Names>,
    ) {
        for name in ready {
            if let Some(channel) = self.channels.get_mut(name) {
                channel.arm();
                self.counters.updates = self.counters.updates.saturating_add(1);
            }
        }
        if ready.contains(&CORE) {
            self.relight(now);
        }
        for name in ready {
            let notified = self.notify(*name, memory, now, names);
            if let Err(error) = notified {
                self.refuse(*name, error);
            }
        }
    }

    /// Counts a handle that stands for no memory, or for too little.
    pub(super) fn refuse(&mut self, name: ChannelName, error: NameError) {
        if self.counters.handles_refused == 0 {
            log::info!("Display channel {name:?}: {error}");
        }
        self.counters.handles_refused = self.counters.handles_refused.saturating_add(1);
    }

    /// Writes to memory that an update has taken effect, if the driver has asked for that.
    fn notify(
        &self,
        name: ChannelName,
        memory: &dyn PhysicalMemory,
        now: u64,
        names: &mut Option<Names>,
    ) -> Result<(), NameError> {
        let Some(channel) = self.channels.get(&name) else { return Ok(()) };
        let Some((handle, units, status)) = wanted_notification(name.kind, &channel.methods) else {
            return Ok(());
        };
        let names = match names {
            Some(names) => names,
            None => names.insert(Names::read(memory, self.instance)?),
        };
        let object = names.find(memory, name, handle)?;
        // CAST: widening.
        let at = object.at(u64::from(units) * 16, NOTIFICATION_BYTES as u64)?;
        let [low, high] = [now, now >> 32].map(|half| half.to_le_bytes());
        let mut rest = [0; NOTIFICATION_BYTES - 4];
        for (to, from) in rest.iter_mut().skip(4).zip(low.iter().take(4).chain(high.iter().take(4))) {
            *to = *from;
        }
        let behind = gpuvmk_chip::PhysicalAddress { address: at.address.saturating_add(4), ..at };
        // The driver looks at the status: it comes last.
        let written = memory.write(behind, &rest)
            && memory.write(at, &NV_DISP_NOTIFIER::STATUS.of(status).to_le_bytes());
        if written { Ok(()) } else { Err(NameError::Target(handle)) }
    }

    /// Looks whether the head is lit, and how. A new rate begins now.
    fn relight(&mut self, now: u64) {
        let timing = self.channels.get(&CORE).and_then(|core| Timing::of(&core.methods, 0));
        if timing != self.head.timing {
            self.head.timing = timing;
            (self.head.since, self.head.next) = (now, None);
        }
    }

    /// Sees to it that the next blanking is noticed, if anybody waits for it.
    pub(super) fn schedule(&mut self, now: u64) {
        let is_awaited = self.head.enabled || !self.ready().is_empty();
        self.head.next = match self.head.timing.filter(|_| is_awaited) {
            Some(timing) => {
                let fresh = || now + timing.until_blanking(now.wrapping_sub(self.head.since));
                Some(self.head.next.unwrap_or_else(fresh))
            }
            None => None,
        };
    }
}

/// The notification that an update asks for: handle, place in 16 bytes, status.
fn wanted_notification(kind: ChannelKind, methods: &Methods) -> Option<(u32, u32, u32)> {
    match kind {
        ChannelKind::Core => {
            let control = methods.armed(core::SET_NOTIFIER_CONTROL);
            let handle = methods.armed(core::SET_CONTEXT_DMA_NOTIFIER);
            let units = core::NOTIFIER_CONTROL::OFFSET.get(control);
            let status = NV_DISP_NOTIFIER::STATUS::FINISHED;
            core::NOTIFIER_CONTROL::NOTIFY.is_set(control).then_some((handle, units, status))
        }
        ChannelKind::Window => {
            let handle = methods.armed(window::SET_CONTEXT_DMA_NOTIFIER);
            let units = window::NOTIFIER_CONTROL::OFFSET.get(methods.armed(window::SET_NOTIFIER_CONTROL));
            (handle != 0).then_some((handle, units, NV_DISP_NOTIFIER::STATUS::BEGUN))
        }
        ChannelKind::Immediate | ChannelKind::Cursor => None,
    }
}
