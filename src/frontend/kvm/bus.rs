//! The two buses of a machine: which device answers at an address.

use super::KvmError;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use vm_device::bus::{MmioAddress, MmioBus, MmioRange, PioAddress, PioBus, PioRange};

/// A device that answers accesses on a bus. The threads of all processors call it.
pub trait BusDevice: Send + Sync {
    /// Reads `data.len()` bytes, 1 to 8, at `offset` from where the device was put.
    fn read(&self, offset: u64, data: &mut [u8]);

    /// Writes 1 to 8 bytes.
    fn write(&self, offset: u64, data: &[u8]);
}

/// Memory and I/O ports. An address that no device answers for reads as ones, and takes writes without
/// effect.
#[derive(Default)]
pub struct Buses {
    memory: RwLock<MmioBus<Arc<dyn BusDevice>>>,
    ports: RwLock<PioBus<Arc<dyn BusDevice>>>,
}

impl std::fmt::Debug for Buses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buses").finish_non_exhaustive()
    }
}

fn reading<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn writing<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl Buses {
    /// Puts a device at `[base, base + size)` of memory.
    ///
    /// # Errors
    /// The range is empty, wraps, or meets another device's.
    pub fn put_memory(&self, base: u64, size: u64, device: Arc<dyn BusDevice>) -> Result<(), KvmError> {
        let refused = |error: vm_device::bus::Error| KvmError::Place {
            bus: "memory",
            base,
            size,
            why: error.to_string(),
        };
        let range = MmioRange::new(MmioAddress(base), size).map_err(refused)?;
        writing(&self.memory).register(range, device).map_err(refused)
    }

    /// Takes the device away whose range begins at `base`.
    pub fn take_memory(&self, base: u64) {
        let mut memory = writing(&self.memory);
        let begins = |(range, _): &(&MmioRange, _)| range.base() == MmioAddress(base);
        if memory.device(MmioAddress(base)).as_ref().is_some_and(begins) {
            memory.deregister(MmioAddress(base));
        }
    }

    /// Puts a device at `[base, base + size)` of the I/O ports.
    ///
    /// # Errors
    /// The range is empty, wraps, or meets another device's.
    pub fn put_ports(&self, base: u16, size: u16, device: Arc<dyn BusDevice>) -> Result<(), KvmError> {
        let refused = |error: vm_device::bus::Error| KvmError::Place {
            bus: "port",
            base: base.into(),
            size: size.into(),
            why: error.to_string(),
        };
        let range = PioRange::new(PioAddress(base), size).map_err(refused)?;
        writing(&self.ports).register(range, device).map_err(refused)
    }

    /// Takes the device away whose range of ports begins at `base`.
    pub fn take_ports(&self, base: u16) {
        let mut ports = writing(&self.ports);
        let begins = |(range, _): &(&PioRange, _)| range.base() == PioAddress(base);
        if ports.device(PioAddress(base)).as_ref().is_some_and(begins) {
            ports.deregister(PioAddress(base));
        }
    }

    /// The device that answers for all of an access, and the offset in its range. The lock is let go before
    /// the device is called: a write may move devices.
    fn at_memory(&self, address: u64, size: usize) -> Option<(Arc<dyn BusDevice>, u64)> {
        let memory = reading(&self.memory);
        let (range, device) = memory.check_access(MmioAddress(address), size).ok()?;
        Some((Arc::clone(device), address - range.base().0))
    }

    fn at_ports(&self, port: u16, size: usize) -> Option<(Arc<dyn BusDevice>, u64)> {
        let ports = reading(&self.ports);
        let (range, device) = ports.check_access(PioAddress(port), size).ok()?;
        Some((Arc::clone(device), u64::from(port - range.base().0)))
    }

    /// Carries out a read of memory.
    pub fn read_memory(&self, address: u64, data: &mut [u8]) {
        match self.at_memory(address, data.len()) {
            Some((device, offset)) => device.read(offset, data),
            None => data.fill(0xff),
        }
    }

    /// Carries out a write of memory.
    pub fn write_memory(&self, address: u64, data: &[u8]) {
        if let Some((device, offset)) = self.at_memory(address, data.len()) {
            device.write(offset, data);
        }
    }

    /// Carries out a read of ports.
    pub fn read_ports(&self, port: u16, data: &mut [u8]) {
        match self.at_ports(port, data.len()) {
            Some((device, offset)) => device.read(offset, data),
            None => data.fill(0xff),
        }
    }

    /// Carries out a write of ports.
    pub fn write_ports(&self, port: u16, data: &[u8]) {
        match self.at_ports(port, data.len()) {
            Some((device, offset)) => device.write(offset, data),
            None => log::debug!("Nobody has port {port:#x}, to which {data:x?} is written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Remembers the last write.
    #[derive(Default)]
    struct Cell(Mutex<(u64, Vec<u8>)>);

    impl BusDevice for Cell {
        fn read(&self, offset: u64, data: &mut [u8]) {
            data.fill(u8::try_from(offset).unwrap());
        }

        fn write(&self, offset: u64, data: &[u8]) {
            *self.0.lock().unwrap() = (offset, data.to_vec());
        }
    }

    #[test]
    fn access_reaches_the_device_that_has_all_of_it() {
        let buses = Buses::default();
        let cell = Arc::new(Cell::default());
        buses.put_memory(0x1000, 0x10, cell.clone()).unwrap();
        buses.write_memory(0x100c, &[1, 2, 3, 4]);
        assert_eq!(*cell.0.lock().unwrap(), (0xc, vec![1, 2, 3, 4]));
        let mut data = [0; 4];
        buses.read_memory(0x1008, &mut data);
        assert_eq!(data, [8; 4]);
        // An access that leaves the range reaches no device.
        buses.read_memory(0x100e, &mut data);
        assert_eq!(data, [0xff; 4]);
        buses.write_memory(0x100e, &[9; 4]);
        assert_eq!(cell.0.lock().unwrap().0, 0xc);
    }

    #[test]
    fn ranges_do_not_meet_and_can_be_used_again() {
        let buses = Buses::default();
        let cell = || Arc::new(Cell::default());
        buses.put_memory(0x1000, 0x1000, cell()).unwrap();
        assert!(buses.put_memory(0x1fff, 1, cell()).is_err());
        assert!(buses.put_memory(u64::MAX, 2, cell()).is_err());
        assert!(buses.put_memory(0x3000, 0, cell()).is_err());
        // Only by its first address is a range taken away.
        buses.take_memory(0x1800);
        assert!(buses.put_memory(0x1000, 1, cell()).is_err());
        buses.take_memory(0x1000);
        buses.put_memory(0x1000, 1, cell()).unwrap();
        buses.put_ports(0xcf8, 8, cell()).unwrap();
        assert!(buses.put_ports(0xcff, 1, cell()).is_err());
        buses.take_ports(0xcf8);
        let mut data = [0; 1];
        buses.read_ports(0xcf8, &mut data);
        assert_eq!(data, [0xff]);
    }
}
