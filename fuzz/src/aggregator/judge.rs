//! Judges what a physical GPU was told by what the ledger says of owners.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::books::{MIB, State};
use gpuvmk::addr::{GpuVa, HostChannel, HostVram, Iova, TenantId};
use gpuvmk::chip::channel_event::{ChannelStop, FaultUnit, GraphicsError, HostError, MmuFault, StopCause};
use gpuvmk::chip::{AccessKind, Engine, FaultReason};
use gpuvmk::gpu::{GpuEvent, OwnershipLedger};

use crate::input::Input;

/// The judge, shared by driver, ledger and harness.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    state: Arc<Mutex<State>>,
    hopper: bool,
}

impl Judge {
    pub(super) fn new(hopper: bool) -> Self {
        Self { state: Arc::default(), hopper }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hopper(&self) -> bool {
        self.hopper
    }

    /// The GPU reports something, true or not.
    pub(super) fn report(&self, input: &mut Input<'_>) {
        let channel = super::host(u16::from(input.below(20)));
        let stopped = |cause: StopCause| GpuEvent::Stopped(ChannelStop { channel, cause });
        let event = match input.below(16) {
            0 | 1 => GpuEvent::NonStall(input.pick(&[Engine::Graphics, Engine::COPY1, Engine::COPY7])),
            2..=4 => {
                let fault = MmuFault {
                    unit: FaultUnit::Host,
                    address: GpuVa(input.u64()),
                    access: AccessKind::Read,
                    reason: FaultReason::NoChannel,
                };
                if input.below(8) == 7 { GpuEvent::Fault(fault) } else { stopped(fault.into()) }
            }
            5 => stopped(HostError { pbdma: 0, status: 1, method: 0, data: 0 }.into()),
            6 => stopped(GraphicsError { status: 1, subchannel: 0, class: 0, method: 0, data: 0 }.into()),
            7 => stopped(StopCause::Manager(31)),
            15 if input.below(4) == 3 => GpuEvent::Lost,
            _ => GpuEvent::Preempted(channel),
        };
        let mut state = self.state();
        state.failed |= event == GpuEvent::Lost;
        state.events.push(event);
    }

    /// Hardware that does not do what it should.
    pub(super) fn misbehave(&self, input: &mut Input<'_>) {
        let mut state = self.state();
        match input.below(8) {
            0..=2 => state.holds = true,
            3 => state.stuck = true,
            _ => {
                state.holds = false;
                state.stuck = false;
            }
        }
    }

    /// Hardware does what it should from now on.
    pub(super) fn behave(&self) {
        let mut state = self.state();
        state.holds = false;
        state.stuck = false;
    }

    /// No space points at memory of two owners or of none, and each channel's space at its owner's only.
    pub(super) fn check(&self) {
        let state = self.state();
        for (handle, space) in &state.spaces {
            let users: BTreeSet<TenantId> = state
                .channels
                .iter()
                .filter(|(_, spec)| spec.space == *handle)
                .filter_map(|(channel, _)| state.owners.get(channel).copied())
                .collect();
            assert!(users.len() <= 1, "channels of {users:?} share {handle:?}");
            let mut owner = users.first().copied();
            for run in space.runs() {
                let found =
                    state.owner_of(run).unwrap_or_else(|| panic!("{run:x?} is nobody's or of several"));
                assert_eq!(*owner.get_or_insert(found), found, "{run:x?} in a space of somebody else");
            }
        }
        for (channel, spec) in &state.channels {
            let owner = state.owners.get(channel).copied();
            let page = state.vram.get(&(spec.userd.0 / MIB)).and_then(|piece| piece.owner);
            assert_eq!(page, owner, "the USERD of {channel:?} is not its owner's");
        }
    }

    /// Nothing is left of anybody.
    pub(super) fn check_empty(&self) {
        let state = self.state();
        if state.failed {
            return;
        }
        assert!(state.channels.is_empty() && state.runlist.is_empty(), "channels stay: {:?}", state.channels);
        assert!(state.spaces.is_empty(), "address spaces stay: {:?}", state.spaces);
        assert!(state.dma.0.is_empty() && state.system.0.is_empty(), "memory stays mapped: {:?}", state.dma);
        assert!(state.owners.is_empty(), "channels stay somebody's: {:?}", state.owners);
        assert!(state.vram.values().all(|piece| piece.owner.is_none()), "VRAM stays somebody's");
    }
}

impl OwnershipLedger for Judge {
    fn own_vram(&self, start: HostVram, size: u64, owner: Option<TenantId>) {
        let mut state = self.state();
        for number in start.0 / MIB..(start.0 + size) / MIB {
            let piece = state.vram.entry(number).or_default();
            // A tenant's own memory is the host's while it is zeroed, and then the tenant's again.
            if owner.is_some() && owner != piece.owner {
                assert!(piece.owner.is_none(), "VRAM of somebody is given away");
                assert!(!piece.dirty, "VRAM changes hands and was not zeroed");
                piece.dirty = true;
            }
            piece.owner = owner;
        }
    }

    fn own_system(&self, start: Iova, size: u64, owner: Option<TenantId>) {
        let mut state = self.state();
        state.system.cut(start.0, start.0 + size);
        state.system.0.extend(owner.map(|owner| (start.0, (size, owner))));
    }

    fn own_channel(&self, channel: HostChannel, owner: Option<TenantId>) {
        let mut state = self.state();
        match owner {
            Some(owner) => drop(state.owners.insert(channel, owner)),
            None => drop(state.owners.remove(&channel)),
        }
    }

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
