//! Rows 10 and 13: directories that no walk gets to the end of.

use anyhow::Result;

use super::space::{COVERED, DIRECTORY, TABLE, entry, small_table};
use super::{Engine, Rig};
use crate::attack::tool::{End, HERE, TO, Target, Tool};
use crate::attack::walks::{self, Walks};
use crate::attack::{Seen, Stage, place};

/// Row 10.
pub fn loops(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let mut walks = Walks::default();
    while time.goes_on() {
        let directory = rig.space.directory.physical;
        let own = rig.space.table(rig.gpu.memory, TO)?.physical;
        // What a directory entry at HERE may say: the directory as a table, by small and by large pages; a
        // table as the directory's table; VRAM beyond the partition; a table that begins at the end of
        // memory.
        let large = |target: u64, address: u64| target | address >> 8 & 0xffff_fff0;
        let entries = [
            small_table(Target::Memory(directory)),
            large(3, directory),
            large(2, own) | small_table(Target::Memory(directory)),
            small_table(Target::Vram(rig.gpu.vram - 0x1000)),
            small_table(Target::Vram(rig.gpu.vram)),
            small_table(Target::Memory((1 << 40) - 0x1000)),
            u64::MAX,
        ];
        for raw in entries {
            rig.space.set_directory(rig.gpu.memory, HERE / COVERED, raw);
            walks.flush(&rig)?;
            let end = walks.copy(&mut rig, HERE, raw)?;
            if end == End::Lost {
                return Ok(walks::lost());
            }
            if end.stopped() {
                rig.space.set_directory(rig.gpu.memory, HERE / COVERED, 0);
                rig.revive()?;
            }
            walks.tried();
        }
    }
    walks.seen()
}

/// Row 13: the whole address range, by as many tables as there is memory for, each named over and over.
pub fn flood(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let mut tables = Vec::new();
    for _ in 0..32 {
        let table = rig.gpu.memory.take(TABLE, 0x1000)?;
        for at in (0..TABLE).step_by(8) {
            rig.gpu.memory.store64(table, at, entry(Target::Memory(rig.from.physical)));
        }
        tables.push(small_table(Target::Memory(table.physical)));
    }
    let (mut walks, mut named) = (Walks::default(), 0u64);
    for index in (HERE / COVERED..DIRECTORY as u64 / 8).step_by(256) {
        for entry in index..index + 256 {
            let table = tables.get(place(entry % 32)).copied().unwrap_or(0);
            rig.space.set_directory(rig.gpu.memory, entry, table);
        }
        named += 256;
        walks.flush(&rig)?;
        if rig.is_lost() || !time.goes_on() {
            break;
        }
    }
    Ok(walks.flooded(&mut rig, named))
}
