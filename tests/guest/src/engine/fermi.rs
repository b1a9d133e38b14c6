//! Methods of a Fermi: class 9039, the copy classes 90b5 and 90b8, and the semaphores of its host class 906f.

use super::{LINE, Lines};
use crate::push::{Commands, Method, Subchannel, split};

/// High word of the semaphore's address; low word, payload and operation follow.
const SEMAPHORE_A: Method = 0x010;
/// Semaphore operation: write the payload, then (as bit 24 is clear) a time stamp at +8.
const SEMAPHORE_RELEASE_WITH_TIME: u32 = 0x2;
/// Semaphore operation: wait until the payload stands there.
const SEMAPHORE_ACQUIRE: u32 = 0x1;

pub(super) fn m2mf(commands: &mut Commands, subchannel: Subchannel, lines: &Lines) {
    m2mf_with_pitch(commands, subchannel, lines, LINE);
}

pub(super) fn m2mf_with_pitch(commands: &mut Commands, subchannel: Subchannel, lines: &Lines, pitch: u64) {
    // Lengths and counts have 32 bits.
    let [length, count, pitch] = [lines.length, lines.count, pitch].map(|value| split(value)[1]);
    let ([to_high, to_low], [from_high, from_low]) = (split(lines.to), split(lines.from));
    // OFFSET_OUT; OFFSET_IN, PITCH_IN, PITCH_OUT, LINE_LENGTH_IN, LINE_COUNT; LAUNCH_DMA with both sides in
    // pitch layout.
    commands.methods(subchannel, 0x238, &[to_high, to_low]);
    commands.methods(subchannel, 0x30c, &[from_high, from_low, pitch, pitch, length, count]);
    commands.methods(subchannel, 0x300, &[0x0010_0110]);
}

pub(super) fn copy(commands: &mut Commands, subchannel: Subchannel, lines: &Lines) {
    let [length, count, pitch] = [lines.length, lines.count, LINE].map(|value| split(value)[1]);
    let ([to_high, to_low], [from_high, from_low]) = (split(lines.to), split(lines.from));
    // Source, destination, both pitches, length, count; launch with both sides in pitch layout.
    let data = [from_high, from_low, to_high, to_low, pitch, pitch, length, count];
    commands.methods(subchannel, 0x30c, &data);
    commands.immediate(subchannel, 0x300, 0x110);
}

pub(super) fn acquire(commands: &mut Commands, subchannel: Subchannel, address: u64, payload: u32) {
    let [high, low] = split(address);
    commands.methods(subchannel, SEMAPHORE_A, &[high, low, payload, SEMAPHORE_ACQUIRE]);
}

pub(super) fn release_with_time(commands: &mut Commands, subchannel: Subchannel, address: u64, payload: u32) {
    let [high, low] = split(address);
    commands.methods(subchannel, SEMAPHORE_A, &[high, low, payload, SEMAPHORE_RELEASE_WITH_TIME]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;

    #[test]
    fn m2mf_words_are_the_classs_methods() {
        let mut commands = Commands::new();
        Engine::M2mf.copy(&mut commands, 0x1_0000_2000, 0x3000, 8192);
        let mut expected = Commands::new();
        expected.methods(Subchannel(2), 0x238, &[1, 0x2000]);
        expected.methods(Subchannel(2), 0x30c, &[0, 0x3000, 4096, 4096, 4096, 2]);
        expected.methods(Subchannel(2), 0x300, &[0x0010_0110]);
        assert_eq!(commands, expected);
    }

    #[test]
    fn release_names_address_payload_and_operation() {
        let mut commands = Commands::new();
        release_with_time(&mut commands, Subchannel(0), 0x12_3456_7890, 7);
        let mut expected = Commands::new();
        expected.methods(Subchannel(0), 0x10, &[0x12, 0x3456_7890, 7, 2]);
        assert_eq!(commands, expected);
    }
}
