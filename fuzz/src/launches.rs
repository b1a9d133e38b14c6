//! What a channel launches on the software GPU: blocks of meta data (QMD) of any content before machine code
//! of any kind, and macros of any kind that send methods of their own. Whatever they are, engines reach only
//! what the channel's address space maps (the ledger is the judge), and the channel can be taken off within a
//! second.

use gpuvmk::chip::EngineSet;
use gpuvmk::chip::gh100::methods::{CLASS_3D, CLASS_COMPUTE, compute, host, macros, report};
use gpuvmk::chip::mme::{Encoded, fields};
use gpuvmk::chip::qmd::layout::{Bits, Layout, V3_0, V4_0};
use gpuvmk::chip::qmd::{MAX_WORDS, Qmd};
use gpuvmk::chip::stream::DMA::SEC_OP;
use gpuvmk::softgpu::executor::{Executor, ExecutorConfig};
use gpuvmk_isa::Arch;

use crate::bench::{Bench, FREE, RAM_VA, READ_ONLY_VA, SEGMENTS, VRAM_VA};
use crate::input::Input;
use crate::log_sink;
use crate::shaders::word::word;

/// Where things lie in VRAM: code, constants and data behind them, QMDs.
const CODE: u64 = FREE;
const DATA: u64 = FREE + 0x1_0000;
const QMD: u64 = FREE + 0x8_0000;
/// QMDs that may name each other.
const QMDS: u8 = 4;
/// Bytes from one to the next.
const QMD_BYTES: u64 = 0x200;
/// Most instructions of a program.
const MOST: usize = 40;
/// Most groups of a macro.
const GROUPS: usize = 24;
/// Subchannels of the classes.
const THREED: u32 = 0;
const COMPUTE: u32 = 1;

/// Runs launches and macros.
pub fn run(data: &[u8]) {
    log_sink::install();
    let mut input = Input::new(data);
    let gpu = Executor::new(ExecutorConfig { vram: 32 << 20, ..ExecutorConfig::default() })
        .expect("a software GPU");
    let ledger = gpu.ledger();
    let mut bench = Bench::new(Box::new(gpu), &*ledger, EngineSet::GRAPHICS | EngineSet::COPY0);
    place_memory(&mut input, &bench);
    let mut words = set_up();
    while input.more() && bench.segments() < SEGMENTS {
        for _ in 0..=input.below(4) {
            match input.below(4) {
                0 | 1 => words.extend(launch(&mut input)),
                2 => words.extend(load_macro(&mut input)),
                _ => words.extend(call_macro(&mut input)),
            }
        }
        words.truncate(1000);
        let entry = bench.segment_va() | (words.len() as u64) << 42;
        bench.submit(&words, entry, None);
        words.clear();
    }
    bench.leave();
}

/// A header and its data.
fn send(op: u32, subchannel: u32, method: u16, data: &[u32]) -> Vec<u32> {
    let count = u32::try_from(data.len()).unwrap_or(0);
    let head = op << 29 | count << 16 | subchannel << 13 | u32::from(method) >> 2;
    [&[head], data].concat()
}

fn set_up() -> Vec<u32> {
    let bind =
        |subchannel, class: u16| send(SEC_OP::INC_METHOD, subchannel, host::SET_OBJECT, &[class.into()]);
    let [low, high] = halves(VRAM_VA + DATA);
    [
        bind(THREED, CLASS_3D),
        bind(COMPUTE, CLASS_COMPUTE),
        send(SEC_OP::INC_METHOD, COMPUTE, compute::SET_SHADER_LOCAL_MEMORY_A, &[high, low]),
        send(
            SEC_OP::INC_METHOD,
            COMPUTE,
            compute::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A,
            &[0, 0x2_0000, 2],
        ),
    ]
    .concat()
}

fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

/// Puts code and QMDs into VRAM.
fn place_memory(input: &mut Input<'_>, bench: &Bench<'_>) {
    let write = |at: u64, word: u32| bench.window.write_u32(at, word).expect("inside the window");
    let count = usize::from(input.u8()).min(MOST);
    for (at, word) in (CODE..).step_by(16).zip((0..count).map(|_| word(input, Arch::Sm90))) {
        let bytes = word.0.to_le_bytes();
        for (at, bytes) in (at..).step_by(4).zip(bytes.as_chunks().0) {
            write(at, u32::from_le_bytes(*bytes));
        }
    }
    for number in 0..u64::from(QMDS) {
        let qmd = qmd(input);
        for (at, word) in (QMD + number * QMD_BYTES..).step_by(4).zip(qmd.words()) {
            write(at, *word);
        }
    }
}

