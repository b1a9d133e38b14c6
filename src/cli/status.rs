//! `gpuvmk status GPU.toml`: what the aggregator says of its tenants.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::config::GpuConfig;

/// How long an aggregator may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Arguments of `gpuvmk status`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuvmk status /etc/gpuvmk/gpu0.toml\n  gpuvmk status --socket /run/gpuvmk/gpu0.control"
)]
pub(super) struct Args {
    /// The GPU's configuration file, for its control socket.
    #[arg(value_name = "FILE", required_unless_present = "socket")]
    file: Option<PathBuf>,
    /// The control socket itself.
    #[arg(long, value_name = "PATH", conflicts_with = "file")]
    socket: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let socket = match (&args.socket, &args.file) {
        (Some(socket), _) => socket.clone(),
        (None, Some(file)) => match GpuConfig::load(file)?.control {
            Some(control) => control.path,
            None => bail!("{} has no [control] section, so there is nobody to ask", file.display()),
        },
        (None, None) => bail!("Give the GPU's configuration file or --socket"),
    };
    print!("{}", ask(&socket, "{\"cmd\":\"status\"}")?);
    Ok(ExitCode::SUCCESS)
}

/// Sends one line to a control socket and returns the answer's line.
fn ask(socket: &Path, request: &str) -> anyhow::Result<String> {
    let absent = || format!("No aggregator answers at {}: is it running?", socket.display());
    let mut stream = UnixStream::connect(socket).with_context(absent)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    writeln!(stream, "{request}").with_context(absent)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).with_context(absent)?;
    if answer.is_empty() {
        bail!("The aggregator at {} closed the connection without an answer", socket.display());
    }
    Ok(answer)
}
