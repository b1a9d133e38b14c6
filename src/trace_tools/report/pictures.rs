//! The pictures of a report, as SVG.

use anyhow::anyhow;
use hdrhistogram::Histogram;
use plotters::prelude::*;

use gpuvmk_trace::event::Kind;
use gpuvmk_trace::timeline::{Counts, Timeline};

const WIDE: (u32, u32) = (1000, 300);
const FLAT: (u32, u32) = (1000, 220);

/// Kinds that have a line together.
const LINES: [(&str, &[Kind]); 7] = [
    ("reads", &[Kind::Read]),
    ("writes", &[Kind::Write]),
    ("doorbells", &[Kind::Doorbell]),
    ("flushes and shadow changes", &[Kind::Flush, Kind::Shadow]),
    ("interrupts", &[Kind::Interrupt]),
    ("switches", &[Kind::Switch]),
    ("channels, resets, refusals", &[Kind::Channel, Kind::Reset, Kind::Refusal]),
];

/// Entries a second, by kind, on a scale by powers of ten.
pub(super) fn timeline(timeline: &Timeline) -> anyhow::Result<String> {
    let width = timeline.width() as f64 / 1e9;
    let end = width * timeline.buckets().len().max(1) as f64;
    let rate = |counts: &Counts, kinds: &[Kind]| {
        let sum: u64 = kinds.iter().filter_map(|kind| counts.get(*kind as usize)).sum();
        sum as f64 / width
    };
    let courses: Vec<(&str, Vec<f64>)> = LINES
        .iter()
        .map(|(name, kinds)| {
            (*name, timeline.buckets().iter().map(|counts| rate(counts, kinds)).collect::<Vec<_>>())
        })
        .filter(|(_, course)| course.iter().any(|rate| *rate > 0.0))
        .collect();
    let most = courses.iter().flat_map(|(_, course)| course).copied().fold(10.0, f64::max);
    draw(WIDE, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..end, (1.0..most * 1.2).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("time in s")
            .y_desc("entries a second")
            .y_label_formatter(&whole)
            .draw()?;
        for (number, (name, course)) in courses.iter().enumerate() {
            let color = Palette99::pick(number).to_rgba();
            let points = (0_u32..).zip(course).map(|(step, rate)| (f64::from(step) * width, rate.max(1.0)));
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(1)))?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    })
}

/// How many took how long, by powers of two, on a scale by powers of ten: the slowest are few.
pub(super) fn histogram(took: &Histogram<u64>) -> anyhow::Result<String> {
    let mut from = 0.0_f64;
    let mut bars = Vec::new();
    for step in took.iter_log(256, 2.0) {
        let to = (step.value_iterated_to() as f64 / 1e3).max(0.001);
        bars.push((from.max(to / 2.0), to, step.count_since_last_iteration() as f64));
        from = to;
    }
    bars.retain(|(_, _, count)| *count > 0.0);
    let least = bars.first().map_or(0.1, |(from, _, _)| *from);
    let last = bars.last().map_or(1.0, |(_, to, _)| *to);
    let most = bars.iter().map(|(_, _, count)| *count).fold(1.0, f64::max);
    draw(FLAT, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(70)
            .build_cartesian_2d((least..last * 1.05).log_scale(), (FEWEST..most * 2.0).log_scale())?;
        chart.configure_mesh().x_desc("microseconds").y_desc("accesses").y_label_formatter(&whole).draw()?;
        let color = Palette99::pick(0).to_rgba();
        let bar = |(from, to, count): &(f64, f64, f64)| {
            Rectangle::new([(*from, FEWEST), (*to, *count)], color.mix(0.7).filled())
        };
        chart.draw_series(bars.iter().map(bar))?;
        Ok(())
    })
}

/// Where bars begin: one access must be seen.
const FEWEST: f64 = 0.5;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what draws hands out references")]
fn whole(number: &f64) -> String {
    format!("{number:.0}")
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(
    size: (u32, u32),
    paint: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn std::error::Error>>,
) -> anyhow::Result<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let painted = root.fill(&WHITE).map_err(Into::into).and_then(|()| paint(&root));
        painted.map_err(|error| anyhow!("Cannot draw a picture: {error}"))?;
        root.present().map_err(|error| anyhow!("Cannot draw a picture: {error}"))?;
    }
    // It stands inside of a page.
    Ok(text.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").map_or(text.clone(), str::to_owned))
}
