//! Output of commands. Every command writes here, so that a failing output ends each of them in the same way,
//! with a line and exit status 1. A closed reader is no error.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::fmt::Arguments;
use std::io::{BufWriter, ErrorKind, StdoutLock, Write as _};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context as _;
use env_logger::fmt::Formatter;

/// Text in front of an error when only the answer to an order cannot be shown.
pub const CARRIED_OUT: &str = "The order was carried out, but what came of it cannot be shown";

/// Writes a line to standard output; `?` belongs behind it.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {
        $crate::line(format_args!($($arg)*))
    };
}

/// Writes to standard output until its reader is gone.
#[derive(Debug)]
pub struct Output {
    to: BufWriter<StdoutLock<'static>>,
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl Output {
    /// Standard output, locked until this goes.
    pub fn new() -> Self {
        Self { to: BufWriter::with_capacity(1 << 18, std::io::stdout().lock()) }
    }

    /// Writes bytes as they are. False once the reader is gone.
    ///
    /// # Errors
    /// The output takes no more.
    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<bool> {
        Self::still_read(self.to.write_all(bytes))
    }

    /// Hands over what was written. False once the reader is gone.
    ///
    /// # Errors
    /// The output takes no more.
    pub fn flush(&mut self) -> anyhow::Result<bool> {
        Self::still_read(self.to.flush())
    }

    fn still_read(written: std::io::Result<()>) -> anyhow::Result<bool> {
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            written => written.map(|()| true).context("Cannot write to standard output"),
        }
    }
}

/// Prints text as it is.
///
/// # Errors
/// The output takes no more.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut to = std::io::stdout().lock();
    Output::still_read(to.write_all(text.as_bytes()).and_then(|()| to.flush())).map(drop)
}

/// Prints a line; [`say`] makes its arguments.
///
/// # Errors
/// The output takes no more.
pub fn line(text: Arguments<'_>) -> anyhow::Result<()> {
    print(&format!("{text}\n"))
}

/// Writes a line to standard error. If that fails too, the line is lost.
pub fn complain(text: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints the command line parser's message: help and versions are output like any other, mistakes are
/// errors.
pub fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // Where standard error takes nothing, the exit status tells.
        let _ = error.print();
        return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
    }
    match Output::still_read(error.print().and_then(|()| std::io::stdout().flush())) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("gpuvmk: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes a log record for a terminal or a file: time, level, text; further lines are indented.
///
/// # Errors
/// The sink's.
pub fn log_line(to: &mut Formatter, record: &log::Record<'_>) -> std::io::Result<()> {
    let style = to.default_level_style(record.level());
    let time = humantime::format_rfc3339_millis(SystemTime::now());
    let text = record.args().to_string().replace('\n', "\n    ");
    writeln!(to, "[{time} {style}{:<5}{style:#}] {text}", record.level())
}
