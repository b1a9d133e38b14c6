//! The file of an open card: what VFIO lets do with it, and nothing kept of what was done.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use vfio_ioctls::VfioDevice;

use super::reset::Reset;
use super::sysfs::NVIDIA;
use gpuvmk_pci::header::{BAR0, COMMAND, COMMAND_MEMORY};
use gpuvmk_pci::{Region, RegionInfo, RegionKind};

/// Configuration space: the vendor, and more bits of the command register (PCI Local Bus 3.0, 6.1).
const VENDOR: u64 = 0x00;
const COMMAND_MASTER: u16 = 1 << 2;
const COMMAND_NO_INTX: u16 = 1 << 10;
/// Capability of power management: its number, the place of its control register in it, and the power state
/// there (PCI Bus Power Management Interface 1.2, 3.2).
pub(super) const POWER_MANAGEMENT: u8 = 0x01;
const POWER_CONTROL: u64 = 4;
const POWER_STATE: u16 = 0b11;
/// How long a function takes from its deepest state until it answers (the same, 5.6.1).
const WAKING: Duration = Duration::from_millis(10);

/// The file of the open device; configuration space, ROM and what cannot be mapped are read and written
/// through it.
pub(super) struct Card {
    pub(super) device: VfioDevice,
    pub(super) reset: Reset,
}

impl Card {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        borrow(&self.device)
    }

    pub(super) fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> bool {
        let at = self.device.get_region_offset(region.index()).saturating_add(offset);
        matches!(rustix::io::pread(self.fd(), &mut *data, at), Ok(count) if count == data.len())
    }

    pub(super) fn write(&self, region: Region, offset: u64, data: &[u8]) -> bool {
        let at = self.device.get_region_offset(region.index()).saturating_add(offset);
        matches!(rustix::io::pwrite(self.fd(), data, at), Ok(count) if count == data.len())
    }

    pub(super) fn config_u16(&self, offset: u64) -> Option<u16> {
        let mut word = [0; 2];
        self.read(Region::Config, offset, &mut word).then(|| u16::from_le_bytes(word))
    }

    fn config_u32(&self, offset: u64) -> Option<u32> {
        let mut word = [0; 4];
        self.read(Region::Config, offset, &mut word).then(|| u32::from_le_bytes(word))
    }

    /// Lets the card answer, and reach memory, or neither.
    pub(super) fn enable(&self, on: bool) -> bool {
        let Some(before) = self.config_u16(COMMAND) else { return false };
        let both = COMMAND_MEMORY | COMMAND_MASTER;
        let command = if on { before | both | COMMAND_NO_INTX } else { before & !COMMAND_MASTER };
        self.write(Region::Config, COMMAND, &command.to_le_bytes())
    }

    pub(super) fn reset(&self) -> std::io::Result<()> {
        self.reset.run(&self.device)
    }

    /// A card that is gone answers with ones, or not at all.
    pub(super) fn answers(&self) -> bool {
        self.config_u16(VENDOR) == Some(NVIDIA)
    }

    pub(super) fn region(&self, region: Region) -> RegionInfo {
        let size = self.device.get_region_size(region.index());
        if size == 0 {
            return RegionInfo::ABSENT;
        }
        let kind = match region {
            Region::Rom => RegionKind::Rom,
            Region::Config => RegionKind::Config,
            Region::Bar(number) => {
                let offset = BAR0.saturating_add(u64::from(number).saturating_mul(4));
                match self.config_u32(offset).unwrap_or(0) {
                    bar if bar & 1 != 0 => RegionKind::Io,
                    // Type 2: 64 bits.
                    bar if bar & 0b110 == 0b100 => RegionKind::Memory64Prefetch,
                    _ => RegionKind::Memory32,
                }
            }
        };
        RegionInfo { kind, size }
    }

    /// Has it in D0, the only power state in which its BARs answer, by the capability at `place`; false if it
    /// does not come.
    pub(super) fn wake(&self, place: Option<u64>) -> bool {
        let Some(place) = place else { return true };
        let control = place.saturating_add(POWER_CONTROL);
        let state = || self.config_u16(control).unwrap_or(u16::MAX);
        if state() & POWER_STATE == 0 {
            return true;
        }
        self.write(Region::Config, control, &(state() & !POWER_STATE).to_le_bytes());
        std::thread::sleep(WAKING);
        state() & POWER_STATE == 0
    }
}

#[allow(unsafe_code, reason = "vfio-ioctls lends its descriptor as a number only")]
fn borrow(device: &VfioDevice) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open as long as the device, which is borrowed for as long.
    unsafe { BorrowedFd::borrow_raw(device.as_raw_fd()) }
}
