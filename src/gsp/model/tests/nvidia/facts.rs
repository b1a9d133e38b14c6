//! What the driver is told of the GPU. Offsets and numbers are those of its headers.

use super::dialogue::{Recording, Step};
use super::replay::{Answer, Talk};
use gpuvmk_backend::EngineTime;

/// What is never in an answer but as an echo.
const GARBAGE: u8 = 0xa5;

/// A driver of 550.163.01 that has booted GSP and has static info.
fn booted() -> (Talk, Answer) {
    booted_as_in(Recording::of_550())
}

/// The driver of a recording that has booted GSP and has static info.
pub fn booted_as_in(recording: &Recording) -> (Talk, Answer) {
    let mut talk = Talk::of(recording);
    let mut info = None;
    for step in recording.steps().iter().take(5) {
        info = talk.step(step).or(info);
    }
    (talk, info.unwrap())
}

/// A control of the firmware's own subdevice, with these parameters.
pub fn ask(talk: &mut Talk, number: u32, parameters: Vec<u8>) -> Answer {
    talk.step(&Step::Control { to: None, number, parameters }).unwrap()
}

/// The same, with bytes that must not come back.
pub fn ask_nothing(talk: &mut Talk, number: u32, size: usize) -> Answer {
    let answer = ask(talk, number, vec![GARBAGE; size]);
    assert!(answer.is_ok(), "{number:#x}: {answer:?}");
    assert!(!answer.rest.contains(&GARBAGE), "{number:#x} gives back what was asked with");
    answer
}

#[test]
fn static_info_tells_all_of_vram_and_names_the_firmwares_own_objects() {
    let (talk, info) = booted();

    assert_eq!(info.rest.len(), 0x888);
    assert_eq!(info.word(0x18 + 8), 16);
    assert_eq!(info.rest[0x24..0x34], *b"a UUID of a card");
    assert_eq!(info.word(0x124), 0xff);
    let tpcs: Vec<_> = (0..9).map(|gpc| (info.word(0x128 + 8 * gpc), info.word(0x12c + 8 * gpc))).collect();
    assert_eq!(tpcs[..8], (0..8).map(|gpc| (gpc, 0x1ff)).collect::<Vec<_>>());
    assert_eq!(tpcs[8], (8, 0));
    // Regions follow each other from 0 to the end; what is reserved says how much.
    assert_eq!(info.word(0x358), 3);
    let regions: Vec<_> = (0..3).map(|region| 0x360 + 0x30 * region).collect();
    let bounds: Vec<_> = regions.iter().map(|at| (info.long(*at), info.long(at + 8))).collect();
    let (top, end) = ((1 << 30) - (4 << 20), 1 << 30);
    assert_eq!(bounds, [(0, 0xf_ffff), (0x10_0000, top - 1), (top, end - 1)]);
    assert_eq!(regions.iter().map(|at| info.long(at + 16)).collect::<Vec<_>>(), [0x10_0000, 0, 4 << 20]);
    assert_eq!(regions.iter().map(|at| info.rest[at + 0x1c]).collect::<Vec<_>>(), [0, 1, 0]);
    // Graphics, and three copy engines.
    assert_eq!((info.word(0x6b4), info.word(0x6b8)), (1 << 1 | 7 << 9, 0));
    assert_eq!(info.word(0x6bc), 0x900);
    // VRAM, in bytes.
    assert_eq!(info.long(0x6e8), 1 << 30);
    assert!(info.rest[0x72c..].starts_with(b"Virtual GH100\0"));
    let gsp = &talk.driver.gsp;
    assert_eq!((info.long(0x838), info.long(0x840)), (gsp.bar1_root(), gsp.bar2_root()));
    assert_eq!(info.rest[0x855], 1);
    assert_eq!([0, 4, 8].map(|at| info.word(0x878 + at)), [0xc1f0_0004, 0xabcd_0080, 0xabcd_2080]);
}

