//! Channels of the executor: numbers, and their instance blocks and context images in VRAM that no tenant
//! gets.
//!
//! A channel on the graphics runlist has graphics behind subchannels 0 to 3 and copy engine 0 behind 4; a
//! copy channel has its engine behind 0 to 4. Behind 5 to 7 is no hardware.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::Preemption;
use crate::chip::GH100;
use crate::class::{turing_copy, turing_graphics};
use crate::core::Core;
use crate::engine::context::{SETUP_POINTER, context_pointer};
use crate::events::driver_number;
use crate::fifo::ramfc::{compose, engine_number};
use gpuvmk_backend::{Backend, EngineBackend};
use gpuvmk_chip::addr::{HostChannel, HostVram};
use gpuvmk_chip::gf100::engines::SOFTWARE_NUMBER;
use gpuvmk_chip::gf100::ramin::{INSTANCE_SIZE, PAGE_DIRECTORY_LO, RAMFC_ENGINES, VA_LIMIT_LO};
use gpuvmk_chip::gh100::methods::{SUBCHANNEL_COPY, SUBCHANNEL_SOFTWARE, class_engines};
use gpuvmk_chip::gh100::userd::{USERD_GP_GET, USERD_SIZE};
use gpuvmk_chip::stream::GPFIFO_ENTRY_SIZE;
use gpuvmk_chip::{Aperture, Engine, EngineSet, PhysicalAddress};
use gpuvmk_gpu::{ChannelSpec, GpuError, SpaceHandle};

use super::spaces::directory;

/// The first channel number that is handed out.
const FIRST: u16 = 1;

/// Ring addresses are below this.
const RING_LIMIT: u64 = 1 << 40;

/// Largest ring: 2 to this entries.
const MAX_RING_LOG2: u8 = 24;

const COPY_ENGINES: u64 = 3;
/// A channel's host memory: its instance block, and an image for every engine.
const SLOT_SIZE: u64 = INSTANCE_SIZE + turing_graphics::IMAGE_SIZE + COPY_ENGINES * turing_copy::IMAGE_SIZE;

/// Bytes of VRAM that channels take, from address 0 on.
pub(super) const HOST_VRAM: u64 = SLOT_SIZE * (GH100.channels as u64 + 1);

/// Number of channels that are handed out.
pub(super) const USABLE: u16 = GH100.channels - FIRST;

#[derive(Debug)]
struct Channel {
    space: SpaceHandle,
    userd: HostVram,
    engines: EngineSet,
    /// The channel, perhaps a former one, in whose host memory its launch setup is.
    context: HostChannel,
    enabled: bool,
    objects: BTreeSet<u32>,
}

/// All channels.
#[derive(Debug, Default)]
pub(super) struct Channels {
    channels: BTreeMap<HostChannel, Channel>,
    /// The channels, former ones too, that have the launch setup of some, and of how many.
    contexts: BTreeMap<HostChannel, u32>,
    runlist: Vec<HostChannel>,
}

fn no_such(channel: HostChannel) -> GpuError {
    GpuError::NoSuch { what: "channel", id: channel.0.into() }
}

/// Where a channel's host memory begins.
fn slot(channel: HostChannel) -> u64 {
    SLOT_SIZE * u64::from(channel.0)
}

/// Where an engine's image is in a channel's host memory, by its place among the chip's engines, of which
/// graphics is the first.
fn image(place: u64) -> u64 {
    place.checked_sub(1).map_or(INSTANCE_SIZE, |before| {
        let before = before.saturating_mul(turing_copy::IMAGE_SIZE);
        INSTANCE_SIZE.saturating_add(turing_graphics::IMAGE_SIZE).saturating_add(before)
    })
}

/// The engine behind each subchannel.
fn routing(engines: EngineSet) -> Result<[u8; 8], GpuError> {
    let refused = || {
        GpuError::Invalid(format!(
            "No runlist serves {engines:?}: graphics with copy engine 0, or one copy engine, of {:?}",
            GH100.engines()
        ))
    };
    let mut primary = engines.engines();
    let first = primary.next().ok_or_else(refused)?;
    let second = primary.next();
    let serves = match (first, second) {
        (Engine::Graphics, None | Some(Engine::COPY0)) | (Engine::Copy(_), None) => {
            GH100.engines().contains(first.into())
        }
        _ => false,
    };
    if !serves || primary.next().is_some() {
        return Err(refused());
    }
    let mut numbers = [SOFTWARE_NUMBER; 8];
    for (subchannel, number) in (0..SUBCHANNEL_SOFTWARE).zip(&mut numbers) {
        *number = match (first, second) {
            (Engine::Graphics, second) if subchannel == SUBCHANNEL_COPY => second.and_then(engine_number),
            _ => engine_number(first),
        }
        .unwrap_or(SOFTWARE_NUMBER);
    }
    Ok(numbers)
}

