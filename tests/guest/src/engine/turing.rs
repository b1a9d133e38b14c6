//! Methods of chips since Turing: copies, uploads through the compute class and through that for uploads, and
//! semaphores of the host (NVIDIA's clc8b5.h, cla140.h, clcbc0.h, clc86f.h; those of the other generations
//! name the same ones).

use super::{LINE, Lines};
use crate::chip::Launch;
use crate::push::{Commands, Method, Subchannel, split};

/// Where the copy class is bound: the host takes this subchannel for the copy engine's.
const COPY: Subchannel = Subchannel(4);
/// Any subchannel serves for the host's own methods.
const HOST: Subchannel = Subchannel(0);

/// SEM_ADDR_LO; ADDR_HI, PAYLOAD_LO, PAYLOAD_HI and EXECUTE follow.
const SEM_ADDR_LO: Method = 0x5c;
/// Release, once the engine is idle (bit 20), with a time stamp at +8 (bit 25).
const SEM_RELEASE_WFI_WITH_TIME: u32 = 1 | 1 << 20 | 1 << 25;
/// Wait until the payload stands there; others may run meanwhile (bit 12).
const SEM_ACQUIRE: u32 = 1 << 12;

const SET_SEMAPHORE_A: Method = 0x240;
const LAUNCH_DMA: Method = 0x300;
const OFFSET_IN_UPPER: Method = 0x400;
const SET_REMAP_CONST_A: Method = 0x700;
/// NON_PIPELINED, FLUSH_ENABLE, source and destination in pitch layout, MULTI_LINE_ENABLE.
const LAUNCH_COPY: u32 = 0x386;
/// SEMAPHORE_TYPE RELEASE_FOUR_WORD_SEMAPHORE: payload, and a time stamp at +8.
const LAUNCH_SEMAPHORE_WITH_TIME: u32 = 2 << 3;
/// REMAP_ENABLE.
const LAUNCH_REMAP: u32 = 1 << 10;
/// Every destination component is constant A, of four bytes; one source and one destination component.
const REMAP_WORDS_OF_A: u32 = 4 | 4 << 4 | 4 << 8 | 4 << 12 | 3 << 16;

/// LINE_LENGTH_IN of both upload classes; LINE_COUNT, OFFSET_OUT_UPPER, OFFSET_OUT, PITCH_OUT follow.
const LINE_LENGTH_IN: Method = 0x180;
const UPLOAD_LAUNCH: Method = 0x1b0;
const LOAD_INLINE_DATA: Method = 0x1b4;
/// Destination in pitch layout, flush when done.
const UPLOAD_LAUNCH_PITCH: u32 = 0x11;
/// SET_REPORT_SEMAPHORE_A of the compute class; B, C (payload) and D (operation) follow.
const SET_REPORT_SEMAPHORE_A: Method = 0x1b00;
/// SEND_PCAS_A of the compute class: the address of a launch's description, shifted by 8.
const SEND_PCAS_A: Method = 0x2b4;
/// SEND_SIGNALING_PCAS_B: INVALIDATE in bit 0, SCHEDULE in bit 1.
const SEND_SIGNALING_PCAS_B: Method = 0x2bc;
/// SEND_SIGNALING_PCAS2_B: the action, of which 3 is INVALIDATE_COPY_SCHEDULE.
const SEND_SIGNALING_PCAS2_B: Method = 0x2c0;
const LAUNCH: u32 = 3;

pub(super) fn copy(commands: &mut Commands, lines: &Lines) {
    geometry(commands, lines);
    commands.immediate(COPY, LAUNCH_DMA, LAUNCH_COPY);
}

/// Copies `length` bytes (less than 4 GiB) as a single line.
pub fn copy_line(commands: &mut Commands, to: u64, from: u64, length: u64) {
    geometry(commands, &Lines { to, from, length, count: 1 });
    commands.immediate(COPY, LAUNCH_DMA, LAUNCH_COPY);
}

pub(super) fn copy_with_pitch(commands: &mut Commands, lines: &Lines, pitch: u64) {
    geometry_with_pitch(commands, lines, pitch);
    commands.immediate(COPY, LAUNCH_DMA, LAUNCH_COPY);
}

fn geometry(commands: &mut Commands, lines: &Lines) {
    geometry_with_pitch(commands, lines, LINE);
}

fn geometry_with_pitch(commands: &mut Commands, lines: &Lines, pitch: u64) {
    // Lengths and counts have 32 bits.
    let [length, count, pitch] = [lines.length, lines.count, pitch].map(|value| split(value)[1]);
    let ([to_high, to_low], [from_high, from_low]) = (split(lines.to), split(lines.from));
    let data = [from_high, from_low, to_high, to_low, pitch, pitch, length, count];
    commands.methods(COPY, OFFSET_IN_UPPER, &data);
}

