//! A driver: its half of the queues, and the calls that nouveau makes. Offsets are written out as numbers
//! here, so that a mistake in the structs cannot hide.

use std::cell::Cell;

use crate::model::{BootError, Effect, Gsp, GspConfig, KernelWork};
use gpuvmk_backend::testing::{FakeGspBack, FakeGspBackConfig};
use gpuvmk_chip::EngineSet;
use gpuvmk_saved_state::testing::through_text;

pub const ALLOC_MEMORY: u32 = 4;
pub const FREE: u32 = 10;
pub const DUPLICATE: u32 = 21;
pub const UNLOADING: u32 = 47;
pub const STATIC_INFO: u32 = 65;
pub const UPDATE_BAR_PDE: u32 = 70;
pub const CONTINUATION: u32 = 71;
pub const SYSTEM_INFO: u32 = 72;
pub const REGISTRY: u32 = 73;
pub const CONTROL: u32 = 76;
pub const ALLOC: u32 = 103;

pub const LIBOS: u64 = 0x2_0000;
pub const RMARGS: u64 = 0x2_1000;
const PAGES: u64 = 129;
const COMMANDS: u64 = 0x1000;
const MESSAGES: u64 = 0x4_1000;
const COUNT: u32 = 63;
pub const PAGE: usize = 0x1000;
/// The largest RPC body of one record.
pub const RECORD: usize = 16 * PAGE - 80;

/// A message from GSP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub function: u32,
    pub result: u32,
    pub sequence: u32,
    pub body: Vec<u8>,
}

impl Message {
    pub fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.body[at..at + 4].try_into().unwrap())
    }

    pub fn long(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.body[at..at + 8].try_into().unwrap())
    }
}

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub fn poke(body: &mut [u8], at: usize, data: &[u8]) {
    body[at..at + data.len()].copy_from_slice(data);
}

/// How long it is what a driver sends, by the version that it speaks.
#[derive(Debug)]
pub struct Version {
    pub name: &'static str,
    pub system_info: usize,
    pub root: usize,
    pub channel: usize,
    pub static_info: usize,
    /// The length of an allocation's message leaves out its parameters.
    pub parameters_follow: bool,
}

pub static R570: Version = Version {
    name: "570.144",
    system_info: 0x3a0,
    root: 0x78,
    channel: 0x170,
    static_info: 0x678,
    parameters_follow: false,
};
pub static R535: Version = Version {
    name: "535.113.01",
    system_info: 0x298,
    root: 0x6c,
    channel: 0x168,
    static_info: 0x878,
    parameters_follow: false,
};
pub static R550: Version = Version {
    name: "550.163.01",
    system_info: 0x370,
    root: 0x6c,
    channel: 0x168,
    static_info: 0x888,
    parameters_follow: true,
};
pub static R535_261: Version = Version {
    name: "535.261.03",
    system_info: 0x2a0,
    root: 0x6c,
    channel: 0x168,
    static_info: 0x878,
    parameters_follow: true,
};

/// The body of a request for static info.
pub fn static_info() -> Vec<u8> {
    vec![0; SPEAKS.get().static_info]
}

