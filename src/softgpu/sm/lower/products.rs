//! Products of matrices, and of parts of words.

use gpuvmk_isa::modifier::{MatrixShape, NumberType, SecondType};
use gpuvmk_isa::{Instruction, Kind, Opcode as O};

use super::formats::result_format;
use crate::numerics::format::Format;
use crate::op::{Detail, Dot, Elements, Matrix, Op};

/// Products of matrices, and of bytes.
pub(super) fn of_products(instruction: &Instruction, op: &Op) -> Option<Detail> {
    let bytes = |kind: NumberType| match kind {
        NumberType::U4 => (4, false),
        NumberType::S4 => (4, true),
        NumberType::S8 | NumberType::S16 => (8, true),
        _ => (8, false),
    };
    let second = matches!(instruction.get(), SecondType::S8 | SecondType::S4);
    let (rows, depth) = match instruction.get::<MatrixShape>() {
        MatrixShape::S1684 => (16, 4),
        MatrixShape::S1688 => (16, 8),
        MatrixShape::S16816 => (16, 16),
        MatrixShape::S16832 => (16, 32),
        MatrixShape::S16864 => (16, 64),
        MatrixShape::S8816 => (8, 16),
        MatrixShape::S8832 => (8, 32),
    };
    let elements = match op.opcode {
        O::Hmma => Elements::Floats {
            factors: match instruction.get::<NumberType>() {
                NumberType::Bf16 => Format::BFLOAT,
                NumberType::Tf32 => Format::TENSOR,
                _ => Format::HALF,
            },
            accumulator: result_format(instruction.get())?,
        },
        O::Imma => {
            let (bits, first) = bytes(instruction.get());
            Elements::Integers { bits, signed: (first, second), saturate: instruction.flag(Kind::SatInt) }
        }
        O::Idp4a | O::Idp2a | O::Idp2aHi => {
            let (_, first) = bytes(instruction.get());
            return Some(Detail::Dot(Dot {
                bytes: op.opcode as u8 == O::Idp4a as u8,
                high: op.opcode as u8 == O::Idp2aHi as u8,
                signed: (first, second),
            }));
        }
        O::Movm | O::Bmma | O::Dmma => return Some(Detail::None),
        _ => return None,
    };
    Some(Detail::Matrix(Matrix { rows, depth, elements }))
}
