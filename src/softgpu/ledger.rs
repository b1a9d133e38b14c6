//! The true owner of all memory and channels, and a count of accesses that cross owners.
//!
//! Real hardware has no such thing. It lets tests state the product's main promise where it can be seen:
//! inside the hardware that performs the accesses. The aggregator's admission code labels; whatever shadows
//! page tables or translates channels never sees the ledger, so a mistake there shows here.
//!
//! The host's own channels are judged too: what they work at must be the host's at that time.
//!
//! It also knows how long engines worked for whom, so that what the host counts by sampling can be judged.
//!
//! Firmware's accesses (instance blocks, contexts) may go to the host's memory too, but not to another
//! tenant's. Reads of page tables are not judged: the host driver chose where they are.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use gpuvmk_chip::addr::{HostChannel, HostVram, Iova, PAGE_SIZE, TenantId};
use gpuvmk_chip::{Aperture, Engine, PhysicalAddress};
use gpuvmk_gpu::OwnershipLedger;

/// The party for which an access is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Actor {
    /// The channel's own work: may reach its tenant's memory.
    Work,
    /// Firmware, on behalf of the host driver: may reach the host's memory too.
    Firmware,
}

/// A label as stored: 0 is the host, anything else a tenant plus 1.
fn encode(owner: Option<TenantId>) -> u32 {
    owner.map_or(0, |tenant| tenant.0.saturating_add(1))
}

/// One labelled range of bus addresses; its first address is its key.
#[derive(Clone, Copy, Debug)]
struct Label {
    last: u64,
    owner: u32,
}

/// The labelled range of bus addresses that a thread met last. An engine stays in one range for thousands of
/// pages, and must not pay for the lookup with each: no hardware does.
#[derive(Clone, Copy, Debug)]
struct Recent {
    ledger: u64,
    generation: u64,
    first: u64,
    label: Label,
}

thread_local! {
    static RECENT: Cell<Option<Recent>> = const { Cell::new(None) };
}

/// Numbers ledgers, so that a thread never takes one's ranges for another's.
static NEXT_LEDGER: AtomicU64 = AtomicU64::new(0);

/// Who owns what. Every method may be called from any thread.
#[derive(Debug)]
pub struct Ledger {
    number: u64,
    /// Counts changes of `system`.
    generation: AtomicU64,
    /// The label of each page of VRAM.
    vram: Vec<AtomicU32>,
    system: RwLock<BTreeMap<u64, Label>>,
    channels: Vec<AtomicU32>,
    /// Channels of which the log has told already.
    reported: Vec<AtomicBool>,
    foreign: Mutex<HashMap<u32, u64>>,
    /// Nanoseconds that engines worked for each channel since it has its owner.
    worked: Vec<EngineTimes>,
    /// The same for channels that owners had before.
    past: Mutex<HashMap<u32, [u64; Engine::COUNT]>>,
}

/// Times by [`Engine::place`].
type EngineTimes = [AtomicU64; Engine::COUNT];

impl Ledger {
    /// A ledger for `vram` bytes and `channels` channels.
    pub(super) fn new(vram: u64, channels: u16) -> Self {
        let pages = usize::try_from(vram / PAGE_SIZE).unwrap_or(0);
        let channels = usize::from(channels);
        Self {
            number: NEXT_LEDGER.fetch_add(1, Ordering::Relaxed),
            generation: AtomicU64::new(0),
            vram: std::iter::repeat_with(AtomicU32::default).take(pages).collect(),
            system: RwLock::default(),
            channels: std::iter::repeat_with(AtomicU32::default).take(channels).collect(),
            reported: std::iter::repeat_with(AtomicBool::default).take(channels).collect(),
            foreign: Mutex::default(),
            worked: std::iter::repeat_with(|| [const { AtomicU64::new(0) }; Engine::COUNT])
                .take(channels)
                .collect(),
            past: Mutex::default(),
        }
    }

