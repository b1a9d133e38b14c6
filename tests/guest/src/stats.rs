//! Medians of measured times.

use std::time::Duration;

/// The value below which `percent` of `samples` lie.
pub fn percentile_us(samples: &[Duration], percent: usize) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or(0.0, |value| round(value.as_secs_f64() * 1e6))
}

/// Two digits after the point are more than any clock here is worth.
pub fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_do_not_depend_on_the_order() {
        let samples: Vec<_> = [5, 1, 4, 2, 3].map(Duration::from_micros).to_vec();
        assert!((percentile_us(&samples, 50) - 3.0).abs() < 1e-9);
        assert!((percentile_us(&samples, 90) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn no_samples_give_zero() {
        assert!(percentile_us(&[], 50).abs() < 1e-9);
    }
}
