//! Half floats as fractions.

/// 2^112: what a single float with the bits of a half is smaller than that half, as exponents begin at -127
/// and not at -15.
const REBIAS: f32 = f32::from_bits((127 + 112) << 23);

/// A half float as a fraction of 65536: what is negative or no number is 0, and 1 or more is the most.
pub(super) fn fraction(half: u16) -> u16 {
    let value = f32::from_bits(u32::from(half & 0x7fff) << 13) * REBIAS * 65536.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounded down, at most 65535"
    )]
    let fraction = value as u16;
    // Beyond infinity come what is no number, then all that is negative.
    if half > 0x7c00 { 0 } else { fraction }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value by the standard's formula.
    fn value(half: u16) -> f64 {
        let sign = if half >> 15 == 1 { -1.0 } else { 1.0 };
        let (exponent, mantissa) = (i32::from(half >> 10 & 0x1f), f64::from(half & 0x3ff));
        match exponent {
            0 => sign * mantissa * 2_f64.powi(-24),
            31 if mantissa == 0.0 => sign * f64::INFINITY,
            31 => f64::NAN,
            _ => sign * (1.0 + mantissa / 1024.0) * 2_f64.powi(exponent - 15),
        }
    }

    #[test]
    fn every_half_is_its_value_clamped() {
        for half in 0..=u16::MAX {
            let value = value(half);
            let expected = if value.is_nan() { 0.0 } else { (value * 65536.0).floor().clamp(0.0, 65535.0) };
            assert_eq!(f64::from(fraction(half)), expected, "{half:#x}");
        }
    }
}
