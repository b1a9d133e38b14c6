//! Machine code of NVIDIA's shader processors, SM75 to SM120, as data.
//!
//! One table (`table`) says of each operation its code, forms, operands and modifiers with their fields
//! and the versions that have it. [`decode`], [`Instruction::encode`] and [`Instruction`]'s `Display` (the
//! dialect of NVIDIA's disassembler) all work from it. A set bit that the table does not account for makes
//! a word [`Illegal`].
//!
//! What an executor takes: [`decode`] gives an [`Instruction`] with its [`Opcode`], its [`Guard`], its
//! operands by [`Role`] as [`Operand`]s ([`Reg`], [`UReg`], [`Pred`], [`UPred`], [`Address`] and others),
//! flags ([`Instruction::flag`] with a [`Kind`]) and typed modifiers ([`Instruction::get`]:
//! [`modifier::Rounding`], [`modifier::Compare`], [`modifier::FloatCompare`], [`modifier::BoolOp`],
//! [`modifier::NumberType`], [`modifier::AccessType`], [`modifier::AtomicOp`], [`modifier::Order`] and so
//! on). Scheduling bits ([`Control`]) have no architectural meaning.
//!
//! Sources: Mesa's NAK (facts of its encoder), words compiled from our own kernels, and what NVIDIA's
//! disassembler prints of words.

mod arch;
mod codec;
mod decode;
mod dsl;
mod encode;
mod index;
mod instruction;
pub mod modifier;
mod opcode;
mod operand;
pub mod print;
mod row;
mod table;
pub mod warp_state;
mod word;

pub use arch::Arch;
pub use decode::{Illegal, decode};
pub use index::codes;
pub use instruction::{Guard, Instruction, MAX_OPERANDS};
pub use modifier::{Kind, Modifier};
pub use opcode::Opcode;
pub use operand::{Address, Half, Operand, Pred, Reg, Role, SourceModifiers, UPred, UReg};
pub use row::{Field, Form, Mods, Number, Place, Row, Slot};
pub use word::{Bits, Code, Control, Word};
