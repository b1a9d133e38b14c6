//! Commands for channels of our own: the few that clearing, checking and measuring need.

/// Subchannel of compute objects.
const COMPUTE: u32 = 1;
/// Subchannel of copy objects.
const COPY: u32 = 4;

/// Methods of the host (class c86f): any subchannel.
mod host {
    pub const SET_OBJECT: u32 = 0x00;
    pub const NON_STALL_INTERRUPT: u32 = 0x20;
    pub const SEM_ADDR_LO: u32 = 0x5c;
    /// Release when all earlier work is done.
    pub const RELEASE_AFTER_IDLE: u32 = 0x0010_0001;
    /// The same with the time, in nanoseconds, at +8.
    pub const RELEASE_AFTER_IDLE_WITH_TIME: u32 = 0x0210_0001;
    /// Release at once.
    pub const RELEASE: u32 = 0x1;
}

/// Methods of the copy class (c8b5).
mod copy {
    pub const SET_SEMAPHORE_A: u32 = 0x240;
    pub const LAUNCH_DMA: u32 = 0x300;
    pub const OFFSET_IN_UPPER: u32 = 0x400;
    pub const SET_REMAP_CONST_A: u32 = 0x700;
    pub const SET_REMAP_COMPONENTS: u32 = 0x708;
    /// Non-pipelined, flush, pitch to pitch, one line.
    pub const COPY: u32 = 0x186;
    /// The same with lines.
    pub const COPY_LINES: u32 = 0x386;
    /// Components come from `SET_REMAP_COMPONENTS`.
    pub const REMAP: u32 = 0x400;
    /// Release a one-word semaphore at the end.
    pub const RELEASE: u32 = 1 << 3;
    /// Four components of four bytes, each constant A.
    pub const FOUR_CONSTANTS: u32 = 0x0303_4444;
}

/// Methods of the compute class (cbc0).
mod compute {
    pub const REPORT_PAYLOAD: u32 = 0x158;
    pub const LINE_LENGTH_IN: u32 = 0x180;
    pub const LAUNCH_DMA: u32 = 0x1b0;
    pub const LOAD_INLINE_DATA: u32 = 0x1b4;
    /// Pitch destination, flush at the end.
    pub const INLINE_PITCH: u32 = 0x11;
    /// Release one word.
    pub const RELEASE_ONE_WORD: u32 = 0x8;
}

/// A piece of pushbuffer under construction.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    words: Vec<u32>,
}

impl Commands {
    /// The words.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Data for consecutive methods.
    fn methods(&mut self, subchannel: u32, method: u32, data: &[u32]) -> &mut Self {
        let count = u32::try_from(data.len()).unwrap_or(0);
        self.words.push(1 << 29 | count << 16 | subchannel << 13 | method >> 2);
        self.words.extend_from_slice(data);
        self
    }

    /// Data for one method.
    fn data(&mut self, subchannel: u32, method: u32, data: &[u32]) -> &mut Self {
        let count = u32::try_from(data.len()).unwrap_or(0);
        self.words.push(3 << 29 | count << 16 | subchannel << 13 | method >> 2);
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

    /// Copies bytes.
    pub fn copy(&mut self, from: u64, to: u64, bytes: u32) -> &mut Self {
        self.transfer(from, to, bytes, 1, copy::COPY)
    }

    /// Copies lines of 4096 bytes, as kernel drivers do.
    pub fn copy_pages(&mut self, from: u64, to: u64, pages: u32) -> &mut Self {
        self.transfer(from, to, 4096, pages, copy::COPY_LINES)
    }

    /// Writes zeros: pieces of 16 bytes.
    pub fn zero(&mut self, to: u64, pieces: u32) -> &mut Self {
        self.methods(COPY, copy::SET_REMAP_CONST_A, &[0]);
        self.methods(COPY, copy::SET_REMAP_COMPONENTS, &[copy::FOUR_CONSTANTS]);
        self.transfer(0, to, pieces, 1, copy::COPY | copy::REMAP)
    }

    fn transfer(&mut self, from: u64, to: u64, length: u32, lines: u32, launch: u32) -> &mut Self {
        let pitch = 4096;
        let [from_high, from_low] = halves(from);
        let [to_high, to_low] = halves(to);
        let data = [from_high, from_low, to_high, to_low, pitch, pitch, length, lines];
        self.methods(COPY, copy::OFFSET_IN_UPPER, &data);
        self.methods(COPY, copy::LAUNCH_DMA, &[launch])
    }

    /// The copy engine writes `value` when it is there.
    pub fn copy_semaphore(&mut self, at: u64, value: u32) -> &mut Self {
        let [high, low] = halves(at);
        self.methods(COPY, copy::SET_SEMAPHORE_A, &[high, low, value]);
        self.methods(COPY, copy::LAUNCH_DMA, &[copy::RELEASE | 0x4])
    }

    /// The host writes `value`: at once, or when all earlier work is done.
    pub fn release(&mut self, at: u64, value: u32, after_idle: bool) -> &mut Self {
        let [high, low] = halves(at);
        let execute = if after_idle { host::RELEASE_AFTER_IDLE } else { host::RELEASE };
        self.methods(0, host::SEM_ADDR_LO, &[low, high, value, 0, execute])
    }

    /// The host writes `value`, and the time at +8, when all earlier work is done.
    pub fn release_with_time(&mut self, at: u64, value: u32) -> &mut Self {
        let [high, low] = halves(at);
        self.methods(0, host::SEM_ADDR_LO, &[low, high, value, 0, host::RELEASE_AFTER_IDLE_WITH_TIME])
    }

    /// Methods of the compute class with their data.
    pub fn compute(&mut self, methods: &[(u16, u32)]) -> &mut Self {
        for (method, data) in methods {
            self.methods(COMPUTE, u32::from(*method), &[*data]);
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
        self.methods(COMPUTE, compute::LINE_LENGTH_IN, &[bytes, 1, high, low]);
        self.methods(COMPUTE, compute::LAUNCH_DMA, &[compute::INLINE_PITCH]);
        self.data(COMPUTE, compute::LOAD_INLINE_DATA, words);
        let [high, low] = halves(report);
        // Payload low and high, address low and high, execute.
        self.methods(COMPUTE, compute::REPORT_PAYLOAD, &[value, 0, low, high, compute::RELEASE_ONE_WORD])
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
