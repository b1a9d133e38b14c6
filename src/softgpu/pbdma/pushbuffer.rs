//! The command stream of a channel: ring entries name segments, segments hold headers, headers hold words.
//!
//! A header may have its words in later segments. Not handled: subdevice masks of the old header form
//! (accepted, ignored), subroutines and privileged segments (flags of ring entries, ignored).

use crate::fifo::Departure;
use crate::mmu::channel_memory::ChannelMemory;
use crate::pbdma::Ending;
use crate::pbdma::execution::Execution;
use crate::words::halves;
use gpuvmk_chip::gf100::methods::pbdma_intr;
use gpuvmk_chip::gf100::ramin::{GPFIFO_ENTRY_SIZE, USERD_GET, USERD_GET_HI, USERD_GP_GET};
use gpuvmk_chip::stream::{Command, RingEntry};

/// Words fetched at once.
const FETCH: usize = 512;

impl Execution<'_> {
    /// The segment is done: goes on to the next ring entry, or has nothing left to do.
    pub(crate) fn next_entry(&mut self) -> Result<(), Ending> {
        if self.published != Some(self.state.gp_get) {
            let [get, get_hi] = halves(self.state.get);
            self.write_userd(USERD_GET, get)?;
            self.write_userd(USERD_GET_HI, get_hi)?;
            self.write_userd(USERD_GP_GET, self.state.gp_get)?;
            self.published = Some(self.state.gp_get);
        }
        if self.state.gp_get == self.state.gp_put {
            return Err(Departure::Idle.into());
        }
        let entries = self.state.ring_entries();
        if u64::from(self.state.gp_put) >= entries || u64::from(self.state.gp_get) >= entries {
            return Err(self.host_error(pbdma_intr::PUT_OVERFLOW, None));
        }
        let place = u64::from(self.state.gp_get) * GPFIFO_ENTRY_SIZE;
        let entry = self.client().read_u64(self.state.ring.saturating_add(place))?;
        let next = u64::from(self.state.gp_get) + 1;
        self.state.gp_get = if next == entries { 0 } else { self.state.gp_get + 1 };
        let (address, length) = match RingEntry::decode(entry) {
            RingEntry::Segment { address, words } => (address, words),
            RingEntry::Control(entry) => {
                return self.shared.hardware.chip.host.control_entry(self, entry);
            }
        };
        self.state.get = self.state.segment_base | address;
        self.state.end = self.state.get + 4 * length;
        self.words = Vec::new().into_iter();
        Ok(())
    }

    /// The next word of the segment.
    pub(crate) fn fetch(&mut self) -> Result<u32, Ending> {
        if self.words.len() == 0 {
            let left = usize::try_from((self.state.end - self.state.get) / 4).unwrap_or(FETCH);
            let mut bytes = vec![0; left.clamp(1, FETCH) * 4];
            let client = self.client();
            // A fetch ends with the page: words behind it may never be executed, and must not fault then.
            let in_page = usize::try_from(0x1000 - (self.state.get & 0xfff)).unwrap_or(4);
            bytes.truncate(in_page.max(4));
            client.read(self.state.get, &mut bytes)?;
            let words: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
            self.words = words.into_iter();
        }
        self.state.get += 4;
        Ok(self.words.next().unwrap_or(0))
    }

    pub(crate) fn header(&mut self, word: u32) -> Result<(), Ending> {
        match Command::decode(word) {
            Command::Methods(header) => self.state.header = header,
            Command::Immediate(method) => return self.execute(method),
            Command::EndSegment => {
                self.state.get = self.state.end;
                self.words = Vec::new().into_iter();
            }
            Command::Nothing => {}
            Command::Illegal(method) => {
                return Err(self.host_error(pbdma_intr::ILLEGAL_COMMAND, Some(method)));
            }
        }
        Ok(())
    }

    pub(crate) fn data(&mut self, data: u32) -> Result<(), Ending> {
        let method = self.state.header.take(data);
        self.execute(method)
    }
}
