//! A channel with a push buffer: what it was told, word by word.

use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::display::push::{BYTES, NV_DISP_DMA, NV_DISP_DMA_JUMP, WORDS};
use gpuvmk_chip::display::{ChannelKind, ChannelName, core, immediate, window};
use gpuvmk_mmio_trap::PhysicalMemory;
use gpuvmk_saved_state::{Check, StateError, Words};
use serde::{Deserialize, Serialize};

use super::methods::Methods;

/// Why a channel stops: it takes no more words until it is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// There is no memory where the push buffer is said to be.
    #[error("there is no memory at its push buffer")]
    NoMemory,
    /// It was to read more words at a time than any driver writes.
    #[error("its push buffer does not end")]
    Endless,
    /// A word begins with what is no operation.
    #[error("{0:#010x} is no operation")]
    Operation(u32),
    /// There is no such method.
    #[error("there is no method {0:#06x}")]
    Method(u32),
}

/// Words that follow a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// The method that the next one sets.
    pub method: u32,
    /// How many words are left.
    pub left: u32,
    /// Whether each sets the method behind the one before.
    pub increments: bool,
}

/// A channel with a push buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    kind: ChannelKind,
    buffer: PhysicalAddress,
    /// How far it was written, in words.
    put: usize,
    /// How far it was read, in words.
    get: usize,
    burst: Option<Burst>,
    /// An UPDATE waits.
    waits: bool,
    stopped: bool,
    /// Its methods.
    pub methods: Methods,
}

/// The UPDATE of such a channel.
pub const fn update(kind: ChannelKind) -> u32 {
    match kind {
        ChannelKind::Core => core::UPDATE,
        ChannelKind::Window => window::UPDATE,
        ChannelKind::Immediate | ChannelKind::Cursor => immediate::UPDATE,
    }
}

impl Channel {
    /// A channel that begins at an offset in bytes of its push buffer.
    pub fn new(kind: ChannelKind, buffer: PhysicalAddress, offset: u32) -> Self {
        let at = usize::try_from(offset / 4).unwrap_or(0) % WORDS;
        Self {
            kind,
            buffer,
            put: at,
            get: at,
            burst: None,
            waits: false,
            stopped: false,
            methods: Methods::new(kind),
        }
    }

    /// How far it was written, in words.
    pub const fn put(&self) -> usize {
        self.put
    }

    /// How far it was read, in words.
    pub const fn get(&self) -> usize {
        self.get
    }

    /// The driver has written it so far.
    pub const fn set_put(&mut self, put: usize) {
        self.put = put % WORDS;
    }

    /// Whether an UPDATE waits.
    pub const fn waits(&self) -> bool {
        self.waits && !self.stopped
    }

    /// What was set takes effect, and the words behind the UPDATE are next.
    pub fn arm(&mut self) {
        self.methods.arm();
        self.waits = false;
    }

    /// Reads on, up to where it was written or to the next UPDATE, at most `fuel` words.
    ///
    /// # Errors
    /// See [`PushError`]. The channel has stopped.
    pub fn run(&mut self, memory: &dyn PhysicalMemory, fuel: &mut u32) -> Result<(), PushError> {
        if self.stopped || self.waits || self.get == self.put {
            return Ok(());
        }
        let result = self.read(memory, fuel);
        self.stopped = result.is_err();
        result
    }

    fn read(&mut self, memory: &dyn PhysicalMemory, fuel: &mut u32) -> Result<(), PushError> {
        // A copy: what the driver changes meanwhile is for the next time.
        let mut page = [0; BYTES];
        if !memory.read(self.buffer, &mut page) {
            return Err(PushError::NoMemory);
        }
        let (words, _) = page.as_chunks::<4>();
        while self.get != self.put && !self.waits {
            *fuel = fuel.checked_sub(1).ok_or(PushError::Endless)?;
            let word = words.get(self.get).copied().map_or(0, u32::from_le_bytes);
            self.get = (self.get + 1) % WORDS;
            match self.burst {
                Some(burst) => self.set(burst, word)?,
                None => self.begin(word)?,
            }
        }
        Ok(())
    }

