//! Events: bodies.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::values::RcTriggered;
use gpuvmk_chip::layout;

/// A channel was stopped. Where it faulted is not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_rc_triggered_v17_02 {
    pub nv2080EngineType: u32,
    pub chid: u32,
    pub exceptType: u32,
    pub scope: u32,
    pub partitionAttributionId: u16,
    pub pad: u16,
}
layout!(rpc_rc_triggered_v17_02, 0x14, exceptType @ 8, partitionAttributionId @ 0x10);

impl From<RcTriggered> for rpc_rc_triggered_v17_02 {
    fn from(event: RcTriggered) -> Self {
        Self {
            nv2080EngineType: event.engine_type,
            chid: event.chid.0.into(),
            exceptType: event.except_type,
            scope: 0,
            partitionAttributionId: 0,
            pad: 0,
        }
    }
}
