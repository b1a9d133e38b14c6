//! Guest memory: made reachable for the physical GPU at bus addresses of the host's choice. It is removed
//! only when no page table names it any more, and no access to it is under way.
//!
//! Nothing here waits for an access. An engine that waits for a page of a VM's memory delays the answer to
//! that VM's unmapping, and nothing of other VMs.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::output::Outcome;
use super::state::Machine;
use crate::dma_map::{DmaMapError, FileBacking};
use crate::dma_range::DmaRange;
use crate::limit::Limit;
use crate::protocol::{Event, RefusalKind};
use crate::report::FailSafeReason;
use crate::tenant::{Job, Refusal, Withdrawal};
use gpuvmk_chip::addr::{Gpa, GpuVa, GuestChannel, TenantId};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, MmuFault};
use gpuvmk_chip::{AccessKind, FaultReason};
use gpuvmk_gpu::{Budget, GpuDriverExt as _, Progress, Revocation};
use gpuvmk_pci::dma::MAX_MAPPINGS;
use gpuvmk_pci::mapping::{self, MapError};
use gpuvmk_pci::{DmaBacking, DmaMapping};

/// Most memory of a tenant: 4 TiB, and an eighth of what the physical GPU's bus addresses reach.
const MAX_BYTES_LOG2: u8 = 42;
const BUS_SHARE_LOG2: u8 = 3;

impl Machine {
    pub(super) fn dma_map(
        &mut self,
        tenant: TenantId,
        gpa: Gpa,
        size: u64,
        offset: u64,
        writable: bool,
        file: Option<OwnedFd>,
    ) -> Result<(), Refusal> {
        let refuse = |error: MapError| Refusal::new(RefusalKind::OutsidePartition, error.to_string());
        let file =
            file.ok_or_else(|| Refusal::new(RefusalKind::Protocol, "guest memory comes with its file"))?;
        let facts = mapping::check_file(file.as_fd()).map_err(refuse)?;
        if writable && !facts.writable {
            return Err(refuse(MapError::NotWritable));
        }
        let backing = FileBacking { file: facts.identity, offset };
        let most = 1_u64 << self.hardware.info.system_bits.saturating_sub(BUS_SHARE_LOG2).min(MAX_BYTES_LOG2);
        let owner = self.tenants.sender(tenant)?;
        owner.memory.check_new(gpa, size)?;
        let ranges = owner.memory.len();
        let full = ranges >= owner.range_limit && !owner.memory.would_join(gpa, size, backing)
            || ranges >= MAX_MAPPINGS;
        // With those in which only a part is mapped.
        let bytes = owner.memory.bytes().max(owner.memory.runs().bytes());
        if full || bytes.saturating_add(size) > most {
            let limit = owner.range_limit;
            return Err(Refusal::met(
                Limit::MemoryRanges,
                RefusalKind::Quota,
                format!(
                    "a VM may have {limit} memory ranges ([limits] memory_ranges of its file) and {} GiB of bus addresses",
                    most >> 30
                ),
            ));
        }
        let used_up = || Refusal::new(RefusalKind::Exhausted, "the physical GPU's bus addresses are used up");
        let owner = self.tenants.get_mut(tenant).ok_or_else(used_up)?;
        let pieces = owner.memory.place(&mut self.resources.buses, gpa, size).ok_or_else(used_up)?;
        for (index, piece) in pieces.iter().enumerate() {
            let into = piece.gpa.0.saturating_sub(gpa.0);
            let at = offset.saturating_add(into);
            if let Err(refusal) = self.map_piece(tenant, *piece, &file, at, writable) {
                for done in pieces.iter().take(index) {
                    self.take_away(tenant, done)?;
                    self.free_bus_addresses(tenant, done);
                }
                for rest in pieces.iter().skip(index) {
                    self.free_bus_addresses(tenant, rest);
                }
                return Err(refusal);
            }
        }
        let owner = self.tenants.sender(tenant)?;
        for piece in pieces {
            let into = piece.gpa.0.saturating_sub(gpa.0);
            let backing = FileBacking { offset: offset.saturating_add(into), ..backing };
            owner.memory.insert(DmaRange { writable, ..piece }, Some(backing));
        }
        gpuvmk_host::reaper::give_up(file);
        Ok(())
    }

    /// Makes one piece reachable.
    fn map_piece(
        &mut self,
        tenant: TenantId,
        piece: DmaRange,
        file: &OwnedFd,
        offset: u64,
        writable: bool,
    ) -> Result<(), Refusal> {
        let no_descriptor =
            |error| Refusal::new(RefusalKind::Exhausted, format!("no descriptor is left here: {error}"));
        let fd = file.try_clone().map_err(no_descriptor)?;
        let DmaRange { iova, size, .. } = piece;
        let owner = Some(self.tenants.sender(tenant)?.owner.clone());
        let backing = Some(DmaBacking { fd, offset });
        let mapping = DmaMapping { iova: iova.0, size, writable, backing, owner };
        // The owner is recorded first, so that no access can meet memory without one.
        self.hardware.own_system(iova, size, Some(tenant));
        let account = self.account(tenant);
        let mapped = account.charge(|| self.hardware.driver.dma_map(mapping));
        if mapped.is_err() {
            self.hardware.own_system(iova, size, None);
        }
        Ok(mapped?)
    }

