use super::*;
use crate::event::{Access, Direction, Entry, Event, Place};
use crate::header::{Function, FunctionRegion, FunctionRegionKind, Header};
use crate::reader::Reader;
use gpuvmk_pci::Region;

const CAPTURE: &str = "VERSION 20070824
PCIDEV 0000 80863e1f 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 skl_uncore
PCIDEV 0100 10de1b81 10 f6000000 e000000c 0 f000000c 0 e001 f7000000 1000000 10000000 0 2000000 0 80 80000 nouveau
MAP 1268.104001 1 0xf6000000 0xffffb7c8c3000000 0x1000000 0xffffffffc09a1b2c 0
R 4 1268.104857 1 0xf6000000 0x134000a1 0xffffffffc09a1b2c 0
W 4 1268.104858 1 0xf6002140 0x11 0xffffffffc09a1b2c 0
MARK 1268.104859 X is up
CPU:1 [LOST 4521 EVENTS]
MARK 1268.104859 Lost 3 events.
R 1 1268.104860 2 0xf0000010 0xff 0x0 -1
W 8 1268.104861 3 0xfee00000 0xffffffffffffffff 0x0 0
UNKNOWN 1268.104862 1 0xf6000000 f3,aa,00 0x0 0
UNMAP 1268.104863 1 0xffffffffc09a1b2c 0
CPU:0 [LOST EVENTS]
[LINE TOO BIG]
##### CPU 2 buffer started ####
MARK 0.000000 Lost 12 events.
";

fn imported(text: &[u8]) -> Vec<u8> {
    import(text, Vec::new()).unwrap()
}

fn entries(trace: &[u8]) -> Vec<Entry> {
    Reader::new(trace).unwrap().map(|entry| entry.unwrap()).collect()
}

fn exported(trace: &[u8]) -> String {
    let header = Reader::new(trace).unwrap().header().clone();
    let mut bases = Bases::default();
    entries(trace).iter().for_each(|entry| bases.see(entry, &header));
    let mut exporter = Exporter::new(Vec::new(), &header, &bases).unwrap();
    entries(trace).iter().for_each(|entry| exporter.push(entry).unwrap());
    String::from_utf8(exporter.finish().unwrap()).unwrap()
}

#[test]
fn capture_comes_back_byte_by_byte() {
    assert_eq!(exported(&imported(CAPTURE.as_bytes())), CAPTURE);
}

#[test]
fn losses_of_a_capture_are_entries_where_they_were() {
    let head = "# tracer: mmiotrace\n#\n# entries-in-buffer/entries-written: 5/8   #P:1\n#\n";
    let trace = imported(format!("{head}{CAPTURE}").as_bytes());
    let losses: Vec<_> = entries(&trace)
        .iter()
        .filter_map(|entry| match entry.event {
            Event::Lost { count } => Some((entry.nanos / 1000, count)),
            _ => None,
        })
        .collect();

    let late = 1_268_104_861;
    assert_eq!(losses, [(0, 3), (1_268_104_858, 4521), (late, 1), (late, 1), (late, 12)]);
    assert_eq!(exported(&trace), format!("{head}{CAPTURE}"));
}

#[test]
fn loss_of_our_own_is_one_again() {
    let text = exported(&own(&[(Direction::Read, Place::Region(Region::Bar(0)), 4, 0, 0x0c00_00a3)]));
    let trace = imported(text.as_bytes());

    let losses = entries(&trace).iter().filter(|entry| entry.event == Event::Lost { count: 4 }).count();
    assert_eq!(losses, 1);
    assert_eq!(exported(&trace), text);
}

#[test]
fn accesses_of_a_capture_have_their_bars() {
    let trace = imported(CAPTURE.as_bytes());
    let places: Vec<_> = entries(&trace)
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::Access(access) => Some((access.place, access.offset, access.size)),
            _ => None,
        })
        .collect();

    let bar = |bar| Place::Region(Region::Bar(bar));
    assert_eq!(
        places,
        [(bar(0), 0, 4), (bar(0), 0x2140, 4), (bar(3), 0x10, 1), (Place::Physical, 0xfee0_0000, 8)]
    );
    assert_eq!(Reader::new(trace.as_slice()).unwrap().header().function.as_ref().unwrap().device, 0x1b81);
}

#[test]
fn damage_is_named_and_what_precedes_it_is_kept() {
    let damaged = CAPTURE.replace("MARK 1268.104859", "MORK 1268.104859");
    let place = damaged.find("MORK").unwrap();
    let mut kept = Vec::new();
    let error = import(damaged.as_bytes(), &mut kept).unwrap_err();

    assert!(
        matches!(error, ImportError::Invalid { offset, line: 7, .. } if offset == place as u64),
        "{error}"
    );
    assert_eq!(exported(&kept).as_bytes(), &damaged.as_bytes()[..place]);
}

