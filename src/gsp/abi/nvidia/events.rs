//! Events: bodies.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::values::{ErrorLog, RcTriggered};
use gpuvmk_chip::layout;

/// A channel was stopped. Where it faulted is not said; no journal follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_rc_triggered_v17_02 {
    pub nv2080EngineType: u32,
    pub chid: u32,
    pub exceptLevel: u32,
    pub exceptType: u32,
    pub scope: u32,
    pub partitionAttributionId: u16,
    pub pad: u16,
    pub rcJournalBufferSize: u32,
}
layout!(rpc_rc_triggered_v17_02, 0x1c, exceptType @ 0xc, scope @ 0x10, partitionAttributionId @ 0x14);

/// `scope`: all channels of a group.
const RC_NOTIFIER_SCOPE_TSG: u32 = 1;

impl From<RcTriggered> for rpc_rc_triggered_v17_02 {
    fn from(event: RcTriggered) -> Self {
        Self {
            nv2080EngineType: event.engine_type,
            chid: event.chid.0.into(),
            exceptLevel: 0,
            exceptType: event.except_type,
            scope: if event.of_group { RC_NOTIFIER_SCOPE_TSG } else { 0 },
            partitionAttributionId: 0,
            pad: 0,
            rcJournalBufferSize: 0,
        }
    }
}

/// The driver's log is to tell of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_os_error_log_v17_00 {
    pub exceptType: u32,
    pub runlistId: u32,
    pub chid: u32,
    pub errString: [u8; 0x100],
}
layout!(rpc_os_error_log_v17_00, 0x10c, chid @ 8, errString @ 0xc);

impl From<&ErrorLog> for rpc_os_error_log_v17_00 {
    fn from(log: &ErrorLog) -> Self {
        let mut errString = [0; 0x100];
        // A zero ends it.
        errString.iter_mut().take(0xff).zip(log.text.bytes()).for_each(|(to, from)| *to = from);
        Self {
            exceptType: log.except_type,
            runlistId: log.runlist.into(),
            chid: log.chid.0.into(),
            errString,
        }
    }
}
