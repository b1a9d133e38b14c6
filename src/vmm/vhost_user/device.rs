//! A back end's device: the thread that connects to it, starts and stops its queues, and connects again when
//! it is gone. No other thread has to do with the back end.
//!
//! What a driver reads and writes is answered from what is known here. While there is no back end, requests
//! wait in their queues, and a network has no link. One that comes back goes on behind the last request that
//! was answered; who has kept state (a folder's back end has) must be mounted again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::deadline::Deadlines;
use super::kind::{BackEnd, CONFIG_BYTES};
use super::known::{Known, connect, told_bytes};
use super::link::{Link, LinkError};
use super::server::Server;
use super::wanted::Orders;
use crate::virtio::{Description, Device, FunctionError, Setup, Transport, VirtioFunction};
use gpuvmk_jail::{self as jail, Role};

/// How long between two attempts to reach one that is to be there from the start.
const AGAIN: Duration = Duration::from_millis(50);

/// Why a back end's device cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BackEndError {
    /// It is not there, or says what cannot be.
    #[error("The back end at {} cannot be used: {why}", socket.display())]
    Unusable {
        /// Where it should listen.
        socket: PathBuf,
        /// The reason.
        why: String,
    },
    /// The host has no threads or descriptors.
    #[error(transparent)]
    Function(#[from] FunctionError),
}

/// A function whose queues a back end serves. Waits for that to be there, up to a limit: what its guest sees
/// of it is what it says now.
///
/// # Errors
/// It is not there, or of no use.
pub fn back_end_function(
    back_end: BackEnd,
    deadlines: &Arc<Deadlines>,
    wait: Duration,
) -> Result<VirtioFunction, BackEndError> {
    let (link, configuration) = first(&back_end, deadlines, wait)?;
    let kind = &back_end.kind;
    let features = kind.offered(link.features());
    let queues = kind.queues(link.queues(), back_end.queues, link.features());
    let configuration = configuration.unwrap_or_else(|| kind.configuration(queues, true));
    let description = Description { kind: kind.function(), features, queues, queue_size: kind.queue_size() };
    let known = Known::new(back_end, link.features(), queues, configuration);
    let function = VirtioFunction::new(description, |transport| {
        Served::start(known, link, Arc::clone(deadlines), transport)
    });
    Ok(function?)
}

/// The first connection, and the configuration, if the back end tells it.
fn first(
    back_end: &BackEnd,
    deadlines: &Arc<Deadlines>,
    wait: Duration,
) -> Result<(Link, Option<Vec<u8>>), BackEndError> {
    let (start, bytes) = (Instant::now(), told_bytes(back_end));
    loop {
        let linked = connect(back_end, deadlines).and_then(|mut link| {
            if bytes == 0 {
                return Ok((link, None));
            }
            if !link.has_configuration() {
                return Err(LinkError::Nonsense("that it does not tell its configuration".to_owned()));
            }
            let told = link.configuration(bytes)?;
            Ok((link, Some(told)))
        });
        match linked {
            Ok(linked) => return Ok(linked),
            Err(LinkError::System("Connecting", _)) if start.elapsed() < wait => std::thread::sleep(AGAIN),
            Err(error) => {
                let why = format!("{:#}", anyhow::Error::new(error));
                return Err(BackEndError::Unusable { socket: back_end.socket.clone(), why });
            }
        }
    }
}

/// The function's side of a back end.
struct Served {
    known: Arc<Known>,
    orders: Arc<Orders>,
}

impl Served {
    fn start(
        known: Known,
        link: Link,
        deadlines: Arc<Deadlines>,
        transport: &Arc<Transport>,
    ) -> Result<Self, FunctionError> {
        let known = Arc::new(known);
        let orders = Arc::new(Orders::new(EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?));
        let server =
            Server::new(Arc::clone(&known), Arc::clone(&orders), deadlines, Arc::clone(transport), link)?;
        let thread = std::thread::Builder::new().name("vhost-user".to_owned()).spawn(move || {
            jail::enter(Role::BackEnd);
            server.serve();
        });
        // Nobody waits for its end, which may take as long as a step.
        thread.map_err(FunctionError::Thread)?;
        Ok(Self { known, orders })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.orders.change(|wanted| wanted.end = true);
    }
}

impl Device for Served {
    fn read_config(&self, offset: u64, data: &mut [u8]) {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let configuration = self.known.configuration();
        let bytes = configuration.get(at..).unwrap_or_default();
        data.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    }

    fn write_config(&self, offset: u64, data: &[u8]) {
        let bytes = self.known.told_bytes().min(CONFIG_BYTES) as u64;
        if offset.checked_add(data.len() as u64).is_some_and(|end| end <= bytes) {
            self.orders.write(offset, data);
        }
    }

    fn start(&self, setup: &Setup) -> Result<(), String> {
        self.orders.start(setup);
        Ok(())
    }

    fn notify(&self, queue: usize) {
        let bit = u32::try_from(queue).ok().and_then(|queue| 1u128.checked_shl(queue)).unwrap_or(0);
        self.orders.change(|wanted| wanted.kicks |= bit);
    }

    fn pause(&self, paused: bool) {
        self.orders.change(|wanted| wanted.paused = paused);
    }

    fn messages_changed(&self) {
        self.orders.change(|wanted| wanted.messages = true);
    }

    fn stop(&self) -> bool {
        self.orders.stop()
    }

    fn set_memory(&self, memory: GuestMemoryMmap) {
        self.orders.change(|wanted| wanted.memory = memory);
    }
}
