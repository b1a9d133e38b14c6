//! Instances that access memory: each thread has 32 bytes of global, of shared and of local memory for
//! itself, so that no address can be out of bounds and none is another thread's.
//!
//! A window is filled with operands before an instance. What is in it afterwards is a result, if the instance
//! can have changed it.

use gpuvmk_isa::modifier::{AccessType, AtomicType, CasMode};
use gpuvmk_isa::{
    Address, Arch, Instruction, Kind, Opcode as O, Operand, Pred, Reg, Role, UReg, Word, decode,
};

use crate::instance::{READ, RESULT, RESULT_PREDICATE};
use crate::random::Random;
use crate::template as t;

/// Bytes of a window, and words.
pub const SIZE: u32 = 32;
pub(crate) const WORDS: u8 = 8;

/// Bytes of shared memory before the windows: the first of a block are the system's.
const SHARED_BASE: u32 = 0x400;

/// Bytes of shared memory of a block of `threads`.
#[must_use]
pub const fn shared_size(threads: u32) -> u32 {
    SHARED_BASE + threads * SIZE
}

/// Bytes of local memory of a thread: its window lies in the middle.
pub const LOCAL_SIZE: u32 = 0x80;
const LOCAL_BASE: u32 = 0x20;

/// How far below a window some addresses are, to which a uniform register or an immediate is added.
const BELOW: u32 = 0x40;

/// Registers with addresses. Of pairs the first.
const GLOBAL: u8 = 40;
const GLOBAL_BELOW: u8 = 42;
const SHARED: u8 = 44;
const SHARED_OF_BLOCK: u8 = 45;
const SHARED_BY: [(u8, u8); 3] = [(4, 46), (8, 47), (16, 48)];
const LOCAL: u8 = 49;
const GENERIC_SHARED: u8 = 50;
const GENERIC_SHARED_BELOW: u8 = 52;
const GENERIC_LOCAL: u8 = 54;
const GENERIC_LOCAL_BELOW: u8 = 56;
const OF_GRID: u8 = 58;
const CONSTANT: u8 = 59;
const ZERO: u8 = 68;
const OF_THREAD: u8 = 69;
const BACK: u8 = 60;

/// Uniform registers that are added to them.
const UNIFORM_BELOW: u8 = 28;
const UNIFORM_GLOBAL: u8 = 24;
const UNIFORM_SHARED: u8 = 30;
const UNIFORM_LOCAL: u8 = 31;
const DESCRIPTOR: u8 = 60;

/// Offsets in constant bank 0 of addresses that the prologue reads.
const AT_GLOBAL: u16 = 0x200;
const AT_GLOBAL_BELOW: u16 = 0x1f8;
const AT_GENERIC_SHARED: u16 = 0x1f0;
const AT_GENERIC_SHARED_BELOW: u16 = 0x1e8;
const AT_GENERIC_LOCAL: u16 = 0x1e0;
const AT_GENERIC_LOCAL_BELOW: u16 = 0x1d8;
const AT_BELOW: u16 = 0x1d0;
const AT_SHARED: u16 = 0x1c8;
const AT_LOCAL: u16 = 0x1cc;

/// Constants that LDC and ULDC read: those that are random.
const CONSTANTS: (u32, u32) = (0x220, 0x400);
/// What LDC's register holds at most.
const CONSTANT_INDEX: u32 = 7 * 16;

/// Which window an instance uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// In global memory.
    Global,
    /// In shared memory.
    Shared,
    /// In local memory.
    Local,
}

/// Where a launch has its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Machine code.
    pub code: u64,
    /// What threads load.
    pub inputs: u64,
    /// What they store.
    pub outputs: u64,
    /// Windows of all threads in global memory.
    pub windows: u64,
    /// Variables.
    pub variables: u64,
    /// Generic addresses of shared and of local memory begin here.
    pub shared_window: u64,
    /// See above.
    pub local_window: u64,
}

/// Puts addresses into constant bank 0.
pub(crate) fn addresses(bank: &mut [u8], places: &Places) {
    let shared = places.shared_window.wrapping_add(SHARED_BASE.into());
    let local = places.local_window.wrapping_add(LOCAL_BASE.into());
    let below = u64::from(BELOW);
    let of_blocks = u64::from(SHARED_BASE) | u64::from(LOCAL_BASE) << 32;
    let numbers = [
        (AT_GLOBAL, places.windows),
        (AT_GLOBAL_BELOW, places.windows.wrapping_sub(below)),
        (AT_GENERIC_SHARED, shared),
        (AT_GENERIC_SHARED_BELOW, shared.wrapping_sub(below)),
        (AT_GENERIC_LOCAL, local),
        (AT_GENERIC_LOCAL_BELOW, local.wrapping_sub(below)),
        (AT_BELOW, below),
        (AT_SHARED, of_blocks),
    ];
    for (at, number) in numbers {
        let at = usize::from(at);
        if let Some(place) = bank.get_mut(at..at + 8) {
            place.copy_from_slice(&number.to_le_bytes());
        }
    }
}

