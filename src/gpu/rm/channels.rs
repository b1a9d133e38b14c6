//! Tenants' channels: numbers of our own over the driver's objects, and which of them may run.
//!
//! A channel runs when it is enabled and on the runlist that was committed. The first time that makes it one,
//! it is scheduled; later it is disabled and enabled, which the driver does for many at once. Disabling takes
//! it off the engine.

mod preemption;

use super::abi::Handle;
use super::abi::controls::{DISABLE_MAX, DisableChannels};
use super::channel::{Allowed, NewChannel, RmChannel, allowed};
use super::device::{Device, Doorbell};
use super::engine_table::EngineTable;
use super::error::RmError;
use super::space::Memories;
use super::vram::Vram;
use crate::{ChannelSpec, GpuError, SpaceHandle};
use gpuvmk_chip::addr::{HostChannel, HostVram};
use gpuvmk_chip::channel_event::{ChannelStop, StopCause};
use gpuvmk_chip::gh100::userd::{USERD_GP_GET, USERD_GP_PUT, USERD_SIZE};
use gpuvmk_chip::nv::classes::Class;
use gpuvmk_chip::{Chip, Engine, EngineSet};
use gpuvmk_ordered::OrderedMap;

/// Channels of all tenants together: the hardware has 2048 on each runlist, other users of the GPU want some.
pub const MAX_CHANNELS: u16 = 512;

/// The state that a channel has in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    /// It was never scheduled.
    New,
    /// On its runlist.
    Running,
    /// It is disabled.
    Held,
}

#[derive(Debug)]
struct Slot {
    channel: RmChannel,
    space: SpaceHandle,
    engines: EngineSet,
    userd: HostVram,
    objects: Vec<(u32, Engine)>,
    enabled: bool,
    listed: bool,
    run: Run,
    /// Its error was reported.
    stopped: bool,
    /// Its doorbell was rung at least once.
    rung: bool,
    /// It was preempted, and is not yet known to have left its engine.
    leaving: Option<Leaving>,
}

/// A preemption under way; times in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// When to look.
    due: u64,
    /// How long after the last look that is.
    wait: u64,
}

/// All of them.
#[derive(Debug)]
pub struct Channels {
    engines: EngineTable,
    /// Its classes are those that tenants may have.
    chip: Chip,
    classes: Vec<Class>,
    slots: OrderedMap<HostChannel, Slot>,
    turn: usize,
}

impl Channels {
    /// A table without channels of a chip.
    pub fn new(engines: EngineTable, chip: Chip) -> Self {
        Self { engines, chip, classes: chip.classes.for_tenants(), slots: OrderedMap::new(), turn: 0 }
    }

    fn slot(&mut self, channel: HostChannel) -> Result<&mut Slot, GpuError> {
        self.slots.get_mut(&channel).ok_or_else(|| no_such(channel))
    }

    /// True when there is one.
    pub fn any(&self) -> bool {
        !self.slots.is_empty()
    }

    /// True when a channel uses the space.
    pub fn any_in(&self, space: SpaceHandle) -> bool {
        self.slots.values().any(|slot| slot.space == space)
    }

    /// True when a channel has its USERD in a range of VRAM.
    pub fn uses_vram(&self, start: HostVram, size: u64) -> bool {
        let end = start.0.saturating_add(size);
        self.slots.values().any(|slot| (start.0..end).contains(&slot.userd.0))
    }

    /// A new channel; none while the memory of its USERD is being made reachable.
    ///
    /// # Errors
    /// No numbers left, engines that no channel can have together, a USERD outside all partitions, or the
    /// driver refuses.
    pub fn create(
        &mut self,
        device: &mut Device,
        memories: &mut Memories<'_>,
        space: Handle,
        spec: &ChannelSpec,
    ) -> Result<Option<HostChannel>, GpuError> {
        let free = (0..MAX_CHANNELS).map(HostChannel).find(|number| !self.slots.contains_key(number));
        let number = free.ok_or(GpuError::Exhausted { what: "channels", limit: MAX_CHANNELS.into() })?;
        let unfit = || GpuError::Invalid(format!("no channel has the engines {:?} together", spec.engines));
        let engine = self.engines.runlist(spec.engines).ok_or_else(unfit)?;
        let Some(userd) = memories.vram.place(device, memories.system, spec.userd, USERD_SIZE)? else {
            return Ok(None);
        };
        if userd.size != USERD_SIZE {
            return Err(GpuError::Invalid(format!("USERD at {} leaves its partition", spec.userd)));
        }
        let new = NewChannel {
            class: self.chip.classes.channel,
            space,
            engine: self.engines.engine_type(engine).ok_or_else(unfit)?,
            gpfifo: spec.gpfifo.0,
            entries: 1_u32.checked_shl(spec.gpfifo_entries_log2.into()).unwrap_or(0),
            userd: userd.object,
            userd_offset: userd.offset,
        };
        let channel = match spec.context_of {
            None => RmChannel::new(device, &new)?,
            Some(other) => self.sharing(other, spec, engine)?.new_beside(device, &new)?,
        };
        let slot = Slot {
            channel,
            space: spec.space,
            engines: spec.engines,
            userd: spec.userd,
            objects: Vec::new(),
            enabled: false,
            listed: false,
            run: Run::New,
            stopped: false,
            rung: false,
            leaving: None,
        };
        self.slots.insert(number, slot);
        Ok(Some(number))
    }

