//! Modifiers of instructions, with their types.

use gpuvmk_isa::modifier::{
    AccessType, BoolOp, Compare, Direction, FloatCompare, IntegerRounding, Mufu, NumberType, Permute,
    ResultType, Scale, ShiftType,
};
use gpuvmk_isa::modifier::{AtomicOp, AtomicType, CasMode, MatrixCount, MatrixLoad, Space as AskedSpace};
use gpuvmk_isa::{Arch, Instruction, Kind, Opcode as O, Operand, Role};

use super::Lower;
use super::control::{number, of_control, signed};
use super::formats::result_format;
use super::phases::phased;
use super::products::of_products;
use crate::fault::Cause;
use crate::numerics::convert::{self, Integer};
use crate::numerics::format::Format;
use crate::numerics::integer::{self, Funnel};
use crate::numerics::mufu::Function;
use crate::numerics::rounding::Rounding;
use crate::numerics::{float, half};
use crate::op::{Detail, Op, Space, TRUE, Unit, ZERO_ROW};

fn rounding(instruction: &Instruction) -> Rounding {
    let integer = instruction.get::<IntegerRounding>() as u32;
    if integer == 0 { Rounding::of(instruction.rounding() as u32) } else { Rounding::of(integer) }
}

fn float_mode(instruction: &Instruction) -> float::Mode {
    float::Mode {
        rounding: rounding(instruction),
        flush: instruction.flag(Kind::Ftz),
        zero_wins: instruction.flag(Kind::Fmz),
        saturate: instruction.flag(Kind::Sat),
    }
}

fn half_mode(instruction: &Instruction) -> half::Mode {
    // Both together are none of them, but OOB.
    let both = instruction.flag(Kind::Ftz) && instruction.flag(Kind::Fmz);
    let (flush, zero_wins) = match (instruction.flag(Kind::Ftz), instruction.flag(Kind::Fmz)) {
        (true, true) => (false, false),
        either => either,
    };
    half::Mode {
        format: if instruction.flag(Kind::Bf16V2) { Format::BFLOAT } else { Format::HALF },
        single: instruction.flag(Kind::ResultF32),
        flush,
        saturate: instruction.flag(Kind::Sat),
        relu: instruction.flag(Kind::Relu),
        zero_wins,
        outside: both,
    }
}

/// Signed, unless the instruction says otherwise.
const fn scale(scale: Scale) -> i8 {
    match scale {
        Scale::None => 0,
        Scale::D2 => -1,
        Scale::D4 => -2,
        Scale::D8 => -3,
        Scale::M2 => 1,
        Scale::M4 => 2,
        Scale::M8 => 3,
    }
}

const fn unit(access: AccessType) -> Unit {
    match access {
        AccessType::U8 => Unit::Small(1, false),
        AccessType::S8 => Unit::Small(1, true),
        AccessType::U16 => Unit::Small(2, false),
        AccessType::S16 => Unit::Small(2, true),
        AccessType::B32 => Unit::Words(1),
        AccessType::B64 => Unit::Words(2),
        AccessType::B128 | AccessType::UB128 => Unit::Words(4),
    }
}

/// True for a load that reaches the shared memory of a cluster's blocks alone, as an H200 has it: LD of
/// Hopper and later without a descriptor.
fn is_of_cluster(instruction: &Instruction) -> bool {
    let Some(Operand::Address(address)) = instruction.operand(Role::Address) else { return false };
    instruction.opcode() == O::Ld && instruction.arch() >= Arch::Sm90 && address.descriptor.is_none()
}

const fn space(opcode: O) -> Option<Space> {
    Some(match opcode {
        O::Ldg | O::Stg | O::Atomg | O::AtomgCas | O::Red | O::Redg => Space::Global,
        O::Ld | O::St | O::Atom | O::AtomCas | O::Qspc => Space::Generic,
        O::Lds | O::Sts | O::Atoms | O::AtomsCas | O::AtomsPopcInc | O::Ldsm | O::Stsm => Space::Shared,
        O::AtomsArrive | O::SyncsExch | O::SyncsArrive | O::SyncsPhasechk => Space::Shared,
        O::Ldl | O::Stl => Space::Local,
        _ => return None,
    })
}

/// The format of a float's type.
const fn format(number: NumberType) -> Option<Format> {
    Some(match number {
        NumberType::F16 => Format::HALF,
        NumberType::Bf16 => Format::BFLOAT,
        NumberType::F64 => Format::DOUBLE,
        NumberType::F32 | NumberType::None => Format::SINGLE,
        _ => return None,
    })
}

