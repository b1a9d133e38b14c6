//! Lines and bars as SVG. What is drawn is handed over as plain numbers: the drawing library's generic code
//! is built once, here, and not by each room that has something to show.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod scale;

use plotters::coord::Shift;
use plotters::prelude::*;

pub use self::scale::Scale;

/// Why there is no picture: what the drawing library said.
#[derive(Debug, thiserror::Error)]
#[error("Cannot draw a picture: {0}")]
pub struct ChartError(String);

/// How much room a chart and what stands beside it have.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Width and height of the picture, in pixels.
    pub size: (u32, u32),
    /// Around everything, in pixels.
    pub margin: u32,
    /// For the numbers and the words below, and for those to the left, in pixels.
    pub labels: (u32, u32),
    /// The width of a line, in pixels.
    pub stroke: u32,
}

/// One of a chart's two axes.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a> {
    /// What it shows, in words, with the unit.
    pub says: &'a str,
    /// Its values.
    pub scale: Scale,
    /// Whether its numbers are written without a fraction.
    pub whole: bool,
}

/// A line of a chart, in a color of its own.
#[derive(Clone, Debug)]
pub struct Line {
    /// What the legend says.
    pub name: String,
    /// In the order in which they are joined.
    pub points: Vec<(f64, f64)>,
}

/// A bar: where it begins and ends on the axis below, and how high it is.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// Its left end.
    pub from: f64,
    /// Its right end.
    pub to: f64,
    /// Its upper end, on the axis to the left.
    pub height: f64,
}

/// Lines with a legend of their names.
///
/// # Errors
/// The drawing library finds something wrong.
pub fn lines(layout: Layout, x: Axis<'_>, y: Axis<'_>, lines: &[Line]) -> Result<String, ChartError> {
    draw(layout, x, y, Content::Lines(lines))
}

/// Bars that stand on the lowest value of the axis to the left.
///
/// # Errors
/// The drawing library finds something wrong.
pub fn bars(layout: Layout, x: Axis<'_>, y: Axis<'_>, bars: &[Bar]) -> Result<String, ChartError> {
    draw(layout, x, y, Content::Bars(bars))
}

#[derive(Clone, Copy)]
enum Content<'a> {
    Lines(&'a [Line]),
    Bars(&'a [Bar]),
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw(layout: Layout, x: Axis<'_>, y: Axis<'_>, content: Content<'_>) -> Result<String, ChartError> {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, layout.size).into_drawing_area();
    paint(&root, layout, x, y, content).map_err(|error| ChartError(error.to_string()))?;
    drop(root);
    Ok(text)
}

fn paint(
    root: &Area<'_>,
    layout: Layout,
    x: Axis<'_>,
    y: Axis<'_>,
    content: Content<'_>,
) -> Result<(), Box<dyn std::error::Error>> {
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(root)
        .margin(layout.margin)
        .x_label_area_size(layout.labels.0)
        .y_label_area_size(layout.labels.1)
        .build_cartesian_2d(x.scale, y.scale)?;
    chart
        .configure_mesh()
        .x_desc(x.says)
        .y_desc(y.says)
        .x_label_formatter(&|number| written(*number, x.whole))
        .y_label_formatter(&|number| written(*number, y.whole))
        .draw()?;
    match content {
        Content::Lines(lines) => {
            for (number, line) in lines.iter().enumerate() {
                let style = Palette99::pick(number).to_rgba().stroke_width(layout.stroke);
                let legend = Palette99::pick(number).to_rgba().stroke_width(2);
                chart
                    .draw_series(LineSeries::new(line.points.iter().copied(), style))?
                    .label(line.name.as_str())
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], legend));
            }
            let labels = &mut chart.configure_series_labels();
            labels.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
        }
        Content::Bars(bars) => {
            let style = Palette99::pick(0).to_rgba().mix(0.7).filled();
            let lowest = y.scale.lowest();
            let bar = |bar: &Bar| Rectangle::new([(bar.from, lowest), (bar.to, bar.height)], style);
            chart.draw_series(bars.iter().map(bar))?;
        }
    }
    root.present()?;
    Ok(())
}

fn written(number: f64, whole: bool) -> String {
    if whole { format!("{number:.0}") } else { format!("{number:?}") }
}
