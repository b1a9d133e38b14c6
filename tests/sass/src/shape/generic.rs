//! Programs with generic addresses, which name global, shared or local memory by where they are: each thread
//! has bytes of its own in each of the three.

use gpuvmk_isa::{Address, Arch, Control, Operand, Pred, Reg, Role, UReg, Word, decode};

use super::assembler::{Assembler, FREE, THREAD};
use super::{AT_GLOBAL, AT_LOCAL, AT_SHARED};
use crate::template as t;

/// Four registers each.
const VALUES: u8 = FREE;
const OTHERS: u8 = FREE + 4;
const LOADED: u8 = FREE + 8;
/// Pairs with generic addresses.
const GLOBAL: u8 = FREE + 12;
const SHARED: u8 = FREE + 14;
const LOCAL: u8 = FREE + 16;
/// An address in shared memory, and in local memory.
const IN_SHARED: u8 = FREE + 18;
const IN_LOCAL: u8 = FREE + 19;
const OF_BLOCK: u8 = FREE + 20;
const FOUND: u8 = FREE + 21;
const RZ: u8 = 255;

/// The predicate by which an instruction tells something.
const TOLD: u8 = 4;

/// Bytes of a thread, and where those in shared and in local memory are.
const SIZE: u32 = 32;
const SHARED_BASE: u32 = 0x400;
const LOCAL_BASE: u32 = 0x20;
/// Bytes of local memory at its two ends.
const LOW: u32 = 0x80;
const HIGH: u32 = 0x80;

/// As a compiler writes them: LD.E.128, ST.E.128, QSPC.E.G, .S and .L; ATOM.E.ADD and .ADD.64, STRONG.GPU.
const LOAD: u128 = 0x0c10_1d00_0000_000c_0004_7980;
const STORE: u128 = 0x0c10_1d0c_0000_1004_0200_7985;
const IS_GLOBAL: u128 = 0x0000_0100_0000_0000_02ff_73aa;
const IS_SHARED: u128 = 0x0000_0500_0000_0000_02ff_73aa;
const IS_LOCAL: u128 = 0x0000_0300_0000_0000_02ff_73aa;
const IS_DISTRIBUTED: u128 = 0x0000_0700_0000_0000_02ff_73aa;
/// LD.E.128 without a descriptor: of shared memory of the cluster's blocks alone.
const LOAD_DISTRIBUTED: u128 = 0x0010_0d00_0000_0000_0004_7980;
const ADD: u128 = 0x081e_e1cc_0000_0011_0811_798a;
const ADD_64: u128 = 0x0810_e5cc_0000_0004_0804_798a;
/// ATOM.E.CAS, STRONG.GPU.
const SWAP: u128 = 0x001e_e10b_0000_000a_0815_738b;

/// The instruction with other operands: what it writes, its address, what it stores or adds.
fn with(template: u128, to: u8, base: u8, offset: i32, data: u8) -> Word {
    let Ok(mut instruction) = decode(Arch::Sm90, Word(template)) else { return Word(template) };
    let operands: Vec<(Role, Operand)> = instruction.operands().collect();
    for (role, operand) in operands {
        let other = match (role, operand) {
            (Role::Dst, Operand::Reg(Reg(RZ), _)) => continue,
            (Role::Dst, Operand::Reg(_, modifiers)) => Operand::Reg(Reg(to), modifiers),
            (Role::Data, Operand::Reg(_, modifiers)) => Operand::Reg(Reg(data), modifiers),
            (Role::C, Operand::Reg(_, modifiers)) => Operand::Reg(Reg(data + 1), modifiers),
            (Role::PDst0, Operand::Pred(Pred(7), _)) => continue,
            (Role::PDst0, Operand::Pred(_, negated)) => Operand::Pred(Pred(TOLD), negated),
            (Role::Address, Operand::Address(address)) => {
                let descriptor = address.descriptor.map(|_| UReg(60));
                Operand::Address(Address { base: Reg(base), descriptor, offset, ..address })
            }
            _ => continue,
        };
        instruction = instruction.with_operand(role, other);
    }
    instruction.encode().unwrap_or(Word(template))
}

fn load(asm: &mut Assembler, what: &str, base: u8, offset: i32) {
    asm.get(with(LOAD, LOADED, base, offset, RZ));
    stored(asm, what);
}

fn store(asm: &mut Assembler, base: u8, offset: i32, from: u8) {
    asm.put(with(STORE, RZ, base, offset, from).with_control(Control(t::reads(t::WAIT))));
    asm.put(t::wait());
}

/// Stores what was loaded.
fn stored(asm: &mut Assembler, what: &str) {
    for index in 0..4 {
        asm.store(&format!("{what}, word {index}"), LOADED + index);
    }
}

