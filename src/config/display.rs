//! The key `display`: whether a VM's GPU has a head, and the mode that its monitor prefers.

use super::reader::TableReader;
use super::value;
use crate::chip::Chip;
use crate::display::Mode;

/// What the key can be.
const ALLOWED: &str = "\"off\", or a size in pixels such as \"1280x800\"";

/// Chips that can have a head, in words.
fn chips() -> String {
    Chip::list(Chip::ALL.iter().copied().filter(|chip| chip.classes.heads.is_some()), "", ", ")
}

/// The key. `None` when it is wrong; `Some(None)`: the GPU has no head.
pub(super) fn read(reader: &mut TableReader<'_, '_>, chip: Option<Chip>) -> Option<Option<Mode>> {
    reader.defaulted("display", None, ALLOWED, |value| {
        let text = value::string(value)?;
        if text.eq_ignore_ascii_case("off") {
            return Ok(None);
        }
        let mode = text.parse::<Mode>().map_err(|error| error.to_string())?;
        match chip {
            Some(chip) if chip.classes.heads.is_none() => {
                Err(format!("a {chip} has no display here; chips that have one: {}", chips()))
            }
            _ => Ok(Some(mode)),
        }
    })
}
