//! Numbers as NVIDIA's disassembler writes them.

/// Hexadecimal with a sign.
pub(crate) fn signed(value: i64) -> String {
    if value < 0 { format!("-{:#x}", value.unsigned_abs()) } else { format!("{value:#x}") }
}

/// A float.
pub(crate) fn single(bits: u32) -> String {
    float(f32::from_bits(bits).into(), bits >> 31 == 1, bits & 0x0040_0000 != 0)
}

/// The high half of a double.
pub(crate) fn double(high: u32) -> String {
    float(f64::from_bits(u64::from(high) << 32), high >> 31 == 1, high & 0x0008_0000 != 0)
}

/// Two half floats, the high one first.
pub(crate) fn halves(bits: u32, bfloat: bool) -> String {
    let one = |half: u32| {
        let quiet = half & if bfloat { 0x40 } else { 0x200 } != 0;
        float(
            if bfloat { f32::from_bits(half << 16).into() } else { half_value(half) },
            half >> 15 == 1,
            quiet,
        )
    };
    format!("{}, {}", one(bits >> 16), one(bits & 0xffff))
}

fn half_value(half: u32) -> f64 {
    let fraction = f64::from(half & 0x3ff);
    let magnitude = match (half >> 10) & 0x1f {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1024.0 + fraction) * 2f64.powi(exponent.cast_signed() - 25),
    };
    if half >> 15 == 1 { -magnitude } else { magnitude }
}

fn float(value: f64, negative: bool, quiet: bool) -> String {
    let sign = if negative { '-' } else { '+' };
    if value.is_infinite() {
        return format!("{sign}INF ");
    }
    if value.is_nan() {
        return format!("{sign}{} ", if quiet { "QNAN" } else { "SNAN" });
    }
    general(value)
}

/// What C's `%.20g` gives, with an exponent as soon as a number reaches 2^31.
fn general(value: f64) -> String {
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".to_owned() } else { "0".to_owned() };
    }
    if value.abs() >= 2_147_483_648.0 {
        return exponent(&format!("{value:.20e}"), false);
    }
    let text = format!("{value:.19e}");
    let Some((_, power)) = text.split_once('e') else { return text };
    match power.parse::<i32>() {
        Ok(power) if (-4..20).contains(&power) => {
            let places = usize::try_from(19 - power).unwrap_or_default();
            trimmed(&format!("{value:.places$}"))
        }
        _ => exponent(&text, true),
    }
}

fn trimmed(text: &str) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text.to_owned()
    }
}

fn exponent(text: &str, trim: bool) -> String {
    let (digits, power) = text.split_once('e').unwrap_or((text, "0"));
    let digits = if trim { trimmed(digits) } else { digits.to_owned() };
    let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
    format!("{digits}e{sign}{power:0>2}")
}
