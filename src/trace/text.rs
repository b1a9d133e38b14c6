//! Entries as text, one line each: time, what happened, and of registers unit, name, index and fields.

use super::event::{Access, Direction, Entry, Event, Place};
use gpuvmk_chip::register_sets::RegisterSet;
use gpuvmk_chip::registers::{Reg, RegisterDef};
use gpuvmk_pci::Region;

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

impl RegisterNames for Option<&'static RegisterSet> {
    fn definition(&self, reg: Reg) -> Option<&'static RegisterDef> {
        self.and_then(|set| set.definition(reg))
    }
}

/// Adds a line for an entry, with its end of line.
pub fn line(entry: &Entry, names: &impl RegisterNames, to: &mut Vec<u8>) {
    padded(entry.nanos / 1_000_000_000, 6, b' ', to);
    to.push(b'.');
    padded(entry.nanos % 1_000_000_000, 9, b'0', to);
    to.push(b' ');
    match &entry.event {
        Event::Access(one) => access(one, names, to),
        event => other(event, to),
    }
    to.push(b'\n');
}

/// The short name of a place.
pub const fn place(place: Place) -> &'static str {
    match place {
        Place::Region(Region::Bar(0)) => "BAR0",
        Place::Region(Region::Bar(1)) => "BAR1",
        Place::Region(Region::Bar(2)) => "BAR2",
        Place::Region(Region::Bar(3)) => "BAR3",
        Place::Region(Region::Bar(4)) => "BAR4",
        Place::Region(Region::Bar(_)) => "BAR5",
        Place::Region(Region::Rom) => "ROM",
        Place::Region(Region::Config) => "CONFIG",
        Place::Physical => "PHYS",
    }
}

/// The register that an access is to, where it has a name.
pub fn register(access: &Access, names: &impl RegisterNames) -> Option<(&'static RegisterDef, Option<u32>)> {
    if access.place != Place::Region(Region::Bar(0)) {
        return None;
    }
    let offset = u32::try_from(access.offset & !3).ok()?;
    let definition = names.definition(Reg(offset))?;
    let index = offset.saturating_sub(definition.offset).checked_div(definition.stride);
    Some((definition, index.filter(|_| definition.count > 1)))
}

fn access(access: &Access, names: &impl RegisterNames, to: &mut Vec<u8>) {
    to.push(if access.direction == Direction::Read { b'R' } else { b'W' });
    to.push(b'0' + access.size);
    to.push(b' ');
    let name = place(access.place);
    to.extend_from_slice(name.as_bytes());
    to.resize(to.len() + 7_usize.saturating_sub(name.len()), b' ');
    hex(access.offset, 8, to);
    to.push(b' ');
    hex(access.value, usize::from(access.size) * 2, to);
    let Some((definition, index)) = register(access, names) else { return };
    to.push(b' ');
    to.extend_from_slice(definition.name.as_bytes());
    if let Some(index) = index {
        to.push(b'[');
        padded(index.into(), 1, b' ', to);
        to.push(b']');
    }
    if access.size == 4 {
        fields(definition, access.word(), to);
    }
}

/// The fields that are not zero.
fn fields(definition: &RegisterDef, word: u32, to: &mut Vec<u8>) {
    let set = definition.fields.iter().filter(|field| field.get(word) != 0);
    let mut any = false;
    for field in set {
        to.extend_from_slice(if any { b", " } else { b" { " });
        to.extend_from_slice(field.name.as_bytes());
        to.push(b'=');
        hex(field.get(word).into(), 1, to);
        any = true;
    }
    if any {
        to.extend_from_slice(b" }");
    }
}

