//! Colours as frames have them.

/// The upper 8 bits of each colour.
pub(super) fn narrow(rgb: [u16; 3]) -> u32 {
    let [red, green, blue] = rgb.map(|part| part.to_be_bytes()[0]);
    u32::from_be_bytes([0, red, green, blue])
}
