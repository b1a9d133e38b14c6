//! What the registers of policy *handler* are: a question of each trapped access, answered by a table.

use super::interrupts::{MOST_LEAVES, TreeRegister};
use super::invalidation::InvalidationRegister;
use super::processor::ProcessorRegister;
use super::row::{Hal, Timer};
use gpuvmk_chip::registers::{Policy, Reg, RegArray};

/// A half of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeWord {
    /// Bits 31:0.
    Low,
    /// Bits 63:32.
    High,
}

/// What a register of policy *handler* is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Of the interrupt tree.
    Interrupt(TreeRegister),
    /// The doorbell.
    Doorbell,
    /// Of the MMU's invalidation.
    Invalidation(InvalidationRegister),
    /// Of GSP.
    Processor(ProcessorRegister),
    /// Where PRAMIN looks.
    Pramin,
    /// How much VRAM there is.
    VramSize,
    /// The time.
    Time(TimeWord),
    /// The time on user mode's page.
    UserTime(TimeWord),
    /// None of these: of the boot, or nobody's.
    Other,
}

/// log2 of the slots.
const SLOTS_LOG2: u32 = 8;

/// Slots of the table; most are free, so that a search ends after a step or two.
const SLOTS: usize = 1 << SLOTS_LOG2;

/// More registers than a row names: three for each leaf, and 20 others.
const MOST: usize = 3 * MOST_LEAVES + 32;
const _: () = assert!(MOST * 3 <= SLOTS);

/// The roles of a chip's registers, by their offsets: a hash table of one array, searched from a register's
/// slot on until the register or a free slot comes.
#[derive(Clone, Debug)]
pub struct Roles {
    slots: Box<[Option<(Reg, Role)>; SLOTS]>,
}

impl Roles {
    /// The table of a row. Of registers that a row names, those count that its register index has with policy
    /// *handler*.
    pub fn new(hal: &Hal) -> Self {
        let mut roles = Self { slots: Box::new([None; SLOTS]) };
        // PRAMIN's quarter of a million words have no role: they are memory.
        let memory = hal.pramin.range();
        let registers = (hal.registers)();
        let handled = registers.definitions().filter(|one| one.policy == Policy::Handler);
        for definition in handled.filter(|one| !memory.contains(&one.offset.into())) {
            let family =
                RegArray { base: definition.offset, count: definition.count, stride: definition.stride };
            for reg in (0..definition.count).map(|number| family.at(number)) {
                if let Some(role) = hal.role(reg) {
                    roles.set(reg, role);
                }
            }
        }
        roles
    }

    /// What a register is.
    pub fn of(&self, reg: Reg) -> Role {
        self.search(reg)
            .map_while(|(_, slot)| *slot)
            .find(|(other, _)| *other == reg)
            .map_or(Role::Other, |(_, role)| role)
    }

    fn set(&mut self, reg: Reg, role: Role) {
        let free = self.search(reg).find(|(_, slot)| slot.is_none()).map(|(place, _)| place);
        if let Some(slot) = free.and_then(|place| self.slots.get_mut(place)) {
            *slot = Some((reg, role));
        }
    }

    /// All slots with their places, in the order of a search.
    fn search(&self, reg: Reg) -> impl Iterator<Item = (usize, &Option<(Reg, Role)>)> {
        let first = slot(reg);
        let (before, from) = self.slots.split_at(first);
        (first..).zip(from).chain((0..).zip(before))
    }
}

/// Where the search for a register begins: the upper bits of its number times 2^32 over the golden ratio.
const fn slot(reg: Reg) -> usize {
    ((reg.0 >> 2).wrapping_mul(0x9e37_79b9) >> (u32::BITS - SLOTS_LOG2)) as usize
}

impl Hal {
    /// What a register is, by comparison with all that the row names. [`Roles`] is made of the answers.
    fn role(&self, reg: Reg) -> Option<Role> {
        let Timer { low, high, user_low, user_high } = self.timer;
        let single = [
            (self.doorbell.register, Role::Doorbell),
            (self.pramin.register, Role::Pramin),
            (self.vram.register, Role::VramSize),
            (low, Role::Time(TimeWord::Low)),
            (high, Role::Time(TimeWord::High)),
            (user_low, Role::UserTime(TimeWord::Low)),
            (user_high, Role::UserTime(TimeWord::High)),
        ];
        let of_tree = || self.interrupts.register(reg).map(Role::Interrupt);
        let of_invalidation = || self.invalidation.register(reg).map(Role::Invalidation);
        let of_processor = || self.processor.register(reg).map(Role::Processor);
        let of_single = || single.into_iter().find(|(other, _)| *other == reg).map(|(_, role)| role);
        of_tree().or_else(of_invalidation).or_else(of_processor).or_else(of_single)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ALL;
    use super::*;

    #[test]
    fn table_says_of_each_register_what_the_row_says() {
        for hal in ALL {
            let roles = Roles::new(hal);
            let named = roles.slots.iter().flatten().count();
            assert!(named > 3 * hal.interrupts.leaves() && named <= MOST, "{}: {named}", hal.name);
            for definition in (hal.registers)().definitions().filter(|one| one.policy == Policy::Handler) {
                let reg = Reg(definition.offset);
                assert_eq!(roles.of(reg), hal.role(reg).unwrap_or(Role::Other), "{} {reg:?}", hal.name);
                assert_eq!(roles.of(Reg(reg.0 | 2)), Role::Other, "{} {reg:?}", hal.name);
            }
            for leaf in 0..hal.interrupts.leaf.count {
                let expected = Role::Interrupt(TreeRegister::Leaf(leaf as usize));
                assert_eq!(roles.of(hal.interrupts.leaf.at(leaf)), expected, "{}", hal.name);
            }
        }
    }

    #[test]
    fn a_search_takes_two_steps_on_average_and_twelve_at_most() {
        for hal in ALL {
            let roles = Roles::new(hal);
            let steps = |reg: Reg| {
                let ends = |slot: &Option<(Reg, Role)>| slot.is_none_or(|(other, _)| other == reg);
                1 + roles.search(reg).position(|(_, slot)| ends(slot)).unwrap()
            };
            let named: Vec<_> = roles.slots.iter().flatten().map(|(reg, _)| steps(*reg)).collect();
            let sum: usize = named.iter().sum();
            let most = named.iter().max().unwrap();
            assert!(sum <= 2 * named.len() && *most <= 12, "{}: {named:?}", hal.name);
        }
    }
}
