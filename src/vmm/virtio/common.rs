//! A device's common configuration: what its driver agrees with it, and where its queue lies (virtio 1.2,
//! 4.1.4.3). A pure model.

use std::mem::offset_of;

use bitflags::bitflags;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of the structure.
pub(super) const SIZE: usize = size_of::<Registers>();
/// Most entries of a queue.
pub(super) const MAX_QUEUE_SIZE: u16 = 256;
/// "No vector": messages (MSI-X) are not offered.
const NO_VECTOR: u16 = 0xffff;
/// Queues of a device.
const QUEUES: u16 = 1;

bitflags! {
    /// Device status (virtio 1.2, 2.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub(super) struct Status: u8 {
        /// The driver has seen the device.
        const ACKNOWLEDGE = 1 << 0;
        /// It can drive it.
        const DRIVER = 1 << 1;
        /// It has set everything up.
        const DRIVER_OK = 1 << 2;
        /// Both agree on features.
        const FEATURES_OK = 1 << 3;
        /// The device cannot go on until it is reset.
        const NEEDS_RESET = 1 << 6;
        /// The driver has given up.
        const FAILED = 1 << 7;
    }
}

/// The structure as the driver sees it (`virtio_pci_common_cfg`).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
struct Registers {
    device_feature_select: U32,
    device_feature: U32,
    driver_feature_select: U32,
    driver_feature: U32,
    config_msix_vector: U16,
    num_queues: U16,
    device_status: u8,
    config_generation: u8,
    queue_select: U16,
    queue_size: U16,
    queue_msix_vector: U16,
    queue_enable: U16,
    queue_notify_off: U16,
    queue_desc: U64,
    queue_driver: U64,
    queue_device: U64,
}

/// Where the driver has put the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuePlace {
    /// Number of entries.
    pub(super) size: u16,
    /// The driver wants it to be used.
    pub(super) enabled: bool,
    /// Bus address of the descriptor table.
    pub(super) descriptors: u64,
    /// Of the available ring.
    pub(super) available: u64,
    /// Of the used ring.
    pub(super) used: u64,
}

const UNSET: QueuePlace =
    QueuePlace { size: MAX_QUEUE_SIZE, enabled: false, descriptors: 0, available: 0, used: 0 };

/// Effect of a write on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Effect {
    /// The write has no effect beyond the registers.
    None,
    /// Begin to serve the queue.
    Start,
    /// Leave the queue alone and be as new.
    Reset,
}

/// State of the negotiation between driver and device.
#[derive(Clone, Debug)]
pub(super) struct Common {
    offered: u64,
    accepted: u64,
    offered_select: u32,
    accepted_select: u32,
    status: Status,
    queue_select: u16,
    queue: QueuePlace,
}

impl Common {
    /// Of a device with these features beside those that every one has.
    pub(super) fn new(features: u64) -> Self {
        Self {
            offered: features | 1 << VIRTIO_F_VERSION_1,
            accepted: 0,
            offered_select: 0,
            accepted_select: 0,
            status: Status::empty(),
            queue_select: 0,
            queue: UNSET,
        }
    }

    /// True for a feature that the driver has accepted.
    pub(super) const fn has(&self, feature: u32) -> bool {
        self.accepted >> feature & 1 != 0
    }

    /// The place of the queue.
    pub(super) const fn queue(&self) -> QueuePlace {
        self.queue
    }

    /// Notes that the device cannot go on. True when the driver uses it and must be notified.
    pub(super) fn needs_reset(&mut self) -> bool {
        // One that has reset it meanwhile finds it as new.
        let tell = self.status.contains(Status::DRIVER_OK) && !self.status.contains(Status::NEEDS_RESET);
        if tell {
            self.status |= Status::NEEDS_RESET;
        }
        tell
    }

