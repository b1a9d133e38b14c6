//! Commands for channels of our own: the few that clearing, checking and measuring need.

use gpuvmk_chip::gh100::methods::copy::{self, LAUNCH_DMA, SET_REMAP_COMPONENTS as REMAP};
use gpuvmk_chip::gh100::methods::host::{self, SEM_EXECUTE};
use gpuvmk_chip::gh100::methods::{SUBCHANNEL_COPY as COPY, inline, report};
use gpuvmk_chip::stream::DMA::SEC_OP;
use gpuvmk_chip::stream::header;

/// Subchannel of compute objects.
const COMPUTE: u8 = 1;

/// SEM_EXECUTE: release at once.
const RELEASE: u32 = SEM_EXECUTE::OPERATION.of(SEM_EXECUTE::OPERATION::RELEASE);
/// The same when all earlier work is done.
const RELEASE_AFTER_IDLE: u32 = RELEASE | SEM_EXECUTE::RELEASE_WFI.mask();

/// LAUNCH_DMA: non-pipelined, flush, pitch to pitch, one line.
const COPY_LINE: u32 = LAUNCH_DMA::DATA_TRANSFER_TYPE.of(LAUNCH_DMA::DATA_TRANSFER_TYPE::NON_PIPELINED)
    | LAUNCH_DMA::FLUSH_ENABLE.mask()
    | LAUNCH_DMA::SRC_MEMORY_LAYOUT.mask()
    | LAUNCH_DMA::DST_MEMORY_LAYOUT.mask();
/// The same with lines.
const COPY_LINES: u32 = COPY_LINE | LAUNCH_DMA::MULTI_LINE_ENABLE.mask();
/// LAUNCH_DMA: nothing but a one-word semaphore, after a flush.
const SEMAPHORE: u32 = LAUNCH_DMA::SEMAPHORE_TYPE.of(LAUNCH_DMA::SEMAPHORE_TYPE::RELEASE_ONE_WORD_SEMAPHORE)
    | LAUNCH_DMA::FLUSH_ENABLE.mask();
/// Four components of four bytes, each constant A.
const FOUR_CONSTANTS: u32 = REMAP::DST_X.of(REMAP::DST_X::CONST_A)
    | REMAP::DST_Y.of(REMAP::DST_X::CONST_A)
    | REMAP::DST_Z.of(REMAP::DST_X::CONST_A)
    | REMAP::DST_W.of(REMAP::DST_X::CONST_A)
    | REMAP::COMPONENT_SIZE.of(3)
    | REMAP::NUM_DST_COMPONENTS.of(3);

/// LAUNCH_DMA of the compute class: pitch destination, flush at the end.
const INLINE_PITCH: u32 = inline::LAUNCH_DMA::DST_MEMORY_LAYOUT.mask()
    | inline::LAUNCH_DMA::COMPLETION_TYPE.of(inline::LAUNCH_DMA::COMPLETION_TYPE::FLUSH_ONLY);
/// REPORT_SEMAPHORE_EXECUTE of the compute class: release one word.
const RELEASE_ONE_WORD: u32 =
    report::COMPUTE_EXECUTE::STRUCTURE_SIZE.of(report::COMPUTE_EXECUTE::STRUCTURE_SIZE::ONE_WORD);

/// A piece of pushbuffer under construction.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    words: Vec<u32>,
}

impl Commands {
    /// The words of the commands.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Data for consecutive methods.
    fn methods(&mut self, subchannel: u8, method: u16, data: &[u32]) -> &mut Self {
        let count = u16::try_from(data.len()).unwrap_or(0);
        self.words.push(header(SEC_OP::INC_METHOD, subchannel, method, count));
        self.words.extend_from_slice(data);
        self
    }

    /// Data for one method.
    fn data(&mut self, subchannel: u8, method: u16, data: &[u32]) -> &mut Self {
        let count = u16::try_from(data.len()).unwrap_or(0);
        self.words.push(header(SEC_OP::NON_INC_METHOD, subchannel, method, count));
        self.words.extend_from_slice(data);
        self
    }

    /// Binds the copy class.
    pub fn bind_copy(&mut self, class: u32) -> &mut Self {
        self.methods(COPY, host::SET_OBJECT, &[class])
    }

    /// Binds the compute class.
    pub fn bind_compute(&mut self, class: u32) -> &mut Self {
        self.methods(COMPUTE, host::SET_OBJECT, &[class])
    }

