//! What a launch puts into memory and into the command stream.

use gpuvmk_chip::qmd::layout::Layout;
use gpuvmk_chip::qmd::{self, Qmd};

use crate::target::Target;
use crate::{CODE_ALIGNMENT, Kernel};

/// Class HOPPER_COMPUTE_A.
pub const CLASS: u32 = 0xcbc0;

/// SET_OBJECT, of every class.
pub const SET_OBJECT: u16 = 0x0000;
/// WAIT_FOR_IDLE, of every class.
pub const WAIT_FOR_IDLE: u16 = 0x0110;
/// NVCBC0_INVALIDATE_SHADER_CACHES.
pub const INVALIDATE_SHADER_CACHES: u16 = 0x021c;
/// NVCBC0_SET_SHADER_SHARED_MEMORY_WINDOW_A and _B.
pub const SET_SHADER_SHARED_MEMORY_WINDOW_A: u16 = 0x02a0;
/// NVCBC0_SEND_PCAS_A: address of the QMD, shifted by 8.
pub const SEND_PCAS_A: u16 = 0x02b4;
/// NVC5C0_SEND_SIGNALING_PCAS_B: INVALIDATE and SCHEDULE.
pub const SEND_SIGNALING_PCAS_B: u16 = 0x02bc;
/// NVCBC0_SEND_SIGNALING_PCAS2_B: the action.
pub const SEND_SIGNALING_PCAS2_B: u16 = 0x02c0;
/// NVCBC0_SET_SHADER_LOCAL_MEMORY_WINDOW_A and _B.
pub const SET_SHADER_LOCAL_MEMORY_WINDOW_A: u16 = 0x07b0;

/// API_VISIBLE_CALL_LIMIT_NO_CHECK.
const NO_CHECK: u64 = 1;
/// CWD_MEMBAR_TYPE_L1_SYSMEMBAR.
const L1_SYSMEMBAR: u64 = 1;

/// Bits between constant banks' fields.
const BANK_STRIDE: u16 = 64;

/// Threads of a warp; what an SM of Hopper has room for (CUDA C++ Programming Guide, "Compute Capabilities").
const WARP: u32 = 32;
const MOST_THREADS: u64 = 2048;
const MOST_BLOCKS: u64 = 32;
const MOST_REGISTERS: u64 = 1 << 16;

/// Windows of the generic address space for shared and local memory: where no mapping is.
pub const SHARED_WINDOW: u64 = 0x7294_0000_0000;
/// See above.
pub const LOCAL_WINDOW: u64 = 0x7293_0000_0000;

/// Bytes of constant bank 0 that a launch uses.
pub const CONSTANTS_SIZE: u32 = 0x400;

/// Alignment of constant bank 0.
pub const CONSTANTS_ALIGNMENT: u64 = 64;

/// A grid or a block: width, height, depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size3(pub u32, pub u32, pub u32);

/// Where the three parts of a launch lie, as GPU virtual addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The kernel's code.
    pub code: u64,
    /// Constant bank 0.
    pub constants: u64,
    /// The QMD.
    pub qmd: u64,
}

/// Why a launch cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchError {
    /// An address that is unaligned or beyond what its field holds.
    Address(u64),
    /// More parameters than constant bank 0 has room for here, or fewer than the kernel reads.
    Parameters,
    /// More shared memory than an SM has.
    SharedMemory,
}

/// A launch: bytes for memory, methods for the command stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Constant bank 0.
    pub constants: Vec<u8>,
    /// The QMD.
    pub qmd: Qmd,
    /// Methods and their data.
    pub methods: Vec<(u16, u32)>,
}

/// Methods that a channel needs once, after SET_OBJECT.
pub fn set_up() -> Vec<(u16, u32)> {
    let [shared, local] = [SHARED_WINDOW, LOCAL_WINDOW].map(halves);
    vec![
        (SET_SHADER_SHARED_MEMORY_WINDOW_A, shared.1),
        (SET_SHADER_SHARED_MEMORY_WINDOW_A + 4, shared.0),
        (SET_SHADER_LOCAL_MEMORY_WINDOW_A, local.1),
        (SET_SHADER_LOCAL_MEMORY_WINDOW_A + 4, local.0),
        (INVALIDATE_SHADER_CACHES, 1 | 1 << 4 | 1 << 12),
    ]
}

