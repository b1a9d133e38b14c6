//! What a block says, whatever its version.

use super::block::Qmd;
use super::layout::{
    Bits, GRID_CTA, GRID_GPC_CGA, GRID_GPU_CGA, GRID_GPU_GPC_CGA, Kind, Layout, ReleaseFields,
};

/// A field of a block has a value without a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a QMD has {field} = {value}, which has no meaning")]
pub struct Reserved {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
}

/// CWD_MEMBAR_TYPE: what is made visible before the grid counts as ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membar {
    /// No stores wait.
    None,
    /// Stores, to all of the system.
    System,
    /// Stores, to this GPU.
    Gpu,
}

/// A constant bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank {
    /// Virtual address of its first byte.
    pub address: u64,
    /// Size in bytes.
    pub size: u32,
    /// Its remembered contents are dropped first.
    pub invalidate: bool,
}

/// The form of a released semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseSize {
    /// A word, or with a payload of 64 bits a double word.
    OneWord,
    /// Two words.
    TwoWords,
    /// A payload of 64 bits and a time stamp.
    FourWords,
}

/// A semaphore that is released when the grid has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Virtual address.
    pub address: u64,
    /// Its value.
    pub payload: u64,
    /// Its form.
    pub size: ReleaseSize,
    /// The payload has 64 bits.
    pub payload64: bool,
    /// Operation (RED_ADD 0, MIN, MAX, INC, DEC, AND, OR, XOR 7) and whether it is signed, where the value is
    /// combined with what is there.
    pub reduction: Option<(u32, bool)>,
}

/// What is done with a dependent block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// QMD_INCREMENT_PUT: an entry of its queue.
    IncrementPut,
    /// QMD_SCHEDULE: it is launched.
    Schedule,
    /// QMD_INVALIDATE_COPY_SCHEDULE: it is read anew, and launched.
    InvalidateCopySchedule,
    /// QMD_DECREMENT_DEPENDENCE: it is launched once its counter is 0.
    DecrementDependence,
}

/// A block that is acted on when the grid has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependent {
    /// Virtual address of the block.
    pub address: u64,
    /// What is done.
    pub action: Action,
}

/// What a block asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A grid.
    Grid,
    /// A grid whose blocks wait for each other: all of them must be there at the same time.
    Together,
    /// A grid of a kind whose fields are not known here: its QMD_TYPE.
    Unknown(u64),
    /// Nothing (a queue, GRID_NULL): it completes at once.
    Nothing,
}

/// A grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// What it is.
    pub asked: Asked,
    /// Virtual address of the code.
    pub program: u64,
    /// SASS_VERSION: 0x75 for SM75, and so on; 0 where the driver does not say.
    pub sass_version: u8,
    /// Blocks (CTAs) in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y and z; ones where there are no clusters.
    pub cluster: [u32; 3],
    /// Registers of a thread.
    pub registers: u32,
    /// Barriers of a block.
    pub barriers: u32,
    /// Bytes of shared memory of a block.
    pub shared: u32,
    /// Bytes of local memory of a thread, from address 0 up.
    pub local_low: u32,
    /// Bytes of local memory of a thread, from address 2^24 down.
    pub local_high: u32,
    /// Constant banks.
    pub banks: [Option<Bank>; 8],
    /// Caches that are invalidated first: data, instructions, constants.
    pub invalidate: [bool; 3],
    /// What is made visible at the end.
    pub membar: Membar,
    /// What keeps it from running begins anew when it has ended.
    pub begins_anew: bool,
    /// Semaphores that are released at the end, in order.
    pub releases: Vec<Release>,
    /// What is done at the end with other blocks, in order.
    pub dependents: Vec<Dependent>,
}

fn release(qmd: &Qmd, fields: &ReleaseFields) -> Result<Option<Release>, Reserved> {
    if !qmd.is_set(fields.enable) {
        return Ok(None);
    }
    let size = match qmd.get(fields.structure_size) {
        0 => ReleaseSize::FourWords,
        1 => ReleaseSize::OneWord,
        2 => ReleaseSize::TwoWords,
        value => return Err(Reserved { field: "RELEASE_STRUCTURE_SIZE", value }),
    };
    let [enable, operation, format] = fields.reduction;
    let reduction = if qmd.is_set(enable) {
        let signed = match qmd.get(format) {
            0 => false,
            1 => true,
            value => return Err(Reserved { field: "RELEASE_REDUCTION_FORMAT", value }),
        };
        Some((qmd.get_u32(operation), signed))
    } else {
        None
    };
    let payload64 = fields.payload64.is_some_and(|bit| qmd.is_set(bit));
    let payload = qmd.number(fields.payload);
    Ok(Some(Release { address: qmd.number(fields.address), payload, size, payload64, reduction }))
}

