//! A guest's GF100.

use gpuvmk::chip::gf100::mmu::{Pde, Pte};
use gpuvmk::chip::gf100::ramin;
use gpuvmk::chip::gf100::regs::{TABLES, falcon, fecs, gpccs, pbus, pce0, pce1, pfb, pfifo, pmc};
use gpuvmk::chip::gf100::{BOOT_0, methods::host};
use gpuvmk::chip::registers::{Reg, RegisterDef};
use gpuvmk::chip::{Aperture, Chip, PhysicalAddress};
use gpuvmk::pci::{PciFunction, Region};

use super::world::{BASE, RAM_BYTES, VRAM, World};
use super::{Driver, run as run_chip};
use crate::bench::{RAM_VA, VRAM_VA};
use crate::input::Input;
use crate::pushbuffer::stream;

/// Where things lie in VRAM.
const BAR_BLOCK: u64 = 0x1000;
const INSTANCES: u64 = 0x4000;
const RUNLIST: u64 = 0x8000;
const USERDS: u64 = 0x1_0000;
const DIRECTORY: u64 = 0x2_0000;
const BAR_DIRECTORY: u64 = 0x3_0000;
const TABLE: u64 = 0x4_0000;
const BAR_TABLE: u64 = 0x8_0000;
const RINGS: u64 = 0x10_0000;
const PUSH: u64 = 0x11_0000;
const PLACES: &[u64] = &[
    BAR_BLOCK,
    INSTANCES,
    INSTANCES + 0x1000,
    RUNLIST,
    USERDS,
    DIRECTORY,
    BAR_DIRECTORY,
    TABLE + 0x800,
    BAR_TABLE,
    RINGS,
    PUSH,
    0,
    VRAM - 0x1000,
    VRAM,
];
const RAM_PLACES: &[u64] = &[0, RAM_BYTES / 2];
/// Channels that there are: graphics, and both copy engines.
const CHANNELS: u16 = 3;
/// Bytes that page tables map of VRAM.
const MAPPED: u64 = 2 << 20;
const RING_LOG2: u32 = 6;

#[derive(Debug, Default)]
struct Gf100 {
    put: [u32; CHANNELS as usize],
}

/// Lets a guest loose on a GF100.
pub fn run(data: &[u8]) {
    run_chip(data, Chip::GF100, &mut Gf100::default());
}

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

fn put(world: &World, at: u64, value: u64) {
    // What does not fit is not written.
    let _ = world.store(at, &value.to_le_bytes());
}

fn put_u32(world: &World, at: u64, value: u32) {
    let _ = world.store(at, &value.to_le_bytes());
}

fn write(world: &World, register: Reg, value: u32) {
    world.write_u32(register.0, value);
}

fn low(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).expect("32 bits")
}

fn page(address: u64) -> u32 {
    low(address >> 12)
}

fn table(world: &World, table: u64, va: u64, target: PhysicalAddress, size: u64) {
    for offset in (0..size).step_by(0x1000) {
        let target = PhysicalAddress { address: target.address + offset, ..target };
        let pte = Pte { target, read_only: false, privileged: false, kind: 0 };
        put(world, table + (va + offset) / 0x1000 * 8, pte.encode());
    }
}

fn memory(world: &World) {
    put(world, BAR_DIRECTORY, Pde { large: None, small: Some(vram(BAR_TABLE)) }.encode());
    table(world, BAR_TABLE, 0, vram(0), MAPPED);
    put(world, BAR_BLOCK + ramin::PAGE_DIRECTORY_LO, BAR_DIRECTORY);
    put(world, BAR_BLOCK + ramin::VA_LIMIT_LO, (1 << 40) - 1);
    write(world, pbus::NV_PBUS_BAR2_BLOCK, 1 << 31 | page(BAR_BLOCK));
    write(world, pbus::NV_PBUS_BAR1_BLOCK, 1 << 31 | page(BAR_BLOCK));
    put(world, DIRECTORY, Pde { large: None, small: Some(vram(TABLE)) }.encode());
    table(world, TABLE, VRAM_VA, vram(0), MAPPED);
    let ram = PhysicalAddress { aperture: Aperture::SystemCoherent, address: BASE };
    table(world, TABLE, RAM_VA, ram, RAM_BYTES);
}

