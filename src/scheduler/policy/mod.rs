//! Policies: which VM may use the GPU now. Pure: time and candidates come in, a decision goes out.

mod fifo;
mod round_robin;

use std::time::Duration;

pub use self::fifo::Fifo;
pub use self::round_robin::RoundRobin;
use crate::addr::TenantId;
use crate::config::PolicyKind;

/// A VM with work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub vm: TenantId,
    /// Its weight; 100 is usual.
    pub weight: u32,
}

/// Whose channels may be on the runlist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Everybody's.
    All,
    /// One VM's.
    Only(TenantId),
}

impl Admission {
    /// True when channels of `vm` may be on the runlist.
    pub fn admits(self, vm: TenantId) -> bool {
        match self {
            Self::All => true,
            Self::Only(only) => only == vm,
        }
    }
}

/// What a policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Who may run.
    pub admission: Admission,
    /// When the policy wants to look again, unless something happens before.
    pub review_after: Option<Duration>,
}

/// A scheduling policy.
pub trait Policy: Send + std::fmt::Debug {
    /// Name as in configuration files.
    fn name(&self) -> &'static str;

    /// False when every VM may always run: then doorbells need no decision.
    fn arbitrates(&self) -> bool;

    /// Decides for the VMs that have work, sorted by number.
    fn decide(&mut self, now: Duration, runnable: &[Candidate]) -> Decision;
}

/// The policy that a configuration names.
pub fn policy(kind: PolicyKind) -> Box<dyn Policy> {
    match kind {
        PolicyKind::Fifo => Box::new(Fifo),
        PolicyKind::RoundRobin => Box::new(RoundRobin::default()),
    }
}
