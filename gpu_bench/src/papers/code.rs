//! The programs' machine code, and what launches of it put into memory.

use anyhow::{Context as _, Result, ensure};
use gpuvmk_kernels::launch::{self, LOCAL_WINDOW, Place, Size3};
use gpuvmk_kernels::{CODE_ALIGNMENT, Kernel, SM90};
use gpuvmk_papers::{CUBIN, Launch};
use gpuvmk_shader::cubin::{Cubin, Placed};

/// Methods of a launch, each of which has one word of data.
pub(super) const METHODS_OF_LAUNCH: usize = 3;

/// Bytes of a QMD, and of code to which a kernel's are filled up.
const QMD_SIZE: usize = 0x200;
const CODE_STEP: usize = 0x100;
const _: () = assert!(CODE_STEP as u64 == CODE_ALIGNMENT);

/// What launches put into memory, and what is sent.
#[derive(Debug, Default)]
pub(super) struct Pushed {
    /// QMDs and constant banks.
    pub(super) bytes: Vec<u8>,
    /// Methods with their data.
    pub(super) methods: Vec<(u16, u32)>,
}

/// Machine code that lies at an address.
#[derive(Debug)]
pub(super) struct Code {
    cubin: Cubin,
    /// Where each kernel's begins.
    places: Vec<u64>,
}

impl Code {
    /// The programs' code, to lie there.
    pub(super) fn read(at: u64) -> Result<Self> {
        let cubin = Cubin::read(CUBIN).context("the programs' machine code")?;
        let mut next = at;
        let mut places = Vec::new();
        for kernel in &cubin.kernels {
            ensure!(!kernel.has_relocations && kernel.stack == 0, "{} needs more than code", kernel.name);
            places.push(next);
            next += (kernel.code.len() as u64).next_multiple_of(CODE_ALIGNMENT);
        }
        Ok(Self { cubin, places })
    }

