//! Command streams as drivers write them, and malformed ones.

#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use proptest::prelude::*;

use super::*;
use gpuvmk_chip::Chip;
use gpuvmk_chip::gh100::methods::{CLASS_COMPUTE, CLASS_COPY, host};
use gpuvmk_chip::stream::DMA::SEC_OP;

fn header(operation: u32, subchannel: u32, method: u16, count: u32) -> u32 {
    operation << 29 | count << 16 | subchannel << 13 | u32::from(method) >> 2
}

/// Data for methods that follow each other.
fn methods(subchannel: u32, method: u16, data: &[u32]) -> Vec<u32> {
    let mut words = vec![header(SEC_OP::INC_METHOD, subchannel, method, data.len() as u32)];
    words.extend(data);
    words
}

fn bind(subchannel: u32, class: u16) -> Vec<u32> {
    methods(subchannel, SET_OBJECT, &[class.into()])
}

fn bytes(words: &[u32]) -> Vec<[u8; 4]> {
    words.iter().map(|word| word.to_le_bytes()).collect()
}

fn read(meter: &mut CopyMeter, words: &[u32]) -> CopiedBytes {
    let mut copied = CopiedBytes::default();
    meter.read(&bytes(words), &mut copied);
    copied
}

fn gf100() -> CopyMeter {
    CopyMeter::new(Chip::GF100.subchannels, EngineSet::empty())
}

fn gh100(engines: EngineSet) -> CopyMeter {
    CopyMeter::new(Chip::GH100.subchannels, engines)
}

fn on(engine: Engine, bytes: u64) -> CopiedBytes {
    let mut copied = CopiedBytes::default();
    copied.add(engine, bytes);
    copied
}

const COPY0: Engine = Engine::COPY0;

#[test]
fn gf100s_copy_engines_count_lines_by_the_class_that_is_bound() {
    for (class, engine) in [(pcopy::CLASS_COPY0, COPY0), (pcopy::CLASS_COPY1, Engine::COPY1)] {
        let mut meter = gf100();
        let stream = [
            bind(4, class),
            methods(4, pcopy::SRC_ADDRESS_HIGH, &[0, 1, 2, 3, 4, 5, 0x1000, 7]),
            methods(4, pcopy::EXEC, &[0x110]),
            methods(4, pcopy::EXEC, &[0x110]),
        ]
        .concat();
        assert_eq!(read(&mut meter, &stream), on(engine, 2 * 7 * 0x1000));
        assert_eq!(read(&mut meter, &methods(3, pcopy::EXEC, &[0x110])), CopiedBytes::default());
    }
}

#[test]
fn m2mf_counts_copies_and_inline_data_for_the_graphics_engine() {
    let mut meter = gf100();
    let copy = [
        bind(2, m2mf::CLASS),
        methods(2, m2mf::OFFSET_IN_HIGH, &[0, 1, 64, 64, 64, 3]),
        methods(2, m2mf::EXEC, &[m2mf::EXEC::LINEAR_IN.mask() | m2mf::EXEC::LINEAR_OUT.mask()]),
    ];
    assert_eq!(read(&mut meter, &copy.concat()), on(Engine::Graphics, 192));
    let mut inline = [
        methods(2, m2mf::LINE_LENGTH_IN, &[16, 1]),
        methods(2, m2mf::EXEC, &[m2mf::EXEC::PUSH.mask() | m2mf::EXEC::LINEAR_OUT.mask()]),
    ]
    .concat();
    // Data that looks like launches.
    inline.push(header(SEC_OP::NON_INC_METHOD, 2, m2mf::DATA, 4));
    inline.extend([header(SEC_OP::IMMD_DATA_METHOD, 2, m2mf::EXEC, 1); 4]);
    assert_eq!(read(&mut meter, &inline), on(Engine::Graphics, 16));
}

#[test]
fn gh100s_copy_engine_counts_lines_elements_and_nothing_without_a_transfer() {
    let plain = copy::LAUNCH_DMA::SRC_MEMORY_LAYOUT.mask() | copy::LAUNCH_DMA::DST_MEMORY_LAYOUT.mask() | 1;
    let mut meter = gh100(EngineSet::GRAPHICS | EngineSet::COPY0);
    let lines = [bind(4, CLASS_COPY), methods(4, copy::LINE_LENGTH_IN, &[0x100, 5])].concat();
    assert_eq!(read(&mut meter, &lines), CopiedBytes::default());
    // Four components of two bytes, of which one is not written, and a fifth that does not exist.
    let components = copy::SET_REMAP_COMPONENTS::COMPONENT_SIZE.of(1)
        | copy::SET_REMAP_COMPONENTS::NUM_SRC_COMPONENTS.of(3)
        | copy::SET_REMAP_COMPONENTS::NUM_DST_COMPONENTS.of(3)
        | copy::SET_REMAP_COMPONENTS::DST_X::CONST_A
        | copy::SET_REMAP_COMPONENTS::DST_X::NO_WRITE << 8;
    for (data, bytes) in [
        (plain, 0x100),
        (plain | copy::LAUNCH_DMA::MULTI_LINE_ENABLE.mask(), 0x500),
        (
            plain & !copy::LAUNCH_DMA::DATA_TRANSFER_TYPE.mask() | copy::LAUNCH_DMA::MULTI_LINE_ENABLE.mask(),
            0,
        ),
        (plain | copy::LAUNCH_DMA::REMAP_ENABLE.mask(), 0x600),
        (plain | copy::LAUNCH_DMA::REMAP_ENABLE.mask() | copy::LAUNCH_DMA::MULTI_LINE_ENABLE.mask(), 0x1e00),
    ] {
        let stream =
            [methods(4, copy::SET_REMAP_COMPONENTS, &[components]), methods(4, copy::LAUNCH_DMA, &[data])]
                .concat();
        assert_eq!(read(&mut meter, &stream), on(COPY0, bytes), "{data:#x}");
    }
    let off = [
        methods(4, copy::SET_RENDER_ENABLE_C, &[copy::SET_RENDER_ENABLE_C::MODE::FALSE]),
        methods(4, copy::LAUNCH_DMA, &[plain]),
    ];
    assert_eq!(read(&mut meter, &off.concat()), CopiedBytes::default());
}

