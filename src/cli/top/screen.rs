//! How `gpuvmk top` looks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table, TableState};

use super::columns::COLUMNS;
use super::view::{Order, View};
use crate::host::size::show_size;

/// Columns that have no number, with their least width.
const WORDS: [(&str, u16); 2] = [("VM", 12), ("STATE", 12)];

/// Draws everything.
pub(super) fn draw(view: &View, frame: &mut Frame<'_>) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(2), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Line::from(summary(view)), head);
    let sorted = view.order().column().map_or(0, |column| column + WORDS.len());
    let headings = WORDS.iter().map(|(heading, _)| *heading).chain(COLUMNS.map(|column| column.heading));
    let headings = headings.enumerate().map(|(column, heading)| {
        let mark = if column == sorted { Modifier::REVERSED } else { Modifier::BOLD };
        Cell::from(heading).style(Style::new().add_modifier(mark))
    });
    let rows = view.rows().iter().map(|row| {
        let numbers = COLUMNS.iter().zip(row.values).map(|(column, value)| column.show(value));
        Row::new([row.vm.clone(), row.state.clone()].into_iter().chain(numbers))
    });
    let widths = WORDS.map(|(_, width)| Constraint::Min(width)).into_iter();
    let widths = widths.chain(COLUMNS.map(|column| Constraint::Length(column.width)));
    let table = Table::new(rows, widths)
        .header(Row::new(headings))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(view.place());
    frame.render_stateful_widget(table, body, &mut state);
    let keys = "q quit  s sort  up/down choose  p pause/resume";
    frame.render_widget(Line::from(view.wrong().unwrap_or(keys).to_owned()), foot);
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

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    #[test]
    fn screen_has_the_gpu_each_vm_and_the_keys() {
        let mut view = View::default();
        let vm = json!({ "name": "vm1", "state": "active", "vram": 64 << 20, "engines": [] });
        let gpu = json!({ "chip": "GF100", "backend": "soft", "policy": "fifo", "vram": 1 << 30, "vram_free": 1 << 29 });
        let status = serde_json::from_value(json!({ "gpu": gpu, "tenants": [vm] })).unwrap();
        view.see(status, Instant::now());
        view.choose(0);
        let mut terminal = Terminal::new(TestBackend::new(120, 6)).unwrap();
        terminal.draw(|frame| draw(&view, frame)).unwrap();

        let text = terminal.backend().to_string();
        for words in [
            "GF100 (soft), policy fifo, 1G of VRAM, 512M free, 1 VMs",
            "GPU %",
            "TRAPS/S",
            "vm1",
            "64M",
            "q quit",
        ] {
            assert!(text.contains(words), "{words} is missing in\n{text}");
        }
    }
}