/// A driver asks some of these with what was on its stack.
#[test]
fn what_is_asked_for_is_filled_in_or_zero_and_never_an_echo() {
    let (mut talk, _) = booted();
    for (number, size) in [
        (0x2080_01b0, 1284),
        (0x2080_012f, 1024),
        (0x2080_013f, 136),
        (0x2080_017e, 8),
        (0x2080_0a1c, 40),
        (0x2080_0a1f, 184),
        (0x2080_0a22, 23072),
        (0x2080_0a26, 2368),
        (0x2080_0a2a, 3584),
        (0x2080_0a2c, 320),
        (0x2080_0a2e, 96),
        (0x2080_0a30, 384),
        (0x2080_0a32, 1664),
        (0x2080_0a34, 72),
        (0x2080_0a36, 88),
        (0x2080_0a37, 24),
        (0x2080_0a38, 24),
        (0x2080_0a3d, 32),
        (0x2080_0a3f, 256),
        (0x2080_0a40, 9220),
        (0x2080_0a41, 8204),
        (0x2080_0a48, 8),
        (0x2080_0a4c, 4),
        (0x2080_0a59, 16),
        (0x2080_0a5c, 2068),
        (0x2080_0a67, 32),
        (0x2080_0a80, 16),
        (0x2080_0aac, 16),
        (0x2080_0af3, 2),
        (0x2080_1803, 200),
        (0x2080_2a06, 4),
        (0x2080_2a08, 4),
        (0x2080_2a09, 132),
        (0x2080_2a0b, 136),
        (0x2080_302c, 532),
        (0x2080_3032, 1420),
        (0x2080_3039, 32),
        (0x2080_0111, 64),
        (0x2080_01ab, 1),
        (0x2080_01ae, 1),
        (0x2080_3601, 72),
    ] {
        ask_nothing(&mut talk, number, size);
    }
}

#[test]
fn chip_and_bars_are_those_of_the_function_and_of_the_host() {
    let (mut talk, _) = booted();

    let chip = ask_nothing(&mut talk, 0x2080_0a36, 88);
    assert_eq!([0xc, 0x10, 0x14].map(|at| chip.word(at)), [0x2330_10de, 0x16c1_10de, 0xa1]);
    let bases: Vec<_> = (0..6).map(|unit| chip.word(0x18 + 4 * unit)).collect();
    assert_eq!(bases, [!0, 0x40_0000, 0x9000, 0, 0xbb_0000, !0]);

    let bars = ask_nothing(&mut talk, 0x2080_1803, 200);
    assert_eq!(bars.word(0), 3);
    let bar =
        |bar: usize| (bars.word(0xc + 24 * bar), bars.long(0x10 + 24 * bar), bars.long(0x18 + 24 * bar));
    assert_eq!(bar(0), (16, 16 << 20, 0xfd00_0000));
    assert_eq!(bar(1), (256, 256 << 20, 0xd000_0000));
    assert_eq!(bar(2), (32, 32 << 20, 0xe000_0000));
}

#[test]
fn multiprocessors_and_clusters_agree() {
    let (mut talk, _) = booted();

    let masks = ask_nothing(&mut talk, 0x2080_0a26, 2368);
    assert_eq!((masks.word(0), masks.word(0x64)), (0xff, 0xff));
    let clusters: u32 = (0..12).map(|gpc| masks.word(0x34 + 4 * gpc)).sum();
    let order = ask_nothing(&mut talk, 0x2080_0a22, 23072);
    assert_eq!(order.word(0xb40), (clusters << 16) | (2 * clusters));
    let place = |at: usize| (order.word(12 * at), order.word(12 * at + 4));
    assert_eq!((place(0), place(1), place(2)), ((0, 0), (0, 1), (1, 1 << 16)));
    let info = ask_nothing(&mut talk, 0x2080_0a2a, 3584);
    assert!((0..56).all(|index: usize| info.word(8 * index) as usize == index));
    assert_eq!([0x0c, 0x14, 0x17, 0x20, 0x2c].map(|index| info.word(8 * index + 4)), [0x900, 8, 9, 2, 64]);
    assert_eq!(info.word(8 * 0x1d + 4), 2 * clusters * 128);
    assert!((56..448).all(|index: usize| info.word(8 * index) == 0), "of other engines");
}

