//! Figures of fairness.

use super::{Had, Stretch};

/// Less than this of the GPU's time, in microseconds, says nothing of how well it is counted.
const ENOUGH: f64 = 100_000.0;

/// Jain's index: 1 if all have the same, 1/n if one has everything.
pub fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares > 0.0 { sum * sum / (values.len() as f64 * squares) } else { 0.0 }
}

/// The largest error of a VM's part among all, against its weight's part, relative to that.
pub fn weight_error(times: &[f64], weights: &[u32]) -> f64 {
    let (all, whole): (f64, f64) = (times.iter().sum(), weights.iter().copied().map(f64::from).sum());
    let errors = times.iter().zip(weights).map(|(time, weight)| {
        let wanted = f64::from(*weight) / whole;
        (time / all.max(f64::MIN_POSITIVE) - wanted).abs() / wanted
    });
    errors.fold(0.0, f64::max)
}

/// The error of the first VM's part of the time against `percent`, relative to that.
pub fn part_error(stretch: &Stretch, percent: u8) -> f64 {
    let wanted = f64::from(percent) / 100.0;
    let had = stretch.truth().first().copied().unwrap_or(0.0) / stretch.seconds;
    (had - wanted).abs() / wanted
}

/// The largest error of what was counted against the truth, relative to that.
pub fn accounting_error(vms: &[Had]) -> f64 {
    let judged = vms.iter().filter(|had| had.truth >= ENOUGH);
    judged.map(|had| (had.used - had.truth).abs() / had.truth).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_a_part_for_one_who_has_all() {
        assert!((jain(&[3.0, 3.0, 3.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[3.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-9);
        assert!(jain(&[0.0, 0.0]).abs() < 1e-9);
    }

    #[test]
    fn errors_are_relative_to_what_was_wanted() {
        assert!((weight_error(&[1.0, 2.0, 4.0], &[1, 2, 4])).abs() < 1e-9);
        assert!((weight_error(&[1.1, 2.0, 3.9], &[1, 2, 4]) - 0.1).abs() < 1e-9);
        let vms = [
            Had { used: 102_000.0, truth: 100_000.0, ..Had::default() },
            Had { used: 900.0, truth: 10.0, ..Had::default() },
        ];
        assert!((accounting_error(&vms) - 0.02).abs() < 1e-9);
        let stretch = Stretch { seconds: 2.0, vms: vec![Had { truth: 480_000.0, ..Had::default() }] };
        assert!((part_error(&stretch, 25) - 0.04).abs() < 1e-9);
    }
}
