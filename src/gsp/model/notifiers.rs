//! Where NVIDIA's own driver looks for errors of its channels: a notifier each, in memory that it names when
//! it makes a channel. Firmware writes there; the driver's kernel only wakes up who waits.
//!
//! Not handled: a saved state does not have them. Who waits is then told of by the event alone.

use std::collections::BTreeMap;

use zerocopy::{Immutable, IntoBytes};

use crate::model::robust_channel::RobustChannelError;
use crate::model::token::Token;
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::PhysicalAddress;

/// `NvNotification`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct NvNotification {
    nanoseconds: [u32; 2],
    info32: u32,
    info16: u16,
    status: u16,
}

/// `status` of an error.
const ERROR: u16 = 0xffff;

/// The notifiers of all channels that have one.
#[derive(Debug, Default)]
pub(super) struct Notifiers(BTreeMap<Token, PhysicalAddress>);

impl Notifiers {
    /// A channel has its notifier there.
    pub(super) fn set(&mut self, token: Token, place: PhysicalAddress) {
        self.0.insert(token, place);
    }

    /// A channel is gone.
    pub(super) fn remove(&mut self, token: Token) {
        self.0.remove(&token);
    }

    /// All are gone.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Writes an error into the notifiers of these channels. What a driver names and does not have stays
    /// unwritten.
    pub(super) fn write(&self, back: &dyn GspBackend, tokens: &[Token], error: RobustChannelError) {
        let engine = u16::try_from(error.engine.nv2080_type()).unwrap_or(0);
        let said = NvNotification { nanoseconds: [0; 2], info32: error.code, info16: engine, status: ERROR };
        for place in tokens.iter().filter_map(|token| self.0.get(token)) {
            let _ = back.write_memory(*place, said.as_bytes());
        }
    }
}