#[test]
fn engines_have_the_drivers_own_numbers_and_one_is_for_software() {
    let (mut talk, _) = booted();

    let table = ask(&mut talk, 0x2080_1112, vec![0; 3212]);
    assert_eq!(table.word(4), 5);
    let word = |entry: usize, at: usize| table.word(12 + 100 * entry + 4 * at);
    let numbers: Vec<_> = (0..5).map(|entry| [0, 2, 3, 4, 9, 12].map(|at| word(entry, at))).collect();
    assert_eq!(numbers[0], [0xd334_df00, 1, 0, 384, 0, 1]);
    assert_eq!(numbers[1], [0x793c_eb00, 9, 0, 43, 19, 1]);
    assert_eq!(numbers[2], [0x793c_eb01, 10, 1, 44, 19, 1]);
    assert_eq!(numbers[3], [0x793c_eb02, 11, 2, 45, 19, 1]);
    assert_eq!(numbers[4], [0x95a6_f500, 0x2d, 0, !0, !0, 0]);
    // The next page is empty.
    let mut next = vec![0; 3212];
    next[0] = 5;
    assert_eq!(ask(&mut talk, 0x2080_1112, next).word(4), 0);
}

#[test]
fn interrupts_have_their_categories_and_the_doorbell_that_the_driver_tries() {
    let (mut talk, _) = booted();

    let table = ask_nothing(&mut talk, 0x2080_0a5c, 2068);
    let entries = table.word(0) as usize;
    let entry = |at: usize| [0, 8, 12].map(|word| table.word(4 + 16 * at + word));
    let all: Vec<_> = (0..entries).map(entry).collect();
    assert_eq!(all[0], [50, 0x60, !0]);
    assert_eq!(all[1..5], [[84, !0, 0x20], [15, !0, 0x21], [16, !0, 0x22], [17, !0, 0x23]]);
    assert_eq!(all[5], [73, 129, !0], "CPU_DOORBELL");
    assert_eq!(all[6..].iter().map(|[source, ..]| *source).collect::<Vec<_>>(), [61, 59, 60, 62, 64, 63]);
    assert!(all[6..].iter().zip(130..).all(|(entry, vector)| entry[1..] == [vector, !0]));
    assert_eq!(table.rest[0x804..0x812], [1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 2, 2, 2, 2]);
}

#[test]
fn copy_engines_can_do_what_uvm_needs() {
    let (mut talk, _) = booted();

    let all = ask_nothing(&mut talk, 0x2080_2a0b, 136);
    assert_eq!((all.word(0), all.word(4), all.long(0x80)), (0x03ec_03af, 0x03ec, 7));
    for (engine, caps, physical) in [(9_u64, 0x03af, 1), (10, 0x03ec, 2), (11, 0x03ec, 4)] {
        let asked = engine.to_le_bytes().to_vec();
        assert_eq!(ask(&mut talk, 0x2080_2a07, asked.clone()).word(4), caps);
        assert_eq!(ask(&mut talk, 0x2080_2a02, asked).word(4), physical);
    }
    // One that there is not, and graphics.
    for engine in [12_u64, 1, 0xffff_ffff] {
        let asked = engine.to_le_bytes().to_vec();
        assert_eq!(ask(&mut talk, 0x2080_2a07, asked.clone()).status, 0x1f);
        assert_eq!(ask(&mut talk, 0x2080_2a02, asked).status, 0x1f);
    }
}

#[test]
fn lists_are_answered_entry_by_entry_and_not_beyond_their_room() {
    let (mut talk, _) = booted();
    let list = |count: u32, size: usize, entries: &[[u32; 2]]| {
        let mut raw = count.to_le_bytes().to_vec();
        raw.extend(entries.iter().flatten().flat_map(|word| word.to_le_bytes()));
        raw.resize(size, GARBAGE);
        raw
    };

    let memory = ask(&mut talk, 0x2080_1303, list(4, 444, &[[7, 1], [0x0b, 1], [0x22, 1], [0x33, 1]]));
    assert_eq!([8, 16, 24, 32].map(|at| memory.word(at)), [1 << 20, 5120, 10, 0]);
    assert!(memory.rest[36..].iter().all(|byte| *byte == 0));
    let bus = ask(&mut talk, 0x2080_1823, list(2, 420, &[[0x2d, 0], [3, 9]]));
    assert_eq!((bus.word(8), bus.word(16)), (0x44_4000, 0));
    // What the driver knows itself stays; what it leaves to firmware loses its mark.
    let gpu = ask(&mut talk, 0x2080_0102, list(2, 524, &[[0x8000_0011, 7], [0x26, !0]]));
    assert_eq!([4, 8, 12, 16].map(|at| gpu.word(at)), [0x11, 0, 0x26, !0]);
    for (number, size) in [(0x2080_1303, 444), (0x2080_1823, 420), (0x2080_0102, 524)] {
        for count in [(size as u32 - 4) / 8 + 1, 1 << 29, u32::MAX] {
            assert_eq!(
                ask(&mut talk, number, list(count, size, &[])).status,
                0x1f,
                "{number:#x}: {count:#x}"
            );
        }
    }
}