fn engines(world: &World) {
    write(world, pmc::NV_PMC_ENABLE, 0);
    write(world, pmc::NV_PMC_ENABLE, 1 << 12 | 1 << 8 | 1 << 7 | 1 << 6);
    for (index, data) in [
        (fecs::NV_PGRAPH_PRI_FECS_CODE_INDEX, fecs::NV_PGRAPH_PRI_FECS_CODE_DATA),
        (gpccs::NV_PGRAPH_PRI_GPCCS_CODE_INDEX, gpccs::NV_PGRAPH_PRI_GPCCS_CODE_DATA),
        (pce0::NV_PCE0_CODE_INDEX, pce0::NV_PCE0_CODE_DATA),
        (pce1::NV_PCE1_CODE_INDEX, pce1::NV_PCE1_CODE_DATA),
    ] {
        write(world, index, falcon::CODE_INDEX::INCREMENT_ON_WRITE.mask());
        (0..16).for_each(|word| write(world, data, 0xf8 + word));
    }
    write(world, fecs::NV_PGRAPH_PRI_FECS_DMA_CONTROL, 0);
    write(world, fecs::NV_PGRAPH_PRI_FECS_CPU_CONTROL, falcon::CPU_CONTROL::START.mask());
    for (access, control) in [
        (pce0::NV_PCE0_ACCESS_EN, pce0::NV_PCE0_CPU_CONTROL),
        (pce1::NV_PCE1_ACCESS_EN, pce1::NV_PCE1_CPU_CONTROL),
    ] {
        write(world, access, 3);
        write(world, control, falcon::CPU_CONTROL::START.mask());
    }
}

fn fifo(world: &World) {
    write(world, pmc::NV_PMC_ENABLE_PBDMA, u32::MAX);
    write(world, pfifo::NV_PFIFO_ENABLE, 1);
    write(world, pfifo::NV_PFIFO_USERD_POLL, 1 << 28 | page(USERDS));
    for unit in 0..3 {
        write(world, pfifo::NV_PPBDMA_INTR_EN_0.at(unit), u32::MAX);
    }
    write(world, pfifo::NV_PFIFO_INTR_0, u32::MAX);
    write(world, pfifo::NV_PFIFO_INTR_ENGINE_EN, 1);
    write(world, pfifo::NV_PFIFO_INTR_EN_0, u32::MAX);
    write(world, pmc::NV_PMC_INTR_EN_0, 1);
}

fn instance(world: &World, id: u16) {
    let (id, block) = (u64::from(id), INSTANCES + u64::from(id) * 0x1000);
    let ring = VRAM_VA + RINGS + id * 0x1000;
    put(world, block + ramin::RAMFC_USERD_LO, USERDS + id * ramin::USERD_SIZE);
    put_u32(world, block + ramin::RAMFC_SIGNATURE, ramin::SIGNATURE);
    put_u32(world, block + ramin::RAMFC_ACQUIRE, 0xffff_f902);
    put_u32(world, block + ramin::RAMFC_GP_BASE_LO, low(ring));
    put_u32(world, block + ramin::RAMFC_GP_BASE_HI, low(ring >> 32) | RING_LOG2 << 16);
    put(world, block + ramin::PAGE_DIRECTORY_LO, DIRECTORY);
    put(world, block + ramin::VA_LIMIT_LO, (1 << 40) - 1);
    let pointer = [ramin::GRAPHICS_CONTEXT_LO, ramin::COPY0_CONTEXT_LO, ramin::COPY1_CONTEXT_LO];
    let pointer =
        pointer.get(usize::try_from(id).unwrap_or(0)).copied().unwrap_or(ramin::GRAPHICS_CONTEXT_LO);
    put(
        world,
        block + pointer,
        (VRAM_VA + 0x1c_0000) | u64::from(ramin::GRAPHICS_CONTEXT_LO::VIRTUAL.mask()),
    );
}

fn bind(world: &World, id: u16, block: u64) {
    write(world, pfifo::NV_PFIFO_CHAN_INST.at(id.into()), 0xc000_0000 | page(block));
}

fn start(world: &World, id: u16, on: u32) {
    write(world, pfifo::NV_PFIFO_CHAN_STATE.at(id.into()), 0x001f_0000 | on);
}

fn commit(world: &World, list: u64, count: u32) {
    write(world, pfifo::NV_PFIFO_RUNLIST_BASE, page(list));
    write(world, pfifo::NV_PFIFO_RUNLIST, 0x01f0_0000 | count);
}

