//! A viewer over a socket, and pictures that a test makes.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::decoder::{Bytes, Screen};
use super::pictures::Pictures;
use crate::frame::Frame;
use crate::mode::Size;
use crate::rfb::{NoInput, Server, Settings, ViewerInput};
use crate::source::{FrameSource, Looking, Picture, Wake};
use crate::tiles::Rectangle;

/// Longer than any test takes on a machine that is busy with others.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// What a test shows.
#[derive(Default)]
struct Shown {
    pictures: Pictures,
    latest: Option<Arc<Picture>>,
    wakes: Vec<(u64, Wake)>,
    looks: u64,
}

/// Pictures that a test makes.
#[derive(Clone, Default)]
pub(super) struct Show(Arc<Mutex<Shown>>);

impl Show {
    pub(super) fn show(&self, frame: Frame) {
        let mut shown = self.0.lock().unwrap();
        let picture = shown.pictures.next(frame);
        shown.latest = Some(Arc::new(picture));
        shown.wakes.iter().for_each(|(_, wake)| wake());
    }

    /// How often somebody began to look, and how many look now.
    pub(super) fn looks(&self) -> (u64, usize) {
        let shown = self.0.lock().unwrap();
        (shown.looks, shown.wakes.len())
    }
}

impl FrameSource for Show {
    fn look(&self, wake: Wake) -> Box<dyn Looking> {
        wake();
        let mut shown = self.0.lock().unwrap();
        shown.looks += 1;
        let id = shown.looks;
        shown.wakes.push((id, wake));
        Box::new(Look(self.clone(), id))
    }
}

struct Look(Show, u64);

impl Looking for Look {
    fn latest(&self) -> Option<Arc<Picture>> {
        self.0.0.lock().unwrap().latest.clone()
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().wakes.retain(|(id, _)| *id != self.1);
    }
}

/// A server of such pictures.
pub(super) struct Served {
    pub(super) show: Show,
    pub(super) server: Server,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Served {
    pub(super) fn new(settings: Settings) -> Self {
        Self::with_input(settings, Box::new(NoInput))
    }

    pub(super) fn with_input(settings: Settings, input: Box<dyn ViewerInput>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("view");
        let listener = UnixListener::bind(&path).unwrap();
        let show = Show::default();
        let server = Server::start(listener, Arc::new(show.clone()), input, settings).unwrap();
        Self { show, server, path, _folder: folder }
    }

    pub(super) fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream
    }

    /// A viewer that has greeted.
    pub(super) fn viewer(&self) -> Client {
        Client::greet(self.connect(), b"RFB 003.008\n").expect("a viewer that is let in")
    }
}

/// A viewer.
pub(super) struct Client {
    pub(super) stream: UnixStream,
    pub(super) screen: Screen,
    /// What was read and not understood yet.
    bytes: Vec<u8>,
}

/// Reads so many bytes; nothing if the server ends the connection.
fn read(stream: &mut UnixStream, count: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).ok().map(|()| bytes)
}

impl Client {
    /// Greets as this version does.
    pub(super) fn greet(mut stream: UnixStream, version: &[u8; 12]) -> Option<Self> {
        assert_eq!(read(&mut stream, 12)?, b"RFB 003.008\n");
        stream.write_all(version).ok()?;
        if version == b"RFB 003.003\n" {
            assert_eq!(read(&mut stream, 4)?, [0, 0, 0, 1]);
        } else {
            assert_eq!(read(&mut stream, 2)?, [1, 1]);
            stream.write_all(&[1]).ok()?;
            if version != b"RFB 003.007\n" {
                assert_eq!(read(&mut stream, 4)?, [0; 4]);
            }
        }
        stream.write_all(&[1]).ok()?;
        let head = read(&mut stream, 24)?;
        let mut head = Bytes(&head);
        let size = Size::new(head.two(), head.two());
        head.take(16);
        let length = usize::try_from(head.four()).unwrap();
        read(&mut stream, length)?;
        Some(Self { stream, screen: Screen::new(size), bytes: Vec::new() })
    }

    pub(super) fn request(&mut self, incremental: bool) {
        let [w1, w0] = self.screen.size.width().to_be_bytes();
        let [h1, h0] = self.screen.size.height().to_be_bytes();
        self.stream.write_all(&[3, u8::from(incremental), 0, 0, 0, 0, w1, w0, h1, h0]).unwrap();
    }

    /// The next update, of raw pixels in the server's format.
    pub(super) fn update(&mut self) -> Vec<Rectangle> {
        // Read as far as rectangles' heads say.
        self.read_to(4);
        let count = u16::from_be_bytes([self.bytes[2], self.bytes[3]]);
        let mut end = 4;
        for _ in 0..count {
            self.read_to(end + 12);
            let mut head = Bytes(&self.bytes[end..]);
            let (_, _, width, height) = (head.two(), head.two(), head.two(), head.two());
            assert_eq!(head.four(), 0, "raw");
            end += 12 + usize::from(width) * usize::from(height) * 4;
            self.read_to(end);
        }
        let bytes = std::mem::take(&mut self.bytes);
        let mut bytes = Bytes(&bytes);
        assert_eq!(bytes.byte(), 0, "an update");
        self.screen.update(&mut bytes)
    }

    fn read_to(&mut self, length: usize) {
        let missing = length - self.bytes.len();
        self.bytes.extend(read(&mut self.stream, missing).expect("more of an update"));
    }

    /// Whether the server has ended the connection: waits for it.
    pub(super) fn is_let_go(&mut self) -> bool {
        is_let_go(&mut self.stream)
    }
}

/// Whether the server has ended a connection: reads until it has.
pub(super) fn is_let_go(stream: &mut UnixStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
