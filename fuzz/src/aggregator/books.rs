//! What the judge knows: who has which memory and channels, and what was mapped.

use gpuvmk::addr::{HostChannel, HostVram, Iova, TenantId};
use gpuvmk::gpu::space_map::{Run, SpaceMap};
use gpuvmk::gpu::{ChannelSpec, GpuError, GpuEvent, HostTarget, SpaceHandle};
use std::collections::BTreeMap;

pub(super) const MIB: u64 = 1 << 20;

/// What one page-sized piece of VRAM is to the judge, by MiB.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    pub(super) owner: Option<TenantId>,
    /// Somebody had it since it was zeroed last.
    pub(super) dirty: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) spaces: BTreeMap<SpaceHandle, SpaceMap>,
    pub(super) next_space: u32,
    pub(super) channels: BTreeMap<HostChannel, ChannelSpec>,
    pub(super) owners: BTreeMap<HostChannel, TenantId>,
    pub(super) runlist: Vec<HostChannel>,
    pub(super) dma: Ranges<()>,
    pub(super) system: Ranges<TenantId>,
    pub(super) vram: BTreeMap<u64, Piece>,
    pub(super) events: Vec<GpuEvent>,
    /// Channels that are being preempted.
    pub(super) preempting: Vec<HostChannel>,
    /// Preemptions do not end.
    pub(super) holds: bool,
    /// Channels are not let go.
    pub(super) stuck: bool,
    /// Something failed: what it belongs to is withheld for good.
    pub(super) failed: bool,
}

/// Ranges of bus addresses that do not overlap: first address, size, and what is said of them.
#[derive(Debug)]
pub(super) struct Ranges<T>(pub(super) BTreeMap<u64, (u64, T)>);

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy> Ranges<T> {
    /// What is said of an address, and the end of the range that has it.
    pub(super) fn at(&self, address: u64) -> Option<(u64, T)> {
        let (first, (size, said)) = self.0.range(..=address).next_back()?;
        let end = first.checked_add(*size)?;
        (address < end).then_some((end, *said))
    }

    /// Takes out whatever is there of a range; how many bytes of it were.
    pub(super) fn cut(&mut self, start: u64, end: u64) -> u64 {
        let all: Vec<_> = self.0.range(..end).map(|(at, (size, said))| (*at, at + size, *said)).collect();
        let mut covered = 0;
        for (at, last, said) in all.into_iter().filter(|(_, last, _)| start < *last) {
            self.0.remove(&at);
            covered += last.min(end) - at.max(start);
            self.0.extend((at < start).then(|| (at, (start - at, said))));
            self.0.extend((end < last).then(|| (end, (last - end, said))));
        }
        covered
    }
}

impl State {
    /// The one owner of what a run points at.
    pub(super) fn owner_of(&self, run: &Run) -> Option<TenantId> {
        match run.target {
            HostTarget::Vram(HostVram(start)) => {
                let last = start.checked_add(run.len)?.checked_sub(1)?;
                let mut owners = (start / MIB..=last / MIB).map(|piece| self.vram.get(&piece)?.owner);
                let first = owners.next()??;
                owners.all(|owner| owner == Some(first)).then_some(first)
            }
            HostTarget::System { iova: Iova(start), .. } => {
                // A run may go on from one mapping into the next of the same tenant.
                let end = start.checked_add(run.len)?;
                let (mut at, mut owner) = (start, None);
                while at < end {
                    let ((mapped, ()), (owned, found)) = (self.dma.at(at)?, self.system.at(at)?);
                    if *owner.get_or_insert(found) != found {
                        return None;
                    }
                    at = mapped.min(owned);
                }
                owner
            }
        }
    }

    pub(super) fn no_channel(&self, channel: HostChannel) -> Result<(), GpuError> {
        if self.channels.contains_key(&channel) {
            return Ok(());
        }
        Err(GpuError::NoSuch { what: "channel", id: channel.0.into() })
    }

    pub(super) fn space(&mut self, space: SpaceHandle) -> Result<&mut SpaceMap, GpuError> {
        self.spaces.get_mut(&space).ok_or(GpuError::NoSuch { what: "address space", id: space.0.into() })
    }
}