thread_local! {
    /// The version that drivers speak.
    pub static SPEAKS: Cell<&'static Version> = const { Cell::new(&R570) };
    /// Doorbells that were rung since GSP is to be replaced by ones from its saved state; none: it is not.
    pub static RESTORES: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Doorbells at which GSP is replaced each time. Later on, it is at some: tests that fill it would take long.
const EACH: u32 = 64;

pub struct Driver {
    pub gsp: Gsp,
    pub config: GspConfig,
    pub back: FakeGspBack,
    pages: Vec<u64>,
    write: u32,
    element: u32,
    rpc: u32,
    read: u32,
    pub effects: Vec<Effect>,
    pub events: Vec<Message>,
    /// The time that GSP is told.
    pub now: u64,
}

impl Driver {
    /// A driver that has set its memory up, and queued the two RPCs that come before the boot.
    pub fn new(config: GspConfig) -> Self {
        let mut driver = Self::bare(config);
        driver.send(SYSTEM_INFO, &vec![0; SPEAKS.get().system_info], 0);
        driver.send(REGISTRY, &words(&[8 + 16 + 24, 1, 24, 1, 1, 4, 0, 0, 0, 0, 0, 0]), 0);
        driver
    }

    /// A driver that has set its memory up.
    pub fn bare(config: GspConfig) -> Self {
        // The shared memory's pages lie apart and out of order.
        let pages: Vec<_> = (0..PAGES).map(|page| 0x10_0000 + (page * 37 % PAGES) * 0x2000).collect();
        let mut driver = Self {
            gsp: Gsp::new(config),
            config,
            back: FakeGspBack::new(FakeGspBackConfig {
                vram: config.vram,
                ram: 0..4 << 20,
                channels: 64,
                engines: EngineSet::all(),
            }),
            pages,
            write: 0,
            element: 0,
            rpc: 0,
            read: 0,
            effects: Vec::new(),
            events: Vec::new(),
            now: 0,
        };
        driver.arguments();
        driver
    }

    fn arguments(&mut self) {
        let table: Vec<_> = self.pages.iter().flat_map(|page| page.to_le_bytes()).collect();
        self.back.put_ram(self.pages[0], &table);
        self.shared_put(COMMANDS, &words(&[0, 0x4_0000, 0x1000, COUNT, 0, 1, 32, 0x1000]));
        let region = |name: &[u8], address: u64| {
            let id = name.iter().fold(0u64, |id, letter| id << 8 | u64::from(*letter));
            let mut raw = [id.to_le_bytes(), address.to_le_bytes(), 0x1000u64.to_le_bytes()].concat();
            raw.extend([1, 1, 0, 0, 0, 0, 0, 0]);
            raw
        };
        let regions: Vec<u8> = [&b"LOGINIT"[..], b"LOGINTR", b"LOGRM"]
            .into_iter()
            .flat_map(|name| region(name, 0x3_0000))
            .chain(region(b"RMARGS", RMARGS))
            .collect();
        self.back.put_ram(LIBOS, &regions);
        let mut arguments = vec![0; 0x48];
        poke(&mut arguments, 0, &self.pages[0].to_le_bytes());
        poke(&mut arguments, 8, &words(&[129]));
        poke(&mut arguments, 16, &COMMANDS.to_le_bytes());
        poke(&mut arguments, 24, &MESSAGES.to_le_bytes());
        arguments[0x30] = 1;
        self.back.put_ram(RMARGS, &arguments);
    }

    /// Boots, and takes INIT_DONE.
    pub fn booted(config: GspConfig) -> Self {
        let mut driver = Self::new(config);
        driver.boot(LIBOS).unwrap();
        driver.poll();
        driver
    }

    pub fn boot(&mut self, libos: u64) -> Result<(), BootError> {
        let effects = self.gsp.boot(&self.back, libos)?;
        self.effects.extend(effects);
        Ok(())
    }

    /// Starts over with empty queues, as a driver that is loaded again.
    pub fn restart(&mut self) {
        (self.write, self.element, self.read) = (0, 0, 0);
        self.publish(0);
        self.publish_read(0);
    }

    pub fn shared_get(&self, offset: u64, size: usize) -> Vec<u8> {
        let mut data = Vec::with_capacity(size);
        while data.len() < size {
            let at = offset + data.len() as u64;
            let in_page = PAGE - usize::try_from(at % PAGE as u64).unwrap();
            data.extend(self.back.ram(self.place(at), in_page.min(size - data.len())));
        }
        data
    }

    pub fn shared_put(&self, offset: u64, data: &[u8]) {
        for (index, chunk) in data.chunks(PAGE).enumerate() {
            self.back.put_ram(self.place(offset + (index * PAGE) as u64), chunk);
        }
    }

    fn place(&self, offset: u64) -> u64 {
        self.pages[usize::try_from(offset >> 12).unwrap()] + (offset & 0xfff)
    }

    fn pointer(&self, offset: u64) -> u32 {
        u32::from_le_bytes(self.shared_get(offset, 4).try_into().unwrap())
    }

    /// GSP's read pointer of the command queue.
    pub fn commands_read(&self) -> u32 {
        self.pointer(MESSAGES + 32)
    }

    /// GSP's write pointer of the message queue.
    pub fn messages_written(&self) -> u32 {
        self.pointer(MESSAGES + 16)
    }

    /// Publishes a write pointer of the command queue, whatever it is.
    pub fn publish(&self, write: u32) {
        self.shared_put(COMMANDS + 16, &write.to_le_bytes());
    }

    /// Publishes a read pointer of the message queue, whatever it is.
    pub fn publish_read(&self, read: u32) {
        self.shared_put(COMMANDS + 32, &read.to_le_bytes());
    }

    /// An element as nouveau makes it: whole pages, with a checksum.
    pub fn encode(&mut self, function: u32, body: &[u8], sequence: u32) -> Vec<u8> {
        let follows = function == ALLOC && SPEAKS.get().parameters_follow;
        let length = if follows { 32 + 32 } else { 32 + body.len() };
        let mut raw = vec![0; (80 + body.len()).next_multiple_of(PAGE)];
        poke(&mut raw, 36, &words(&[self.element, ((48 + length).div_ceil(PAGE)) as u32]));
        poke(&mut raw, 48, &words(&[0x0300_0000, 0x4350_5256, length as u32, function, !0, !0, sequence, 0]));
        poke(&mut raw, 80, body);
        self.element += 1;
        // NVIDIA's driver covers what the length says, to whole words, and nouveau all of the element.
        if follows {
            seal(&mut raw[..48 + length]);
        } else {
            seal(&mut raw);
        }
        raw
    }

    /// Puts an element into the command queue as it is.
    pub fn push(&mut self, raw: &[u8]) {
        for page in raw.chunks(PAGE) {
            self.shared_put(COMMANDS + 0x1000 + u64::from(self.write) * 0x1000, page);
            self.write = (self.write + 1) % COUNT;
        }
        self.publish(self.write);
    }

    /// Sends an RPC, in several records where it is too large for one. No doorbell.
    pub fn send(&mut self, function: u32, body: &[u8], sequence: u32) {
        let (first, rest) = body.split_at(body.len().min(RECORD));
        let raw = self.encode(function, first, sequence);
        self.push(&raw);
        for piece in rest.chunks(RECORD) {
            let raw = self.encode(CONTINUATION, piece, sequence);
            self.push(&raw);
            self.ring();
        }
    }

    /// GSP goes, and comes back from its saved state.
    pub fn restore(&mut self) {
        let state = through_text(&self.gsp.state());
        self.gsp = Gsp::from_state(&state, self.config).unwrap();
        assert_eq!(self.gsp.state(), state);
    }

    /// Rings the doorbell.
    pub fn ring(&mut self) {
        if let Some(rung) = RESTORES.get() {
            RESTORES.set(Some(rung + 1));
            if rung < EACH || rung % 509 == 0 {
                self.restore();
            }
        }
        let mut effects = self.gsp.commands(&self.back, self.now);
        effects.extend(self.kernel_work(0));
        self.effects.extend(effects);
    }

    /// All that channels of the driver's kernel can do now.
    pub fn kernel_work(&mut self, now: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        loop {
            if RESTORES.get().is_some() && self.gsp.has_kernel_channels() {
                self.restore();
            }
            effects.extend(self.gsp.kernel_work(&self.back, now));
            if self.gsp.kernel_left() != KernelWork::More {
                return effects;
            }
        }
    }

    /// Reads everything from the message queue as nouveau does; events are kept apart.
    pub fn poll(&mut self) -> Vec<Message> {
        let mut replies = Vec::new();
        let mut large: Option<Message> = None;
        while let Some((function, message)) = self.receive() {
            match (function, large.take()) {
                (CONTINUATION, Some(mut first)) => {
                    first.body.extend(message.body);
                    large = Some(first);
                }
                (_, before) => {
                    replies.extend(before);
                    if function >= 0x1000 {
                        self.events.push(message);
                    } else {
                        large = Some(message);
                    }
                }
            }
        }
        replies.extend(large);
        replies
    }

    fn receive(&mut self) -> Option<(u32, Message)> {
        if self.read == self.messages_written() {
            return None;
        }
        let at = |element: u32| MESSAGES + 0x1000 + u64::from(element % COUNT) * 0x1000;
        let head = self.shared_get(at(self.read), 80);
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let elements = word(40);
        let mut raw: Vec<_> =
            (0..elements).flat_map(|element| self.shared_get(at(self.read + element), PAGE)).collect();
        assert_eq!((word(48), word(52)), (0x0300_0000, 0x4350_5256));
        raw.truncate((48 + word(56) as usize).next_multiple_of(8));
        assert_eq!(checksum(&raw), 0, "a message has a wrong checksum");
        raw.truncate(48 + word(56) as usize);
        self.read = (self.read + elements) % COUNT;
        self.publish_read(self.read);
        let body = raw[80..].to_vec();
        assert_eq!(word(64), word(68));
        Some((word(60), Message { function: word(60), result: word(64), sequence: word(72), body }))
    }

    /// Sends an RPC and waits for its answer.
    pub fn call(&mut self, function: u32, body: &[u8]) -> Message {
        let sequence = self.rpc;
        self.rpc += 1;
        self.send(function, body, sequence);
        self.ring();
        let mut replies = self.poll();
        assert_eq!(replies.len(), 1, "one call, one answer: {replies:?}");
        let reply = replies.remove(0);
        assert_eq!((reply.function, reply.sequence), (function, sequence));
        assert!(reply.body.len() == body.len() || reply.result != 0, "an answer has the size of its request");
        reply
    }

    /// GSP_RM_ALLOC: the status.
    pub fn alloc(&mut self, client: u32, parent: u32, object: u32, class: u32, parameters: &[u8]) -> u32 {
        let mut body = words(&[client, parent, object, class, 0, parameters.len() as u32, 0, 0]);
        body.extend(parameters);
        let reply = self.call(ALLOC, &body);
        assert_eq!(reply.result, 0);
        reply.word(16)
    }

    /// GSP_RM_CONTROL: the status, and the parameters as answered.
    pub fn control(&mut self, client: u32, object: u32, cmd: u32, parameters: &[u8]) -> (u32, Message) {
        let mut body = words(&[client, object, cmd, 0, parameters.len() as u32, 0]);
        body.extend(parameters);
        let mut reply = self.call(CONTROL, &body);
        assert_eq!(reply.result, 0);
        let status = reply.word(12);
        reply.body.drain(..24);
        (status, reply)
    }

    /// FREE: the result.
    pub fn free(&mut self, client: u32, object: u32) -> u32 {
        let reply = self.call(FREE, &words(&[client, 0, object, 0]));
        assert_eq!(reply.word(12), reply.result);
        reply.result
    }
}

pub fn checksum(raw: &[u8]) -> u32 {
    let sum = raw.chunks(8).fold(0u64, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum ^ u64::from_le_bytes(word)
    });
    (sum >> 32) as u32 ^ sum as u32
}

/// Gives an element the checksum that it needs.
pub fn seal(raw: &mut [u8]) {
    poke(raw, 32, &[0; 4]);
    let sum = checksum(raw);
    poke(raw, 32, &sum.to_le_bytes());
}
