//! Operands to and from the fields of a word: one place for both directions.

use crate::arch::Arch;
use crate::operand::{Address, Half, Operand, Pred, Reg, SourceModifiers, UPred, UReg};
use crate::row::{Form, Memory, Mods, Place, Slot, SlotKind};
use crate::word::{Bits, Word, uniform};

/// Where a source's modifiers are.
struct ModBits {
    neg: Bits,
    abs: Bits,
    half: Bits,
}

/// Bit that complements BRA's uniform register.
const BRANCH_NOT: Bits = Bits::new(30, 1);

const fn mod_bits(lo: u8, mods: Mods) -> ModBits {
    let packed = matches!(mods, Mods::Half);
    let (neg, abs, half) = match lo {
        24 => (72, 73, 74),
        32 => (63, 62, 60),
        _ => (if packed { 84 } else { 75 }, if packed { 83 } else { 74 }, 81),
    };
    let none = Bits::new(0, 0);
    ModBits {
        neg: match (mods, lo) {
            (Mods::None, _) => none,
            (Mods::Not, 24) => BRANCH_NOT,
            _ => Bits::new(neg, 1),
        },
        abs: if matches!(mods, Mods::NegAbs | Mods::Half) { Bits::new(abs, 1) } else { none },
        half: if packed { Bits::new(half, 2) } else { none },
    }
}

/// One operand's way into and out of a word, with the bits that it covers.
pub(crate) struct Codec {
    pub(crate) arch: Arch,
    pub(crate) form: &'static Form,
}

const OFFSET: Bits = Bits::new(38, 16);
const BANK: Bits = Bits::new(54, 5);

fn signed(value: u64, len: u8) -> i64 {
    let shift = 64 - u32::from(len);
    (value << shift).cast_signed() >> shift
}

fn zero_extended(value: u64, bits: Bits) -> u8 {
    let all = (1u64 << bits.len) - 1;
    if value == all { 255 } else { (value & 0xff) as u8 }
}

impl Codec {
    fn mods(word: Word, lo: u8, mods: Mods) -> SourceModifiers {
        let at = mod_bits(lo, mods);
        SourceModifiers {
            neg: word.get(at.neg) == 1,
            abs: word.get(at.abs) == 1,
            half: Half::ALL[usize::from(word.small(at.half) & 3)],
        }
    }

    fn put_mods(word: Word, lo: u8, mods: Mods, value: SourceModifiers) -> Word {
        let at = mod_bits(lo, mods);
        word.with(at.neg, value.neg.into()).with(at.abs, value.abs.into()).with(at.half, value.half as u64)
    }

    fn mods_mask(lo: u8, mods: Mods) -> u128 {
        let at = mod_bits(lo, mods);
        at.neg.mask() | at.abs.mask() | at.half.mask()
    }

    fn ureg(&self, word: Word, lo: u8) -> UReg {
        let at = uniform(lo, self.arch);
        UReg(zero_extended(word.get(at), at))
    }

    fn put_ureg(&self, word: Word, lo: u8, reg: UReg) -> Word {
        word.with(uniform(lo, self.arch), reg.0.into())
    }

    fn place(&self, slot: &Slot) -> Option<(Place, Mods)> {
        match slot.kind {
            SlotKind::FormB(mods) => Some((self.form.b, mods)),
            SlotKind::FormC(mods) => Some((self.form.c, mods)),
            _ => None,
        }
    }

    /// The slot as one that does not depend on the form.
    pub(crate) fn resolve(&self, slot: &Slot) -> SlotKind {
        match self.place(slot) {
            Some((Place::Low, mods)) => SlotKind::Reg(32, mods),
            Some((Place::High, mods)) => SlotKind::Reg(64, mods),
            Some((Place::Uniform, mods)) => SlotKind::UReg(32, mods),
            Some((Place::UniformHigh, mods)) => SlotKind::UReg(64, mods),
            _ => slot.kind,
        }
    }

