//! Messages to drivers that the aggregator sends itself, by the eventfd that a VM's monitor gave its back
//! end.
//!
//! A plain write cannot be used for another process's eventfd: its flags are shared by all holders, so a
//! holder can make a write wait at any time (see the vfio-user front end). The kernel's own signal never
//! waits: the end of an asynchronous request signals the eventfd that the request names (`IOCB_FLAG_RESFD`,
//! io_submit(2)). So a message is such a request that does nothing: a read of no bytes from an empty file in
//! memory, which ends before `io_submit` returns. The kernel refuses a descriptor that is no eventfd, at each
//! message.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::MemfdFlags;
use vmm_sys_util::aio::{IOCB_CMD_PREAD, IOCB_FLAG_RESFD, IoContext, IoControlBlock, IoEvent};

/// Requests that the kernel keeps room for.
const ROOM: u32 = 128;
/// So many may have ended before their ends are fetched. Processors keep some of the room to themselves.
const FETCH: u32 = 16;

/// Sends messages, for all tenants.
#[derive(Debug)]
pub struct MessageSender {
    context: IoContext,
    nothing: OwnedFd,
    ended: AtomicU32,
}

impl MessageSender {
    /// Asks the kernel for room.
    ///
    /// # Errors
    /// It has no asynchronous requests (`CONFIG_AIO`), or none left (`fs.aio-max-nr`).
    pub fn new() -> io::Result<Self> {
        let nothing = rustix::fs::memfd_create("gpuvmk-nothing", MemfdFlags::CLOEXEC)?;
        Ok(Self { context: IoContext::new(ROOM)?, nothing, ended: AtomicU32::new(0) })
    }

    fn signal(&self, event: &OwnedFd) -> io::Result<()> {
        if self.ended.fetch_add(1, Ordering::Relaxed) >= FETCH {
            self.fetch()?;
        }
        match self.submit(event) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.fetch()?;
                self.submit(event)
            }
            result => result,
        }
    }

    fn submit(&self, event: &OwnedFd) -> io::Result<()> {
        let descriptor = |fd: i32| u32::try_from(fd).map_err(|_| io::ErrorKind::InvalidInput);
        let mut request = IoControlBlock {
            aio_lio_opcode: u16::try_from(IOCB_CMD_PREAD).map_err(|_| io::ErrorKind::InvalidInput)?,
            aio_fildes: descriptor(self.nothing.as_raw_fd())?,
            aio_flags: IOCB_FLAG_RESFD,
            aio_resfd: descriptor(event.as_raw_fd())?,
            ..IoControlBlock::default()
        };
        self.context.submit(&[&mut request]).map(drop)
    }

    /// Makes room again. The results of the requests do not matter: they did nothing.
    fn fetch(&self) -> io::Result<()> {
        let mut ends = [IoEvent::default(); ROOM as usize];
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        self.context.get_events(0, &mut ends, Some(&mut now))?;
        self.ended.store(0, Ordering::Relaxed);
        Ok(())
    }
}

/// One tenant's message.
#[derive(Debug)]
pub struct Message {
    event: OwnedFd,
    sender: Arc<MessageSender>,
}

impl Message {
    /// By that eventfd.
    pub const fn new(event: OwnedFd, sender: Arc<MessageSender>) -> Self {
        Self { event, sender }
    }

    /// Sends it. Never waits, whatever others do with the eventfd.
    ///
    /// # Errors
    /// The descriptor is no eventfd, or the kernel has no memory left.
    pub fn send(&self) -> io::Result<()> {
        self.sender.signal(&self.event)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn count(event: &OwnedFd) -> u64 {
        let mut raw = [0; 8];
        rustix::io::read(event, &mut raw).unwrap();
        u64::from_ne_bytes(raw)
    }

    fn message(event: &impl AsFd) -> Message {
        let event = event.as_fd().try_clone_to_owned().unwrap();
        Message::new(event, Arc::new(MessageSender::new().unwrap()))
    }

    #[test]
    fn every_message_arrives_before_send_returns() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let message = message(&event);
        for _ in 0..1000 {
            message.send().unwrap();
            assert_eq!(count(&event), 1);
        }
        (0..3).for_each(|_| message.send().unwrap());
        assert_eq!(count(&event), 3);
    }

    #[test]
    fn full_eventfd_that_would_make_a_write_wait_makes_no_message_wait() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let message = message(&event);

        let start = Instant::now();
        (0..1000).for_each(|_| message.send().unwrap());

        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }

    #[test]
    fn what_is_no_eventfd_is_refused() {
        let file = File::open("/dev/null").unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        for descriptor in [file.as_fd(), reader.as_fd(), writer.as_fd()] {
            assert_eq!(message(&descriptor).send().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
