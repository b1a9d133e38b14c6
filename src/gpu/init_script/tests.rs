#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use super::*;
use gpuvmk_chip::gf100::BOOT_0;
use gpuvmk_pci::Region;
use gpuvmk_trace::{Access, Direction, Entry, Event, Place};

fn entry(direction: Direction, offset: u64, value: u32) -> Entry {
    let place = Place::Region(Region::Bar(0));
    let access = Access { direction, place, size: 4, offset, value: value.into(), took: 0 };
    Entry { nanos: 0, event: Event::Access(access) }
}

fn read(offset: u64, value: u32) -> Entry {
    entry(Direction::Read, offset, value)
}

fn write(offset: u64, value: u32) -> Entry {
    entry(Direction::Write, offset, value)
}

/// The least that a driver does.
fn driver() -> Vec<Entry> {
    vec![
        read(0, BOOT_0),
        write(0x200, 0xffff_ffff),
        write(0x1700, 0x7f),
        write(0x10_f200, 5),
        read(0x10_f204, 0),
        read(0x9400, 1),
        read(0x10_f204, 1),
        write(0x40_4000, 7),
        write(0x40_9184, 0xdead),
        write(0x40_9100, 2),
        read(0x40_9800, 0x8000_0000),
        write(0x40_4004, 9),
        write(0x40_9500, 0x8000_1234),
        write(0x40_9504, 1),
        write(0x40_8004, 0x77),
        write(0x40_5000, 3),
        read(0x40_0700, 0),
        write(0x40_9000, 0x100),
        write(0x40_5000, 4),
        write(0x10_f200, 6),
    ]
}

fn record(entries: &[Entry]) -> Result<(Script, Report), NoScript> {
    let mut recorder = Recorder::default();
    entries.iter().for_each(|entry| recorder.step(entry));
    recorder.finish(0x06c0)
}

fn w(reg: u32, value: u32) -> Step {
    Step::Write { reg: Reg(reg), value }
}

#[test]
fn each_part_has_what_was_done_for_it() {
    let (script, report) = record(&driver()).unwrap();

    let wait = |reg, mask, value| Step::Wait { reg: Reg(reg), mask, value };
    assert_eq!(script.units, u32::MAX);
    assert_eq!(script.section(Section::Board).unwrap(), [w(0x10_f200, 5), wait(0x10_f204, 1, 1)]);
    assert_eq!(
        script.section(Section::Graphics).unwrap(),
        [w(0x40_4000, 7), w(0x40_9184, 0xdead), w(0x40_9100, 2)]
    );
    assert_eq!(script.section(Section::Golden).unwrap(), [w(0x40_5000, 3), wait(0x40_0700, u32::MAX, 0)]);
    assert_eq!(script.section(Section::Copy0), None);
    assert_eq!(report.skipped[&SkipReason::Memory], 2, "{report:?}");
    assert_eq!(report.skipped[&SkipReason::Later], 3, "{report:?}");
}

#[test]
fn copy_engine_is_complete_when_something_else_is_done() {
    let mut entries = driver();
    for (offset, value) in [
        (0x10_4184, 1),
        (0x10_4100, 2),
        (0x10_4048, 3),
        (0x10_4084, 0),
        (0x10_a000, 0),
        (0x10_4084, 9),
        (0x10_5184, 1),
    ] {
        entries.push(write(offset, value));
    }

    let (script, _) = record(&entries).unwrap();

    let steps = [w(0x10_4184, 1), w(0x10_4100, 2), w(0x10_4048, 3), w(0x10_4084, 0)];
    assert_eq!(script.section(Section::Copy0).unwrap(), steps);
    // It was never started.
    assert_eq!(script.section(Section::Copy1), None);
}

#[test]
fn trace_that_is_no_initialisation_is_refused_with_why() {
    assert_eq!(record(&[]).unwrap_err(), NoScript::NoChip);
    assert_eq!(record(&[read(0, 0x0e40_00a2)]).unwrap_err(), NoScript::Chip(0x0e40_00a2));
    assert_eq!(record(&driver()[..1]).unwrap_err(), NoScript::NoDriver);
    assert_eq!(record(&driver()[..10]).unwrap_err(), NoScript::NoGraphics(Section::Graphics));
    let mut by_dma = driver();
    by_dma.insert(7, write(0x40_9118, 0x6610));
    assert_eq!(record(&by_dma).unwrap_err(), NoScript::ByDma(Section::Graphics));
}

#[test]
fn file_says_what_the_script_says() {
    let (script, _) = record(&driver()).unwrap();
    assert_eq!(Script::parse(&script.to_text()).unwrap(), script);
}

#[test]
fn bad_files_are_refused_with_line_and_what_is_allowed() {
    let good = record(&driver()).unwrap().0.to_text();
    for (from, to, line, words) in [
        ("gpuvmk-init 1", "gpuvmk-init 2", 1, "gpuvmk-init 1"),
        ("units 0xffffffff", "units -1", 4, "no number"),
        ("units 0xffffffff", "# none", 1, "units is missing"),
        ("device 0x06c0", "device 0x106c0", 1, "more than 0xffff"),
        ("[graphics]", "[video]", 8, "there are board, graphics, golden, copy0, copy1"),
        ("[graphics]", "[board]", 8, "twice"),
        ("w 0x404000 0x00000007", "w 0x404001 0x00000007", 9, "multiple of 4"),
        ("w 0x404000 0x00000007", "w 0x408004 0x00000007", 9, "does not belong to [graphics]"),
        ("w 0x404000 0x00000007", "w 0x10f200 0x00000007", 9, "does not belong to [graphics]"),
        ("w 0x404000 0x00000007", "x 0x404000", 9, "`w REGISTER VALUE`"),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        let bad = Script::parse(&text).unwrap_err();
        assert_eq!(bad.line, line, "{bad}");
        assert!(bad.what.contains(words), "{bad}");
    }
}