    /// The channel whose graphics context a new one shares.
    fn sharing(
        &self,
        other: HostChannel,
        spec: &ChannelSpec,
        engine: Engine,
    ) -> Result<&RmChannel, GpuError> {
        let known = self.slots.get(&other).ok_or_else(|| no_such(other))?;
        let is_alike = known.space == spec.space && self.engines.runlist(known.engines) == Some(engine);
        if !is_alike || engine != Engine::Graphics {
            return Err(GpuError::Invalid(format!(
                "channel {} has no graphics context to share with one of the engines {:?} and another space",
                other.0, spec.engines
            )));
        }
        Ok(&known.channel)
    }

    /// Takes a channel away.
    ///
    /// # Errors
    /// No such channel, or the driver refuses.
    pub fn destroy(&mut self, device: &mut Device, channel: HostChannel) -> Result<(), GpuError> {
        self.slot(channel)?.channel.destroy(device)?;
        self.slots.remove(&channel);
        Ok(())
    }

    /// Engines are chosen when a channel is made; the same ones may be named again.
    ///
    /// # Errors
    /// No such channel, or other engines.
    pub fn set_engines(&mut self, channel: HostChannel, engines: EngineSet) -> Result<(), GpuError> {
        let slot = self.slot(channel)?;
        if slot.engines.contains(engines) {
            return Ok(());
        }
        Err(GpuError::Invalid(format!("channel {} has the engines {:?} for good", channel.0, slot.engines)))
    }

    /// Makes an object.
    ///
    /// # Errors
    /// No such channel, a class that tenants may not have, or the driver refuses.
    pub fn create_object(
        &mut self,
        device: &mut Device,
        channel: HostChannel,
        class: u32,
        engine: Engine,
    ) -> Result<(), GpuError> {
        let engine_type = self.engines.engine_type(engine);
        let known = allowed(&self.classes, class);
        let slot = self.slot(channel)?;
        let no_class = GpuError::NoClass { class, engine };
        if slot.objects.contains(&(class, engine)) {
            return Ok(());
        }
        let (Some(known), Some(engine_type)) = (known, engine_type) else {
            return Err(no_class);
        };
        if !slot.engines.contains(engine.into()) {
            return Err(no_class);
        }
        match (known, engine) {
            (Allowed::Copy(class), Engine::Copy(_)) => {
                slot.channel.copy_object(device, class, engine_type)?;
            }
            (Allowed::Graphics(class), Engine::Graphics) => {
                slot.channel.graphics_object(device, class)?;
            }
            _ => return Err(no_class),
        }
        slot.objects.push((class, engine));
        Ok(())
    }

    /// Lets a channel run, or not.
    ///
    /// # Errors
    /// No such channel, or the driver refuses.
    pub fn enable(
        &mut self,
        device: &Device,
        doorbell: &Doorbell,
        channel: HostChannel,
        enabled: bool,
    ) -> Result<(), GpuError> {
        self.slot(channel)?.enabled = enabled;
        self.apply(device, doorbell)
    }

    /// The channels that may run.
    ///
    /// # Errors
    /// No such channel, or the driver refuses.
    pub fn commit(
        &mut self,
        device: &Device,
        doorbell: &Doorbell,
        list: &[HostChannel],
    ) -> Result<(), GpuError> {
        if let Some(stranger) = list.iter().find(|channel| !self.slots.contains_key(channel)) {
            return Err(no_such(*stranger));
        }
        for (number, slot) in &mut self.slots {
            slot.listed = list.contains(number);
        }
        self.apply(device, doorbell)
    }

