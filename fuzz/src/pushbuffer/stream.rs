//! Command streams: headers of every form with methods that the class has, operands that lie where memory is,
//! and words of any kind.

use gpuvmk::chip::gf100::methods::{self as gf100, host as gf100_host};
use gpuvmk::chip::gh100::methods as gh100;
use gpuvmk::chip::methods::ClassDef;
use gpuvmk::chip::stream::DMA::SEC_OP;
use gpuvmk::chip::{Chip, Face};

use crate::bench::{RAM, RAM_VA, READ_ONLY_VA, VRAM, VRAM_VA};
use crate::input::Input;

/// Most words of a segment.
const WORDS: usize = 1000;

/// A class of the chip.
fn class(input: &mut Input<'_>, chip: Chip) -> ClassDef {
    input.pick(match chip.face {
        Face::Registers => gf100::CLASSES,
        Face::Gsp => gh100::CLASSES,
    })
}

/// A method that some object has, and the bits of its data that mean something.
fn known_method(input: &mut Input<'_>, chip: Chip) -> (u16, u32) {
    let any = |input: &mut Input<'_>| (input.u16() & 0x3ffc, u32::MAX);
    match input.below(16) {
        15 => any(input),
        // The host's own methods, which every object has.
        0..=3 => (u16::from(input.below(0x24)) * 4, u32::MAX),
        // Reports and inline data, which several classes have.
        4 => (input.pick(&[0x158, 0x15c, 0x160, 0x164, 0x168, 0x1b00, 0x1b04, 0x1b08, 0x1b0c]), u32::MAX),
        5 => (gh100::inline::FIRST + u16::from(input.below(0x20)) * 4, u32::MAX),
        _ => {
            let methods = class(input, chip).methods;
            let at = usize::from(input.u8()).checked_rem(methods.len());
            match at.and_then(|at| methods.get(at)) {
                Some(known) => (known.method, known.mask),
                None => any(input),
            }
        }
    }
}

/// The words of a segment.
pub(crate) fn words(input: &mut Input<'_>, chip: Chip) -> Vec<u32> {
    let mut words = Vec::new();
    for _ in 0..=input.below(12) {
        match input.below(16) {
            0 => words.push(input.u32()),
            1 | 2 => {
                let class = class(input, chip).class;
                let any = input.u8();
                let engine = input.pick(&[
                    gpuvmk::chip::gf100::engines::GRAPHICS_NUMBER,
                    gpuvmk::chip::gf100::engines::COPY0_NUMBER,
                    gpuvmk::chip::gf100::engines::COPY1_NUMBER,
                    gpuvmk::chip::gf100::engines::SOFTWARE_NUMBER,
                    any,
                ]);
                words.push(head(SEC_OP::INC_METHOD, 1, input.below(8), gf100_host::SET_OBJECT));
                words.push(u32::from(class) | u32::from(engine) << 16);
            }
            _ => methods(input, chip, &mut words),
        }
    }
    words.truncate(WORDS);
    words
}

fn head(op: u32, count: u16, subchannel: u8, method: u16) -> u32 {
    op << 29
        | u32::from(count & 0x1fff) << 16
        | u32::from(subchannel & 7) << 13
        | u32::from(method >> 2) & 0xfff
}

/// A header, and words for a method and those behind it.
fn methods(input: &mut Input<'_>, chip: Chip, words: &mut Vec<u32>) {
    let (method, mask) = known_method(input, chip);
    let count = match input.below(16) {
        0 => input.u16(),
        1..=9 => u16::from(input.below(10)),
        _ => 1,
    };
    let op = input.pick(&[
        SEC_OP::INC_METHOD,
        SEC_OP::INC_METHOD,
        SEC_OP::INC_METHOD,
        SEC_OP::NON_INC_METHOD,
        SEC_OP::IMMD_DATA_METHOD,
        SEC_OP::ONE_INC,
        SEC_OP::GRP0_USE_TERT,
        2,
        6,
        SEC_OP::END_PB_SEGMENT,
    ]);
    words.push(head(op, count, input.below(8), method));
    if op != SEC_OP::IMMD_DATA_METHOD {
        for _ in 0..count.min(16) {
            words.push(operand(input, mask));
        }
    }
}

/// An operand: half an address of memory that is there or not, a size, flags, or any.
fn operand(input: &mut Input<'_>, mask: u32) -> u32 {
    let places =
        [VRAM_VA, VRAM_VA + VRAM - 8, READ_ONLY_VA, RAM_VA, RAM_VA + RAM - 16, 0x20_0000, 0xff_ffff_f000, 0];
    let [low, high] = match input.below(8) {
        0..=2 => halves(input.near(&places)),
        3 => [0, 0],
        4 => [u32::from(input.u8()), 1],
        5 => [1 << (input.u8() & 31), 0],
        6 => [input.u32() & mask, 0],
        _ => [input.u32(), 0],
    };
    if input.below(4) == 3 { high } else { low }
}

fn halves(value: u64) -> [u32; 2] {
    let half = |shift: u32| u32::try_from(value >> shift & 0xffff_ffff).expect("32 bits");
    [half(0), half(32)]
}

/// The ring entry of a segment, right as a rule.
pub(crate) fn ring_entry(input: &mut Input<'_>, va: u64, words: usize) -> u64 {
    let words = u64::try_from(words).expect("few words");
    match input.below(16) {
        15 => input.u64(),
        14 => va | u64::from(input.u16()) << 42,
        13 => u64::from(input.u32()),
        _ => va | words << 42,
    }
}
