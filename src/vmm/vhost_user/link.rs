//! The protocol with one back end, by rust-vmm's `vhost`. Each step ends by the clock; after an error the
//! connection is of no use any more.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Address, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};
use vmm_sys_util::eventfd::EventFd;

use super::deadline::{Deadlines, Limited};
use super::kind::MOST_QUEUES;
use super::requests::Requests;
use crate::virtio::QueuePlace;

/// vhost's feature that the protocol has features.
const PROTOCOL: u64 = 1 << 30;
/// The protocol's features that are used.
const USED: VhostUserProtocolFeatures = VhostUserProtocolFeatures::MQ
    .union(VhostUserProtocolFeatures::CONFIG)
    .union(VhostUserProtocolFeatures::REPLY_ACK)
    .union(VhostUserProtocolFeatures::BACKEND_REQ)
    .union(VhostUserProtocolFeatures::INFLIGHT_SHMFD);

/// Why a back end cannot be used, or not any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("It does not do what the protocol says: {step}")]
    Protocol {
        step: &'static str,
        #[source]
        source: vhost::Error,
    },
    #[error("It says what cannot be: {0}")]
    Nonsense(String),
    #[error("{0} failed")]
    System(&'static str, #[source] io::Error),
}

fn at(step: &'static str) -> impl Fn(vhost::Error) -> LinkError {
    move |source| LinkError::Protocol { step, source }
}

/// A queue as a back end is told of it.
#[derive(Debug)]
pub(super) struct RunningQueue<'a> {
    pub(super) index: usize,
    pub(super) place: QueuePlace,
    /// Where in the available ring it begins.
    pub(super) base: u16,
    pub(super) kick: &'a EventFd,
    pub(super) call: EventFd,
}

/// A back end's own record of what it has begun, which we keep for the one that comes after it, and do not
/// look into.
pub(super) struct Begun {
    record: VhostUserInflight,
    file: File,
}

/// A connection to a back end.
pub(super) struct Link {
    frontend: Frontend,
    socket: UnixStream,
    deadlines: Arc<Deadlines>,
    features: u64,
    protocol: VhostUserProtocolFeatures,
    queues: u16,
    requests: Option<Requests>,
}

impl Link {
    /// Agrees with the back end at the other end. With `asks`, it may say that its configuration has changed.
    /// One with a fixed number of queues is not asked for it: for networks they mean pairs, some of them.
    pub(super) fn open(
        socket: UnixStream,
        deadlines: &Arc<Deadlines>,
        fixed_queues: Option<u16>,
        asks: bool,
    ) -> Result<Self, LinkError> {
        let again = socket.try_clone().map_err(|error| LinkError::System("Duplicating a socket", error))?;
        let _limited = limited(deadlines, &socket)?;
        let most = fixed_queues.unwrap_or(MOST_QUEUES);
        let mut frontend = Frontend::from_stream(again, most.into());
        let features = frontend.get_features().map_err(at("asked for its features"))?;
        frontend.set_owner().map_err(at("taken"))?;
        let mut protocol = VhostUserProtocolFeatures::empty();
        if features & PROTOCOL != 0 {
            let all = frontend.get_protocol_features().map_err(at("asked for the protocol's features"))?;
            protocol = all & USED;
            frontend.set_protocol_features(protocol).map_err(at("told the protocol's features"))?;
        }
        if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        let mut queues = most;
        if protocol.contains(VhostUserProtocolFeatures::MQ) && fixed_queues.is_none() {
            let number = frontend.get_queue_num().map_err(at("asked for its number of queues"))?;
            queues = u16::try_from(number).unwrap_or(u16::MAX).min(most);
            if queues == 0 {
                return Err(LinkError::Nonsense("that it has no queues".to_owned()));
            }
        }
        let mut requests = None;
        if asks && protocol.contains(VhostUserProtocolFeatures::BACKEND_REQ) {
            let (ours, theirs) =
                Requests::new().map_err(|error| LinkError::System("Making a pair of sockets", error))?;
            frontend.set_backend_request_fd(&theirs).map_err(at("given a socket for requests"))?;
            requests = Some(ours);
        }
        Ok(Self { frontend, socket, deadlines: Arc::clone(deadlines), features, protocol, queues, requests })
    }

    /// The features that it has, without those of the protocol.
    pub(super) const fn features(&self) -> u64 {
        self.features & !PROTOCOL
    }