    /// Notes an access of a channel's work to `[target, target + size)`.
    pub(super) fn check(
        &self,
        actor: Actor,
        channel: Option<HostChannel>,
        target: PhysicalAddress,
        size: u64,
    ) {
        let Some(channel) = channel else { return };
        let owner =
            self.channels.get(usize::from(channel.0)).map_or(0, |owner| owner.load(Ordering::Relaxed));
        let allowed = |label| label == owner || (label == 0 && actor == Actor::Firmware);
        if self.all_labels(allowed, target, size) {
            return;
        }
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        *foreign.entry(owner).or_default() += 1;
        drop(foreign);
        let told = self.reported.get(usize::from(channel.0));
        if told.is_some_and(|told| !told.swap(true, Ordering::Relaxed)) {
            let whose = owner.checked_sub(1).map_or("the host".to_owned(), |id| format!("tenant {id}"));
            log::error!(
                "softgpu: channel {} of {whose} reached {size} foreign bytes at {target:?}",
                channel.0
            );
        }
    }

    /// An engine worked for a channel for so long.
    pub(super) fn worked(&self, channel: Option<HostChannel>, engine: Engine, time: Duration) {
        let times = channel.and_then(|channel| self.worked.get(usize::from(channel.0)));
        if let Some(sum) = times.and_then(|times| times.get(usize::from(engine.place()))) {
            sum.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// True when `allowed` holds for the label of every byte.
    fn all_labels(&self, allowed: impl Fn(u32) -> bool, target: PhysicalAddress, size: u64) -> bool {
        let Some(last) = target.address.checked_add(size.saturating_sub(1)) else { return false };
        match target.aperture {
            Aperture::Vram => (target.address / PAGE_SIZE..=last / PAGE_SIZE).all(|page| {
                let label = usize::try_from(page).ok().and_then(|page| self.vram.get(page));
                label.is_some_and(|label| allowed(label.load(Ordering::Relaxed)))
            }),
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                // Read before the labels are: a range met under an older generation is never taken for
                // current.
                let generation = self.generation.load(Ordering::Acquire);
                let recent = RECENT.get().filter(|recent| {
                    recent.ledger == self.number
                        && recent.generation == generation
                        && recent.first <= target.address
                        && recent.label.last >= last
                });
                if let Some(recent) = recent {
                    return allowed(recent.label.owner);
                }
                let system = self.system.read().unwrap_or_else(PoisonError::into_inner);
                let mut at = target.address;
                // Labels do not overlap: those that reach into the range are the last ones before its end.
                let before = system.range(..at).next_back().filter(|(_, label)| label.last >= at);
                for (&first, label) in before.into_iter().chain(system.range(at..=last)) {
                    let gap = first > at;
                    if (gap && !allowed(0)) || !allowed(label.owner) {
                        return false;
                    }
                    if label.last >= last {
                        let (ledger, label) = (self.number, *label);
                        RECENT.set((first <= target.address).then_some(Recent {
                            ledger,
                            generation,
                            first,
                            label,
                        }));
                        return true;
                    }
                    at = label.last + 1;
                }
                // Bus addresses without a label belong to the host.
                allowed(0)
            }
        }
    }
}

impl OwnershipLedger for Ledger {
    fn own_vram(&self, start: HostVram, size: u64, owner: Option<TenantId>) {
        let end = start.0.saturating_add(size);
        for page in start.0 / PAGE_SIZE..end.div_ceil(PAGE_SIZE) {
            let Some(label) = usize::try_from(page).ok().and_then(|page| self.vram.get(page)) else { return };
            label.store(encode(owner), Ordering::Relaxed);
        }
    }

