//! Sets the type of compute launches.
//!
//! A launch is described by a block of *queue meta data*. In version 4.0 of it (`clcbc0qmd.h` of NVIDIA's
//! open-gpu-doc) bits 25:23 are QMD_TYPE, where 0 is QUEUE, a block that launches nothing, and 2 is GRID_CTA,
//! a grid of blocks of threads. Mesa sets the field for Blackwell and forgets it for Hopper, where shaders
//! therefore never run.
//!
//! Debian builds the shader compiler without optimisation, so that each field of the block is set by a call
//! with the field's first bit, the bit behind its last, and the value in registers. Hopper's constructor
//! sets, in this order, QMD_MAJOR_VERSION (bits 583:580) to 4 and QMD_MINOR_VERSION (579:576) to 0. The block
//! is zero before, so the second call changes nothing: it is made to set bits 25:16 to 0x11f, which is
//! QMD_TYPE 2 and QMD_GROUP_ID (21:16) 0x1f, what Mesa sets for Blackwell. The instructions that load the
//! three registers get shorter, so nothing moves.

use anyhow::Result;

use super::code::{Code, code, only_place, put};

/// Both calls, from the loads of the first to the opcode of the second.
const CALLS: &Code = &code![
    0xbe 0x44 0x02 0 0              // mov $580,%esi
    0xba 0x48 0x02 0 0              // mov $584,%edx
    0xb9 4 0 0 0                    // mov $4,%ecx
    0xe8 _ _ _ _                    // call SET_FIELD
    0x48 0x8d 0xbc 0x24 _ _ _ _     // lea BLOCK(%rsp),%rdi
    0xbe 0x40 0x02 0 0              // mov $576,%esi
    0xba 0x44 0x02 0 0              // mov $580,%edx
    0x31 0xc9                       // xor %ecx,%ecx
    0xe8                            // call
];

/// Where in [`CALLS`] the loads of the second are.
const LOADS: usize = 28;

/// What they are made into.
const LOADS_OF_TYPE: [u8; 12] = [
    0x6a, 16, 0x5e, // push $16; pop %rsi
    0x6a, 26, 0x5a, // push $26; pop %rdx
    0xb9, 0x1f, 0x01, 0, 0,    // mov $0x11f,%ecx
    0x90, // nop
];

/// Sets the field in the driver `image`; returns the place in the file.
pub fn set_type(image: &mut [u8]) -> Result<usize> {
    let place = only_place(CALLS, image, "builds Hopper's launches", |_| true)? + LOADS;
    put(image, place, &LOADS_OF_TYPE);
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::super::code::filled;
    use super::*;

    #[test]
    fn the_second_call_sets_type_and_group() {
        let mut image = [vec![0x90; 100], filled(CALLS, 0x98), vec![0x90; 100]].concat();
        let place = set_type(&mut image).unwrap();
        assert_eq!(place, 128);
        assert_eq!(image[128..140], LOADS_OF_TYPE);
        assert_eq!(image[140], 0xe8, "the call stays where it was");
        assert_eq!(0x11f << 16, 2 << 23 | 0x1f << 16);
    }

    #[test]
    fn driver_that_was_edited_or_is_built_otherwise_is_refused() {
        let mut image = filled(CALLS, 0x98);
        set_type(&mut image).unwrap();
        assert!(set_type(&mut image).unwrap_err().to_string().contains("already"));
        assert!(set_type(&mut []).is_err());
    }

    #[test]
    fn code_that_is_there_twice_is_refused_and_left_alone() {
        let mut image = [filled(CALLS, 0x98), filled(CALLS, 0x98)].concat();
        let before = image.clone();
        assert!(set_type(&mut image).unwrap_err().to_string().contains("more than once"));
        assert_eq!(image, before);
    }
}
