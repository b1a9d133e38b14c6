//! The plots of the page, as SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::scaling::Stage;
use super::table::{Row, Table};

const SIZE: (u32, u32) = (1000, 320);
const PLACES: [&str; 2] = ["vram", "gart"];
const OPERATIONS: [&str; 4] = ["alloc", "map", "unmap", "free"];
/// Sizes of buffers as figures name them.
const SIZES: [(&str, f64); 6] = [
    ("4k", 4096.0),
    ("64k", 65_536.0),
    ("1m", 1_048_576.0),
    ("16m", 16_777_216.0),
    ("256m", 268_435_456.0),
    ("1g", 1_073_741_824.0),
];
/// Bytes that one submission copies, by the name of its figure.
const COPIES: [(&str, f64); 5] = [
    ("latency_4k", 4096.0),
    ("copy_1m", 1_048_576.0),
    ("work_4m", 4_194_304.0),
    ("copy_16m", 16_777_216.0),
    ("work_64m", 67_108_864.0),
];

/// A line: its name, whether it is thick, its colour's number, and its points.
type Course = (String, bool, usize, Vec<(f64, f64)>);

/// What an axis shows, and whether its steps are powers.
#[derive(Debug, Clone, Copy)]
struct Axes {
    x: &'static str,
    y: &'static str,
}

/// Times by size of buffers in one place each, and MB a second by size of copies. Native is thin, mediated
/// thick.
pub fn of_table(table: &Table) -> Result<Vec<(String, String)>> {
    let mut pictures = Vec::new();
    let throughput: Vec<Course> = both(0, "", |of| {
        points(
            &COPIES,
            table,
            |name| name.to_owned(),
            |row, bytes| of(row).map(|time| bytes / time.max(0.01)),
        )
    });
    add(
        &mut pictures,
        "Copies: MB a second by bytes of a submission",
        &throughput,
        Axes { x: "bytes", y: "MB/s" },
    )?;
    for place in PLACES {
        let courses: Vec<Course> = OPERATIONS
            .into_iter()
            .enumerate()
            .flat_map(|(color, operation)| {
                both(color, operation, |of| {
                    let name = |size: &str| format!("{operation}_{place}_{size}");
                    points(&SIZES, table, name, |row, _| of(row))
                })
            })
            .collect();
        let title = format!("Memory in {}: time by bytes", place.to_uppercase());
        add(&mut pictures, &title, &courses, Axes { x: "bytes", y: "microseconds" })?;
    }
    Ok(pictures)
}

/// Throughput and start-up by number of VMs.
pub fn of_scaling(stages: &[Stage]) -> Result<Vec<(String, String)>> {
    let mut pictures = Vec::new();
    let course = |color, name: &str, of: fn(&Stage) -> f64| {
        let points = stages.iter().map(|stage| (stage.vms as f64, of(stage))).collect();
        (name.to_owned(), true, color, points)
    };
    let copied = [course(0, "all VMs together", |stage| stage.mb_s)];
    add(
        &mut pictures,
        "Copies of all VMs: MB a second by number of VMs",
        &copied,
        Axes { x: "VMs", y: "MB/s" },
    )?;
    let ready = [
        course(0, "the first ready", |stage| stage.first_ready_s),
        course(1, "the last ready", |stage| stage.last_ready_s),
    ];
    add(&mut pictures, "Start-up to ready, by number of VMs then", &ready, Axes { x: "VMs", y: "seconds" })?;
    let memory =
        [course(0, "median", |stage| stage.memory_mib), course(1, "most", |stage| stage.most_memory_mib)];
    add(&mut pictures, "Private memory of a device's process", &memory, Axes { x: "VMs", y: "MiB" })?;
    Ok(pictures)
}

/// The same for both set-ups.
fn both(
    color: usize,
    name: &str,
    points: impl Fn(&dyn Fn(&Row) -> Option<f64>) -> Vec<(f64, f64)>,
) -> Vec<Course> {
    vec![
        (format!("{name} native").trim().to_owned(), false, color, points(&|row| row.native)),
        (format!("{name} mediated").trim().to_owned(), true, color, points(&|row| Some(row.mediated))),
    ]
}

fn points(
    sizes: &[(&str, f64)],
    table: &Table,
    name: impl Fn(&str) -> String,
    value: impl Fn(&Row, f64) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let point = |(size, bytes): &(&str, f64)| {
        let name = name(size);
        let row = table.rows.iter().find(|row| row.title() == name)?;
        Some((*bytes, value(row, *bytes)?))
    };
    sizes.iter().filter_map(point).collect()
}

/// Adds a picture, unless there is nothing to show.
fn add(pictures: &mut Vec<(String, String)>, title: &str, courses: &[Course], axes: Axes) -> Result<()> {
    let courses: Vec<&Course> = courses.iter().filter(|course| !course.3.is_empty()).collect();
    if !courses.is_empty() {
        pictures.push((title.to_owned(), picture(&courses, axes)?));
    }
    Ok(())
}

/// Both axes by powers, of two and of ten: sizes and numbers of VMs double, and times differ by a thousand.
fn picture(courses: &[&Course], axes: Axes) -> Result<String> {
    let all = || courses.iter().flat_map(|course| course.3.iter().copied());
    let ends = |of: fn((f64, f64)) -> f64| {
        let least = all().map(of).fold(f64::INFINITY, f64::min).max(1e-3);
        (least, all().map(of).fold(0.0, f64::max).max(least))
    };
    let (first, last) = ends(|point| point.0);
    let (least, most) = ends(|point| point.1);
    // Whole powers of ten: only these are sure to be labelled.
    let heights = 10f64.powf((least / 1.1).log10().floor())..10f64.powf((most * 1.1).log10().ceil());
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        draw(&root, courses, first / 1.3..last * 1.3, heights, axes)
            .map_err(|error| anyhow!("Cannot draw a picture: {error}"))?;
    }
    // It stands inside of a page.
    Ok(text.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").map_or(text.clone(), str::to_owned))
}

fn draw(
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    courses: &[&Course],
    x: std::ops::Range<f64>,
    y: std::ops::Range<f64>,
    axes: Axes,
) -> Result<(), Box<dyn std::error::Error>> {
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(80)
        .build_cartesian_2d(x.log_scale().base(2.0), y.log_scale())?;
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(&number)
        .y_label_formatter(&number)
        .draw()?;
    for (name, thick, color, points) in courses {
        let style = Palette99::pick(*color).to_rgba().stroke_width(if *thick { 3 } else { 1 });
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style).point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what draws hands out references")]
fn number(number: &f64) -> String {
    let whole = |number: f64, unit: f64| number >= unit && number % unit == 0.0;
    match *number {
        number if whole(number, 1_048_576.0) => format!("{:.0} Mi", number / 1_048_576.0),
        number if whole(number, 1024.0) => format!("{:.0} Ki", number / 1024.0),
        number if whole(number, 1.0) || number >= 10.0 => format!("{number:.0}"),
        number => format!("{number:.2}"),
    }
}