fn flush(world: &World, directory: u64) {
    write(world, pfb::NV_PFB_PRI_MMU_INVALIDATE_PDB, low(directory >> 12 << 4));
    write(world, pfb::NV_PFB_PRI_MMU_INVALIDATE, 0x8000_0001);
}

impl Gf100 {
    /// Puts a segment into a channel's ring and rings.
    fn submit(&mut self, input: &mut Input<'_>, world: &World) {
        let id = u16::from(input.below(3));
        let Some(next) = self.put.get_mut(usize::from(id)) else { return };
        let mut words = stream::words(input, Chip::GF100);
        if input.below(4) == 3 {
            // Something that other VMs are told of, if they should be.
            words.extend([1 << 29 | 1 << 16 | u32::from(host::NON_STALL_INTERRUPT >> 2), 0]);
        }
        let push = PUSH + u64::from(id) * 0x1_0000 + u64::from(*next % 8) * 0x2000;
        for (at, word) in (push..).step_by(4).zip(&words) {
            put_u32(world, at, *word);
        }
        let entry = stream::ring_entry(input, VRAM_VA + push, words.len());
        put(world, RINGS + u64::from(id) * 0x1000 + u64::from(*next) * 8, entry);
        *next = (*next + 1) % (1 << RING_LOG2);
        let at = USERDS + u64::from(id) * ramin::USERD_SIZE + ramin::USERD_GP_PUT;
        // Refused where the window is not as it was.
        let _ = world.vgpu.write(Region::Bar(1), at, &next.to_le_bytes());
    }
}

impl Driver for Gf100 {
    fn prepare(&mut self, world: &World) {
        memory(world);
        engines(world);
        fifo(world);
        for id in 0..CHANNELS {
            instance(world, id);
            bind(world, id, INSTANCES + u64::from(id) * 0x1000);
            start(world, id, 1);
            put(
                world,
                RUNLIST + u64::from(id) * 8,
                u64::from(id) | u64::from(ramin::RUNLIST_ENTRY_CHANNEL) << 32,
            );
        }
        flush(world, DIRECTORY);
        commit(world, RUNLIST, CHANNELS.into());
    }

    fn act(&mut self, input: &mut Input<'_>, world: &World) {
        let id = if input.below(8) == 7 { input.u16() & 0x7f } else { u16::from(input.below(4)) };
        match input.below(12) {
            0 => bind(world, id, input.near(&[INSTANCES, INSTANCES + 0x1000, 0, VRAM])),
            1 => write(world, pfifo::NV_PFIFO_CHAN_INST.at(id.into()), 0),
            2 => start(world, id, u32::from(input.below(2))),
            3 => write(world, pfifo::NV_PFIFO_PREEMPT, id.into()),
            4 => {
                for index in 0..4 {
                    let entry = u64::from(input.below(6)) | u64::from(ramin::RUNLIST_ENTRY_CHANNEL) << 32;
                    put(world, RUNLIST + index * 8, entry);
                }
                commit(world, RUNLIST, u32::from(input.below(6)));
            }
            5 => commit(world, input.near(&[RUNLIST, 0, VRAM, VRAM - 0x1000]), input.u32() & 0xfff),
            6 => {
                let page =
                    u64::from(input.u8()) + if input.flag() { VRAM_VA / 0x1000 } else { RAM_VA / 0x1000 };
                let aperture =
                    input.pick(&[Aperture::Vram, Aperture::SystemCoherent, Aperture::SystemNonCoherent]);
                let address =
                    input.near(&[0, VRAM - 0x1000, VRAM, BASE, BASE + RAM_BYTES, 0x100_0000]) & !0xfff;
                let target = PhysicalAddress { aperture, address };
                let pte = Pte { target, read_only: input.flag(), privileged: false, kind: 0 };
                put(world, TABLE + page * 8, pte.encode());
                flush(world, DIRECTORY);
            }
            7 => flush(world, input.near(&[DIRECTORY, BAR_DIRECTORY, 0, VRAM])),
            8 => instance(world, id % 4),
            _ => self.submit(input, world),
        }
    }

    fn places(&self) -> &'static [u64] {
        PLACES
    }

    fn ram_places(&self) -> &'static [u64] {
        RAM_PLACES
    }

    fn tables(&self) -> &'static [&'static [RegisterDef]] {
        TABLES
    }

    fn boot_0(&self) -> u32 {
        BOOT_0
    }
}