const fn integer(number: NumberType) -> Option<Integer> {
    let (bits, signed) = match number {
        NumberType::U8 => (8, false),
        NumberType::S8 => (8, true),
        NumberType::U16 => (16, false),
        NumberType::S16 => (16, true),
        NumberType::U32 => (32, false),
        NumberType::S32 | NumberType::None => (32, true),
        NumberType::U64 => (64, false),
        NumberType::S64 => (64, true),
        _ => return None,
    };
    Some(Integer { bits, signed })
}

const fn result_integer(number: ResultType) -> Option<Integer> {
    let (bits, signed) = match number {
        ResultType::U8 => (8, false),
        ResultType::S8 => (8, true),
        ResultType::U16 => (16, false),
        ResultType::S16 => (16, true),
        ResultType::U32 => (32, false),
        ResultType::S32 | ResultType::None => (32, true),
        ResultType::U64 => (64, false),
        ResultType::S64 => (64, true),
        _ => return None,
    };
    Some(Integer { bits, signed })
}

impl Lower<'_> {
    /// The modifiers of an instruction, whose operands are in `op`: those of memory are put there.
    pub(super) fn detail(&mut self, instruction: &Instruction, op: &mut Op) -> Result<Detail, Cause> {
        let not_executed = Cause::NotExecuted(op.opcode);
        if matches!(op.opcode, O::F2f) && number(instruction, Role::Table) == 1 {
            op.b.swizzle = half::Swizzle::H1H1;
        }
        if let Some(detail) = self.of_memory(instruction, op)? {
            return Ok(detail);
        }
        if let Some(detail) = of_integers(instruction, op) {
            return Ok(detail);
        }
        if let Some(detail) = of_floats(instruction, op) {
            return Ok(detail);
        }
        if let Some(detail) = of_products(instruction, op) {
            return Ok(detail);
        }
        of_control(instruction, op).ok_or(not_executed)
    }

    fn of_memory(&mut self, instruction: &Instruction, op: &mut Op) -> Result<Option<Detail>, Cause> {
        let access = unit(instruction.get());
        if op.opcode == O::Ldgsts {
            return self.of_copy(instruction, op).map(Some);
        }
        if let Some(space) = space(op.opcode) {
            let not_executed = Cause::NotExecuted(op.opcode);
            let (base, mut place) =
                self.address(instruction.operand(Role::Address), space)?.ok_or(not_executed)?;
            // Global and generic addresses have 64 bits with .E.
            place.wide |= instruction.flag(Kind::E) && matches!(space, Space::Global | Space::Generic);
            if is_of_cluster(instruction) {
                place.space = Space::Cluster;
            }
            op.a = base;
            op.b = self.source(instruction.operand(Role::Data), false)?;
            match op.opcode {
                O::AtomsPopcInc => {
                    op.b = self.source(Some(Operand::Imm(1)), false)?;
                    return Ok(Some(Detail::Atomic(place, AtomicOp::Add, AtomicType::U32, false)));
                }
                O::AtomsArrive | O::SyncsExch | O::SyncsArrive | O::SyncsPhasechk => {
                    let what = phased(instruction, op.opcode).ok_or(not_executed)?;
                    return Ok(Some(Detail::Phase(place, what)));
                }
                O::Ldsm | O::Stsm => {
                    let transposed = matches!(instruction.get(), MatrixLoad::Mt88);
                    return Ok(Some(Detail::Matrices(
                        place,
                        1 << instruction.get::<MatrixCount>() as u8,
                        transposed,
                    )));
                }
                // What it does to a register is not known.
                O::Qspc if op.d != ZERO_ROW => return Err(not_executed),
                O::Qspc => {
                    let asked = match instruction.get() {
                        // A block's own is part of its cluster's, and no block sees another one's.
                        AskedSpace::Shared | AskedSpace::Distributed => Space::Shared,
                        AskedSpace::Local => Space::Local,
                        AskedSpace::Generic | AskedSpace::Global => Space::Global,
                    };
                    return Ok(Some(Detail::Asked(place, asked)));
                }
                _ => {}
            }
            let atomic = matches!(
                op.opcode,
                O::Atomg | O::AtomgCas | O::Red | O::Redg | O::Atom | O::AtomCas | O::Atoms | O::AtomsCas
            );
            return Ok(Some(if atomic {
                let told = matches!(instruction.get::<CasMode>(), CasMode::CastSpin);
                Detail::Atomic(place, instruction.get(), instruction.get(), told)
            } else {
                Detail::Move(place, access)
            }));
        }
        if !matches!(op.opcode, O::Ldc | O::Uldc | O::Ldcu) {
            return Ok(None);
        }
        let detail = match instruction.operand(Role::Address) {
            Some(Operand::ConstAt { bank, base, offset }) => {
                op.a.row = self.register(base)?;
                Some(Detail::Constant(bank, offset, access))
            }
            Some(Operand::BindlessAt { base, offset, .. }) => {
                op.a.row = self.register(base)?;
                Some(Detail::Constant(0, offset, access))
            }
            Some(Operand::Bindless { offset, .. }) => Some(Detail::Constant(0, offset.into(), access)),
            Some(Operand::ConstAtUniform { bank, base, offset }) => {
                op.a.row = Self::uniform(base.0);
                Some(Detail::Constant(bank, offset, access))
            }
            Some(Operand::Const { bank, offset, .. }) => {
                Some(Detail::Constant(bank, i32::from(offset), access))
            }
            _ => None,
        };
        // Words that are known are sources as well.
        if let (Some(Detail::Constant(bank, offset, Unit::Words(1..=2))), ZERO_ROW) = (detail, op.a.row) {
            let word = |more| self.constants.word(bank, offset.cast_unsigned().wrapping_add(more));
            let words = [0, 4].map(word);
            (op.b.row, op.c.row) = (self.pool.row(words[0]), self.pool.row(words[1]));
        }
        Ok(detail)
    }
}

