//! Command streams.

use super::*;

pub fn method(method: u16, count: u32) -> u32 {
    stream::OP_INCREMENT << 29 | count << 16 | u32::from(method) >> 2
}

pub fn class_of(engine: Engine) -> u32 {
    u32::from(match engine {
        Engine::Graphics => m2mf::CLASS,
        Engine::Copy(0) => pcopy::CLASS_COPY0,
        Engine::Copy(_) => pcopy::CLASS_COPY1,
    })
}

pub fn engine_number(engine: Engine) -> u32 {
    u32::from(match engine {
        Engine::Graphics => host::ENGINE_GRAPHICS,
        Engine::Copy(0) => host::ENGINE_COPY0,
        Engine::Copy(_) => host::ENGINE_COPY1,
    })
}

pub fn m2mf_copy(from: u64, to: u64, lines: u32) -> Vec<u32> {
    let exec = m2mf::EXEC_LINEAR_IN | m2mf::EXEC_LINEAR_OUT;
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

pub fn pcopy_copy(from: u64, to: u64, lines: u32) -> Vec<u32> {
    let exec = pcopy::EXEC_SRC_LINEAR | pcopy::EXEC_DST_LINEAR;
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
