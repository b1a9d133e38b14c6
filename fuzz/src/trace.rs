//! The trace reader: any file gives entries that can be shown and written again, then an end or an error.
//! Some inputs are files, others the entries of a block whose head and checksum are right, and others texts
//! of mmiotrace, which come back as they were, up to what is wrong in them.

use gpuvmk::chip::register_sets::ALL;
use gpuvmk::trace::block::BlockHead;
use gpuvmk::trace::codec::Decoder;
use gpuvmk::trace::formats::mmiotrace::{self, Bases, Exporter, ImportError};
use gpuvmk::trace::writer::Writer;
use gpuvmk::trace::{Entry, Header, Reader, TraceError, text};

/// Reads `data` as a trace.
pub fn run(data: &[u8]) {
    match data {
        [0, block @ ..] => read(&file(block), true),
        [2, text @ ..] => import(text),
        [_, file @ ..] => read(file, false),
        [] => {}
    }
}

/// A file with a block of these bytes.
fn file(block: &[u8]) -> Vec<u8> {
    let mut decoder = Decoder::new(0);
    let mut entries = 0;
    while let Ok(Some(_)) = decoder.next(block) {
        entries += 1;
    }
    let mut bytes = Header::default().encode().expect("a short head");
    let length = u32::try_from(block.len()).expect("a short input");
    let head = BlockHead { length, entries, checksum: 0, base: 0 };
    bytes.extend_from_slice(&BlockHead { checksum: head.expected(block), ..head }.encode());
    bytes.extend_from_slice(block);
    bytes
}

fn read(file: &[u8], framed: bool) {
    let Ok(reader) = Reader::new(file) else { return };
    let header = reader.header().clone();
    let mut entries = Vec::new();
    let mut line = Vec::new();
    for entry in reader {
        match entry {
            Ok(entry) => {
                line.clear();
                for set in &ALL {
                    text::line(&entry, &Some(set), &mut line);
                }
                assert!(line.ends_with(b"\n"), "an entry has no line");
                entries.push(entry);
            }
            Err(TraceError::CutOff { offset } | TraceError::Invalid { offset, .. }) => {
                assert!(offset <= file.len() as u64, "the damage is named behind the end");
            }
            Err(TraceError::Magic(_) | TraceError::Head(_) | TraceError::Io(_)) => {
                panic!("an error of the head behind it");
            }
        }
    }
    assert!(!framed || entries.len() <= file.len());
    // What was read can be written, and says the same.
    let mut writer = Writer::new(Vec::new(), &header).expect("a head that was read");
    entries.iter().for_each(|entry| writer.push(entry).expect("memory"));
    let again = writer.finish().expect("memory");
    let found: Vec<Entry> =
        Reader::new(again.as_slice()).expect("a trace").map(|entry| entry.expect("an entry")).collect();
    assert!(found == entries, "what was written says something else");
}

/// Imports a text and exports it again.
fn import(text: &[u8]) {
    let mut trace = Vec::new();
    let damage = mmiotrace::import(text, &mut trace).err();
    let reader = Reader::new(trace.as_slice()).expect("a trace has a head");
    let header = reader.header().clone();
    let mut exporter = Exporter::new(Vec::new(), &header, &Bases::default()).expect("memory");
    reader.for_each(|entry| exporter.push(&entry.expect("an entry")).expect("memory"));
    let again = exporter.finish().expect("memory");
    assert!(text.starts_with(&again), "what was understood is exported otherwise");
    match damage {
        None => assert!(again.len() == text.len(), "a text without damage is cut off"),
        Some(ImportError::Invalid { offset, .. } | ImportError::CutOff { offset }) => {
            assert!(offset == again.len() as u64, "the damage is named elsewhere");
        }
        Some(error) => panic!("memory cannot be read or written: {error}"),
    }
}
