//! Opens the page of `gpuvmk trace report` as its readers do, and measures what they see.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::chromium::Chromium;
use serde_json::Value;

/// The narrowest picture in pixels that a reader can make anything of.
const WIDE: f64 = 600.0;

/// Put at the end of a copy of the page: writes into it how large everything came out.
const MEASURE: &str = r#"<script>
const pictures = [...document.querySelectorAll('svg')].map(one => {
  const box = one.getBoundingClientRect();
  return {width: box.width, height: box.height, shapes: one.querySelectorAll('rect,line,polyline,path,polygon').length};
});
const found = {pictures, tables: document.querySelectorAll('table').length, rows: document.querySelectorAll('tr').length,
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  elsewhere: performance.getEntriesByType('resource').length, color: getComputedStyle(document.body).color,
  title: document.title};
const list = document.body.appendChild(document.createElement('pre'));
list.id = 'found';
list.textContent = JSON.stringify(found);
</script>"#;

/// Returns what is wrong with the page.
pub fn check(cache: &Cache, page: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(page).with_context(|| format!("Cannot read {}", page.display()))?;
    let measured = page.with_extension("measured.html");
    let (before, after) = text.split_once("</body>").context("the report has no end of its body")?;
    fs::write(&measured, format!("{before}{MEASURE}</body>{after}"))?;
    let folder = page.parent().context("the report is in no folder")?;
    let seen = Chromium::obtain(cache)?.open(&measured, folder)?;
    let found = seen.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (found, _) = found.context("the page does not say how large things came out")?;
    let found: Value = serde_json::from_str(found).context("Cannot read what was measured")?;
    Ok(problems(&found))
}

fn problems(found: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let mut must = |ok: bool, what: String| {
        if !ok {
            problems.push(format!("the report in Chromium: {what}"));
        }
    };
    let pictures = found["pictures"].as_array().map(Vec::as_slice).unwrap_or_default();
    must(pictures.len() >= 3, format!("{} pictures", pictures.len()));
    for picture in pictures {
        let size = |key: &str| picture[key].as_f64().unwrap_or(0.0);
        let drawn = size("width") >= WIDE && size("height") >= 100.0 && size("shapes") > 10.0;
        must(drawn, format!("a picture that came out as {picture}"));
    }
    must(found["rows"].as_u64() > Some(20), format!("{} rows", found["rows"]));
    must(found["overflow"] == 0, format!("it is {} pixels wider than the window", found["overflow"]));
    must(found["elsewhere"] == 0, format!("it takes {} things from elsewhere", found["elsewhere"]));
    must(found["title"] == "gpuvmk trace report", format!("its title is {}", found["title"]));
    must(found["color"] == "rgb(34, 34, 34)", format!("its style is not applied: {}", found["color"]));
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found() -> Value {
        let picture = json!({ "width": 1000.0, "height": 300.0, "shapes": 40 });
        json!({
            "pictures": [picture, picture, picture], "tables": 4, "rows": 60, "overflow": 0, "elsewhere": 0,
            "color": "rgb(34, 34, 34)", "title": "gpuvmk trace report",
        })
    }

    #[test]
    fn whatever_a_reader_would_miss_is_a_problem() {
        assert_eq!(problems(&found()), Vec::<String>::new());
        for (key, value) in [
            ("pictures", json!([])),
            ("rows", json!(3)),
            ("overflow", json!(12)),
            ("elsewhere", json!(1)),
            ("color", json!("rgb(0, 0, 0)")),
            ("title", json!("")),
        ] {
            let mut changed = found();
            changed[key] = value;
            assert_eq!(problems(&changed).len(), 1, "{key}");
        }
        let mut flat = found();
        flat["pictures"][1]["height"] = json!(0.0);
        assert_eq!(problems(&flat).len(), 1);
        assert!(problems(&Value::Null).len() > 4);
    }
}