    /// The operand of a slot.
    pub(crate) fn read(&self, word: Word, slot: &Slot) -> Option<Operand> {
        let bit = |lo: u8| word.get(Bits::new(lo, 1)) == 1;
        let three = |lo: u8| word.small(Bits::new(lo, 3));
        Some(match self.resolve(slot) {
            SlotKind::Reg(lo, mods) => {
                Operand::Reg(Reg(word.small(Bits::new(lo, 8))), Self::mods(word, lo, mods))
            }
            SlotKind::UReg(lo, mods) => Operand::UReg(self.ureg(word, lo), Self::mods(word, lo, mods)),
            SlotKind::FormB(mods) | SlotKind::FormC(mods) => match self.place(slot)?.0 {
                Place::Imm => Operand::Imm((word.get(Bits::new(32, 32)) & 0xffff_ffff) as u32),
                Place::Const => Operand::Const {
                    bank: word.small(BANK),
                    offset: (word.get(OFFSET) & 0xffff) as u16,
                    modifiers: Self::mods(word, 32, mods),
                },
                Place::Bindless => Operand::Bindless {
                    handle: self.ureg(word, 32),
                    offset: (word.get(OFFSET) & 0xffff) as u16,
                    modifiers: Self::mods(word, 32, mods),
                },
                _ => return None,
            },
            SlotKind::Pred(lo, not) => Operand::Pred(Pred(three(lo)), not.is_some_and(bit)),
            SlotKind::UPred(lo, not) => Operand::UPred(UPred(three(lo)), not.is_some_and(bit)),
            SlotKind::Unsigned(at) => Operand::Number(word.get(at).cast_signed()),
            SlotKind::SplitTable => {
                let table = (word.get(Bits::new(72, 5)) << 3) | word.get(Bits::new(64, 3));
                Operand::Number(table.cast_signed())
            }
            SlotKind::Barrier(lo) => Operand::Barrier(word.small(Bits::new(lo, 4))),
            SlotKind::WarpState(lo) => Operand::Barrier(word.small(Bits::new(lo, 8))),
            SlotKind::Special(lo) => Operand::Special(word.small(Bits::new(lo, 8))),
            SlotKind::Target48 => Operand::Target(signed(word.get(Bits::new(34, 48)), 48) * 4),
            SlotKind::Target56 => {
                let high = signed(word.get(Bits::new(34, 48)), 48) << 8;
                Operand::Target((high | i64::from(word.small(Bits::new(16, 8)))) * 4)
            }
            SlotKind::Absolute56 => {
                let address = word.get(Bits::new(34, 48)) << 8 | u64::from(word.small(Bits::new(16, 8)));
                Operand::Absolute(address << 2)
            }
            SlotKind::Target58 => Operand::Target(signed(word.get(Bits::new(24, 58)), 58)),
            SlotKind::Target30 => Operand::Target(signed(word.get(Bits::new(34, 30)), 30) * 4),
            SlotKind::Memory(memory) => self.read_memory(word, &memory),
            SlotKind::ConstMemory => Operand::ConstAt {
                bank: word.small(BANK),
                base: Reg(word.small(Bits::new(24, 8))),
                offset: offset(signed(word.get(OFFSET), 16)),
            },
            SlotKind::ConstMemoryUniform(at) => Operand::ConstAtUniform {
                bank: word.small(BANK),
                base: self.ureg(word, 24),
                offset: offset(signed(word.get(at), at.len)),
            },
            SlotKind::ConstPlain => Operand::Const {
                bank: word.small(BANK),
                offset: (word.get(OFFSET) & 0xffff) as u16,
                modifiers: SourceModifiers::default(),
            },
            SlotKind::BindlessMemory => Operand::BindlessAt {
                handle: self.ureg(word, 24),
                base: Reg(word.small(Bits::new(64, 8))),
                offset: offset(signed(word.get(OFFSET), 16)),
            },
            SlotKind::BindlessPlain => Operand::Bindless {
                handle: self.ureg(word, 24),
                offset: (word.get(OFFSET) & 0xffff) as u16,
                modifiers: SourceModifiers::default(),
            },
        })
    }

    fn read_memory(&self, word: Word, memory: &Memory) -> Operand {
        let base = memory.base.map_or(Reg::ZERO, |lo| Reg(word.small(Bits::new(lo, 8))));
        Operand::Address(Address {
            base,
            wide: memory.wide.is_some_and(|lo| word.get(Bits::new(lo, 1)) == 1),
            uniform: memory.uniform.map(|lo| self.ureg(word, lo)),
            descriptor: memory.descriptor.map(|lo| self.ureg(word, lo)),
            offset: if memory.offset.len == 0 {
                0
            } else {
                offset(signed(word.get(memory.offset), memory.offset.len))
            },
            stride: [1, 4, 8, 16][memory.stride.map_or(0, |at| usize::from(word.small(at) & 3))],
        })
    }