    /// Adds a copy of bytes between virtual addresses.
    pub fn copy(&mut self, from: u64, to: u64, bytes: u32) -> &mut Self {
        self.transfer(from, to, bytes, 1, COPY_LINE)
    }

    /// Copies lines of 4096 bytes, as kernel drivers do.
    pub fn copy_pages(&mut self, from: u64, to: u64, pages: u32) -> &mut Self {
        self.transfer(from, to, 4096, pages, COPY_LINES)
    }

    /// Writes zeros: pieces of 16 bytes.
    pub fn zero(&mut self, to: u64, pieces: u32) -> &mut Self {
        self.methods(COPY, copy::SET_REMAP_CONST_A, &[0]);
        self.methods(COPY, REMAP, &[FOUR_CONSTANTS]);
        self.transfer(0, to, pieces, 1, COPY_LINE | LAUNCH_DMA::REMAP_ENABLE.mask())
    }

    fn transfer(&mut self, from: u64, to: u64, length: u32, lines: u32, launch: u32) -> &mut Self {
        let pitch = 4096;
        let [from_high, from_low] = halves(from);
        let [to_high, to_low] = halves(to);
        let data = [from_high, from_low, to_high, to_low, pitch, pitch, length, lines];
        self.methods(COPY, copy::OFFSET_IN_UPPER, &data);
        self.methods(COPY, LAUNCH_DMA, &[launch])
    }

    /// The copy engine writes `value` when it is there.
    pub fn copy_semaphore(&mut self, at: u64, value: u32) -> &mut Self {
        let [high, low] = halves(at);
        self.methods(COPY, copy::SET_SEMAPHORE_A, &[high, low, value]);
        self.methods(COPY, LAUNCH_DMA, &[SEMAPHORE])
    }

    /// The host writes `value`: at once, or when all earlier work is done.
    pub fn release(&mut self, at: u64, value: u32, after_idle: bool) -> &mut Self {
        let [high, low] = halves(at);
        let execute = if after_idle { RELEASE_AFTER_IDLE } else { RELEASE };
        self.methods(0, host::SEM_ADDR_LO, &[low, high, value, 0, execute])
    }

    /// The host writes `value`, and the time at +8, when all earlier work is done.
    pub fn release_with_time(&mut self, at: u64, value: u32) -> &mut Self {
        let [high, low] = halves(at);
        self.methods(
            0,
            host::SEM_ADDR_LO,
            &[low, high, value, 0, RELEASE_AFTER_IDLE | SEM_EXECUTE::RELEASE_TIMESTAMP.mask()],
        )
    }

    /// Methods of the compute class with their data.
    pub fn compute(&mut self, methods: &[(u16, u32)]) -> &mut Self {
        for (method, data) in methods {
            self.methods(COMPUTE, *method, &[*data]);
        }
        self
    }

    /// Asks for a notification.
    pub fn notify(&mut self) -> &mut Self {
        self.methods(0, host::NON_STALL_INTERRUPT, &[0])
    }

    /// The compute class stores words, then reports `value` at `report`.
    pub fn inline_words(&mut self, to: u64, words: &[u32], report: u64, value: u32) -> &mut Self {
        let bytes = u32::try_from(words.len().saturating_mul(4)).unwrap_or(0);
        let [high, low] = halves(to);
        self.methods(COMPUTE, inline::LINE_LENGTH_IN, &[bytes, 1, high, low]);
        self.methods(COMPUTE, inline::LAUNCH_DMA, &[INLINE_PITCH]);
        self.data(COMPUTE, inline::LOAD_INLINE_DATA, words);
        let [high, low] = halves(report);
        // Payload low and high, address low and high, execute.
        self.methods(
            COMPUTE,
            report::SET_REPORT_SEMAPHORE_PAYLOAD_LOWER,
            &[value, 0, low, high, RELEASE_ONE_WORD],
        )
    }
}

/// Upper and lower word.
fn halves(address: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = address.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_and_its_words() {
        let mut commands = Commands::default();
        commands.copy(0x12_3456_7000, 0x2000, 0x100);
        assert_eq!(
            commands.words(),
            [0x2008_8100, 0x12, 0x3456_7000, 0, 0x2000, 4096, 4096, 0x100, 1, 0x2001_80c0, 0x186]
        );
    }

    #[test]
    fn release_and_its_words() {
        let mut commands = Commands::default();
        commands.release(0x1_0000_0010, 7, true);
        assert_eq!(commands.words(), [0x2005_0017, 0x10, 1, 7, 0, 0x0010_0001]);
    }
}
