//! Our vfio-user server beside an echo that does as little as a server of that protocol can: a header, then
//! its body, then one answer of the right length, as libvfio-user reads and writes them.
//!
//! Client and servers share one processor: between two, what a round trip takes depends on where the kernel
//! puts them and on what it costs to wake another processor up, which differs by a factor of five from run to
//! run and is nobody's share.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use gpuvmk::frontend::vfio_user::wire::{RegionAccess, command};
use gpuvmk::frontend::vfio_user::{Server, StopHandle};
use gpuvmk::pci::PciFunction;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use zerocopy::IntoBytes;

use crate::common::client::Client;
use crate::common::function::TestFunction;
use crate::median;

/// Round trips of a round.
const TRIPS: u32 = 2000;
/// Bytes of a message's header, of a read's request, and of its answer's body.
const HEADER: usize = 16;
const REQUEST: usize = 16;
const ANSWER: usize = 20;

/// Reads of a burst.
const BURST: u32 = 32;

/// What reads of a register cost through a socket.
pub struct Socket {
    /// Processor time of our server for one of a burst, with its system calls: to go to sleep and to wake up
    /// between two is the kernel's.
    pub share_us: f64,
    /// The same by that of the echo.
    pub share_ratio: f64,
    /// One round trip.
    pub round_trip_us: f64,
    /// By one with the echo.
    pub over_echo: f64,
}

/// Keeps this thread on the first processor.
fn stay() {
    let mut first = CpuSet::new();
    first.set(0);
    sched_setaffinity(None, &first).unwrap();
}

/// A server on a thread of its own, and that thread's number.
struct Served {
    client: Client,
    thread: i32,
}

fn served(serve: impl FnOnce(UnixStream) + Send + 'static) -> (UnixStream, i32) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        stay();
        sender.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        serve(theirs);
    });
    (ours, receiver.recv().unwrap())
}

fn our_server() -> Served {
    let (ours, thread) = served(|theirs| {
        let server = Server::from_fd(OwnedFd::from(theirs)).unwrap();
        let function: Arc<dyn PciFunction> = Arc::new(TestFunction::silent());
        server.run(&function, &(), &StopHandle::new().unwrap()).unwrap();
    });
    let mut client = Client::on(ours);
    client.negotiate();
    Served { client, thread }
}

fn echo() -> Served {
    let (ours, thread) = served(|mut theirs| {
        let (mut header, mut body) = ([0; HEADER], [0; REQUEST]);
        while theirs.read_exact(&mut header).is_ok() {
            theirs.read_exact(&mut body).unwrap();
            let mut answer = [0; HEADER + ANSWER];
            answer[..HEADER].copy_from_slice(&header);
            let size = u32::try_from(answer.len()).unwrap();
            answer[4..8].copy_from_slice(&size.to_le_bytes());
            // It is a reply.
            answer[8..12].copy_from_slice(&1u32.to_le_bytes());
            answer[HEADER..HEADER + REQUEST].copy_from_slice(&body);
            theirs.write_all(&answer).unwrap();
        }
    });
    Served { client: Client::on(ours), thread }
}

impl Served {
    /// Processor time of the server's thread, in nanoseconds.
    fn time(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.thread)).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Microseconds of a round trip.
    fn trips(&mut self) -> f64 {
        let start = Instant::now();
        for _ in 0..TRIPS {
            std::hint::black_box(self.client.read(0, 0x100, 4));
        }
        start.elapsed().as_secs_f64() * 1e6 / f64::from(TRIPS)
    }

    /// Microseconds of the server's processor time for a read, of bursts.
    fn share(&mut self) -> f64 {
        let access = RegionAccess { offset: 0x100, region: 0, count: 4 };
        let mut burst = Vec::new();
        for _ in 0..BURST {
            let header = self.client.header(command::REGION_READ, access.as_bytes().len());
            burst.extend_from_slice(header.as_bytes());
            burst.extend_from_slice(access.as_bytes());
        }
        let before = self.time();
        for _ in 0..TRIPS / BURST {
            self.client.send_raw(&burst);
            (0..BURST).for_each(|_| drop(std::hint::black_box(self.client.receive())));
        }
        (self.time() - before) / 1e3 / f64::from(TRIPS / BURST * BURST)
    }
}

pub fn measure(rounds: usize) -> Socket {
    let anywhere = sched_getaffinity(None).unwrap();
    stay();
    let (mut ours, mut echo) = (our_server(), echo());
    let (mut trips, mut shares, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut share_ratios = Vec::new();
    for round in 0..=rounds {
        let (our_trip, echo_trip, share) = (ours.trips(), echo.trips(), ours.share());
        let echo_share = echo.share();
        if round > 0 {
            trips.push(our_trip);
            shares.push(share);
            share_ratios.push(share / echo_share);
            ratios.push(our_trip / echo_trip);
        }
    }
    sched_setaffinity(None, &anywhere).unwrap();
    Socket {
        share_us: median(shares),
        share_ratio: median(share_ratios),
        round_trip_us: median(trips),
        over_echo: median(ratios),
    }
}
