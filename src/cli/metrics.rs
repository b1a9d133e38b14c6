//! `gpuvmk metrics`: what monitoring sees of all GPUs of a host.
//!
//! A process of its own: aggregators stay without the network, and whoever scrapes slowly holds up nobody else.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use serde_json::json;
use tiny_http::{Header, Method, Response, Server};

use super::control;
use crate::metrics::{Answer, exposition};

/// The media type of the text form (OpenMetrics 1.0.0).
const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Arguments of `gpuvmk metrics`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuvmk metrics\n  gpuvmk metrics --listen 127.0.0.1:9478\n\n\
                        Without --listen they are printed once. With it they are served at /metrics, in the clear and to everybody\n\
                        who can reach the address.")]
pub(super) struct Args {
    /// Serve them by HTTP at this address.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Control sockets of the GPUs [default: all /run/gpuvmk/*.control, looked for anew each time].
    #[arg(long, value_name = "PATH")]
    socket: Vec<PathBuf>,
}

impl Args {
    /// Whether it goes on for others.
    pub(super) const fn serves(&self) -> bool {
        self.listen.is_some()
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(address) = args.listen else {
        print!("{}", scrape(&args.socket)?);
        return Ok(ExitCode::SUCCESS);
    };
    let server = Server::http(address).map_err(|error| anyhow!("Cannot listen at {address}: {error}"))?;
    log::info!("serves http://{address}/metrics");
    for request in server.incoming_requests() {
        let path = request.url().split('?').next().unwrap_or_default();
        let response = match (request.method(), path) {
            (Method::Get, "/metrics") => match scrape(&args.socket) {
                Ok(text) => {
                    let media = Header::from_bytes("Content-Type", MEDIA_TYPE);
                    let response = Response::from_string(text);
                    if let Ok(media) = media { response.with_header(media) } else { response }
                }
                Err(error) => Response::from_string(format!("{error:#}\n")).with_status_code(500),
            },
            (Method::Get, _) => Response::from_string("see /metrics\n").with_status_code(404),
            _ => Response::from_string("only GET\n").with_status_code(405),
        };
        // Who asked may be gone.
        if let Err(error) = request.respond(response) {
            log::debug!("an answer was not taken: {error}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks all aggregators.
fn scrape(sockets: &[PathBuf]) -> anyhow::Result<String> {
    let sockets = if sockets.is_empty() { control::all() } else { sockets.to_vec() };
    let answers: Vec<_> = sockets
        .iter()
        .map(|socket| Answer {
            gpu: socket.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            status: gpuvmk_lab::control::call(socket, "status", &json!({}))
                .inspect_err(|error| log::warn!("{error:#}"))
                .ok(),
        })
        .collect();
    exposition(&answers).context("Cannot write metrics")
}