/// An event that is no access.
fn other(event: &Event, to: &mut Vec<u8>) {
    let text = match event {
        Event::Access(_) => return,
        Event::Reset => "reset".to_owned(),
        Event::Doorbell { channel, gp_put } => format!("doorbell channel {channel} GP_PUT {gp_put}"),
        Event::Flush { directory } => format!("flush directory {directory:#x}"),
        Event::Shadow { space, mapped, unmapped } => {
            format!("shadow space {space}: {mapped} runs mapped, {unmapped} unmapped")
        }
        Event::Channel { channel, change } => format!("channel {channel} {}", change.word()),
        Event::Interrupt { vector } => format!("interrupt {vector}"),
        Event::Switch { engine, to } => {
            let to = if to.is_empty() { "nobody" } else { to };
            format!("switch {} to {}", engine.escape_debug(), to.escape_debug())
        }
        Event::Depth { engine, vm, entries } => {
            format!("depth {} of {}: {entries}", engine.escape_debug(), vm.escape_debug())
        }
        Event::Refusal { reason, place } => format!("refusal {} at {place:#x}", reason.escape_debug()),
        Event::Lost { count } => format!("lost {count} entries"),
        Event::Note(note) => format!("note {}", note.escape_debug()),
        Event::Origin(origin) => format!("origin map {} pc {:#x} pid {}", origin.map, origin.pc, origin.pid),
    };
    to.extend_from_slice(text.as_bytes());
}

/// A number in hexadecimal, with 0x and at least so many digits.
pub fn hex(value: u64, digits: usize, to: &mut Vec<u8>) {
    let needed = usize::try_from(u64::BITS - value.leading_zeros()).unwrap_or(64).div_ceil(4);
    to.extend_from_slice(b"0x");
    let bytes = value.to_be_bytes();
    for digit in (0..digits.max(needed).max(1)).rev() {
        // The digit counts from the right; each byte has two.
        let byte = bytes.len().checked_sub(digit / 2 + 1).and_then(|at| bytes.get(at)).copied().unwrap_or(0);
        let nibble = if digit % 2 == 0 { byte & 15 } else { byte >> 4 };
        to.push(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 });
    }
}

/// A decimal number in so many places at least.
pub fn padded(mut value: u64, places: usize, with: u8, to: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
        first -= 1;
        if value == 0 {
            break;
        }
    }
    let digits = digits.get(first..).unwrap_or_default();
    to.resize(to.len() + places.saturating_sub(digits.len()), with);
    to.extend_from_slice(digits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::registers::{FieldDef, Policy};

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

    fn text(entry: &Entry) -> String {
        let mut bytes = Vec::new();
        line(entry, &|reg| CHANNEL.covers(reg).then_some(&CHANNEL), &mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    fn access(direction: Direction, place: Place, size: u8, offset: u64, value: u64) -> Event {
        Event::Access(Access { direction, place, size, offset, value, took: 0 })
    }

    #[test]
    fn named_register_shows_index_and_fields() {
        let event = access(Direction::Write, Place::Region(Region::Bar(0)), 4, 0x3008, 0x8000_1234);
        assert_eq!(
            text(&Entry { nanos: 1_000_000_002, event }),
            "     1.000000002 W4 BAR0   0x00003008 0x80001234 NV_EXAMPLE_CHANNEL[1] { VALID=0x1, INSTANCE=0x1234 }\n"
        );
    }

    #[test]
    fn memory_access_shows_numbers_only() {
        let event = access(Direction::Read, Place::Region(Region::Bar(3)), 8, 0x3000, 0x10);
        assert_eq!(
            text(&Entry { nanos: 5, event }),
            "     0.000000005 R8 BAR3   0x00003000 0x0000000000000010\n"
        );
        let event = access(Direction::Write, Place::Physical, 2, 0x12_f000_0000, 0xab);
        assert_eq!(text(&Entry { nanos: 0, event }), "     0.000000000 W2 PHYS   0x12f0000000 0x00ab\n");
    }

    #[test]
    fn other_events_are_words() {
        let said = |event| text(&Entry { nanos: 1_234_567_000_000_000, event });
        assert_eq!(said(Event::Lost { count: 3 }), "1234567.000000000 lost 3 entries\n");
        assert_eq!(said(Event::Note("MARK 1.0 \n".to_owned())), "1234567.000000000 note MARK 1.0 \\n\n");
    }

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        for value in [0, 1, 9, 10, 255, 256, 4095, u64::from(u32::MAX), u64::MAX] {
            for digits in [0, 1, 8, 16] {
                let (mut ours, mut decimal) = (Vec::new(), Vec::new());
                hex(value, digits, &mut ours);
                padded(value, digits, b'0', &mut decimal);
                assert_eq!(ours, format!("0x{value:0digits$x}").into_bytes());
                assert_eq!(decimal, format!("{value:0digits$}").into_bytes());
            }
        }
    }
}
