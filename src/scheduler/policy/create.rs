//! A policy by its name.

use std::time::Duration;

use super::{
    Band, BestEffort, CreditPolicy, Deadline, EqualShare, Fifo, FixedShare, Policy, PolicyKind, Settings,
    Weighted,
};

/// The policy that a configuration names, for an engine that goes from one VM to the next in `switch`.
pub fn policy(kind: PolicyKind, settings: &Settings, switch: Duration) -> Box<dyn Policy> {
    match kind {
        PolicyKind::Fifo => Box::new(Fifo),
        PolicyKind::BestEffort => Box::new(BestEffort::new(settings)),
        PolicyKind::Credit => Box::new(CreditPolicy::new(settings)),
        PolicyKind::Band => Box::new(Band::new(settings)),
        PolicyKind::EqualShare => Box::new(EqualShare::new(settings)),
        PolicyKind::FixedShare => Box::new(FixedShare::new(settings)),
        PolicyKind::Weighted => Box::new(Weighted::new(settings, switch)),
        PolicyKind::Deadline => Box::new(Deadline::new(settings)),
    }
}