impl Lower<'_> {
    /// LDGSTS. The shared address is in `b`.
    fn of_copy(&mut self, instruction: &Instruction, op: &mut Op) -> Result<Detail, Cause> {
        let not_executed = Cause::NotExecuted(op.opcode);
        let fills = instruction.flag(Kind::ZeroFill);
        let conditional = op.from[0].index != TRUE || op.from[0].negate;
        let to = self.address(instruction.operand(Role::Address), Space::Shared)?;
        let from = self.address(instruction.operand(Role::Address2), Space::Global)?;
        let (Some((to_base, to)), Some((base, mut from)), true) = (to, from, fills || !conditional) else {
            return Err(not_executed);
        };
        from.wide = true;
        (op.a, op.b) = (base, to_base);
        match unit(instruction.get()) {
            Unit::Words(words) => Ok(Detail::Copy(from, to, words, fills)),
            Unit::Small(..) => Err(not_executed),
        }
    }
}

fn of_integers(instruction: &Instruction, op: &Op) -> Option<Detail> {
    let flag = |kind| instruction.flag(kind);
    Some(match op.opcode {
        O::Mov | O::Umov | O::Sel | O::Usel | O::Viadd | O::Popc | O::Upopc | O::Brev | O::Ubrev => {
            Detail::None
        }
        O::P2r | O::R2p | O::Iabs => Detail::None,
        O::Iadd3 | O::Uiadd3 => Detail::Integer { extended: flag(Kind::X), signed: false, high: false },
        O::Imad | O::ImadWide | O::ImadHi | O::Uimad | O::UimadWide | O::UimadHi => Detail::Integer {
            extended: flag(Kind::X),
            signed: signed(instruction),
            high: matches!(op.opcode, O::ImadHi | O::UimadHi),
        },
        O::Imnmx | O::Vimnmx | O::Uvimnmx | O::Viaddmnmx => {
            Detail::Integer { extended: false, signed: signed(instruction), high: false }
        }
        O::Lea | O::Ulea => Detail::Lea {
            shift: number(instruction, Role::Table),
            high: flag(Kind::Hi),
            extended: flag(Kind::X),
            signed: flag(Kind::Sx32),
        },
        O::Lop3 | O::Ulop3 => Detail::Table(number(instruction, Role::Table), 0, flag(Kind::Pand)),
        O::Plop3 | O::Uplop3 => {
            Detail::Table(number(instruction, Role::Table), number(instruction, Role::Table2), false)
        }
        O::Isetp | O::Uisetp => Detail::Compare {
            accepted: instruction.get::<Compare>() as u8,
            combine: instruction.get(),
            signed: signed(instruction),
            extended: flag(Kind::Ex),
            flush: false,
            number: false,
        },
        O::Shf | O::Ushf => {
            let what = instruction.get::<ShiftType>();
            Detail::Shift(Funnel {
                right: matches!(instruction.get::<Direction>(), Direction::Right),
                high: flag(Kind::Hi),
                wide: matches!(what, ShiftType::S64 | ShiftType::U64),
                signed: matches!(what, ShiftType::S64 | ShiftType::S32),
                wrap: flag(Kind::Wrap),
            })
        }
        O::Prmt | O::Uprmt => Detail::Permute(integer::Permute::of(instruction.get::<Permute>() as u32)?),
        O::Flo | O::Uflo => Detail::Bits(!matches!(instruction.get(), NumberType::U32), flag(Kind::Sh)),
        O::Bmsk | O::Ubmsk => Detail::Bits(false, flag(Kind::Wrap)),
        O::Sgxt | O::Usgxt => Detail::Bits(signed(instruction), flag(Kind::Wrap)),
        O::Vabsdiff => Detail::Bits(signed(instruction), false),
        // What it does with a third source then is not known.
        O::Vabsdiff4 if !flag(Kind::Acc) && op.c.row != ZERO_ROW => return None,
        O::Vabsdiff4 => Detail::Bits(false, flag(Kind::Acc)),
        O::VimnmxU16x2 | O::VimnmxS16x2 => {
            Detail::Integer { extended: false, signed: op.opcode as u8 == O::VimnmxS16x2 as u8, high: false }
        }
        _ => return None,
    })
}

