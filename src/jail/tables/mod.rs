//! The filters, as data: for each role, groups of entries.

pub(super) mod aggregator;
mod card;
pub(super) mod common;
pub(super) mod device;
pub(super) mod vmm;
