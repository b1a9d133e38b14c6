//! A guest's GPU whose GSP is booted by FSP: a GH100 or a Blackwell.

use gpuvmk::chip::gmmu::{Gmmu, Level, Pde, Pte};
use gpuvmk::chip::gsp::fsp::{
    COT_VERSION, COT_VERSION_2, CotMessage, FmcBootParams, MCTP_SINGLE_PACKET, NVDM_COT,
    TARGET_COHERENT_SYSTEM, TARGET_NONCOHERENT_SYSTEM, nvdm_header,
};
use gpuvmk::chip::gsp::regs::blackwell::NV_VIRTUAL_FUNCTION_DOORBELL_TOKEN as BLACKWELL_TOKEN;
use gpuvmk::chip::gsp::{GB203, GH100, GspChip};
use gpuvmk::chip::registers::RegisterDef;
use gpuvmk::chip::{Aperture, Chip, PhysicalAddress};
use gpuvmk::gsp::{abi, hal};
use zerocopy::{FromZeros, IntoBytes};

use super::world::{BASE, RAM_BYTES, VRAM, World};
use super::{Driver, run as run_chip};
use crate::bench::{RAM_VA, VRAM_VA};
use crate::gsp::rpc;
use crate::gsp_queues::{self, LIBOS, Queues, Ram as _};
use crate::input::Input;
use crate::pushbuffer::stream;

/// Boot parameters in system memory, before what GSP's queues take.
const PARAMETERS: u64 = 0x1000;
/// Where things lie in VRAM: tables, a page each, from the page directory that RPCs name.
const DIRECTORY: u64 = 0x20_0000;
const SMALL: u64 = DIRECTORY + 0x5000;
/// USERD of channel 0, which RPCs name; the others follow.
const USERDS: u64 = 0x10_0000;
/// The ring that RPCs name, as a virtual address.
const RING: u64 = 0x1_1000;
const PUSH: u64 = 0x12_0000;
const PLACES: &[u64] = &[
    DIRECTORY,
    DIRECTORY + 0x1000,
    DIRECTORY + 0x4000,
    SMALL,
    SMALL + 0x800,
    USERDS,
    RING,
    PUSH,
    0,
    VRAM - 0x10_0000,
    VRAM - 0x1000,
    VRAM,
];
/// Registers.
const FSP_EMEM_CONTROL: u32 = 0x8f_2ac0;
const FSP_EMEM_DATA: u32 = 0x8f_2ac4;
const FSP_QUEUE_HEAD: u32 = 0x8f_2c00;
const FSP_QUEUE_TAIL: u32 = 0x8f_2c04;
const FSP_MESSAGE_HEAD: u32 = 0x8f_2c80;
const FSP_MESSAGE_TAIL: u32 = 0x8f_2c84;
const GSP_QUEUE_HEAD: u32 = 0x11_0c00;
const INVALIDATE_PDB: u32 = 0xb8_30a0;
const INVALIDATE_UPPER_PDB: u32 = 0xb8_30a4;
const INVALIDATE: u32 = 0xb8_30b0;
const DOORBELL: u32 = 0xbb_0090;
const GP_PUT: u64 = 0x8c;

struct Fsp {
    chip: Chip,
    registers: &'static GspChip,
    driver: rpc::Driver,
    /// Version of the message that boots GSP.
    message_version: u16,
    /// Bits that a token has set.
    token: u32,
    queues: Queues,
    put: u32,
}

/// Lets a guest loose on a GH100.
pub fn gh100(data: &[u8]) {
    let mut driver = Fsp {
        chip: Chip::GH100,
        registers: &GH100,
        driver: rpc::Driver::usual(),
        message_version: COT_VERSION,
        token: 0,
        queues: Queues::default(),
        put: 0,
    };
    run_chip(data, driver.chip, &mut driver);
}

