//! To text.

use std::io::{Result, Write};

use super::FORMAT;
use super::device::Device;
use super::{line, loss};
use crate::event::{Access, Direction, Entry, Event, Origin, Place};
use crate::header::{FunctionRegionKind, Header};
use crate::text;
use gpuvmk_chip::register_sets::RegisterSet;
use gpuvmk_pci::Region;

/// Where BARs begin if the guest's own placement is not known: what tools want is that regions do not
/// overlap.
const SYNTHETIC: [u64; 7] = [0xf000_0000, 0x38_0000_0000, 0, 0x3c_0000_0000, 0, 0xe000, 0xfff0_0000];

/// Where the guest put the BARs, found by reading a trace once before it is exported. demmio knows one place
/// for each BAR, so it is the one at the first access to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bases {
    /// The BARs as the guest wrote them last.
    written: [u32; 6],
    found: [Option<u64>; 6],
}

impl Bases {
    /// Learns from an entry.
    pub fn see(&mut self, entry: &Entry, header: &Header) {
        let Event::Access(access) = &entry.event else { return };
        match (access.place, access.direction) {
            (Place::Region(Region::Config), Direction::Write) if access.size == 4 => {
                let index = access.offset.checked_sub(0x10).map(|offset| offset / 4);
                let index = index.and_then(|index| usize::try_from(index).ok());
                if let Some(bar) = index.and_then(|index| self.written.get_mut(index)) {
                    *bar = access.word();
                }
            }
            (Place::Region(Region::Bar(bar)), _) => {
                let bar = usize::from(bar);
                let base = self.base(bar, header);
                if let Some(found) = self.found.get_mut(bar).filter(|found| found.is_none()) {
                    *found = base;
                }
            }
            _ => {}
        }
    }

    /// The address in a BAR, if it has one.
    fn base(&self, bar: usize, header: &Header) -> Option<u64> {
        let region = header.function.as_ref()?.regions.get(bar)?;
        let low = u64::from(*self.written.get(bar)? & !15);
        let high = if region.kind == FunctionRegionKind::Memory64 { *self.written.get(bar + 1)? } else { 0 };
        let base = low | u64::from(high) << 32;
        // All ones ask for the size.
        (base != 0 && low != 0xffff_fff0 && region.size > 0 && base.is_multiple_of(region.size))
            .then_some(base)
    }
}

/// Writes mmiotrace text.
#[derive(Debug)]
pub struct Exporter<W> {
    sink: W,
    imported: bool,
    device: Option<Device>,
    origin: Origin,
    /// The expected value of the first register, until a read of it is written.
    boot_0: Option<u32>,
    /// Lost events that the last line reported.
    told: Option<u64>,
    line: Vec<u8>,
}

impl<W: Write> Exporter<W> {
    /// Writes what comes before the first entry.
    ///
    /// # Errors
    /// The sink's.
    pub fn new(sink: W, header: &Header, bases: &Bases) -> Result<Self> {
        let imported = header.from.as_deref() == Some(FORMAT);
        let set = header.chip.as_deref().and_then(RegisterSet::by_name);
        let mut exporter = Self {
            sink,
            imported,
            device: None,
            origin: Origin { map: 1, ..Origin::default() },
            boot_0: set.map(|set| set.boot_0).filter(|_| !imported),
            told: None,
            line: Vec::new(),
        };
        if !imported {
            exporter.sink.write_all(b"VERSION 20070824\n")?;
            if let Some(function) = &header.function {
                let mut bases: [u64; 7] = std::array::from_fn(|index| {
                    let found = bases.found.get(index).copied().flatten();
                    found.unwrap_or_else(|| SYNTHETIC.get(index).copied().unwrap_or(0))
                });
                // A synthetic place may be the guest's of another BAR: then all are synthetic.
                let device = Device { function: function.clone(), bases };
                if device.overlaps() {
                    bases = SYNTHETIC;
                }
                exporter.describe(Device { bases, ..device })?;
            }
        }
        Ok(exporter)
    }

