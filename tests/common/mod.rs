//! What the wire tests share: a PCI function with plain memory behind its BARs, a server on a thread, and a
//! client that can send anything.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests may fail as tests do"
)]

pub mod client;
pub mod function;

use function::TestFunction;
use gpuvmk::frontend::vfio_user::{Peer, Server, SessionEnd, SessionObserver, SocketSpec, StopHandle};
use gpuvmk::pci::PciFunction;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Writes down who came and went.
#[derive(Debug, Default)]
pub struct Log(pub Mutex<Vec<String>>);

impl Log {
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl SessionObserver for Log {
    fn connected(&self, _: &Peer) {
        self.0.lock().unwrap().push("connected".to_owned());
    }

    fn disconnected(&self, end: &SessionEnd) {
        self.0.lock().unwrap().push(format!("disconnected: {end}"));
    }
}

/// A server on a thread of its own, with a folder for its socket.
#[derive(Debug)]
pub struct Running {
    pub function: Arc<TestFunction>,
    pub path: PathBuf,
    pub log: Arc<Log>,
    pub stop: StopHandle,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Running {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm.sock");
        let spec = SocketSpec::private(path.clone());
        let server = Server::bind(&spec).unwrap();
        let mut running = Self {
            function: Arc::new(TestFunction::new()),
            path,
            log: Arc::default(),
            stop: StopHandle::new().unwrap(),
            thread: None,
            _folder: folder,
        };
        running.thread = Some(running.serve(server));
        running
    }

    fn serve(&self, server: Server) -> JoinHandle<()> {
        let function: Arc<dyn PciFunction> = Arc::clone(&self.function) as Arc<dyn PciFunction>;
        let (log, stop) = (Arc::clone(&self.log), self.stop.clone());
        std::thread::spawn(move || server.run(&function, log.as_ref(), &stop).unwrap())
    }

    /// A client of ours that has negotiated.
    pub fn client(&self) -> client::Client {
        client::Client::negotiated(&self.path)
    }

    /// A client of ours that has only connected.
    pub fn stranger(&self) -> client::Client {
        client::Client::connect(&self.path)
    }

    /// An independent implementation of the client.
    pub fn peer(&self) -> vfio_user::Client {
        vfio_user::Client::new(&self.path).unwrap()
    }

    /// Stops the server and waits for its thread.
    pub fn finish(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until something that another thread does has happened.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(5), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Descriptors of this process that name the same open file as `link` (as /proc shows it).
pub fn descriptors_of(link: &str) -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let same = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_link(entry.unwrap().path()).is_ok_and(|found| found.to_string_lossy().contains(link))
    };
    entries.map(same).filter(|same| *same).count()
}
