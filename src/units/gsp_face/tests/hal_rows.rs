//! What holds for the row of each chip.

use super::other_chip::chip::CHIP;
use crate::gsp_face::hal::{self, GspProcessor, Hal, InterruptTree, Invalidation, Roles, Timer};
use gpuvmk_chip::Engine;
use gpuvmk_chip::registers::{Field, Policy, Reg};

#[test]
fn rows_keep_the_rules() {
    for hal in hal::ALL.into_iter().chain([&CHIP]) {
        assert_eq!((hal.registers)().overlaps(), [], "{}", hal.name);
        rules(hal);
    }
}

#[test]
fn files_that_serve_every_chip_name_registers_of_none() {
    let room = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("gsp_face");
    let mut files = 0;
    for folder in [".", "core", "registers"] {
        for entry in std::fs::read_dir(room.join(folder)).unwrap().map(Result::unwrap) {
            if entry.path().extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                assert!(!production.contains("gsp::regs"), "{}", entry.path().display());
                files += 1;
            }
        }
    }
    assert!(files > 15, "{files} files were looked at");
}

/// What holds for each row.
fn rules(hal: &Hal) {
    assert_eq!(hal.mmu, hal.gsp.mmu, "{}: the face and GSP agree on page tables", hal.name);
    let index = (hal.registers)();
    let roles = Roles::new(hal);
    let is_handled = |reg: Reg| {
        let definition = index.definition(reg).unwrap();
        assert_eq!(definition.policy, Policy::Handler, "{}", definition.name);
        assert_ne!(roles.of(reg), hal::Role::Other, "{}", definition.name);
    };
    let InterruptTree { leaf, leaf_enable_set, leaf_enable_clear, top, top_enable_set, .. } = hal.interrupts;
    let InterruptTree { top_enable_clear, trigger: (trigger, _), .. } = hal.interrupts;
    for family in [leaf, leaf_enable_set, leaf_enable_clear] {
        assert_eq!(family.count as usize, hal.interrupts.leaves());
        (0..family.count).for_each(|leaf| is_handled(family.at(leaf)));
    }
    let GspProcessor { irqsclr, irqstat, mailbox, lockdown, retrigger, core, commands, .. } = hal.processor;
    let [first, second] = mailbox;
    let optional = [lockdown.map(|one| one.register), retrigger.map(|(reg, _)| reg)].into_iter().flatten();
    let Timer { low, high, user_low, user_high } = hal.timer;
    let Invalidation { pdb, upper_pdb, command, .. } = hal.invalidation;
    [
        top,
        top_enable_set,
        top_enable_clear,
        trigger,
        irqsclr,
        irqstat,
        first,
        second,
        core,
        commands,
        low,
        high,
    ]
    .into_iter()
    .chain([user_low, user_high, pdb, upper_pdb, command])
    .chain([hal.doorbell.register, hal.pramin.register, hal.vram.register])
    .chain(optional)
    .for_each(is_handled);
    // The first page is memory: none of its registers can have behaviour.
    for definition in (0..0x1000).step_by(4).filter_map(|offset| index.definition(Reg(offset))) {
        assert_ne!(definition.policy, Policy::Handler, "{}", definition.name);
    }
    // A token's parts fit in its numbers.
    let widest = Field::new(15, 0).mask();
    for part in [hal.doorbell.runlist, hal.doorbell.chid] {
        assert!(part.get(u32::MAX) <= widest);
        assert_eq!(part.mask() & hal.doorbell.required, 0);
    }
    for vector in Engine::ALL.map(hal.gsp.vectors.non_stall).into_iter().chain([hal.gsp.vectors.gsp_stall]) {
        assert!((vector as usize) < 32 * hal.interrupts.leaves());
    }
}