#[test]
fn memory_that_could_be_shared_out_begins_behind_what_is_reserved() {
    let (mut talk, _) = booted();
    let longs = |longs: [u64; 5]| longs.iter().flat_map(|long| long.to_le_bytes()).collect::<Vec<_>>();

    let answer = ask(&mut talk, 0x2080_0a51, longs([0x3554_0000, 0x10_0000, 0xa9c_0000, 0, 0]));
    assert_eq!((answer.long(24), answer.long(32)), (0x10_0000, 0x3563_ffff));
    for sizes in [[0, 0], [u64::MAX, 1], [u64::MAX, u64::MAX]] {
        let answer = ask(&mut talk, 0x2080_0a51, longs([sizes[0], sizes[1], 0, 0, 0]));
        assert_eq!(answer.status, 0x1f);
    }
}

#[test]
fn firmware_says_its_version_and_what_a_card_has_not_is_refused() {
    let (mut talk, _) = booted();

    let features = ask_nothing(&mut talk, 0x2080_3601, 72);
    assert_eq!((features.word(0), features.rest[4..6].to_vec()), (1, vec![1, 1]));
    assert!(features.rest[6..].starts_with(b"550.163.01\0"));
    assert_eq!(ask(&mut talk, 0x2080_014b, vec![b'O', b'B', b'D', 0, 0]).status, 0x57);
    assert_eq!(ask(&mut talk, 0x2080_0810, vec![0; 124]).status, 0x56);
}

/// Nanoseconds of both kinds of engines.
const fn used(graphics: u64, copies: u64) -> EngineTime {
    EngineTime { graphics, copies }
}

#[test]
fn utilisation_is_in_the_drivers_memory_while_a_program_wants_it() {
    const PAGE: u64 = 0x3_0000;
    const RECORD: u64 = PAGE + 0x48;
    const SECOND: u64 = 1_000_000_000;
    let (mut talk, _) = booted();
    let record = |talk: &Talk| {
        let raw = talk.driver.back.ram(RECORD, 16);
        (u64::from_le_bytes(raw[..8].try_into().unwrap()), raw[8], raw[9])
    };
    let poll = |talk: &mut Talk, mask: u64| {
        assert!(ask(talk, 0x2080_0aff, mask.to_le_bytes().to_vec()).is_ok());
    };
    let at = |talk: &mut Talk, now: u64, time: EngineTime| {
        talk.driver.now = now;
        talk.driver.back.set_engine_time(time);
    };

    // Nobody counts, and then nobody wants to know.
    assert!(ask(&mut talk, 0x2080_0afe, PAGE.to_le_bytes().to_vec()).is_ok());
    poll(&mut talk, 2);
    poll(&mut talk, 0);
    at(&mut talk, SECOND, used(0, 0));
    poll(&mut talk, 0x1d);
    at(&mut talk, 2 * SECOND, used(SECOND / 2, 0));
    poll(&mut talk, 0x1d);
    assert_eq!(record(&talk), (0, 0, 0));

    // A quarter and a tenth of a second, then what was used of two.
    at(&mut talk, 3 * SECOND, used(SECOND * 3 / 4, SECOND / 10));
    poll(&mut talk, 0x1f);
    assert_eq!(record(&talk), (3 * SECOND, 25, 10));
    // Too soon for a new period: since the second second.
    at(&mut talk, 3 * SECOND + SECOND / 10, used(SECOND * 85 / 100, SECOND / 10));
    poll(&mut talk, 0x1f);
    assert_eq!(record(&talk), (3 * SECOND + SECOND / 10, 31, 9));
    // Several engines, or a count that comes late, are not more than all.
    at(&mut talk, 4 * SECOND, used(9 * SECOND, 0));
    poll(&mut talk, 0x1f);
    assert_eq!(record(&talk), (4 * SECOND, 100, 0));

    // The page goes.
    assert!(ask(&mut talk, 0x2080_0afe, vec![0; 8]).is_ok());
    at(&mut talk, 5 * SECOND, used(9 * SECOND, 0));
    poll(&mut talk, 0x1f);
    assert_eq!(record(&talk).0, 4 * SECOND);
}
