//! The one process that owns the physical GPU: tenants, partitions, request checks, interrupt demux.

pub mod link;
pub mod protocol;