/// Lets a guest loose on a Blackwell.
pub fn blackwell(data: &[u8]) {
    let mut driver = Fsp {
        chip: Chip::GB203,
        registers: &GB203,
        driver: rpc::Driver { abi: abi::usual(), chip: &hal::GB203 },
        message_version: COT_VERSION_2,
        token: BLACKWELL_TOKEN::RUNLIST_DOORBELL.mask(),
        queues: Queues::default(),
        put: 0,
    };
    run_chip(data, driver.chip, &mut driver);
}

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

fn put(world: &World, at: u64, value: u64) {
    // What does not fit is not written.
    let _ = world.store(at, &value.to_le_bytes());
}

fn page(target: PhysicalAddress, read_only: bool) -> u64 {
    Gmmu::V3.encode_page(Pte { target, read_only, privileged: false, kind: 6 })
}

/// Tables for the first 16 MiB of addresses: VRAM from 0 on and from where streams expect it, and system
/// memory.
fn tables(world: &World) {
    for level in 0..4 {
        let table = DIRECTORY + level * 0x1000;
        put(world, table, Gmmu::V3.encode_pde(Pde::Table(vram(table + 0x1000))));
    }
    for index in 0..8 {
        let dual = Gmmu::V3.encode_tables(Pde::Invalid, Pde::Table(vram(SMALL + index * 0x1000)));
        let at = DIRECTORY + 0x4000 + index * 16;
        put(world, at, u64::try_from(dual & u128::from(u64::MAX)).expect("64 bits"));
        put(world, at + 8, u64::try_from(dual >> 64).expect("64 bits"));
    }
    let ram = PhysicalAddress { aperture: Aperture::SystemCoherent, address: BASE };
    for (va, target, size) in [(0, vram(0), VRAM_VA), (VRAM_VA, vram(0), 2 << 20), (RAM_VA, ram, RAM_BYTES)] {
        for offset in (0..size).step_by(0x1000) {
            let target = PhysicalAddress { address: target.address + offset, ..target };
            put(world, SMALL + (va + offset) / 0x1000 * 8, page(target, false));
        }
    }
}

/// Asks FSP to boot GSP.
fn boot(world: &World, version: u16, libos: u64) {
    let mut parameters = FmcBootParams::new_zeroed();
    parameters.rm_boot_target = TARGET_COHERENT_SYSTEM.into();
    parameters.is_rm_boot = 1.into();
    parameters.rm_target = TARGET_NONCOHERENT_SYSTEM.into();
    parameters.rm_arguments = libos.into();
    world.put(PARAMETERS, parameters.as_bytes());
    let mut message = CotMessage::new_zeroed();
    message.headers.mctp = MCTP_SINGLE_PACKET.into();
    message.headers.nvdm = nvdm_header(NVDM_COT).into();
    message.version = version.into();
    message.size = 860.into();
    message.boot_params = (BASE + PARAMETERS).into();
    send_fsp(world, message.as_bytes());
}

fn send_fsp(world: &World, message: &[u8]) {
    for (at, chunk) in (0u32..).step_by(256).zip(message.chunks(256)) {
        world.write_u32(FSP_EMEM_CONTROL, 1 << 24 | at);
        for word in chunk.as_chunks().0 {
            world.write_u32(FSP_EMEM_DATA, u32::from_le_bytes(*word));
        }
    }
    let tail = u32::try_from(message.len()).unwrap_or(0).saturating_sub(4);
    world.write_u32(FSP_QUEUE_TAIL, tail);
    world.write_u32(FSP_QUEUE_HEAD, 0);
    // The answer, unread.
    world.write_u32(FSP_MESSAGE_TAIL, 0);
    world.write_u32(FSP_MESSAGE_HEAD, 0);
}

fn invalidate(world: &World, directory: u64, command: u32) {
    let word = |value: u64| u32::try_from(value & 0xffff_ffff).expect("32 bits");
    world.write_u32(INVALIDATE_PDB, word(directory >> 12 << 4));
    world.write_u32(INVALIDATE_UPPER_PDB, word(directory >> 40));
    world.write_u32(INVALIDATE, command);
}

impl Fsp {
    fn rpc(&mut self, world: &World, record: &[u8]) {
        self.queues.push(world, record);
        world.write_u32(GSP_QUEUE_HEAD, 0);
        self.queues.read_all(world);
    }

