//! A page with the table and a picture of it.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Sizes of the picture.
const LEFT: f64 = 90.0;
const WIDTH: f64 = 700.0;
const BAR: f64 = 9.0;
/// The largest ratio that is drawn.
const MOST: f64 = 1.2;

/// Columns: key, title, and colour of the bar.
const RATIOS: [(&str, &str, &str); 3] =
    [("one", "one guest", "#2a6f97"), ("two", "two guests", "#61a5c2"), ("four", "four guests", "#a9d6e5")];

/// The page of a result with a table; `None`: it has none.
pub fn page(result: &Map<String, Value>) -> Option<String> {
    let table = result.get("table")?.as_object()?;
    let text = |key: &str| escaped(result.get(key).and_then(Value::as_str).unwrap_or("?"));
    let mut page = format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>gpuvmk: CUDA guests</title>\
         <style>body{{font:14px sans-serif;margin:2em;color:#222}}table{{border-collapse:collapse}}\
         td,th{{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}}\
         td:first-child{{text-align:left}}</style></head><body><h1>CUDA guests beside a native client</h1>\
         <p>{}, driver {}. GPU's own time; 1 is as fast as native. Several guests: what they got together.</p>",
        text("gpu"),
        text("driver"),
    );
    picture(&mut page, table);
    page.push_str("<table><tr><th>program</th><th>native, ms</th><th>guest, ms</th>");
    for (_, title, _) in RATIOS {
        let _ = write!(page, "<th>{title}</th>");
    }
    page.push_str("</tr>");
    for (name, row) in table {
        let _ = write!(page, "<tr><td>{}</td>", escaped(name));
        for key in ["native_ms", "guest_ms", "one", "two", "four"] {
            let value = row.get(key).and_then(Value::as_f64);
            let _ = write!(page, "<td>{}</td>", value.map_or("-".to_owned(), |value| format!("{value:.3}")));
        }
        page.push_str("</tr>");
    }
    page.push_str("</table>");
    let missed = result.get("missed").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for line in missed.iter().filter_map(Value::as_str) {
        let _ = write!(page, "<p>Missed: {}</p>", escaped(line));
    }
    page.push_str("</body></html>\n");
    Some(page)
}

fn picture(page: &mut String, table: &Map<String, Value>) {
    let step = BAR * RATIOS.len() as f64 + 8.0;
    let height = step * table.len() as f64 + 30.0;
    let place = |ratio: f64| LEFT + ratio.clamp(0.0, MOST) / MOST * (WIDTH - LEFT);
    let _ = write!(page, "<svg width=\"{WIDTH}\" height=\"{height}\" xmlns=\"http://www.w3.org/2000/svg\">");
    for (number, (name, row)) in table.iter().enumerate() {
        let top = number as f64 * step + 4.0;
        let base = top + BAR * 2.0;
        let _ = write!(page, "<text x=\"4\" y=\"{base}\" font-size=\"12\">{}</text>", escaped(name));
        for (bar, (key, title, colour)) in RATIOS.iter().enumerate() {
            let Some(ratio) = row.get(*key).and_then(Value::as_f64) else { continue };
            let (y, width) = (top + bar as f64 * BAR, place(ratio) - LEFT);
            let _ = write!(
                page,
                "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{colour}\">\
                 <title>{}, {title}: {ratio}</title></rect>",
                BAR - 1.0,
                escaped(name),
            );
        }
    }
    for mark in [0.5, 0.95, 1.0] {
        let (x, end) = (place(mark), height - 20.0);
        let _ = write!(
            page,
            "<line x1=\"{x:.1}\" y1=\"0\" x2=\"{x:.1}\" y2=\"{end}\" stroke=\"#888\" stroke-dasharray=\"3\"/>\
             <text x=\"{x:.1}\" y=\"{}\" font-size=\"11\" text-anchor=\"middle\">{mark}</text>",
            height - 6.0,
        );
    }
    page.push_str("</svg>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn page_has_a_row_and_bars_for_each_program() {
        let result = json!({
            "gpu": "an <H200>",
            "table": { "LUD": { "native_ms": 2.0, "one": 0.99, "two": 1.5 }, "NOP": { "native_ms": 0.002 } },
            "missed": ["NN: 0.9"],
        });
        let page = page(result.as_object().unwrap()).unwrap();
        assert_eq!((page.matches("<tr>").count(), page.matches("<rect").count()), (3, 2));
        assert!(page.contains("an &lt;H200&gt;") && page.contains("Missed: NN: 0.9"));
        assert!(page.contains("<td>0.990</td>") && page.contains("<td>-</td>"));
    }

    #[test]
    fn result_without_a_table_has_no_page() {
        assert_eq!(page(&Map::new()), None);
    }
}
