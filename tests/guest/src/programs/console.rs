//! `console`: text on the kernel's console, which the host reads back from the monitor's picture. The
//! kernel's font goes with it, so that the host knows what a letter looks like.
//!
//! `say=WORD` is written in the first line, and above it with `log=N` so many lines that nouveau and DRM have
//! said, the last of them.

use std::fs::File;
use std::io::Write;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::stage::Stage;
use super::{Figures, Options};
use crate::{kmsg, sys};

/// Lines that are written, beside one that names the machine: every letter, and what wraps at the edge.
const LINES: [&str; 4] = [
    " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_",
    "`abcdefghijklmnopqrstuvwxyz{|}~",
    "The quick brown fox jumps over the lazy dog.",
    "0123456789 |/\\| 9876543210",
];

/// Letters of a line.
const COLUMNS: usize = 80;

pub fn run(options: &Options) -> Result<Figures> {
    let words: String = options.get("say", "gpuvmk".to_owned())?;
    let clear: u32 = options.get("clear", 1)?;
    let mut stage = Stage::open()?;
    let mut console =
        File::options().read(true).write(true).open("/dev/tty0").context("cannot open /dev/tty0")?;
    let font = sys::console_font(&console).context("cannot read the console's font")?;
    ensure!(font.width == 8 && !font.glyphs.is_empty(), "the console's font is {} pixels wide", font.width);
    let mut lines = log(options.get("log", 0)?)?;
    lines.push(format!("* {words} *"));
    lines.extend(LINES.map(str::to_owned));
    // A terminal that is as new, without a cursor that blinks.
    let mut text = if clear == 0 { "\r\n".to_owned() } else { "\x1bc".to_owned() };
    text.push_str("\x1b[?25l");
    for line in &lines {
        text.push_str(line);
        text.push_str("\r\n");
    }
    console.write_all(text.as_bytes()).context("cannot write to the console")?;
    let glyphs: String = font.glyphs.iter().map(|byte| format!("{byte:02x}")).collect();
    stage.show(
        json!({ "lines": lines, "cleared": clear != 0, "font": { "height": font.height, "glyphs": glyphs } }),
    )?;
    let mut figures = Figures::new();
    figures.insert("lines".into(), lines.len().into());
    Ok(figures)
}

/// The last lines of the kernel's log about the GPU, as a terminal of 80 columns has them.
fn log(count: usize) -> Result<Vec<String>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let all = kmsg::all()?;
    let about = all.iter().filter(|line| line.contains("nouveau") || line.contains("[drm]"));
    let mut lines: Vec<String> = about
        .map(|line| {
            let printable = line.chars().filter(|letter| matches!(letter, ' '..='~'));
            printable.take(COLUMNS - 1).collect::<String>().trim_end().to_owned()
        })
        .collect();
    lines.drain(..lines.len().saturating_sub(count));
    Ok(lines)
}