    /// The word with an operand in its fields; `None` when the slot cannot hold it.
    pub(crate) fn write(&self, word: Word, slot: &Slot, operand: Operand) -> Option<Word> {
        let not_bit = |word: Word, at: Option<u8>, not: bool| {
            at.map_or(word, |lo| word.with(Bits::new(lo, 1), not.into()))
        };
        Some(match (self.resolve(slot), operand) {
            (SlotKind::Reg(lo, mods), Operand::Reg(reg, value)) => {
                Self::put_mods(word.with(Bits::new(lo, 8), reg.0.into()), lo, mods, value)
            }
            (SlotKind::UReg(lo, mods), Operand::UReg(reg, value)) => {
                Self::put_mods(self.put_ureg(word, lo, reg), lo, mods, value)
            }
            (SlotKind::FormB(_) | SlotKind::FormC(_), Operand::Imm(bits)) => {
                word.with(Bits::new(32, 32), bits.into())
            }
            (SlotKind::FormB(mods) | SlotKind::FormC(mods), Operand::Const { bank, offset, modifiers }) => {
                let word = word.with(BANK, bank.into()).with(OFFSET, offset.into());
                Self::put_mods(word, 32, mods, modifiers)
            }
            (
                SlotKind::FormB(mods) | SlotKind::FormC(mods),
                Operand::Bindless { handle, offset, modifiers },
            ) => {
                let word = self.put_ureg(word, 32, handle).with(OFFSET, offset.into());
                Self::put_mods(word, 32, mods, modifiers)
            }
            (SlotKind::Pred(lo, not), Operand::Pred(pred, negated)) => {
                not_bit(word.with(Bits::new(lo, 3), pred.0.into()), not, negated)
            }
            (SlotKind::UPred(lo, not), Operand::UPred(pred, negated)) => {
                not_bit(word.with(Bits::new(lo, 3), pred.0.into()), not, negated)
            }
            (SlotKind::Unsigned(at), Operand::Number(number)) => word.with(at, number.cast_unsigned()),
            (SlotKind::SplitTable, Operand::Number(number)) => {
                let table = number.cast_unsigned();
                word.with(Bits::new(72, 5), table >> 3).with(Bits::new(64, 3), table & 7)
            }
            (SlotKind::Barrier(lo), Operand::Barrier(number)) => word.with(Bits::new(lo, 4), number.into()),
            (SlotKind::WarpState(lo), Operand::Barrier(number)) => word.with(Bits::new(lo, 8), number.into()),
            (SlotKind::Special(lo), Operand::Special(number)) => word.with(Bits::new(lo, 8), number.into()),
            (SlotKind::Target48, Operand::Target(bytes)) => {
                word.with(Bits::new(34, 48), (bytes / 4).cast_unsigned())
            }
            (SlotKind::Target56, Operand::Target(bytes)) => {
                let words = (bytes / 4).cast_unsigned();
                word.with(Bits::new(34, 48), words >> 8).with(Bits::new(16, 8), words & 0xff)
            }
            (SlotKind::Absolute56, Operand::Absolute(address)) => {
                let words = address >> 2;
                word.with(Bits::new(34, 48), words >> 8).with(Bits::new(16, 8), words & 0xff)
            }
            (SlotKind::Target58, Operand::Target(bytes)) => {
                word.with(Bits::new(24, 58), bytes.cast_unsigned())
            }
            (SlotKind::Target30, Operand::Target(bytes)) => {
                word.with(Bits::new(34, 30), (bytes / 4).cast_unsigned())
            }
            (SlotKind::Memory(memory), Operand::Address(address)) => {
                self.write_memory(word, &memory, &address)?
            }
            (SlotKind::ConstMemory, Operand::ConstAt { bank, base, offset }) => word
                .with(BANK, bank.into())
                .with(Bits::new(24, 8), base.0.into())
                .with(OFFSET, i64::from(offset).cast_unsigned()),
            (SlotKind::ConstMemoryUniform(at), Operand::ConstAtUniform { bank, base, offset }) => self
                .put_ureg(word.with(BANK, bank.into()), 24, base)
                .with(at, i64::from(offset).cast_unsigned()),
            (SlotKind::ConstPlain, Operand::Const { bank, offset, .. }) => {
                word.with(BANK, bank.into()).with(OFFSET, offset.into())
            }
            (SlotKind::BindlessMemory, Operand::BindlessAt { handle, base, offset }) => self
                .put_ureg(word, 24, handle)
                .with(Bits::new(64, 8), base.0.into())
                .with(OFFSET, i64::from(offset).cast_unsigned()),
            (SlotKind::BindlessPlain, Operand::Bindless { handle, offset, .. }) => {
                self.put_ureg(word, 24, handle).with(OFFSET, offset.into())
            }
            _ => return None,
        })
    }

