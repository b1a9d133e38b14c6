//! Access to the GPU's registers, with the width and byte order that hardware has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::GpuError;
use gpuvmk_chip::registers::Reg;
use gpuvmk_pci::{PciFunction, Region, SharedRegions};

/// How long hardware may take for what it does by itself. Real units answer within microseconds; drivers of
/// the vendor wait two seconds before they give up.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pause between two looks at a register that is polled.
const POLL_PAUSE: Duration = Duration::from_micros(20);

/// The GPU's regions.
pub(super) struct Bus {
    function: Arc<dyn PciFunction>,
}

impl Bus {
    pub(super) fn new(function: Arc<dyn PciFunction>) -> Self {
        Self { function }
    }

    pub(super) fn function(&self) -> &dyn PciFunction {
        self.function.as_ref()
    }

    /// The interface to share the GPU's memory.
    pub(super) fn shared_regions(&self) -> std::io::Result<&dyn SharedRegions> {
        self.function.shared_regions().ok_or_else(|| std::io::ErrorKind::Unsupported.into())
    }

    pub(super) fn read(&self, reg: Reg) -> Result<u32, GpuError> {
        self.read_at(Region::Bar(0), u64::from(reg.0))
    }

    pub(super) fn write(&self, reg: Reg, value: u32) -> Result<(), GpuError> {
        self.write_at(Region::Bar(0), u64::from(reg.0), &value.to_le_bytes())
    }

    pub(super) fn read_at(&self, region: Region, offset: u64) -> Result<u32, GpuError> {
        let mut word = [0; 4];
        self.function.read(region, offset, &mut word).map_err(|error| lost(&error))?;
        Ok(u32::from_le_bytes(word))
    }

    pub(super) fn write_at(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), GpuError> {
        self.function.write(region, offset, data).map_err(|error| lost(&error))
    }

    /// Waits until `done` returns true for the register's value.
    pub(super) fn poll(
        &self,
        reg: Reg,
        what: &'static str,
        done: impl Fn(u32) -> bool,
    ) -> Result<u32, GpuError> {
        self.poll_for(reg, what, PATIENCE, done)
    }

    pub(super) fn poll_for(
        &self,
        reg: Reg,
        what: &'static str,
        patience: Duration,
        done: impl Fn(u32) -> bool,
    ) -> Result<u32, GpuError> {
        let began = Instant::now();
        loop {
            let value = self.read(reg)?;
            if done(value) {
                return Ok(value);
            }
            let waited = began.elapsed();
            if waited >= patience {
                return Err(GpuError::Timeout { what, millis: patience.as_millis().try_into().unwrap_or(0) });
            }
            std::thread::sleep(POLL_PAUSE);
        }
    }
}

fn lost(error: &gpuvmk_pci::AccessError) -> GpuError {
    match error {
        gpuvmk_pci::AccessError::DeviceLost => GpuError::Lost,
        other => GpuError::Invalid(other.to_string()),
    }
}
