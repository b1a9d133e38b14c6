//! How `gpuvmk top` looks: lines of a screen of some size, without a terminal.

use super::columns::COLUMNS;
use super::view::{Order, View};
use crate::host::size::show_size;

/// Columns that have no number, with their least width.
const WORDS: [(&str, usize); 2] = [("VM", 12), ("STATE", 12)];

/// Lines that are no VM's: the summary, the headings and the keys.
const OTHER_LINES: usize = 3;

/// How a part of a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Reversed,
}

/// A part of a line.
pub(super) type Part = (Style, String);

/// All lines of a screen of so many columns and lines. None is longer; what does not fit is cut off.
pub(super) fn lines(view: &View, (columns, lines): (usize, usize)) -> Vec<Vec<Part>> {
    let widths = widths(columns);
    let plain = |text: &str| vec![(Style::Plain, fit(text, columns))];
    let mut screen = vec![plain(&summary(view)), headings(view, &widths)];
    let shown = lines.saturating_sub(OTHER_LINES);
    let chosen = view.place();
    // The one that is chosen is on the screen.
    let first = chosen.map_or(0, |place| (place + 1).saturating_sub(shown));
    for (place, row) in view.rows().iter().enumerate().skip(first).take(shown) {
        let numbers = COLUMNS.iter().zip(row.values).map(|(column, value)| column.show(value));
        let cells = [row.vm.clone(), row.state.clone()].into_iter().chain(numbers);
        let cells: Vec<String> = cells.zip(&widths).map(|(cell, width)| fit(&cell, *width)).collect();
        let style = if chosen == Some(place) { Style::Reversed } else { Style::Plain };
        screen.push(vec![(style, cells.join(" "))]);
    }
    screen.resize(lines.saturating_sub(1), Vec::new());
    screen.push(plain(view.wrong().unwrap_or("q quit  s sort  up/down choose  p pause/resume")));
    screen.truncate(lines);
    for line in &mut screen {
        cut(line, columns);
    }
    screen
}

/// The widths of the columns. Those of words share what is left.
fn widths(columns: usize) -> Vec<usize> {
    let numbers: usize = COLUMNS.iter().map(|column| usize::from(column.width) + 1).sum();
    let left = columns.saturating_sub(numbers + WORDS.len() - 1) / WORDS.len();
    let words = WORDS.iter().map(|(_, least)| left.max(*least));
    words.chain(COLUMNS.iter().map(|column| column.width.into())).collect()
}

fn headings(view: &View, widths: &[usize]) -> Vec<Part> {
    let sorted = view.order().column().map_or(0, |column| column + WORDS.len());
    let words = WORDS.iter().map(|(heading, _)| *heading).chain(COLUMNS.map(|column| column.heading));
    let mut parts = Vec::new();
    for (column, (heading, width)) in words.zip(widths).enumerate() {
        if column > 0 {
            parts.push((Style::Plain, " ".to_owned()));
        }
        let style = if column == sorted { Style::Reversed } else { Style::Bold };
        parts.push((style, fit(heading, *width)));
    }
    parts
}

/// A text in so many columns. A letter that moves the cursor is a question mark.
fn fit(text: &str, width: usize) -> String {
    let letters = text.chars().map(|letter| if letter.is_control() { '?' } else { letter });
    let cut: String = letters.take(width).collect();
    format!("{cut:width$}")
}

/// Cuts off what is beyond so many columns.
fn cut(line: &mut [Part], columns: usize) {
    let mut left = columns;
    for (_, text) in line {
        *text = text.chars().take(left).collect();
        left = left.saturating_sub(text.chars().count());
    }
}

fn summary(view: &View) -> String {
    let Some(gpu) = view.gpu() else { return String::new() };
    let busy: f64 = view.rows().iter().map(|row| row.of(Order::Gpu)).sum();
    format!(
        "{} ({}), policy {}, {} of VRAM, {} free, {} VMs, engines busy {:.1} %{}{}",
        gpu.chip,
        gpu.backend,
        gpu.policy,
        show_size(gpu.vram),
        show_size(gpu.vram_free),
        view.rows().len(),
        busy * 100.0,
        if gpu.draining { ", draining" } else { "" },
        if gpu.lost { ", LOST" } else { "" },
    )
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::*;

    fn view(vms: &[&str]) -> View {
        let mut view = View::default();
        let vm = |name: &&str| json!({ "name": name, "state": "active", "vram": 64 << 20, "engines": [] });
        let gpu = json!({ "chip": "GF100", "backend": "soft", "policy": "fifo", "vram": 1 << 30, "vram_free": 1 << 29 });
        let vms: Vec<_> = vms.iter().map(vm).collect();
        view.see(serde_json::from_value(json!({ "gpu": gpu, "tenants": vms })).unwrap(), Instant::now());
        view
    }

    fn text(lines: &[Vec<Part>]) -> Vec<String> {
        lines.iter().map(|line| line.iter().map(|(_, text)| text.as_str()).collect()).collect()
    }

    #[test]
    fn screen_has_the_gpu_each_vm_and_the_keys() {
        let mut view = view(&["vm1"]);
        view.choose(0);

        let screen = lines(&view, (120, 6));

        let text = text(&screen);
        assert!(text[0].starts_with("GF100 (soft), policy fifo, 1G of VRAM, 512M free, 1 VMs"), "{text:?}");
        assert!(text[1].starts_with("VM ") && text[1].contains("GPU %") && text[1].contains("TRAPS/S"));
        assert!(text[2].starts_with("vm1 ") && text[2].contains(" active ") && text[2].contains(" 64M "));
        assert_eq!((screen[2][0].0, text[3].as_str(), text[4].as_str()), (Style::Reversed, "", ""));
        assert!(text[5].starts_with("q quit"), "{text:?}");
        let sorted: Vec<_> = screen[1].iter().filter(|(style, _)| *style == Style::Reversed).collect();
        assert_eq!(sorted, [&(Style::Reversed, "GPU %  ".to_owned())]);
    }

    #[test]
    fn every_size_is_kept_and_shows_what_is_chosen() {
        let names: Vec<String> = (0..40).map(|number| format!("vm{number:02}")).collect();
        let mut view = view(&names.iter().map(String::as_str).collect::<Vec<_>>());
        view.choose(0);
        view.choose(30);
        for size in [(0, 0), (1, 1), (5, 2), (7, 3), (40, 4), (120, 10), (300, 100)] {
            let screen = lines(&view, size);
            assert_eq!(screen.len(), size.1);
            let text = text(&screen);
            assert!(text.iter().all(|line| line.chars().count() <= size.0), "{text:?}");
            let chosen = screen
                .iter()
                .skip(2)
                .any(|line| line.first().is_some_and(|(style, _)| *style == Style::Reversed));
            assert_eq!(chosen, size.1 > 3, "{text:?}");
        }
    }

    #[test]
    fn names_move_no_cursor() {
        let mut view = view(&[]);
        view.note(Some(anyhow::anyhow!("\u{1b}[2Jgone")));
        assert!(text(&lines(&view, (80, 4)))[3].starts_with("?[2Jgone"));
    }
}
