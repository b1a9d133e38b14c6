//! Guest memory: made reachable for the physical GPU at bus addresses of the host's choice, and taken away
//! again only when no page table names it any more.

use std::os::fd::OwnedFd;

use super::jobs::Job;
use super::{Machine, Outcome};
use crate::addr::{Gpa, TenantId};
use crate::aggregator::dma_map::{DmaMapError, DmaRange};
use crate::aggregator::limit::Limit;
use crate::aggregator::protocol::RefusalKind;
use crate::aggregator::tenant::Refusal;
use crate::gpu::{Budget, Progress, Revocation, SpaceHandle};
use crate::pci::{DmaBacking, DmaMapping};

/// Most memory ranges of a tenant: QEMU has some dozens. All tenants together stay below what one process may
/// have mapped ([`crate::pci::mapping::sigbus::MAX_GUARDED`]).
pub(super) const MAX_RANGES: usize = 512;

const _: () = assert!(MAX_RANGES * super::admission::MAX_TENANTS < crate::pci::mapping::sigbus::MAX_GUARDED);

/// Most memory of a tenant: 4 TiB, and an eighth of what the physical GPU's bus addresses reach.
const MAX_BYTES_LOG2: u8 = 42;
const BUS_SHARE_LOG2: u8 = 3;

/// Memory ranges that are being taken away.
#[derive(Debug)]
pub struct Withdrawal {
    /// Those that are left; the last one is under way.
    ranges: Vec<DmaRange>,
    /// Address spaces that may still name it, once that was looked up.
    spaces: Option<Vec<SpaceHandle>>,
    /// How far the last of them is.
    revocation: Option<Revocation>,
}

impl Withdrawal {
    /// Of these.
    pub(super) const fn new(ranges: Vec<DmaRange>) -> Self {
        Self { ranges, spaces: None, revocation: None }
    }
}

impl From<DmaMapError> for Refusal {
    fn from(error: DmaMapError) -> Self {
        Self::new(RefusalKind::OutsidePartition, error.to_string())
    }
}

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
        let most = 1_u64 << self.info.system_bits.saturating_sub(BUS_SHARE_LOG2).min(MAX_BYTES_LOG2);
        let memory = &self.tenant(tenant)?.memory;
        memory.check_new(gpa, size)?;
        if memory.len() >= MAX_RANGES || memory.bytes().saturating_add(size) > most {
            return Err(Refusal::met(
                Limit::MemoryRanges,
                RefusalKind::Quota,
                format!("a VM may have {MAX_RANGES} memory ranges and {} GiB", most >> 30),
            ));
        }
        let iova = self.iovas.take(size, gpa).ok_or_else(|| {
            Refusal::new(RefusalKind::Exhausted, "the physical GPU's bus addresses are used up")
        })?;
        let mapping =
            DmaMapping { iova: iova.0, size, writable, backing: file.map(|fd| DmaBacking { fd, offset }) };
        // The owner is told first, so that no access can meet memory without one.
        if let Some(ledger) = &self.ledger {
            ledger.own_system(iova, size, Some(tenant));
        }
        if let Err(error) = self.driver.dma_map(mapping) {
            if let Some(ledger) = &self.ledger {
                ledger.own_system(iova, size, None);
            }
            self.iovas.give_back(iova);
            return Err(error.into());
        }
        self.tenant(tenant)?.memory.insert(DmaRange { gpa, size, iova, writable });
        Ok(())
    }

    pub(super) fn dma_unmap(&mut self, tenant: TenantId, gpa: Gpa, size: u64) -> Result<Outcome, Refusal> {
        let ranges = self.tenant(tenant)?.memory.whole_ranges(gpa, size)?;
        self.start_job(tenant, Job::Release(Withdrawal::new(ranges)))
    }

    /// Takes ranges away, one after the other: page tables first, then the mapping, then the number is free.
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
                let there = self.driver.space_usage(space).is_ok();
                let revocation = withdrawal.revocation.get_or_insert(Revocation::new(range.iova, range.size));
                let revoked = if there {
                    self.driver.advance_revoke(space, revocation, budget)
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
            match self.driver.advance_dma_unmap(range.iova, range.size, budget) {
                Ok(Progress::Done) => {}
                Ok(progress) => return Ok(progress),
                Err(error) => {
                    self.quarantine(tenant, "unmapping memory", &error);
                    return Err(error.into());
                }
            }
            if let Some(ledger) = &self.ledger {
                ledger.own_system(range.iova, range.size, None);
            }
            self.iovas.give_back(range.iova);
            self.tenant(tenant)?.memory.remove(range.gpa);
            withdrawal.ranges.pop();
            withdrawal.spaces = None;
            if budget.is_spent() && !withdrawal.ranges.is_empty() {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }
}
