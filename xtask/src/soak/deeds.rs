//! What may happen to a VM, how often, and what the guest is told.

use std::collections::BTreeMap;

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use serde_json::{Map, Value};

/// Something that happens to a VM at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    /// The guest fills its VRAM with a pattern.
    Fill,
    /// nouveau goes, the function is reset, nouveau comes back.
    FunctionReset,
    /// The guest reboots in order.
    Reboot,
    /// The guest's kernel panics, and boots again.
    Panic,
    /// The function is reset while a channel works, and the kernel restarts at once.
    ResetAtWork,
    /// The guest powers off.
    PowerOff,
    /// QEMU is killed.
    QemuKilled,
    /// The device back end is killed; QEMU, which has no GPU any more, too.
    BackendKilled,
}

/// How a VM goes on after a deed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It works on once it has reported this event.
    Works(&'static str),
    /// It boots again.
    Boots,
    /// It is gone.
    Gone,
}

impl Deed {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Fill,
        Self::FunctionReset,
        Self::Reboot,
        Self::Panic,
        Self::ResetAtWork,
        Self::PowerOff,
        Self::QemuKilled,
        Self::BackendKilled,
    ];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fill => "filled",
            Self::FunctionReset => "function_reset",
            Self::Reboot => "rebooted",
            Self::Panic => "panicked",
            Self::ResetAtWork => "reset_at_work",
            Self::PowerOff => "powered_off",
            Self::QemuKilled => "qemu_killed",
            Self::BackendKilled => "backend_killed",
        }
    }

    /// What the guest is told; `None` where it is not asked.
    pub fn order(self) -> Option<&'static str> {
        match self {
            Self::Fill => Some("fill"),
            Self::FunctionReset => Some("flr"),
            Self::Reboot => Some("end"),
            Self::Panic => Some("panic"),
            Self::ResetAtWork => Some("reset-at-work"),
            Self::PowerOff => Some("off"),
            Self::QemuKilled | Self::BackendKilled => None,
        }
    }

    /// What follows.
    pub fn then(self) -> Then {
        match self {
            Self::Fill => Then::Works("soak-filled"),
            Self::FunctionReset => Then::Works("soak-flr"),
            Self::Reboot | Self::Panic | Self::ResetAtWork => Then::Boots,
            Self::PowerOff | Self::QemuKilled | Self::BackendKilled => Then::Gone,
        }
    }

    /// Whether the guest's kernel has reason to complain.
    pub fn disturbs(self) -> bool {
        matches!(self, Self::Panic | Self::ResetAtWork | Self::BackendKilled)
    }

    /// How often it is chosen, against the others.
    fn weight(self) -> u32 {
        match self {
            // The next one finds more to do with memory that is full.
            Self::Fill => 6,
            Self::FunctionReset => 2,
            Self::Reboot | Self::Panic | Self::ResetAtWork => 2,
            Self::PowerOff | Self::QemuKilled | Self::BackendKilled => 3,
        }
    }

    /// A deed; one that ends the VM if `last`.
    pub fn choose(random: &mut Xoshiro256PlusPlus, last: bool) -> Self {
        let able = || Self::ALL.into_iter().filter(move |deed| !last || deed.then() == Then::Gone);
        let mut at = random.random_range(0..able().map(Self::weight).sum());
        for deed in able() {
            if at < deed.weight() {
                return deed;
            }
            at -= deed.weight();
        }
        Self::PowerOff
    }
}

/// How often what happened.
#[derive(Debug, Clone, Default)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// All of them, at zero.
    pub fn new() -> Self {
        let others = ["came", "booted", "killed_while_booting", "removed"];
        Self(Deed::ALL.map(Deed::name).into_iter().chain(others).map(|name| (name, 0)).collect())
    }

    /// It happened.
    pub fn one(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    /// How often.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// As results have it.
    pub fn to_json(&self) -> Value {
        self.0
            .iter()
            .map(|(name, count)| ((*name).to_owned(), Value::from(*count)))
            .collect::<Map<_, _>>()
            .into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;

    #[test]
    fn same_seed_gives_the_same_deeds_and_every_deed_comes() {
        let deeds = |seed| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            (0..200).map(|_| Deed::choose(&mut random, false)).collect::<Vec<_>>()
        };
        assert_eq!(deeds(7), deeds(7));
        assert_ne!(deeds(7), deeds(8));
        assert_eq!(deeds(7).into_iter().collect::<BTreeSet<_>>().len(), Deed::ALL.len());
    }

    #[test]
    fn last_deed_ends_the_vm() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        assert!((0..100).all(|_| Deed::choose(&mut random, true).then() == Then::Gone));
    }
}
