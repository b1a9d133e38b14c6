//! CSV: one row for each entry, with a row of headings.

use std::io::{Result, Write};

use super::json_lines;
use crate::event::{Entry, Event};
use crate::text::{self, RegisterNames};

/// Writes rows.
#[derive(Debug)]
pub struct Rows<W: Write> {
    rows: csv::Writer<W>,
}

impl<W: Write> Rows<W> {
    /// Writes the headings.
    ///
    /// # Errors
    /// The sink's.
    pub fn new(sink: W) -> Result<Self> {
        let mut rows = csv::Writer::from_writer(sink);
        rows.write_record([
            "ns", "source", "kind", "place", "size", "offset", "value", "took_ns", "register", "details",
        ])?;
        Ok(Self { rows })
    }

    /// Writes an entry. Offsets and values are hexadecimal; `details` is JSON.
    ///
    /// # Errors
    /// The sink's.
    pub fn push(&mut self, entry: &Entry, source: &str, names: &impl RegisterNames) -> Result<()> {
        let (nanos, kind) = (entry.nanos.to_string(), entry.event.kind().word());
        match &entry.event {
            Event::Access(access) => {
                let register = text::register(access, names).map_or_else(String::new, |named| match named {
                    (definition, Some(index)) => format!("{}[{index}]", definition.name),
                    (definition, None) => definition.name.to_owned(),
                });
                self.rows.write_record([
                    &nanos,
                    source,
                    kind,
                    text::place(access.place),
                    &access.size.to_string(),
                    &format!("{:#x}", access.offset),
                    &format!("{:#x}", access.value),
                    &access.took.to_string(),
                    &register,
                    "",
                ])?;
            }
            event => {
                let details = json_lines::details(event, names).to_string();
                self.rows.write_record([&nanos, source, kind, "", "", "", "", "", "", &details])?;
            }
        }
        Ok(())
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish(mut self) -> Result<()> {
        self.rows.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Access, Direction, Place};
    use gpuvmk_pci::Region;

    #[test]
    fn every_entry_is_a_row() {
        let place = Place::Region(Region::Bar(3));
        let access = Access { direction: Direction::Write, place, size: 2, offset: 16, value: 255, took: 1 };
        let mut text = Vec::new();
        let mut rows = Rows::new(&mut text).unwrap();
        rows.push(&Entry { nanos: 1, event: Event::Access(access) }, "vm1", &None).unwrap();
        rows.push(&Entry { nanos: 2, event: Event::Interrupt { vector: 3 } }, "vm1", &None).unwrap();
        rows.finish().unwrap();

        let text = String::from_utf8(text).unwrap();
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            ["1,vm1,write,BAR3,2,0x10,0xff,1,,", "2,vm1,interrupt,,,,,,,\"{\"\"vector\"\":3}\""]
        );
    }
}
