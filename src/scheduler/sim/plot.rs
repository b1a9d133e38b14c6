//! A picture of shares over time, as SVG.

use std::collections::BTreeMap;

use plotters::prelude::*;

use super::report::Report;

/// Number of lines in a picture that can be distinguished. Of more VMs than that, each kind has one line.
const MAX_LINES: usize = 12;
/// Width and height.
const SIZE: (u32, u32) = (1000, 500);

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[error("Cannot draw the picture: {0}")]
pub struct PlotError(String);

/// Percent of time that engines worked for each VM, over time: all kinds as SVG.
///
/// # Errors
/// The drawing library finds something wrong.
pub fn svg(report: &Report) -> Result<String, PlotError> {
    let mut text = String::new();
    draw(report, &mut text).map_err(|error| PlotError(error.to_string()))?;
    Ok(text)
}

fn draw(report: &Report, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let lines = lines(report);
    let most = lines.iter().flat_map(|(_, course)| course).copied().fold(1.0, f64::max);
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(55)
        .build_cartesian_2d(0.0..report.seconds, 0.0..most * 1.05)?;
    chart.configure_mesh().x_desc("time in s").y_desc("share in percent").draw()?;
    for (number, (name, course)) in lines.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        // Each step is drawn as one: a level line over its time.
        let steps = (0_u32..).zip(course).flat_map(|(step, share)| {
            let start = f64::from(step) * report.step;
            [(start, *share), ((start + report.step).min(report.seconds), *share)]
        });
        chart
            .draw_series(LineSeries::new(steps, color.stroke_width(2)))?
            .label(name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    root.present()?;
    Ok(())
}

/// Names and values of the lines.
fn lines(report: &Report) -> Vec<(String, Vec<f64>)> {
    if report.vms.len() <= MAX_LINES {
        return report.vms.iter().map(|vm| (vm.name.clone(), vm.course.clone())).collect();
    }
    let mut kinds: BTreeMap<&str, (u32, Vec<f64>)> = BTreeMap::new();
    for vm in &report.vms {
        let (count, sum) = kinds.entry(&vm.kind).or_insert_with(|| (0, vec![0.0; vm.course.len()]));
        *count = count.saturating_add(1);
        sum.iter_mut().zip(&vm.course).for_each(|(sum, share)| *sum += share);
    }
    let all = kinds.into_iter().map(|(name, (count, sum))| (format!("{name} (all {count} together)"), sum));
    all.take(MAX_LINES).collect()
}
