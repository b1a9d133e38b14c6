//! Attacks on the vGPU of a GH100.

use super::Attack;

pub(super) const ATTACKS: &[Attack] = &[];
