//! How much a channel's command streams copy, by what they say.
//!
//! No hardware counts bytes for each channel, so its commands are looked through: for what they bind, for
//! lengths, and for what starts a copy. Nothing that is found here decides anything. A guest that changes its
//! commands after it submitted them, or starts copies that fault, spoils its own figure.
//!
//! Not counted: what shaders, draws and two-dimensional copies move. A copy with a condition counts as if it
//! was done. An element of a swizzled copy on GF100 counts as a byte.

use gpuvmk_chip::gf100::methods::{host, m2mf, pcopy};
use gpuvmk_chip::gh100::methods::copy::{self, SET_REMAP_COMPONENTS as REMAP};
use gpuvmk_chip::gh100::methods::{GRAPHICS_SUBCHANNELS, SUBCHANNEL_COPY, SUBCHANNEL_SOFTWARE, inline};
use gpuvmk_chip::nv::classes::{self, FERMI_DECOMPRESS, FERMI_DMA, Role};
use gpuvmk_chip::registers::Field;
use gpuvmk_chip::stream::{Command, Header, METHOD_MAX, Method, Stepping};
use gpuvmk_chip::{Engine, EngineSet, Subchannels};

/// Binds an object to a subchannel; the same on every chip.
const SET_OBJECT: u16 = host::SET_OBJECT;

/// The engines of GF100's copy classes.
const PCOPY: [Engine; 2] = [Engine::COPY0, Engine::COPY1];

/// The counts. What they cost grows with the engines that copied, not with those that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedBytes {
    /// Bytes written by copies, by [`Engine::place`].
    bytes: [u64; Engine::COUNT],
    /// The engines whose bytes are not 0.
    engines: EngineSet,
    /// Ring entries whose commands were not looked through: there were too many, or they could not be read.
    pub unread_entries: u64,
}

impl Default for CopiedBytes {
    fn default() -> Self {
        Self::of_unread(0)
    }
}

impl CopiedBytes {
    /// No copy, and so many ring entries that were not looked through.
    pub const fn of_unread(unread_entries: u64) -> Self {
        Self { bytes: [0; Engine::COUNT], engines: EngineSet::empty(), unread_entries }
    }

    /// Adds a copy.
    pub fn add(&mut self, engine: Engine, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if let Some(sum) = self.bytes.get_mut(usize::from(engine.place())) {
            *sum = sum.saturating_add(bytes);
            self.engines |= engine.into();
        }
    }

    /// Adds all of another.
    pub fn add_all(&mut self, other: &Self) {
        for (engine, bytes) in other.by_engine() {
            self.add(engine, bytes);
        }
        self.unread_entries = self.unread_entries.saturating_add(other.unread_entries);
    }

    /// True when nothing was copied and nothing was left unread.
    pub const fn is_empty(&self) -> bool {
        self.engines.is_empty() && self.unread_entries == 0
    }

    /// Bytes of an engine.
    pub fn bytes(&self, engine: Engine) -> u64 {
        self.bytes.get(usize::from(engine.place())).copied().unwrap_or(0)
    }

    /// Bytes of each engine that copied, by their places.
    pub fn by_engine(&self) -> impl Iterator<Item = (Engine, u64)> {
        self.engines.engines().map(|engine| (engine, self.bytes(engine)))
    }
}

/// Lines of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    length: u32,
    count: u32,
}

impl Lines {
    fn bytes(self) -> u64 {
        u64::from(self.length).saturating_mul(self.count.into())
    }
}

/// How an object copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Object {
    /// It copies nothing that is looked for.
    #[default]
    Other,
    /// A copy engine of GF100.
    Pcopy(u8),
    /// GF100's memory to memory format.
    M2mf,
    /// The copy engine of the channel's runlist.
    DmaCopy(Engine),
    /// Inline to memory: of the class of that name, of 3D, of compute.
    Inline(usize),
}

impl Object {
    /// The first and the last method that matter.
    fn range(self) -> Option<(u16, u16)> {
        match self {
            Self::Other => None,
            Self::Pcopy(_) => Some((pcopy::EXEC, pcopy::Y_COUNT)),
            Self::M2mf => Some((m2mf::EXEC, m2mf::LINE_COUNT)),
            Self::DmaCopy(_) => Some((copy::SET_RENDER_ENABLE_C, REMAP)),
            Self::Inline(_) => Some((inline::LINE_LENGTH_IN, inline::LAUNCH_DMA)),
        }
    }

