//! What the fake GPU was asked for and what it does next, and the handle of tests on it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::{HostChannel, HostVram, Iova, TenantId};
use gpuvmk_gpu::{ChannelSpec, GpuEvent, HostTarget, OwnershipLedger, SpaceHandle};
use gpuvmk_host::clock::ManualClock;

pub const MIB: u64 = 1 << 20;

/// State of the fake GPU.
#[derive(Debug, Default)]
pub struct State {
    pub spaces: BTreeMap<SpaceHandle, BTreeMap<(u8, u64), HostTarget>>,
    pub channels: BTreeMap<HostChannel, ChannelSpec>,
    pub enabled: BTreeMap<HostChannel, bool>,
    pub runlist: Vec<HostChannel>,
    /// Doorbells, each with the GP_PUT that was found in USERD.
    pub rung: Vec<(HostChannel, u32)>,
    pub dma: BTreeMap<u64, u64>,
    pub scrubbed: Vec<(HostVram, u64)>,
    pub preempting: Vec<HostChannel>,
    pub events: Vec<GpuEvent>,
    /// Preemptions end by themselves.
    pub yields: bool,
    /// The next calls of `destroy_channel` fail.
    pub stuck: bool,
    pub running: Option<HostChannel>,
    /// How far every ring was fetched; `None`: all of it.
    pub fetched: Option<u32>,
    /// How often the next channel must be asked for before it is there.
    pub channel_rounds: u32,
    /// Channels that were forced off an engine.
    pub engine_resets: u64,
    pub forced: Vec<HostChannel>,
    pub owners: BTreeMap<u64, (u64, Option<TenantId>)>,
    pub objects: Vec<(HostChannel, u32, Engine)>,
    /// Shared memory must be scrubbed.
    pub dirty: bool,
    /// True when scrubbing fails.
    pub unscrubbable: bool,
    /// How often a piece must be asked for before it is zero, and how often those under way were.
    pub scrub_rounds: u32,
    pub scrubbing: BTreeMap<u64, u32>,
    /// Most pieces under way; zero: any number.
    pub scrub_places: usize,
    /// The clock that zeroing advances, by a nanosecond a byte.
    pub zeroing: Option<Arc<ManualClock>>,
    /// A process still has shared memory.
    pub held: bool,
    pub renewed: Vec<(HostVram, u64)>,
    /// GP_PUT that guests have stored in their channels' USERD.
    pub stored: BTreeMap<HostChannel, u32>,
    pub(super) next_space: u32,
}

/// A handle on the fake GPU, for tests.
#[derive(Clone, Debug)]
pub struct Fake {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) wake: Arc<OwnedFd>,
}

impl Fake {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Reports an event.
    pub fn report(&self, event: GpuEvent) {
        self.state().events.push(event);
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes()).unwrap();
    }

    /// The pages of all spaces, and where they point.
    pub fn pages(&self) -> Vec<(u64, HostTarget)> {
        let state = self.state();
        state.spaces.values().flat_map(|s| s.iter().map(|((_, va), target)| (*va, *target))).collect()
    }
}

/// A ledger that remembers labels.
impl OwnershipLedger for Fake {
    fn own_vram(&self, start: HostVram, size: u64, owner: Option<TenantId>) {
        self.state().owners.insert(start.0, (size, owner));
    }

    fn own_system(&self, _start: Iova, _size: u64, _owner: Option<TenantId>) {}

    fn own_channel(&self, _channel: HostChannel, _owner: Option<TenantId>) {}

    fn foreign_accesses(&self, _tenant: TenantId) -> u64 {
        0
    }

    fn engine_time(&self, _tenant: TenantId) -> Vec<(Engine, Duration)> {
        Vec::new()
    }

    fn foreign_accesses_of_host(&self) -> u64 {
        0
    }
}
