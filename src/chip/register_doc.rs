//! The register tables as a document (docs/registers.md).

use std::fmt::Write;

use super::register_sets::{ALL, RegisterSet};
use super::registers::{FieldDef, Policy, RegisterDef};

const HEAD: &str = "# Registers of the register faces

Generated from the tables in `src/chip/*/regs/`; regenerate with `UPDATE_DOCS=1 cargo test --lib register_doc`.

What a guest's access does: **scratch** reads back what was written and touches nothing (also the rule for
registers that are not listed); **fields** is scratch of which only the fields stick; **constant** reads its
reset value, writes are dropped; **write 1 to clear**; **handler** means that the unit's model in `src/units/` decides; **denied** drops writes and counts them.
";

const FAMILIES: &str = "
## Chips with GSP

Each table is here once. It is that of all chips, if no chips are named below it. The identity is that of the
first chip.
";

/// A table.
type Table = &'static [RegisterDef];

/// The document.
pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    let (by_registers, by_firmware) = ALL.split_at(1);
    for set in by_registers {
        let _ = writeln!(text, "\n## {}", set.chip);
        for table in set.tables {
            section(&mut text, &format!("{} ", set.chip), table);
        }
    }
    text.push_str(FAMILIES);
    for (table, chips) in distinct(by_firmware) {
        section(&mut text, "", table);
        if chips.len() < by_firmware.len() {
            let _ = writeln!(text, "\nChips: {}.", chips.join(", "));
        }
    }
    text
}

/// Each table once, with the chips that have it. What differs between chips in a table is a reset value at
/// most.
fn distinct(sets: &'static [RegisterSet]) -> Vec<(Table, Vec<&'static str>)> {
    let mut all: Vec<(Table, Vec<&str>)> = Vec::new();
    for (set, table) in sets.iter().flat_map(|set| set.tables.iter().map(move |table| (set, *table))) {
        let place = |table: Table| table.first().map(|first| (first.offset, first.unit));
        match all.iter_mut().find(|(known, _)| place(known) == place(table)) {
            Some((_, chips)) => chips.push(set.chip),
            None => all.push((table, vec![set.chip])),
        }
    }
    all
}

/// A table of registers.
fn section(text: &mut String, chip: &str, table: Table) {
    if let Some(first) = table.first() {
        let _ = writeln!(text, "\n### {chip}{}\n\nSource: {}.\n", first.unit, first.source);
        let _ = writeln!(text, "| Offset | Register | Reset | Access | Fields | Meaning |");
        let _ = writeln!(text, "| --- | --- | --- | --- | --- | --- |");
    }
    for entry in table {
        row(text, entry);
    }
}

fn row(text: &mut String, entry: &RegisterDef) {
    let family =
        if entry.count > 1 { format!("[{}], every {:#x}", entry.count, entry.stride) } else { String::new() };
    let _ = writeln!(
        text,
        "| {:#08x} | `{}`{family} | {:#x} | {} | {} | {} |",
        entry.offset,
        entry.name,
        entry.reset,
        access(entry.policy),
        fields(entry.fields),
        entry.doc.trim(),
    );
}

const fn access(policy: Policy) -> &'static str {
    match policy {
        Policy::Scratch => "scratch",
        Policy::Fields => "fields",
        Policy::Constant => "constant",
        Policy::WriteOneToClear => "write 1 to clear",
        Policy::Handler => "handler",
        Policy::Denied => "denied",
    }
}

fn fields(fields: &[FieldDef]) -> String {
    let each = |field: &FieldDef| match (field.high, field.low) {
        (high, low) if high == low => format!("{high} {}", field.name),
        (high, low) => format!("{high}:{low} {}", field.name),
    };
    fields.iter().map(each).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/registers.md");
        let expected = markdown();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).unwrap();
            std::fs::write(path, &expected).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(committed == expected, "docs/registers.md is stale: set UPDATE_DOCS=1 and run this test");
    }

    #[test]
    fn every_register_has_a_row_with_its_name() {
        let text = markdown();
        for entry in ALL.iter().flat_map(|set| set.index().unwrap().definitions()) {
            assert!(text.contains(&format!("| {:#08x} | `{}`", entry.offset, entry.name)), "{}", entry.name);
        }
    }
}
