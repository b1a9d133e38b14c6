//! Compute classes: which machine code their SMs run, which QMDs they take, and what a launch may ask for.

use crate::nv::classes::{self, Class};
use crate::qmd::Grid;
use crate::qmd::layout::{Layout, V2_2, V2_3, V2_4, V3_0, V4_0, V4_1, V5_0};

/// Most threads of a block in x and y, in z, and in all.
const BLOCK_LIMITS: [u32; 3] = [1024, 1024, 64];
const MAX_THREADS: u32 = 1024;

/// Most blocks of a grid in y and z (CUDA's limits); in x the field has 31 bits.
const GRID_LIMITS: [u32; 3] = [0x7fff_ffff, 0xffff, 0xffff];

/// Registers of an SM.
const SM_REGISTERS: u32 = 64 << 10;

/// Most registers of a thread that machine code can name, and two that the hardware keeps.
const MAX_REGISTERS: u32 = 256;

/// Most barriers of a block.
const MAX_BARRIERS: u32 = 16;

/// Most blocks of a cluster, where the driver asks for more than the portable 8.
const MAX_CLUSTER: u32 = 16;

/// A compute class.
#[derive(Clone, Copy, Debug)]
pub struct ComputeClass {
    /// The class.
    pub class: Class,
    /// Its SMs run code of SM `major.minor`: 75 for SM 7.5.
    pub sm: u8,
    /// The QMDs that it takes.
    pub layouts: &'static [&'static Layout],
    /// Bytes of shared memory that a block may have. Since SM 8.0 the first KiB of it is the system's.
    pub max_shared: u32,
    /// Its methods go through the macro method expander.
    pub macros: bool,
}

/// All that chips here have. Shared memory by CUDA's table of compute capabilities, plus the system's KiB.
pub const ALL: &[ComputeClass] = &[
    ComputeClass {
        class: classes::TURING_COMPUTE_A,
        sm: 75,
        layouts: &[&V2_2, &V2_3],
        max_shared: 64 << 10,
        macros: false,
    },
    ComputeClass {
        class: classes::AMPERE_COMPUTE_B,
        sm: 86,
        layouts: &[&V2_2, &V2_3, &V2_4, &V3_0],
        max_shared: 100 << 10,
        macros: true,
    },
    ComputeClass {
        class: classes::ADA_COMPUTE_A,
        sm: 89,
        layouts: &[&V2_4, &V3_0],
        max_shared: 100 << 10,
        macros: true,
    },
    ComputeClass {
        class: classes::HOPPER_COMPUTE_A,
        sm: 90,
        layouts: &[&V3_0, &V4_0],
        max_shared: 228 << 10,
        macros: true,
    },
    ComputeClass {
        class: classes::BLACKWELL_COMPUTE_B,
        sm: 120,
        layouts: &[&V4_1, &V5_0],
        max_shared: 100 << 10,
        macros: true,
    },
];

/// The row of a class, by its number.
pub fn of_class(number: u32) -> Option<&'static ComputeClass> {
    ALL.iter().find(|row| row.class.number == number)
}

/// A launch asks for more than an SM has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a grid has {what} {value}, allowed is {least} to {most}")]
pub struct OverLimit {
    /// What it has too much or too little of.
    pub what: &'static str,
    /// What it has.
    pub value: u64,
    /// The least that is allowed.
    pub least: u64,
    /// The most that is allowed.
    pub most: u64,
}

fn within(what: &'static str, value: u32, least: u32, most: u32) -> Result<(), OverLimit> {
    let (value, least, most) = (value.into(), least.into(), most.into());
    if (least..=most).contains(&value) { Ok(()) } else { Err(OverLimit { what, value, least, most }) }
}

impl ComputeClass {
    /// Checks what a grid asks for, as the hardware's launch check does.
    ///
    /// # Errors
    /// The first limit that is not kept.
    pub fn check(&self, grid: &Grid) -> Result<(), OverLimit> {
        for (value, most) in grid.block.into_iter().zip(BLOCK_LIMITS) {
            within("threads of a block along an axis", value, 1, most)?;
        }
        let threads = grid.block.into_iter().fold(1_u32, u32::saturating_mul);
        within("threads of a block", threads, 1, MAX_THREADS)?;
        for (value, most) in grid.grid.into_iter().zip(GRID_LIMITS) {
            within("blocks along an axis", value, 0, most)?;
        }
        within("registers of a thread", grid.registers, 1, MAX_REGISTERS)?;
        let warps = threads.div_ceil(32);
        let registers = grid.registers.next_multiple_of(8).saturating_mul(warps.saturating_mul(32));
        within("registers of a block", registers, 0, SM_REGISTERS)?;
        within("barriers of a block", grid.barriers, 0, MAX_BARRIERS)?;
        within("bytes of shared memory of a block", grid.shared, 0, self.max_shared)?;
        let blocks = grid.cluster.into_iter().fold(1_u32, u32::saturating_mul);
        within("blocks of a cluster", blocks, 1, MAX_CLUSTER)?;
        for (value, cluster) in grid.grid.into_iter().zip(grid.cluster) {
            within("blocks beyond whole clusters", value % cluster.max(1), 0, 0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Chip;
    use crate::nv::classes::Role;
    use crate::qmd::Qmd;

    fn grid(row: &ComputeClass) -> Grid {
        let layout = row.layouts[0];
        let mut qmd = Qmd::new(layout).with(layout.registers, 32);
        for field in layout.grid.into_iter().chain(layout.block) {
            qmd = qmd.with(field, 4);
        }
        Grid::of(&qmd, layout).unwrap()
    }

    #[test]
    fn every_gsp_chip_has_a_row() {
        for chip in Chip::ALL {
            let class = chip.classes.of(Role::Compute).unwrap();
            let fermi = class == classes::FERMI_COMPUTE_A;
            assert_eq!(of_class(class.number).is_none(), fermi, "{chip}");
        }
    }

    #[test]
    fn limits_are_those_of_an_sm() {
        for row in ALL {
            let ordinary = grid(row);
            assert_eq!(row.check(&ordinary), Ok(()));
            let over = [
                Grid { block: [1025, 1, 1], ..ordinary.clone() },
                Grid { block: [0, 1, 1], ..ordinary.clone() },
                Grid { block: [1, 1, 65], ..ordinary.clone() },
                Grid { block: [512, 4, 1], ..ordinary.clone() },
                Grid { registers: 0, ..ordinary.clone() },
                Grid { registers: 257, ..ordinary.clone() },
                Grid { registers: 72, block: [1024, 1, 1], ..ordinary.clone() },
                Grid { barriers: 17, ..ordinary.clone() },
                Grid { shared: row.max_shared + 1, ..ordinary.clone() },
                Grid { cluster: [17, 1, 1], ..ordinary.clone() },
                Grid { cluster: [3, 1, 1], ..ordinary.clone() },
                Grid { grid: [1, 0x1_0000, 1], ..ordinary.clone() },
            ];
            for grid in over {
                assert!(row.check(&grid).is_err(), "SM {}: {grid:?}", row.sm);
            }
            let most = Grid { registers: 64, block: [1024, 1, 1], shared: row.max_shared, ..ordinary };
            assert_eq!(row.check(&most), Ok(()));
        }
    }
}
