//! PCI bus 0: a host bridge and the functions, reached through ECAM and by configuration mechanism 1.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::layout::{MMIO32, MMIO64, PORTS};
use gpuvmk_frontend::kvm::{Attached, BusDevice};
use gpuvmk_pci::{RegionKind, header};

/// Slots of a bus.
const SLOTS: usize = 32;
/// Bytes of a function's configuration space.
const FUNCTION: u64 = 4096;
/// Functions of a slot.
const FUNCTIONS: u64 = 8;

/// The host bridge's header: an "Intel 82945G" (as every VMM without firmware says), class 0600.
const BRIDGE: [(usize, u32); 2] = [(0x00, 0x2770_8086), (0x08, 0x0600_0000)];

/// The PCI bus, with its functions.
pub(super) struct PciBus {
    /// Slot 0 is the host bridge.
    slots: Vec<Arc<Attached>>,
    /// Content of the address port.
    address: Mutex<u32>,
}

/// No place was left for a BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("No room for BAR{bar} of slot {slot}, which has {size:#x} bytes")]
pub struct NoBarSpace {
    /// Slot of the function.
    pub slot: usize,
    /// Number of the BAR.
    pub bar: usize,
    /// Size in bytes.
    pub size: u64,
}

impl PciBus {
    /// A bus with these functions in slots 1 and following.
    pub(super) fn new(slots: Vec<Arc<Attached>>) -> Arc<Self> {
        Arc::new(Self { slots, address: Mutex::new(0) })
    }

    /// Gives all BARs their places, as firmware would, largest first, and has them decode.
    pub(super) fn place_bars(&self) -> Result<(), NoBarSpace> {
        let (mut low, mut high, mut ports) = (MMIO32.start, MMIO64.start, u64::from(PORTS.start));
        let mut bars: Vec<_> = self
            .slots
            .iter()
            .enumerate()
            .flat_map(|(index, function)| {
                let regions = function.function().regions().into_iter().take(6).enumerate();
                regions.map(move |(bar, info)| (index, bar, info))
            })
            .filter(|(_, _, info)| info.size != 0)
            .collect();
        bars.sort_by_key(|(_, _, info)| std::cmp::Reverse(info.size));
        for (index, bar, info) in bars {
            let (next, end) = match info.kind {
                RegionKind::Memory32 => (&mut low, MMIO32.end),
                RegionKind::Memory64Prefetch => (&mut high, MMIO64.end),
                RegionKind::Io => (&mut ports, u64::from(PORTS.end)),
                RegionKind::Absent | RegionKind::Rom | RegionKind::Config => continue,
            };
            let place = next.checked_next_multiple_of(info.size);
            let room = place.filter(|place| place.checked_add(info.size).is_some_and(|after| after <= end));
            let place = room.ok_or(NoBarSpace { slot: index + 1, bar, size: info.size })?;
            *next = place + info.size;
            let Some(function) = self.slots.get(index) else { continue };
            let register = header::BAR0 + 4 * bar as u64;
            let bytes = place.to_le_bytes();
            let (low, high) = bytes.split_at(4);
            function.write_config(register, low);
            if info.kind == RegionKind::Memory64Prefetch {
                function.write_config(register + 4, high);
            }
        }
        for function in &self.slots {
            let command = header::word(&**function.function(), header::COMMAND);
            let decoding = command | header::COMMAND_IO | header::COMMAND_MEMORY;
            function.write_config(header::COMMAND, &decoding.to_le_bytes());
        }
        Ok(())
    }

    /// The slots that have a function.
    pub(super) fn functions(&self) -> &[Arc<Attached>] {
        &self.slots
    }

    /// The function at an offset of ECAM, and the offset in its configuration space.
    fn at(&self, offset: u64) -> (Target<'_>, u64) {
        let (function, inside) = (offset / FUNCTION, offset % FUNCTION);
        let slot = usize::try_from(function / FUNCTIONS).unwrap_or(SLOTS);
        let target = match slot.checked_sub(1) {
            _ if !function.is_multiple_of(FUNCTIONS) => Target::Nothing,
            None => Target::Bridge,
            Some(index) => self.slots.get(index).map_or(Target::Nothing, |slot| Target::Function(slot)),
        };
        (target, inside)
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        match self.at(offset) {
            (Target::Function(function), inside) => function.read_config(inside, data),
            (Target::Bridge, inside) => read_bridge(inside, data),
            (Target::Nothing, _) => data.fill(0xff),
        }
    }