    /// Number of queues that it can have.
    pub(super) const fn queues(&self) -> u16 {
        self.queues
    }

    /// True if it tells its device's configuration.
    pub(super) fn has_configuration(&self) -> bool {
        self.protocol.contains(VhostUserProtocolFeatures::CONFIG)
    }

    /// The socket, to wait for its end: nothing is said there unasked.
    pub(super) const fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// What it asks, if it may ask anything.
    pub(super) const fn requests(&mut self) -> &mut Option<Requests> {
        &mut self.requests
    }

    /// The first bytes of its device's configuration.
    pub(super) fn configuration(&mut self, size: usize) -> Result<Vec<u8>, LinkError> {
        let _limited = limited(&self.deadlines, &self.socket)?;
        let size = u32::try_from(size).unwrap_or(0);
        let room = vec![0; size as usize];
        let asked = self.frontend.get_config(0, size, VhostUserConfigFlags::empty(), &room);
        asked.map(|(_, bytes)| bytes).map_err(at("asked for its configuration"))
    }

    /// Writes some of its device's configuration.
    pub(super) fn configure(&mut self, offset: u32, data: &[u8]) -> Result<(), LinkError> {
        let _limited = limited(&self.deadlines, &self.socket)?;
        let told = self.frontend.set_config(offset, VhostUserConfigFlags::WRITABLE, data);
        told.map_err(at("told a configuration"))
    }

    /// Has it serve queues in that memory, with these features. What one before it had begun, it goes on
    /// with; if there was none, its own record is kept there, where it has one.
    pub(super) fn start(
        &mut self,
        features: u64,
        memory: &GuestMemoryMmap,
        queues: &[RunningQueue<'_>],
        begun: &mut Option<Begun>,
    ) -> Result<(), LinkError> {
        let _limited = limited(&self.deadlines, &self.socket)?;
        let has_protocol = self.features & PROTOCOL;
        self.frontend.set_features(features | has_protocol).map_err(at("told features"))?;
        if self.protocol.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD) {
            self.keep_record(queues, begun)?;
        }
        self.frontend.set_mem_table(&regions(memory)).map_err(at("given the guest's memory"))?;
        for queue in queues {
            let QueuePlace { size, descriptors, available, used, .. } = queue.place;
            let (index, step) = (queue.index, at("given a queue"));
            self.frontend.set_vring_num(index, size).map_err(&step)?;
            let place = VringConfigData {
                queue_max_size: size,
                queue_size: size,
                flags: 0,
                // Addresses of this process, which are the guest's in what it is told of memory.
                desc_table_addr: descriptors,
                used_ring_addr: used,
                avail_ring_addr: available,
                log_addr: None,
            };
            self.frontend.set_vring_addr(index, &place).map_err(&step)?;
            self.frontend.set_vring_base(index, queue.base).map_err(&step)?;
            self.frontend.set_vring_call(index, &queue.call).map_err(&step)?;
            self.frontend.set_vring_kick(index, queue.kick).map_err(&step)?;
        }
        // Without the protocol's features, a queue runs once it has its eventfd.
        for queue in queues.iter().filter(|_| has_protocol != 0) {
            self.frontend.set_vring_enable(queue.index, true).map_err(at("told to serve a queue"))?;
        }
        Ok(())
    }

