//! `gpuvmk metrics`: what monitoring sees of all GPUs of a host.
//!
//! A separate process: aggregators stay without the network, and a slow scraper holds up no other client.

use std::io::Cursor;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use tiny_http::{Header, Method, Request, Response, Server};

use super::{control, output};
use crate::observe::metrics::{Answer, Format, exposition};

/// Arguments of `gpuvmk metrics`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuvmk metrics | promtool check metrics\n  gpuvmk metrics --format openmetrics\n  gpuvmk metrics --listen 127.0.0.1:9478\n\n\
                        Without --listen they are printed once. With it they are served at /metrics, in the clear and to everybody\n\
                        who can reach the address."
)]
pub(super) struct Args {
    /// Serve them by HTTP at this address.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Control sockets of the GPUs [default: all /run/gpuvmk/*.control, looked for anew each time].
    #[arg(long, value_name = "PATH")]
    socket: Vec<PathBuf>,
    /// The form of what is printed. Who asks by HTTP says what it wants (`Accept`), and gets the classic one
    /// if it does not.
    #[arg(long, value_enum, default_value_t = Format::Classic, conflicts_with = "listen")]
    format: Format,
}

impl Args {
    /// Whether it goes on for others.
    pub(super) const fn serves(&self) -> bool {
        self.listen.is_some()
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(address) = args.listen else {
        output::print(&scrape(&args.socket, args.format)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let server = Server::http(address).map_err(|error| anyhow!("Cannot listen at {address}: {error}"))?;
    log::info!("serves http://{address}/metrics");
    for request in server.incoming_requests() {
        let path = request.url().split('?').next().unwrap_or_default();
        let response = match (request.method(), path) {
            // Of an answer to HEAD, the server sends the headers only.
            (Method::Get | Method::Head, "/metrics") => match answer(&request, &args.socket) {
                Ok(response) => response,
                Err(error) => Response::from_string(format!("{error:#}\n")).with_status_code(500),
            },
            (Method::Get | Method::Head, _) => Response::from_string("see /metrics\n").with_status_code(404),
            _ => Response::from_string("only GET and HEAD\n").with_status_code(405),
        };
        // The client may be gone.
        if let Err(error) = request.respond(response) {
            log::debug!("an answer was not taken: {error}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The metrics, in the form that a client wants.
fn answer(request: &Request, sockets: &[PathBuf]) -> anyhow::Result<Response<Cursor<Vec<u8>>>> {
    let accept = request.headers().iter().filter(|header| header.field.equiv("Accept"));
    let accept: Vec<_> = accept.map(|header| header.value.as_str()).collect();
    let format = Format::wanted(&accept.join(","));
    let response = Response::from_string(scrape(sockets, format)?);
    let headers = [("Content-Type", format.media_type()), ("Vary", "Accept")];
    let headers = headers.into_iter().filter_map(|(name, value)| Header::from_bytes(name, value).ok());
    Ok(headers.fold(response, Response::with_header))
}

/// Asks all aggregators.
fn scrape(sockets: &[PathBuf], format: Format) -> anyhow::Result<String> {
    let sockets = if sockets.is_empty() { control::all() } else { sockets.to_vec() };
    let answers: Vec<_> = sockets
        .iter()
        .map(|socket| Answer {
            gpu: socket.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            status: gpuvmk_control_client::status(socket)
                .map_err(|error| log::warn!("{:#}", anyhow!(error)))
                .ok(),
        })
        .collect();
    exposition(&answers, format).context("Cannot write metrics")
}
