//! What the driver of 535.261.03 is told in another way than that of 550.163.01. Offsets and numbers are
//! those of its headers.

use super::dialogue::Recording;
use super::facts::{ask, ask_nothing, booted_as_in};
use super::replay::{Answer, Talk};

fn booted() -> (Talk, Answer) {
    booted_as_in(Recording::of_535())
}

#[test]
fn static_info_has_the_layout_of_its_branch_and_is_that_of_a_card_for_data_centres() {
    let (talk, info) = booted();

    assert_eq!(info.rest.len(), 0x878);
    assert_eq!((info.word(0x18 + 8), &info.rest[0x24..0x34]), (16, b"a UUID of a card".as_slice()));
    assert_eq!((info.word(0x124), info.word(0x128 + 12)), (0xff, 0x1ff));
    assert_eq!(info.word(0x348), 3);
    let bounds: Vec<_> = [0x350, 0x380, 0x3b0].iter().map(|at| (info.long(*at), info.long(at + 8))).collect();
    let (top, end) = ((1 << 30) - (4 << 20), 1 << 30);
    assert_eq!(bounds, [(0, 0xf_ffff), (0x10_0000, top - 1), (top, end - 1)]);
    assert_eq!(info.word(0x650), 1, "the open modules take no other card unasked");
    assert_eq!((info.word(0x6a4), info.word(0x6a8)), (1 << 1 | 7 << 9, 0));
    assert_eq!((info.word(0x6ac), info.word(0x6b8)), (0x900, 64));
    assert_eq!(info.long(0x6d8), 1 << 30);
    assert!(info.rest[0x71c..].starts_with(b"Virtual GH100\0"));
    assert_eq!(info.rest[0x823], 1);
    let gsp = &talk.driver.gsp;
    assert_eq!((info.long(0x828), info.long(0x830)), (gsp.bar1_root(), gsp.bar2_root()));
    assert_eq!((info.rest[0x838], info.rest[0x845]), (1, 1));
    assert_eq!([0, 4, 8].map(|at| info.word(0x868 + at)), [0xc1f0_0004, 0xabcd_0080, 0xabcd_2080]);
}

/// A driver asks some of these with what was on its stack.
#[test]
fn what_is_asked_for_in_other_lengths_is_filled_in_or_zero_and_never_an_echo() {
    let (mut talk, _) = booted();
    for (number, size) in [
        (0x2080_012f, 984),
        (0x2080_0170, 252),
        (0x2080_0a1c, 56),
        (0x2080_0a2a, 3392),
        (0x2080_0a32, 1600),
        (0x2080_0a36, 92),
        (0x2080_0a40, 3172),
        (0x2080_0a42, 1284),
        (0x2080_0a5c, 2068),
        (0x2080_0ad8, 8),
        (0x2080_0af3, 2),
        (0x2080_2a0b, 68),
        (0x2080_3601, 72),
        (0x2080_a068, 4),
    ] {
        ask_nothing(&mut talk, number, size);
    }
    // The other branch's lengths, and what it alone has.
    for (number, size, status) in [
        (0x2080_0a1c, 40, 0x3a),
        (0x2080_0a2a, 3584, 0x3a),
        (0x2080_2a0b, 136, 0x3a),
        (0x2080_01b0, 1284, 0x56),
        (0x2080_0afe, 8, 0x56),
        (0x2080_2068, 4, 0x56),
    ] {
        assert_eq!(ask(&mut talk, number, vec![0; size]).status, status, "{number:#x}");
    }
}

#[test]
fn function_memory_and_firmware_are_the_same_at_other_places() {
    let (mut talk, _) = booted();

    let chip = ask_nothing(&mut talk, 0x2080_0a36, 92);
    assert_eq!([0xc, 0x10, 0x14, 0x18].map(|at| chip.word(at)), [256, 0x2330_10de, 0x16c1_10de, 0xa1]);
    let bases: Vec<_> = (0..6).map(|unit| chip.word(0x1c + 4 * unit)).collect();
    assert_eq!(bases, [!0, 0x40_0000, 0x9000, 0, 0xbb_0000, !0]);

    let memory = ask_nothing(&mut talk, 0x2080_0a1c, 56);
    assert_eq!((memory.rest[2], memory.rest[3], memory.rest[0x11]), (1, 1, 1));
    assert_eq!([0x14, 0x18, 0x24].map(|at| memory.word(at)), [0x1_0000, 16, 10]);
    assert_eq!((memory.long(0x30), memory.word(0x1c)), (0, 0), "all of VRAM is the driver's");

    let info = ask_nothing(&mut talk, 0x2080_0a2a, 3392);
    assert!((0..53).all(|index: usize| info.word(8 * index) as usize == index));
    assert_eq!([0x0c, 0x14, 0x17, 0x20, 0x2c].map(|index| info.word(8 * index + 4)), [0x900, 8, 9, 2, 64]);
    assert!((53..424).all(|index: usize| info.word(8 * index) == 0), "of other engines");

    let features = ask_nothing(&mut talk, 0x2080_3601, 72);
    assert!(features.rest[6..].starts_with(b"535.261.03\0"));
    let trusted = ask_nothing(&mut talk, 0x2080_0af3, 2);
    assert_eq!(trusted.rest, [1, 1], "else firmware would have to write its page tables");
}

#[test]
fn engines_and_sources_of_interrupts_have_its_own_numbers() {
    let (mut talk, _) = booted();

    let engines = ask_nothing(&mut talk, 0x2080_0170, 252);
    assert_eq!([0, 4, 8, 12, 16, 20].map(|at| engines.word(at)), [4, 1, 9, 10, 11, 0]);
    let copies = ask_nothing(&mut talk, 0x2080_2a0b, 68);
    assert_eq!([0, 4, 0x40].map(|at| copies.word(at)), [0x03ec_03af, 0x03ec, 7]);
    let table = ask(&mut talk, 0x2080_1112, vec![0; 3212]);
    let word = |entry: usize, at: usize| table.word(12 + 100 * entry + 4 * at);
    assert_eq!([0, 2].map(|at| word(0, at)), [0xd334_df00, 1]);
    assert_eq!([0, 2].map(|at| word(4, at)), [0x95a6_f500, 0x2c], "for methods of software");
    let vectors = ask_nothing(&mut talk, 0x2080_0a5c, 2068);
    let sources: Vec<_> = (0..vectors.word(0) as usize).map(|entry| vectors.word(4 + 16 * entry)).collect();
    assert_eq!(sources, [49, 82, 15, 16, 17, 72, 60, 58, 59, 61, 63, 62]);
}

#[test]
fn uuid_is_told_as_bytes_or_as_text_and_in_no_other_form() {
    let (mut talk, _) = booted();
    let mut uuid = |flags: u32| {
        let mut asked = vec![0xa5; 268];
        asked[4..8].copy_from_slice(&flags.to_le_bytes());
        ask(&mut talk, 0x2080_014a, asked)
    };

    let bytes = uuid(2);
    assert_eq!((bytes.word(8), &bytes.rest[12..28]), (16, b"a UUID of a card".as_slice()));
    assert!(bytes.rest[28..].iter().all(|byte| *byte == 0));
    let text = uuid(0);
    let wanted = b"GPU-61205555-4944-206f-6620-612063617264\0";
    assert_eq!((text.word(8), &text.rest[12..53]), (41, wanted.as_slice()));
    assert!(text.rest[53..].iter().all(|byte| *byte == 0));
    for flags in [1, 3, 4, 6] {
        assert_eq!(uuid(flags).status, 0x1f, "{flags}");
    }
}