/// Loads addresses into registers. `thread` has the number of the thread in the grid.
pub(crate) fn prologue(thread: u8) -> Vec<Word> {
    let mut words = vec![t::thread(OF_THREAD), t::move_immediate(ZERO, 0), t::wait()];
    for (to, at) in [(GLOBAL, AT_GLOBAL), (GLOBAL_BELOW, AT_GLOBAL_BELOW)] {
        words.extend([t::constant_pair(to, at), t::wait()]);
        words.push(t::wide_multiply_add(to, thread, SIZE, to));
    }
    for (to, at) in [(GENERIC_SHARED, AT_GENERIC_SHARED), (GENERIC_SHARED_BELOW, AT_GENERIC_SHARED_BELOW)] {
        words.extend([t::constant_pair(to, at), t::wait()]);
        words.push(t::wide_multiply_add(to, OF_THREAD, SIZE, to));
    }
    words.push(t::constant_pair(GENERIC_LOCAL, AT_GENERIC_LOCAL));
    words.push(t::constant_pair(GENERIC_LOCAL_BELOW, AT_GENERIC_LOCAL_BELOW));
    words.push(t::move_immediate(SHARED, SHARED_BASE));
    words.push(t::multiply_add(SHARED, OF_THREAD, SIZE, SHARED));
    words.push(t::multiply_add(SHARED_OF_BLOCK, OF_THREAD, SIZE, ZERO));
    for (by, to) in SHARED_BY {
        words.push(t::move_immediate(to, SHARED_BASE / u32::from(by)));
        words.push(t::multiply_add(to, OF_THREAD, SIZE / u32::from(by), to));
    }
    words.push(t::move_immediate(LOCAL, LOCAL_BASE));
    words.push(t::multiply_add(OF_GRID, thread, SIZE, ZERO));
    words.push(t::and_immediate(CONSTANT, thread, 7));
    words.push(t::multiply_add(CONSTANT, CONSTANT, 16, ZERO));
    for (to, at) in [
        (UNIFORM_GLOBAL, AT_GLOBAL),
        (UNIFORM_GLOBAL + 1, AT_GLOBAL + 4),
        (UNIFORM_BELOW, AT_BELOW),
        (UNIFORM_BELOW + 1, AT_BELOW + 4),
        (UNIFORM_SHARED, AT_SHARED),
        (UNIFORM_LOCAL, AT_LOCAL),
    ] {
        words.push(t::uniform_constant(to, at));
    }
    words.push(t::wait());
    words
}

/// Fills a window.
fn fill(window: Window) -> Vec<Word> {
    let halves = [(0, READ.0), (16, READ.0 + 4)];
    let mut words: Vec<Word> = halves
        .into_iter()
        .map(|(offset, from)| match window {
            Window::Global => t::store_four(GLOBAL, offset, from),
            Window::Shared => t::store_shared(SHARED, offset, from),
            Window::Local => t::store_local(LOCAL, offset, from),
        })
        .collect();
    words.push(t::wait());
    words
}

/// What has to be done before an instance, and behind it until it has ended.
pub(crate) fn around(opcode: O, window: Option<Window>) -> (Vec<Word>, Vec<Word>) {
    let mut words: Vec<Word> = window.into_iter().flat_map(fill).collect();
    let copies = opcode == O::Ldgsts;
    if copies {
        words.extend(fill(Window::Global));
    }
    (words, if copies { t::copied() } else { Vec::new() })
}

/// Reads it back; the first register that has it.
pub(crate) fn read_back(window: Window) -> (Vec<Word>, u8) {
    let halves = [(0, BACK), (16, BACK + 4)];
    let mut words: Vec<Word> = halves
        .into_iter()
        .map(|(offset, to)| match window {
            Window::Global => t::load(to, GLOBAL, offset),
            Window::Shared => t::load_shared(to, SHARED, offset),
            Window::Local => t::load_local(to, LOCAL, offset),
        })
        .collect();
    words.push(t::wait());
    (words, BACK)
}

const LOADS: &[O] = &[O::Ldg, O::Ld, O::Lds, O::Ldl, O::Ldsm, O::Qspc];
const STORES: &[O] = &[O::Stg, O::St, O::Sts, O::Stl, O::Stsm, O::Ldgsts];
const ATOMICS: &[O] =
    &[O::Atomg, O::AtomgCas, O::Atom, O::AtomCas, O::Atoms, O::AtomsCas, O::AtomsPopcInc, O::Redg];

