//! The attacker's own way to the virtual GSP: what it is booted with, two queues in guest memory, and RPCs in
//! them, well-formed or not.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::boots;
use crate::attack::card::Card;
use crate::attack::place;
use crate::dma_memory::{DmaMemory, Piece};
use crate::push::split;

/// The doorbell from the driver to GSP.
const GSP_DOORBELL: u32 = 0x11_0c00;

/// The memory that driver and GSP share: a page of page table, both queues.
const SHARED: usize = 129 * PAGE;
const PAGE: usize = 0x1000;
/// Offsets of the queues in it; the pointer that each side writes, and the one that it reads of the other.
pub const COMMANDS: usize = 0x1000;
pub const MESSAGES: usize = 0x4_1000;
pub const WRITTEN: usize = 16;
pub const READ: usize = 32;
/// Elements of a page each; they begin one page behind the header.
pub const ELEMENTS: u32 = 63;

/// RPC functions.
pub const ALLOC_MEMORY: u32 = 4;
pub const FREE: u32 = 10;
pub const UNLOADING: u32 = 47;
pub const STATIC_INFO: u32 = 65;
pub const UPDATE_BAR_PDE: u32 = 70;
pub const CONTINUATION: u32 = 71;
pub const REGISTRY: u32 = 73;
pub const CONTROL: u32 = 76;
pub const ALLOC: u32 = 103;
/// Events: GSP is up, register accesses are to be made first, a channel was stopped.
const INIT_DONE: u32 = 0x1001;
const REGISTER_ACCESSES: u32 = 0x1002;
pub const STOPPED: u32 = 0x1004;

/// How long GSP may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A message of GSP.
#[derive(Debug, Clone)]
pub struct Message {
    pub function: u32,
    pub result: u32,
    pub body: Vec<u8>,
}

impl Message {
    pub fn word(&self, at: usize) -> u32 {
        let bytes = self.body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    }
}

/// Both queues, as the driver sees them.
#[derive(Debug)]
pub struct Gsp {
    pub shared: Piece,
    pub write: u32,
    read: u32,
    pub number: u32,
    /// Events that came before an answer.
    pub events: Vec<Message>,
}

impl Gsp {
    /// Writes all that GSP is booted with, boots it, and waits until it says that it is up.
    pub fn boot(card: &Card, memory: &mut DmaMemory) -> Result<Self> {
        let shared = memory.take(SHARED, PAGE)?;
        for page in 0..SHARED / PAGE {
            memory.store64(shared, page * 8, shared.physical + (page * PAGE) as u64);
        }
        // Version, bytes, bytes of an element, elements, written so far, flags, the other's pointer, first
        // element.
        for (at, word) in [0, 0x4_0000, 0x1000, ELEMENTS, 0, 1, 32, 0x1000].into_iter().enumerate() {
            memory.store32(shared, COMMANDS + at * 4, word);
        }
        let arguments = memory.take(PAGE, PAGE)?;
        memory.store64(arguments, 0, shared.physical);
        memory.store32(arguments, 8, 129);
        memory.store64(arguments, 0x10, COMMANDS as u64);
        memory.store64(arguments, 0x18, MESSAGES as u64);
        memory.store32(arguments, 0x30, 1);
        // One region of memory, by name: contiguous, in system memory.
        let regions = memory.take(PAGE, PAGE)?;
        let name = b"RMARGS".iter().fold(0u64, |name, letter| name << 8 | u64::from(*letter));
        memory.store64(regions, 0, name);
        memory.store64(regions, 8, arguments.physical);
        memory.store64(regions, 16, PAGE as u64);
        memory.store32(regions, 24, 0x0101);
        let error = boots::ask(card, memory, regions.physical)?;
        ensure!(error == 0, "GSP does not boot: {error:#x}");
        let mut gsp = Self { shared, write: 0, read: 0, number: 0, events: Vec::new() };
        loop {
            let up = gsp.next(memory).context("GSP says nothing")?;
            match up.function {
                INIT_DONE => return Ok(gsp),
                // There are none to make.
                REGISTER_ACCESSES if up.word(4) == 0 => {}
                function => bail!("GSP says {function:#x} instead of being up"),
            }
        }
    }

    /// An element with an RPC of one record: header, checksum, body; whole pages.
    pub fn element(&mut self, function: u32, body: &[u8]) -> Vec<u8> {
        let length = 32 + body.len();
        let mut raw = vec![0; (48 + length).next_multiple_of(PAGE)];
        let elements = u32::try_from(raw.len() / PAGE).unwrap_or(u32::MAX);
        put(&mut raw, 36, &[self.number, elements]);
        let header = [0x0300_0000, 0x4350_5256, u32::try_from(length).unwrap_or(u32::MAX), function];
        put(&mut raw, 48, &header);
        put(&mut raw, 64, &[u32::MAX, u32::MAX, self.number, 0]);
        if let Some(place) = raw.get_mut(80..80 + body.len()) {
            place.copy_from_slice(body);
        }
        self.number = self.number.wrapping_add(1);
        seal(&mut raw);
        raw
    }