#[test]
fn gh100s_subchannels_say_which_engine_copies() {
    let stream = |subchannel| {
        [methods(subchannel, copy::LINE_LENGTH_IN, &[64]), methods(subchannel, copy::LAUNCH_DMA, &[1])]
            .concat()
    };
    for subchannel in 0..8 {
        let copied = read(&mut gh100(EngineSet::COPY2), &stream(subchannel));
        let expected = if subchannel < 5 { on(Engine::COPY2, 64) } else { CopiedBytes::default() };
        assert_eq!(copied, expected, "subchannel {subchannel} of a copy engine's");
        let copied = read(&mut gh100(EngineSet::GRAPHICS | EngineSet::COPY0), &stream(subchannel));
        let expected = if subchannel == 4 { on(COPY0, 64) } else { CopiedBytes::default() };
        assert_eq!(copied, expected, "subchannel {subchannel} of the graphics engine's");
    }
}

#[test]
fn gh100s_inline_data_counts_for_each_class_by_itself() {
    let mut meter = gh100(EngineSet::GRAPHICS);
    let lines = |subchannel, length| methods(subchannel, inline::LINE_LENGTH_IN, &[length, 2]);
    let go = |subchannel| methods(subchannel, inline::LAUNCH_DMA, &[1]);
    let stream = [lines(0, 1), lines(1, 10), lines(2, 100), go(0), go(1), go(2), go(3)].concat();
    assert_eq!(read(&mut meter, &stream), on(Engine::Graphics, 222));
    // Subchannel 3 is two-dimensional drawing's until something else is bound.
    let stream = [bind(3, CLASS_COMPUTE), go(3), bind(3, 0x902d), go(3)].concat();
    assert_eq!(read(&mut meter, &stream), on(Engine::Graphics, 20));
}

#[test]
fn every_form_of_header_is_followed() {
    let mut meter = gh100(EngineSet::COPY1);
    let copies = |copied: CopiedBytes| copied.bytes(Engine::COPY1);
    let length = |n| header(SEC_OP::IMMD_DATA_METHOD, 0, copy::LINE_LENGTH_IN, n);
    assert_eq!(
        copies(read(&mut meter, &[length(24), header(SEC_OP::IMMD_DATA_METHOD, 0, copy::LAUNCH_DMA, 1)])),
        24
    );
    let fixed = [header(SEC_OP::NON_INC_METHOD, 0, copy::LAUNCH_DMA, 3), 1, 1, 1];
    assert_eq!(copies(read(&mut meter, &fixed)), 72);
    let once = [header(SEC_OP::ONE_INC, 0, copy::LAUNCH_DMA - 4, 3), 1, 1, 1];
    assert_eq!(copies(read(&mut meter, &once)), 48);
    // Padding, and host methods below a run that wraps around.
    let padded = [0, 1 << 16, header(SEC_OP::IMMD_DATA_METHOD, 0, host::NON_STALL_INTERRUPT, 0), length(8)];
    assert_eq!(copies(read(&mut meter, &padded)), 0);
    let wrapped = [header(SEC_OP::INC_METHOD, 0, METHOD_MAX, 3), 0, CLASS_COPY.into(), 0];
    assert_eq!(copies(read(&mut meter, &wrapped)), 0);
    assert_eq!(copies(read(&mut meter, &[header(SEC_OP::IMMD_DATA_METHOD, 0, copy::LAUNCH_DMA, 1)])), 8);
}

#[test]
fn rest_of_a_segment_that_ends_early_does_not_count() {
    let go = header(SEC_OP::IMMD_DATA_METHOD, 0, copy::LAUNCH_DMA, 1);
    for end in [SEC_OP::END_PB_SEGMENT << 29, 2 << 29, 4 << 16] {
        let mut meter = gh100(EngineSet::COPY0);
        read(&mut meter, &methods(0, copy::LINE_LENGTH_IN, &[64]));
        let mut copied = CopiedBytes::default();
        assert!(!meter.read(&bytes(&[go, end, go]), &mut copied));
        assert_eq!(copied, on(COPY0, 64), "{end:#x}");
    }
}

