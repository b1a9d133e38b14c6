//! `gpuvmk top`: who uses the GPU now, as a terminal shows it.

mod columns;
mod screen;
mod terminal;
mod view;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde_json::json;

use self::terminal::Terminal;
use self::view::View;
use super::control::Target;

/// Arguments of `gpuvmk top`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Keys: q quits, s sorts by the next column, up and down choose a VM, p pauses and resumes it.\n\n\
                        Example:\n  gpuvmk top --interval-ms 500"
)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// How often to look.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval_ms: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut view = View::default();
    // Before the screen is taken: who is not there is said in plain lines.
    view.see(args.target.status()?, Instant::now());
    let mut terminal = Terminal::take().context("This is no terminal that can be drawn on")?;
    show(args, &mut view, &mut terminal).map(|()| ExitCode::SUCCESS)
}

fn show(args: &Args, view: &mut View, terminal: &mut Terminal) -> anyhow::Result<()> {
    let interval = Duration::from_millis(args.interval_ms);
    let mut due = Instant::now() + interval;
    loop {
        terminal.draw(&screen::lines(view, Terminal::size()?))?;
        if event::poll(due.saturating_duration_since(Instant::now()))? {
            let Event::Key(key) = event::read()? else { continue };
            if key.kind != KeyEventKind::Press {
                continue;
            }
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                KeyCode::Char('s') => view.sort_by_next(),
                KeyCode::Up => view.choose(-1),
                KeyCode::Down => view.choose(1),
                KeyCode::Char('p') => {
                    if let Some((vm, paused)) = view.chosen() {
                        let method = if paused { "vm.resume" } else { "vm.pause" };
                        view.note(args.target.call(method, &json!({ "vm": vm })).err());
                        due = Instant::now();
                    }
                }
                _ => {}
            }
        }
        if Instant::now() >= due {
            match args.target.status() {
                Ok(status) => view.see(status, Instant::now()),
                Err(error) => view.note(Some(error)),
            }
            due = Instant::now() + interval;
        }
    }
}