    fn concerns(self, method: u16) -> bool {
        match self {
            Self::Other => false,
            Self::Pcopy(_) => matches!(method, pcopy::EXEC | pcopy::X_COUNT | pcopy::Y_COUNT),
            Self::M2mf => matches!(method, m2mf::EXEC | m2mf::LINE_LENGTH_IN | m2mf::LINE_COUNT),
            Self::DmaCopy(_) => matches!(
                method,
                copy::LAUNCH_DMA
                    | copy::LINE_LENGTH_IN
                    | copy::LINE_COUNT
                    | copy::SET_RENDER_ENABLE_C
                    | REMAP
            ),
            Self::Inline(_) => {
                matches!(method, inline::LAUNCH_DMA | inline::LINE_LENGTH_IN | inline::LINE_COUNT)
            }
        }
    }
}

/// Follows the command stream of one channel.
#[derive(Clone, Debug)]
pub struct CopyMeter {
    subchannels: Subchannels,
    /// A header whose words are still to come.
    pending: Header,
    objects: [Object; 8],
    pcopy: [Lines; 2],
    m2mf: Lines,
    dma: Lines,
    remap_components: u32,
    render_enable: u32,
    inline: [Lines; 3],
}

impl CopyMeter {
    /// A channel that has done nothing. `engines` are those of its runlist, where that decides what
    /// subchannels are.
    pub fn new(subchannels: Subchannels, engines: EngineSet) -> Self {
        let objects = match subchannels {
            Subchannels::ByClass => [Object::Other; 8],
            Subchannels::ByRunlist => runlist_objects(engines),
        };
        Self {
            subchannels,
            pending: Header::default(),
            objects,
            pcopy: [Lines::default(); 2],
            m2mf: Lines::default(),
            dma: Lines::default(),
            remap_components: 0,
            render_enable: copy::SET_RENDER_ENABLE_C::MODE::TRUE,
            inline: [Lines::default(); 3],
        }
    }

    /// Reads words of a segment, little endian as they lie in memory. False when the rest of the segment does
    /// not count.
    pub fn read(&mut self, mut words: &[[u8; 4]], copied: &mut CopiedBytes) -> bool {
        while let Some((word, rest)) = words.split_first() {
            let passed = usize::from(self.indifferent()).min(words.len());
            if passed > 0 {
                self.pass(passed);
                words = words.get(passed..).unwrap_or_default();
                continue;
            }
            words = rest;
            let word = u32::from_le_bytes(*word);
            if self.pending.remaining > 0 {
                let method = self.pending.take(word);
                self.execute(method, copied);
                continue;
            }
            match Command::decode(word) {
                Command::Methods(header) => self.pending = header,
                Command::Immediate(method) => self.execute(method, copied),
                Command::Nothing => {}
                Command::EndSegment | Command::Illegal(_) => return false,
            }
        }
        true
    }

    /// How many of the next words cannot matter: they need not be read.
    pub fn indifferent(&self) -> u16 {
        let Header { stepping, subchannel, method, remaining } = self.pending;
        let object = self.object(subchannel);
        let matters = match stepping {
            Stepping::Fixed => method == SET_OBJECT || object.concerns(method),
            Stepping::Increment | Stepping::IncrementOnce => {
                let last = u32::from(method).saturating_add(u32::from(remaining.saturating_sub(1)) * 4);
                let meets = |(low, high): (u16, u16)| last >= low.into() && method <= high;
                // Beyond the last method comes the first.
                method == SET_OBJECT || last > METHOD_MAX.into() || object.range().is_some_and(meets)
            }
        };
        if matters { 0 } else { remaining }
    }

    /// Goes on behind that many words that are not read, at most [`CopyMeter::indifferent`].
    pub fn pass(&mut self, words: usize) {
        let header = &mut self.pending;
        let words = u16::try_from(words).unwrap_or(u16::MAX).min(header.remaining);
        header.remaining = header.remaining.saturating_sub(words);
        if header.stepping == Stepping::Increment {
            header.method = header.method.wrapping_add(words.wrapping_mul(4)) & METHOD_MAX;
        }
    }

    /// Words were missed: whatever a header announced, what comes next begins with a header.
    pub fn skip(&mut self) {
        self.pending = Header::default();
    }

    fn object(&self, subchannel: u8) -> Object {
        self.objects.get(usize::from(subchannel)).copied().unwrap_or_default()
    }

    fn bind(&mut self, subchannel: u8, class: u16) {
        let Some(object) = self.objects.get_mut(usize::from(subchannel)) else { return };
        *object = match (self.subchannels, *object) {
            (Subchannels::ByClass, _) => fermi_object(class),
            // The subchannel decides; an engine refuses what it is not.
            (Subchannels::ByRunlist, Object::DmaCopy(engine)) => Object::DmaCopy(engine),
            (Subchannels::ByRunlist, _) => graphics_object(class),
        };
    }

