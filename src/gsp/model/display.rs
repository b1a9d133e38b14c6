//! The display engine behind firmware: what a driver sets up of it by messages, and the way to the engine
//! itself, which is a unit of the register face.

use std::sync::Arc;

use crate::abi::status::Status;
use crate::abi::values::{ChannelPush, DisplayChannel, DisplayChannelParameters, InstanceMemory, Monitor};
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::display::memory::INSTANCE_BYTES;
use gpuvmk_chip::display::push::BYTES;
use gpuvmk_chip::display::{ChannelName, HEADS, WINDOWS};
use gpuvmk_ordered::OrderedMap;

use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use super::config::GspConfig;

/// The display engine of a function that has heads. Firmware calls it before it answers the driver; none of
/// these waits or calls back.
pub trait DisplayEngine: std::fmt::Debug + Send + Sync {
    /// What describes the monitor (EDID); none while none is plugged in.
    fn edid(&self) -> Option<Vec<u8>>;

    /// Where the objects of channels are; none: nowhere.
    fn set_instance_memory(&self, memory: Option<InstanceMemory>);

    /// What [`Self::set_instance_memory`] set last.
    fn instance_memory(&self) -> Option<InstanceMemory>;

    /// A driver has a channel. Methods of an earlier one of that name are forgotten.
    fn open(&self, channel: DisplayChannel);

    /// It has it no more.
    fn close(&self, channel: ChannelName);
}

/// What firmware knows of the display engine.
#[derive(Debug, Default)]
pub(super) struct Display {
    engine: Option<Arc<dyn DisplayEngine>>,
    /// Where push buffers are of channels that are to be made.
    buffers: OrderedMap<ChannelName, Option<PhysicalAddress>>,
}

/// Where the push buffer is of a display channel that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisplayBufferState {
    /// The channel.
    pub name: ChannelName,
    /// Its push buffer; none: it has none.
    pub buffer: Option<PhysicalAddress>,
}

/// A mask of so many.
const fn mask(count: usize) -> u32 {
    (1 << count) - 1
}

/// Windows, a bit each.
pub(super) const ALL_WINDOWS: u32 = mask(WINDOWS);
/// Heads, a bit each.
pub(super) const ALL_HEADS: u32 = mask(HEADS);
/// How many heads there are.
pub(super) const HEAD_COUNT: u32 = ALL_HEADS.count_ones();

impl Display {
    /// The engine.
    pub(super) fn set_engine(&mut self, engine: Arc<dyn DisplayEngine>) {
        self.engine = Some(engine);
    }

    /// Where push buffers are, to save.
    pub(super) fn buffers(&self) -> Vec<DisplayBufferState> {
        let state = |(name, buffer): (&ChannelName, &_)| DisplayBufferState { name: *name, buffer: *buffer };
        self.buffers.iter().map(state).collect()
    }

    /// Without an engine, and with push buffers of a saved state.
    pub(super) fn of_buffers(state: &[DisplayBufferState]) -> Result<Self, StateError> {
        let buffers: OrderedMap<_, _> = state.iter().map(|one| (one.name, one.buffer)).collect();
        let are_whole = state.iter().all(|one| {
            let DisplayBufferState { name, buffer } = *one;
            let is_there = ChannelName::new(name.kind, name.instance) == Some(name);
            is_there && buffer.is_none_or(|at| at.address.is_multiple_of(BYTES as u64))
        });
        Check("display").that(are_whole && buffers.len() == state.len(), || {
            format!("there are push buffers of {state:?}")
        })?;
        Ok(Self { engine: None, buffers })
    }

    /// Its output, which is head 0's, and the monitor there.
    pub(super) fn monitor(&self) -> Monitor {
        Monitor { outputs: 1, edid: self.engine.as_ref().and_then(|engine| engine.edid()) }
    }

    /// Where channels' objects are.
    pub(super) fn instance_memory(&self) -> Option<InstanceMemory> {
        self.engine.as_ref().and_then(|engine| engine.instance_memory())
    }

    /// Notes where channels' objects are.
    pub(super) fn set_instance_memory(
        &self,
        config: &GspConfig,
        memory: Option<InstanceMemory>,
    ) -> Result<(), Status> {
        let memory = memory.ok_or(Status::InvalidArgument)?;
        let (least, most) = INSTANCE_BYTES;
        let end = memory.address.checked_add(memory.size);
        if !(least..=most).contains(&memory.size) || end.is_none_or(|end| end > config.vram) {
            return Err(Status::InvalidAddress);
        }
        self.engine()?.set_instance_memory(Some(memory));
        Ok(())
    }

    /// Notes where the push buffer is of a channel that is to be made.
    pub(super) fn set_buffer(&mut self, config: &GspConfig, push: ChannelPush) -> Result<(), Status> {
        let name = name(config, push.class, push.instance)?;
        // CAST: widening.
        let size = BYTES as u64;
        let buffer = match push.buffer {
            // Each word is read where it is, but a buffer never reaches into the next.
            Some((at, limit)) if limit.checked_add(1) == Some(size) && at.address.is_multiple_of(size) => {
                Some(at)
            }
            Some(_) => return Err(Status::InvalidLimit),
            None => None,
        };
        self.buffers.insert(name, buffer);
        Ok(())
    }

    /// Makes a channel of a class.
    pub(super) fn open(
        &mut self,
        config: &GspConfig,
        class: u32,
        parameters: DisplayChannelParameters,
    ) -> Result<ChannelName, Status> {
        let name = name(config, class, parameters.instance)?;
        let buffer = *self.buffers.get(&name).ok_or(Status::InvalidState)?;
        let channel = DisplayChannel { name, buffer, offset: parameters.offset };
        // CAST: widening.
        if !channel.is_whole() || !channel.offset.is_multiple_of(4) || channel.offset as usize >= BYTES {
            return Err(Status::InvalidArgument);
        }
        self.engine()?.open(channel);
        self.buffers.remove(&name);
        Ok(name)
    }

    /// A channel goes.
    pub(super) fn close(&self, name: ChannelName) {
        if let Some(engine) = &self.engine {
            engine.close(name);
        }
    }

    /// Forgets what a driver has said.
    pub(super) fn clear(&mut self) {
        self.buffers.clear();
        if let Some(engine) = &self.engine {
            engine.set_instance_memory(None);
        }
    }

    fn engine(&self) -> Result<&dyn DisplayEngine, Status> {
        self.engine.as_deref().ok_or(Status::NotSupported)
    }
}

/// The channel of a class, if the chip has it.
fn name(config: &GspConfig, class: u32, instance: u32) -> Result<ChannelName, Status> {
    let heads = config.heads().ok_or(Status::NotSupported)?;
    let kind = heads.channel(class).ok_or(Status::InvalidClass)?;
    ChannelName::new(kind, instance).ok_or(Status::InvalidArgument)
}