    fn write_config(&self, offset: u64, data: &[u8]) {
        if let (Target::Function(function), inside) = self.at(offset) {
            function.write_config(inside, data);
        }
    }

    fn address(&self) -> u32 {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The function that a part of configuration space belongs to.
enum Target<'a> {
    Bridge,
    Function(&'a Attached),
    Nothing,
}

/// The host bridge has an identity, and nothing to set.
fn read_bridge(offset: u64, data: &mut [u8]) {
    let mut space = [0; 256];
    for (at, value) in BRIDGE {
        if let Some(place) = space.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    for (byte, index) in data.iter_mut().zip(at..) {
        *byte = space.get(index).copied().unwrap_or(0);
    }
}

/// All of bus 0's configuration space in memory. Does not keep the
/// bus alive: its functions hold the machine's buses, which hold this.
pub(super) struct Ecam(pub(super) Weak<PciBus>);

impl BusDevice for Ecam {
    fn read(&self, offset: u64, data: &mut [u8]) {
        match self.0.upgrade() {
            Some(bus) => bus.read_config(offset, data),
            None => data.fill(0xff),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        if let Some(bus) = self.0.upgrade() {
            bus.write_config(offset, data);
        }
    }
}

/// The address and data ports of configuration mechanism 1.
pub(super) struct ConfigPorts(pub(super) Weak<PciBus>);

impl ConfigPorts {
    /// Ports of the data register.
    const DATA: u64 = 4;

    /// The offset in ECAM that an access to the data ports means: bus 0 only, while the address is enabled.
    fn target(bus: &PciBus, offset: u64) -> Option<u64> {
        let address = bus.address();
        let bus = address >> 16 & 0xff;
        if address >> 31 == 0 || bus != 0 {
            return None;
        }
        let function = u64::from(address >> 8 & 0xff);
        Some(function * FUNCTION + u64::from(address & 0xfc) + (offset - Self::DATA))
    }
}

impl BusDevice for ConfigPorts {
    fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0xff);
        let Some(bus) = self.0.upgrade() else { return };
        if offset >= Self::DATA {
            if let Some(target) = Self::target(&bus, offset) {
                bus.read_config(target, data);
            }
        } else if let (0, Ok(place)) = (offset, <&mut [u8; 4]>::try_from(data)) {
            *place = bus.address().to_le_bytes();
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let Some(bus) = self.0.upgrade() else { return };
        if offset >= Self::DATA {
            if let Some(target) = Self::target(&bus, offset) {
                bus.write_config(target, data);
            }
        } else if let (0, Ok(value)) = (offset, <[u8; 4]>::try_from(data)) {
            *bus.address.lock().unwrap_or_else(PoisonError::into_inner) = u32::from_le_bytes(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_bus_has_a_host_bridge_and_nothing_else() {
        let bus = PciBus::new(Vec::new());
        let (ecam, ports) = (Ecam(Arc::downgrade(&bus)), ConfigPorts(Arc::downgrade(&bus)));
        let mut id = [0; 4];
        ecam.read(0, &mut id);
        assert_eq!(u32::from_le_bytes(id), 0x2770_8086);
        let mut class = [0; 2];
        ecam.read(0xa, &mut class);
        assert_eq!(u16::from_le_bytes(class), 0x0600);
        for elsewhere in [FUNCTION, FUNCTION * FUNCTIONS, 31 * FUNCTION * FUNCTIONS] {
            ecam.read(elsewhere, &mut id);
            assert_eq!(id, [0xff; 4]);
        }
        // Mechanism 1: only while enabled, and only bus 0.
        let read = |address: u32, offset: u64| {
            ports.write(0, &address.to_le_bytes());
            let mut data = [0; 2];
            ports.read(4 + offset, &mut data);
            u16::from_le_bytes(data)
        };
        assert_eq!((read(1 << 31, 0), read(1 << 31, 2)), (0x8086, 0x2770));
        assert_eq!(
            (read(0, 0), read(1 << 31 | 1 << 16, 0), read(1 << 31 | 1 << 11, 0)),
            (0xffff, 0xffff, 0xffff)
        );
        let mut back = [0; 4];
        ports.read(0, &mut back);
        assert_eq!(u32::from_le_bytes(back), 1 << 31 | 1 << 11);
        // A bus that is gone is an empty one.
        drop(bus);
        ecam.read(0, &mut id);
        assert_eq!(id, [0xff; 4]);
    }
}
