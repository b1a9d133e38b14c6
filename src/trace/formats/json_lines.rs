//! JSON Lines: one object for each entry.

use std::io::{Result, Write};

use serde_json::{Map, Value, json};

use crate::event::{Entry, Event};
use crate::text::{self, RegisterNames};

/// Writes an entry.
///
/// # Errors
/// The sink's.
pub fn write(entry: &Entry, source: &str, names: &impl RegisterNames, to: &mut impl Write) -> Result<()> {
    let mut object = Map::new();
    object.insert("ns".into(), entry.nanos.into());
    object.insert("source".into(), source.into());
    object.insert("kind".into(), entry.event.kind().word().into());
    if let Value::Object(details) = details(&entry.event, names) {
        object.extend(details);
    }
    serde_json::to_writer(&mut *to, &object)?;
    to.write_all(b"\n")
}

/// The fields of an event beside its kind.
pub fn details(event: &Event, names: &impl RegisterNames) -> Value {
    match event {
        Event::Access(access) => {
            let mut details = json!({
                "place": text::place(access.place), "size": access.size, "offset": access.offset, "value": access.value,
            });
            if access.took > 0 {
                details["took_ns"] = access.took.into();
            }
            if let Some((definition, index)) = text::register(access, names) {
                details["register"] = definition.name.into();
                details["unit"] = definition.unit.into();
                if let Some(index) = index {
                    details["index"] = index.into();
                }
            }
            details
        }
        Event::Reset => json!({}),
        Event::Doorbell { channel, gp_put } => json!({ "channel": channel, "gp_put": gp_put }),
        Event::Flush { directory } => json!({ "directory": directory }),
        Event::Shadow { space, mapped, unmapped } => {
            json!({ "space": space, "mapped": mapped, "unmapped": unmapped })
        }
        Event::Channel { channel, change } => json!({ "channel": channel, "change": change.word() }),
        Event::Interrupt { vector } => json!({ "vector": vector }),
        Event::Switch { engine, to } => json!({ "engine": engine, "to": to }),
        Event::Depth { engine, vm, entries } => json!({ "engine": engine, "vm": vm, "entries": entries }),
        Event::Refusal { reason, place } => json!({ "reason": reason, "at": place }),
        Event::Lost { count } => json!({ "count": count }),
        Event::Note(note) => json!({ "text": note }),
        Event::Origin(origin) => json!({ "map": origin.map, "pc": origin.pc, "pid": origin.pid }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Access, Direction, Place};
    use gpuvmk_chip::register_sets::RegisterSet;
    use gpuvmk_pci::Region;

    #[test]
    fn entry_is_one_object_on_one_line() {
        let place = Place::Region(Region::Bar(0));
        let access = Access { direction: Direction::Read, place, size: 4, offset: 0, value: 5, took: 80 };
        let mut lines = Vec::new();
        for event in [Event::Access(access), Event::Note("two\nlines".into())] {
            write(&Entry { nanos: 7, event }, "vm1", &RegisterSet::by_name("GF100"), &mut lines).unwrap();
        }
        let lines = String::from_utf8(lines).unwrap();
        let objects: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();

        assert_eq!(
            objects,
            [
                json!({
                    "ns": 7, "source": "vm1", "kind": "read", "place": "BAR0", "size": 4, "offset": 0, "value": 5,
                    "took_ns": 80, "register": "NV_PMC_BOOT_0", "unit": "PMC",
                }),
                json!({ "ns": 7, "source": "vm1", "kind": "note", "text": "two\nlines" }),
            ]
        );
    }
}
