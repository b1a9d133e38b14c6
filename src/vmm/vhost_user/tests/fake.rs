//! A back end of few words, honest unless it is told to lie.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use virtio_queue::{Queue, QueueT};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

pub const GET_FEATURES: u32 = 1;
pub const SET_FEATURES: u32 = 2;
pub const SET_MEM_TABLE: u32 = 5;
pub const SET_VRING_BASE: u32 = 10;
pub const GET_VRING_BASE: u32 = 11;
pub const SET_VRING_KICK: u32 = 12;
pub const SET_VRING_CALL: u32 = 13;
pub const GET_PROTOCOL_FEATURES: u32 = 15;
pub const GET_QUEUE_NUM: u32 = 17;
pub const SET_VRING_ENABLE: u32 = 18;
pub const SET_BACKEND_REQ_FD: u32 = 21;
pub const GET_CONFIG: u32 = 24;
pub const SET_CONFIG: u32 = 25;
pub const GET_INFLIGHT_FD: u32 = 31;
pub const SET_INFLIGHT_FD: u32 = 32;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
/// Version 1, descriptors' lists, thresholds, the protocol's features; and one of its own kind.
pub const FEATURES: u64 = 1 << 32 | 1 << 28 | 1 << 29 | 1 << 30 | 1 << 3;
/// Several queues, acknowledgements, requests, configuration, a record of requests.
const PROTOCOL: u64 = 1 << 0 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 12;

/// What it does in place of an answer.
#[derive(Clone, Debug)]
pub enum Lie {
    /// These bytes.
    Says(Vec<u8>),
    /// Nothing, and it says nothing more.
    Silent,
    /// It closes its socket.
    Leaves,
}

/// Decides about a request, its answer being honest otherwise: the request's number, and the honest answer.
pub type Liar = Box<dyn Fn(u32, &[u8]) -> Option<Lie> + Send + Sync>;

/// What it was given for a queue.
#[derive(Default)]
pub struct Ring {
    pub size: u16,
    pub places: [u64; 3],
    pub base: u16,
    pub enabled: bool,
    pub kick: Option<File>,
    pub call: Option<File>,
}

#[derive(Default)]
pub struct State {
    pub said: Vec<(u32, Vec<u8>)>,
    pub features: u64,
    pub memory: Option<(u64, u64, File)>,
    pub rings: Vec<Ring>,
    pub requests: Option<File>,
    pub configuration: Vec<u8>,
    pub connections: u32,
    stream: Option<UnixStream>,
}

/// The back end, which listens as long as this lives.
pub struct Fake {
    pub socket: PathBuf,
    pub state: Arc<Mutex<State>>,
    pub liar: Arc<Mutex<Option<Liar>>>,
    _folder: tempfile::TempDir,
}

impl Fake {
    pub fn start(queues: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("back-end.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let configuration = (0..=255).collect();
        let state = State { configuration, ..State::default() };
        let fake = Self { socket, state: Arc::new(Mutex::new(state)), liar: Arc::default(), _folder: folder };
        let (state, liar) = (Arc::clone(&fake.state), Arc::clone(&fake.liar));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                {
                    let mut state = state.lock().unwrap();
                    state.connections += 1;
                    state.rings = (0..queues).map(|_| Ring::default()).collect();
                    state.stream = Some(stream.try_clone().unwrap());
                }
                let (state, liar) = (Arc::clone(&state), Arc::clone(&liar));
                std::thread::spawn(move || serve(&stream, &state, &liar));
            }
        });
        fake
    }

    pub fn lies(&self, liar: impl Fn(u32, &[u8]) -> Option<Lie> + Send + Sync + 'static) {
        *self.liar.lock().unwrap() = Some(Box::new(liar));
    }

    pub fn is_honest(&self) {
        *self.liar.lock().unwrap() = None;
    }

    /// Breaks its connection.
    pub fn die(&self) {
        let stream = self.state.lock().unwrap().stream.take().unwrap();
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    }

    /// Says something unasked.
    pub fn says(&self, bytes: &[u8]) {
        self.state.lock().unwrap().stream.as_ref().unwrap().write_all(bytes).unwrap();
    }

    /// The contents of what was said by that number.
    pub fn said(&self, number: u32) -> Vec<Vec<u8>> {
        let state = self.state.lock().unwrap();
        state.said.iter().filter(|(said, _)| *said == number).map(|(_, body)| body.clone()).collect()
    }

    /// Answers what waits in a queue, by nothing; how many requests.
    pub fn answer(&self, index: usize) -> u16 {
        let mut state = self.state.lock().unwrap();
        let (gpa, size, file) = state.memory.as_ref().unwrap();
        let file = FileOffset::new(file.try_clone().unwrap(), 0);
        let size = usize::try_from(*size).unwrap();
        let memory =
            GuestMemoryMmap::<()>::from_ranges_with_files([(GuestAddress(*gpa), size, Some(file))]).unwrap();
        let ring = &mut state.rings[index];
        let mut queue = Queue::new(1024).unwrap();
        queue.set_size(ring.size);
        let [descriptors, available, used] = ring.places;
        queue.try_set_desc_table_address(GuestAddress(descriptors)).unwrap();
        queue.try_set_avail_ring_address(GuestAddress(available)).unwrap();
        queue.try_set_used_ring_address(GuestAddress(used)).unwrap();
        queue.set_next_avail(ring.base);
        queue.set_next_used(ring.base);
        queue.set_ready(true);
        let mut answered = 0;
        while let Some(chain) = queue.pop_descriptor_chain(&memory) {
            queue.add_used(&memory, chain.head_index(), 0).unwrap();
            answered += 1;
        }
        ring.base = queue.next_avail();
        if answered != 0 {
            ring.call.as_ref().unwrap().write_all(&1u64.to_ne_bytes()).unwrap();
        }
        answered
    }
}

