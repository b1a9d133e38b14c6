//! Macros that launch compute work.

use super::*;

/// Where the parts of a launch are.
const CONSTANTS: u64 = 0x1_0000;
const QMD: u64 = 0x1_1000;
const TABLE: u64 = 0x2_0000;
const COUNTS: u64 = 0x3_0000;
const DATA: u64 = 0x4_0000;

/// What Mesa's driver does for an indirect dispatch: the macro reads three counts from memory, stores them in
/// a table and in the QMD, and adds the number of threads to two scratch words, the upper one first.
fn dispatch_indirect() -> Vec<Group> {
    let [counts, table, qmd, local] = [[1, 0], [3, 2], [5, 4], [6, 6]];
    let count_of_threads = [
        Group::new().alu(0, O::MulU, r(10), r(7), r(8)),
        Group::new().alu(0, O::MulU, r(10), r(10), r(9)),
        Group::new().alu(0, O::MulU, r(10), r(10), r(local[0])).alu(
            1,
            O::MulH,
            r(11),
            Register::Zero,
            Register::Zero,
        ),
    ];
    let scratch = |to: u8, number: u16| {
        let method = m::SET_MME_SHADOW_SCRATCH / 4 + number;
        Group::new().alu(0, O::State, r(to), Register::Immediate, Register::Zero).immediate(0, method)
    };
    let sum = Group::new().alu(0, O::Add, r(13), r(13), r(10)).alu(1, O::AddC, r(12), r(12), r(11));
    [
        (0..7).map(load).collect(),
        read_fifoed(counts, 3),
        vec![load(7), load(8), load(9)],
        store(table, 7),
        vec![advance(table, 4)],
        store(table, 8),
        vec![advance(table, 4)],
        store(table, 9),
        vec![advance(qmd, 128)],
        store(qmd, 7),
        vec![advance(qmd, 4)],
        store(qmd, 8),
        vec![advance(qmd, 4)],
        store(qmd, 9),
        count_of_threads.to_vec(),
        vec![scratch(12, 20), scratch(13, 21), sum],
        vec![to(m::SET_MME_SHADOW_SCRATCH + 80), send(12), send(13)],
    ]
    .concat()
}

#[test]
fn indirect_dispatch_takes_its_counts_from_memory() {
    let mut fixture = Fixture::new();
    let [width, height, depth] = V4_0.grid;
    assert_eq!((width.low, height.low, depth.low), (128 * 8, 132 * 8, 136 * 8), "where the macro stores");
    let place = Place { code: BASE, constants: BASE + CONSTANTS, qmd: BASE + QMD };
    let parameters = Parameters::default().pointer(BASE + DATA).word(10).word(5);
    // The grid comes from memory.
    let (none, block) = (Size3(1, 1, 1), Size3(32, 1, 1));
    let made = launch::launch(&SPIN, place, none, block, parameters.bytes()).unwrap();
    let qmd: Vec<u8> = made.qmd.words().iter().flat_map(|word| word.to_le_bytes()).collect();
    for (at, bytes) in [(0, SPIN.code), (CONSTANTS, &made.constants[..]), (QMD, &qmd)] {
        fixture.rig.write(fixture.memory + at, bytes);
    }
    fixture.write_words(COUNTS, &[3, 1, 1]);
    let compute = |methods: &[(u16, u32)]| -> Vec<u32> {
        methods.iter().flat_map(|(method, data)| inc(1, *method, &[*data])).collect()
    };
    let addresses = [BASE + COUNTS, BASE + TABLE, BASE + QMD].into_iter();
    let data: Vec<u32> = addresses.flat_map(|va| [hi(va), lo(va)]).chain([32]).collect();
    let commands = [
        inc(1, host::SET_OBJECT, &[u32::from(CLASS_COMPUTE)]),
        compute(&launch::set_up()),
        immediate(0, m::SET_MME_DATA_FIFO_CONFIG, 1),
        run_macro(&dispatch_indirect(), &data),
        compute(&made.methods),
        call(0, 3, &data),
    ];
    fixture.run(&commands.concat());
    let ends = [0, 95, 96].map(|thread| fixture.word(DATA + 4 * thread));
    assert_eq!(ends, [spin::result(5, 10), spin::result(5 + 95, 10), 0], "three blocks of 32 threads");
    assert_eq!([0, 4, 8].map(|at| fixture.word(TABLE + at)), [3, 1, 1]);
    // Both calls were counted.
    let read = [Group::new()
        .alu(0, O::State, r(0), Register::Immediate, Register::Zero)
        .immediate(0, m::SET_MME_SHADOW_SCRATCH / 4 + 21)];
    let told = load_macro(0, 4, 3000, &words(&[read.to_vec(), store_at(BASE + TABLE, 0)].concat()));
    fixture.run(&[told, call(0, 4, &[0])].concat());
    assert_eq!(fixture.word(TABLE), 192);
}

#[test]
fn macro_of_the_compute_class_launches() {
    let mut fixture = Fixture::new();
    let place = Place { code: BASE, constants: BASE + CONSTANTS, qmd: BASE + QMD };
    // Long enough that the engine's own thread goes on with it.
    let (rounds, lanes) = (60_000, Size3(64, 1, 1));
    let parameters = Parameters::default().pointer(BASE + DATA).word(rounds).word(5);
    let made = launch::launch(&SPIN, place, Size3(1, 1, 1), lanes, parameters.bytes()).unwrap();
    let qmd: Vec<u8> = made.qmd.words().iter().flat_map(|word| word.to_le_bytes()).collect();
    for (at, bytes) in [(0, SPIN.code), (CONSTANTS, &made.constants[..]), (QMD, &qmd)] {
        fixture.rig.write(fixture.memory + at, bytes);
    }
    let mut groups = vec![load(0)];
    for (method, data) in &made.methods {
        groups.extend([to(*method), send_value(*data)]);
    }
    // What follows the launch waits for it.
    groups.extend(store_at(BASE + TABLE, 0));
    let set_up = launch::set_up();
    let set_up = set_up.iter().flat_map(|(method, data)| inc(1, *method, &[*data]));
    let commands = [
        inc(1, host::SET_OBJECT, &[u32::from(CLASS_COMPUTE)]),
        set_up.collect(),
        load_macro(1, 3, 30, &words(&groups)),
        call(1, 3, &[77]),
    ];
    fixture.rig.submit(&mut fixture.channel, &commands.concat());
    fixture.rig.wait(|rig| rig.read_u32(fixture.memory + TABLE) == 77);
    assert_eq!(fixture.word(DATA), spin::result(5, rounds));
}