fn of_floats(instruction: &Instruction, op: &Op) -> Option<Detail> {
    let flag = |kind| instruction.flag(kind);
    let compare = |accepted| Detail::Compare {
        accepted,
        combine: instruction.get(),
        signed: false,
        extended: false,
        flush: flag(Kind::Ftz),
        // FSET gives 1.0, not all ones: the table has no other.
        number: op.opcode as u8 == O::Fset as u8,
    };
    Some(match op.opcode {
        O::Fadd | O::Fmul | O::Ffma | O::Fswzadd | O::Fsel | O::Fchk => {
            Detail::Float(float_mode(instruction), scale(instruction.get()))
        }
        O::Fmnmx | O::Hmnmx2 => Detail::Extreme(
            half_mode(instruction),
            float::Extreme { nan_wins: flag(Kind::Nan), signs: flag(Kind::XorSign) },
        ),
        O::Dsetp if matches!(instruction.get(), FloatCompare::Min | FloatCompare::Max) => {
            Detail::Pick(matches!(instruction.get(), FloatCompare::Max), instruction.get())
        }
        O::Fset | O::Fsetp | O::Dsetp => compare(instruction.get::<FloatCompare>() as u8),
        O::Mufu => Detail::Function(Function::of(instruction.get::<Mufu>() as u32)?, flag(Kind::F16)),
        O::Dadd | O::Dmul | O::Dfma => Detail::Double(rounding(instruction)),
        O::Hadd2 | O::Hfma2 | O::Hfma2Mma | O::Hmul2 => Detail::Half(half_mode(instruction)),
        O::Hsetp2 | O::Hset2 => Detail::HalfCompare(
            half_mode(instruction),
            instruction.get::<FloatCompare>() as u8,
            instruction.get::<BoolOp>(),
            flag(Kind::HAnd) || flag(Kind::Bf),
        ),
        O::F2f | O::Frnd => Detail::FloatFloat(
            format(instruction.get())?,
            if op.opcode as u8 == O::Frnd as u8 {
                format(instruction.get())?
            } else {
                result_format(instruction.get())?
            },
            float_mode(instruction),
        ),
        O::F2i => Detail::FloatInteger(
            format(instruction.get())?,
            result_integer(instruction.get())?,
            float_mode(instruction),
        ),
        O::I2f | O::I2fp => Detail::IntegerFloat(
            integer(instruction.get())?,
            result_format(instruction.get())?,
            rounding(instruction),
            // I2F takes a byte of its source, or a half.
            if integer(instruction.get())?.bits < 32 { number(instruction, Role::Table) * 8 } else { 0 },
        ),
        O::F2fp => Detail::Pack(convert::Pack {
            to: match instruction.get::<ResultType>() {
                ResultType::Bf16 => Format::BFLOAT,
                ResultType::F16 | ResultType::None => Format::HALF,
                _ => return None,
            },
            rounding: rounding(instruction),
            relu: flag(Kind::Relu),
            flush: flag(Kind::Ftz),
            finite: flag(Kind::SatFinite),
        }),
        _ => return None,
    })
}