/// True for an operation that accesses memory.
#[must_use]
pub fn accesses(opcode: O) -> bool {
    [LOADS, STORES, ATOMICS].iter().any(|some| some.contains(&opcode)) || reads_constants(opcode)
}

/// True for one that reads constant banks by an address.
pub(crate) fn reads_constants(opcode: O) -> bool {
    matches!(opcode, O::Ldc | O::Uldc)
}

/// True for one that changes memory.
pub(crate) fn changes(opcode: O) -> bool {
    STORES.contains(&opcode) || ATOMICS.contains(&opcode)
}

/// The window of an instance.
pub(crate) fn of(instruction: &Instruction) -> Option<Window> {
    let Some(Operand::Address(address)) = instruction.operand(Role::Address) else { return None };
    let Reg(base) = address.base;
    Some(match base {
        GLOBAL..SHARED | OF_GRID => Window::Global,
        SHARED..LOCAL | GENERIC_SHARED..GENERIC_LOCAL => Window::Shared,
        LOCAL | ZERO | GENERIC_LOCAL..OF_GRID => Window::Local,
        _ => return None,
    })
}

/// Bytes that are accessed.
fn bytes(instruction: &Instruction) -> u32 {
    let opcode = instruction.opcode();
    match opcode {
        O::Ldsm | O::Stsm => 16,
        O::Qspc => 1,
        O::AtomsPopcInc => 4,
        _ if ATOMICS.contains(&opcode) => match instruction.get::<AtomicType>() {
            AtomicType::U64
            | AtomicType::S64
            | AtomicType::F64Rn
            | AtomicType::F16x4Rn
            | AtomicType::Bf16x4Rn
            | AtomicType::F32x2FtzRn
            | AtomicType::F32x2Rn => 8,
            AtomicType::F16x8Rn | AtomicType::Bf16x8Rn | AtomicType::F32x4FtzRn | AtomicType::F32x4Rn => 16,
            _ => 4,
        },
        _ => match instruction.get::<AccessType>() {
            AccessType::U8 | AccessType::S8 => 1,
            AccessType::U16 | AccessType::S16 => 2,
            AccessType::B32 => 4,
            AccessType::B64 => 8,
            AccessType::B128 | AccessType::UB128 => 16,
        },
    }
}

/// The word with registers, addresses and offsets that a program has. `None` where it is no such operation,
/// or has a form whose address cannot be kept in a window.
pub(crate) fn confined(arch: Arch, word: Word, random: &mut Random) -> Option<Word> {
    let mut instruction = decode(arch, word).ok()?;
    let opcode = instruction.opcode();
    if !accesses(opcode) {
        return None;
    }
    // It may fail though the values are equal: an H100 lets one lane of those that share a bank succeed.
    if matches!(instruction.get::<CasMode>(), CasMode::CastSpin) {
        return None;
    }
    // What is read through the cache of constant data must not have been written by the same grid.
    if instruction.to_string().contains(".CONSTANT") {
        return None;
    }
    let bytes = bytes(&instruction);
    let within = random.below(SIZE / bytes) * bytes;
    let operands: Vec<(Role, Operand)> = instruction.operands().collect();
    for (role, operand) in operands {
        let confined = match (role, operand) {
            (_, Operand::Reg(Reg(255), _)) => continue,
            (Role::Dst, Operand::Reg(_, modifiers)) => Operand::Reg(Reg(RESULT), modifiers),
            (Role::Dst, Operand::UReg(_, modifiers)) => {
                Operand::UReg(UReg(crate::instance::UNIFORM_RESULT), modifiers)
            }
            (Role::Data, Operand::Reg(_, modifiers)) => {
                let swaps = matches!(opcode, O::AtomgCas | O::AtomCas | O::AtomsCas);
                let held = READ.0 + u8::try_from(within / 4).ok()?;
                let other = READ.0 + 4 * u8::try_from(random.below(4)).ok()?;
                let same = random.once_in(2);
                Operand::Reg(Reg(if swaps && same { held } else { other }), modifiers)
            }
            (Role::C, Operand::Reg(_, modifiers)) => {
                Operand::Reg(Reg(READ.0 + 4 * u8::try_from(random.below(4)).ok()?), modifiers)
            }
            (Role::PDst0, Operand::Pred(Pred(7), _)) => continue,
            // Whether it is done: atomics on generic addresses, and questions after those.
            (Role::PDst0, Operand::Pred(_, negate)) => Operand::Pred(Pred(RESULT_PREDICATE), negate),
            (Role::Address, Operand::Address(address)) => {
                Operand::Address(of_window(&instruction, address, within, random)?)
            }
            (Role::Address2, Operand::Address(address)) => {
                // With .ZFILL any byte will do.
                let step = if instruction.flag(Kind::ZeroFill) { 1 } else { bytes };
                let offset = i32::try_from(random.below(SIZE / step) * step).ok()?;
                Operand::Address(Address {
                    base: Reg(GLOBAL),
                    descriptor: Some(UReg(DESCRIPTOR)),
                    offset,
                    ..address
                })
            }
            (Role::PSrc0, Operand::Pred(Pred(7), _)) => continue,
            (Role::PSrc0, Operand::Pred(_, negate)) => {
                Operand::Pred(Pred(u8::try_from(random.below(4)).ok()?), negate)
            }
            (Role::Address, Operand::Const { modifiers, .. }) => {
                Operand::Const { bank: 0, offset: u16::try_from(constant(bytes, 0, random)).ok()?, modifiers }
            }
            (Role::Address, Operand::ConstAt { base, .. }) => {
                let none = base == Reg::ZERO;
                let base = if none { base } else { Reg(CONSTANT) };
                let room = if none { 0 } else { CONSTANT_INDEX };
                Operand::ConstAt { bank: 0, base, offset: i32::try_from(constant(bytes, room, random)).ok()? }
            }
            _ => return None,
        };
        instruction = instruction.with_operand(role, confined);
    }
    instruction.encode()
}

