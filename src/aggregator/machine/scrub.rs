//! Zeroing a partition, piece by piece between other work, and what operators learn of it.
//!
//! The GPU works at a piece while everybody else is served; nobody gets the partition before its last piece is done,
//! whatever became of its tenant meanwhile. A piece belongs to the host as long as it is being zeroed: the software
//! GPU counts every access of another owner to it, and every access of the host's own channel to anything else.

use std::time::Duration;

use serde::Serialize;

use super::Machine;
use crate::tenant::TenantState;
use gpuvmk_chip::addr::{HostVram, TenantId};
use gpuvmk_gpu::scrub::{SCRUB_PIECE, ScrubReport};
use gpuvmk_gpu::{Renewal, Scrub};

/// Pieces of a partition under way at a time: the GPU has enough to do while this thread waits for a processor, and this
/// thread while the GPU's threads do, where they are software's.
const AHEAD: usize = 8;

/// When to look again whether a window is still somebody's.
const HELD_AGAIN: Duration = Duration::from_millis(20);

/// What a step of zeroing came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is more to do at once.
    More,
    /// The GPU is at it.
    Waits,
    /// Nothing was left.
    Finished,
}

/// How VRAM is zeroed, and what is known of tenants that are gone.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScrubStatus {
    /// By whom, and how fast; absent where the driver does not count.
    #[serde(flatten)]
    pub figures: Option<ScrubReport>,
    /// Engine accesses of the host's own channels that met a tenant's memory, where hardware can tell (must be 0).
    pub foreign_accesses: Option<u64>,
    /// Tenants that are gone.
    pub departures: Departures,
}

/// Tenants that are gone: how long they took from the end of their process until everything of theirs was free again, and
/// zero, and for how long the GPU had had work of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Departures {
    /// How many.
    pub count: u64,
    /// VRAM of the last one, in bytes.
    pub last_bytes: u64,
    /// Time of the last one, in milliseconds.
    pub last_ms: u64,
    /// The longest, in milliseconds.
    pub longest_ms: u64,
    /// Time in which they had work for an engine that was not done, of all of them together, in microseconds: what the
    /// tenants that are there had wanted of the GPU is only a part of what those that stayed had to share it with.
    pub wanted_us: u64,
}

impl Departures {
    /// A tenant is gone, that had work not done for so long.
    pub(super) fn note_wanted(&mut self, wanted: Duration) {
        self.wanted_us = self.wanted_us.saturating_add(u64::try_from(wanted.as_micros()).unwrap_or(u64::MAX));
    }

    /// Everything of a tenant is free.
    pub(super) fn note(&mut self, bytes: u64, took: Duration) {
        self.count = self.count.saturating_add(1);
        self.last_bytes = bytes;
        self.last_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.longest_ms = self.longest_ms.max(self.last_ms);
    }
}

impl Machine {
    pub(super) fn scrub_status(&self) -> ScrubStatus {
        ScrubStatus {
            figures: self.driver.scrub_report(),
            foreign_accesses: self.ledger.as_ref().map(|ledger| ledger.foreign_accesses_of_host()),
            departures: self.departed,
        }
    }

    /// Goes on with zeroing a partition, of which everything before `from` is zero or under way.
    pub(super) fn scrub_piece(&mut self, id: TenantId, from: u64, now: Duration) -> Step {
        let Some(tenant) = self.tenants.get_mut(&id) else { return Step::Finished };
        let left = tenant.partition.size().saturating_sub(from).min(SCRUB_PIECE);
        if left > 0 && tenant.scrubbing.len() < AHEAD {
            let start = HostVram(tenant.partition.start().0.saturating_add(from));
            tenant.scrubbing.push_back((start, left));
            match &mut tenant.state {
                TenantState::Active => {}
                TenantState::Preparing { scrub_from }
                | TenantState::Resetting { scrub_from }
                | TenantState::Leaving { scrub_from, .. } => *scrub_from = from.saturating_add(left),
            }
            if let Some(ledger) = &self.ledger {
                ledger.own_vram(start, left, None);
            }
            self.advance_piece(id, (start, left), now);
            return Step::More;
        }
        // Pieces that were begun are finished even if their tenant is at something else by now.
        let Some(piece) = tenant.scrubbing.front().copied() else { return Step::Finished };
        match self.advance_piece(id, piece, now) {
            Some(Scrub::Pending) => {}
            Some(_) | None => return Step::More,
        }
        self.look_again();
        Step::Waits
    }

    /// Asks for a piece; how far it is, unless it is done with.
    fn advance_piece(
        &mut self,
        id: TenantId,
        (start, size): (HostVram, u64),
        now: Duration,
    ) -> Option<Scrub> {
        let mut zeroed = 0;
        match self.driver.advance_scrub(start, size) {
            Ok(unfinished @ (Scrub::Pending | Scrub::More)) => return Some(unfinished),
            Ok(Scrub::Untouched) => {}
            Ok(Scrub::Done) => zeroed = size,
            Err(error) => self.quarantine(id, "zeroing VRAM", &error),
        }
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.scrubbing.retain(|piece| *piece != (start, size));
            tenant.counters.zeroed = tenant.counters.zeroed.saturating_add(zeroed);
            self.cleanups.note(&tenant.holder, zeroed, tenant.partition.size(), now);
        }
        None
    }

    /// Goes on with taking the memory of a tenant that is gone from whoever it gave its window to.
    pub(super) fn renew_piece(&mut self, id: TenantId, now: Duration) -> Step {
        let Some(tenant) = self.tenants.get_mut(&id) else { return Step::Finished };
        let TenantState::Leaving { renew_from, held, .. } = &mut tenant.state else { return Step::Finished };
        let left = tenant.partition.size().saturating_sub(*renew_from).min(SCRUB_PIECE);
        // What hardware may still reach stays as it is, and nobody's.
        if left == 0 || tenant.quarantined {
            return Step::Finished;
        }
        if let Some(due) = held.filter(|due| now < *due) {
            self.hold_until(due);
            return Step::Waits;
        }
        let start = HostVram(tenant.partition.start().0.saturating_add(*renew_from));
        match self.driver.renew_vram(start, left) {
            Ok(Renewal::Done) => {
                *renew_from = renew_from.saturating_add(left);
                if held.take().is_some() {
                    log::info!("{}: nobody has its VRAM any more", tenant.name);
                }
                Step::More
            }
            Ok(Renewal::Waits) => {
                self.look_again();
                Step::Waits
            }
            Ok(Renewal::Held) => {
                let due = now.saturating_add(HELD_AGAIN);
                if held.replace(due).is_none() {
                    log::warn!(
                        "{}: a process has kept its window: {} MiB of VRAM stay withheld until all are gone that have it open \
                         or mapped",
                        tenant.name,
                        tenant.partition.size() >> 20
                    );
                }
                tenant.left = now;
                self.hold_until(due);
                Step::Waits
            }
            Err(error) => {
                self.quarantine(id, "taking VRAM back from its window", &error);
                Step::Finished
            }
        }
    }

    /// Gives a partition's memory back to its tenant, which the host had while it was zeroed.
    pub(super) fn label_partition(&self, id: TenantId) {
        if let (Some(ledger), Some(tenant)) = (&self.ledger, self.tenants.get(&id)) {
            ledger.own_vram(tenant.partition.start(), tenant.partition.size(), Some(id));
        }
    }
}