/// Values, and a thread's addresses of all three memories.
fn begin(asm: &mut Assembler) {
    asm.local(LOW, HIGH);
    asm.shared(SHARED_BASE + super::BLOCK * SIZE);
    for index in 0..4 {
        asm.put(t::multiply_add(VALUES + index, THREAD, 0x10_0001 + u32::from(index), THREAD));
        asm.put(t::multiply_add(OTHERS + index, THREAD, 0x7001 + u32::from(index), THREAD));
    }
    asm.get(t::thread(OF_BLOCK));
    for (pair, at) in [(GLOBAL, AT_GLOBAL), (SHARED, AT_SHARED), (LOCAL, AT_LOCAL)] {
        asm.get(t::constant_pair(pair, at));
    }
    asm.put(t::wide_multiply_add(GLOBAL, THREAD, SIZE, GLOBAL));
    asm.put(t::wide_multiply_add(SHARED, OF_BLOCK, SIZE, SHARED));
    asm.put(t::move_immediate(FOUND, 1));
    asm.put(t::wide_multiply_add(SHARED, FOUND, SHARED_BASE, SHARED));
    asm.put(t::wide_multiply_add(LOCAL, FOUND, LOCAL_BASE, LOCAL));
    asm.put(t::move_immediate(IN_SHARED, SHARED_BASE));
    asm.put(t::multiply_add(IN_SHARED, OF_BLOCK, SIZE, IN_SHARED));
    asm.put(t::move_immediate(IN_LOCAL, LOCAL_BASE));
    for offset in [0, 16] {
        asm.put(t::store_four(GLOBAL, offset, VALUES));
        asm.put(t::store_shared(IN_SHARED, offset, VALUES));
        asm.put(t::store_local(IN_LOCAL, offset, VALUES));
        asm.put(t::wait());
    }
}

/// Loads and stores in global memory.
pub(super) fn global(asm: &mut Assembler) {
    begin(asm);
    load(asm, "stored by STG", GLOBAL, 0);
    store(asm, GLOBAL, 16, OTHERS);
    load(asm, "stored by ST", GLOBAL, 16);
    asm.get(t::load(LOADED, GLOBAL, 16));
    stored(asm, "loaded by LDG");
}

/// Loads and stores in shared memory.
pub(super) fn shared(asm: &mut Assembler) {
    begin(asm);
    load(asm, "stored by STS", SHARED, 0);
    store(asm, SHARED, 16, OTHERS);
    load(asm, "stored by ST", SHARED, 16);
    asm.get(t::load_shared(LOADED, IN_SHARED, 16));
    stored(asm, "loaded by LDS");
}

/// Loads and stores in local memory.
pub(super) fn local(asm: &mut Assembler) {
    begin(asm);
    load(asm, "stored by STL", LOCAL, 0);
    store(asm, LOCAL, 16, OTHERS);
    load(asm, "stored by ST", LOCAL, 16);
    asm.get(t::load_local(LOADED, IN_LOCAL, 16));
    stored(asm, "loaded by LDL");
}

/// Local memory's upper end, where stacks are.
pub(super) fn local_high(asm: &mut Assembler) {
    begin(asm);
    asm.put(t::store_local(RZ, 0x40_u32.wrapping_neg(), VALUES));
    asm.put(t::wait());
    asm.put(t::wide_multiply_add(LOCAL, FOUND, 0x00ff_ffc0 - LOCAL_BASE, LOCAL));
    load(asm, "stored by STL", LOCAL, 0);
    store(asm, LOCAL, 16, OTHERS);
    asm.get(t::load_local(LOADED, RZ, 0x30_u32.wrapping_neg()));
    stored(asm, "loaded by LDL");
}

/// Offsets of both signs, of addresses that are in the same memory as what is accessed.
pub(super) fn offsets(asm: &mut Assembler) {
    begin(asm);
    for (what, pair) in [("global", GLOBAL), ("shared", SHARED), ("local", LOCAL)] {
        asm.put(t::wide_multiply_add(pair, FOUND, 16, pair));
        store(asm, pair, -16, OTHERS);
        load(asm, &format!("{what}, below"), pair, -16);
        load(asm, &format!("{what}, itself"), pair, 0);
        load(asm, &format!("{what}, below again"), pair, -16);
    }
}

/// Which memory an address is of.
pub(super) fn spaces(asm: &mut Assembler) {
    begin(asm);
    for (of, pair) in [("global", GLOBAL), ("shared", SHARED), ("local", LOCAL)] {
        for (what, question) in [
            ("global", IS_GLOBAL),
            ("shared", IS_SHARED),
            ("local", IS_LOCAL),
            ("distributed", IS_DISTRIBUTED),
        ] {
            asm.get(with(question, RZ, pair, 0, RZ));
            told(asm, &format!("{of}: is it {what}"));
        }
    }
}

