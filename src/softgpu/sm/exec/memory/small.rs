//! Loads and stores of bytes and halves.

use super::address::{MISALIGNED, OUT_OF_RANGE, local, resolve};
use crate::exec::context::{Context, Done};
use crate::fault::Cause;
use crate::op::Space;
use crate::row::{LANES, Lanes, Row, ZERO};

/// Loads `bytes` bytes of each lane, and extends their sign if they are `signed`.
pub(super) fn load(
    context: &mut Context<'_>,
    space: Space,
    addresses: &[u64; LANES],
    mask: u32,
    (bytes, signed): (u8, bool),
) -> Result<Row, Cause> {
    let mut row = ZERO;
    for lane in Lanes(mask) {
        if !addresses[lane].is_multiple_of(u64::from(bytes)) {
            return Err(MISALIGNED);
        }
        let mut word = 0;
        for byte in 0..bytes {
            let (space, address) = resolve(context, space, addresses[lane].wrapping_add(byte.into()));
            let found = match space {
                Space::Shared => {
                    let words = &context.shared.words;
                    let at = usize::try_from(address / 4).unwrap_or(usize::MAX);
                    let word = words.get(at).ok_or(OUT_OF_RANGE)?;
                    word.to_le_bytes()[usize::try_from(address % 4).unwrap_or(0)]
                }
                Space::Local => {
                    let at = local(context, lane, address)?;
                    context.view.load_byte(at)?
                }
                _ => context.view.load_byte(address)?,
            };
            word |= u32::from(found) << (8 * byte);
        }
        row[lane] = crate::numerics::integer::extend(word, 8 * u32::from(bytes), signed, false);
    }
    Ok(row)
}

/// Stores the low `bytes` bytes of each lane's word.
pub(super) fn store(
    context: &mut Context<'_>,
    space: Space,
    addresses: &[u64; LANES],
    mask: u32,
    data: &Row,
    bytes: u8,
) -> Done {
    for lane in Lanes(mask) {
        if !addresses[lane].is_multiple_of(u64::from(bytes)) {
            return Err(MISALIGNED);
        }
        for (index, byte) in (0..u64::from(bytes)).zip(data[lane].to_le_bytes()) {
            match resolve(context, space, addresses[lane].wrapping_add(index)) {
                (Space::Shared, address) => {
                    let at = usize::try_from(address / 4).unwrap_or(usize::MAX);
                    let word = context.shared.words.get_mut(at).ok_or(OUT_OF_RANGE)?;
                    let mut parts = word.to_le_bytes();
                    parts[usize::try_from(address % 4).unwrap_or(0)] = byte;
                    *word = u32::from_le_bytes(parts);
                }
                (Space::Local, address) => {
                    let at = local(context, lane, address)?;
                    context.view.store_byte(at, byte)?;
                }
                (_, address) => context.view.store_byte(address, byte)?,
            }
        }
    }
    Ok(())
}
