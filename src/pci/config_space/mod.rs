//! A type-0 PCI configuration space as a pure model: 256 bytes of registers with a write mask for every bit,
//! and as many more as extended capabilities need. The rest of the extended space (up to 4 KiB) reads as
//! zero.
//!
//! Every bit is read-only, read-write or write-1-to-clear. A write returns what it changed as a value
//! ([`ConfigChange`]); the owner acts on it (interrupt routing, DMA on or off, function-level reset). BARs
//! answer the sizing protocol: the address bits below the size are hard-wired to zero.
//!
//! Not handled: per-vector masking of MSI, most extended capabilities, vital product data, and power-state
//! transitions beyond storing the state (`No_Soft_Reset` is set: D3hot to D0 resets nothing).

mod builder;
mod draft;
mod error;
mod extended;
mod layout;
mod state;
#[cfg(test)]
mod tests;

pub use builder::{Capability, ConfigSpaceBuilder, Identity};
pub use error::BuildError;
pub use extended::ExtendedCapability;
pub use state::ConfigSpaceState;

use super::{AccessError, Region, RegionKind};
use layout::{command, msi, msix, pcie, pm, status};

/// Bytes of configuration space with registers behind them in any function.
pub const CONVENTIONAL_SIZE: usize = 256;

/// Bytes of a PCI Express function's configuration space.
pub const CONFIG_SIZE: usize = 4096;

/// Power state of the function (PMCSR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// Works.
    D0,
    /// Light sleep.
    D1,
    /// Deeper sleep.
    D2,
    /// Off but for configuration space.
    D3Hot,
}

impl PowerState {
    const fn from_bits(bits: u16) -> Self {
        match bits & 3 {
            0 => Self::D0,
            1 => Self::D1,
            2 => Self::D2,
            _ => Self::D3Hot,
        }
    }
}

/// The MSI capability's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MsiState {
    /// Messages are sent instead of INTx.
    pub enabled: bool,
    /// Message address.
    pub address: u64,
    /// Message data.
    pub data: u16,
}

/// The settings in configuration space that steer the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// I/O BARs decode.
    pub io: bool,
    /// Memory BARs decode.
    pub memory: bool,
    /// The function may start DMA and send messages.
    pub bus_master: bool,
    /// The INTx line stays quiet.
    pub intx_disabled: bool,
    /// State of the MSI capability.
    pub msi: MsiState,
    /// Power state.
    pub power: PowerState,
}

/// Effects of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// Before the write.
    pub before: Control,
    /// The settings after the write.
    pub after: Control,
    /// A BAR or the ROM BAR has another value now.
    pub bars_moved: bool,
    /// The driver asked for a function-level reset (the bit reads as zero). The owner carries it out, and
    /// calls [`ConfigSpace::reset`] in doing so.
    pub reset_requested: bool,
}

impl ConfigChange {
    /// True when anything that [`Control`] shows has changed.
    pub fn control_changed(&self) -> bool {
        self.before != self.after
    }
}

/// Offsets of the capabilities that the function has.
#[derive(Clone, Copy, Debug, Default)]
struct CapabilityOffsets {
    pm: Option<u8>,
    msi: Option<u8>,
    msix: Option<u8>,
    pcie: Option<u8>,
}

/// A configuration space.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    /// 256 bytes, or more with extended capabilities; the other three have as many.
    value: Vec<u8>,
    reset_value: Vec<u8>,
    /// Bits that a write stores.
    writable: Vec<u8>,
    /// Bits that a written 1 clears.
    write_1_to_clear: Vec<u8>,
    capabilities: CapabilityOffsets,
    bar_kinds: [RegionKind; 6],
    reset_capable: bool,
}

