//! A picture of shares over time, as SVG.

use gpuvmk_charts::{Axis, ChartError, Layout, Line, Scale};
use gpuvmk_ordered::OrderedMap;

use super::report::Report;

/// Number of lines in a picture that can be distinguished. Of more VMs than that, each kind has one line.
const MAX_LINES: usize = 12;
/// Width and height.
const SIZE: (u32, u32) = (1000, 500);

const LAYOUT: Layout = Layout { size: SIZE, margin: 10, labels: (40, 55), stroke: 2 };

/// Percent of time that engines worked for each VM, over time: all kinds as SVG.
///
/// # Errors
/// The drawing library finds something wrong.
pub fn svg(report: &Report) -> Result<String, ChartError> {
    let lines = lines(report);
    let most = lines.iter().flat_map(|(_, course)| course).copied().fold(1.0, f64::max);
    let line = |(name, course): (String, Vec<f64>)| {
        // Each step is drawn as one: a level line over its time.
        let steps = (0_u32..).zip(course).flat_map(|(step, share)| {
            let start = f64::from(step) * report.step;
            [(start, share), ((start + report.step).min(report.seconds), share)]
        });
        Line { name, points: steps.collect() }
    };
    let time = Axis { says: "time in s", scale: Scale::Even(0.0, report.seconds), whole: false };
    let share = Axis { says: "share in percent", scale: Scale::Even(0.0, most * 1.05), whole: false };
    gpuvmk_charts::lines(LAYOUT, time, share, &lines.into_iter().map(line).collect::<Vec<_>>())
}

/// Names and values of the lines.
fn lines(report: &Report) -> Vec<(String, Vec<f64>)> {
    if report.vms.len() <= MAX_LINES {
        return report.vms.iter().map(|vm| (vm.name.clone(), vm.course.clone())).collect();
    }
    let mut kinds: OrderedMap<&str, (u32, Vec<f64>)> = OrderedMap::new();
    for vm in &report.vms {
        let (count, sum) = kinds.entry(&vm.kind).or_insert_with(|| (0, vec![0.0; vm.course.len()]));
        *count = count.saturating_add(1);
        sum.iter_mut().zip(&vm.course).for_each(|(sum, share)| *sum += share);
    }
    let all = kinds.into_iter().map(|(name, (count, sum))| (format!("{name} (all {count} together)"), sum));
    all.take(MAX_LINES).collect()
}