#[test]
fn header_goes_on_in_the_next_segment_unless_words_were_missed() {
    let go = header(SEC_OP::NON_INC_METHOD, 0, copy::LAUNCH_DMA, 2);
    let mut meter = gh100(EngineSet::COPY0);
    read(&mut meter, &methods(0, copy::LINE_LENGTH_IN, &[64]));
    read(&mut meter, &[go]);
    assert_eq!(read(&mut meter, &[1]), on(COPY0, 64));
    meter.skip();
    assert_eq!(read(&mut meter, &[1]), CopiedBytes::default());
}

#[test]
fn hostile_lengths_stop_at_the_largest_number() {
    let mut meter = gh100(EngineSet::COPY0);
    let stream = [
        methods(0, copy::LINE_LENGTH_IN, &[u32::MAX; 2]),
        methods(0, copy::SET_REMAP_COMPONENTS, &[0x0333_0000]),
        methods(0, copy::LAUNCH_DMA, &[u32::MAX; 1]),
    ];
    assert_eq!(read(&mut meter, &stream.concat()), on(COPY0, u64::MAX));
    let mut sum = on(COPY0, u64::MAX);
    sum.add_all(&on(COPY0, 1));
    assert_eq!(sum, on(COPY0, u64::MAX));
}

#[test]
fn long_runs_that_copy_nothing_are_passed_over() {
    let mut meter = gh100(EngineSet::GRAPHICS | EngineSet::COPY0);
    for run in [
        header(SEC_OP::INC_METHOD, 0, 0x1000, 0x900),
        header(SEC_OP::NON_INC_METHOD, 1, inline::LOAD_INLINE_DATA, 0x1fff),
        header(SEC_OP::ONE_INC, 4, copy::PITCH_IN - 0x200, 4),
        header(SEC_OP::NON_INC_METHOD, 7, 0x100, 9),
    ] {
        assert_eq!(meter.indifferent(), 0);
        read(&mut meter, &[run]);
        let words = meter.indifferent();
        assert_eq!(u32::from(words), run >> 16 & 0x1fff, "{run:#x}");
        meter.pass(words.into());
    }
    read(&mut meter, &[header(SEC_OP::INC_METHOD, 4, copy::PITCH_IN, 4)]);
    assert_eq!(meter.indifferent(), 0, "lengths are among them");
}

/// The same without passing over anything.
fn read_slowly(meter: &mut CopyMeter, words: &[u32]) -> CopiedBytes {
    let mut copied = CopiedBytes::default();
    for word in words {
        if meter.pending.remaining > 0 {
            let method = meter.pending.take(*word);
            meter.execute(method, &mut copied);
            continue;
        }
        match Command::decode(*word) {
            Command::Methods(header) => meter.pending = header,
            Command::Immediate(method) => meter.execute(method, &mut copied),
            Command::Nothing => {}
            Command::EndSegment | Command::Illegal(_) => break,
        }
    }
    copied
}

fn word() -> impl Strategy<Value = u32> {
    let operation = prop::sample::select(vec![1_u32, 1, 3, 4, 5, 0, 7]);
    let method = prop_oneof![
        Just(SET_OBJECT),
        (0x60_u16..0xd0).prop_map(|word| word * 4),
        (0x17f_u16..0x1c5).prop_map(|word| word * 4),
        any::<u16>().prop_map(|word| word & METHOD_MAX),
    ];
    let command = (operation, 0..8_u32, method, 0..12_u32).prop_map(|(o, s, m, c)| header(o, s, m, c));
    let class = prop::sample::select(vec![0x9039, 0x90b5, 0x90b8, 0xc8b5, 0xa140, 0xcb97, 0xcbc0, 0x902d]);
    prop_oneof![4 => command, 1 => class, 1 => any::<u32>()]
}

proptest! {
    #[test]
    fn passing_over_changes_nothing_wherever_the_stream_is_cut(
        words in prop::collection::vec(word(), 0..200),
        cut in 0..200_usize,
        engines in prop::sample::select(vec![0, 1, 2, 3, 4, 7]),
        hopper in any::<bool>(),
    ) {
        let chip = if hopper { Chip::GH100 } else { Chip::GF100 };
        let engines = EngineSet::from_bits_truncate(engines);
        let (first, second) = words.split_at(cut.min(words.len()));
        let (mut fast, mut slow) = (CopyMeter::new(chip.subchannels, engines), CopyMeter::new(chip.subchannels, engines));
        for part in [first, second] {
            prop_assert_eq!(read(&mut fast, part), read_slowly(&mut slow, part));
        }
    }

    #[test]
    fn any_words_are_read(words in prop::collection::vec(any::<u32>(), 0..400), hopper in any::<bool>()) {
        let chip = if hopper { Chip::GH100 } else { Chip::GF100 };
        read(&mut CopyMeter::new(chip.subchannels, EngineSet::all()), &words);
    }
}
