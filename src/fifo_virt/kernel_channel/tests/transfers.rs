//! Copies and fills against a model that goes byte by byte.

use super::*;
use proptest::prelude::*;

/// Launches that are no plain transfer of pitch lines.
#[test]
fn protected_blocked_and_foreign_memory_is_refused() {
    let mut machine = Machine::new();
    for (launch, mode) in [(0x10_0182, 0), (0x40_0182, 0), (0x102, 0), (0x082, 0), (0x1182, 3), (0x1a2, 0)] {
        let mut words = methods(0, copy::SET_SRC_PHYS_MODE, &[mode]);
        words.extend(copy_line(DATA, DATA, 4, launch));
        let refusal = run(&mut machine, &words).unwrap_err();
        assert!(matches!(refusal, Refusal::Copy { launch: of, .. } if of == launch), "{refusal}");
    }
    for remap in [3, 7] {
        let mut words = methods(0, copy::SET_REMAP_COMPONENTS, &[remap]);
        words.extend(copy_line(DATA, DATA, 4, 0x582));
        assert!(matches!(run(&mut machine, &words), Err(Refusal::Copy { .. })));
    }
    for launch in [0x18, 0x0008_0008 | 9 << 14] {
        assert!(matches!(run(&mut machine, &copy_line(0, 0, 0, launch)), Err(Refusal::Copy { .. })));
    }
}

#[test]
fn launch_under_a_condition_that_is_false_copies_nothing() {
    let mut machine = Machine::new();
    machine.put(DATA_VRAM, &[5]);
    let mut words = methods(0, copy::SET_RENDER_ENABLE_C, &[0]);
    words.extend(copy_line(DATA, DATA + 8, 4, 0x182));
    assert_eq!(run(&mut machine, &words), Ok(Outcome::Idle));
    assert_eq!(machine.word(DATA_VRAM + 8), 0);
    let words = [methods(0, copy::SET_RENDER_ENABLE_C, &[3]), copy_line(DATA, DATA + 8, 4, 0x182)].concat();
    assert!(matches!(run(&mut machine, &words), Err(Refusal::Copy { .. })));
}

/// Scrubbing as the driver does when it frees memory (recorded), by a budget that is far too small.
#[test]
fn long_fill_is_done_in_parts_and_its_semaphore_comes_last() {
    let (mut machine, mut channel) = (Machine::new(), channel());
    machine.vram[0x4_0000..0x6_0000].fill(0xee);
    let mut words = methods(0, copy::SET_REMAP_COMPONENTS, &[5]);
    words.extend(methods(0, copy::SET_SEMAPHORE_A, &[halves(DATA)[0], 0, 3]));
    words.extend(copy_line(0, 0x4_0000, 0x1_0000, 0x0480_318d));
    machine.submit(0, &words);
    let mut calls = 0;
    while channel.run(1, &mut machine, &mut Budget { steps: 50, bytes: 0x3000 }).unwrap() != Outcome::Idle {
        assert_eq!(machine.word(DATA_VRAM), 0);
        calls += 1;
        assert!(calls < 100);
    }
    assert!(calls > 4 && machine.word(DATA_VRAM) == 3);
    assert!(machine.vram[0x4_0000..0x5_0000].iter().all(|byte| *byte == 0));
    assert!(machine.vram[0x5_0000..0x6_0000].iter().all(|byte| *byte == 0xee));
}

/// What a transfer of remapped elements leaves in memory.
fn model(memory: &mut [u8], from: usize, to: usize, shape: Shape) {
    let Shape { length, lines, pitch_in, pitch_out, size, sources, targets, selectors } = shape;
    let before = memory.to_vec();
    let constants = [0xa1a2_a3a4_u32, 0xb1b2_b3b4].map(u32::to_le_bytes);
    for line in 0..lines {
        for element in 0..length {
            for (component, selector) in selectors.iter().enumerate().take(targets) {
                for byte in 0..size {
                    let source = from + line * pitch_in + (element * sources + *selector as usize) * size;
                    let value = match selector {
                        0..=3 => before[source + byte],
                        4 | 5 => constants[*selector as usize - 4][byte],
                        _ => continue,
                    };
                    memory[to + line * pitch_out + (element * targets + component) * size + byte] = value;
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    length: usize,
    lines: usize,
    pitch_in: usize,
    pitch_out: usize,
    size: usize,
    sources: usize,
    targets: usize,
    selectors: [u32; 4],
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn remapped_lines_are_as_a_model_has_them(
        (length, lines) in (0_usize..700, 0_usize..6),
        (pitch_in, pitch_out) in (0_usize..0x1000, 0x3000_usize..0x3400),
        (size, sources, targets) in (1_usize..=4, 1_usize..=4, 1_usize..=4),
        selectors in proptest::array::uniform4(0_u32..=6),
        offset in 0_u64..0x1000,
    ) {
        let selectors = selectors.map(|one| if one < 4 { one % sources as u32 } else { one });
        let shape = Shape { length, lines, pitch_in, pitch_out, size, sources, targets, selectors };
        let mut machine = Machine::new();
        let mut random = 1_u32;
        for byte in &mut machine.vram[0x4_0000..] {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = random.to_be_bytes()[0];
        }
        let (from, to) = (0x4_0000 + offset, 0xa_0000 + 2 * offset);
        // Virtual source, page by page; physical target.
        machine.map(0x77_0000_0000, 0x4_0000, 64);
        let mut expected = machine.vram.clone();
        model(&mut expected, from as usize, to as usize, shape);
        let remap = (size as u32 - 1) << 16 | (sources as u32 - 1) << 20 | (targets as u32 - 1) << 24
            | selectors[0] | selectors[1] << 4 | selectors[2] << 8 | selectors[3] << 12;
        let mut words = methods(0, copy::SET_REMAP_CONST_A, &[0xa1a2_a3a4, 0xb1b2_b3b4, remap]);
        words.extend(methods(0, copy::PITCH_IN, &[pitch_in as u32, pitch_out as u32]));
        words.extend(methods(0, copy::LINE_COUNT, &[lines as u32]));
        words.extend(copy_line(0x77_0000_0000 + offset, to, length as u32, 0x2782));
        prop_assert_eq!(run(&mut machine, &words), Ok(Outcome::Idle));
        prop_assert!(machine.vram[0x4_0000..] == expected[0x4_0000..]);
    }

    #[test]
    fn plain_lines_go_both_ways_with_pitches_that_go_back(
        length in 0_u32..5000, lines in 1_u32..4, back in proptest::bool::ANY,
    ) {
        let mut machine = Machine::new();
        for (number, byte) in machine.vram[0x4_0000..0x8_0000].iter_mut().enumerate() {
            *byte = (number * 7 + number / 256) as u8;
        }
        let mut expected = machine.vram.clone();
        let step = if back { -0x2000_i32 } else { 0x2000 };
        for line in 0..lines as i32 {
            let (from, to) = ((0x5_0000 + line * step) as usize, 0xc_0000 + line as usize * 0x3000);
            let bytes = expected[from..from + length as usize].to_vec();
            expected[to..to + bytes.len()].copy_from_slice(&bytes);
        }
        let mut words = methods(0, copy::PITCH_IN, &[step.cast_unsigned(), 0x3000]);
        words.extend(methods(0, copy::LINE_COUNT, &[lines]));
        words.extend(copy_line(0x5_0000, 0xc_0000, length, 0x3382));
        prop_assert_eq!(run(&mut machine, &words), Ok(Outcome::Idle));
        prop_assert!(machine.vram[0x4_0000..] == expected[0x4_0000..]);
    }
}
