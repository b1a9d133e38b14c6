//! RPCs put together from records: an RPC of more than 64 KiB arrives as a first record and
//! CONTINUATION_RECORDs.
//!
//! No field says how many records follow. The first record of a split RPC is as large as a record can be, and
//! functions with a body of variable size say that size in it: an RPC waits for more exactly when both hold.

use gpuvmk_saved_state::{Bytes, Check, StateError};
use serde::{Deserialize, Serialize};

use crate::abi::common::calls::length;
use crate::abi::common::rpc::NV_VGPU_MSG_FUNCTION_CONTINUATION_RECORD;
use crate::model::queue::Record;

/// The largest RPC: its answer, as large, must fit a message queue of 63 elements.
pub(super) const MAX_BODY: usize = 0x3_0000;

/// A whole RPC.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) function: u32,
    pub(super) sequence: u32,
    pub(super) body: Vec<u8>,
}

/// Result of adding a record to the RPC before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Assembled {
    /// An RPC is complete.
    Whole(Request),
    /// More must follow.
    Waiting,
    /// The RPC is larger than [`MAX_BODY`]: it is dropped.
    TooLarge(Request),
    /// A continuation of nothing.
    Orphan,
}

/// The RPC that waits for its rest.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    waiting: Option<(Request, usize)>,
}

impl Assembly {
    /// Takes a record. The second is true when an RPC that waited for its rest was given up.
    pub(super) fn push(&mut self, record: Record) -> (Assembled, bool) {
        if record.function == NV_VGPU_MSG_FUNCTION_CONTINUATION_RECORD {
            return (self.continued(&record.body), false);
        }
        let given_up = self.waiting.take().is_some();
        let expected = length(record.function, &record.body);
        let Record { function, sequence, body, full, .. } = record;
        let request = Request { function, sequence, body };
        if !full || request.body.len() >= expected {
            return (Assembled::Whole(request), given_up);
        }
        if expected > MAX_BODY {
            return (Assembled::TooLarge(request), given_up);
        }
        self.waiting = Some((request, expected));
        (Assembled::Waiting, given_up)
    }

    fn continued(&mut self, body: &[u8]) -> Assembled {
        let Some((mut request, expected)) = self.waiting.take() else {
            return Assembled::Orphan;
        };
        if request.body.len().saturating_add(body.len()) > MAX_BODY {
            return Assembled::TooLarge(request);
        }
        request.body.extend_from_slice(body);
        if request.body.len() >= expected {
            return Assembled::Whole(request);
        }
        self.waiting = Some((request, expected));
        Assembled::Waiting
    }
}

/// The RPC that waits for its rest, as it is saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitingState {
    /// Function.
    pub function: u32,
    /// The driver's number for it.
    pub sequence: u32,
    /// The received part of its body.
    pub body: Bytes,
}

impl Assembly {
    /// The state to save.
    pub(super) fn state(&self) -> Option<WaitingState> {
        let Self { waiting } = self;
        // How long it gets stands in its body.
        let (Request { function, sequence, body }, _) = waiting.as_ref()?;
        Some(WaitingState { function: *function, sequence: *sequence, body: Bytes(body.clone()) })
    }

    /// An RPC that waits for its rest in a saved state.
    ///
    /// # Errors
    /// It waits for nothing, or for more than an RPC has.
    pub(super) fn from_state(state: Option<&WaitingState>) -> Result<Self, StateError> {
        let Some(WaitingState { function, sequence, body: Bytes(body) }) = state else {
            return Ok(Self::default());
        };
        let expected = length(*function, body);
        Check("waiting RPC").that(body.len() < expected && expected <= MAX_BODY, || {
            format!("{} bytes of {expected} have come of function {function}", body.len())
        })?;
        let request = Request { function: *function, sequence: *sequence, body: body.clone() };
        Ok(Self { waiting: Some((request, expected)) })
    }
}