/// Makes a launch of `kernel` with `parameters` as the kernel's signature lays them out.
///
/// # Errors
/// See [`LaunchError`].
pub fn launch(
    kernel: &Kernel,
    place: Place,
    grid: Size3,
    block: Size3,
    parameters: &[u8],
) -> Result<Launch, LaunchError> {
    let aligned = |address: u64, alignment: u64, bits: u32| {
        if address.is_multiple_of(alignment) && address >> bits == 0 {
            Ok(())
        } else {
            Err(LaunchError::Address(address))
        }
    };
    aligned(place.code, CODE_ALIGNMENT, 57)?;
    aligned(place.constants, CONSTANTS_ALIGNMENT, 57)?;
    aligned(place.qmd, qmd::ALIGNMENT, 40)?;
    let constants = constants(kernel, grid, block, parameters)?;
    let target = kernel.target;
    let config = shared_config(target, kernel.shared).ok_or(LaunchError::SharedMemory)?;
    let largest = target.shared_configs.last().map_or(0, |kib| shared_field(*kib));
    let layout = target.layout;
    let [min, wanted, max] = layout.shared_config;
    let mut qmd = Qmd::new(layout)
        .with(target.group_id, 0x3f)
        .with(layout.call_limit, NO_CHECK)
        .with(layout.sass_version, target.sass_version())
        .with(layout.membar, L1_SYSMEMBAR)
        .with_number(layout.shared, u64::from(kernel.shared.next_multiple_of(128)))
        .with(min, config)
        .with(wanted, config)
        .with(max, largest)
        .with(layout.registers, kernel.registers.into())
        .with(layout.barriers, kernel.barriers.into())
        .with_number(layout.program, place.code)
        .with(layout.banks.valid.0, 1)
        .with(layout.banks.invalidate.0, 1)
        .with_number(layout.banks.address, place.constants)
        .with(layout.banks.size, u64::from(CONSTANTS_SIZE >> 4));
    for (fields, size) in [(layout.grid, grid), (layout.block, block)] {
        for (field, value) in fields.into_iter().zip([size.0, size.1, size.2]) {
            qmd = qmd.with(field, value.into());
        }
    }
    for cache in layout.invalidate {
        qmd = qmd.with(cache, 1);
    }
    let methods = vec![(SEND_PCAS_A, halves(place.qmd >> 8).0), target.signal];
    Ok(Launch { constants, qmd, methods })
}

/// Gives a launch a constant bank of so many bytes, a multiple of 16.
#[must_use]
pub fn with_bank(qmd: Qmd, layout: &Layout, number: u16, address: u64, size: u64) -> Qmd {
    let banks = layout.banks;
    let mut place = banks.address;
    place.lower = place.lower.element(number, BANK_STRIDE);
    place.upper = place.upper.map(|bits| bits.element(number, BANK_STRIDE));
    qmd.with(banks.valid.0.element(number, banks.valid.1), 1)
        .with(banks.invalidate.0.element(number, banks.invalidate.1), 1)
        .with_number(place, address)
        .with(banks.size.element(number, BANK_STRIDE), size >> 4)
}

/// Configures an SM with shared memory for as many blocks of a kernel as it runs at once: by their threads,
/// registers and shared memory.
#[must_use]
pub fn with_room_for_blocks(qmd: Qmd, kernel: &Kernel, threads: u32) -> Qmd {
    let threads = u64::from(threads.max(1).next_multiple_of(WARP));
    let registers = u64::from(kernel.registers.max(1).next_multiple_of(8)) * threads;
    let blocks = (MOST_THREADS / threads).min(MOST_REGISTERS / registers).clamp(1, MOST_BLOCKS);
    let bytes = u64::from(kernel.shared.next_multiple_of(128)) * blocks;
    let configs = kernel.target.shared_configs;
    let fits = configs.iter().find(|kib| **kib * 1024 >= bytes).or(configs.last());
    let [_, wanted, _] = kernel.target.layout.shared_config;
    qmd.with(wanted, fits.map_or(0, |kib| shared_field(*kib)))
}

/// Constant bank 0: block and grid dimensions first, parameters where the target has them. The rest is 0:
/// kernels without a stack and without generic addresses read nothing else of it but a memory descriptor,
/// which may be 0.
fn constants(kernel: &Kernel, grid: Size3, block: Size3, parameters: &[u8]) -> Result<Vec<u8>, LaunchError> {
    let mut bytes = vec![0; CONSTANTS_SIZE as usize];
    let dimensions = [block.0, block.1, block.2, grid.0, grid.1, grid.2];
    for (place, word) in bytes.chunks_exact_mut(4).zip(dimensions) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let first = kernel.target.parameters as usize;
    let place = bytes.get_mut(first..first + parameters.len()).ok_or(LaunchError::Parameters)?;
    if first + parameters.len() < kernel.constants as usize {
        return Err(LaunchError::Parameters);
    }
    place.copy_from_slice(parameters);
    Ok(bytes)
}

/// The smallest configuration of an SM that a block fits into.
fn shared_config(target: &Target, bytes: u32) -> Option<u64> {
    let fits = |kib: &&u64| **kib * 1024 >= u64::from(bytes);
    target.shared_configs.iter().find(fits).map(|kib| shared_field(*kib))
}

/// A configuration as the fields of the QMD name it: 4 KiB units, plus one.
const fn shared_field(kib: u64) -> u64 {
    kib / 4 + 1
}

