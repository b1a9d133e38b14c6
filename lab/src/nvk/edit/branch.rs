//! Encodes branches as Hopper reads them.
//!
//! A branch (`BRA`) has its distance in units of four bytes. Up to Ada (SM 8.9) the instruction has it in
//! bits 81:34. Since Hopper (SM 9.0) its lowest eight bits are in bits 23:16 and the rest in 81:34, as
//! Blackwell (SM 10.0) has it too. Mesa splits the distance from SM 10.0 on, so that each branch on Hopper
//! leads 256 times as far as it should, out of the shader's code: the GPU answers with a page fault and ends
//! the channel. NVIDIA's compiler and disassembler show both forms: `tests/kernels/sass` has branches of the
//! split form, made for SM 9.0.
//!
//! The encoder's code compares the number of the generation with 100 and then calls one of two functions,
//! with the bounds of the fields in registers. The 100 is made 90.

use anyhow::Result;

use super::code::{Code, code, is_at, only_place, put, target};

/// The comparison and the two jumps.
const COMPARISON: &Code = &code![
    0x80 0x78 _ 100             // cmpb $100,GENERATION(%rax)
    0x0f 0x83 _ _ _ _           // jae SPLIT
    0xe9 _ _ _ _                // jmp WHOLE
];
/// Where in it the number is, the distance to [`SPLIT`], and that to [`WHOLE`].
const NUMBER: usize = 3;
const TO_SPLIT: usize = 6;
const TO_WHOLE: usize = 11;

/// What sets two fields.
const SPLIT: &Code = &code![
    0x4c 0x8b 0x4c 0x24 _       // mov LABEL(%rsp),%r9
    0x48 0x8b 0x7c 0x24 _       // mov ENCODER(%rsp),%rdi
    0xbe 16 0 0 0               // mov $16,%esi
    0xba 24 0 0 0               // mov $24,%edx
    0xb9 34 0 0 0               // mov $34,%ecx
    0x41 0xb8 82 0 0 0          // mov $82,%r8d
    0xe8                        // call
];

/// What sets one.
const WHOLE: &Code = &code![
    0x48 0x8b 0x4c 0x24 _       // mov LABEL(%rsp),%rcx
    0x48 0x8b 0x7c 0x24 _       // mov ENCODER(%rsp),%rdi
    0xbe 34 0 0 0               // mov $34,%esi
    0xba 82 0 0 0               // mov $82,%edx
    0xe8                        // call
];

/// Hopper's generation.
const HOPPER: u8 = 90;

/// Splits the distance from Hopper on in the driver `image`; returns the place in the file.
pub fn split_offsets(image: &mut [u8]) -> Result<usize> {
    let leads = |place: usize, code| target(image, place).is_some_and(|target| is_at(code, image, target));
    let place = only_place(COMPARISON, image, "splits the distances of branches from SM 10.0 on", |place| {
        leads(place + TO_SPLIT, SPLIT) && leads(place + TO_WHOLE, WHOLE)
    })? + NUMBER;
    put(image, place, &[HOPPER]);
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::super::code::filled;
    use super::*;

    /// The encoder's code as it is in Debian's 26.1.6: the comparison, then what sets one field, then two.
    fn encoder() -> Vec<u8> {
        let mut code = filled(COMPARISON, 0);
        code[2] = 0x20;
        let whole = filled(WHOLE, 8);
        code[TO_SPLIT] = u8::try_from(5 + whole.len()).unwrap();
        [code, whole, filled(SPLIT, 8)].concat()
    }

    #[test]
    fn hopper_is_compared_with_and_nothing_else_changes() {
        let before = [vec![0x90; 50], encoder(), vec![0x90; 50]].concat();
        let mut image = before.clone();
        let place = split_offsets(&mut image).unwrap();
        assert_eq!((place, before[place], image[place]), (53, 100, 90));
        image[place] = 100;
        assert_eq!(image, before);
    }

    #[test]
    fn comparisons_of_other_instructions_are_left_alone() {
        // The same comparison in front of other code, as NAK has many.
        let mut other = encoder();
        let length = other.len();
        other[length - 6] = 83;
        let mut image = [other, encoder()].concat();
        assert_eq!(split_offsets(&mut image).unwrap(), length + NUMBER);
    }

    #[test]
    fn driver_that_was_edited_or_is_built_otherwise_is_refused() {
        let mut image = encoder();
        split_offsets(&mut image).unwrap();
        assert!(split_offsets(&mut image).unwrap_err().to_string().contains("already"));
        assert!(split_offsets(&mut []).is_err());
    }

    #[test]
    fn encoder_that_is_there_twice_is_refused_and_left_alone() {
        let mut image = [encoder(), encoder()].concat();
        let before = image.clone();
        assert!(split_offsets(&mut image).unwrap_err().to_string().contains("more than once"));
        assert_eq!(image, before);
    }
}
