//! What nouveau does with falcons, register by register (nvkm/falcon/{gm200,ga102}.c,
//! subdev/gsp/{fwsec,tu102}.c).

use super::super::Gpu;
use super::super::RAM;
use super::super::gsp_queues::LIBOS;
use crate::gsp_face::hal::{Boot, Descriptor};

/// Where things lie in the guest's memory.
const IMAGE: u64 = 0x10_0000;
const BOOTER: u64 = 0x12_0000;
const META: u64 = 0x14_0000;
const SUSPENDED: u64 = 0x16_0000;

const GSP: u32 = 0x11_0000;
const SEC2: u32 = 0x84_0000;

pub struct Falcons<'a> {
    gpu: &'a Gpu,
    descriptor: Descriptor,
}

/// The description of GSP's image, as far as numbers in it matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    pub heap: u64,
    pub heap_size: u64,
    pub wpr_start: u64,
    pub frts_offset: u64,
    pub frts_size: u64,
    pub wpr_end: u64,
}

impl Meta {
    pub const ADDRESS: u64 = RAM + META;
}

impl<'a> Falcons<'a> {
    /// Writes a description of an image, too.
    pub fn new(gpu: &'a Gpu) -> Self {
        let Boot::Falcons(boot) = gpu.function.hal().boot else { panic!("FSP boots this chip") };
        let falcons = Self { gpu, descriptor: boot.fwsec };
        let put = |at: u64, value: u64| gpu.back.put_ram(META + at, &value.to_le_bytes());
        if falcons.word64(META) == 0 {
            let frts = u64::from(falcons.frts_page()) << 12;
            put(0, 0xdc3a_ae21_371a_60b3);
            put(8, 1);
            put(0x60, frts - 0x40_0000);
            put(0x68, 0x10_0000);
            put(0x70, frts - 0x30_0000);
            put(0x98, frts);
            put(0xa0, 0x10_0000);
            put(0xa8, frts + 0x10_0000);
        }
        falcons
    }

    pub fn meta(&self) -> Meta {
        let word = |at| self.word64(META + at);
        Meta {
            heap: word(0x60),
            heap_size: word(0x68),
            wpr_start: word(0x70),
            frts_offset: word(0x98),
            frts_size: word(0xa0),
            wpr_end: word(0xa8),
        }
    }

    /// All of it, which must be well.
    pub fn boot(&self) {
        assert_eq!((self.frts(), self.frts_error()), (0, 0));
        self.prepare_gsp(RAM + LIBOS);
        assert_eq!(self.booter(Meta::ADDRESS), 0);
    }

    /// The first page of a region of 1 MiB below the last MiB of VRAM.
    pub fn frts_page(&self) -> u32 {
        ((super::super::VRAM - (2 << 20)) >> 12) as u32
    }

    /// FWSEC's command FRTS: the mailbox.
    pub fn frts(&self) -> u32 {
        self.fwsec(0x15, &[self.frts_page(), 0x100, 2])
    }

    /// FWSEC's command SB: the mailbox.
    pub fn sb(&self) -> u32 {
        self.fwsec(0x19, &[])
    }

    /// Has FWSEC run with this command and this region.
    pub fn fwsec(&self, command: u32, region: &[u32]) -> u32 {
        let image = self.patched(command, region);
        self.load_fwsec(&image);
        self.start_gsp()
    }

    /// FWSEC from the VBIOS, code and data, with a command in it. Nouveau's reading of the ROM has tests of
    /// its own.
    pub fn patched(&self, command: u32, region: &[u32]) -> Vec<u8> {
        let rom: Vec<u8> =
            (0..0x300).flat_map(|word| self.gpu.rd(0x30_0000 + 4 * word).to_le_bytes()).collect();
        let u32_at =
            |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let desc = u32_at(&rom, u32_at(&rom, 0x108) + 8);
        let start = desc + (u32_at(&rom, desc) >> 16);
        let v2 = self.descriptor == Descriptor::V2;
        let (interfaces, imem, dmem) = match v2 {
            true => (u32_at(&rom, desc + 0x10), u32_at(&rom, desc + 0x18), u32_at(&rom, desc + 0x30)),
            false => (u32_at(&rom, desc + 0xc), u32_at(&rom, desc + 0x14), u32_at(&rom, desc + 0x20)),
        };
        let mut image = rom[start..start + imem + dmem].to_vec();
        let data = &mut image[imem..];
        let mapper = u32_at(data, interfaces + 8);
        let mut put = |at: usize, word: u32| data[at..at + 4].copy_from_slice(&word.to_le_bytes());
        put(mapper + 0x2c, command);
        let buffer = 0x200;
        for (at, word) in (buffer..).step_by(4).zip([1, 24, 0, 0, 0, 2]) {
            put(at, word);
        }
        for (at, word) in (buffer + 24..).step_by(4).zip([1, 20].into_iter().chain(region.iter().copied())) {
            put(at, word);
        }
        assert_eq!(u32_at(data, mapper + 8), buffer);
        image
    }