/// Low and high word.
fn halves(value: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

/// Parameters of a kernel, laid out as C lays out a struct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(Vec<u8>);

impl Parameters {
    /// Appends a pointer.
    #[must_use]
    pub fn pointer(mut self, address: u64) -> Self {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self.0.extend(address.to_le_bytes());
        self
    }

    /// Appends a 32-bit word.
    #[must_use]
    pub fn word(mut self, word: u32) -> Self {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.0.extend(word.to_le_bytes());
        self
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SM75, SM90, target};

    const PLACE: Place = Place { code: 0x10_0000, constants: 0x20_0040, qmd: 0x30_0100 };

    #[test]
    fn a_grid_is_described_for_the_distributor() {
        let parameters = Parameters::default().pointer(1).pointer(2).pointer(3).word(1000);
        let launch =
            launch(&SM90.vector_add, PLACE, Size3(4, 1, 1), Size3(256, 1, 1), parameters.bytes()).unwrap();
        let words = launch.qmd.words();
        assert_eq!((words[0] >> 23 & 7, words[18] >> 4 & 0xf), (2, 4));
        assert_eq!((words[32], words[33] & 0xffff, words[34] & 0xffff), (4, 1, 1));
        assert_eq!((words[36] & 0xffff, words[38], words[48]), (256, 0x10_0000, 0x20_0040 >> 6));
        assert_eq!(launch.methods[0], (SEND_PCAS_A, 0x3001));
        assert_eq!(launch.constants[0x210 + 24..][..4], 1000u32.to_le_bytes());
        assert_eq!(launch.constants[..4], 256u32.to_le_bytes());
        assert_eq!(launch.constants[12..16], 4u32.to_le_bytes());
    }

    #[test]
    fn turing_has_its_own_block_constants_and_method() {
        let parameters = Parameters::default().pointer(1).word(1000).word(2);
        let launch = launch(&SM75.spin, PLACE, Size3(4, 1, 1), Size3(256, 1, 1), parameters.bytes()).unwrap();
        let words = launch.qmd.words();
        assert_eq!((words[18] & 0xff, words[12], words[48]), (0x23, 4, 0x10_0000));
        assert_eq!(launch.constants[0x160 + 8..][..4], 1000u32.to_le_bytes());
        assert_eq!(launch.methods[1], (SEND_SIGNALING_PCAS_B, 3));
    }

    #[test]
    fn shared_memory_gets_the_smallest_configuration() {
        let shared_config = |bytes| shared_config(&target::SM90, bytes);
        assert_eq!(shared_config(0), Some(3));
        assert_eq!(shared_config(SM90.matrix_product.shared), Some(3));
        assert_eq!(shared_config(9 << 10), Some(5));
        assert_eq!(shared_config(300 << 10), None);
    }

    #[test]
    fn wanted_shared_memory_is_that_of_all_blocks_that_run_at_once() {
        let wanted = |shared, registers, threads| {
            let kernel = Kernel { shared, registers, ..SM90.spin };
            let qmd = with_room_for_blocks(Qmd::new(kernel.target.layout), &kernel, threads);
            qmd.get(kernel.target.layout.shared_config[1])
        };
        // Eight blocks of 256 threads, or two by their registers; 32 of 32; one of what is more than there
        // is.
        assert_eq!(wanted(3 << 10, 32, 256), shared_field(32));
        assert_eq!(wanted(9 << 10, 128, 256), shared_field(32));
        assert_eq!(wanted(4 << 10, 16, 32), shared_field(132));
        assert_eq!(wanted(200 << 10, 32, 256), shared_field(228));
        assert_eq!(wanted(0, 32, 256), shared_field(8));
    }

    #[test]
    fn constant_bank_has_place_size_and_is_valid() {
        let layout = SM90.spin.target.layout;
        let qmd = with_bank(Qmd::new(layout), layout, 3, 0x1_2345_6780, 0x240);
        let banks = layout.banks;
        assert!(qmd.is_set(banks.valid.0.element(3, banks.valid.1)) && !qmd.is_set(banks.valid.0));
        assert_eq!(qmd.get(banks.size.element(3, BANK_STRIDE)), 0x24);
    }

    #[test]
    fn bad_places_and_parameters_are_refused() {
        let at = |place| launch(&SM90.spin, place, Size3(1, 1, 1), Size3(32, 1, 1), &[0; 16]);
        assert!(at(PLACE).is_ok());
        assert_eq!(at(Place { qmd: 0x80, ..PLACE }), Err(LaunchError::Address(0x80)));
        assert_eq!(at(Place { qmd: 1 << 40, ..PLACE }), Err(LaunchError::Address(1 << 40)));
        let short = launch(&SM90.spin, PLACE, Size3(1, 1, 1), Size3(32, 1, 1), &[0; 8]);
        assert_eq!(short, Err(LaunchError::Parameters));
        let long = launch(&SM90.spin, PLACE, Size3(1, 1, 1), Size3(32, 1, 1), &[0; 4096]);
        assert_eq!(long, Err(LaunchError::Parameters));
    }
}
