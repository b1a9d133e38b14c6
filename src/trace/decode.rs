//! Puts names to traced accesses: unit, register and fields from the chip's tables.

use std::fmt::Write as _;

use super::record::{Operation, Record};
use crate::chip::registers::{Reg, RegisterDef};
use crate::pci::Region;

/// Finds the entry of a table that covers a register.
pub trait RegisterNames {
    /// The entry for `reg`, if any.
    fn definition(&self, reg: Reg) -> Option<&'static RegisterDef>;
}

impl<F: Fn(Reg) -> Option<&'static RegisterDef>> RegisterNames for F {
    fn definition(&self, reg: Reg) -> Option<&'static RegisterDef> {
        self(reg)
    }
}

/// One line of text for `record`.
pub fn line(record: &Record, names: &impl RegisterNames) -> String {
    let seconds = record.nanos / 1_000_000_000;
    let nanos = record.nanos % 1_000_000_000;
    let mut text = format!("{seconds:6}.{nanos:09} ");
    match record.operation {
        Operation::Reset => text.push_str("reset"),
        Operation::Lost => {
            // Writing to a String cannot fail.
            let _ = write!(text, "lost {} records", record.value);
        }
        Operation::Read | Operation::Write => access(&mut text, record, names),
    }
    text
}

fn access(text: &mut String, record: &Record, names: &impl RegisterNames) {
    let letter = if record.operation == Operation::Read { 'R' } else { 'W' };
    let place = match record.region {
        Some(Region::Bar(bar)) => format!("BAR{bar}"),
        Some(Region::Rom) => "ROM".to_owned(),
        Some(Region::Config) => "CONFIG".to_owned(),
        None => "-".to_owned(),
    };
    let digits = usize::from(record.size) * 2;
    let _ = write!(
        text,
        "{letter}{} {place:6} {:#010x} 0x{:0digits$x}",
        record.size, record.offset, record.value
    );
    if record.region != Some(Region::Bar(0)) {
        return;
    }
    let Ok(offset) = u32::try_from(record.offset & !3) else { return };
    let Some(definition) = names.definition(Reg(offset)) else { return };
    let _ = write!(text, " {}", definition.name);
    if definition.count > 1 && definition.stride > 0 {
        let _ = write!(text, "[{}]", offset.saturating_sub(definition.offset) / definition.stride);
    }
    if record.size != 4 {
        return;
    }
    let Ok(word) = u32::try_from(record.value) else { return };
    let fields: Vec<String> = definition
        .fields
        .iter()
        .filter(|field| field.get(word) != 0)
        .map(|field| format!("{}={:#x}", field.name, field.get(word)))
        .collect();
    if !fields.is_empty() {
        let _ = write!(text, " {{ {} }}", fields.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::registers::{FieldDef, Policy};

    static CHANNEL: RegisterDef = RegisterDef {
        name: "NV_EXAMPLE_CHANNEL",
        unit: "EXAMPLE",
        offset: 0x3000,
        count: 4,
        stride: 8,
        reset: 0,
        policy: Policy::Handler,
        fields: &[
            FieldDef { name: "VALID", high: 31, low: 31 },
            FieldDef { name: "INSTANCE", high: 27, low: 0 },
        ],
        source: "test",
        doc: "test",
    };

    fn names(reg: Reg) -> Option<&'static RegisterDef> {
        CHANNEL.covers(reg).then_some(&CHANNEL)
    }

    #[test]
    fn named_register_shows_index_and_fields() {
        let record = Record {
            nanos: 1_000_000_002,
            operation: Operation::Write,
            region: Some(Region::Bar(0)),
            size: 4,
            offset: 0x3008,
            value: 0x8000_1234,
        };
        assert_eq!(
            line(&record, &names),
            "     1.000000002 W4 BAR0   0x00003008 0x80001234 NV_EXAMPLE_CHANNEL[1] { VALID=0x1, INSTANCE=0x1234 }"
        );
    }

    #[test]
    fn memory_access_shows_numbers_only() {
        let record = Record {
            nanos: 5,
            operation: Operation::Read,
            region: Some(Region::Bar(3)),
            size: 8,
            offset: 0x3000,
            value: 0x10,
        };
        assert_eq!(line(&record, &names), "     0.000000005 R8 BAR3   0x00003000 0x0000000000000010");
    }
}
