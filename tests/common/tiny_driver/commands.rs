//! Command streams.

use super::*;

pub fn method(method: u16, count: u32) -> u32 {
    SEC_OP::INC_METHOD << 29 | count << 16 | u32::from(method) >> 2
}

pub fn class_of(engine: Engine) -> u32 {
    u32::from(match engine {
        Engine::Graphics => m2mf::CLASS,
        Engine::COPY0 => pcopy::CLASS_COPY0,
        _ => pcopy::CLASS_COPY1,
    })
}

pub fn engine_number(engine: Engine) -> u32 {
    ids(engine).unwrap().number.into()
}

pub fn m2mf_copy(from: u64, to: u64, lines: u32) -> Vec<u32> {
    let exec = m2mf::EXEC::LINEAR_IN.mask() | m2mf::EXEC::LINEAR_OUT.mask();
    vec![
        method(m2mf::OFFSET_OUT_HIGH, 2),
        (to >> 32) as u32,
        to as u32,
        method(m2mf::OFFSET_IN_HIGH, 6),
        (from >> 32) as u32,
        from as u32,
        0x1000,
        0x1000,
        0x1000,
        lines,
        method(m2mf::EXEC, 1),
        exec,
    ]
}

/// The same line again and again, one behind the other, and the engine's own interrupt at the end.
pub fn m2mf_fill(from: u64, to: u64, line: u32, lines: u32) -> Vec<u32> {
    let linear = m2mf::EXEC::LINEAR_IN.mask() | m2mf::EXEC::LINEAR_OUT.mask();
    vec![
        method(m2mf::OFFSET_OUT_HIGH, 2),
        (to >> 32) as u32,
        to as u32,
        method(m2mf::OFFSET_IN_HIGH, 6),
        (from >> 32) as u32,
        from as u32,
        0,
        line,
        line,
        lines,
        method(m2mf::EXEC, 1),
        linear | m2mf::EXEC::INTERRUPT.mask(),
    ]
}

pub fn pcopy_copy(from: u64, to: u64, lines: u32) -> Vec<u32> {
    let exec = pcopy::EXEC::SRC_LINEAR.mask() | pcopy::EXEC::DST_LINEAR.mask();
    vec![
        method(pcopy::SRC_ADDRESS_HIGH, 8),
        (from >> 32) as u32,
        from as u32,
        (to >> 32) as u32,
        to as u32,
        0x1000,
        0x1000,
        0x1000,
        lines,
        method(pcopy::EXEC, 1),
        exec,
    ]
}
