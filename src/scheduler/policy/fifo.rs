//! `fifo`: everything that is ready is on the runlist, and hardware's own time slices share among channels.
//!
//! The least overhead and the least control: a VM with more channels gets more time.

use std::time::Duration;

use super::{Admission, Decision, Policy, VmView};

/// The policy; see the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl Policy for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn arbitrates(&self) -> bool {
        false
    }

    fn decide(&mut self, _now: Duration, _vms: &[VmView]) -> Decision {
        Decision { admission: Admission::All, review_after: None }
    }
}
