//! The pictures of a report, as SVG.

use gpuvmk_charts::{Axis, Bar, ChartError, Layout, Line, Scale};
use hdrhistogram::Histogram;

use gpuvmk_trace::event::Kind;
use gpuvmk_trace::timeline::{Counts, Timeline};

const WIDE: Layout = Layout { size: (1000, 300), margin: 8, labels: (36, 70), stroke: 1 };
const FLAT: Layout = Layout { size: (1000, 220), ..WIDE };

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
pub(super) fn timeline(timeline: &Timeline) -> Result<String, ChartError> {
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
    let line = |(name, course): &(&str, Vec<f64>)| {
        let points = (0_u32..).zip(course).map(|(step, rate)| (f64::from(step) * width, rate.max(1.0)));
        Line { name: (*name).to_owned(), points: points.collect() }
    };
    let lines: Vec<_> = courses.iter().map(line).collect();
    let time = Axis { says: "time in s", scale: Scale::Even(0.0, end), whole: false };
    let rates = Axis { says: "entries a second", scale: Scale::Powers(1.0, most * 1.2), whole: true };
    Ok(within_a_page(&gpuvmk_charts::lines(WIDE, time, rates, &lines)?))
}

/// How many took how long, by powers of two, on a scale by powers of ten: the slowest are few.
pub(super) fn histogram(took: &Histogram<u64>) -> Result<String, ChartError> {
    let mut from = 0.0_f64;
    let mut bars = Vec::new();
    for step in took.iter_log(256, 2.0) {
        let to = (step.value_iterated_to() as f64 / 1e3).max(0.001);
        bars.push(Bar { from: from.max(to / 2.0), to, height: step.count_since_last_iteration() as f64 });
        from = to;
    }
    bars.retain(|bar| bar.height > 0.0);
    let least = bars.first().map_or(0.1, |bar| bar.from);
    let last = bars.last().map_or(1.0, |bar| bar.to);
    let most = bars.iter().map(|bar| bar.height).fold(1.0, f64::max);
    let times = Axis { says: "microseconds", scale: Scale::Powers(least, last * 1.05), whole: false };
    let counts = Axis { says: "accesses", scale: Scale::Powers(FEWEST, most * 2.0), whole: true };
    Ok(within_a_page(&gpuvmk_charts::bars(FLAT, times, counts, &bars)?))
}

/// Where bars begin: one access must be seen.
const FEWEST: f64 = 0.5;

/// A picture that stands inside of a page.
fn within_a_page(picture: &str) -> String {
    picture.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").unwrap_or(picture).to_owned()
}