    /// Puts a segment into the ring that all channels share, and rings one.
    fn submit(&mut self, input: &mut Input<'_>, world: &World) {
        let words = stream::words(input, self.chip);
        let push = PUSH + u64::from(self.put % 8) * 0x2000;
        for (at, word) in (push..).step_by(4).zip(&words) {
            let _ = world.store(at, &word.to_le_bytes());
        }
        put(world, RING + u64::from(self.put) * 8, stream::ring_entry(input, VRAM_VA + push, words.len()));
        self.put = (self.put + 1) % 1024;
        let chid = input.below(8);
        let _ = world.store(USERDS + u64::from(chid) * 0x200 + GP_PUT, &self.put.to_le_bytes());
        let _ = world.store(USERDS + GP_PUT, &self.put.to_le_bytes());
        let runlist = u32::from(input.below(4));
        world.write_u32(DOORBELL, self.token | runlist << 16 | u32::from(chid));
    }
}

impl Driver for Fsp {
    fn prepare(&mut self, world: &World) {
        tables(world);
        self.queues = Queues::prepare(world, BASE);
        boot(world, self.message_version, BASE + LIBOS);
        assert_ne!(self.queues.messages(world), 0, "GSP does not come up");
        for record in rpc::channels(self.driver) {
            self.rpc(world, &record(&self.queues));
        }
        invalidate(world, DIRECTORY, 1 << 31 | 1);
    }

    fn act(&mut self, input: &mut Input<'_>, world: &World) {
        match input.below(16) {
            0 => {
                let libos = if input.flag() { 0 } else { BASE.wrapping_add(input.near(&gsp_queues::PLACES)) };
                boot(world, self.message_version, libos);
                self.queues.restart();
            }
            1 => {
                let mut message = CotMessage::new_zeroed();
                let raw = message.as_mut_bytes();
                let at = usize::from(input.u16()) % raw.len();
                raw[at] = input.u8();
                let size = usize::from(input.u16()) % (raw.len() + 1);
                send_fsp(world, raw.get(..size).unwrap_or_default());
            }
            2..=5 => {
                let record = rpc::record(input, &self.queues, self.driver);
                self.rpc(world, &record);
            }
            6 | 7 => {
                let index = u64::from(input.u16()) % 0x1000;
                let aperture =
                    input.pick(&[Aperture::Vram, Aperture::SystemCoherent, Aperture::SystemNonCoherent]);
                let address =
                    input.near(&[0, VRAM - 0x1000, VRAM, BASE, BASE + RAM_BYTES, 0x100_0000]) & !0xfff;
                put(world, SMALL + index * 8, page(PhysicalAddress { aperture, address }, input.flag()));
                invalidate(world, DIRECTORY, 1 << 31 | 1);
            }
            8 => {
                let directory = input.near(&[DIRECTORY, VRAM - 0x10_0000, VRAM - 0xf_f000, 0, VRAM]);
                invalidate(world, directory, 1 << 31 | u32::from(input.u8()));
            }
            9 => world.write_u32(DOORBELL, input.u32()),
            10 => {
                let level = u64::from(input.below(5));
                let address = input.near(&[DIRECTORY, SMALL, 0, VRAM]) & !0xfff;
                put(world, DIRECTORY + level * 0x1000, Gmmu::V3.encode_pde(Pde::Table(vram(address))));
                invalidate(world, DIRECTORY, 1 << 31 | 1);
            }
            _ => self.submit(input, world),
        }
    }

    fn places(&self) -> &'static [u64] {
        PLACES
    }

    fn ram_places(&self) -> &'static [u64] {
        &gsp_queues::PLACES
    }

    fn tables(&self) -> &'static [&'static [RegisterDef]] {
        self.registers.tables
    }

    fn boot_0(&self) -> u32 {
        self.registers.boot_0
    }
}

const _: () = assert!(Gmmu::V3.entries(Level::Small) == 512 && RAM_BYTES > gsp_queues::RAM_BYTES);
