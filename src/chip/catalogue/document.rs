//! The catalogue as a document (docs/chips.md).

use std::fmt::Write;

use super::Chip;

const HEAD: &str = "# Chips that guests can be shown

Generated from the rows in `src/chip/catalogue/`; regenerate with
`UPDATE_DOCS=1 cargo test -p gpuvmk-chip --lib catalogue`.

A driver knows a chip by NV_PMC_BOOT_0. It programs either all units by **registers**, or asks the GPU's firmware
(**GSP**). A physical GPU can serve each chip all of whose classes it has. guests.md says what
guests of those that were tried passed.
";

/// The document.
pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    let _ = writeln!(text, "\n## Chips\n");
    let _ =
        writeln!(text, "| Chip | Family | NV_PMC_BOOT_0 | PCI device | Driven by | Most channels | Guests |");
    let _ = writeln!(text, "| --- | --- | --- | --- | --- | --- | --- |");
    for chip in Chip::ALL {
        let _ = writeln!(
            text,
            "| {chip} | {} | {:#010x} | {:04x} | {} | {} | {} |",
            chip.family.name(),
            chip.boot_0,
            chip.device_id,
            chip.face.name(),
            chip.channels,
            if chip.tried { "tried" } else { "not tried" },
        );
    }
    let _ = writeln!(text, "\n## Classes of families\n");
    let _ = writeln!(text, "| Family | Channel | Copy | 3D | Compute | 2D | To memory |");
    let _ = writeln!(text, "| --- | --- | --- | --- | --- | --- | --- |");
    let mut told = None;
    for chip in Chip::ALL {
        if told.replace(chip.family) == Some(chip.family) {
            continue;
        }
        let classes = &chip.classes;
        let copies: Vec<String> = classes.copy.iter().map(|class| format!("{:04x}", class.number)).collect();
        let _ = writeln!(
            text,
            "| {} | {:04x} | {} | {:04x} | {:04x} | {:04x} | {:04x} |",
            chip.family.name(),
            classes.channel.number,
            copies.join(", "),
            classes.three_d.number,
            classes.compute.number,
            classes.two_d.number,
            classes.to_memory.number,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/chips.md");
        let expected = markdown();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &expected).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(committed == expected, "docs/chips.md is stale: set UPDATE_DOCS=1 and run this test");
    }

    #[test]
    fn chips_of_a_family_have_the_same_classes() {
        for pair in Chip::ALL.windows(2).filter(|pair| pair[0].family == pair[1].family) {
            assert_eq!(pair[0].classes.for_tenants(), pair[1].classes.for_tenants(), "{pair:?}");
        }
    }
}