    /// Resets GSP's falcon and loads FWSEC into it.
    pub fn load_fwsec(&self, image: &[u8]) {
        self.reset(GSP);
        self.gpu.back.put_ram(IMAGE, image);
        self.dma_setup(GSP);
        match self.descriptor {
            Descriptor::V2 => {
                self.gpu.wr(GSP + 0x180, 1 << 24 | 0xff00);
                self.gpu.wr(GSP + 0x188, 0xfd);
                (0..64).for_each(|word| self.gpu.wr(GSP + 0x184, word));
                self.gpu.wr(GSP + 0x600 + 4, 5);
                let mut desc = [0u32; 21];
                desc[8] = 1;
                let (code, data) = (RAM + IMAGE, RAM + IMAGE + 0x100);
                (desc[9], desc[10]) = (code as u32, (code >> 32) as u32);
                (desc[16], desc[17], desc[18]) =
                    (data as u32, (data >> 32) as u32, (image.len() - 0x100) as u32);
                self.gpu.wr(GSP + 0x1c0, 1 << 24);
                desc.into_iter().for_each(|word| self.gpu.wr(GSP + 0x1c4, word));
            }
            Descriptor::V3 => {
                self.dma(GSP, IMAGE, 0x614, 0, 0, 0x100);
                self.dma(GSP, IMAGE, 0x600, 0x100, 0, image.len() as u32 - 0x100);
            }
        }
    }

    /// Starts GSP's falcon, which must halt: its first mailbox.
    pub fn start_gsp(&self) -> u32 {
        self.start(GSP, 0)
    }

    /// Resets GSP, and leaves its arguments.
    pub fn prepare_gsp(&self, libos: u64) {
        self.reset(GSP);
        if self.descriptor == Descriptor::V3 {
            self.gpu.wr(GSP + 0x1668, 0x111);
            assert_eq!(self.gpu.rd(GSP + 0x1668), 0x111);
        }
        self.gpu.wr(GSP + 0x40, libos as u32);
        self.gpu.wr(GSP + 0x44, (libos >> 32) as u32);
    }

    /// Has the booter run: its first mailbox.
    pub fn booter(&self, mailboxes: u64) -> u32 {
        self.load_booter();
        self.start_booter(mailboxes)
    }

    pub fn load_booter(&self) {
        self.reset(SEC2);
        self.gpu.back.put_ram(BOOTER, &[0x5a; 0x400]);
        self.dma_setup(SEC2);
        match self.descriptor {
            Descriptor::V2 => {
                self.gpu.wr(SEC2 + 0x180, 1 << 28 | 1 << 24);
                (0..64).for_each(|_| self.gpu.wr(SEC2 + 0x184, 0x5a5a_5a5a));
                self.gpu.wr(SEC2 + 0x1c0, 1 << 24);
                (0..128).for_each(|_| self.gpu.wr(SEC2 + 0x1c4, 0x5a5a_5a5a));
            }
            Descriptor::V3 => {
                self.dma(SEC2, BOOTER, 0x614, 0x100, 0x100, 0x100);
                self.dma(SEC2, BOOTER, 0x600, 0x200, 0, 0x200);
            }
        }
    }

    pub fn start_booter(&self, mailboxes: u64) -> u32 {
        self.gpu.wr(SEC2 + 0x44, (mailboxes >> 32) as u32);
        self.start(SEC2, mailboxes as u32)
    }

