//! How `gpuvmk top` looks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table, TableState};

use super::view::{Order, View};
use crate::host::size::show_size;

const HEADINGS: [&str; 11] =
    ["VM", "STATE", "GPU %", "WAIT %", "QUEUE", "VRAM", "SUBM/S", "COPIED/S", "TRAPS/S", "FAULTS", "HANGS"];
const WIDTHS: [Constraint; 11] = [
    Constraint::Min(12),
    Constraint::Min(12),
    Constraint::Length(7),
    Constraint::Length(7),
    Constraint::Length(7),
    Constraint::Length(7),
    Constraint::Length(9),
    Constraint::Length(11),
    Constraint::Length(9),
    Constraint::Length(7),
    Constraint::Length(6),
];

/// Draws everything.
pub(super) fn draw(view: &View, frame: &mut Frame<'_>) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(2), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Line::from(summary(view)), head);
    let sorted = match view.order() {
        Order::Name => 0,
        Order::Gpu => 2,
        Order::Waiting => 3,
        Order::Vram => 5,
        Order::Submissions => 6,
    };
    let headings = HEADINGS.iter().enumerate().map(|(column, name)| {
        let mark = if column == sorted { Modifier::REVERSED } else { Modifier::BOLD };
        Cell::from(*name).style(Style::new().add_modifier(mark))
    });
    let rows = view.rows().iter().map(|row| {
        Row::new([
            row.vm.clone(),
            row.state.clone(),
            format!("{:.1}", row.gpu * 100.0),
            format!("{:.1}", row.waiting * 100.0),
            row.queue.to_string(),
            show_size(row.vram),
            format!("{:.0}", row.submissions),
            bytes(row.copied),
            format!("{:.0}", row.trapped),
            row.faults.to_string(),
            row.hangs.to_string(),
        ])
    });
    let table = Table::new(rows, WIDTHS)
        .header(Row::new(headings))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(view.place());
    frame.render_stateful_widget(table, body, &mut state);
    let keys = "q quit  s sort  up/down choose  p pause/resume";
    frame.render_widget(Line::from(view.wrong().unwrap_or(keys).to_owned()), foot);
}

fn summary(view: &View) -> String {
    let Some(gpu) = view.gpu() else { return String::new() };
    let busy: f64 = view.rows().iter().map(|row| row.gpu).sum();
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

/// Bytes in the largest unit that leaves a number before the point.
fn bytes(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    for unit in units {
        if value < 1024.0 {
            return format!("{value:.1} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} PiB")
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

    #[test]
    fn bytes_have_fitting_units() {
        assert_eq!([0.0, 1023.0, 1536.0, 3.5e9].map(bytes), ["0.0 B", "1023.0 B", "1.5 KiB", "3.3 GiB"]);
    }
}
