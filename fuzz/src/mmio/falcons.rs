//! A guest's GPU whose GSP is booted by falcons: a Turing or an Ada. Firmware gets into them by ports and by
//! DMA, more or less right; FWSEC and the booter run; GSP is spoken to in either version.

use gpuvmk::chip::Chip;
use gpuvmk::chip::gsp::{AD104, GspChip, TU106};
use gpuvmk::chip::registers::RegisterDef;
use gpuvmk::gsp::{abi, hal};

use super::world::{BASE, RAM_BYTES, VRAM, World};
use super::{Driver, run as run_chip};
use crate::gsp::rpc;
use crate::gsp_queues::{self, LIBOS, Queues, Ram as _};
use crate::input::Input;

/// Where things lie in system memory, behind what GSP's queues take: an image, what describes GSP's, and what
/// names a suspended one.
const IMAGE: u64 = gsp_queues::RAM_BYTES;
const META: u64 = IMAGE + 0x1000;
const SUSPENDED: u64 = META + 0x1000;
/// Units, and their registers.
const UNITS: [u32; 2] = [GSP, SEC2];
const GSP: u32 = 0x11_0000;
const SEC2: u32 = 0x84_0000;
const MAILBOXES: [u32; 2] = [0x40, 0x44];
const START: u32 = 0x100;
const DMA_BASE: u32 = 0x110;
const DMA_TO: u32 = 0x114;
const DMA_COMMAND: u32 = 0x118;
const DMA_FROM: u32 = 0x11c;
const DMA_BASE_HIGH: u32 = 0x128;
const DMEM: [u32; 2] = [0x1c0, 0x1c4];
const IMEM: [u32; 2] = [0x180, 0x184];
const RESET: u32 = 0x3c0;
const DMA_TARGETS: u32 = 0x600;
const CORE: u32 = 0x1668;
const GSP_QUEUE_HEAD: u32 = 0x11_0c00;
/// Commands of FWSEC: FRTS and SB.
const FRTS: u32 = 0x15;
const SB: u32 = 0x19;
/// The protected region: first page, pages, that it is in VRAM.
const REGION: [u32; 3] = [0xe00, 0x100, 2];
/// Places in FWSEC's data that mean something: its interfaces, the mapper, the command.
const DATA_PLACES: [usize; 9] = [0x1a0, 0x1a4, 0x1a8, 0x1b0, 0x1b8, 0x1dc, 0x220, 0x224, 0x228];
/// Numbers that say something there.
const DATA_WORDS: [u32; 8] = [0, 1, 2, 4, 0x1b0, 0x200, 0x2ff, u32::MAX];
const PLACES: &[u64] = &[0, 0x10_0000, VRAM - (2 << 20), VRAM - 0x10_0000, VRAM - 0x1000, VRAM];

struct Falcons {
    chip: &'static GspChip,
    /// Firmware gets into falcons by ports.
    by_ports: bool,
    driver: rpc::Driver,
    queues: Queues,
}

/// Lets a guest loose on one.
pub fn run(data: &[u8]) {
    let how = data.first().copied().unwrap_or(0);
    let (chip, hal, registers) = match how & 0x10 {
        0 => (Chip::AD104, &hal::AD104, &AD104),
        _ => (Chip::TU106, &hal::TU106, &TU106),
    };
    let version = usize::from(how & 0x20 != 0) % abi::VERSIONS.len();
    let driver = rpc::Driver { abi: abi::VERSIONS[version], chip: hal };
    let by_ports = how & 0x10 != 0;
    run_chip(data, chip, &mut Falcons { chip: registers, by_ports, driver, queues: Queues::default() });
}

fn low(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).expect("32 bits")
}