impl ConfigSpace {
    /// Reads `data.len()` bytes at `offset`, of any length inside the 4 KiB.
    ///
    /// # Errors
    /// The access leaves configuration space.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        let start = checked_start(offset, data.len())?;
        for (byte, position) in data.iter_mut().zip(start..) {
            *byte = self.value.get(position).copied().unwrap_or(0);
        }
        Ok(())
    }

    /// Writes `data` at `offset`, of any length inside the 4 KiB; read-only bits keep their value.
    ///
    /// # Errors
    /// The access leaves configuration space; nothing changed then.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<ConfigChange, AccessError> {
        let start = checked_start(offset, data.len())?;
        let before = self.control();
        let mut bars_moved = false;
        for (&byte, position) in data.iter().zip(start..) {
            bars_moved |= self.write_byte(position, byte) && layout::is_bar_byte(position);
        }
        let reset_requested = self.take_reset_request(start, data);
        Ok(ConfigChange { before, after: self.control(), bars_moved, reset_requested })
    }

    /// Stores the writable bits of one byte; true when its value changed.
    fn write_byte(&mut self, position: usize, byte: u8) -> bool {
        let (Some(value), Some(writable), Some(clear)) =
            (self.value.get_mut(position), self.writable.get(position), self.write_1_to_clear.get(position))
        else {
            return false;
        };
        let old = *value;
        *value = ((old & !writable) | (byte & writable)) & !(byte & clear);
        *value != old
    }

    /// The FLR bit is not stored: it is seen in the written data only.
    fn take_reset_request(&self, start: usize, data: &[u8]) -> bool {
        let Some(pcie) = self.capabilities.pcie.filter(|_| self.reset_capable) else { return false };
        let position = usize::from(pcie) + pcie::DEVICE_CONTROL + 1;
        let byte = position.checked_sub(start).and_then(|index| data.get(index));
        byte.is_some_and(|byte| byte & pcie::INITIATE_FLR_HIGH_BYTE != 0)
    }

    /// Everything that steers the function, at once.
    pub fn control(&self) -> Control {
        let command = self.word(command::OFFSET);
        Control {
            io: command & command::IO != 0,
            memory: command & command::MEMORY != 0,
            bus_master: command & command::BUS_MASTER != 0,
            intx_disabled: command & command::INTX_DISABLE != 0,
            msi: self.msi(),
            power: self.power_state(),
        }
    }

    /// The MSI capability's registers; the default (disabled) without one.
    pub fn msi(&self) -> MsiState {
        let Some(at) = self.capabilities.msi.map(usize::from) else { return MsiState::default() };
        let low = u64::from(self.dword(at + msi::ADDRESS_LOW));
        let high = u64::from(self.dword(at + msi::ADDRESS_HIGH));
        MsiState {
            enabled: self.word(at + msi::CONTROL) & msi::ENABLE != 0,
            address: high << 32 | low,
            data: self.word(at + msi::DATA),
        }
    }

    /// True when the driver enabled MSI.
    pub fn msi_enabled(&self) -> bool {
        self.msi().enabled
    }

    /// True when the driver enabled MSI-X: the function sends messages, masked ones later, and its line stays
    /// quiet.
    pub fn msix_enabled(&self) -> bool {
        let control = self.capabilities.msix.map(|at| self.word(usize::from(at) + msix::CONTROL));
        control.is_some_and(|control| control & msix::ENABLE != 0)
    }

    /// True when the driver lets the function start DMA.
    pub fn bus_master(&self) -> bool {
        self.word(command::OFFSET) & command::BUS_MASTER != 0
    }

    /// True when the driver silenced the INTx line.
    pub fn intx_disabled(&self) -> bool {
        self.word(command::OFFSET) & command::INTX_DISABLE != 0
    }

    /// Power state; D0 without a power-management capability.
    pub fn power_state(&self) -> PowerState {
        self.capabilities
            .pm
            .map_or(PowerState::D0, |at| PowerState::from_bits(self.word(usize::from(at) + pm::CONTROL)))
    }

    /// Address that the firmware or driver gave BAR `bar`, without its type bits; `None` for a BAR that the
    /// function does not have.
    pub fn bar_base(&self, bar: u8) -> Option<u64> {
        let index = usize::from(bar);
        let at = layout::BAR0 + 4 * index;
        let low = u64::from(self.dword(at));
        match self.bar_kinds.get(index)? {
            RegionKind::Memory32 => Some(low & layout::BAR_MEMORY_ADDRESS),
            RegionKind::Memory64Prefetch => {
                Some(u64::from(self.dword(at + 4)) << 32 | low & layout::BAR_MEMORY_ADDRESS)
            }
            RegionKind::Io => Some(low & layout::BAR_IO_ADDRESS),
            RegionKind::Absent | RegionKind::Rom | RegionKind::Config => None,
        }
    }

    /// Shows the level of the interrupt in the status register, as the device does it whether or not the
    /// line is enabled.
    pub fn set_interrupt_status(&mut self, asserted: bool) {
        let bit = status::INTERRUPT_LOW_BYTE;
        if let Some(byte) = self.value.get_mut(status::OFFSET) {
            *byte = if asserted { *byte | bit } else { *byte & !bit };
        }
    }

    /// All registers as after power-on.
    pub fn reset(&mut self) {
        self.value.clone_from(&self.reset_value);
    }

    fn word(&self, at: usize) -> u16 {
        let byte = |i: usize| self.value.get(i).copied().unwrap_or(0);
        u16::from_le_bytes([byte(at), byte(at + 1)])
    }

    fn dword(&self, at: usize) -> u32 {
        u32::from(self.word(at + 2)) << 16 | u32::from(self.word(at))
    }
}

/// `offset` as an index, if all `size` bytes from it lie in configuration space.
fn checked_start(offset: u64, size: usize) -> Result<usize, AccessError> {
    usize::try_from(offset)
        .ok()
        .filter(|start| start.checked_add(size).is_some_and(|end| end <= CONFIG_SIZE))
        .ok_or(AccessError::OutOfRange { region: Region::Config, offset, size, limit: CONFIG_SIZE as u64 })
}