    fn own_system(&self, start: Iova, size: u64, owner: Option<TenantId>) {
        if size == 0 {
            return;
        }
        let first = start.0;
        let last = first.saturating_add(size - 1);
        let mut system = self.system.write().unwrap_or_else(PoisonError::into_inner);
        // Cut older labels at both ends of the range, then drop those inside.
        let before = system.range(..first).next_back().map(|(&key, &label)| (key, label));
        if let Some((key, label)) = before
            && label.last >= first
        {
            system.insert(key, Label { last: first - 1, ..label });
            if label.last > last {
                system.insert(last + 1, label);
            }
        }
        let inside: Vec<_> = system.range(first..=last).map(|(&key, &label)| (key, label)).collect();
        for (key, label) in inside {
            system.remove(&key);
            if label.last > last {
                system.insert(last + 1, label);
            }
        }
        if owner.is_some() {
            system.insert(first, Label { last, owner: encode(owner) });
        }
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn own_channel(&self, channel: HostChannel, owner: Option<TenantId>) {
        let index = usize::from(channel.0);
        if let (Some(label), Some(told)) = (self.channels.get(index), self.reported.get(index)) {
            let before = label.swap(encode(owner), Ordering::Relaxed);
            told.store(false, Ordering::Relaxed);
            let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
            let past = past.entry(before).or_insert([0; Engine::COUNT]);
            for (sum, time) in past.iter_mut().zip(self.worked.get(index).into_iter().flatten()) {
                *sum = sum.saturating_add(time.swap(0, Ordering::Relaxed));
            }
        }
    }

    fn foreign_accesses(&self, tenant: TenantId) -> u64 {
        let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        foreign.get(&encode(Some(tenant))).copied().unwrap_or(0)
    }

    fn engine_time(&self, tenant: TenantId) -> Vec<(Engine, Duration)> {
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times = past.get(&encode(Some(tenant))).copied().unwrap_or([0; Engine::COUNT]);
        for (label, worked) in self.channels.iter().zip(&self.worked) {
            if label.load(Ordering::Relaxed) == encode(Some(tenant)) {
                for (sum, time) in times.iter_mut().zip(worked) {
                    *sum = sum.saturating_add(time.load(Ordering::Relaxed));
                }
            }
        }
        Engine::ALL.into_iter().zip(times.map(Duration::from_nanos)).collect()
    }

    fn foreign_accesses_of_host(&self) -> u64 {
        let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        foreign.get(&encode(None)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TenantId = TenantId(0);
    const B: TenantId = TenantId(1);

    fn vram(address: u64) -> PhysicalAddress {
        PhysicalAddress { aperture: Aperture::Vram, address }
    }

    fn system(address: u64) -> PhysicalAddress {
        PhysicalAddress { aperture: Aperture::SystemCoherent, address }
    }

    #[test]
    fn only_accesses_outside_the_tenants_memory_count() {
        let ledger = Ledger::new(1 << 20, 16);
        ledger.own_channel(HostChannel(3), Some(A));
        ledger.own_vram(HostVram(0x4000), 0x2000, Some(A));
        ledger.own_vram(HostVram(0x6000), 0x1000, Some(B));

        ledger.check(Actor::Work, Some(HostChannel(3)), vram(0x4000), 0x2000);
        assert_eq!(ledger.foreign_accesses(A), 0);
        ledger.check(Actor::Work, Some(HostChannel(3)), vram(0x5ffc), 8);
        ledger.check(Actor::Work, Some(HostChannel(3)), vram(0x3fff), 1);
        ledger.check(Actor::Work, Some(HostChannel(3)), vram(0x7000), 4);
        assert_eq!(ledger.foreign_accesses(A), 3);
        assert_eq!(ledger.foreign_accesses(B), 0);
    }

    #[test]
    fn firmware_may_reach_the_host_but_nobody_else() {
        let ledger = Ledger::new(1 << 20, 16);
        ledger.own_channel(HostChannel(3), Some(A));
        ledger.own_vram(HostVram(0x4000), 0x1000, Some(A));
        ledger.own_vram(HostVram(0x6000), 0x1000, Some(B));
        ledger.own_system(Iova(0x2000), 0x1000, Some(B));

        ledger.check(Actor::Firmware, Some(HostChannel(3)), vram(0x3000), 0x3000);
        ledger.check(Actor::Firmware, Some(HostChannel(3)), system(0x1000), 0x1000);
        assert_eq!(ledger.foreign_accesses(A), 0);
        ledger.check(Actor::Firmware, Some(HostChannel(3)), vram(0x5000), 0x2000);
        ledger.check(Actor::Firmware, Some(HostChannel(3)), system(0x1fff), 2);
        assert_eq!(ledger.foreign_accesses(A), 2);
    }

    #[test]
    fn range_that_changed_its_owner_is_not_remembered() {
        let ledger = Ledger::new(1 << 20, 16);
        ledger.own_channel(HostChannel(3), Some(A));
        ledger.own_system(Iova(0x10000), 0x4000, Some(A));
        ledger.check(Actor::Work, Some(HostChannel(3)), system(0x11000), 0x1000);
        assert_eq!(ledger.foreign_accesses(A), 0);

        ledger.own_system(Iova(0x11000), 0x1000, Some(B));
        ledger.check(Actor::Work, Some(HostChannel(3)), system(0x10000), 0x1000);
        ledger.check(Actor::Work, Some(HostChannel(3)), system(0x11000), 0x1000);
        assert_eq!(ledger.foreign_accesses(A), 1);

        let other = Ledger::new(1 << 20, 16);
        other.own_channel(HostChannel(3), Some(A));
        other.check(Actor::Work, Some(HostChannel(3)), system(0x10000), 0x1000);
        assert_eq!(other.foreign_accesses(A), 1, "another ledger has ranges of its own");
    }

    #[test]
    fn time_goes_with_the_owner_that_the_channel_had() {
        let ledger = Ledger::new(1 << 20, 16);
        let [one, two] = [1, 2].map(Duration::from_micros);
        ledger.own_channel(HostChannel(3), Some(A));
        ledger.worked(Some(HostChannel(3)), Engine::COPY0, one);
        ledger.own_channel(HostChannel(3), Some(B));
        ledger.worked(Some(HostChannel(3)), Engine::COPY0, two);
        ledger.own_channel(HostChannel(4), Some(A));
        ledger.worked(Some(HostChannel(4)), Engine::Graphics, two);
        ledger.worked(None, Engine::Graphics, two);

        let time = |tenant, engine| {
            ledger.engine_time(tenant).into_iter().find(|(other, _)| *other == engine).unwrap().1
        };

        assert_eq!((time(A, Engine::COPY0), time(A, Engine::Graphics)), (one, two));
        assert_eq!((time(B, Engine::COPY0), time(B, Engine::Graphics)), (two, Duration::ZERO));
    }

    #[test]
    fn channels_of_the_host_reach_no_tenant() {
        let ledger = Ledger::new(1 << 20, 16);
        ledger.own_vram(HostVram(0x1000), 0x1000, Some(B));
        ledger.check(Actor::Work, Some(HostChannel(3)), vram(0), 0x1000);
        ledger.check(Actor::Work, Some(HostChannel(3)), system(0), 16);
        ledger.check(Actor::Work, None, vram(0x1000), 16);
        assert_eq!(ledger.foreign_accesses_of_host(), 0);
        ledger.check(Actor::Work, Some(HostChannel(3)), vram(0xff8), 16);
        assert_eq!((ledger.foreign_accesses_of_host(), ledger.foreign_accesses(B)), (1, 0));
    }

    #[test]
    fn bus_labels_join_split_and_go() {
        let ledger = Ledger::new(1 << 20, 16);
        ledger.own_channel(HostChannel(1), Some(A));
        ledger.own_system(Iova(0x1000), 0x1000, Some(A));
        ledger.own_system(Iova(0x2000), 0x3000, Some(A));
        ledger.check(Actor::Work, Some(HostChannel(1)), system(0x1800), 0x3000);
        assert_eq!(ledger.foreign_accesses(A), 0);

        ledger.own_system(Iova(0x3000), 0x1000, Some(B));
        ledger.check(Actor::Work, Some(HostChannel(1)), system(0x2000), 0x1000);
        ledger.check(Actor::Work, Some(HostChannel(1)), system(0x4000), 0x1000);
        assert_eq!(ledger.foreign_accesses(A), 0);
        ledger.check(Actor::Work, Some(HostChannel(1)), system(0x2fff), 2);
        assert_eq!(ledger.foreign_accesses(A), 1);

        ledger.own_system(Iova(0), u64::MAX, None);
        ledger.check(Actor::Work, Some(HostChannel(1)), system(0x4000), 1);
        assert_eq!(ledger.foreign_accesses(A), 2);
    }
}