/// A message's bytes.
pub fn message(request: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).unwrap();
    [&request.to_le_bytes()[..], &flags.to_le_bytes(), &size.to_le_bytes(), body].concat()
}

fn serve(mut stream: &UnixStream, state: &Mutex<State>, liar: &Mutex<Option<Liar>>) -> Option<()> {
    loop {
        let mut header = [0; 12];
        let (size, file) = stream.recv_with_fd(&mut header).ok()?;
        if size == 0 {
            return None;
        }
        stream.read_exact(header.get_mut(size..)?).ok()?;
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let (request, flags, size) = (word(0), word(4), word(8));
        let mut body = vec![0; size as usize];
        stream.read_exact(&mut body).ok()?;
        let answer = take(&mut state.lock().unwrap(), request, &body, file);
        let answer = answer.or_else(|| (flags & 8 != 0).then(|| 0u64.to_le_bytes().to_vec()));
        let honest = answer.map(|answer| message(request, 5, &answer)).unwrap_or_default();
        let lie = liar.lock().unwrap().as_ref().and_then(|liar| liar(request, &honest));
        match lie {
            None if request == GET_INFLIGHT_FD => {
                let record = tempfile::tempfile().unwrap();
                stream.send_with_fd(honest.as_slice(), std::os::fd::AsRawFd::as_raw_fd(&record)).ok()?;
            }
            None => stream.write_all(&honest).ok()?,
            Some(Lie::Says(bytes)) => stream.write_all(&bytes).ok()?,
            Some(Lie::Silent) => {
                let _ = stream.read_to_end(&mut Vec::new());
                return None;
            }
            Some(Lie::Leaves) => {
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return None;
            }
        }
    }
}

/// Does what it is told; its answer, if one is due.
fn take(state: &mut State, request: u32, body: &[u8], file: Option<File>) -> Option<Vec<u8>> {
    state.said.push((request, body.to_vec()));
    let word =
        |at: usize| body.get(at..at + 4).map_or(0, |word| u32::from_le_bytes(word.try_into().unwrap()));
    let long =
        |at: usize| body.get(at..at + 8).map_or(0, |long| u64::from_le_bytes(long.try_into().unwrap()));
    let queues = state.rings.len();
    let configuration = state.configuration.clone();
    let ring = state.rings.get_mut((word(0) & 0xff) as usize);
    match (request, ring) {
        (GET_FEATURES, _) => return Some(FEATURES.to_le_bytes().to_vec()),
        (GET_PROTOCOL_FEATURES, _) => return Some(PROTOCOL.to_le_bytes().to_vec()),
        (GET_INFLIGHT_FD, _) => return Some([&[0x77; 16], &body[16..]].concat()),
        (GET_QUEUE_NUM, _) => return Some((queues as u64).to_le_bytes().to_vec()),
        (GET_CONFIG, _) => {
            let (offset, size) = (word(0) as usize, word(4) as usize);
            return Some([&body[..12], &configuration[offset..offset + size]].concat());
        }
        (SET_CONFIG, _) => {
            let (offset, size) = (word(0) as usize, word(4) as usize);
            state.configuration[offset..offset + size].copy_from_slice(&body[12..]);
        }
        (SET_FEATURES, _) => state.features = long(0),
        (SET_MEM_TABLE, _) => state.memory = Some((long(8), long(16), file.unwrap())),
        (SET_BACKEND_REQ_FD, _) => state.requests = file,
        (SET_VRING_NUM, Some(ring)) => ring.size = u16::try_from(word(4)).unwrap(),
        (SET_VRING_ADDR, Some(ring)) => ring.places = [long(8), long(24), long(16)],
        (SET_VRING_BASE, Some(ring)) => ring.base = u16::try_from(word(4)).unwrap(),
        (SET_VRING_KICK, Some(ring)) => ring.kick = file,
        (SET_VRING_CALL, Some(ring)) => ring.call = file,
        (SET_VRING_ENABLE, Some(ring)) => ring.enabled = word(4) != 0,
        (GET_VRING_BASE, Some(ring)) => {
            ring.enabled = false;
            return Some([&body[..4], &u32::from(ring.base).to_le_bytes()].concat());
        }
        _ => {}
    }
    None
}
