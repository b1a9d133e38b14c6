//! From text.

use std::io::{BufRead, Write};

use super::FORMAT;
use super::device::Device;
use super::line::Line;
use crate::codec::MOST_TEXT;
use crate::event::{Access, Direction, Entry, Event, Origin, Place};
use crate::header::{Header, program};
use crate::writer::Writer;
use gpuvmk_chip::register_sets::RegisterSet;
use gpuvmk_pci::Region;

/// How ftrace's file `trace` begins, which has comments; `trace_pipe` has none.
const HEAD: &str = "# tracer: mmiotrace";

/// Why the rest of a text cannot be read. Entries before that place were written.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A line makes no sense.
    #[error("Invalid mmiotrace at byte {offset}, line {line}: {what}")]
    Invalid {
        /// Where its line begins.
        offset: u64,
        /// The number of its line.
        line: u64,
        /// The mistake.
        what: &'static str,
    },
    /// The last line has no end.
    #[error("The mmiotrace is cut off in the line at byte {offset}")]
    CutOff {
        /// Where its line begins.
        offset: u64,
    },
    /// Reading failed.
    #[error("Cannot read the mmiotrace")]
    Read(#[source] std::io::Error),
    /// Writing failed.
    #[error("Cannot write the trace")]
    Write(#[source] std::io::Error),
}

/// Reads lines and their places.
struct Lines<R> {
    source: R,
    offset: u64,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// The next line, without its end.
    fn next(&mut self) -> Result<Option<String>, ImportError> {
        let mut bytes = Vec::new();
        // One byte more than a line may have: a longer one shows, and a file of zeros does not fill memory.
        let most = MOST_TEXT as u64 + 1;
        let mut source = std::io::Read::take(&mut self.source, most);
        let read = source.read_until(b'\n', &mut bytes).map_err(ImportError::Read)?;
        if read == 0 {
            return Ok(None);
        }
        if bytes.pop() != Some(b'\n') {
            return Err(if read as u64 == most {
                self.invalid("a line of more than 1023 characters")
            } else {
                ImportError::CutOff { offset: self.offset }
            });
        }
        let text = String::from_utf8(bytes).map_err(|_| self.invalid("a line that is not UTF-8"))?;
        Ok(Some(text))
    }

    const fn invalid(&self, what: &'static str) -> ImportError {
        ImportError::Invalid { offset: self.offset, line: self.number + 1, what }
    }

    const fn done(&mut self, text: &str) {
        self.offset += text.len() as u64 + 1;
        self.number += 1;
    }
}

/// Writes the trace of a text; the entries that precede damage are in it when the error comes back.
///
/// # Errors
/// The text makes no sense, or reading or writing failed.
pub fn import<W: Write>(source: impl BufRead, sink: W) -> Result<W, ImportError> {
    let mut lines = Lines { source, offset: 0, number: 0 };
    // The head needs the function, which comes before all accesses.
    let (mut early, mut device, mut boot_0) = (Vec::new(), None, None);
    let mut pending = loop {
        let text = match lines.next() {
            Ok(Some(text)) => text,
            Ok(None) => break Ok(None),
            Err(error) => break Err(error),
        };
        match Line::parse(&text) {
            Ok(Line::Access(access)) => {
                boot_0 = first_of_bar0(&device, access.address).then_some(access.value);
                break Ok(Some(text));
            }
            Ok(Line::Lost(count)) => {
                lines.done(&text);
                early.push((text, Some(count)));
            }
            // Many texts begin with a comment.
            Ok(Line::Other) if lines.number == 0 && text.starts_with('#') && text != HEAD => {
                break Err(lines.invalid("a comment that is not the kernel's"));
            }
            Ok(Line::Other) => {
                device = device.or_else(|| Device::parse(&text));
                lines.done(&text);
                early.push((text, None));
            }
            Err(what) => break Err(lines.invalid(what)),
        }
    };
    let chip = boot_0.and_then(|value| RegisterSet::by_boot_0(u32::try_from(value).ok()?));
    let header = Header {
        source: "mmiotrace".to_owned(),
        chip: chip.map(|set| set.chip.to_owned()),
        function: device.as_ref().map(|device| device.function.clone()),
        program: program(),
        from: Some(FORMAT.to_owned()),
        ..Header::default()
    };
    let mut writer = Writer::new(sink, &header).map_err(ImportError::Write)?;
    let mut past = Past { nanos: 0, origin: None };
    for (text, lost) in early {
        past.note(text, lost, &mut writer)?;
    }
    let end = loop {
        match pending {
            Ok(Some(text)) => match Line::parse(&text) {
                Ok(Line::Access(access)) => {
                    lines.done(&text);
                    let place = device.as_ref().and_then(|device| device.place(access.address));
                    let (place, offset) = place.unwrap_or((Place::Physical, access.address));
                    let direction = if access.write { Direction::Write } else { Direction::Read };
                    let (size, value) = (access.width, access.value);
                    let origin = Origin { map: access.map, pc: access.pc, pid: access.pid };
                    let access_of = Access { direction, place, size, offset, value, took: 0 };
                    past.access(access.micros * 1000, origin, access_of, &mut writer)?;
                }
                Ok(Line::Lost(count)) => {
                    lines.done(&text);
                    past.note(text, Some(count), &mut writer)?;
                }
                Ok(Line::Other) => {
                    lines.done(&text);
                    past.note(text, None, &mut writer)?;
                }
                Err(what) => break Err(lines.invalid(what)),
            },
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
        pending = lines.next();
    };
    let sink = writer.finish().map_err(ImportError::Write)?;
    end.map(|()| sink)
}

fn first_of_bar0(device: &Option<Device>, address: u64) -> bool {
    device.as_ref().and_then(|device| device.place(address)) == Some((Place::Region(Region::Bar(0)), 0))
}

/// State after the last entry.
struct Past {
    nanos: u64,
    origin: Option<Origin>,
}

impl Past {
    /// A line as it was, and the loss that it reports.
    fn note<W: Write>(
        &self,
        text: String,
        lost: Option<u64>,
        writer: &mut Writer<W>,
    ) -> Result<(), ImportError> {
        let loss = lost.map(|count| Event::Lost { count });
        for event in std::iter::once(Event::Note(text)).chain(loss) {
            writer.push(&Entry { nanos: self.nanos, event }).map_err(ImportError::Write)?;
        }
        Ok(())
    }

    fn access<W: Write>(
        &mut self,
        nanos: u64,
        origin: Origin,
        access: Access,
        writer: &mut Writer<W>,
    ) -> Result<(), ImportError> {
        self.nanos = nanos;
        if self.origin != Some(origin) {
            self.origin = Some(origin);
            writer.push(&Entry { nanos, event: Event::Origin(origin) }).map_err(ImportError::Write)?;
        }
        writer.push(&Entry { nanos, event: Event::Access(access) }).map_err(ImportError::Write)
    }
}
