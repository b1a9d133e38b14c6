//! Missing waits: a register is used before the scoreboard that says that it was loaded was waited for.
//!
//! The software GPU executes in order, so results are right here and may not be on a GPU. Only scoreboards of
//! results are looked at, not those of operands, and not the fixed times of other instructions.

use std::collections::HashMap;

use gpuvmk_isa::modifier::AccessType;
use gpuvmk_isa::{Control, Instruction, Operand, Reg, Role};
use gpuvmk_sm::Step;

/// Scoreboards of a warp.
const SCOREBOARDS: usize = 6;

/// What warps wait for.
#[derive(Debug, Default)]
pub struct Scoreboards {
    /// Registers that each scoreboard stands for.
    pending: HashMap<([u32; 3], u32), [Vec<u8>; SCOREBOARDS]>,
}

/// Registers that an operand names.
fn registers(instruction: &Instruction, role: Role, operand: Operand) -> Vec<u8> {
    match operand {
        Operand::Reg(Reg::ZERO, _) => Vec::new(),
        Operand::Reg(reg, _) => {
            let moved =
                instruction.operand(Role::Address).is_some() && matches!(role, Role::Dst | Role::Data);
            let count = match moved.then(|| instruction.get::<AccessType>()) {
                Some(AccessType::B64) => 2,
                Some(AccessType::B128 | AccessType::UB128) => 4,
                _ => 1,
            };
            (0..count).map(|more| reg.0.saturating_add(more)).collect()
        }
        Operand::Address(address) if address.base != Reg::ZERO => {
            let high = address.wide.then(|| address.base.0.saturating_add(1));
            [address.base.0].into_iter().chain(high).collect()
        }
        _ => Vec::new(),
    }
}

impl Scoreboards {
    /// Looks at a step, and names the registers that it should have waited for.
    pub fn step(&mut self, step: &Step<'_>, instruction: &Instruction, control: Control) -> Vec<String> {
        let pending = self.pending.entry((step.cta, step.warp)).or_default();
        for (number, registers) in pending.iter_mut().enumerate() {
            if control.wait_mask() >> number & 1 == 1 {
                registers.clear();
            }
        }
        let mut missed = Vec::new();
        if step.lanes == 0 {
            return missed;
        }
        let mut results = Vec::new();
        for (role, operand) in instruction.operands() {
            for register in registers(instruction, role, operand) {
                if pending.iter().any(|registers| registers.contains(&register)) {
                    missed.push(format!("R{register}"));
                    // Told once: what follows from it is not.
                    pending.iter_mut().for_each(|registers| registers.retain(|one| *one != register));
                }
                if role == Role::Dst {
                    results.push(register);
                }
            }
        }
        if let Some(registers) = pending.get_mut(usize::from(control.write_scoreboard())) {
            registers.extend(results);
        }
        missed.dedup();
        missed
    }
}
