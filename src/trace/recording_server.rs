//! Records a VM, or an aggregator, while it works, through a socket of its process. A client that may open
//! the socket sends its conditions and reads the trace until it hangs up. Without a client nothing is
//! recorded.
//!
//! The request is a line of JSON, `{"conditions": ["bar=0", "op=write"]}`, as of [`Filter::parse`]. The
//! answer is a trace as a file has it, or a line `{"error": "..."}`. One client is served at a time. A client
//! that reads too slowly loses entries, which are counted, and is dropped after [`PATIENCE`]; the VM never
//! waits.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;
use serde_json::json;

use super::filter::Filter;
use super::header::Header;
use super::recorder::{RING, Recorder};
use super::tracer::Tracer;
use gpuvmk_chip::register_sets::RegisterSet;
use gpuvmk_host::socket_path::{Guard, Listener, NotAllowed};
use gpuvmk_jail::{self as jail, Role};

/// How long a client may not say what it wants, or not read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Limit of a request's length in bytes.
const MAX_LINE: usize = 4096;

/// How often it is looked whether the client is there.
const LOOK: Duration = Duration::from_millis(100);

/// How long a client that will be refused may take to send its request.
const BRIEFLY: Duration = Duration::from_millis(50);

/// Wait after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default)]
    conditions: Vec<String>,
}

/// A server of recordings; its socket is removed when this is dropped.
#[derive(Debug)]
pub struct RecordingServer {
    _listener: Listener,
    tracer: Tracer,
    busy: Arc<Busy>,
}

#[derive(Debug, Default)]
struct Busy {
    recording: Mutex<bool>,
    changed: Condvar,
}

impl Busy {
    fn set(&self, recording: bool) {
        *self.recording.lock().unwrap_or_else(PoisonError::into_inner) = recording;
        self.changed.notify_all();
    }
}

impl RecordingServer {
    /// Starts to serve. `header` is that of all traces.
    ///
    /// # Errors
    /// Out of descriptors or threads.
    pub fn start(listener: Listener, tracer: Tracer, header: Header) -> io::Result<Self> {
        let busy = Arc::new(Busy::default());
        let serving = Serving {
            socket: listener.socket().try_clone()?,
            guard: Arc::clone(listener.guard()),
            tracer: tracer.clone(),
            chip: header.chip.as_deref().and_then(RegisterSet::by_name),
            header,
            busy: Arc::clone(&busy),
        };
        std::thread::Builder::new().name("recorder".to_owned()).spawn(move || {
            jail::enter(Role::Recorder);
            serving.work();
        })?;
        Ok(Self { _listener: listener, tracer, busy })
    }
}

impl Drop for RecordingServer {
    fn drop(&mut self) {
        self.tracer.stop();
        // The recording shall be whole, but a client that does not read is not waited for.
        let recording = self.busy.recording.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.busy.changed.wait_timeout_while(recording, Duration::from_secs(1), |recording| *recording));
    }
}

/// The thread's part.
struct Serving {
    socket: OwnedFd,
    guard: Arc<Guard>,
    tracer: Tracer,
    chip: Option<&'static RegisterSet>,
    header: Header,
    busy: Arc<Busy>,
}

impl Serving {
    fn work(&self) {
        loop {
            wait(&self.socket, PollFlags::IN, None);
            match self.accept() {
                Ok(Some(client)) => self.serve(client),
                Ok(None) => {}
                Err(error) => {
                    log::warn!("nobody can record: {error}");
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    fn accept(&self) -> io::Result<Option<UnixStream>> {
        let farewell =
            |refused: NotAllowed| format!("{}\n", json!({ "error": refused.to_string() })).into_bytes();
        let Some((client, _)) = self.guard.accept(&self.socket, farewell)? else { return Ok(None) };
        let client = UnixStream::from(client);
        client.set_read_timeout(Some(PATIENCE))?;
        client.set_write_timeout(Some(PATIENCE))?;
        Ok(Some(client))
    }

    fn serve(&self, mut client: UnixStream) {
        let filter = match self.request(&mut client) {
            Ok(filter) => filter,
            Err(why) => return refuse(&mut client, &why),
        };
        if self.tracer.is_on() {
            return refuse(&mut client, "this is being recorded to the file of its configuration");
        }
        let (recorder, writer) = match Recorder::new(self.header.clone(), filter, RING) {
            Ok(made) => made,
            Err(error) => return refuse(&mut client, &error.to_string()),
        };
        log::info!("an operator records");
        self.busy.set(true);
        self.tracer.start(recorder);
        let mut looked = Instant::now();
        let reader = client.try_clone();
        let wanted = || {
            if looked.elapsed() < LOOK {
                return true;
            }
            looked = Instant::now();
            if let Ok(Some(mut other)) = self.accept() {
                // The request must be read, or the client gets the kernel's error instead of ours.
                let _ = other.set_read_timeout(Some(BRIEFLY)).and_then(|()| other.read(&mut [0; 512]));
                refuse(&mut other, "somebody else records this");
            }
            // A client has nothing to say after its request.
            reader
                .as_ref()
                .is_ok_and(|reader| !wait(reader, PollFlags::IN | PollFlags::RDHUP, Some(Duration::ZERO)))
        };
        let done = writer.write(&mut client, wanted);
        self.tracer.stop();
        self.busy.set(false);
        match done {
            Ok(()) => log::info!("the recording has ended"),
            Err(error) => log::warn!("the recording has ended: {error}"),
        }
    }

    /// What a client wants.
    fn request(&self, client: &mut UnixStream) -> Result<Filter, String> {
        let mut line = Vec::new();
        let until = Instant::now() + PATIENCE;
        while !line.ends_with(b"\n") {
            let mut bytes = [0; 512];
            let read = client.read(&mut bytes).map_err(|error| error.to_string())?;
            line.extend_from_slice(bytes.get(..read).unwrap_or_default());
            if read == 0 || line.len() > MAX_LINE || Instant::now() > until {
                return Err(format!("a line of JSON of at most {MAX_LINE} bytes must come first"));
            }
        }
        let request: Request = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
        let words = request.conditions.iter().map(String::as_str);
        Filter::parse(words, self.chip).map_err(|error| error.to_string())
    }
}

fn refuse(client: &mut UnixStream, why: &str) {
    // A client that hangs up does not need the answer.
    let _ = client.write_all(format!("{}\n", json!({ "error": why })).as_bytes());
}

/// Waits for something at a descriptor; false if nothing came.
fn wait(fd: &impl std::os::fd::AsFd, flags: PollFlags, limit: Option<Duration>) -> bool {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    poll(&mut [PollFd::new(fd, flags)], limit.as_ref()).is_ok_and(|ready| ready > 0)
}