/// A QMD that might be launched, with some fields of any content.
fn qmd(input: &mut Input<'_>) -> Qmd {
    let layout: &Layout = input.pick(&[&V4_0, &V4_0, &V3_0]);
    let address = |input: &mut Input<'_>| input.near(&[VRAM_VA + DATA, READ_ONLY_VA + DATA, RAM_VA, 0]);
    let size = |input: &mut Input<'_>| match input.below(8) {
        0 => input.u64(),
        1 => u64::from(input.u16()),
        2 => u64::from(input.u8()),
        3 => 32,
        _ => 1,
    };
    let mut qmd = Qmd::new(layout).with(layout.registers, 64).with_number(layout.program, VRAM_VA + CODE);
    for field in layout.grid.into_iter().chain(layout.block) {
        qmd = qmd.with(field, size(input));
    }
    let pointer = VRAM_VA + QMD + u64::from(input.below(QMDS)) * QMD_BYTES;
    if input.below(4) == 0
        && let Some(dependent) = layout.dependents.first()
    {
        qmd = qmd.with(dependent.enable, 1).with(dependent.pointer, pointer >> 8);
        if let Some(action) = dependent.action {
            qmd = qmd.with(action, u64::from(input.below(8)));
        }
    }
    if input.flag()
        && let Some(release) = layout.releases.first()
    {
        qmd = qmd.with(release.enable, 1).with(release.structure_size, u64::from(input.below(4)));
        qmd = qmd.with_number(release.address, address(input)).with_number(release.payload, input.u64());
    }
    for _ in 0..input.below(4) {
        let low = input.u16() % (32 * u16::try_from(MAX_WORDS).unwrap_or(1) - 8);
        qmd = qmd.with(Bits { high: low + 7, low }, input.u8().into());
    }
    qmd
}

/// Has one of the QMDs, or something else, launched.
fn launch(input: &mut Input<'_>) -> Vec<u32> {
    let qmd = VRAM_VA + QMD + u64::from(input.below(QMDS)) * QMD_BYTES;
    let address = if input.below(8) == 0 { input.near(&[qmd, RAM_VA]) } else { qmd };
    let [shifted, _] = halves(address >> 8);
    let action = if input.flag() { 3 } else { u32::from(input.below(16)) };
    [
        send(SEC_OP::INC_METHOD, COMPUTE, compute::SEND_PCAS_A, &[shifted]),
        send(SEC_OP::INC_METHOD, COMPUTE, compute::SEND_SIGNALING_PCAS2_B, &[action]),
    ]
    .concat()
}

/// Methods that macros may like to send.
const METHODS: [u16; 12] = [
    report::SET_REPORT_SEMAPHORE_A,
    report::SET_REPORT_SEMAPHORE_D,
    macros::SET_MME_MEM_ADDRESS_A,
    macros::SET_MME_DATA_RAM_ADDRESS,
    macros::MME_DMA_READ,
    macros::MME_DMA_READ_FIFOED,
    macros::MME_DMA_WRITE,
    macros::SET_MME_SHADOW_SCRATCH,
    macros::SET_MME_DATA_FIFO_CONFIG,
    macros::CALL_MME,
    compute::SEND_PCAS_A,
    compute::SEND_SIGNALING_PCAS2_B,
];

/// A group of a macro: fields that exist more often than not.
fn group(input: &mut Input<'_>) -> Encoded {
    let zero = 24;
    let register = |input: &mut Input<'_>| match input.below(8) {
        0..=2 => zero,
        7 => u16::from(input.below(32)),
        _ => u16::from(input.below(30)),
    };
    let mut group = Encoded::default().with(fields::END_NEXT, u16::from(input.below(16) == 15));
    if input.below(4) == 0 {
        group = group.with(fields::PREDICATE_MODE, input.u8().into());
    }
    group = group.with(fields::PREDICATE, register(input));
    for (index, sources) in fields::SOURCES.into_iter().enumerate() {
        group = group.with(fields::OPERATION[index], if input.flag() { input.u8().into() } else { 0 });
        let to = if input.below(16) == 15 { input.u8() } else { input.below(25) };
        group = group.with(fields::DESTINATION[index], to.into());
        group = sources.into_iter().fold(group, |group, bits| group.with(bits, register(input)));
        let immediate = match input.below(4) {
            0 => input.u16(),
            1 => u16::from(input.u8()),
            2 => 1 << 15 | input.u16() & 0x1fff,
            _ => (1 << 12) | (input.pick(&METHODS) / 4),
        };
        group = group.with(fields::IMMEDIATE[index], immediate);
        let output = |input: &mut Input<'_>| if input.flag() { u16::from(input.below(12)) } else { 0 };
        group = group.with(fields::OUTPUT_METHOD[index], output(input));
        group = group.with(fields::OUTPUT_EMIT[index], output(input));
    }
    group
}

/// Loads a macro.
fn load_macro(input: &mut Input<'_>) -> Vec<u32> {
    let subchannel = u32::from(input.below(2));
    let place = if input.below(8) == 0 { input.u32() } else { u32::from(input.u8()) };
    let count = usize::from(input.u8()).min(GROUPS);
    let words: Vec<u32> = (0..count).flat_map(|_| group(input).words()).collect();
    let start = [u32::from(input.below(3)), place];
    [
        send(SEC_OP::INC_METHOD, subchannel, macros::LOAD_MME_START_ADDRESS_RAM_POINTER, &start),
        send(SEC_OP::INC_METHOD, subchannel, macros::LOAD_MME_INSTRUCTION_RAM_POINTER, &[place]),
        send(SEC_OP::NON_INC_METHOD, subchannel, macros::LOAD_MME_INSTRUCTION_RAM, &words),
    ]
    .concat()
}

/// Calls a macro.
fn call_macro(input: &mut Input<'_>) -> Vec<u32> {
    let method = macros::CALL_MME + 8 * u16::from(input.below(3));
    let data: Vec<u32> = (0..=input.below(6))
        .map(|_| match input.below(3) {
            0 => input.u32(),
            1 => 0,
            _ => halves(input.near(&[VRAM_VA + DATA, READ_ONLY_VA]))[0],
        })
        .collect();
    send(SEC_OP::ONE_INC, input.below(2).into(), method, &data)
}
