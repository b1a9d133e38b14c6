//! What launches differ in between versions of the SM.

use gpuvmk_chip::qmd::layout::{Bits, Layout, V2_3, V3_0, V4_0};

use crate::launch::{SEND_SIGNALING_PCAS_B, SEND_SIGNALING_PCAS2_B};

/// PCAS_ACTION: drop what is known of the block, read it, schedule it.
const INVALIDATE_COPY_SCHEDULE: u32 = 3;
/// INVALIDATE and SCHEDULE of SEND_SIGNALING_PCAS_B.
const INVALIDATE_SCHEDULE: u32 = 3;

/// A version of the SM, and how kernels are launched on it.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    /// The version: 75 for SM 7.5.
    pub sm: u8,
    /// The version of the QMD.
    pub layout: &'static Layout,
    /// QMD_GROUP_ID.
    pub(crate) group_id: Bits,
    /// Offset of the parameters in constant bank 0.
    pub parameters: u32,
    /// Sizes of shared memory that an SM can be configured for, in KiB.
    pub(crate) shared_configs: &'static [u64],
    /// The method that launches, and its data.
    pub signal: (u16, u32),
}

impl Target {
    /// SASS_VERSION.
    pub(crate) fn sass_version(&self) -> u64 {
        u64::from(self.sm / 10) << 4 | u64::from(self.sm % 10)
    }
}

/// QMD_GROUP_ID of versions before 4.0.
const GROUP_ID: Bits = Bits { high: 133, low: 128 };
/// Offset of the parameters before Hopper.
const PARAMETERS: u32 = 0x160;

const AMPERE: Target = Target {
    sm: 86,
    layout: &V3_0,
    group_id: GROUP_ID,
    parameters: PARAMETERS,
    shared_configs: &[8, 16, 32, 64, 100],
    signal: (SEND_SIGNALING_PCAS2_B, INVALIDATE_COPY_SCHEDULE),
};

/// Turing.
pub static SM75: Target = Target {
    sm: 75,
    layout: &V2_3,
    group_id: GROUP_ID,
    parameters: PARAMETERS,
    shared_configs: &[32, 64],
    signal: (SEND_SIGNALING_PCAS_B, INVALIDATE_SCHEDULE),
};
/// Ampere but for GA100.
pub static SM86: Target = AMPERE;
/// Ada.
pub static SM89: Target = Target { sm: 89, ..AMPERE };
/// Hopper.
pub static SM90: Target = Target {
    sm: 90,
    layout: &V4_0,
    group_id: Bits { high: 21, low: 16 },
    parameters: 0x210,
    shared_configs: &[8, 16, 32, 64, 100, 132, 164, 196, 228],
    signal: (SEND_SIGNALING_PCAS2_B, INVALIDATE_COPY_SCHEDULE),
};
