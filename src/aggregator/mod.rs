//! The one process that owns the physical GPU: tenants, partitions, request checks, interrupt demux.

pub mod check;
pub mod dma_map;
pub mod doorbells;
pub mod event_record;
pub mod event_ring;
pub mod link;
pub mod machine;
pub mod partition;
pub mod protocol;
mod shared;
pub mod tenant;
pub mod wire;
