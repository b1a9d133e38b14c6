//! What is known of a back end: what it was when it was first seen, by which the ones after it are judged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::deadline::Deadlines;
use super::kind::{BackEnd, DeviceKind};
use super::link::{Link, LinkError};
use super::socket;

/// Bytes of a disk's configuration that are asked for (virtio 1.2, 5.2.4).
const BLK_CONFIG: usize = 60;

/// What a back end was when it was first seen, and what a driver is told of it now.
#[derive(Debug)]
pub(super) struct Known {
    /// What it is, and where.
    pub(super) back_end: BackEnd,
    /// Its features.
    pub(super) features: u64,
    /// Number of queues.
    pub(super) queues: u16,
    /// Its device's configuration.
    configuration: Mutex<Vec<u8>>,
}

impl Known {
    /// Of one that says so now.
    pub(super) fn new(back_end: BackEnd, features: u64, queues: u16, configuration: Vec<u8>) -> Self {
        Self { back_end, features, queues, configuration: Mutex::new(configuration) }
    }

    pub(super) fn configuration(&self) -> MutexGuard<'_, Vec<u8>> {
        self.configuration.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes of configuration it tells.
    pub(super) const fn told_bytes(&self) -> usize {
        told_bytes(&self.back_end)
    }

    /// Connects, and checks that it is what it was.
    pub(super) fn connect(&self, deadlines: &Arc<Deadlines>) -> Result<Link, LinkError> {
        let link = connect(&self.back_end, deadlines)?;
        let missing = self.features & !link.features();
        if missing != 0 {
            return Err(LinkError::Nonsense(format!("that it has features {missing:#x} no more")));
        }
        if link.queues() < self.queues {
            let now = link.queues();
            return Err(LinkError::Nonsense(format!(
                "that it has {now} queues now, and {} before",
                self.queues
            )));
        }
        Ok(link)
    }
}

/// How many bytes of configuration a back end tells; 0: it is ours.
pub(super) const fn told_bytes(back_end: &BackEnd) -> usize {
    match back_end.kind {
        DeviceKind::Blk => BLK_CONFIG,
        DeviceKind::Other(_) => back_end.configuration,
        DeviceKind::Net { .. } | DeviceKind::Fs { .. } => 0,
    }
}

/// Connects to a back end.
pub(super) fn connect(back_end: &BackEnd, deadlines: &Arc<Deadlines>) -> Result<Link, LinkError> {
    let stream =
        socket::connected(&back_end.socket).map_err(|error| LinkError::System("Connecting", error))?;
    let fixed = matches!(back_end.kind, DeviceKind::Net { .. }).then_some(2);
    Link::open(stream, deadlines, fixed, told_bytes(back_end) != 0)
}
