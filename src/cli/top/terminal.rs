//! The terminal while `gpuvmk top` has it: its other screen, without a cursor, and its keys one by one.

use std::io::{self, BufWriter, Stdout, Write};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};

use super::screen::{Part, Style};

/// The terminal. It is put back when this is dropped.
#[derive(Debug)]
pub(super) struct Terminal {
    output: BufWriter<Stdout>,
}

impl Terminal {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Input or output is none.
    pub(super) fn take() -> io::Result<Self> {
        enable_raw_mode()?;
        let mut terminal = Self { output: BufWriter::new(io::stdout()) };
        execute!(terminal.output, EnterAlternateScreen, Hide)?;
        Ok(terminal)
    }

    /// Its columns and lines.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn size() -> io::Result<(usize, usize)> {
        size().map(|(columns, lines)| (columns.into(), lines.into()))
    }

    /// Draws all lines of a screen, from the first one.
    ///
    /// # Errors
    /// It cannot be written to.
    pub(super) fn draw(&mut self, lines: &[Vec<Part>]) -> io::Result<()> {
        let output = &mut self.output;
        queue!(output, BeginSynchronizedUpdate)?;
        for (number, line) in (0..).zip(lines) {
            queue!(output, MoveTo(0, number), Clear(ClearType::CurrentLine))?;
            for (style, text) in line {
                let attribute = match style {
                    Style::Plain => Attribute::Reset,
                    Style::Bold => Attribute::Bold,
                    Style::Reversed => Attribute::Reverse,
                };
                queue!(output, SetAttribute(attribute), Print(text), SetAttribute(Attribute::Reset))?;
            }
        }
        queue!(output, EndSynchronizedUpdate)?;
        output.flush()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that takes nothing cannot be put back either; that was the end then.
        let _ = execute!(self.output, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