    /// Resets the device.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.offered);
    }

    /// Reads; what lies behind the structure is 0.
    pub(super) fn read(&self, offset: u64, data: &mut [u8]) {
        let registers = self.registers();
        let bytes = registers.as_bytes();
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        for (byte, index) in data.iter_mut().zip(at..) {
            *byte = bytes.get(index).copied().unwrap_or(0);
        }
    }

    /// Writes; read-only fields keep their value, and what lies behind the structure is lost.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Effect {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut bytes = [0; SIZE];
        bytes.copy_from_slice(self.registers().as_bytes());
        for (byte, place) in data.iter().zip(bytes.iter_mut().skip(at)) {
            *place = *byte;
        }
        let Ok(written) = Registers::read_from_bytes(&bytes) else { return Effect::None };
        let end = at.saturating_add(data.len());
        let touched = |field: usize, size: usize| at < field + size && field < end;
        self.offered_select = written.device_feature_select.get();
        self.accepted_select = written.driver_feature_select.get();
        if touched(offset_of!(Registers, driver_feature), 4) {
            self.accept(written.driver_feature.get());
        }
        self.set_queue(&written);
        // Last: what was written with it counts for the queue that was selected before.
        self.queue_select = written.queue_select.get();
        if touched(offset_of!(Registers, device_status), 1) {
            return self.set_status(written.device_status);
        }
        Effect::None
    }

    fn accept(&mut self, half: u32) {
        if self.status.contains(Status::FEATURES_OK) {
            return;
        }
        let half = u64::from(half);
        match self.accepted_select {
            0 => self.accepted = self.accepted & !0xffff_ffff | half,
            1 => self.accepted = self.accepted & 0xffff_ffff | half << 32,
            _ => {}
        }
    }

    /// A queue that is in use stays where it is.
    fn set_queue(&mut self, written: &Registers) {
        if self.queue_select >= QUEUES || self.queue.enabled {
            return;
        }
        let size = written.queue_size.get();
        self.queue = QueuePlace {
            size: if size.is_power_of_two() && size <= MAX_QUEUE_SIZE { size } else { self.queue.size },
            enabled: written.queue_enable.get() == 1,
            descriptors: written.queue_desc.get(),
            available: written.queue_driver.get(),
            used: written.queue_device.get(),
        };
    }

    fn set_status(&mut self, written: u8) -> Effect {
        if written == 0 {
            self.reset();
            return Effect::Reset;
        }
        let mut new = Status::from_bits_truncate(written) - Status::NEEDS_RESET - self.status;
        let understood = self.accepted & !self.offered == 0 && self.has(VIRTIO_F_VERSION_1);
        if !understood {
            new -= Status::FEATURES_OK;
        }
        if !(self.status | new).contains(Status::FEATURES_OK) {
            new -= Status::DRIVER_OK;
        }
        self.status |= new;
        if new.contains(Status::DRIVER_OK) { Effect::Start } else { Effect::None }
    }

    fn registers(&self) -> Registers {
        let half = |features: u64, select: u32| match select {
            0 => low(features),
            1 => low(features >> 32),
            _ => 0,
        };
        let queue = if self.queue_select < QUEUES { self.queue } else { QueuePlace { size: 0, ..UNSET } };
        Registers {
            device_feature_select: self.offered_select.into(),
            device_feature: half(self.offered, self.offered_select).into(),
            driver_feature_select: self.accepted_select.into(),
            driver_feature: half(self.accepted, self.accepted_select).into(),
            config_msix_vector: NO_VECTOR.into(),
            num_queues: QUEUES.into(),
            device_status: self.status.bits(),
            // The device's own configuration never changes.
            config_generation: 0,
            queue_select: self.queue_select.into(),
            queue_size: queue.size.into(),
            queue_msix_vector: NO_VECTOR.into(),
            queue_enable: u16::from(queue.enabled).into(),
            queue_notify_off: 0.into(),
            queue_desc: queue.descriptors.into(),
            queue_driver: queue.available.into(),
            queue_device: queue.used.into(),
        }
    }
}