    /// All of it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for kernel in &self.cubin.kernels {
            bytes.extend_from_slice(&kernel.code);
            bytes.resize(bytes.len().next_multiple_of(CODE_STEP), 0);
        }
        bytes
    }

    /// What launches have in memory from an address on, and the methods that launch them: each waits until
    /// what is before it has ended.
    pub(super) fn launches(&self, launches: &[Launch], at: u64) -> Result<Pushed> {
        let mut all = Pushed::default();
        for one in launches {
            let index = self.cubin.kernels.iter().position(|kernel| kernel.name == one.kernel);
            let index = index.with_context(|| format!("There is no kernel {}", one.kernel))?;
            let place = self.places.get(index).copied().unwrap_or_default();
            let Pushed { bytes, methods } = self
                .launch(index, place, one, at + all.bytes.len() as u64)
                .with_context(|| format!("a launch of {}", one.kernel))?;
            all.bytes.extend(bytes);
            all.methods.extend(methods);
        }
        Ok(all)
    }

    /// A QMD, and constant banks behind it.
    fn launch(&self, index: usize, code: u64, one: &Launch, at: u64) -> Result<Pushed> {
        let found = self.cubin.kernels.get(index).context("no kernel")?;
        let arguments = found.arguments(&one.arguments).context("other arguments than it takes")?;
        let placed = Placed {
            grid: one.grid,
            block: one.block,
            variables: 0,
            local_window: LOCAL_WINDOW,
            arguments: &arguments,
        };
        let kernel = Kernel {
            target: SM90.spin.target,
            name: one.kernel,
            code: &[],
            registers: found.registers,
            shared: found.shared,
            barriers: found.barriers,
            constants: 0,
        };
        let size = |[x, y, z]: [u32; 3]| Size3(x, y, z);
        let place = Place { code, constants: at + QMD_SIZE as u64, qmd: at };
        let made = launch::launch(&kernel, place, size(one.grid), size(one.block), &[]);
        let made = made.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let threads = one.block.iter().product();
        let mut qmd = launch::with_room_for_blocks(made.qmd, &kernel, threads);
        let mut banks = Vec::new();
        for (number, mut bank) in found.banks(&placed) {
            bank.resize(bank.len().next_multiple_of(64), 0);
            let address = at + (QMD_SIZE + banks.len()) as u64;
            let number = u16::try_from(number)?;
            qmd = launch::with_bank(qmd, kernel.target.layout, number, address, bank.len() as u64);
            banks.extend(bank);
        }
        let mut bytes: Vec<u8> = qmd.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        ensure!(bytes.len() <= QMD_SIZE, "a QMD of {} bytes", bytes.len());
        bytes.resize(QMD_SIZE, 0);
        bytes.extend(banks);
        bytes.resize(bytes.len().next_multiple_of(QMD_SIZE), 0);
        let [send, signal] = <[(u16, u32); 2]>::try_from(made.methods)
            .map_err(|methods| anyhow::anyhow!("{} methods launch it", methods.len()))?;
        Ok(Pushed { bytes, methods: vec![(launch::WAIT_FOR_IDLE, 0), send, signal] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_papers::{Area, PROGRAMS, Size};

    #[test]
    fn launches_lie_one_behind_the_other_and_wait_for_each_other() {
        const AT: u64 = 0x10_0010_0000;
        let code = Code::read(0x10_0000_0000).unwrap();
        assert!(code.bytes().len() < 1 << 20);
        for program in &PROGRAMS {
            let job = program.job(Size::Full);
            let areas: Vec<Area> =
                job.rooms.iter().map(|room| Area { address: 0x10_1000_0000, bytes: room.bytes }).collect();
            let launches = job.launches(&areas).unwrap();
            let Pushed { bytes, methods } = code.launches(&launches, AT).unwrap();
            assert!(bytes.len() < 3 << 20, "{}", program.name);
            assert_eq!(methods.len(), launches.len() * METHODS_OF_LAUNCH, "{}", program.name);
            for (number, sent) in methods.chunks(METHODS_OF_LAUNCH).enumerate() {
                assert_eq!(sent[0], (launch::WAIT_FOR_IDLE, 0));
                let qmd = u64::from(sent[1].1) << 8;
                let end = AT + bytes.len() as u64;
                assert!((AT..end).contains(&qmd), "{}, launch {number}", program.name);
                let at = usize::try_from(qmd - AT).unwrap();
                let word =
                    |index: usize| u32::from_le_bytes(bytes[at + index * 4..][..4].try_into().unwrap());
                // Grid, and constant bank 0 right behind the QMD with the same grid in it.
                assert_eq!(word(32), launches[number].grid[0]);
                assert_eq!(u64::from(word(48)) << 6, qmd + QMD_SIZE as u64);
                let bank = &bytes[at + QMD_SIZE..];
                assert_eq!(bank[0..4], launches[number].block[0].to_le_bytes());
                assert_eq!(bank[12..16], launches[number].grid[0].to_le_bytes());
                let last = launches[number].arguments.last().copied();
                let first = launches[number].arguments.first().copied();
                assert_eq!(first.is_none(), last.is_none());
                if let Some(first) = first {
                    assert_eq!(bank[0x210..0x218][..4], first.to_le_bytes()[..4]);
                }
            }
        }
    }

    #[test]
    fn wrong_arguments_and_kernels_are_refused() {
        let code = Code::read(0x10_0000_0000).unwrap();
        let refused = |kernel, arguments: &[u64]| {
            let launch = Launch { kernel, grid: [1; 3], block: [32, 1, 1], arguments: arguments.to_vec() };
            format!("{:#}", code.launches(&[launch], 0x10_0010_0000).unwrap_err())
        };
        assert!(refused("none", &[]).contains("no kernel none"));
        assert!(refused("loop", &[1]).contains("arguments"));
    }
}
