//! Events: bodies.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::values::RcTriggered;
use gpuvmk_chip::layout;

/// A channel was stopped; no journal follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_rc_triggered_v17_02 {
    pub nv2080EngineType: u32,
    pub chid: u32,
    pub gfid: u32,
    pub exceptLevel: u32,
    pub exceptType: u32,
    pub scope: u32,
    pub partitionAttributionId: u16,
    pub pad: u16,
    pub mmuFaultAddrLo: u32,
    pub mmuFaultAddrHi: u32,
    pub mmuFaultType: u32,
    pub bCallbackNeeded: u8,
    pub pad2: [u8; 3],
    pub rcJournalBufferSize: u32,
}
layout!(rpc_rc_triggered_v17_02, 0x30, exceptType @ 0x10, mmuFaultAddrLo @ 0x1c, mmuFaultType @ 0x24);

impl From<RcTriggered> for rpc_rc_triggered_v17_02 {
    fn from(event: RcTriggered) -> Self {
        // CAST: the two halves of the address.
        #[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
        let low = event.address as u32;
        Self {
            nv2080EngineType: event.engine_type,
            chid: event.chid.0.into(),
            gfid: 0,
            exceptLevel: 0,
            exceptType: event.except_type,
            scope: 0,
            partitionAttributionId: 0,
            pad: 0,
            mmuFaultAddrLo: low,
            mmuFaultAddrHi: (event.address >> 32) as u32,
            mmuFaultType: event.fault_type,
            bCallbackNeeded: 0,
            pad2: [0; 3],
            rcJournalBufferSize: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::addr::Chid;

    #[test]
    fn rc_event_has_the_layout_that_nouveau_reads() {
        let raw = (crate::abi::r570_144::ABI.rc_triggered)(RcTriggered {
            engine_type: 9,
            chid: Chid(3),
            except_type: 31,
            address: 0x12_3456_7000,
            fault_type: 2,
            of_group: false,
        });

        let word = |at: usize| u32::from_le_bytes(raw[at..at + 4].try_into().unwrap());
        assert_eq!(raw.len(), 0x30);
        assert_eq!([word(0), word(4), word(0x10)], [9, 3, 31]);
        assert_eq!([word(0x1c), word(0x20), word(0x24)], [0x3456_7000, 0x12, 2]);
    }
}
