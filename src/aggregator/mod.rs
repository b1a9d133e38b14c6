//! The one process that owns the physical GPU: tenants, partitions, request checks, interrupt demux.

pub mod check;
pub mod dma_map;
pub mod link;
pub mod partition;
pub mod protocol;
