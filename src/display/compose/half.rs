//! Half floats as fractions.

/// A half float as a fraction of 65536: what is negative or no number is 0, and 1 or more is the most.
pub(super) fn fraction(half: u16) -> u16 {
    let (exponent, mantissa) = (half >> 10 & 0x1f, half & 0x3ff);
    match (half >> 15, exponent, mantissa) {
        (0, 0x1f, 0) => u16::MAX,
        (1, _, _) | (_, 0x1f, _) => 0,
        // Below 2^-14: the mantissa counts 2^-24, and a fraction 2^-16.
        (_, 0, _) => mantissa >> 8,
        // From 1 on.
        (_, 15.., _) => u16::MAX,
        // (1024 + mantissa) * 2^(exponent - 25), in 2^-16.
        (_, 9..=14, _) => (0x400 | mantissa) << (exponent - 9),
        (_, 1..=8, _) => (0x400 | mantissa) >> (9 - exponent),
    }
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