/// The lower half.
const fn low(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEATURE: u32 = 9;

    fn agreed(common: &mut Common, low_half: u32, high_half: u32) -> Status {
        for (select, half) in [(0u32, low_half), (1, high_half)] {
            assert_eq!(common.write(8, &select.to_le_bytes()), Effect::None);
            assert_eq!(common.write(12, &half.to_le_bytes()), Effect::None);
        }
        assert_eq!(common.write(20, &[0b1011]), Effect::None);
        common.status
    }

    #[test]
    fn driver_sees_features_by_halves_and_starts_with_those_it_was_offered() {
        let mut common = Common::new(1 << FEATURE);
        let mut half = [0; 4];
        common.read(4, &mut half);
        assert_eq!(u32::from_le_bytes(half), 1 << FEATURE);
        let _ = common.write(0, &1u32.to_le_bytes());
        common.read(4, &mut half);
        assert_eq!(u32::from_le_bytes(half), 1);
        let _ = common.write(0, &2u32.to_le_bytes());
        common.read(4, &mut half);
        assert_eq!(u32::from_le_bytes(half), 0);
        // One that was not offered, and a driver of before version 1.
        assert!(!agreed(&mut common.clone(), 1 << 3, 1).contains(Status::FEATURES_OK));
        assert!(!agreed(&mut common.clone(), 1 << FEATURE, 0).contains(Status::FEATURES_OK));
        assert_eq!(common.clone().write(20, &[0b111]), Effect::None, "not without an agreement");
        assert!(agreed(&mut common, 1 << FEATURE, 1).contains(Status::FEATURES_OK));
        assert_eq!(common.write(20, &[0b1111]), Effect::Start);
        assert_eq!(common.write(20, &[0b1111]), Effect::None);
        // What was agreed stays.
        let _ = common.write(8, &0u32.to_le_bytes());
        let _ = common.write(12, &0u32.to_le_bytes());
        assert!(common.has(FEATURE));
        assert!(common.needs_reset() && !common.needs_reset());
        let _ = common.write(20, &[0b1111]);
        assert!(common.status.contains(Status::NEEDS_RESET));
        assert_eq!(common.write(20, &[0]), Effect::Reset);
        assert_eq!((common.status, common.has(FEATURE)), (Status::empty(), false));
    }

    #[test]
    fn queue_is_set_up_by_words_or_wider_and_then_stays() {
        let mut common = Common::new(0);
        let _ = common.write(24, &64u16.to_le_bytes());
        let _ = common.write(24, &65u16.to_le_bytes());
        let _ = common.write(24, &512u16.to_le_bytes());
        let _ = common.write(32, &0x1_2345_6000u64.to_le_bytes());
        let _ = common.write(40, &0x7000u32.to_le_bytes());
        let _ = common.write(44, &1u32.to_le_bytes());
        let _ = common.write(48, &0x8000u64.to_le_bytes());
        let _ = common.write(28, &1u16.to_le_bytes());
        let _ = common.write(32, &[0; 8]);
        let set = QueuePlace {
            size: 64,
            enabled: true,
            descriptors: 0x1_2345_6000,
            available: 0x1_0000_7000,
            used: 0x8000,
        };
        assert_eq!(common.queue(), set);
        // There is no second one.
        let _ = common.write(22, &1u16.to_le_bytes());
        let mut size = [0xff; 2];
        common.read(24, &mut size);
        assert_eq!(size, [0, 0]);
        let _ = common.write(24, &8u16.to_le_bytes());
        assert_eq!(common.queue(), set);
        // Nothing lies behind it.
        let mut behind = [0xff; 8];
        common.read(SIZE as u64, &mut behind);
        assert_eq!(behind, [0; 8]);
        let _ = common.write(u64::MAX, &[1]);
        assert_eq!(SIZE, 56);
    }
}
