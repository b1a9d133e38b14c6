//! What contexts of channels have that is too large for their images: operations under way, such as grids.
//!
//! The host keeps it while the channel is off the engine. It goes with the channel: at most one a channel.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::owner::Owner;
use gpuvmk_chip::addr::HostChannel;

type Work = Box<dyn Any + Send>;

/// Work of channels that are off the engine.
#[derive(Default)]
pub(super) struct Kept {
    works: Mutex<HashMap<HostChannel, (Owner, Work)>>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("channels", &self.lock().len()).finish()
    }
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, HashMap<HostChannel, (Owner, Work)>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the work of a context that leaves. A context without a channel, made current by hand, loses it.
    pub(super) fn put(&self, owner: Owner, work: Work) {
        let Some(channel) = owner.channel else { return };
        let before = self.lock().insert(channel, (owner, work));
        // It may be large: it is dropped after the lock.
        drop(before);
    }

    /// The work of a context that comes. What another owner of the same channel left is dropped.
    pub(super) fn take(&self, owner: Owner) -> Option<Work> {
        let (kept, work) = self.lock().remove(&owner.channel?)?;
        (kept == owner).then_some(work)
    }

    /// Drops the work of a channel that has lost its context.
    pub(super) fn forget(&self, channel: HostChannel) {
        let work = self.lock().remove(&channel);
        drop(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::{Aperture, PhysicalAddress};

    fn owner(channel: u16, generation: u64) -> Owner {
        let instance = PhysicalAddress { aperture: Aperture::Vram, address: 0x1000 };
        Owner { channel: Some(HostChannel(channel)), generation, instance }
    }

    fn number(work: Option<Work>) -> Option<u32> {
        work.map(|work| *work.downcast::<u32>().unwrap())
    }

    #[test]
    fn work_is_its_owners_alone() {
        let kept = Kept::default();
        kept.put(owner(1, 1), Box::new(11_u32));
        kept.put(owner(2, 1), Box::new(21_u32));
        assert_eq!(number(kept.take(owner(2, 1))), Some(21));
        assert_eq!(number(kept.take(owner(2, 1))), None, "given once");
        assert_eq!(number(kept.take(owner(1, 2))), None, "the channel was bound again");
        assert_eq!(number(kept.take(owner(1, 1))), None, "and the old work is gone");
    }

    #[test]
    fn a_channel_that_loses_its_context_loses_its_work() {
        let kept = Kept::default();
        kept.put(owner(1, 1), Box::new(11_u32));
        kept.forget(HostChannel(1));
        assert_eq!(number(kept.take(owner(1, 1))), None);
    }

    #[test]
    fn a_context_made_current_by_hand_has_nowhere_to_keep_it() {
        let kept = Kept::default();
        let by_hand = Owner { channel: None, ..owner(1, 0) };
        kept.put(by_hand, Box::new(1_u32));
        assert_eq!(number(kept.take(by_hand)), None);
        assert_eq!(kept.lock().len(), 0);
    }
}