/// A copy of `length` bytes (at most a page) with a semaphore of the copy engine's own behind it: `payload`
/// at `semaphore`, the GPU's time at +8.
pub fn copy_and_release(
    commands: &mut Commands,
    (to, from, length): (u64, u64, u64),
    semaphore: u64,
    payload: u32,
) {
    let [high, low] = split(semaphore);
    commands.methods(COPY, SET_SEMAPHORE_A, &[high, low, payload]);
    geometry(commands, &Lines { to, from, length, count: 1 });
    commands.immediate(COPY, LAUNCH_DMA, LAUNCH_COPY | LAUNCH_SEMAPHORE_WITH_TIME);
}

/// Fills `words` words (whole pages) from `to` on with `value`: a copy whose every component is a constant.
pub fn fill(commands: &mut Commands, to: u64, words: u64, value: u32) {
    commands.methods(COPY, SET_REMAP_CONST_A, &[value, 0, REMAP_WORDS_OF_A]);
    // Line lengths count elements, pitches bytes; the source is not read.
    let count = words * 4 / LINE;
    geometry(commands, &Lines { to, from: 0, length: LINE / 4, count });
    commands.immediate(COPY, LAUNCH_DMA, LAUNCH_COPY | LAUNCH_REMAP);
}

pub(super) fn acquire(commands: &mut Commands, address: u64, payload: u32) {
    let [high, low] = split(address);
    commands.methods(HOST, SEM_ADDR_LO, &[low, high, payload, 0, SEM_ACQUIRE]);
}

pub(super) fn release_with_time(commands: &mut Commands, address: u64, payload: u32) {
    let [high, low] = split(address);
    commands.methods(HOST, SEM_ADDR_LO, &[low, high, payload, 0, SEM_RELEASE_WFI_WITH_TIME]);
}

/// Writes `bytes` (a multiple of four) to `to` by the data words of the commands themselves.
pub fn upload(commands: &mut Commands, subchannel: Subchannel, to: u64, bytes: &[u8]) {
    let [high, low] = split(to);
    let length = split(bytes.len() as u64)[1];
    commands.methods(subchannel, LINE_LENGTH_IN, &[length, 1, high, low, length]);
    commands.methods(subchannel, UPLOAD_LAUNCH, &[UPLOAD_LAUNCH_PITCH]);
    let (words, _) = bytes.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    commands.repeated(subchannel, LOAD_INLINE_DATA, &words);
}

/// The compute class's report: `payload` at `address`, the GPU's time at +8, once all before is done.
pub fn report(commands: &mut Commands, subchannel: Subchannel, address: u64, payload: u32) {
    let [high, low] = split(address);
    commands.methods(subchannel, SET_REPORT_SEMAPHORE_A, &[high, low, payload, 0]);
}

/// Launches what is described at `qmd`.
pub fn launch(commands: &mut Commands, subchannel: Subchannel, how: Launch, qmd: u64) {
    let method = match how {
        Launch::Pcas => SEND_SIGNALING_PCAS_B,
        Launch::Pcas2 => SEND_SIGNALING_PCAS2_B,
    };
    commands.methods(subchannel, SEND_PCAS_A, &[split(qmd >> 8)[1]]);
    commands.methods(subchannel, method, &[LAUNCH]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;

    #[test]
    fn copy_words_are_the_classs_methods() {
        let mut commands = Commands::new();
        Engine::Copy.copy(&mut commands, 0x1_0000_2000, 0x3000, 8192);
        let mut expected = Commands::new();
        expected.methods(Subchannel(4), 0x400, &[0, 0x3000, 1, 0x2000, 4096, 4096, 4096, 2]);
        expected.immediate(Subchannel(4), 0x300, 0x386);
        assert_eq!(commands, expected);
    }

    #[test]
    fn launch_names_its_description_and_the_chips_method() {
        for (how, method) in [(Launch::Pcas, 0x2bc), (Launch::Pcas2, 0x2c0)] {
            let mut commands = Commands::new();
            launch(&mut commands, Subchannel(1), how, 0x12_3456_7800);
            let mut expected = Commands::new();
            expected.methods(Subchannel(1), 0x2b4, &[0x1234_5678]);
            expected.methods(Subchannel(1), method, &[3]);
            assert_eq!(commands, expected);
        }
    }

    #[test]
    fn fill_counts_elements_and_lines() {
        let mut commands = Commands::new();
        fill(&mut commands, 0x5000, 2048, 0xabcd);
        let mut expected = Commands::new();
        expected.methods(Subchannel(4), 0x700, &[0xabcd, 0, 0x0003_4444]);
        expected.methods(Subchannel(4), 0x400, &[0, 0, 0, 0x5000, 4096, 4096, 1024, 2]);
        expected.immediate(Subchannel(4), 0x300, 0x786);
        assert_eq!(commands, expected);
    }

    #[test]
    fn release_names_low_word_high_word_payload_and_operation() {
        let mut commands = Commands::new();
        release_with_time(&mut commands, 0x12_3456_7890, 7);
        let mut expected = Commands::new();
        expected.methods(Subchannel(0), 0x5c, &[0x3456_7890, 0x12, 7, 0, 0x0210_0001]);
        assert_eq!(commands, expected);
    }
}