    fn keep_record(
        &mut self,
        queues: &[RunningQueue<'_>],
        begun: &mut Option<Begun>,
    ) -> Result<(), LinkError> {
        let kept = match begun.take() {
            Some(kept) => kept,
            None => {
                let last = queues.iter().map(|queue| queue.index + 1).max().unwrap_or(0);
                let size = queues.iter().map(|queue| queue.place.size).max().unwrap_or(0);
                let asked = VhostUserInflight::new(0, 0, u16::try_from(last).unwrap_or(u16::MAX), size);
                let made = self.frontend.get_inflight_fd(&asked);
                let (record, file) = made.map_err(at("asked for a record of requests"))?;
                Begun { record, file }
            }
        };
        let kept = begun.insert(kept);
        let given = self.frontend.set_inflight_fd(&kept.record, kept.file.as_raw_fd());
        given.map_err(at("given a record of requests"))
    }

    /// Has a queue's messages sent by another eventfd.
    pub(super) fn set_call(&mut self, index: usize, call: &EventFd) -> Result<(), LinkError> {
        let _limited = limited(&self.deadlines, &self.socket)?;
        self.frontend.set_vring_call(index, call).map_err(at("given another eventfd"))
    }

    /// Has it leave queues alone; where in the available ring each of them was.
    pub(super) fn stop(&mut self, queues: &[usize]) -> Result<Vec<u16>, LinkError> {
        let _limited = limited(&self.deadlines, &self.socket)?;
        let mut bases = Vec::new();
        for index in queues {
            if self.features & PROTOCOL != 0 {
                self.frontend.set_vring_enable(*index, false).map_err(at("told to pause a queue"))?;
            }
            let base = self.frontend.get_vring_base(*index).map_err(at("told to leave a queue"))?;
            let base = u16::try_from(base);
            bases.push(base.map_err(|_| LinkError::Nonsense("a place that no ring has".to_owned()))?);
        }
        Ok(bases)
    }
}

fn limited(deadlines: &Deadlines, socket: &UnixStream) -> Result<Limited, LinkError> {
    deadlines.limit(socket).map_err(|error| LinkError::System("Duplicating a socket", error))
}

/// The guest's memory as a back end is told of it: by the guest's own addresses.
fn regions(memory: &GuestMemoryMmap) -> Vec<VhostUserMemoryRegionInfo> {
    let region = |part: &vm_memory::GuestRegionMmap| {
        let file = part.file_offset()?;
        let gpa = part.start_addr().raw_value();
        Some(VhostUserMemoryRegionInfo {
            guest_phys_addr: gpa,
            memory_size: part.len(),
            userspace_addr: gpa,
            mmap_offset: file.start(),
            mmap_handle: file.file().as_raw_fd(),
        })
    };
    memory.iter().filter_map(region).collect()
}

/// Memory of a session that a fuzzer has, as a guest's is: a file.
fn memory_of_session() -> io::Result<GuestMemoryMmap> {
    const SIZE: u16 = 1 << 15;
    let file = gpuvmk_pci::mapping::create_memory_file(c"back-end-session", SIZE.into())?;
    let file = FileOffset::new(File::from(file), 0);
    let ranges = [(GuestAddress(0), SIZE.into(), Some(file))];
    GuestMemoryMmap::from_ranges_with_files(ranges).map_err(io::Error::other)
}

/// Carries a session out with a back end that has said all of its answers before it was asked, for a fuzzer:
/// nothing that it says may do more than end the session. True if that came to its end.
pub fn try_answers(bytes: &[u8]) -> bool {
    static OURS: OnceLock<Option<(Arc<Deadlines>, GuestMemoryMmap)>> = OnceLock::new();
    const CONFIGURATION: usize = 32;
    let start = || Some((Deadlines::start(super::deadline::STEP_LIMIT).ok()?, memory_of_session().ok()?));
    let Some((deadlines, memory)) = OURS.get_or_init(start) else { return false };
    // More is not read, and must not wait for room.
    let bytes = bytes.get(..bytes.len().min(MOST_ANSWERS)).unwrap_or_default();
    let session = || -> Result<(), LinkError> {
        let system = |error| LinkError::System("Making a session", error);
        let (ours, mut theirs) = UnixStream::pair().map_err(system)?;
        theirs.write_all(bytes).map_err(system)?;
        theirs.shutdown(std::net::Shutdown::Write).map_err(system)?;
        let mut link = Link::open(ours, deadlines, None, true)?;
        if link.has_configuration() {
            let told = link.configuration(CONFIGURATION)?;
            assert_eq!(told.len(), CONFIGURATION, "a configuration of another size");
            link.configure(0, &[0; 8])?;
        }
        let event = EventFd::new(vmm_sys_util::eventfd::EFD_NONBLOCK).map_err(system)?;
        let place = QueuePlace { size: 16, enabled: true, descriptors: 0, available: 0x1000, used: 0x2000 };
        let call = event.try_clone().map_err(system)?;
        let queue = RunningQueue { index: 0, place, base: 0, kick: &event, call };
        link.start(link.features(), memory, &[queue], &mut None)?;
        link.set_call(0, &event)?;
        assert_eq!(link.stop(&[0])?.len(), 1, "a place for each queue");
        Ok(())
    };
    session().is_ok()
}

/// Bytes of answers that a session is given at most.
const MOST_ANSWERS: usize = 16 << 10;
