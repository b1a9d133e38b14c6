//! A channel of the host's own: its ring and its USERD lie in memory that the driver lends.

use super::{ChannelSpec, GpuDriver, GpuDriverExt as _, GpuError, OwnMemory, SpaceHandle};
use gpuvmk_chip::addr::{GpuVa, HostChannel, HostVram};
use gpuvmk_chip::gf100::ramin::USERD_GP_PUT;
use gpuvmk_chip::stream::{GPFIFO_ENTRY_SIZE, RingEntry};
use gpuvmk_chip::{Engine, EngineSet};

/// Where a channel's parts are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The lent memory.
    pub(super) own: HostVram,
    /// Where the channel's address space shows it.
    pub(super) va: u64,
    /// USERD's offset in it.
    pub(super) userd: u64,
    /// Offset of the ring.
    pub(super) ring: u64,
    /// log2 of the ring's entries.
    pub(super) ring_log2: u8,
}

impl Place {
    /// An offset's place in memory.
    pub(super) fn at(&self, offset: u64) -> HostVram {
        HostVram(self.own.0.saturating_add(offset))
    }

    /// An offset's virtual address.
    pub(super) fn va(&self, offset: u64) -> u64 {
        self.va.saturating_add(offset)
    }
}

/// A channel of the host's own.
#[derive(Debug)]
pub(super) struct OwnChannel {
    place: Place,
    channel: HostChannel,
    put: u32,
}

/// Memory for such channels.
///
/// # Errors
/// The driver lends none.
pub(super) fn memory(driver: &mut dyn GpuDriver) -> Result<&mut dyn OwnMemory, GpuError> {
    driver.own_memory().ok_or(GpuError::Exhausted { what: "memory for the host's own channels", limit: 0 })
}

impl OwnChannel {
    /// A channel on `engine` with an object of `class`, enabled and on no runlist.
    ///
    /// # Errors
    /// The GPU refuses; there is no channel then.
    pub(super) fn new(
        driver: &mut dyn GpuDriver,
        place: Place,
        space: SpaceHandle,
        (engine, class): (Engine, u16),
    ) -> Result<Self, GpuError> {
        let channel = driver.create_channel(ChannelSpec {
            context_of: None,
            space,
            gpfifo: GpuVa(place.va(place.ring)),
            gpfifo_entries_log2: place.ring_log2,
            userd: place.at(place.userd),
            engines: EngineSet::from(engine),
        })?;
        let made = match driver.create_object(channel, class.into(), engine) {
            // Where commands bind classes by themselves, there is no object.
            Ok(()) | Err(GpuError::NoClass { .. }) => driver.enable_channel(channel, true),
            Err(error) => Err(error),
        };
        if let Err(error) = made {
            driver.destroy_channel(channel)?;
            return Err(error);
        }
        Ok(Self { place, channel, put: 0 })
    }

    /// The host channel's number.
    pub(super) fn channel(&self) -> HostChannel {
        self.channel
    }

    /// Writes commands to an offset of the memory, and rings the doorbell. At most as many as the ring holds
    /// may be pending; others are lost.
    ///
    /// # Errors
    /// The memory or the GPU is gone.
    pub(super) fn submit(
        &mut self,
        driver: &mut dyn GpuDriver,
        commands: u64,
        words: &[u32],
    ) -> Result<(), GpuError> {
        let Place { userd, ring, ring_log2, .. } = self.place;
        let count = u32::try_from(words.len()).unwrap_or(0);
        let entry = RingEntry::segment(self.place.va(commands), count);
        let slot = self.place.at(ring.saturating_add(u64::from(self.put).saturating_mul(GPFIFO_ENTRY_SIZE)));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put = self.put.wrapping_add(1) & (1_u32.checked_shl(ring_log2.into()).unwrap_or(1) - 1);
        let memory = memory(driver)?;
        memory.write(self.place.at(commands), &bytes)?;
        memory.write(slot, &entry.to_le_bytes())?;
        memory.write(self.place.at(userd.saturating_add(USERD_GP_PUT)), &self.put.to_le_bytes())?;
        driver.doorbell(self.channel)
    }

    /// Takes it away.
    ///
    /// # Errors
    /// The GPU refuses.
    pub(super) fn destroy(self, driver: &mut dyn GpuDriver) -> Result<(), GpuError> {
        driver.destroy_channel(self.channel)
    }
}