    fn write_memory(&self, mut word: Word, memory: &Memory, address: &Address) -> Option<Word> {
        if let Some(lo) = memory.base {
            word = word.with(Bits::new(lo, 8), address.base.0.into());
        }
        if let Some(lo) = memory.wide {
            word = word.with(Bits::new(lo, 1), address.wide.into());
        }
        if let (Some(lo), Some(reg)) = (memory.uniform, address.uniform) {
            word = self.put_ureg(word, lo, reg);
        }
        if let (Some(lo), Some(reg)) = (memory.descriptor, address.descriptor) {
            word = self.put_ureg(word, lo, reg);
        }
        if memory.offset.len != 0 {
            word = word.with(memory.offset, i64::from(address.offset).cast_unsigned());
        }
        if let Some(at) = memory.stride {
            let code = [1, 4, 8, 16].iter().position(|stride| *stride == address.stride)?;
            word = word.with(at, code as u64);
        }
        Some(word)
    }

    /// The bits that a slot covers.
    pub(crate) fn mask(&self, slot: &Slot) -> u128 {
        let bit = |at: Option<u8>| at.map_or(0, |lo| Bits::new(lo, 1).mask());
        let constant = BANK.mask() | OFFSET.mask();
        match self.resolve(slot) {
            SlotKind::Reg(lo, mods) => Bits::new(lo, 8).mask() | Self::mods_mask(lo, mods),
            SlotKind::UReg(lo, mods) => uniform(lo, self.arch).mask() | Self::mods_mask(lo, mods),
            SlotKind::FormB(mods) | SlotKind::FormC(mods) => match self.place(slot) {
                Some((Place::Imm, _)) => Bits::new(32, 32).mask(),
                Some((Place::Const, _)) => constant | Self::mods_mask(32, mods),
                Some((Place::Bindless, _)) => {
                    OFFSET.mask() | uniform(32, self.arch).mask() | Self::mods_mask(32, mods)
                }
                _ => 0,
            },
            SlotKind::Pred(lo, not) | SlotKind::UPred(lo, not) => Bits::new(lo, 3).mask() | bit(not),
            SlotKind::Unsigned(at) => at.mask(),
            SlotKind::SplitTable => Bits::new(72, 5).mask() | Bits::new(64, 3).mask(),
            SlotKind::Barrier(lo) => Bits::new(lo, 4).mask(),
            SlotKind::WarpState(lo) | SlotKind::Special(lo) => Bits::new(lo, 8).mask(),
            SlotKind::Target48 => Bits::new(34, 48).mask(),
            SlotKind::Target56 | SlotKind::Absolute56 => Bits::new(34, 48).mask() | Bits::new(16, 8).mask(),
            SlotKind::Target58 => Bits::new(24, 58).mask(),
            SlotKind::Target30 => Bits::new(34, 30).mask(),
            SlotKind::Memory(memory) => {
                let register = |at: Option<u8>| at.map_or(0, |lo| uniform(lo, self.arch).mask());
                memory.base.map_or(0, |lo| Bits::new(lo, 8).mask())
                    | bit(memory.wide)
                    | register(memory.uniform)
                    | register(memory.descriptor)
                    | memory.offset.mask()
                    | memory.stride.map_or(0, Bits::mask)
            }
            SlotKind::ConstMemory => constant | Bits::new(24, 8).mask(),
            SlotKind::ConstMemoryUniform(at) => BANK.mask() | at.mask() | uniform(24, self.arch).mask(),
            SlotKind::ConstPlain => constant,
            SlotKind::BindlessMemory => {
                OFFSET.mask() | uniform(24, self.arch).mask() | Bits::new(64, 8).mask()
            }
            SlotKind::BindlessPlain => OFFSET.mask() | uniform(24, self.arch).mask(),
        }
    }
}

/// Offsets have 24 bits at most.
fn offset(value: i64) -> i32 {
    i32::try_from(value).unwrap_or_default()
}
