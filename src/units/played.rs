//! For tests: golden traces that are played into a function, and what shows outside.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpuvmk_pci::{InterruptSink, PciFunction, Region};
use gpuvmk_trace::{Access, Direction, Entry, Event, Place, Source};

/// State of the guest's interrupt controller.
#[derive(Debug, Default)]
pub struct Sink {
    line: AtomicBool,
    messages: AtomicU64,
}

impl InterruptSink for Sink {
    fn set_intx(&self, asserted: bool) {
        self.line.store(asserted, Ordering::SeqCst);
    }

    fn fire_msi(&self, _: u16) {
        self.messages.fetch_add(1, Ordering::SeqCst);
    }

    fn message_sent(&self, _vector: u16) {}
}

impl Sink {
    /// The line, and how many messages were sent by the function.
    pub fn seen(&self) -> (bool, u64) {
        (self.line.load(Ordering::SeqCst), self.messages.load(Ordering::SeqCst))
    }
}

/// A golden trace: its entries, and the VRAM of its function.
pub fn golden(name: &str) -> (Vec<Entry>, u64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name);
    let source = Source::open(File::open(path).unwrap()).unwrap();
    let vram = source.header().vram.unwrap();
    (source.map(Result::unwrap).collect(), vram)
}

/// The golden trace of the probe of a chip of which there is one: its entries, and the VRAM of its function.
pub fn probe_of(chip: &str) -> (Vec<Entry>, u64) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let prefix = format!("{}-linux-", chip.to_ascii_lowercase());
    let names =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names = names.filter(|name| name.starts_with(&prefix));
    let (Some(name), None) = (names.next(), names.next()) else { panic!("not one trace of a {chip}") };
    golden(&name)
}

/// Plays an entry; what was read.
pub fn play(function: &dyn PciFunction, entry: &Entry) -> Vec<u8> {
    let mut read = Vec::new();
    match &entry.event {
        Event::Access(access) => {
            let Place::Region(region) = access.place else { panic!("{access:?}") };
            let size = usize::from(access.size);
            if access.direction == Direction::Read {
                read.resize(size, 0);
                function.read(region, access.offset, &mut read).unwrap();
            } else {
                function.write(region, access.offset, &access.value.to_le_bytes()[..size]).unwrap();
            }
        }
        Event::Reset => function.reset(),
        _ => {}
    }
    read
}

/// The value that was read when the trace was recorded; `None` if this is no read.
pub fn recorded(entry: &Entry) -> Option<Vec<u8>> {
    let access = access(entry).filter(|access| access.direction == Direction::Read)?;
    Some(access.value.to_le_bytes()[..usize::from(access.size)].to_vec())
}

/// The value that an entry writes to a register.
pub fn written(entry: &Entry, offset: u32) -> Option<u64> {
    let access = access(entry).filter(|access| access.direction == Direction::Write)?;
    let is_it = access.place == Place::Region(Region::Bar(0)) && access.offset == u64::from(offset);
    is_it.then_some(access.value)
}

const fn access(entry: &Entry) -> Option<&Access> {
    match &entry.event {
        Event::Access(access) => Some(access),
        _ => None,
    }
}
