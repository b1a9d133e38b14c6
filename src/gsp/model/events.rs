//! Events: what GSP tells a driver unasked. They go through the message queue and raise GSP's interrupt.

use zerocopy::{FromZeros, IntoBytes};

use crate::abi::Abi;
use crate::abi::common::rpc::{
    NV_VGPU_MSG_EVENT_GSP_INIT_DONE, NV_VGPU_MSG_EVENT_GSP_RUN_CPU_SEQUENCER, NV_VGPU_MSG_EVENT_OS_ERROR_LOG,
    NV_VGPU_MSG_EVENT_POST_EVENT, NV_VGPU_MSG_EVENT_RC_TRIGGERED, NV2080_NOTIFIERS_HOTPLUG,
    Nv2080HotplugNotification, POST_EVENT_DATA, rpc_post_event_v17_00, rpc_run_cpu_sequencer_v17_00,
};
use crate::abi::values::{ErrorLog, Id, RcTriggered};
use crate::model::robust_channel::RobustChannelError;
use crate::model::token::Token;

/// An event: function and body.
pub(super) struct Event {
    pub(super) function: u32,
    pub(super) body: Vec<u8>,
}

/// GSP is ready.
pub(super) const fn init_done() -> Event {
    Event { function: NV_VGPU_MSG_EVENT_GSP_INIT_DONE, body: Vec::new() }
}

/// The driver is to make register accesses: none, because there is no SEC2 that would need them.
pub(super) fn run_cpu_sequencer() -> Event {
    let body = rpc_run_cpu_sequencer_v17_00::new_zeroed().as_bytes().to_vec();
    Event { function: NV_VGPU_MSG_EVENT_GSP_RUN_CPU_SEQUENCER, body }
}

/// Monitors were plugged in and out, of outputs a bit each: for the event of that name.
pub(super) fn hotplug(of: Id, [plugged, unplugged]: [u32; 2]) -> Event {
    let data = Nv2080HotplugNotification { plugDisplayMask: plugged, unplugDisplayMask: unplugged };
    let data = data.as_bytes();
    let head = rpc_post_event_v17_00 {
        hClient: of.client,
        hEvent: of.handle,
        notifyIndex: NV2080_NOTIFIERS_HOTPLUG,
        eventDataSize: u32::try_from(data.len()).unwrap_or(0),
        ..rpc_post_event_v17_00::default()
    };
    let mut body = head.as_bytes().to_vec();
    body.resize(body.len() + data.len(), 0);
    for (to, from) in body.iter_mut().skip(POST_EVENT_DATA).zip(data) {
        *to = *from;
    }
    Event { function: NV_VGPU_MSG_EVENT_POST_EVENT, body }
}

/// A channel was stopped: nouveau kills it and releases who waits for it.
///
/// NVIDIA's own driver wakes up those who wait for the channel, or for one of its group.
pub(super) fn rc_triggered(abi: &Abi, token: Token, error: RobustChannelError, of_group: bool) -> Event {
    let body = (abi.rc_triggered)(RcTriggered {
        engine_type: error.engine.nv2080_type(),
        chid: token.chid,
        except_type: error.code,
        address: error.address,
        fault_type: error.fault_type,
        of_group,
    });
    Event { function: NV_VGPU_MSG_EVENT_RC_TRIGGERED, body }
}

/// A channel was stopped: what the driver's log is to say of it, before it is told of the channel.
pub(super) fn error_log(abi: &Abi, token: Token, error: RobustChannelError) -> Option<Event> {
    let Token { runlist, chid } = token;
    let text = format!("Ch {:08x}, {}", chid.0, error.text());
    let body = (abi.error_log?)(&ErrorLog { except_type: error.code, runlist, chid, text });
    Some(Event { function: NV_VGPU_MSG_EVENT_OS_ERROR_LOG, body })
}
