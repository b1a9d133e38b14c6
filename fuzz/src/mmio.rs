//! A vGPU as its guest reaches it: accesses of all widths to all regions, stores to its VRAM and to its
//! memory, between two neighbours on one software GPU. No engine leaves the guest's memory (the ledger is the
//! judge), the neighbours keep theirs, and after a function reset the vGPU is as new.

pub mod falcons;
pub mod fsp;
pub mod gf100;
mod world;

use gpuvmk::chip::registers::RegisterDef;
use gpuvmk::pci::{PciFunction, Region};
use gpuvmk::vgpu::{Bar3, State};

use crate::input::Input;
use crate::log_sink;
use world::{BASE, RAM_BYTES, VRAM, World};

/// What is peculiar to a chip's driver.
trait Driver {
    /// Everything that a driver does until it has channels that run.
    fn prepare(&mut self, world: &World);
    /// Something that a driver does with them, more or less right.
    fn act(&mut self, input: &mut Input<'_>, world: &World);
    /// Places in VRAM that mean something.
    fn places(&self) -> &'static [u64];
    /// The same in system memory.
    fn ram_places(&self) -> &'static [u64];
    /// The chip's registers.
    fn tables(&self) -> &'static [&'static [RegisterDef]];
    /// What NV_PMC_BOOT_0 reads.
    fn boot_0(&self) -> u32;
}

fn run(data: &[u8], chip: gpuvmk::chip::Chip, driver: &mut dyn Driver) {
    log_sink::install();
    let mut input = Input::new(data);
    let how = input.u8();
    let bar3 = if how & 8 == 0 { Bar3::Trapped } else { Bar3::Direct };
    let world = World::new(chip, bar3);
    if how & 7 != 7 {
        driver.prepare(&world);
    }
    let mut steps = 0;
    while input.more() && steps < 96 {
        steps += 1;
        step(&mut input, driver, &world);
        world.host.turn();
    }
    world.check();
    world.vgpu.reset();
    world.host.turn();
    let state = world.vgpu.status().state;
    assert_eq!(state, State::Running, "a reset does not bring the vGPU back");
    assert_eq!(world.read_u32(0), driver.boot_0(), "the chip is not what it was");
    world.check_windows();
    world.check();
    world.end();
}

fn step(input: &mut Input<'_>, driver: &mut dyn Driver, world: &World) {
    match input.below(24) {
        0..=4 => {
            let register = register(input, driver);
            let value = value(input, driver);
            world.write_u32(register, value);
        }
        5 | 6 => {
            let register = register(input, driver);
            world.read_u32(register);
        }
        7 | 8 => any_access(input, world),
        9 => {
            let place = input.near(driver.places());
            store(input, driver, |offset, bytes| world.store(place.wrapping_add(offset), bytes));
        }
        10 => {
            let place = input.near(driver.ram_places());
            store(input, driver, |offset, bytes| world.ram.write(place.wrapping_add(offset), bytes).is_ok());
        }
        11 => machine(input, world),
        12 => world.check(),
        _ => driver.act(input, world),
    }
}

/// A register that a table lists, or one beside it, or any.
fn register(input: &mut Input<'_>, driver: &dyn Driver) -> u32 {
    if input.below(16) == 15 {
        return input.u32() & 0xff_fffc;
    }
    let Some(table) = driver.tables().get(usize::from(input.u8()) % driver.tables().len()) else { return 0 };
    let Some(found) = table.get(usize::from(input.u8()) % table.len().max(1)) else { return 0 };
    let index = u32::from(input.u8()).checked_rem(found.count).unwrap_or(0);
    found.offset + index * found.stride
}

/// A value: small, a page, a page with bits, all ones, any.
fn value(input: &mut Input<'_>, driver: &dyn Driver) -> u32 {
    match input.below(8) {
        0 => u32::from(input.u8()),
        1 => 1 << (input.u8() & 31),
        2..=4 => {
            let page = input.near(driver.places()) >> 12;
            let page = u32::try_from(page & 0x0fff_ffff).expect("28 bits");
            page | input.pick(&[0, 1 << 31, 0xc000_0000, 3 << 28])
        }
        5 => u32::MAX,
        _ => input.u32(),
    }
}

fn any_access(input: &mut Input<'_>, world: &World) {
    let region = match input.below(16) {
        0..=3 => Region::Bar(0),
        4..=7 => Region::Bar(1),
        8..=11 => Region::Bar(3),
        12 => Region::Bar(input.u8()),
        13 => Region::Rom,
        _ => Region::Config,
    };
    let offset = input.near(&[0, 0x40, 0x8c, 0x1000, 0x70_0000, 0x100_0000, 0x3ff_fff8, 0x800_0000]);
    let mut data = [0; 8];
    let size = input.pick(&[4, 8, 1, 2, 3, 0, 7]);
    let data = &mut data[..size];
    if input.flag() {
        data.fill(input.u8());
        // Refused or not: what may be told is in the type.
        let _ = world.vgpu.write(region, offset, data);
    } else {
        let _ = world.vgpu.read(region, offset, data);
    }
}

/// Stores some words.
fn store(input: &mut Input<'_>, driver: &dyn Driver, put: impl Fn(u64, &[u8]) -> bool) {
    let offset = u64::from(input.u8()) * 4;
    for index in 0..u64::from(input.below(6)) {
        let word = match input.below(3) {
            0 => u64::from(value(input, driver)),
            1 => input.near(driver.places()),
            _ => input.u64(),
        };
        if !put(offset + index * 8, &word.to_le_bytes()) {
            return;
        }
    }
}

/// What the machine around the vGPU does.
fn machine(input: &mut Input<'_>, world: &World) {
    match input.below(8) {
        0 => world.vgpu.reset(),
        1 => world.vgpu.dma_unmap_all(),
        2 => drop(world.vgpu.dma_unmap(BASE, RAM_BYTES)),
        3 => drop(world.vgpu.dma_unmap(input.near(&[BASE, 0]), input.near(&[RAM_BYTES, 0x1000]))),
        4 => world.map_ram(input.near(&[BASE, 0, 2 * BASE]), input.near(&[RAM_BYTES, 0x1000])),
        5 => world.vgpu.connect_interrupts(None),
        6 => {
            let (offset, size) = (input.near(&[0, VRAM]), input.near(&[0x1000, VRAM]));
            drop(world.vgpu.shared_regions().map(|regions| regions.share(Region::Bar(1), offset, size)));
        }
        _ => drop(format!("{:?} {:?}", world.vgpu.status(), world.vgpu.driver_counters())),
    }
}