/// FWSEC's data with a command.
fn fwsec(command: u32, region: [u32; 3]) -> Vec<u8> {
    let mut data = vec![0; 0x300];
    let mut put = |at: usize, words: &[u32]| {
        for (place, word) in data[at..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    };
    put(0x1a0, &[0x0108_0401, 4, 0x1b0]);
    put(0x1b0, &[u32::from_le_bytes(*b"PAMD"), 0x40 << 16 | 3, 0x200, 0x2c]);
    put(0x1dc, &[command]);
    put(0x200, &[1, 24, 0, 0, 0, 2, 1, 20]);
    put(0x220, &region);
    data
}

/// Describes GSP's image, or names memory for a suspended GSP.
fn describe(world: &World) {
    let frts = VRAM - (2 << 20);
    for (at, word) in [
        (0x00, 0xdc3a_ae21_371a_60b3),
        (0x08, 1),
        (0x60, frts - (4 << 20)),
        (0x68, 1 << 20),
        (0x70, frts - (3 << 20)),
        (0x98, frts),
        (0xa0, 1 << 20),
        (0xa8, frts + (1 << 20)),
    ] {
        world.put(META + at, &u64::to_le_bytes(word));
    }
    for (at, word) in [(0, 0x8a3b_b9e6_c6c3_9d93), (8, 2), (0x10, BASE + IMAGE), (0x18, 0x8000)] {
        world.put(SUSPENDED + at, &u64::to_le_bytes(word));
    }
}

impl Falcons {
    fn reset(&self, world: &World, unit: u32) {
        world.write_u32(unit + RESET, 1);
        world.write_u32(unit + RESET, 0);
        if !self.by_ports {
            world.write_u32(unit + CORE, 0);
        }
        world.write_u32(unit + DMA_TARGETS, 5);
        world.write_u32(unit + DMA_TARGETS + 4, 5);
    }

    fn start(world: &World, unit: u32, mailboxes: u64) {
        let [first, second] = MAILBOXES.map(|register| unit + register);
        world.write_u32(second, low(mailboxes >> 32));
        world.write_u32(first, low(mailboxes));
        world.write_u32(unit + START, 2);
        world.read_u32(first);
    }

    fn fill(world: &World, unit: u32, [port, data]: [u32; 2], at: u32, words: &[u32]) {
        world.write_u32(unit + port, 1 << 24 | at);
        words.iter().for_each(|word| world.write_u32(unit + data, *word));
    }

    fn transfer(world: &World, unit: u32, address: u64, command: u32, from: u32, to: u32) {
        world.write_u32(unit + DMA_BASE, low(address >> 8));
        world.write_u32(unit + DMA_BASE_HIGH, low(address >> 40));
        world.write_u32(unit + DMA_TO, to);
        world.write_u32(unit + DMA_FROM, from);
        world.write_u32(unit + DMA_COMMAND, command);
    }

    /// Code and data into a unit's falcon.
    fn load(&self, world: &World, unit: u32, data: &[u8]) {
        self.reset(world, unit);
        world.put(IMAGE, &[0x5a; 0x100]);
        world.put(IMAGE + 0x100, data);
        if self.by_ports {
            Self::fill(world, unit, IMEM, 0, &[0x5a5a_5a5a; 4]);
            let mut told = [0; 21];
            told[8] = 1;
            (told[9], told[10]) = (low(BASE + IMAGE), low((BASE + IMAGE) >> 32));
            (told[16], told[17]) = (low(BASE + IMAGE + 0x100), low((BASE + IMAGE) >> 32));
            told[18] = low(data.len() as u64);
            Self::fill(world, unit, DMEM, 0, &told);
        } else {
            Self::transfer(world, unit, BASE + IMAGE, 0x614, 0, 0);
            for at in (0..low(data.len() as u64)).step_by(0x100) {
                Self::transfer(world, unit, BASE + IMAGE, 0x600, 0x100 + at, at);
            }
        }
    }

    fn run_fwsec(&self, world: &World, data: &[u8]) {
        self.load(world, GSP, data);
        Self::start(world, GSP, 0);
    }

    /// Leaves GSP's arguments, and has the booter run.
    fn boot(&self, world: &World, arguments: u64, description: u64) {
        self.reset(world, GSP);
        for (register, word) in MAILBOXES.into_iter().zip([low(arguments), low(arguments >> 32)]) {
            world.write_u32(GSP + register, word);
        }
        self.load(world, SEC2, &[0x5a; 0x100]);
        Self::start(world, SEC2, description);
    }

    fn rpc(&mut self, world: &World, record: &[u8]) {
        self.queues.push(world, record);
        world.write_u32(GSP_QUEUE_HEAD, 0);
        self.queues.read_all(world);
    }
}

impl Driver for Falcons {
    fn prepare(&mut self, world: &World) {
        self.queues = Queues::prepare(world, BASE);
        describe(world);
        self.run_fwsec(world, &fwsec(FRTS, REGION));
        self.boot(world, BASE + LIBOS, BASE + META);
        assert_ne!(self.queues.messages(world), 0, "GSP does not come up");
        let hello = self.driver.hello(&self.queues);
        self.rpc(world, &hello);
        for record in rpc::channels(self.driver) {
            self.rpc(world, &record(&self.queues));
        }
    }

    fn act(&mut self, input: &mut Input<'_>, world: &World) {
        let unit = input.pick(&UNITS);
        match input.below(12) {
            0 => {
                let region = if input.flag() { REGION } else { [input.u32(), input.u32(), input.u32() % 4] };
                self.run_fwsec(world, &fwsec(input.pick(&[FRTS, SB, 0]), region));
            }
            1 => {
                let mut data = fwsec(FRTS, REGION);
                let at = input.pick(&DATA_PLACES);
                let word = if input.flag() { input.pick(&DATA_WORDS) } else { input.u32() };
                data[at..at + 4].copy_from_slice(&word.to_le_bytes());
                self.run_fwsec(world, &data);
            }
            2 => {
                let arguments = BASE.wrapping_add(input.near(&gsp_queues::PLACES));
                let description =
                    input.near(&[BASE + META, BASE + SUSPENDED, 0xff_0000_00ff, BASE + RAM_BYTES]);
                self.boot(world, arguments, description);
                self.queues.restart();
            }
            3 => {
                describe(world);
                let at = u64::from(input.u8());
                world.put(META + at, &input.u64().to_le_bytes());
            }
            4 | 5 => {
                let address = input.near(&[BASE + IMAGE, BASE, BASE + RAM_BYTES - 0x100, 0, VRAM, 1 << 48]);
                let command = input.pick(&[0x600, 0x614, 0x700, 0x620, 0x1600, 0]) | u32::from(input.u8());
                Self::transfer(world, unit, address, command, input.u32(), input.u32() & 0xff_ffff);
            }
            6 => {
                let port = input.pick(&[IMEM, DMEM]);
                Self::fill(world, unit, port, input.u32() & 0x1fff_fffc, &[input.u32(), 1, u32::MAX]);
            }
            7 => Self::start(world, unit, input.near(&[BASE + META, BASE + SUSPENDED, 0])),
            8 => self.reset(world, unit),
            9 => {
                let offset =
                    input.pick(&[0x1438, 0x1454, 0x1f_a824, 0x1f_a828, 0x11_1388, 0x11_1240, 0x30_0000]);
                world.read_u32(offset);
            }
            _ => {
                let record = rpc::record(input, &self.queues, self.driver);
                self.rpc(world, &record);
            }
        }
    }

    fn places(&self) -> &'static [u64] {
        PLACES
    }

    fn ram_places(&self) -> &'static [u64] {
        &[META, SUSPENDED, IMAGE, LIBOS]
    }

    fn tables(&self) -> &'static [&'static [RegisterDef]] {
        self.chip.tables
    }

    fn boot_0(&self) -> u32 {
        self.chip.boot_0
    }
}

const _: () = assert!((VRAM - (2 << 20)) >> 12 == 0xe00);
const _: () = assert!(SUSPENDED + 0x1000 <= RAM_BYTES);