fn write(core: &Core, address: u64, data: &[u8]) -> Result<(), GpuError> {
    let target = PhysicalAddress { aperture: Aperture::Vram, address };
    core.write_memory(target, data).map_err(|missed| GpuError::Invalid(missed.to_string()))
}

fn zero(core: &Core, address: u64, size: u64) -> Result<(), GpuError> {
    Ok(core.system().memory.vram.zero(address, size)?)
}

/// Makes a channel's host memory: an instance block, and contexts as after power-on.
fn write_instance(
    core: &Core,
    channel: HostChannel,
    spec: &ChannelSpec,
    routing: [u8; 8],
) -> Result<(), GpuError> {
    let start = slot(channel);
    zero(core, start, SLOT_SIZE)?;
    let ramfc = compose(spec.userd.0, spec.gpfifo.0, spec.gpfifo_entries_log2, routing);
    write(core, start, &ramfc)?;
    let pointers = [(PAGE_DIRECTORY_LO, directory(spec.space).address), (VA_LIMIT_LO, GH100.masks.va_max)];
    for (offset, value) in pointers {
        write(core, start.saturating_add(offset), &value.to_le_bytes())?;
    }
    for (number, row) in (0..).zip(GH100.engines) {
        let Some(pointer) = context_pointer(row.engine) else { continue };
        let place = start.saturating_add(image(number));
        let model = (row.model)();
        write(core, place.saturating_add(model.image_offset()), &model.save())?;
        write(core, start.saturating_add(pointer), &place.to_le_bytes())?;
    }
    Ok(())
}

/// Has a channel's graphics image name that of another channel for the launch setup.
fn share_setup(core: &Core, channel: HostChannel, with: HostChannel) -> Result<(), GpuError> {
    let graphics = GH100.engines.iter().position(|row| row.engine == Engine::Graphics);
    let place = image(graphics.map_or(0, |place| place as u64));
    let target = slot(channel).saturating_add(place).saturating_add(SETUP_POINTER);
    write(core, target, &slot(with).saturating_add(place).to_le_bytes())
}

impl Channels {
    fn get(&self, channel: HostChannel) -> Result<&Channel, GpuError> {
        self.channels.get(&channel).ok_or_else(|| no_such(channel))
    }

    /// True while a channel of this number is there, or others have their launch setup in its memory.
    fn is_in_use(&self, channel: HostChannel) -> bool {
        self.channels.contains_key(&channel) || self.contexts.contains_key(&channel)
    }

    /// Where the launch setup of a channel is with which a new one shares it.
    fn context_of(&self, other: HostChannel, spec: &ChannelSpec) -> Result<HostChannel, GpuError> {
        let known = self.get(other)?;
        let with_graphics = |engines: EngineSet| engines.contains(Engine::Graphics.into());
        if !with_graphics(known.engines) || !with_graphics(spec.engines) {
            return Err(GpuError::Invalid(format!("Channel {} has no graphics context to share", other.0)));
        }
        Ok(known.context)
    }

    pub(super) fn any_in(&self, space: SpaceHandle) -> bool {
        self.channels.values().any(|channel| channel.space == space)
    }

    /// A new channel. Its USERD is cleared, as a GPU's manager does it.
    pub(super) fn create(&mut self, core: &Core, spec: &ChannelSpec) -> Result<HostChannel, GpuError> {
        let ChannelSpec { gpfifo, gpfifo_entries_log2, userd, engines, .. } = *spec;
        let in_reach = gpfifo.is_aligned(GPFIFO_ENTRY_SIZE)
            && gpfifo.0 < RING_LIMIT
            && gpfifo_entries_log2 <= MAX_RING_LOG2
            && userd.is_aligned(USERD_SIZE)
            && HOST_VRAM <= userd.0
            && userd.0.checked_add(USERD_SIZE).is_some_and(|end| end <= core.vram_size());
        if !in_reach {
            return Err(GpuError::Invalid(format!("Ring and USERD of a channel cannot be {spec:?}")));
        }
        let routing = routing(engines)?;
        let channel = (FIRST..GH100.channels)
            .map(HostChannel)
            .find(|channel| !self.is_in_use(*channel))
            .ok_or(GpuError::Exhausted { what: "channels", limit: USABLE.into() })?;
        let context = match spec.context_of {
            None => channel,
            Some(other) => self.context_of(other, spec)?,
        };
        write_instance(core, channel, spec, routing)?;
        if context != channel {
            share_setup(core, channel, context)?;
        }
        zero(core, userd.0, USERD_SIZE)?;
        core.enable_channel(driver_number(channel), false);
        let instance = PhysicalAddress { aperture: Aperture::Vram, address: slot(channel) };
        core.bind_channel(driver_number(channel), Some(instance));
        let objects = BTreeSet::new();
        let new = Channel { space: spec.space, userd, engines, context, enabled: false, objects };
        self.channels.insert(channel, new);
        let users = self.contexts.entry(context).or_default();
        *users = users.saturating_add(1);
        Ok(channel)
    }

