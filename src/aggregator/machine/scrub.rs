//! Zeroing a partition, piece by piece between other work, and what operators learn of it.
//!
//! The GPU works at a piece while other tenants are served. No tenant gets the partition before its last
//! piece is done, whatever becomes of its tenant meanwhile. A piece belongs to the host as long as it is
//! being zeroed: the software GPU counts every access of another owner to it, and every access of the host's
//! own channel to anything else.

use std::time::Duration;

use gpuvmk_control_client::ScrubStatus;

use super::state::Machine;
use crate::tenant::TenantState;
use gpuvmk_chip::addr::{HostVram, TenantId};
use gpuvmk_gpu::scrub::SCRUB_PIECE;
use gpuvmk_gpu::{Renewal, Scrub};

/// Pieces of a partition under way at a time: the GPU has enough to do while this thread waits for a
/// processor, and this thread while the GPU's threads do, where they are software's.
const AHEAD: usize = 8;

/// Interval of checks whether a process still has a window.
const HELD_AGAIN: Duration = Duration::from_millis(20);

/// Result of a step of zeroing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is more to do at once.
    More,
    /// The GPU is at it.
    Waits,
    /// Nothing was left.
    Finished,
}

impl Machine {
    pub(super) fn scrub_status(&self) -> ScrubStatus {
        ScrubStatus {
            figures: self.hardware.driver.scrub_report(),
            foreign_accesses: self.hardware.ledger().map(|ledger| ledger.foreign_accesses_of_host()),
            departures: self.cleanup.departures(),
        }
    }

    /// Goes on with zeroing a partition, of which everything before `from` is zero or under way.
    pub(super) fn scrub_piece(&mut self, id: TenantId, from: u64, now: Duration) -> Step {
        let Some(tenant) = self.tenants.get_mut(id) else { return Step::Finished };
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
            self.hardware.own_vram(start, left, None);
            self.advance_piece(id, (start, left), now);
            return Step::More;
        }
        // Pieces that were begun are finished even if their tenant is at something else by now. All are asked
        // for: the driver may have had no room yet for the first, but for later ones.
        let under_way: Vec<_> = tenant.scrubbing.iter().copied().collect();
        if under_way.is_empty() {
            return Step::Finished;
        }
        for piece in under_way {
            match self.advance_piece(id, piece, now) {
                Some(Scrub::Pending) => {}
                Some(_) | None => return Step::More,
            }
        }
        self.clocks.poll_again();
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
        match self.hardware.driver.advance_scrub(start, size) {
            Ok(unfinished @ (Scrub::Pending | Scrub::More)) => return Some(unfinished),
            Ok(Scrub::Untouched) => {}
            Ok(Scrub::Done) => zeroed = size,
            Err(error) => self.quarantine(id, "zeroing VRAM", &error),
        }
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.scrubbing.retain(|piece| *piece != (start, size));
            tenant.limits.zeroed = tenant.limits.zeroed.saturating_add(zeroed);
            self.cleanup.rates.note(&tenant.holder, zeroed, tenant.partition.size(), now);
        }
        None
    }

    /// Continues to take the memory of a tenant that is gone back from all processes that have its window.
    pub(super) fn renew_piece(&mut self, id: TenantId, now: Duration) -> Step {
        let Some(tenant) = self.tenants.get_mut(id) else { return Step::Finished };
        let TenantState::Leaving { renew_from, held, .. } = &mut tenant.state else { return Step::Finished };
        let left = tenant.partition.size().saturating_sub(*renew_from).min(SCRUB_PIECE);
        // Memory that hardware may still reach stays as it is, and is not reused.
        if left == 0 || tenant.quarantined {
            return Step::Finished;
        }
        if let Some(due) = held.filter(|due| now < *due) {
            self.clocks.hold_until(due);
            return Step::Waits;
        }
        let start = HostVram(tenant.partition.start().0.saturating_add(*renew_from));
        match self.hardware.driver.renew_vram(start, left) {
            Ok(Renewal::Done) => {
                *renew_from = renew_from.saturating_add(left);
                if held.take().is_some() {
                    log::info!("{}: nobody has its VRAM any more", tenant.name);
                }
                Step::More
            }
            Ok(Renewal::Waits) => {
                self.clocks.poll_again();
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
                self.clocks.hold_until(due);
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
        if let Some(tenant) = self.tenants.get(id) {
            self.hardware.own_vram(tenant.partition.start(), tenant.partition.size(), Some(id));
        }
    }
}