    pub(super) fn dma_unmap(
        &mut self,
        tenant: TenantId,
        gpa: Gpa,
        size: u64,
        now: Duration,
    ) -> Result<Outcome, Refusal> {
        let end =
            gpa.0.checked_add(size).filter(|_| size > 0 && gpa.is_aligned(gpuvmk_chip::addr::PAGE_SIZE));
        let whole =
            end.is_none_or(|end| end.is_multiple_of(gpuvmk_chip::addr::PAGE_SIZE)) || size == u64::MAX;
        if size == 0 || !gpa.is_aligned(gpuvmk_chip::addr::PAGE_SIZE) || !whole {
            return Err(DmaMapError::Shape { gpa, size }.into());
        }
        let ranges = self.tenants.sender(tenant)?.memory.inside(gpa, size);
        self.start_job(tenant, Job::Release(Withdrawal::new(ranges)), now)
    }

    /// Takes ranges away, one after the other: page tables first, then the mapping, then the bus addresses
    /// are free.
    pub(super) fn withdraw_some(
        &mut self,
        tenant: TenantId,
        withdrawal: &mut Withdrawal,
        budget: &mut Budget,
    ) -> Result<Progress, Refusal> {
        while let Some(range) = withdrawal.ranges.last().copied() {
            let named = match &mut withdrawal.spaces {
                Some(named) => named,
                None => {
                    let spaces = self.spaces_of(tenant);
                    budget.spend(u32::try_from(spaces.len()).unwrap_or(u32::MAX));
                    withdrawal.spaces.insert(spaces)
                }
            };
            while let Some(space) = named.last().copied() {
                // One that was given up before may be gone by now.
                let there = self.hardware.driver.space_usage(space).is_ok();
                let revocation = withdrawal.revocation.get_or_insert(Revocation::new(range.iova, range.size));
                let revoked = if there {
                    self.hardware.driver.advance_revoke(space, revocation, budget)
                } else {
                    Ok(Progress::Done)
                };
                match revoked {
                    Ok(Progress::Done) => {
                        named.pop();
                        withdrawal.revocation = None;
                    }
                    Ok(progress) => return Ok(progress),
                    Err(error) => {
                        self.quarantine(tenant, "taking memory out of page tables", &error);
                        return Err(error.into());
                    }
                }
                if budget.spend(1) {
                    return Ok(Progress::More);
                }
            }
            let account = self.account(tenant);
            match account.charge(|| self.hardware.driver.advance_dma_unmap(range.iova, range.size, budget)) {
                Ok(Progress::Done) => {}
                Ok(progress) => return Ok(progress),
                Err(error) => {
                    self.quarantine(tenant, "unmapping memory", &error);
                    return Err(error.into());
                }
            }
            // Out of reach; accesses may still be under way. Only the request's answer waits for them.
            let owner = self.tenants.sender(tenant)?;
            if !owner.owner.is_settled(range.iova.0, range.size) {
                return Ok(Progress::Waits);
            }
            owner.memory.remove(&range);
            self.free_bus_addresses(tenant, &range);
            withdrawal.ranges.pop();
            withdrawal.spaces = None;
            if budget.is_spent() && !withdrawal.ranges.is_empty() {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    fn take_away(&mut self, tenant: TenantId, range: &DmaRange) -> Result<(), Refusal> {
        if let Err(error) = self.hardware.driver.dma_unmap(range.iova, range.size) {
            self.quarantine(tenant, "unmapping memory", &error);
            return Err(error.into());
        }
        Ok(())
    }

    fn free_bus_addresses(&mut self, tenant: TenantId, range: &DmaRange) {
        self.hardware.own_system(range.iova, range.size, None);
        if let Some(owner) = self.tenants.get_mut(tenant) {
            owner.memory.unplace(&mut self.resources.buses, range);
        }
    }

    /// Puts tenants into fail-safe state in whose memory engines met a missing page: results from here on
    /// would be wrong. Their guests get the event that their channels are gone.
    pub(super) fn fail_for_lost_memory(&mut self, now: Duration) {
        for tenant in self.tenants.with_lost_memory() {
            self.fail_one_for_lost_memory(tenant, now);
        }
    }

    fn fail_one_for_lost_memory(&mut self, id: TenantId, now: Duration) {
        let start = Instant::now();
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        tenant.counters.lost_pages = tenant.counters.lost_pages.saturating_add(tenant.owner.lost_pages());
        log::error!(
            "{}: in fail-safe state: {} pages of its memory could not be had (is the file system full, or no huge page left, or has nobody filled them?)",
            tenant.name,
            tenant.owner.lost_pages()
        );
        let told: Vec<GuestChannel> = tenant.live_channels().map(|(channel, _)| channel).collect();
        // Before its address spaces go, what still works on one.
        self.cancel_request(id);
        self.strip(id, now);
        let fault = MmuFault {
            unit: FaultUnit::Host,
            address: GpuVa(0),
            access: AccessKind::Read,
            reason: FaultReason::UnsupportedAperture,
        };
        for channel in told {
            self.outbox.event(id, Event::Stopped(ChannelStop::new(channel, fault)));
        }
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.fail(FailSafeReason::MemoryLost, start.elapsed());
        }
    }
}