    pub(super) fn set_engines(
        &mut self,
        core: &Core,
        channel: HostChannel,
        engines: EngineSet,
    ) -> Result<(), GpuError> {
        let known = self.channels.get_mut(&channel).ok_or_else(|| no_such(channel))?;
        if known.engines == engines {
            return Ok(());
        }
        let routing = routing(engines)?;
        if known.enabled {
            return Err(GpuError::Invalid(format!("Channel {} is enabled", channel.0)));
        }
        if core.preemption() == Preemption::Methods && core.worker(channel).is_some() {
            return Err(GpuError::Timeout { what: "a method of a disabled channel", millis: 0 });
        }
        core.settle(channel);
        write(core, slot(channel).saturating_add(RAMFC_ENGINES), &routing)?;
        known.engines = engines;
        Ok(())
    }

    pub(super) fn create_object(
        &mut self,
        channel: HostChannel,
        class: u32,
        engine: Engine,
    ) -> Result<(), GpuError> {
        let known = self.channels.get_mut(&channel).ok_or_else(|| no_such(channel))?;
        if !(class_engines(class) & known.engines).contains(engine.into())
            || !GH100.engines().contains(engine.into())
        {
            return Err(GpuError::NoClass { class, engine });
        }
        known.objects.insert(class);
        Ok(())
    }

    pub(super) fn destroy(&mut self, core: &Core, channel: HostChannel) -> Result<(), GpuError> {
        let gone = self.channels.remove(&channel).ok_or_else(|| no_such(channel))?;
        self.runlist.retain(|listed| *listed != channel);
        core.enable_channel(driver_number(channel), false);
        core.set_runlist(self.runlist.iter().copied());
        // Waits until it is off; a copy under way ends within some tens of KiB.
        core.bind_channel(driver_number(channel), None);
        if let Entry::Occupied(mut users) = self.contexts.entry(gone.context) {
            match users.get().saturating_sub(1) {
                0 => drop(users.remove()),
                left => *users.get_mut() = left,
            }
        }
        Ok(())
    }

    pub(super) fn enable(
        &mut self,
        core: &Core,
        channel: HostChannel,
        enabled: bool,
    ) -> Result<(), GpuError> {
        let known = self.channels.get_mut(&channel).ok_or_else(|| no_such(channel))?;
        known.enabled = enabled;
        core.enable_channel(driver_number(channel), enabled);
        Ok(())
    }

    pub(super) fn commit_runlist(&mut self, core: &Core, channels: &[HostChannel]) -> Result<(), GpuError> {
        for channel in channels {
            self.get(*channel)?;
        }
        self.runlist = channels.to_vec();
        core.set_runlist(channels.iter().copied());
        Ok(())
    }

    pub(super) fn preempt(&self, core: &Core, channel: HostChannel) -> Result<(), GpuError> {
        self.get(channel)?;
        core.preempt_channel(driver_number(channel));
        Ok(())
    }

    /// New work.
    pub(super) fn doorbell(&self, core: &Core, channel: HostChannel) -> Result<(), GpuError> {
        self.get(channel)?;
        core.ring(channel);
        Ok(())
    }

    pub(super) fn progress(&self, core: &Core, channel: HostChannel) -> Result<u32, GpuError> {
        self.read_userd(core, channel, USERD_GP_GET)
    }

    fn read_userd(&self, core: &Core, channel: HostChannel, offset: u64) -> Result<u32, GpuError> {
        let userd = self.get(channel)?.userd;
        let mut word = [0; 4];
        let target = PhysicalAddress { aperture: Aperture::Vram, address: userd.0.saturating_add(offset) };
        core.read_memory(target, &mut word).map_err(|missed| GpuError::Invalid(missed.to_string()))?;
        Ok(u32::from_le_bytes(word))
    }
}