    /// A word that begins something.
    fn begin(&mut self, word: u32) -> Result<(), PushError> {
        let method = NV_DISP_DMA::METHOD_OFFSET.get(word) * 4;
        let left = NV_DISP_DMA::METHOD_COUNT.get(word);
        let burst = |increments| (left > 0).then_some(Burst { method, left, increments });
        match NV_DISP_DMA::OPCODE.get(word) {
            NV_DISP_DMA::OPCODE::METHOD => self.burst = burst(true),
            NV_DISP_DMA::OPCODE::NONINC_METHOD => self.burst = burst(false),
            NV_DISP_DMA::OPCODE::JUMP => {
                self.get = usize::try_from(NV_DISP_DMA_JUMP::OFFSET.get(word)).unwrap_or(0) % WORDS;
            }
            // There is one subdevice.
            NV_DISP_DMA::OPCODE::SET_SUBDEVICE_MASK => {}
            _ => return Err(PushError::Operation(word)),
        }
        Ok(())
    }

    /// A word for a method.
    fn set(&mut self, burst: Burst, word: u32) -> Result<(), PushError> {
        let Burst { method, left, increments } = burst;
        let next = if increments { method.saturating_add(4) } else { method };
        self.burst = (left > 1).then_some(Burst { method: next, left: left - 1, increments });
        if !self.methods.set(method, word) {
            return Err(PushError::Method(method));
        }
        self.waits = method == update(self.kind);
        Ok(())
    }
}

/// State of a channel with a push buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelState {
    /// Which one.
    pub name: ChannelName,
    /// Its push buffer.
    pub buffer: PhysicalAddress,
    /// How far it was written, in words.
    pub put: usize,
    /// How far it was read, in words.
    pub get: usize,
    /// Words that follow a header.
    pub burst: Option<Burst>,
    /// An UPDATE waits.
    pub waits: bool,
    /// It takes no more words.
    pub stopped: bool,
    /// Methods as they were set.
    pub assembly: Words,
    /// Methods that have taken effect.
    pub armed: Words,
}

impl Channel {
    /// The state to save.
    pub fn state(&self, name: ChannelName) -> ChannelState {
        let Self { kind: _, buffer, put, get, burst, waits, stopped, methods } = self;
        let [assembly, armed] = methods.state();
        ChannelState {
            name,
            buffer: *buffer,
            put: *put,
            get: *get,
            burst: *burst,
            waits: *waits,
            stopped: *stopped,
            assembly,
            armed,
        }
    }

    /// A channel in a saved state.
    ///
    /// # Errors
    /// It is of a kind without push buffer, or is at a place where it cannot be.
    pub fn from_state(state: &ChannelState) -> Result<Self, StateError> {
        let ChannelState { name, buffer, put, get, burst, waits, stopped, assembly, armed } = state;
        let check = Check("display channel");
        let is_there = ChannelName::new(name.kind, name.instance) == Some(*name);
        check.that(is_there && name.kind != ChannelKind::Cursor, || format!("{name:?} is none"))?;
        // CAST: widening.
        let is_in_place = *put < WORDS && *get < WORDS && buffer.address.is_multiple_of(BYTES as u64);
        let most = NV_DISP_DMA::METHOD_COUNT.get(u32::MAX);
        let is_burst = burst.is_none_or(|burst| {
            let Burst { method, left, increments: _ } = burst;
            (1..=most).contains(&left) && method.is_multiple_of(4) && method <= core::BYTES + 4 * most
        });
        check.that(is_in_place && is_burst, || format!("{name:?} is at {put} and {get}, with {burst:?}"))?;
        Ok(Self {
            kind: name.kind,
            buffer: *buffer,
            put: *put,
            get: *get,
            burst: *burst,
            waits: *waits,
            stopped: *stopped,
            methods: Methods::from_state(name.kind, [assembly, armed])?,
        })
    }
}
