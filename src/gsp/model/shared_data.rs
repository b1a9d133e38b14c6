//! Data that programs of NVIDIA's own driver read without asking: a page of the driver's, which firmware
//! keeps up to date as long as one of them wants that. Of all that can be there, utilisation is.
//!
//! Firmware has no clock of its own here: it looks at each message, of which such a program sends many.

use serde::{Deserialize, Serialize};
use zerocopy::{Immutable, IntoBytes};

use gpuvmk_backend::{EngineTime, GspBackend};
use gpuvmk_chip::{Aperture, PhysicalAddress};

/// Utilisation is that of the time since a look at least this long ago: a sixth of a second, the shortest
/// period that cards have.
const PERIOD: u64 = 1_000_000_000 / 6;

/// `RUSD_TIMESTAMP_WRITE_IN_PROGRESS`.
const IN_PROGRESS: u64 = u64::MAX;

/// `RUSD_PERF_DEVICE_UTILIZATION_INFO`, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(C)]
struct Utilization {
    gpu: u8,
    memory: u8,
}

/// State of [`SharedData`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedDataState {
    /// Bus address of the record about utilisation.
    pub record: Option<u64>,
    /// A program wants it.
    pub is_wanted: bool,
}

/// A look at the engines.
#[derive(Clone, Copy, Debug)]
struct Look {
    time: u64,
    used: EngineTime,
}

/// The page, and what is known of it.
#[derive(Debug, Default)]
pub(super) struct SharedData {
    /// Bus address of the record about utilisation: a time, and what it was then.
    record: Option<u64>,
    /// A program wants it.
    is_wanted: bool,
    /// The last look that began a period, and the one before.
    looks: [Option<Look>; 2],
}

impl SharedData {
    /// The state to save.
    pub(super) fn state(&self) -> SharedDataState {
        // A period begins anew: what engines had done by then is another back's account.
        let Self { record, is_wanted, looks: _ } = *self;
        SharedDataState { record, is_wanted }
    }

    /// The page of a saved state.
    pub(super) fn from_state(state: &SharedDataState) -> Self {
        let SharedDataState { record, is_wanted } = *state;
        Self { record, is_wanted, ..Self::default() }
    }

    /// The record is there from now on; nowhere for `None`.
    pub(super) fn set_record(&mut self, record: Option<u64>) {
        *self = Self { record, ..Self::default() };
    }

    /// Programs want utilisation, or none does any more.
    pub(super) fn want(&mut self, wanted: bool) {
        self.is_wanted = wanted;
    }

    /// Looks at the engines at the time `now`, and tells of them if somebody wants that.
    pub(super) fn look(&mut self, back: &dyn GspBackend, now: u64) {
        let (Some(record), Some(used)) = (self.record, back.engine_time()) else { return };
        let look = Look { time: now, used };
        let [last, before] = self.looks;
        let is_over = |last: &Look| now.saturating_sub(last.time) >= PERIOD;
        let since = if last.is_none_or(|last| is_over(&last)) {
            self.looks = [Some(look), last];
            last
        } else {
            before
        };
        if let Some(since) = since.filter(|_| self.is_wanted) {
            write(back, record, now, utilization(since, look));
        }
    }
}

/// What of the time between two looks engines were in use.
fn utilization(from: Look, to: Look) -> Utilization {
    let whole = to.time.saturating_sub(from.time).max(1);
    let percent = |from: u64, to: u64| {
        let part = to.saturating_sub(from).saturating_mul(100) / whole;
        u8::try_from(part.min(100)).unwrap_or(100)
    };
    Utilization {
        gpu: percent(from.used.graphics, to.used.graphics),
        memory: percent(from.used.copies, to.used.copies),
    }
}

/// Writes the record. Who reads it meanwhile sees that it is being written. What the driver names and does
/// not have stays unwritten.
fn write(back: &dyn GspBackend, record: u64, now: u64, utilization: Utilization) {
    let parts: [(u64, &[u8]); 3] =
        [(0, IN_PROGRESS.as_bytes()), (8, utilization.as_bytes()), (0, now.as_bytes())];
    for (offset, data) in parts {
        let address = record.saturating_add(offset);
        let _ = back.write_memory(PhysicalAddress { aperture: Aperture::SystemCoherent, address }, data);
    }
}