    fn execute(&mut self, method: Method, copied: &mut CopiedBytes) {
        let Method { subchannel, method, data } = method;
        if method == SET_OBJECT {
            return self.bind(subchannel, host::SET_OBJECT::NVCLASS.get_u16(data));
        }
        match self.object(subchannel) {
            Object::Other => {}
            Object::Pcopy(number) => {
                let place = usize::from(number);
                let (Some(lines), Some(engine)) = (self.pcopy.get_mut(place), PCOPY.get(place)) else {
                    return;
                };
                match method {
                    pcopy::X_COUNT => lines.length = data,
                    pcopy::Y_COUNT => lines.count = data,
                    pcopy::EXEC => copied.add(*engine, lines.bytes()),
                    _ => {}
                }
            }
            Object::M2mf => match method {
                m2mf::LINE_LENGTH_IN => self.m2mf.length = data,
                m2mf::LINE_COUNT => self.m2mf.count = data,
                m2mf::EXEC => copied.add(Engine::Graphics, self.m2mf.bytes()),
                _ => {}
            },
            Object::DmaCopy(engine) => match method {
                copy::LINE_LENGTH_IN => self.dma.length = data,
                copy::LINE_COUNT => self.dma.count = data,
                REMAP => self.remap_components = data,
                copy::SET_RENDER_ENABLE_C => self.render_enable = data,
                copy::LAUNCH_DMA => copied.add(engine, self.launch_bytes(data)),
                _ => {}
            },
            Object::Inline(which) => {
                let Some(lines) = self.inline.get_mut(which) else { return };
                match method {
                    inline::LINE_LENGTH_IN => lines.length = data,
                    inline::LINE_COUNT => lines.count = data,
                    inline::LAUNCH_DMA => copied.add(Engine::Graphics, lines.bytes()),
                    _ => {}
                }
            }
        }
    }

    /// Bytes that a launch of a copy engine writes, since Kepler.
    fn launch_bytes(&self, launch: u32) -> u64 {
        if !copy::LAUNCH_DMA::DATA_TRANSFER_TYPE.is_set(launch)
            || self.render_enable == copy::SET_RENDER_ENABLE_C::MODE::FALSE
        {
            return 0;
        }
        let count = if copy::LAUNCH_DMA::MULTI_LINE_ENABLE.is_set(launch) { self.dma.count } else { 1 };
        let units = Lines { count, ..self.dma }.bytes();
        if !copy::LAUNCH_DMA::REMAP_ENABLE.is_set(launch) {
            return units;
        }
        let components = self.remap_components;
        let one_more = |field: Field| field.get(components).saturating_add(1);
        let places = [REMAP::DST_X, REMAP::DST_Y, REMAP::DST_Z, REMAP::DST_W];
        let written = (0..one_more(REMAP::NUM_DST_COMPONENTS))
            .zip(places)
            .filter(|(_, place)| place.get(components) != REMAP::DST_X::NO_WRITE)
            .map(|_| u64::from(one_more(REMAP::COMPONENT_SIZE)));
        units.saturating_mul(written.sum())
    }
}

/// The objects of a channel's subchannels before it binds any, where the runlist decides.
fn runlist_objects(engines: EngineSet) -> [Object; 8] {
    let mut objects = [Object::Other; 8];
    let copy = engines.engines().find(|engine| matches!(engine, Engine::Copy(_)));
    if engines.contains(EngineSet::GRAPHICS) {
        for (object, class) in objects.iter_mut().zip(GRAPHICS_SUBCHANNELS) {
            *object = graphics_object(class);
        }
    }
    let first = if engines.contains(EngineSet::GRAPHICS) { SUBCHANNEL_COPY } else { 0 };
    for (subchannel, object) in (0..SUBCHANNEL_SOFTWARE).zip(&mut objects) {
        if let Some(engine) = copy.filter(|_| subchannel >= first) {
            *object = Object::DmaCopy(engine);
        }
    }
    objects
}

/// An object on Fermi.
fn fermi_object(class: u16) -> Object {
    match classes::by_number(class.into()) {
        Some(FERMI_DMA) => Object::Pcopy(0),
        Some(FERMI_DECOMPRESS) => Object::Pcopy(1),
        Some(class) if class.role == Role::MemoryToMemory => Object::M2mf,
        _ => Object::Other,
    }
}

/// An object of the graphics engine since Kepler. All of them have the methods of the inline class.
fn graphics_object(class: u16) -> Object {
    match classes::by_number(class.into()).map(|class| class.role) {
        Some(Role::InlineToMemory) => Object::Inline(0),
        Some(Role::ThreeD) => Object::Inline(1),
        Some(Role::Compute) => Object::Inline(2),
        _ => Object::Other,
    }
}

#[cfg(test)]
mod tests;
