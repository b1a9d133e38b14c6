//! The `[[vm]]` sections of a GPU's file: which VMs may be admitted, which users may be one of them, and how
//! much each may have at most. Where there is one, no other VM is admitted.

use super::chip::{self, VRAM_GRANULE};
use super::reader::TableReader;
use super::value::{self, NAME_ALLOWED};
use super::vm::share;
use crate::aggregator::{DEFAULT_CHANNELS, EntryLimits, VmEntry};
use crate::chip::Chip;

/// Limit of sections.
const MAX_ENTRIES: usize = 256;

/// The list of a GPU's file. `Some(None)`: there is none; `None`: it is wrong.
pub(super) fn read(reader: &mut TableReader<'_, '_>, chip: Option<Chip>) -> Option<Option<Vec<VmEntry>>> {
    let present = reader.has("vm");
    let mut seen: Vec<VmEntry> = Vec::new();
    let mut sound = true;
    let entries = reader.tables("vm", |reader| {
        let entry = entry(reader, chip);
        if let Some(entry) = &entry {
            sound &= differs(reader, &seen, entry);
            seen.push(entry.clone());
        }
        entry
    })?;
    if entries.len() > MAX_ENTRIES {
        let problem = format!("has {} sections", entries.len());
        reader.reject("vm", problem, &format!("at most {MAX_ENTRIES} [[vm]] sections"));
        return None;
    }
    sound.then_some(present.then_some(entries))
}

/// True if nothing of an entry is another's.
fn differs(reader: &mut TableReader<'_, '_>, others: &[VmEntry], entry: &VmEntry) -> bool {
    if others.iter().any(|other| other.name == entry.name) {
        reader.reject("name", format!("\"{}\" has a section already", entry.name), "one section for each VM");
        return false;
    }
    let path = |entry: &VmEntry| entry.socket.as_ref().map(|socket| socket.path.clone());
    if let Some(other) = others.iter().find(|other| path(entry).is_some() && path(other) == path(entry)) {
        let problem = format!("has the path of {}'s", other.name);
        reader.reject("socket", problem, "a path of its own for each VM");
        return false;
    }
    true
}

fn entry(reader: &mut TableReader<'_, '_>, chip: Option<Chip>) -> Option<VmEntry> {
    let line = reader.line();
    let name = reader.required("name", NAME_ALLOWED, value::name);
    let allowed = "the name or number of a user of this machine, whose device back end this VM is";
    let user = reader.defaulted("user", None, allowed, |v| value::user(v).map(Some));
    let has_socket = reader.has("socket");
    let socket = reader.table("socket", value::socket);
    let claimed = has_socket || reader.has("user");
    if !claimed {
        let allowed = "`user`, a [vm.socket] section, or both: who may say that it is this VM";
        reader.reject("user", "is missing".to_owned(), allowed);
    }
    let limits = chip.map_or_else(chip::widest, chip::limits);
    let vram = reader.required("vram", &chip::vram_allowed(chip, |limits| limits.vram), |v| {
        value::size(v, limits.vram.0, limits.vram.1, VRAM_GRANULE)
    });
    let allowed = format!("a whole number from 1 to {}", limits.channels);
    let channels = reader
        .defaulted("channels", DEFAULT_CHANNELS.into(), &allowed, |v| value::integer(v, 1, limits.channels));
    let share = share(reader);
    let has_limits = reader.has("limits");
    let limits = reader.table("limits", entry_limits);
    if !claimed || has_socket && socket.is_none() || has_limits && limits.is_none() {
        return None;
    }
    Some(VmEntry {
        name: name?,
        user: user?,
        socket,
        vram: vram?,
        channels: u16::try_from(channels?).ok()?,
        share: share?,
        limits: limits.unwrap_or_default(),
        line,
    })
}

/// The keys that the aggregator keeps, of those that a VM's file has under this name.
fn entry_limits(reader: &mut TableReader<'_, '_>) -> Option<EntryLimits> {
    let usual = EntryLimits::default();
    let allowed = "a multiple of \"4K\" from \"64K\" to \"64G\"";
    let page_tables = reader.defaulted("page_tables", usual.page_tables, allowed, |v| {
        value::size(v, 64 << 10, 64 << 30, 4 << 10)
    });
    let mut number = |key, usual: u64, low, high| {
        let allowed = format!("a whole number from {low} to {high}");
        reader.defaulted(key, usual, &allowed, |v| value::integer(v, low, high))
    };
    let mappings = number("mappings", usual.mappings, 1 << 12, 1 << 36);
    let doorbells = number("doorbells", usual.doorbells.into(), 1000, 200_000);
    let thread_time = number("thread_time", usual.thread_time.into(), 1, 100);
    let memory_ranges = number("memory_ranges", usual.memory_ranges.into(), 16, 65_535);
    Some(EntryLimits {
        page_tables: page_tables?,
        mappings: mappings?,
        doorbells: u32::try_from(doorbells?).ok()?,
        thread_time: u8::try_from(thread_time?).ok()?,
        memory_ranges: u32::try_from(memory_ranges?).ok()?,
    })
}
