//! A device's common configuration: what its driver agrees with it, and where its queues lie (virtio 1.2,
//! 4.1.4.3). A pure model.

use std::mem::offset_of;

use bitflags::bitflags;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of the structure.
pub(super) const SIZE: usize = size_of::<Registers>();
/// "No vector": there is no message for it.
pub(super) const NO_VECTOR: u16 = 0xffff;

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

/// Where the driver has put a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePlace {
    /// Number of entries.
    pub(crate) size: u16,
    /// The driver wants it to be used.
    pub(crate) enabled: bool,
    /// Bus address of the descriptor table.
    pub(crate) descriptors: u64,
    /// Of the available ring.
    pub(crate) available: u64,
    /// Of the used ring.
    pub(crate) used: u64,
}

/// A queue that the device does not have.
const ABSENT: QueuePlace = QueuePlace { size: 0, enabled: false, descriptors: 0, available: 0, used: 0 };

/// Which messages the driver wants for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Vectors {
    /// The configuration has changed.
    pub(super) configuration: u16,
    /// A queue has used buffers, by its number.
    pub(super) queues: Vec<u16>,
}

impl Vectors {
    fn none(queues: usize) -> Self {
        Self { configuration: NO_VECTOR, queues: vec![NO_VECTOR; queues] }
    }
}

/// What a device is, fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Features beside those that every device has.
    pub(super) features: u64,
    /// Number of queues.
    pub(super) queues: u16,
    /// Most entries of a queue: a power of two.
    pub(super) queue_size: u16,
    /// Number of messages.
    pub(super) vectors: u16,
}

/// Effect of a write on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Effect {
    /// The write has no effect beyond the registers.
    None,
    /// Begin to serve the queues.
    Start,
    /// The messages are others.
    Vectors,
    /// Leave the queues alone and be as new: [`Common::reset`] once that is done.
    Reset,
}

/// State of the negotiation between driver and device.
#[derive(Clone, Debug)]
pub(super) struct Common {
    shape: Shape,
    offered: u64,
    accepted: u64,
    offered_select: u32,
    accepted_select: u32,
    status: Status,
    /// The driver has reset the device, which is not done with that.
    resetting: bool,
    generation: u8,
    queue_select: u16,
    queues: Vec<QueuePlace>,
    vectors: Vectors,
}

impl Common {
    /// Of a new device.
    pub(super) fn new(shape: Shape) -> Self {
        let unset = QueuePlace { size: shape.queue_size, ..ABSENT };
        Self {
            shape,
            offered: shape.features | 1 << VIRTIO_F_VERSION_1,
            accepted: 0,
            offered_select: 0,
            accepted_select: 0,
            status: Status::empty(),
            resetting: false,
            generation: 0,
            queue_select: 0,
            queues: vec![unset; shape.queues.into()],
            vectors: Vectors::none(shape.queues.into()),
        }
    }

    /// The features that the driver has accepted.
    pub(super) const fn accepted(&self) -> u64 {
        self.accepted
    }

    /// The places of the queues.
    pub(super) fn queues(&self) -> &[QueuePlace] {
        &self.queues
    }

    /// The messages that the driver wants.
    pub(super) const fn vectors(&self) -> &Vectors {
        &self.vectors
    }

    /// True from the driver's start of the device to its reset.
    pub(super) const fn is_driven(&self) -> bool {
        self.status.contains(Status::DRIVER_OK) && !self.resetting
    }

    /// True while the driver waits for its reset.
    pub(super) const fn is_resetting(&self) -> bool {
        self.resetting
    }

    /// Notes that the device cannot go on. True when the driver uses it and must be notified.
    pub(super) fn needs_reset(&mut self) -> bool {
        // One that has reset it meanwhile finds it as new.
        let tell = self.is_driven() && !self.status.contains(Status::NEEDS_RESET);
        if tell {
            self.status |= Status::NEEDS_RESET;
        }
        tell
    }

    /// The device's own configuration is another.
    pub(super) const fn configuration_changed(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Resets the device.
    pub(super) fn reset(&mut self) {
        let generation = self.generation;
        *self = Self { generation, ..Self::new(self.shape) };
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

    /// Writes; read-only fields keep their value, and what lies behind the structure is lost. So is all that
    /// comes before a reset has ended.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Effect {
        if self.resetting {
            return Effect::None;
        }
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
        let changed = self.set_vectors(&written);
        // Last: what was written with it counts for the queue that was selected before.
        self.queue_select = written.queue_select.get();
        if touched(offset_of!(Registers, device_status), 1) {
            return self.set_status(written.device_status);
        }
        if changed { Effect::Vectors } else { Effect::None }
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
        let most = self.shape.queue_size;
        let selected = self.queues.get_mut(usize::from(self.queue_select));
        let Some(queue) = selected.filter(|queue| !queue.enabled) else { return };
        let size = written.queue_size.get();
        *queue = QueuePlace {
            size: if size.is_power_of_two() && size <= most { size } else { queue.size },
            enabled: written.queue_enable.get() == 1,
            descriptors: written.queue_desc.get(),
            available: written.queue_driver.get(),
            used: written.queue_device.get(),
        };
    }

    /// True if one is another than before. A vector that the device does not have is none.
    fn set_vectors(&mut self, written: &Registers) -> bool {
        let vectors = self.shape.vectors;
        let known = |vector: u16| if vector < vectors { vector } else { NO_VECTOR };
        let before = self.vectors.clone();
        self.vectors.configuration = known(written.config_msix_vector.get());
        if let Some(vector) = self.vectors.queues.get_mut(usize::from(self.queue_select)) {
            *vector = known(written.queue_msix_vector.get());
        }
        before != self.vectors
    }

    fn set_status(&mut self, written: u8) -> Effect {
        if written == 0 {
            self.resetting = true;
            return Effect::Reset;
        }
        let mut new = Status::from_bits_truncate(written) - Status::NEEDS_RESET - self.status;
        let understood = self.accepted & !self.offered == 0 && self.accepted >> VIRTIO_F_VERSION_1 & 1 != 0;
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
        let selected = usize::from(self.queue_select);
        let queue = self.queues.get(selected).copied().unwrap_or(ABSENT);
        let vector = self.vectors.queues.get(selected).copied().unwrap_or(NO_VECTOR);
        Registers {
            device_feature_select: self.offered_select.into(),
            device_feature: half(self.offered, self.offered_select).into(),
            driver_feature_select: self.accepted_select.into(),
            driver_feature: half(self.accepted, self.accepted_select).into(),
            config_msix_vector: self.vectors.configuration.into(),
            num_queues: self.shape.queues.into(),
            device_status: self.status.bits(),
            config_generation: self.generation,
            queue_select: self.queue_select.into(),
            queue_size: queue.size.into(),
            queue_msix_vector: vector.into(),
            queue_enable: u16::from(queue.enabled).into(),
            // Each has a place of its own to notify, by its number.
            queue_notify_off: (if selected < self.queues.len() { self.queue_select } else { 0 }).into(),
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
mod tests;