    /// Memory for a suspended GSP, in three levels of tables: the bus address of what names it.
    pub fn suspend_memory(&self) -> u64 {
        let put = |at: u64, value: u64| self.gpu.back.put_ram(at, &value.to_le_bytes());
        put(SUSPENDED, 0x8a3b_b9e6_c6c3_9d93);
        put(SUSPENDED + 8, 2);
        put(SUSPENDED + 0x10, RAM + SUSPENDED + 0x1000);
        put(SUSPENDED + 0x18, 0x8000);
        put(SUSPENDED + 0x1000, RAM + SUSPENDED + 0x2000);
        put(SUSPENDED + 0x2000, RAM + SUSPENDED + 0x3000);
        for page in 0..8 {
            put(SUSPENDED + 0x3000 + 8 * page, RAM + SUSPENDED + 0x4000 + 0x1000 * page);
        }
        RAM + SUSPENDED
    }

    pub fn reset(&self, base: u32) {
        let gpu = self.gpu;
        assert_ne!(gpu.rd(base + 0xf4) & 1 << 31, 0);
        gpu.wr(base + 0x3c0, 1);
        gpu.wr(base + 0x3c0, 0);
        if self.descriptor == Descriptor::V3 && gpu.rd(base + 0x1668) & 0x10 != 0 {
            gpu.wr(base + 0x1668, 0);
            assert_ne!(gpu.rd(base + 0x1668) & 1, 0);
        }
        assert_eq!((gpu.rd(base + 0xf4) & 1 << 12, gpu.rd(base + 0x10c) & 6), (0, 0));
        gpu.wr(base + 0x84, gpu.rd(0));
        assert_eq!((gpu.rd(base + 0x12c), gpu.rd(base + 0x108)), (0x1106, 0x2_0100));
    }

    pub fn wpr2(&self) -> (u32, u32) {
        (self.gpu.rd(0x1f_a824), self.gpu.rd(0x1f_a828))
    }

    pub fn frts_error(&self) -> u32 {
        self.gpu.rd(0x1438) >> 16
    }

    pub fn sb_error(&self) -> u32 {
        self.gpu.rd(0x1454) & 0xffff
    }

    pub fn core_is_active(&self) -> bool {
        match self.descriptor {
            Descriptor::V2 => self.gpu.rd(0x11_1240) & 1 != 0,
            Descriptor::V3 => self.gpu.rd(0x11_1388) & 0x80 != 0,
        }
    }

    /// Transfers of 256 bytes into a falcon's memory.
    pub fn dma(&self, base: u32, image: u64, command: u32, from: u32, to: u32, size: u32) {
        let address = RAM + image;
        self.gpu.wr(base + 0x110, (address >> 8) as u32);
        self.gpu.wr(base + 0x128, (address >> 40) as u32);
        for at in (0..size).step_by(256) {
            self.gpu.wr(base + 0x114, to + at);
            self.gpu.wr(base + 0x11c, from + at);
            self.gpu.wr(base + 0x118, command);
            assert_ne!(self.gpu.rd(base + 0x118) & 2, 0);
        }
    }

    pub fn dma_setup(&self, base: u32) {
        self.gpu.wr(base + 0x624, 0x80);
        self.gpu.wr(base + 0x10c, 0);
        self.gpu.wr(base + 0x600, 5);
    }

    fn start(&self, base: u32, mailbox: u32) -> u32 {
        let gpu = self.gpu;
        if self.descriptor == Descriptor::V3 {
            for (at, value) in [(0x1210, 0x10), (0x119c, 0x400), (0x1198, 9), (0x1180, 1)] {
                gpu.wr(base + at, value);
            }
            assert_eq!((gpu.rd(0x82_41c0 + 32), gpu.rd(0x82_4140 + 8)), (0, 0));
        }
        gpu.wr(base + 0x40, mailbox);
        gpu.wr(base + 0x104, 0);
        gpu.wr(base + 0x100, 2);
        if base == SEC2 || !self.core_is_active() {
            assert_ne!(gpu.rd(base + 0x100) & 0x10, 0);
        }
        gpu.rd(base + 0x40)
    }

    fn word64(&self, offset: u64) -> u64 {
        u64::from_le_bytes(self.gpu.back.ram(offset, 8).try_into().unwrap())
    }
}
