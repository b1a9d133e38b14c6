//! Guest memory that goes while the device reads it: BAR1 and BAR3 show it, their page tables and a runlist
//! lie in it.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use gpuvmk::chip::gf100::mmu::{Pde, Pte};
use gpuvmk::chip::{Aperture, PhysicalAddress};
use gpuvmk::pci::mapping::{Access, Mapping};
use gpuvmk_attacks::Outcome;

use crate::Scene;
use crate::client::Client;
use crate::files;
use crate::findings::Findings;

/// Bytes of guest memory, and what lies where in it.
const RAM: u64 = 2 << 20;
const INSTANCE: u64 = 0x1000;
const TABLE: u64 = 0x2000;
const RUNLIST: u64 = 0x3000;
const DIRECTORY: u64 = 0x1_0000;
const DATA: u64 = 0x10_0000;
const MARK: u32 = 0x1234_5678;

/// Registers.
const BAR1_BLOCK: u64 = 0x1704;
const BAR3_BLOCK: u64 = 0x1714;
const INVALIDATE_DIRECTORY: u64 = 0x10_0cb8;
const INVALIDATE: u64 = 0x10_0cbc;
const RUNLIST_BASE: u64 = 0x2270;
const RUNLIST_LENGTH: u64 = 0x2274;
const CHANNEL: u64 = 0x3000;
/// System memory, in registers that know VRAM by 0; translation by the block's page tables.
const SYSTEM: u32 = 2 << 28;
const VIRTUAL: u32 = 1 << 31;

/// A page number as registers have it.
fn page(address: u64) -> u32 {
    u32::try_from(address >> 12).unwrap_or(0)
}

fn system(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::SystemCoherent, address }
}

/// Page tables in guest memory that map the first MiB of BAR1 and BAR3 to guest memory.
fn build(file: &OwnedFd) -> Result<()> {
    let ram = Mapping::of_file(file.as_fd(), 0, RAM, Access::ReadWrite)?;
    let put = |at, value| ram.write_u64(at, value).context("guest memory");
    put(INSTANCE + 0x200, DIRECTORY | 2)?;
    put(INSTANCE + 0x208, 0xf_ffff)?;
    put(DIRECTORY, Pde { large: None, small: Some(system(TABLE)) }.encode())?;
    for number in 0..16 {
        let target = system(DATA + number * 0x1000);
        put(TABLE + number * 8, Pte { target, read_only: false, privileged: false, kind: 0 }.encode())?;
    }
    for number in 0..16 {
        ram.write_u32(DATA + number * 0x1000, MARK).context("guest memory")?;
        put(RUNLIST + number * 8, number)?;
    }
    Ok(())
}

/// Has the device look at all of it; returns what BAR1 shows.
fn use_it(client: &mut Client) -> Result<u32> {
    client.store(0, BAR1_BLOCK, VIRTUAL | SYSTEM | page(INSTANCE))?;
    client.store(0, BAR3_BLOCK, VIRTUAL | SYSTEM | page(INSTANCE))?;
    client.store(0, INVALIDATE_DIRECTORY, page(DIRECTORY) << 4 | 2)?;
    client.store(0, INVALIDATE, 0x8000_0001)?;
    client.store(0, CHANNEL, 0xc000_0000 | SYSTEM | page(INSTANCE))?;
    client.store(0, RUNLIST_BASE, SYSTEM | page(RUNLIST))?;
    client.store(0, RUNLIST_LENGTH, 0x01f0_0010)?;
    let shown = client.load(1, 0x1000)?.context("BAR1 cannot be read")?;
    client.store(1, 0x2000, 0x5555_5555)?;
    client.load(3, 0x3000)?.context("BAR3 cannot be read")?;
    client.store(0, CHANNEL, 0)?;
    Ok(shown)
}

/// Truncates guest memory at every size, again and again, while it is used.
pub fn truncated(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut client = Client::negotiated(&scene.device)?;
    let file = files::memory(RAM)?;
    ensure!(!client.map(&file, 0, 0, RAM)?.refused(), "honest memory is refused");
    build(&file)?;
    let shown = use_it(&mut client)?;
    ensure!(shown == MARK, "BAR1 shows {shown:#x} before the attack");
    while scene.goes_on() {
        for size in [DATA + 0x1000, DATA, DIRECTORY, TABLE, INSTANCE, 0] {
            rustix::fs::ftruncate(&file, size)?;
            let shown = use_it(&mut client)?;
            findings.count(match shown {
                0 => "zeros",
                u32::MAX => "ones",
                MARK => "what it held",
                _ => "something else",
            });
            // And while it comes back, in the middle of accesses.
            rustix::fs::ftruncate(&file, RAM)?;
            build(&file)?;
            let racer = std::thread::scope(|scope| -> Result<()> {
                let race = scope.spawn(|| {
                    for round in 0..200 {
                        rustix::fs::ftruncate(&file, if round % 2 == 0 { 0 } else { RAM })?;
                    }
                    rustix::fs::ftruncate(&file, RAM)
                });
                for _ in 0..20 {
                    use_it(&mut client)?;
                }
                race.join().ok().context("the racing thread broke down")??;
                Ok(())
            });
            racer?;
            build(&file)?;
        }
        findings.count("rounds");
    }
    client.in_step()?;
    Ok(Outcome::Values)
}

/// Unmaps memory that BAR1 shows, between accesses that are on their way.
pub fn unmapped(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut client = Client::negotiated(&scene.device)?;
    let file = files::memory(RAM)?;
    while scene.goes_on() {
        ensure!(!client.map(&file, 0, 0, RAM)?.refused(), "honest memory is refused");
        build(&file)?;
        let shown = use_it(&mut client)?;
        ensure!(shown == MARK, "BAR1 shows {shown:#x} before the attack");
        ensure!(!client.unmap(0, RAM)?.refused(), "memory in use cannot be unmapped");
        let marks = Mapping::of_file(file.as_fd(), 0, RAM, Access::ReadWrite)?;
        marks.write_u32(DATA + 0x4000, MARK).context("guest memory")?;
        // Through the translations that were there, and through new ones.
        client.store(1, 0x4000, 0xdead_dead)?;
        client.load(1, 0x1000)?;
        use_it(&mut client)?;
        let left = marks.read_u32(DATA + 0x4000).context("guest memory")?;
        findings.check(left == MARK, "memory was written after it was unmapped");
        findings.count("unmapped in use");
    }
    Ok(Outcome::Values)
}