fn dependents(qmd: &Qmd, layout: &Layout) -> Result<Vec<Dependent>, Reserved> {
    let enabled = layout.dependents.iter().filter(|fields| qmd.is_set(fields.enable));
    enabled
        .map(|fields| {
            let action = match fields.action.map(|bits| qmd.get(bits)) {
                None | Some(1) => Action::Schedule,
                Some(0) => Action::IncrementPut,
                Some(3) => Action::InvalidateCopySchedule,
                Some(4) => Action::DecrementDependence,
                Some(value) => return Err(Reserved { field: "DEPENDENT_QMD_ACTION", value }),
            };
            Ok(Dependent { address: qmd.get(fields.pointer) << 8, action })
        })
        .collect()
}

impl Grid {
    /// What a block says, read by its layout.
    ///
    /// # Errors
    /// A field of what happens at the end has a value without a meaning.
    pub fn of(qmd: &Qmd, layout: &Layout) -> Result<Self, Reserved> {
        let three = |fields: [Bits; 3]| fields.map(|bits| qmd.get_u32(bits));
        let bank = |index: u16| {
            let fields = layout.banks;
            let valid = qmd.is_set(fields.valid.0.element(index, fields.valid.1));
            valid.then(|| {
                let mut address = fields.address;
                address.lower = address.lower.element(index, 64);
                address.upper = address.upper.map(|bits| bits.element(index, 64));
                Bank {
                    address: qmd.number(address),
                    size: qmd.get_u32(fields.size.element(index, 64)) << 4,
                    invalidate: qmd.is_set(fields.invalidate.0.element(index, fields.invalidate.1)),
                }
            })
        };
        let bytes = |number| u32::try_from(qmd.number(number)).unwrap_or(u32::MAX);
        let [local_low, local_high] = layout.local.map(bytes);
        let asked = match (layout.kind, layout.gpu_cluster) {
            (Kind::IsQueue(bits), _) if qmd.is_set(bits) => Asked::Nothing,
            (Kind::IsQueue(_), _) => Asked::Grid,
            (Kind::Type(bits), together) => match (qmd.get(bits), together) {
                (GRID_CTA | GRID_GPC_CGA, _) => Asked::Grid,
                (GRID_GPU_CGA, Some(_)) => Asked::Together,
                (kind @ (GRID_GPU_CGA | GRID_GPU_GPC_CGA), _) => Asked::Unknown(kind),
                _ => Asked::Nothing,
            },
        };
        let mut blocks = three(layout.grid);
        if let (Asked::Together, Some(fields)) = (asked, layout.gpu_cluster) {
            // The grid counts clusters.
            for (count, of_cluster) in blocks.iter_mut().zip(three(fields)) {
                *count = count.saturating_mul(of_cluster.max(1));
            }
        }
        let clustered = qmd.get(layout.kind.bits()) == GRID_GPC_CGA;
        let cluster =
            layout.cluster.filter(|_| clustered).map_or([1; 3], |fields| three(fields).map(|n| n.max(1)));
        let releases = layout.releases.iter().filter_map(|fields| release(qmd, fields).transpose());
        let offset = layout.program_offset.map_or(0, |bits| qmd.get(bits));
        let [sass_version, ..] = qmd.get(layout.sass_version).to_le_bytes();
        Ok(Self {
            asked,
            program: qmd.number(layout.program).wrapping_add(offset),
            sass_version,
            grid: blocks,
            block: three(layout.block),
            cluster,
            registers: qmd.get_u32(layout.registers),
            barriers: qmd.get_u32(layout.barriers),
            shared: bytes(layout.shared),
            local_low,
            local_high,
            banks: std::array::from_fn(|index| u16::try_from(index).ok().and_then(bank)),
            invalidate: layout.invalidate.map(|bits| qmd.is_set(bits)),
            membar: match qmd.get(layout.membar) {
                0 => Membar::None,
                1 => Membar::System,
                3 => Membar::Gpu,
                value => return Err(Reserved { field: "CWD_MEMBAR_TYPE", value }),
            },
            begins_anew: layout.turn.is_some_and(|fields| qmd.is_set(fields.begins_anew)),
            releases: releases.collect::<Result<_, _>>()?,
            dependents: dependents(qmd, layout)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{ALL, V2_2, V2_3, V3_0, V4_0, V5_0};
    use super::*;

    fn ordinary(layout: &Layout) -> Qmd {
        let [x, y, z] = layout.grid;
        let [bx, by, bz] = layout.block;
        let banks = layout.banks;
        let mut address = banks.address;
        address.lower = address.lower.element(1, 64);
        address.upper = address.upper.map(|bits| bits.element(1, 64));
        Qmd::new(layout)
            .with(x, 70_000)
            .with(y, 3)
            .with(z, 2)
            .with(bx, 128)
            .with(by, 2)
            .with(bz, 1)
            .with(layout.registers, 40)
            .with_number(layout.shared, 0x4000)
            .with_number(layout.program, 0x12_3456_7800)
            .with(banks.valid.0.element(1, banks.valid.1), 1)
            .with_number(address, 0x2_0000_0140)
            .with(banks.size.element(1, 64), 0x210 >> 4)
    }

    #[test]
    fn every_version_says_the_same_of_the_same_grid() {
        let known: Vec<_> = ALL.iter().collect();
        for layout in ALL {
            let qmd = ordinary(layout);
            assert_eq!(qmd.layout(&known), Some(layout));
            let grid = Grid::of(&qmd, layout).unwrap();
            assert_eq!(grid.asked, Asked::Grid, "{:?}", layout.version);
            assert_eq!((grid.grid, grid.block, grid.cluster), ([70_000, 3, 2], [128, 2, 1], [1; 3]));
            assert_eq!((grid.registers, grid.shared, grid.program), (40, 0x4000, 0x12_3456_7800));
            let bank = Bank { address: 0x2_0000_0140, size: 0x210, invalidate: false };
            assert_eq!(grid.banks, [None, Some(bank), None, None, None, None, None, None]);
            assert_eq!((grid.releases.len(), grid.dependents.len()), (0, 0));
        }
    }

    #[test]
    fn queues_run_nothing() {
        for layout in ALL {
            let queue = match layout.kind {
                Kind::IsQueue(bits) => ordinary(layout).with(bits, 1),
                Kind::Type(bits) => ordinary(layout).with(bits, 0),
            };
            assert_eq!(Grid::of(&queue, layout).unwrap().asked, Asked::Nothing, "{:?}", layout.version);
        }
    }

    #[test]
    fn blocks_of_a_cooperative_launch_are_counted_by_clusters() {
        let Kind::Type(kind) = V4_0.kind else { panic!("version 4.0 has types") };
        let [width, height, depth] = V4_0.gpu_cluster.unwrap();
        let [x, y, z] = V4_0.grid;
        let launch = ordinary(&V4_0).with(x, 2).with(y, 1).with(z, 1).with(width, 24).with(height, 1);
        let together = Grid::of(&launch.with(depth, 1).with(kind, GRID_GPU_CGA), &V4_0).unwrap();
        assert_eq!((together.asked, together.grid, together.cluster), (Asked::Together, [48, 1, 1], [1; 3]));
        let Kind::Type(kind) = V5_0.kind else { panic!("version 5.0 has types") };
        for number in [GRID_GPU_CGA, GRID_GPU_GPC_CGA] {
            let asked = Grid::of(&ordinary(&V5_0).with(kind, number), &V5_0).unwrap().asked;
            assert_eq!(asked, Asked::Unknown(number), "its sizes of clusters are not known");
        }
    }

    #[test]
    fn releases_come_in_order_with_their_form() {
        for layout in [V2_3, V3_0, V4_0, V5_0] {
            let mut qmd = ordinary(&layout);
            for (fields, address) in layout.releases.iter().zip([0x1000_u64, 0x2_0000_0020, 0x30]) {
                let [reduce, operation, _] = fields.reduction;
                qmd = qmd
                    .with(fields.enable, 1)
                    .with_number(fields.address, address)
                    .with_number(fields.payload, 7)
                    .with(fields.structure_size, 1)
                    .with(reduce, 1)
                    .with(operation, 2);
            }
            let releases = Grid::of(&qmd, &layout).unwrap().releases;
            assert_eq!(releases.len(), layout.releases.len());
            let second = releases[1];
            assert_eq!(
                (second.address, second.payload, second.size),
                (0x2_0000_0020, 7, ReleaseSize::OneWord)
            );
            assert_eq!(second.reduction, Some((2, false)));
        }
    }

    #[test]
    fn a_dependent_block_is_scheduled_unless_the_block_says_else() {
        let [dependent] = V2_2.dependents else { panic!("one") };
        let qmd = ordinary(&V2_2).with(dependent.enable, 1).with(dependent.pointer, 0x12_3456);
        let expected = Dependent { address: 0x1234_5600, action: Action::Schedule };
        assert_eq!(Grid::of(&qmd, &V2_2).unwrap().dependents, [expected]);

        let [_, second] = V4_0.dependents else { panic!("two") };
        let action = second.action.unwrap();
        let qmd = ordinary(&V4_0).with(second.enable, 1).with(second.pointer, 1).with(action, 4);
        let expected = Dependent { address: 0x100, action: Action::DecrementDependence };
        assert_eq!(Grid::of(&qmd, &V4_0).unwrap().dependents, [expected]);
        let unknown = Reserved { field: "DEPENDENT_QMD_ACTION", value: 5 };
        assert_eq!(Grid::of(&qmd.with(action, 5), &V4_0), Err(unknown));
    }

    #[test]
    fn a_program_offset_is_added() {
        let offset = V2_2.program_offset.unwrap();
        let qmd = ordinary(&V2_2).with(offset, 0x300);
        assert_eq!(Grid::of(&qmd, &V2_2).unwrap().program, 0x12_3456_7b00);
    }
}
