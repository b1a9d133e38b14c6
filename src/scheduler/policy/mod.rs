//! Policies: which VM may use an engine now. Pure: time and VMs come in, a decision goes out.

mod band;
mod best_effort;
mod create;
mod credit;
mod deadline;
mod equal_share;
mod fifo;
mod fixed_share;
mod kind;
mod rounds;
mod vm_table;
mod weighted;

use std::time::Duration;

pub use self::band::Band;
pub use self::best_effort::BestEffort;
pub use self::create::policy;
pub use self::credit::CreditPolicy;
pub use self::deadline::Deadline;
pub use self::equal_share::EqualShare;
pub use self::fifo::Fifo;
pub use self::fixed_share::FixedShare;
pub use self::kind::PolicyKind;
pub use self::weighted::Weighted;
pub use crate::settings::Settings;
use crate::share::{Rejection, Share};
use gpuvmk_chip::addr::TenantId;

/// A VM as the policy of one engine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmView {
    /// The VM's number.
    pub vm: TenantId,
    /// Its granted share.
    pub share: Share,
    /// True when it has work that can go on.
    pub ready: bool,
    /// New work came since the last decision, and before it the VM probably had none left.
    pub woke: bool,
    /// Time that it used so far, also beyond its turns.
    pub used: Duration,
}

/// The VMs whose channels may be on the runlist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// All VMs'.
    All,
    /// One VM's.
    Only(TenantId),
    /// No VM's: the engine rests, because the VM that has the time does not use it.
    Nobody,
}

impl Admission {
    /// True when channels of `vm` may be on the runlist.
    pub fn admits(self, vm: TenantId) -> bool {
        match self {
            Self::All => true,
            Self::Only(only) => only == vm,
            Self::Nobody => false,
        }
    }
}

/// A policy's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The VMs that may run.
    pub admission: Admission,
    /// When the policy wants to decide again, unless something happens before. `None` while no VM is ready:
    /// then no timer may run.
    pub review_after: Option<Duration>,
}

/// A scheduling policy, for one engine.
pub trait Policy: Send + std::fmt::Debug {
    /// Name as in configuration files.
    fn name(&self) -> &'static str;

    /// False when every VM may always run: then doorbells need no decision.
    fn arbitrates(&self) -> bool;

    /// True when a VM that becomes ready may end another's turn: then its doorbell needs a decision.
    /// Otherwise it waits for the end of that turn in any case.
    fn cuts_turns(&self) -> bool {
        false
    }

    /// Decides. `vms` are all that are present, sorted by number, whether they have work or not. Called when
    /// a VM becomes ready, at each sample (about every millisecond while any VM is busy), and when a review
    /// is due.
    fn decide(&mut self, now: Duration, vms: &[VmView]) -> Decision;

    /// Whether a VM may be granted `new` beside `others`.
    ///
    /// # Errors
    /// The policy could not keep what it would promise.
    fn accepts(&self, others: &[Share], new: &Share) -> Result<(), Rejection> {
        let _ = (others, new);
        Ok(())
    }
}

/// NVIDIA's rule for the length of a turn: 2 ms for up to 8 vGPUs, 1 ms for more.
pub fn slice(settings: &Settings, vms: usize) -> Duration {
    settings.slice.unwrap_or(Duration::from_millis(if vms <= 8 { 2 } else { 1 }))
}

/// The shortest time after which a policy asks to look again: less costs more than it brings.
const SHORTEST: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests;
