//! Instructions as text, in the dialect of NVIDIA's disassembler.

mod number;
mod rules;
mod special;

use std::fmt::{self, Write as _};

use crate::arch::Arch;
use crate::instruction::Instruction;
use crate::operand::{Address, Half, Operand, Pred, Reg, SourceModifiers, UPred, UReg};
use crate::row::{Number, Show, Slot};
use crate::warp_state;

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text(None)?.trim_end())
    }
}

/// Text of an instruction at an address: targets are absolute.
#[derive(Debug, Clone, Copy)]
pub struct At<'a>(pub &'a Instruction, pub u64);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.text(Some(self.1))?.trim_end())
    }
}

impl Instruction {
    fn text(&self, address: Option<u64>) -> Result<String, fmt::Error> {
        let mut f = String::new();
        if self.guard.pred != Pred::TRUE || self.guard.not {
            let not = if self.guard.not { "!" } else { "" };
            let file = if rules::guard_is_uniform(self) { "U" } else { "" };
            match self.guard.pred {
                Pred::TRUE => write!(f, "@{not}{file}PT ")?,
                Pred(number) => write!(f, "@{not}{file}P{number} ")?,
            }
        }
        f.push_str(&rules::mnemonic(self));
        let mut separator = " ";
        let mut before = None;
        for (slot, operand) in self.row.slots.iter().zip(self.operands) {
            let Some(operand) = operand else { continue };
            if !self.shows(slot, operand) {
                continue;
            }
            let text = self.operand_text(slot, operand, address);
            if let Some(previous) = before {
                separator = rules::separator(self, previous, slot.role);
            }
            write!(f, "{separator}{text}")?;
            if rules::prints_twice(self) {
                write!(f, ", {text}")?;
            }
            before = Some(slot.role);
        }
        Ok(f)
    }

    fn shows(&self, slot: &Slot, operand: Operand) -> bool {
        let neutral = matches!(operand, Operand::Pred(Pred(7), false) | Operand::UPred(UPred(7), false));
        let shown = match slot.show {
            Show::Always => true,
            Show::Used => !neutral,
            Show::UsedOrNew => !neutral || self.arch >= Arch::Sm100,
            Show::With(kind) => self.flag(kind),
            Show::Never => false,
        };
        shown && rules::shows(self, slot, operand)
    }

    fn operand_text(&self, slot: &Slot, operand: Operand, address: Option<u64>) -> String {
        let reuse = rules::reuse(slot.role, self.form) & self.control.reuse() != 0;
        let not = rules::negation(self);
        match operand {
            Operand::Reg(reg, mods) => {
                let reuse = if reuse { ".reuse" } else { "" };
                let suffix = rules::suffix(self, slot);
                wrapped(&register(reg), &format!("{reuse}{suffix}"), mods, not)
            }
            Operand::UReg(reg, mods) => wrapped(&uniform(reg), rules::suffix(self, slot), mods, not),
            Operand::Pred(Pred(7), negated) => format!("{}PT", bang(negated)),
            Operand::Pred(Pred(number), negated) => format!("{}P{number}", bang(negated)),
            Operand::UPred(UPred(7), negated) => format!("{}UPT", bang(negated)),
            Operand::UPred(UPred(number), negated) => format!("{}UP{number}", bang(negated)),
            Operand::Imm(bits) => self.immediate(bits),
            Operand::Number(number) => rules::number_text(self, slot, number),
            Operand::Const { bank, offset, modifiers } => {
                wrapped(&format!("c[{bank:#x}][{offset:#x}]"), "", modifiers, not)
            }
            Operand::Bindless { handle, offset, modifiers } => {
                wrapped(&format!("cx[{}][{offset:#x}]", uniform(handle)), "", modifiers, not)
            }
            Operand::BindlessAt { handle, base, offset } => {
                let base = (base != Reg::ZERO).then(|| register(base));
                bindless_memory(&uniform(handle), base, offset)
            }
            Operand::ConstAt { bank, base, offset } => {
                constant_memory(bank, (base != Reg::ZERO || offset == 0).then(|| register(base)), offset)
            }
            Operand::ConstAtUniform { bank, base, offset } => {
                constant_memory(bank, (base != UReg::ZERO).then(|| uniform(base)), offset)
            }
            Operand::Address(memory) => self.address_text(&memory),
            Operand::Barrier(number) => warp_state::name(number),
            Operand::Absolute(address) => format!("{address:#x}"),
            Operand::Special(number) => special::name(number),
            Operand::Target(distance) => match address {
                Some(at) => {
                    rules::target_text(self, at.wrapping_add(16).wrapping_add_signed(distance), distance)
                }
                None => number::signed(distance),
            },
        }
    }

    fn immediate(&self, bits: u32) -> String {
        match self.row.number {
            Number::Signed => number::signed(i64::from(bits.cast_signed())),
            Number::Bits => format!("{bits:#x}"),
            Number::Single => number::single(bits),
            Number::Double => number::double(bits),
            Number::Halves => number::halves(bits, rules::is_bfloat(self)),
        }
    }

    fn address_text(&self, memory: &Address) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut base = register(memory.base);
        if memory.stride > 1 {
            base = format!("{base}.X{}", memory.stride);
        }
        base.push_str(rules::base_suffix(self, memory));
        let uniform_part = rules::uniform_of_address(self, memory);
        if memory.base != Reg::ZERO
            || (uniform_part.is_none() && memory.offset == 0)
            || memory.descriptor.is_some()
        {
            parts.push(base);
        }
        if let Some(reg) = uniform_part {
            parts.push(reg);
        }
        if memory.offset != 0 {
            parts.push(number::signed(memory.offset.into()));
        }
        let inner = parts.join("+");
        let printed = memory.descriptor.filter(|_| self.arch >= Arch::Sm90);
        let descriptor = printed.map(|reg| format!("desc[{}]", uniform(reg))).unwrap_or_default();
        format!("{descriptor}[{inner}]")
    }
}

fn bindless_memory(handle: &str, base: Option<String>, offset: i32) -> String {
    match base {
        Some(base) if offset == 0 => format!("cx[{handle}][{base}]"),
        Some(base) => format!("cx[{handle}][{base}+{}]", number::signed(offset.into())),
        None => format!("cx[{handle}][{}]", number::signed(offset.into())),
    }
}

fn constant_memory(bank: u8, base: Option<String>, offset: i32) -> String {
    match base {
        Some(base) if offset == 0 => format!("c[{bank:#x}][{base}]"),
        Some(base) => format!("c[{bank:#x}][{base}+{}]", number::signed(offset.into())),
        None => format!("c[{bank:#x}][{}]", number::signed(offset.into())),
    }
}

const fn bang(not: bool) -> &'static str {
    if not { "!" } else { "" }
}

pub(crate) fn register(reg: Reg) -> String {
    if reg == Reg::ZERO { "RZ".to_owned() } else { format!("R{}", reg.0) }
}

pub(crate) fn uniform(reg: UReg) -> String {
    if reg == UReg::ZERO { "URZ".to_owned() } else { format!("UR{}", reg.0) }
}

fn wrapped(text: &str, suffix: &str, mods: SourceModifiers, not: &str) -> String {
    let half = match mods.half {
        Half::H1H0 => "",
        Half::F32 => ".F32",
        Half::H0H0 => ".H0_H0",
        Half::H1H1 => ".H1_H1",
    };
    let sign = if mods.neg { not } else { "" };
    let bar = if mods.abs { "|" } else { "" };
    format!("{sign}{bar}{text}{bar}{suffix}{half}")
}