#[test]
fn every_cut_is_named_and_what_precedes_it_is_kept() {
    for cut in 1..CAPTURE.len() {
        let text = &CAPTURE.as_bytes()[..cut];
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut kept = Vec::new();
        let result = import(text, &mut kept).map(|_| ());

        match result {
            Ok(()) => assert_eq!(whole, cut),
            Err(ImportError::CutOff { offset }) => assert_eq!(offset, whole as u64),
            Err(other) => panic!("{other}"),
        }
        assert_eq!(exported(&kept).as_bytes(), &text[..whole]);
    }
}

#[test]
fn lines_without_end_do_not_fill_memory() {
    let error = import(std::io::BufReader::new(std::io::repeat(b'a')), Vec::new()).unwrap_err();

    assert!(matches!(error, ImportError::Invalid { offset: 0, line: 1, .. }), "{error}");
}

fn own(accesses: &[(Direction, Place, u8, u64, u64)]) -> Vec<u8> {
    let mut function = Function { vendor: 0x10de, device: 0x6c0, ..Function::default() };
    function.regions[0] = FunctionRegion { size: 0x100_0000, kind: FunctionRegionKind::Memory32 };
    function.regions[1] = FunctionRegion { size: 0x400_0000, kind: FunctionRegionKind::Memory64 };
    let header = Header { chip: Some("GF100".into()), function: Some(function), ..Header::default() };
    let mut writer = crate::writer::Writer::new(Vec::new(), &header).unwrap();
    for (at, (direction, place, size, offset, value)) in accesses.iter().copied().enumerate() {
        let event = Event::Access(Access { direction, place, size, offset, value, took: 5 });
        writer.push(&Entry { nanos: 1000 * at as u64, event }).unwrap();
    }
    writer.push(&Entry { nanos: 9_000_000, event: Event::Doorbell { channel: 3, gp_put: 7 } }).unwrap();
    writer.push(&Entry { nanos: 9_000_000, event: Event::Lost { count: 4 } }).unwrap();
    writer.finish().unwrap()
}

#[test]
fn own_trace_has_the_bars_where_the_guest_put_them() {
    use Direction::{Read, Write};
    let config = Place::Region(Region::Config);
    let text = exported(&own(&[
        (Write, config, 4, 0x10, 0xffff_ffff),
        (Write, config, 4, 0x10, 0xfd00_0000),
        (Write, config, 4, 0x14, 0xe000_000c),
        (Write, config, 4, 0x18, 0x1),
        (Write, Place::Region(Region::Bar(0)), 4, 0x2140, 0x11),
        (Read, Place::Region(Region::Bar(1)), 8, 0x20, 0xabc),
        (Read, Place::Region(Region::Rom), 3, 0x20, 0xabc),
    ]));

    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "VERSION 20070824",
            "PCIDEV 0100 10de06c0 0 fd000000 1e000000c 0 0 0 0 0 1000000 4000000 0 0 0 0 0 nouveau",
            "MAP 0.000000 1 0xfd000000 0xfd000000 0x1000000 0x0 0",
            "MAP 0.000000 2 0x1e0000000 0x1e0000000 0x4000000 0x0 0",
            "MARK 0.000000 cfg W 4 0x10 0xffffffff",
            "MARK 0.000001 cfg W 4 0x10 0xfd000000",
            "MARK 0.000002 cfg W 4 0x14 0xe000000c",
            "MARK 0.000003 cfg W 4 0x18 0x00000001",
            "R 4 0.000004 1 0xfd000000 0xc0000a3 0x0 0",
            "W 4 0.000004 1 0xfd002140 0x11 0x0 0",
            "R 8 0.000005 2 0x1e0000020 0xabc 0x0 0",
            "MARK 0.000006 ROM R 3 0x20 0x000abc",
            "MARK 0.009000 doorbell channel 3 GP_PUT 7",
            "MARK 0.000000 Lost 4 events.",
        ]
    );
}

#[test]
fn own_trace_without_placed_bars_has_synthetic_ones() {
    let text = exported(&own(&[(Direction::Read, Place::Region(Region::Bar(0)), 4, 0, 0x0c00_00a3)]));

    assert!(text.contains("PCIDEV 0100 10de06c0 0 f0000000 380000000c 0 "), "{text}");
    assert_eq!(text.matches("0xf0000000 0xc0000a3").count(), 1, "{text}");
}
