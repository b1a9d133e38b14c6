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
use crate::pci::{DmaBacking, DmaMapping};

/// Most memory ranges of a tenant: QEMU has some dozens. All tenants together stay below what one process may
/// have mapped ([`crate::pci::mapping::sigbus::MAX_GUARDED`]).
pub(super) const MAX_RANGES: usize = 512;

const _: () = assert!(MAX_RANGES * super::admission::MAX_TENANTS < crate::pci::mapping::sigbus::MAX_GUARDED);

/// Most memory of a tenant: 4 TiB, and an eighth of what the physical GPU's bus addresses reach.
const MAX_BYTES_LOG2: u8 = 42;
const BUS_SHARE_LOG2: u8 = 3;

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
        self.start_job(tenant, Job::Release(ranges))
    }

    /// Takes one range away: page tables first, then the mapping, then the number is free.
    pub(super) fn release_range(&mut self, tenant: TenantId, range: DmaRange) -> Result<(), Refusal> {
        let spaces: Vec<_> = self.spaces_of(tenant);
        for space in spaces {
            if let Err(error) = self.driver.revoke_system(space, range.iova, range.size) {
                self.quarantine(tenant, "taking memory out of page tables", &error);
                return Err(error.into());
            }
        }
        if let Err(error) = self.driver.dma_unmap(range.iova, range.size) {
            self.quarantine(tenant, "unmapping memory", &error);
            return Err(error.into());
        }
        if let Some(ledger) = &self.ledger {
            ledger.own_system(range.iova, range.size, None);
        }
        self.iovas.give_back(range.iova);
        self.tenant(tenant)?.memory.remove(range.gpa);
        Ok(())
    }
}