/// An offset of random constants.
fn constant(bytes: u32, room: u32, random: &mut Random) -> u32 {
    CONSTANTS.0 + random.below((CONSTANTS.1 - CONSTANTS.0 - room) / bytes) * bytes
}

/// True for atomics that work everywhere but in local memory: integers of 32 bits.
fn is_plain(instruction: &Instruction) -> bool {
    matches!(instruction.get::<AtomicType>(), AtomicType::U32 | AtomicType::S32)
}

/// An address of the same form, `within` a window.
fn of_window(
    instruction: &Instruction,
    address: Address,
    within: u32,
    random: &mut Random,
) -> Option<Address> {
    let opcode = instruction.opcode();
    let near = i32::try_from(within).ok()?;
    let far = near + i32::try_from(BELOW).ok()?;
    let wide = address.wide || instruction.flag(Kind::E);
    let descriptor = address.descriptor.map(|_| UReg(DESCRIPTOR));
    let pick = |random: &mut Random, window: u8, below: u8| {
        if address.uniform.is_some() {
            (below, Some(UReg(UNIFORM_BELOW)), near)
        } else if random.once_in(2) {
            (below, None, far)
        } else {
            (window, None, near)
        }
    };
    let (base, uniform, offset) = match opcode {
        O::Ldg | O::Stg | O::Atomg | O::AtomgCas | O::Redg => {
            match (wide, address.uniform) {
                // Without .64 the register is added to 64 bits of the uniform ones.
                (true, Some(_)) if !address.wide => (OF_GRID, Some(UReg(UNIFORM_GLOBAL)), near),
                (true, _) => pick(random, GLOBAL, GLOBAL_BELOW),
                (false, _) => return None,
            }
        }
        O::Ld | O::St | O::Qspc | O::Atom | O::AtomCas => {
            if !wide || address.uniform.is_some() && !address.wide {
                return None;
            }
            // Without one a load is of shared memory of a cluster's blocks: elsewhere it is out of range.
            if opcode == O::Ld && address.descriptor.is_none() {
                return None;
            }
            // Those that cannot be done in shared memory have a predicate that says so.
            let is_told = matches!(instruction.operand(Role::PDst0), Some(Operand::Pred(Pred(0..=6), _)));
            let spaces = match opcode {
                O::Atom | O::AtomCas if !is_told && !is_plain(instruction) => 1,
                O::Atom | O::AtomCas if !is_told => 2,
                _ => 3,
            };
            match random.below(spaces) {
                0 => pick(random, GLOBAL, GLOBAL_BELOW),
                1 => pick(random, GENERIC_SHARED, GENERIC_SHARED_BELOW),
                _ => pick(random, GENERIC_LOCAL, GENERIC_LOCAL_BELOW),
            }
        }
        O::Lds | O::Sts | O::Atoms | O::AtomsCas | O::AtomsPopcInc | O::Ldsm | O::Stsm | O::Ldgsts => {
            if address.uniform.is_some() {
                if address.stride > 1 {
                    return None;
                }
                (SHARED_OF_BLOCK, Some(UReg(UNIFORM_SHARED)), near)
            } else if let Some((_, base)) = SHARED_BY.iter().find(|(by, _)| *by == address.stride) {
                (*base, None, near)
            } else {
                (SHARED, None, near)
            }
        }
        O::Ldl | O::Stl => match address.uniform {
            Some(_) => (ZERO, Some(UReg(UNIFORM_LOCAL)), near),
            None => (LOCAL, None, near - 16 * i32::from(random.once_in(4) && within >= 16)),
        },
        _ => return None,
    };
    Some(Address { base: Reg(base), uniform, descriptor, offset, ..address })
}
