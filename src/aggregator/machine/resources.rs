//! The physical GPU's free resources: VRAM, channels, bus addresses.

use crate::bus_space::BusSpace;
use crate::partition::{Partition, VramAllocator};
use gpuvmk_gpu::GpuInfo;

/// A partition's part of the memory in percent, at least one.
pub(super) fn partition_percent(size: u64, all: u64) -> u8 {
    let percent = u128::from(size).saturating_mul(100).checked_div(all.into()).unwrap_or(0);
    u8::try_from(percent.clamp(1, 100)).unwrap_or(100)
}

/// The free resources.
#[derive(Debug)]
pub(super) struct Resources {
    pub vram: VramAllocator,
    /// Free bus addresses.
    pub buses: BusSpace,
    channels: u16,
}

impl Resources {
    pub fn new(info: &GpuInfo) -> Self {
        let largest_page = info.page_shifts.iter().copied().max().unwrap_or(0);
        Self {
            vram: VramAllocator::new(info.tenant_vram, info.tenant_vram_size, info.partition_granule),
            buses: BusSpace::new(info.first_iova, info.system_bits, largest_page),
            channels: info.channels,
        }
    }

    /// Number of free channels.
    pub const fn channels_left(&self) -> u16 {
        self.channels
    }

    /// Takes a partition of so many bytes and so many channels, which must be left.
    pub fn take(&mut self, vram: u64, channels: u16) -> Option<Partition> {
        let partition = self.vram.take(vram)?;
        self.channels = self.channels.saturating_sub(channels);
        Some(partition)
    }

    /// Both are free again.
    pub fn give_back(&mut self, partition: Partition, channels: u16) {
        self.vram.give_back(partition);
        self.channels = self.channels.saturating_add(channels);
    }
}
