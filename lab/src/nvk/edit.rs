//! Sets the type of compute launches on Hopper in a driver that Debian built.
//!
//! A launch is described by a block of *queue meta data*. In version 4.0 of it (`clcbc0qmd.h` of NVIDIA's
//! open-gpu-doc) bits 25:23 are QMD_TYPE, where 0 is QUEUE, a block that launches nothing, and 2 is GRID_CTA, a grid
//! of blocks of threads. Mesa sets the field for Blackwell and forgets it for Hopper, where shaders therefore never
//! run. `tests/nvk/patches` has the source patch. Where no source package can be had to apply it to, the same
//! is done here to the machine code of the binary package.
//!
//! Debian builds the shader compiler without optimisation, so that each field of the block is set by a call with the
//! field's first bit, the bit behind its last, and the value in registers. Hopper's constructor sets, in this order,
//! QMD_MAJOR_VERSION (bits 583:580) to 4 and QMD_MINOR_VERSION (579:576) to 0. The block is zero before, so the second
//! call changes nothing: it is made to set bits 25:16 to 0x11f, which is QMD_TYPE 2 and QMD_GROUP_ID (21:16) 0x1f,
//! what Mesa sets for Blackwell. The instructions that load the three registers get shorter, so nothing moves.
//!
//! The place is found by its instructions, and must be the only one: a driver that is not built like this (other
//! flags, the field set already) is refused, not guessed at.

use anyhow::{Result, bail};

/// What the loads of the second call look like.
///
/// `mov $576,%esi; mov $580,%edx; xor %ecx,%ecx`
const BEFORE: [u8; 12] = [0xbe, 0x40, 0x02, 0, 0, 0xba, 0x44, 0x02, 0, 0, 0x31, 0xc9];

/// What they are made into.
///
/// `push $16; pop %rsi; push $26; pop %rdx; mov $0x11f,%ecx; nop`
const AFTER: [u8; 12] = [0x6a, 16, 0x5e, 0x6a, 26, 0x5a, 0xb9, 0x1f, 0x01, 0, 0, 0x90];

/// What stands before them, `None` for a byte of an address:
/// `mov $580,%esi; mov $584,%edx; mov $4,%ecx; call SET_FIELD; lea DISTANCE(%rsp),%rdi`.
const LEAD: [Option<u8>; 28] = {
    const ANY: Option<u8> = None;
    const fn is(byte: u8) -> Option<u8> {
        Some(byte)
    }
    [
        is(0xbe),
        is(0x44),
        is(0x02),
        is(0),
        is(0), // mov $580,%esi
        is(0xba),
        is(0x48),
        is(0x02),
        is(0),
        is(0), // mov $584,%edx
        is(0xb9),
        is(4),
        is(0),
        is(0),
        is(0), // mov $4,%ecx
        is(0xe8),
        ANY,
        ANY,
        ANY,
        ANY, // call
        is(0x48),
        is(0x8d),
        is(0xbc),
        is(0x24),
        ANY,
        ANY,
        ANY,
        ANY, // lea
    ]
};

/// The second call itself.
const CALL: u8 = 0xe8;

/// Sets the field in the driver `image`; returns the place in the file.
pub fn set_launch_type(image: &mut [u8]) -> Result<usize> {
    let places: Vec<usize> = places(image).take(2).collect();
    match places.as_slice() {
        [place] => {
            if let Some(code) = image.get_mut(*place..*place + AFTER.len()) {
                code.copy_from_slice(&AFTER);
            }
            Ok(*place)
        }
        [] => bail!(
            "This driver has no code that builds Hopper's launches in the way of Debian's Mesa 26.1 (built \
             otherwise, or the type of launches is set in it already); build one from source instead"
        ),
        _ => bail!("This driver has the code that builds Hopper's launches more than once"),
    }
}

/// Where the loads of the second call lie.
fn places(image: &[u8]) -> impl Iterator<Item = usize> + '_ {
    image.windows(LEAD.len() + BEFORE.len() + 1).enumerate().filter_map(|(start, code)| {
        let (lead, rest) = code.split_at(LEAD.len());
        let fits = LEAD.iter().zip(lead).all(|(wanted, byte)| wanted.is_none_or(|wanted| wanted == *byte));
        (fits && rest.starts_with(&BEFORE) && rest.last() == Some(&CALL)).then_some(start + LEAD.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The constructor's code as it is in Debian's 26.1.6, from the first field's loads to the second call.
    fn code() -> Vec<u8> {
        let mut code: Vec<u8> = LEAD.iter().map(|byte| byte.unwrap_or(0x98)).collect();
        code.extend(BEFORE);
        code.extend([CALL, 1, 2, 3, 4]);
        code
    }

    #[test]
    fn the_second_call_sets_type_and_group() {
        let mut image = [vec![0x90; 100], code(), vec![0x90; 100]].concat();
        let place = set_launch_type(&mut image).unwrap();
        assert_eq!(place, 128);
        assert_eq!(image[128..140], AFTER);
        assert_eq!(image[140], CALL, "the call stays where it was");
        assert_eq!(0x11f << 16, 2 << 23 | 0x1f << 16);
    }

    #[test]
    fn driver_that_was_edited_or_is_built_otherwise_is_refused() {
        let mut image = code();
        set_launch_type(&mut image).unwrap();
        assert!(set_launch_type(&mut image).unwrap_err().to_string().contains("already"));
        assert!(set_launch_type(&mut []).is_err());
    }

    #[test]
    fn code_that_is_there_twice_is_refused_and_left_alone() {
        let mut image = [code(), code()].concat();
        let before = image.clone();
        assert!(set_launch_type(&mut image).unwrap_err().to_string().contains("more than once"));
        assert_eq!(image, before);
    }
}
