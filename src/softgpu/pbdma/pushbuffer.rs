//! The command stream of a channel: ring entries name segments, segments hold headers, headers hold words.
//!
//! A header may have its words in later segments. Not handled: subdevice masks of the old header form
//! (accepted, ignored), subroutines and privileged segments (flags of ring entries, ignored).

use super::ending::Ending;
use super::host::HostClass;
use super::loaded::Loaded;
use crate::fifo::Departure;
use crate::mmu::channel_memory::ChannelMemory;
use crate::words::halves;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::gf100::ramin::{USERD_GET, USERD_GET_HI, USERD_GP_GET};
use gpuvmk_chip::gf100::regs::pfifo::NV_PPBDMA_INTR_0;
use gpuvmk_chip::stream::{Command, GPFIFO_ENTRY_SIZE, Method, RingEntry};

/// Number of words that are fetched at a time.
const FETCH: usize = 512;

/// State of the parser beyond what RAMFC holds.
#[derive(Debug, Default)]
pub(super) struct Pushbuffer {
    /// Fetched words of the current segment that are still to be executed.
    words: std::vec::IntoIter<u32>,
    /// GP_GET as the driver sees it, once written.
    published: Option<u32>,
}

impl Pushbuffer {
    /// Goes on by one word, or by one ring entry where the segment is done. Returns a method to execute.
    pub(super) fn step(
        &mut self,
        loaded: &mut Loaded<'_>,
        class: &dyn HostClass,
    ) -> Result<Option<Method>, Ending> {
        if loaded.state.get >= loaded.state.end {
            return self.next_entry(loaded, class).map(|()| None);
        }
        let word = self.fetch(loaded)?;
        if loaded.state.header.remaining > 0 {
            return Ok(Some(loaded.state.header.take(word)));
        }
        self.header(loaded, word)
    }

    /// The segment is done: goes on to the next ring entry, or has nothing left to do.
    fn next_entry(&mut self, loaded: &mut Loaded<'_>, class: &dyn HostClass) -> Result<(), Ending> {
        if self.published != Some(loaded.state.gp_get) {
            let [get, get_hi] = halves(loaded.state.get);
            loaded.write_userd(USERD_GET, get)?;
            loaded.write_userd(USERD_GET_HI, get_hi)?;
            loaded.write_userd(USERD_GP_GET, loaded.state.gp_get)?;
            self.published = Some(loaded.state.gp_get);
        }
        if loaded.state.gp_get == loaded.state.gp_put {
            return Err(Departure::Idle.into());
        }
        let entries = loaded.state.ring_entries();
        if u64::from(loaded.state.gp_put) >= entries || u64::from(loaded.state.gp_get) >= entries {
            return Err(loaded.host_error(NV_PPBDMA_INTR_0::GPPTR, None));
        }
        let place = u64::from(loaded.state.gp_get) * GPFIFO_ENTRY_SIZE;
        let entry = loaded.client().read_u64(loaded.state.ring.saturating_add(place))?;
        let next = u64::from(loaded.state.gp_get) + 1;
        loaded.state.gp_get = if next == entries { 0 } else { loaded.state.gp_get + 1 };
        let (address, length) = match RingEntry::decode(entry) {
            RingEntry::Segment { address, words } => (address, words),
            RingEntry::Control(entry) => return class.control_entry(loaded, entry),
        };
        loaded.state.get = loaded.state.segment_base | address;
        loaded.state.end = loaded.state.get + 4 * length;
        self.words = Vec::new().into_iter();
        Ok(())
    }

    /// The next word of the segment.
    fn fetch(&mut self, loaded: &mut Loaded<'_>) -> Result<u32, Ending> {
        let state = &loaded.state;
        if self.words.len() == 0 {
            let left = usize::try_from((state.end - state.get) / 4).unwrap_or(FETCH);
            let mut bytes = vec![0; left.clamp(1, FETCH) * 4];
            // A fetch ends with the page: words behind it may never be executed, and must not fault then.
            let in_page = usize::try_from(PAGE_SIZE - state.get % PAGE_SIZE).unwrap_or(4);
            bytes.truncate(in_page.max(4));
            loaded.client().read(state.get, &mut bytes)?;
            let words: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
            self.words = words.into_iter();
        }
        loaded.state.get += 4;
        Ok(self.words.next().unwrap_or(0))
    }

    fn header(&mut self, loaded: &mut Loaded<'_>, word: u32) -> Result<Option<Method>, Ending> {
        match Command::decode(word) {
            Command::Methods(header) => loaded.state.header = header,
            Command::Immediate(method) => return Ok(Some(method)),
            Command::EndSegment => {
                loaded.state.get = loaded.state.end;
                self.words = Vec::new().into_iter();
            }
            Command::Nothing => {}
            Command::Illegal(method) => {
                return Err(loaded.host_error(NV_PPBDMA_INTR_0::PBENTRY, Some(method)));
            }
        }
        Ok(None)
    }
}