    /// Puts an element into the command queue as it is.
    pub fn push(&mut self, memory: &DmaMemory, raw: &[u8]) {
        for page in raw.chunks(PAGE) {
            let at = COMMANDS + PAGE + place(self.write.into()) * PAGE;
            let (words, _) = page.as_chunks::<4>();
            for (index, word) in words.iter().enumerate() {
                memory.store32(self.shared, at + index * 4, u32::from_le_bytes(*word));
            }
            self.write = (self.write + 1) % ELEMENTS;
        }
        self.publish(memory, self.write);
    }

    /// Says how far the command queue is written.
    pub fn publish(&self, memory: &DmaMemory, write: u32) {
        memory.store32(self.shared, COMMANDS + WRITTEN, write);
    }

    /// Tells GSP that there are commands. It has done them when this returns.
    pub fn ring(card: &Card) {
        card.set(GSP_DOORBELL, 0);
    }

    /// The next message, if there is one.
    pub fn receive(&mut self, memory: &DmaMemory) -> Option<Message> {
        let written = memory.load32(self.shared, MESSAGES + WRITTEN);
        if written == self.read || written >= ELEMENTS {
            return None;
        }
        let byte = |element: u32, at: usize| {
            let page = MESSAGES + PAGE + place((element % ELEMENTS).into()) * PAGE;
            memory.load32(self.shared, page + at)
        };
        let word = |at: usize| byte(self.read + u32::try_from(at / PAGE).unwrap_or(0), at % PAGE);
        let (elements, length) = (word(40).clamp(1, ELEMENTS), place(word(56).into()).min(16 * PAGE));
        let body = (80..(48 + length).max(80)).step_by(4).flat_map(|at| word(at).to_le_bytes()).collect();
        let message = Message { function: word(60), result: word(64), body };
        self.read = (self.read + elements) % ELEMENTS;
        memory.store32(self.shared, COMMANDS + READ, self.read);
        Some(message)
    }

    /// The next message, waited for.
    fn next(&mut self, memory: &DmaMemory) -> Option<Message> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(message) = self.receive(memory) {
                return Some(message);
            }
            thread::sleep(Duration::from_micros(200));
        }
        None
    }

    /// An RPC and its answer.
    pub fn call(&mut self, card: &Card, memory: &DmaMemory, function: u32, body: &[u8]) -> Result<Message> {
        let raw = self.element(function, body);
        self.push(memory, &raw);
        Self::ring(card);
        loop {
            let message =
                self.next(memory).with_context(|| format!("GSP does not answer function {function}"))?;
            if message.function == function {
                return Ok(message);
            }
            self.events.push(message);
        }
    }

    /// Takes in what GSP said, and forgets answers.
    pub fn listen(&mut self, memory: &DmaMemory) {
        while let Some(message) = self.receive(memory) {
            if message.function >= 0x1000 {
                self.events.push(message);
            }
        }
    }

    /// Takes everything that GSP wrote as read, whatever it is.
    pub fn skip_all(&mut self, memory: &DmaMemory) {
        let written = memory.load32(self.shared, MESSAGES + WRITTEN);
        if written < ELEMENTS {
            self.read = written;
            memory.store32(self.shared, COMMANDS + READ, written);
        }
    }
}

/// Writes words into a body or an element, as far as it goes.
pub fn put(raw: &mut [u8], at: usize, words: &[u32]) {
    let places = raw.get_mut(at..).unwrap_or_default().chunks_exact_mut(4);
    places.zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
}

/// Gives an element the checksum that makes it right.
pub fn seal(raw: &mut [u8]) {
    put(raw, 32, &[0]);
    let (words, _) = raw.as_chunks::<8>();
    let [high, low] = split(words.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word)));
    put(raw, 32, &[high ^ low]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_element_sums_up_to_nothing() {
        let mut raw: Vec<u8> = (0..PAGE).map(|at| at.to_le_bytes()[0]).collect();
        seal(&mut raw);
        let (words, _) = raw.as_chunks::<8>();
        let [high, low] = split(words.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word)));
        assert_eq!(high ^ low, 0);
    }

    #[test]
    fn words_are_put_where_they_belong_and_no_further() {
        let mut raw = [0; 12];
        put(&mut raw, 4, &[0x0403_0201, 5, 6]);
        assert_eq!(raw, [0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0]);
        put(&mut raw, 13, &[7]);
    }
}