/// Stores the predicate.
fn told(asm: &mut Assembler, what: &str) {
    asm.put(t::move_immediate(LOADED, 0));
    asm.put_if(TOLD, t::move_immediate(LOADED, 1));
    asm.store(what, LOADED);
}

fn atomics(asm: &mut Assembler, pair: u8) {
    asm.get(with(ADD, LOADED, pair, 0, OTHERS));
    asm.store("before an addition", LOADED);
    asm.put(t::move_register(OTHERS, VALUES + 1));
    asm.get(with(SWAP, LOADED, pair, 4, OTHERS));
    asm.store("before a swap", LOADED);
    asm.get(with(SWAP, LOADED, pair, 8, OTHERS));
    asm.store("before a swap that is none", LOADED);
}

/// Atomics in global memory.
pub(super) fn atomics_global(asm: &mut Assembler) {
    begin(asm);
    atomics(asm, GLOBAL);
    asm.get(t::load(LOADED, GLOBAL, 0));
    stored(asm, "after");
}

/// Atomics of 32 bits in shared memory.
pub(super) fn atomics_shared(asm: &mut Assembler) {
    begin(asm);
    atomics(asm, SHARED);
    asm.get(t::load_shared(LOADED, IN_SHARED, 0));
    stored(asm, "after");
}

/// Atomics of 64 bits, which tell whether they were done.
pub(super) fn atomics_told(asm: &mut Assembler) {
    begin(asm);
    for (what, pair) in [("global", GLOBAL), ("shared", SHARED), ("local", LOCAL)] {
        asm.put(t::move_immediate(LOADED, 0));
        asm.put(t::move_immediate(LOADED + 1, 0));
        asm.get(with(ADD_64, LOADED, pair, 0, OTHERS));
        asm.put(t::move_register(FOUND, LOADED));
        told(asm, &format!("{what}: done"));
        asm.store(&format!("{what}: before"), FOUND);
        asm.get(with(LOAD, LOADED, pair, 0, RZ));
        stored(asm, &format!("{what}: after"));
    }
}

/// A warp whose lanes have addresses of all three memories.
pub(super) fn lanes(asm: &mut Assembler) {
    begin(asm);
    for (predicate, pair) in [(0, SHARED), (1, LOCAL)] {
        asm.put_if(predicate, t::move_register(GLOBAL, pair));
        asm.put_if(predicate, t::move_register(GLOBAL + 1, pair + 1));
    }
    load(asm, "mixed", GLOBAL, 0);
    store(asm, GLOBAL, 16, OTHERS);
    load(asm, "mixed, stored by ST", GLOBAL, 16);
    asm.get(t::load_shared(LOADED, IN_SHARED, 16));
    stored(asm, "in shared memory");
    asm.get(t::load_local(LOADED, IN_LOCAL, 16));
    stored(asm, "in local memory");
}

/// An address below a memory, whose offset leads into it.
fn below(asm: &mut Assembler, at: u16, within: u32, index: Option<u8>) {
    const BELOW: u32 = 0x40;
    asm.get(t::constant_pair(GLOBAL, at));
    asm.put(t::move_immediate(LOADED, BELOW));
    asm.put(t::move_immediate(LOADED + 1, 0));
    let [low, high] = t::wide_difference(GLOBAL, GLOBAL, LOADED, 6);
    asm.put(low);
    asm.put(high);
    if let Some(index) = index {
        asm.put(t::wide_multiply_add(GLOBAL, index, SIZE, GLOBAL));
    }
    let offset = i32::try_from(BELOW + within).unwrap_or(0);
    load(asm, "its own", GLOBAL, offset);
    store(asm, GLOBAL, offset + 16, OTHERS);
    load(asm, "stored by ST", GLOBAL, offset + 16);
}

/// From below shared memory into it.
pub(super) fn below_shared(asm: &mut Assembler) {
    begin(asm);
    below(asm, AT_SHARED, SHARED_BASE, Some(OF_BLOCK));
}

/// From below local memory into it.
pub(super) fn below_local(asm: &mut Assembler) {
    begin(asm);
    below(asm, AT_LOCAL, LOCAL_BASE, None);
}

/// Shared memory as that of the cluster's blocks: of its own block.
pub(super) fn distributed_shared(asm: &mut Assembler) {
    begin(asm);
    asm.get(with(LOAD_DISTRIBUTED, LOADED, SHARED, 0, RZ));
    stored(asm, "stored by STS");
}
