//! Queue meta data, version 4.0: the 384 bytes by which Hopper's compute work distributor knows a grid.
//!
//! Fields are bit ranges of the whole block, with the names of `clcbc0qmd.h` (`NVCBC0_QMDV04_00_*`).

/// 32-bit words of a block.
pub const WORDS: usize = 96;

/// Where a block may lie: methods name it by bits 39:8 of its address.
pub const ALIGNMENT: u64 = 256;

/// A field: its first and last bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// First bit.
    pub low: usize,
    /// Last bit.
    pub high: usize,
}

const fn field(high: usize, low: usize) -> Field {
    Field { low, high }
}

/// QMD_GROUP_ID.
pub const GROUP_ID: Field = field(21, 16);
/// QMD_TYPE: 2 is a grid of blocks; 0, a queue, launches nothing.
pub const TYPE: Field = field(25, 23);
/// CONSTANT_BUFFER_VALID of bank 0.
pub const CONSTANT_BUFFER_VALID_0: Field = field(416, 416);
/// CONSTANT_BUFFER_INVALIDATE of bank 0.
pub const CONSTANT_BUFFER_INVALIDATE_0: Field = field(419, 419);
/// SASS_VERSION.
pub const SASS_VERSION: Field = field(543, 536);
/// API_VISIBLE_CALL_LIMIT: 1 is no check.
pub const API_VISIBLE_CALL_LIMIT: Field = field(568, 568);
/// QMD_MAJOR_VERSION.
pub const MAJOR_VERSION: Field = field(583, 580);
/// SHARED_MEMORY_SIZE, in bytes.
pub const SHARED_MEMORY_SIZE: Field = field(601, 584);
/// INVALIDATE_SHADER_DATA_CACHE, INVALIDATE_INSTRUCTION_CACHE and INVALIDATE_SHADER_CONSTANT_CACHE.
pub const INVALIDATE_CACHES: Field = field(607, 605);
/// MIN_SM_CONFIG_SHARED_MEM_SIZE.
pub const MIN_SHARED_CONFIG: Field = field(613, 608);
/// MAX_SM_CONFIG_SHARED_MEM_SIZE.
pub const MAX_SHARED_CONFIG: Field = field(619, 614);
/// TARGET_SM_CONFIG_SHARED_MEM_SIZE.
pub const TARGET_SHARED_CONFIG: Field = field(625, 620);
/// GRID_WIDTH.
pub const GRID_WIDTH: Field = field(1055, 1024);
/// GRID_HEIGHT.
pub const GRID_HEIGHT: Field = field(1071, 1056);
/// GRID_DEPTH.
pub const GRID_DEPTH: Field = field(1103, 1088);
/// CWD_MEMBAR_TYPE: 1 is L1_SYSMEMBAR.
pub const MEMBAR_TYPE: Field = field(1137, 1136);
/// CTA_THREAD_DIMENSION0.
pub const BLOCK_WIDTH: Field = field(1167, 1152);
/// CTA_THREAD_DIMENSION1.
pub const BLOCK_HEIGHT: Field = field(1183, 1168);
/// CTA_THREAD_DIMENSION2.
pub const BLOCK_DEPTH: Field = field(1199, 1184);
/// REGISTER_COUNT.
pub const REGISTER_COUNT: Field = field(1208, 1200);
/// BARRIER_COUNT.
pub const BARRIER_COUNT: Field = field(1215, 1211);
/// PROGRAM_ADDRESS, lower and upper.
pub const PROGRAM_ADDRESS: Field = field(1272, 1216);
/// CONSTANT_BUFFER_ADDR_SHIFTED6 of bank 0, lower and upper.
pub const CONSTANT_BUFFER_ADDRESS_0: Field = field(1586, 1536);
/// CONSTANT_BUFFER_SIZE_SHIFTED4 of bank 0.
pub const CONSTANT_BUFFER_SIZE_0: Field = field(1599, 1587);

/// A block under construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qmd {
    words: [u32; WORDS],
}

impl Default for Qmd {
    fn default() -> Self {
        Self { words: [0; WORDS] }
    }
}

impl Qmd {
    /// The same block with a field set. Bits of `value` beyond the field are dropped.
    #[must_use]
    pub fn with(mut self, field: Field, value: u64) -> Self {
        for (index, bit) in (field.low..=field.high).enumerate() {
            if let Some(word) = self.words.get_mut(bit / 32) {
                let mask = 1 << (bit % 32);
                let set = index < 64 && value >> index & 1 != 0;
                *word = if set { *word | mask } else { *word & !mask };
            }
        }
        self
    }

    /// Its words.
    pub fn words(&self) -> &[u32; WORDS] {
        &self.words
    }
}

/// A shared-memory configuration of an SM as the three fields name it: 4 KiB units, plus one.
pub const fn shared_config(kib: u64) -> u64 {
    kib / 4 + 1
}

/// Sizes of shared memory that an SM of Hopper can be configured for, in KiB.
pub const SHARED_CONFIGS: [u64; 9] = [8, 16, 32, 64, 100, 132, 164, 196, 228];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_cross_words() {
        let qmd = Qmd::default().with(PROGRAM_ADDRESS, 0x1ab_cdef_0123_4567 & ((1 << 57) - 1));
        assert_eq!(qmd.words()[38], 0x0123_4567);
        assert_eq!(qmd.words()[39], 0x1ab_cdef);
    }

    #[test]
    fn a_field_keeps_its_neighbours() {
        let qmd = Qmd::default()
            .with(MIN_SHARED_CONFIG, 3)
            .with(MAX_SHARED_CONFIG, 58)
            .with(TARGET_SHARED_CONFIG, 3);
        assert_eq!(qmd.words()[19], 3 | 58 << 6 | 3 << 12);
        assert_eq!(qmd.with(MAX_SHARED_CONFIG, 0).words()[19], 3 | 3 << 12);
    }
}