    /// Tells the driver what changed: first what must stop.
    fn apply(&mut self, device: &Device, doorbell: &Doorbell) -> Result<(), GpuError> {
        let wants = |slot: &Slot| slot.enabled && slot.listed && !slot.stopped && slot.leaving.is_none();
        let changed = |run: Run, want: bool| {
            self.slots
                .iter()
                .filter(|(_, slot)| slot.run == run && wants(slot) == want)
                .map(|(number, slot)| (*number, slot.channel.handle()))
                .collect::<Vec<_>>()
        };
        let (stop, resume, start) =
            (changed(Run::Running, false), changed(Run::Held, true), changed(Run::New, true));
        let resumed = resume.clone();
        for (channels, disable) in [(stop, true), (resume, false)] {
            for some in channels.chunks(DISABLE_MAX) {
                set_disabled(device, some, disable)?;
                for (number, _) in some {
                    self.slot(*number)?.run = if disable { Run::Held } else { Run::Running };
                }
            }
        }
        for (number, _) in &start {
            let slot = self.slot(*number)?;
            slot.channel.schedule(device)?;
            slot.run = Run::Running;
        }
        // With a channel, all of its group were enabled.
        for some in self.held_beside(&start).chunks(DISABLE_MAX) {
            set_disabled(device, some, true)?;
        }
        // Work that came while they did not run.
        for (number, _) in resumed.iter().chain(&start) {
            self.ring_again(doorbell, *number)?;
        }
        Ok(())
    }

    /// Channels that are held, in the groups of these.
    fn held_beside(&self, channels: &[(HostChannel, Handle)]) -> Vec<(HostChannel, Handle)> {
        let group = |number: &HostChannel| Some(self.slots.get(number)?.channel.group().handle());
        let groups: Vec<Handle> = channels.iter().filter_map(|(number, _)| group(number)).collect();
        self.slots
            .iter()
            .filter(|(_, slot)| slot.run == Run::Held && groups.contains(&slot.channel.group().handle()))
            .map(|(number, slot)| (*number, slot.channel.handle()))
            .collect()
    }

    /// Rings a channel's doorbell. For a channel that does not run, this is done when it does.
    ///
    /// # Errors
    /// No such channel.
    pub fn ring(&mut self, doorbell: &Doorbell, channel: HostChannel) -> Result<(), GpuError> {
        let slot = self.slot(channel)?;
        slot.rung = true;
        if let (Run::Running, Some(token)) = (slot.run, slot.channel.token()) {
            doorbell.ring(token);
        }
        Ok(())
    }

    fn ring_again(&mut self, doorbell: &Doorbell, channel: HostChannel) -> Result<(), GpuError> {
        if self.slot(channel)?.rung { self.ring(doorbell, channel) } else { Ok(()) }
    }

    /// USERD_GP_GET in the channel's USERD.
    ///
    /// # Errors
    /// No such channel.
    pub fn progress(&mut self, vram: &Vram, channel: HostChannel) -> Result<u32, GpuError> {
        let userd = self.slot(channel)?.userd;
        Ok(userd_word(vram, userd, USERD_GP_GET))
    }

    /// For each engine a channel that has unfetched work, in turn where several have. Hardware does not tell
    /// which channel it runs.
    pub fn sample(&mut self, vram: &Vram) -> Vec<(Engine, Option<HostChannel>)> {
        self.turn = self.turn.wrapping_add(1);
        let engines = [Engine::Graphics, Engine::COPY1, Engine::COPY2];
        let busy = |engine: Engine| -> Vec<HostChannel> {
            self.slots
                .iter()
                .filter(|(_, slot)| {
                    slot.run == Run::Running && self.engines.runlist(slot.engines) == Some(engine)
                })
                .filter(|(_, slot)| {
                    userd_word(vram, slot.userd, USERD_GP_GET) != userd_word(vram, slot.userd, USERD_GP_PUT)
                })
                .map(|(number, _)| *number)
                .collect()
        };
        engines
            .into_iter()
            .map(|engine| {
                let busy = busy(engine);
                let index = self.turn.checked_rem(busy.len()).unwrap_or(0);
                (engine, busy.get(index).copied())
            })
            .collect()
    }

    /// Channels that an error stopped since the last call.
    pub fn errors(&mut self) -> Vec<ChannelStop<HostChannel>> {
        let mut errors = Vec::new();
        for (number, slot) in &mut self.slots {
            if slot.stopped {
                continue;
            }
            if let Some(code) = slot.channel.error() {
                slot.stopped = true;
                errors.push(ChannelStop { channel: *number, cause: StopCause::Manager(code) });
            }
        }
        errors
    }
}

fn userd_word(vram: &Vram, userd: HostVram, offset: u64) -> u32 {
    vram.locate(userd, USERD_SIZE)
        .and_then(|(partition, at)| partition.read_u32(at.saturating_add(offset)))
        .unwrap_or(0)
}

fn set_disabled(device: &Device, channels: &[(HostChannel, Handle)], disable: bool) -> Result<(), RmError> {
    let mut params = DisableChannels {
        disable: u8::from(disable),
        count: u32::try_from(channels.len()).unwrap_or(0),
        ..Default::default()
    };
    let slots = params.clients.iter_mut().zip(&mut params.channels);
    for ((client, channel), (_, handle)) in slots.zip(channels) {
        *client = device.client.root();
        *channel = *handle;
    }
    device.client.control(device.subdevice, &mut params)
}

fn no_such(channel: HostChannel) -> GpuError {
    GpuError::NoSuch { what: "channel", id: channel.0.into() }
}
