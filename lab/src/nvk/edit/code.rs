//! Pieces of machine code to look for: bytes, some of which may be any.

use anyhow::{Result, bail};

/// A piece of code; `None` is a byte that may be any, such as one of an address.
pub type Code = [Option<u8>];

/// Bytes, with `_` for any.
macro_rules! code {
    (@byte _) => { None };
    (@byte $byte:literal) => { Some($byte) };
    ($($byte:tt)*) => { [$(crate::nvk::edit::code::code!(@byte $byte)),*] };
}
pub(super) use code;

/// Whether `code` is at `place`.
pub fn is_at(code: &Code, image: &[u8], place: usize) -> bool {
    let found = place.checked_add(code.len()).and_then(|end| image.get(place..end));
    found.is_some_and(|found| {
        code.iter().zip(found).all(|(wanted, byte)| wanted.is_none_or(|wanted| wanted == *byte))
    })
}

/// The only place of `code` where `more` is the case as well; `what` is what the code does, for messages.
pub fn only_place(code: &Code, image: &[u8], what: &str, more: impl Fn(usize) -> bool) -> Result<usize> {
    let mut places = (0..image.len()).filter(|place| is_at(code, image, *place) && more(*place));
    match (places.next(), places.next()) {
        (Some(place), None) => Ok(place),
        (None, _) => bail!(
            "This driver has no code that {what} in the way of Debian's Mesa 26.1 (it is built otherwise, or does \
             what is right already); build one from source instead"
        ),
        (Some(first), Some(second)) => {
            bail!("This driver has code that {what} more than once, at {first:#x} and at {second:#x}")
        }
    }
}

/// Where the jump leads whose 32-bit distance is at `distance`, the last bytes of the instruction.
pub fn target(image: &[u8], distance: usize) -> Option<usize> {
    let behind = distance.checked_add(4)?;
    let bytes = image.get(distance..behind)?;
    let distance = i32::from_le_bytes(bytes.try_into().ok()?);
    behind.checked_add_signed(isize::try_from(distance).ok()?)
}

/// Puts `bytes` at `place`, which was found in `image`.
pub fn put(image: &mut [u8], place: usize, bytes: &[u8]) {
    if let Some(there) = image.get_mut(place..place + bytes.len()) {
        there.copy_from_slice(bytes);
    }
}

/// `code` with `filler` where a byte may be any.
#[cfg(test)]
pub fn filled(code: &Code, filler: u8) -> Vec<u8> {
    code.iter().map(|byte| byte.unwrap_or(filler)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_fits_where_none_is_named() {
        let code = code![0x0f 0x83 _ 7];
        assert!(is_at(&code, &[1, 0x0f, 0x83, 99, 7], 1));
        assert!(!is_at(&code, &[1, 0x0f, 0x83, 99, 8], 1));
        assert!(!is_at(&code, &[1, 0x0f, 0x83, 99], 1), "the image ends within the code");
    }

    #[test]
    fn code_that_is_nowhere_or_twice_is_refused() {
        let image = [1, 2, 3, 1, 2];
        assert!(only_place(&code![4], &image, "adds", |_| true).unwrap_err().to_string().contains("already"));
        let twice = only_place(&code![1 2], &image, "adds", |_| true).unwrap_err().to_string();
        assert!(twice.contains("more than once"), "{twice}");
        assert_eq!(only_place(&code![1 2], &image, "adds", |place| place > 0).unwrap(), 3);
    }

    #[test]
    fn jumps_lead_forwards_and_backwards_from_behind_them() {
        assert_eq!(target(&[0xe9, 2, 0, 0, 0, 9, 9], 1), Some(7));
        assert_eq!(target(&[9, 0xe9, 0xfa, 0xff, 0xff, 0xff], 2), Some(0));
        assert_eq!(target(&[0xe9, 0xf0, 0xff, 0xff, 0xff], 1), None);
    }
}