    /// The function and the mappings of its BARs.
    fn describe(&mut self, device: Device) -> Result<()> {
        self.sink.write_all(device.print().as_bytes())?;
        let memory = [FunctionRegionKind::Memory32, FunctionRegionKind::Memory64];
        let regions = device.function.regions.iter().zip(device.bases).enumerate();
        for (index, (region, base)) in regions.filter(|(_, (region, _))| memory.contains(&region.kind)) {
            writeln!(self.sink, "MAP 0.000000 {} {base:#x} {base:#x} {:#x} 0x0 0", index + 1, region.size)?;
        }
        self.device = Some(device);
        Ok(())
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// The sink's.
    pub fn push(&mut self, entry: &Entry) -> Result<()> {
        let told = self.told.take();
        match &entry.event {
            Event::Origin(origin) => self.origin = *origin,
            Event::Note(note) => {
                if self.imported {
                    self.told = loss::lost(note);
                    self.device = self.device.take().or_else(|| Device::parse(note));
                    self.sink.write_all(note.as_bytes())?;
                    self.sink.write_all(b"\n")?;
                } else {
                    self.mark(entry, &note.escape_debug().to_string())?;
                }
            }
            Event::Lost { count } if told == Some(*count) => {}
            Event::Lost { count } => writeln!(self.sink, "MARK 0.000000 Lost {count} events.")?,
            Event::Access(access) => self.access(entry.nanos, access)?,
            _ => {
                self.line.clear();
                text::line(entry, &None, &mut self.line);
                // Without the time, which the mark has.
                let text = String::from_utf8_lossy(&self.line).trim().to_owned();
                let text = text.split_once(' ').map_or("", |(_, text)| text.trim_start()).to_owned();
                self.mark(entry, &text)?;
            }
        }
        Ok(())
    }

    fn access(&mut self, nanos: u64, access: &Access) -> Result<()> {
        let mapped = match access.place {
            Place::Physical => true,
            Place::Region(Region::Bar(_) | Region::Rom) => self.device.is_some(),
            Place::Region(Region::Config) => false,
        };
        if !mapped || (!self.imported && !access.size.is_power_of_two()) {
            return self.config(nanos, access);
        }
        if let Some(boot_0) = self.boot_0.take() {
            let bar0 = Place::Region(Region::Bar(0));
            let is_it = access.place == bar0 && access.offset == 0 && access.direction == Direction::Read;
            if !is_it {
                // demmio learns the chip from it.
                let first = Access {
                    direction: Direction::Read,
                    place: bar0,
                    size: 4,
                    offset: 0,
                    value: boot_0.into(),
                    took: 0,
                };
                self.print(nanos, &first)?;
            }
        }
        self.print(nanos, access)
    }

    fn print(&mut self, nanos: u64, access: &Access) -> Result<()> {
        let Self { device, origin, line, .. } = self;
        let address =
            device.as_ref().map_or(access.offset, |device| device.address(access.place, access.offset));
        let map = match access.place {
            Place::Region(region) if !self.imported => i64::from(region.index()) + 1,
            _ => origin.map,
        };
        line.clear();
        line::Access {
            write: access.direction == Direction::Write,
            width: access.size,
            micros: nanos / 1000,
            map,
            address,
            value: access.value,
            pc: origin.pc,
            pid: origin.pid,
        }
        .print(line);
        self.sink.write_all(line)
    }

    /// An access that has no record type.
    fn config(&mut self, nanos: u64, access: &Access) -> Result<()> {
        let letter = if access.direction == Direction::Read { 'R' } else { 'W' };
        let place = match access.place {
            Place::Region(Region::Config) => "cfg",
            place => text::place(place),
        };
        let (size, offset, value) = (access.size, access.offset, access.value);
        let digits = usize::from(size) * 2 + 2;
        let (seconds, micros) = (nanos / 1_000_000_000, nanos / 1000 % 1_000_000);
        writeln!(
            self.sink,
            "MARK {seconds}.{micros:06} {place} {letter} {size} {offset:#04x} {value:#0digits$x}"
        )
    }

    fn mark(&mut self, entry: &Entry, text: &str) -> Result<()> {
        let (seconds, micros) = (entry.nanos / 1_000_000_000, entry.nanos / 1000 % 1_000_000);
        writeln!(self.sink, "MARK {seconds}.{micros:06} {text}")
    }

    /// Writes what is left; returns what was written to.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish(mut self) -> Result<W> {
        self.sink.flush()?;
        Ok(self.sink)
    }
}
