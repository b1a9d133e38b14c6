//! The control socket: operators ask in JSON, a line a request, a line an answer.
//!
//! `{"cmd":"status"}` gives [`super::machine::status::Status`]. Each client has a thread of its own, few are
//! allowed, and none may be slow for long; the aggregator's thread only ever hands over a finished status.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, poll};
use serde::Deserialize;

use super::service::ServiceRemote;
use crate::socket_path::Listener;

/// Clients at a time.
const MAX_CLIENTS: usize = 8;

/// Longest request line.
const MAX_LINE: u64 = 4096;

/// How long a client may be silent, or not read.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(tag = "cmd", rename_all = "lowercase", deny_unknown_fields)]
enum Query {
    Status,
}

/// The control socket's server; ends when dropped.
#[derive(Debug)]
pub struct ControlServer {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Starts serving.
    ///
    /// # Errors
    /// Out of descriptors or threads.
    pub fn start(listener: Listener, remote: ServiceRemote) -> io::Result<Self> {
        let stop = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || serve(&listener, &remote, &stopped))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the control socket's thread broke down");
        }
    }
}

fn serve(listener: &Listener, remote: &ServiceRemote, stop: &OwnedFd) {
    let clients = Arc::new(AtomicUsize::new(0));
    loop {
        let mut fds = [PollFd::new(listener.socket(), PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                log::error!("the control socket ends: {errno}");
                return;
            }
        }
        if matches!(&fds, [_, stop] if !stop.revents().is_empty()) {
            return;
        }
        match listener.accept() {
            Ok(Some(client)) => start_client(client, remote.clone(), &clients),
            Ok(None) => {}
            Err(error) => {
                log::error!("an operator could not connect: {error}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn start_client(client: OwnedFd, remote: ServiceRemote, clients: &Arc<AtomicUsize>) {
    if clients.fetch_add(1, Ordering::SeqCst) >= MAX_CLIENTS {
        clients.fetch_sub(1, Ordering::SeqCst);
        log::warn!("an operator was turned away: {MAX_CLIENTS} are connected");
        return;
    }
    let count = Arc::clone(clients);
    let spawned = std::thread::Builder::new().name("control-client".to_owned()).spawn(move || {
        if let Err(error) = converse(UnixStream::from(client), &remote) {
            log::debug!("an operator's connection ended: {error}");
        }
        count.fetch_sub(1, Ordering::SeqCst);
    });
    if let Err(error) = spawned {
        clients.fetch_sub(1, Ordering::SeqCst);
        log::error!("an operator could not be served: {error}");
    }
}

fn converse(stream: UnixStream, remote: &ServiceRemote) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let read = reader.by_ref().take(MAX_LINE).read_line(&mut line)?;
        if read == 0 {
            return Ok(());
        }
        if !line.ends_with('\n') && u64::try_from(read).is_ok_and(|read| read >= MAX_LINE) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "request line is too long"));
        }
        let mut answer = answer(&line, remote);
        answer.push('\n');
        writer.write_all(answer.as_bytes())?;
    }
}

fn answer(line: &str, remote: &ServiceRemote) -> String {
    let result = match serde_json::from_str::<Query>(line) {
        Ok(Query::Status) => match remote.status() {
            Some(status) => serde_json::to_string(&status).map_err(|error| error.to_string()),
            None => Err("the aggregator does not answer".to_owned()),
        },
        Err(error) => Err(format!("{error}; allowed is {{\"cmd\":\"status\"}}")),
    };
    result.unwrap_or_else(|error| serde_json::json!({ "error": error }).to_string())
}
