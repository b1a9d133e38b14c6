//! What a grid is launched with.

use gpuvmk_isa::Arch;

/// Constant banks, as they were when the launch began: caches keep constants until they are invalidated.
#[derive(Clone, Debug, Default)]
pub struct Constants {
    banks: Vec<Vec<u32>>,
}

impl Constants {
    /// Banks that instructions can name.
    pub const BANKS: usize = 32;

    /// Sets a bank's words. A bank beyond [`Self::BANKS`] is none.
    pub fn set(&mut self, bank: usize, words: Vec<u32>) {
        if bank < Self::BANKS {
            if self.banks.len() <= bank {
                self.banks.resize_with(bank + 1, Vec::new);
            }
            self.banks[bank] = words;
        }
    }

    /// The word at an offset in bytes; 0 beyond the end (not measured).
    #[must_use]
    pub fn word(&self, bank: u8, offset: u32) -> u32 {
        let words = self.banks.get(usize::from(bank));
        words.and_then(|words| words.get((offset / 4) as usize)).copied().unwrap_or(0)
    }
}

/// Local memory of a launch: an area of global memory, divided among warps that are resident.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalMemory {
    /// Virtual address of the area.
    pub base: u64,
    /// Its bytes.
    pub size: u64,
    /// Bytes of a lane from address 0 on.
    pub low: u32,
    /// Bytes of a lane up to address 2^24.
    pub high: u32,
}

impl LocalMemory {
    /// Bytes of a lane.
    #[must_use]
    pub const fn of_lane(self) -> u64 {
        (self.low as u64).next_multiple_of(4) + (self.high as u64).next_multiple_of(4)
    }
}

/// A launch of a grid.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Version of the machine code.
    pub arch: Arch,
    /// Address of the first instruction.
    pub entry: u64,
    /// Registers of a lane, 255 at most.
    pub registers: u16,
    /// CTAs by width, height and depth.
    pub grid: [u32; 3],
    /// Threads of a CTA.
    pub block: [u32; 3],
    /// Bytes of shared memory of a CTA.
    pub shared: u32,
    /// Constant banks.
    pub constants: Constants,
    /// Generic addresses of shared and of local memory begin here.
    pub shared_window: u64,
    /// See above.
    pub local_window: u64,
    /// Local memory.
    pub local: LocalMemory,
}

/// Why a launch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// No threads, or more than an SM has.
    #[error("a CTA of {0:?} threads: 1 to 1024, 64 in depth")]
    Block([u32; 3]),
    /// More registers than a lane or an SM has.
    #[error("{0} registers a thread are more than there are")]
    Registers(u16),
    /// More shared memory than an SM has.
    #[error("{0} bytes of shared memory are more than there are")]
    Shared(u32),
    /// Local memory has no room for one CTA.
    #[error("{need} bytes of local memory for a CTA, {size} are there")]
    Local {
        /// Bytes that a CTA needs.
        need: u64,
        /// Bytes of the area.
        size: u64,
    },
}

impl Launch {
    /// Bytes of shared memory that an SM of GH100 has: 227 KiB and the first one of a CTA.
    pub const MAX_SHARED: u32 = 228 * 1024;

    /// Threads of a CTA.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.block.iter().fold(1_u32, |product, size| product.saturating_mul(*size))
    }

    /// Warps of a CTA.
    #[must_use]
    pub fn warps(&self) -> u32 {
        self.threads().div_ceil(32)
    }

    /// CTAs.
    #[must_use]
    pub fn ctas(&self) -> u64 {
        self.grid.iter().fold(1_u64, |product, size| product.saturating_mul(u64::from(*size)))
    }

    /// Checks what an SM has.
    ///
    /// # Errors
    /// See [`LaunchError`].
    pub fn check(&self) -> Result<(), LaunchError> {
        let threads = self.threads();
        if threads == 0 || threads > 1024 || self.block[2] > 64 {
            return Err(LaunchError::Block(self.block));
        }
        if self.registers > 255 || u32::from(self.registers) * self.warps() * 32 > 1 << 16 {
            return Err(LaunchError::Registers(self.registers));
        }
        if self.shared > Self::MAX_SHARED {
            return Err(LaunchError::Shared(self.shared));
        }
        let need = self.local.of_lane() * u64::from(self.warps()) * 32;
        if need > self.local.size {
            return Err(LaunchError::Local { need, size: self.local.size });
        }
        Ok(())
    }
}
