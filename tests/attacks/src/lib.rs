//! What a hostile guest does to the GPU that it shares, and what must come of it: data only.
//!
//! The guest program (`tests/guest`, `attack`) carries the attacks out by name; `cargo xtask attack` runs
//! them beside a working guest, judges them and writes docs/attacks.md. Both read this one table, so that
//! neither can know an attack that the other does not.

mod fermi;
mod gsp;
pub mod peers;

/// Words that the victim writes at the start of each page of its buffers; nobody else may ever find them
/// together.
pub const VICTIM_MARK: [u32; 2] = [0x7669_6374, 0x9e15_a11e];

/// A chip whose vGPU is attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// GF100: registers, instance blocks, runlists, two-level page tables.
    Fermi,
    /// Chips with a GSP: the virtual GSP, its queues and objects, page tables of five or six levels.
    Gsp,
}

/// What came of an attack, as the attacker saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Reads returned defined values, writes changed nothing but the attacker's own virtual state.
    Values,
    /// What attacked was stopped: its channel by a fault or an error, or its whole vGPU.
    Quarantined,
    /// The request was refused: nothing ran, nothing was kept.
    Refused,
    /// It went on, at a rate or an amount that is bounded.
    Limited,
}

impl Outcome {
    /// The letter that tables and results use.
    pub const fn letter(self) -> char {
        match self {
            Self::Values => 'V',
            Self::Quarantined => 'Q',
            Self::Refused => 'R',
            Self::Limited => 'L',
        }
    }

    /// The outcome of a letter.
    pub fn of(letter: &str) -> Option<Self> {
        let all = [Self::Values, Self::Quarantined, Self::Refused, Self::Limited];
        all.into_iter().find(|outcome| letter.len() == 1 && letter.starts_with(outcome.letter()))
    }
}

/// The letters of several outcomes, as in `V/Q`.
pub fn letters(outcomes: &[Outcome]) -> String {
    let letters: Vec<String> = outcomes.iter().map(|outcome| outcome.letter().to_string()).collect();
    letters.join("/")
}

/// What the host does to the attacker's machine during an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// Nothing.
    LooksOn,
    /// Stops it and lets it go on.
    Stops,
    /// Waits until it is up again, and gives the order once more: the attack crashes it.
    Repeats,
}

/// One attack.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    /// Its row in the list of hostile behaviours; `None` for one that the list does not have.
    pub row: Option<u8>,
    /// Its name, unique for a chip.
    pub name: &'static str,
    /// What it does, for the table in the documentation.
    pub what: &'static str,
    /// Outcomes that are right. More than one where the attacker's luck decides (races, fuzzing).
    pub expected: &'static [Outcome],
    /// Made through the stock driver's ioctls instead of by the attacker's own driver.
    pub by_driver: bool,
    /// Part of the short run.
    pub short: bool,
    /// Keeps the engine from others until somebody takes it away.
    pub hang: bool,
    /// What the host does meanwhile.
    pub host: Host,
}

impl Attack {
    /// The expected letters, `V/Q` if there are several.
    pub fn letters(&self) -> String {
        let letters: Vec<String> = self.expected.iter().map(|outcome| outcome.letter().to_string()).collect();
        letters.join("/")
    }
}

/// An attack by the attacker's own driver.
const fn raw(row: u8, name: &'static str, expected: &'static [Outcome], what: &'static str) -> Attack {
    Attack {
        row: Some(row),
        name,
        what,
        expected,
        by_driver: false,
        short: false,
        hang: false,
        host: Host::LooksOn,
    }
}

/// The same for an attack that the list of behaviours does not have.
const fn unlisted(name: &'static str, expected: &'static [Outcome], what: &'static str) -> Attack {
    Attack {
        row: None,
        name,
        what,
        expected,
        by_driver: false,
        short: false,
        hang: false,
        host: Host::LooksOn,
    }
}

impl Attack {
    const fn short(self) -> Self {
        Self { short: true, ..self }
    }

    const fn hang(self) -> Self {
        Self { hang: true, ..self }
    }

    const fn host(self, host: Host) -> Self {
        Self { host, ..self }
    }

    const fn by_driver(self) -> Self {
        Self { by_driver: true, ..self }
    }
}

/// The attacks on a chip's vGPU, in the order in which they are made: those by the stock driver come last.
pub fn on(target: Target) -> &'static [Attack] {
    match target {
        Target::Fermi => fermi::ATTACKS,
        Target::Gsp => gsp::ATTACKS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_fit_a_command_line() {
        for target in [Target::Fermi, Target::Gsp] {
            let mut names: Vec<_> = on(target).iter().map(|attack| attack.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
            let fits = |name: &str| {
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            };
            assert!(names.into_iter().all(fits));
        }
    }

    #[test]
    fn every_row_that_a_guest_can_do_is_attacked_on_both_chips() {
        for (target, row) in [Target::Fermi, Target::Gsp]
            .into_iter()
            .flat_map(|target| (1..=30).chain(37..=40).map(move |row| (target, row)))
        {
            assert!(on(target).iter().any(|attack| attack.row == Some(row)), "{target:?} row {row}");
        }
    }

    #[test]
    fn attacks_of_the_stock_driver_come_last_because_it_stays_loaded() {
        for target in [Target::Fermi, Target::Gsp] {
            assert!(on(target).is_sorted_by_key(|attack| attack.by_driver));
        }
    }

    #[test]
    fn every_attack_expects_something_and_letters_read_back() {
        for attack in on(Target::Fermi).iter().chain(on(Target::Gsp)) {
            assert!(!attack.expected.is_empty(), "{}", attack.name);
            for letter in letters(attack.expected).split('/') {
                assert!(attack.expected.contains(&Outcome::of(letter).unwrap()));
            }
        }
        assert_eq!((Outcome::of("VQ"), Outcome::of(""), Outcome::of("X")), (None, None, None));
    }
}
