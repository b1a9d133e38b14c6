//! Edits a driver that Debian built, for Hopper: what `tests/nvk/patches` does to Mesa's source, done to its
//! machine code, as no source package of this version can be had to apply the patches to.
//!
//! - [`launch`]: the type of compute launches is set, without which no shader runs;
//! - [`branch`]: branches are encoded as Hopper reads them, without which a shader with a loop or a condition
//!   jumps out of its code.
//!
//! Each place is found by its instructions, and must be the only one: a driver that is not built like this
//! (other flags, the fault corrected already) is refused, not guessed at. Refused is also one that was edited
//! before.

pub mod branch;
mod code;
pub mod launch;

use anyhow::Result;

/// Makes all edits, or none that counts: `image` is of no use after an error.
pub fn apply(image: &mut [u8]) -> Result<()> {
    launch::set_type(image)?;
    branch::split_offsets(image)?;
    Ok(())
}
