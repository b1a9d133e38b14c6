//! What is between a server and one viewer: what comes in and what goes out, without descriptors and clocks.
//!
//! Output is made as the viewer takes it: a rectangle at a time, of the newest picture, and none while 256
//! KiB are on their way. A viewer that reads slowly gets fewer pictures, and costs no more memory.

use std::collections::VecDeque;
use std::time::Duration;

use super::format::{Converter, PixelFormat};
use super::input::ViewerInput;
use super::message::{Fault, Message, Parser, SECURITY_NONE, Version};
use super::pipe::Pipe;
use super::update::{self, DESKTOP_SIZE, Encoder, Encoding, ZRLE};
use crate::mode::Size;
use crate::source::Picture;
use crate::tiles::Rectangle;
use crate::watch::FRAME_TIME;

/// Output beyond which no more is made.
pub const OUTPUT_MAX: usize = 1 << 18;

/// Longest name that a viewer is told.
const NAME_MAX: usize = 255;

/// What a viewer has agreed to.
#[derive(Clone, Copy, Debug, Default)]
struct Encodings {
    zrle: bool,
    desktop_size: bool,
    /// Pixels as they are are preferred to all that comes behind.
    raw: bool,
}

impl Encodings {
    fn add(&mut self, encoding: i32) {
        match encoding {
            0 => self.raw = true,
            ZRLE => self.zrle |= !self.raw,
            DESKTOP_SIZE => self.desktop_size = true,
            _ => {}
        }
    }
}

/// What a viewer wants.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    /// What has changed, once something has.
    changes: bool,
    /// All of an area, now.
    all: Option<Rectangle>,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The viewer has to speak.
    Greeting,
    /// It waits for the picture's size.
    Size,
    /// It gets pictures.
    Pictures,
}

/// One viewer.
#[derive(Debug)]
pub struct Session {
    name: String,
    phase: Phase,
    version: Version,
    parser: Parser,
    output: Vec<u8>,
    /// Bytes of it that were sent.
    sent: usize,
    converter: Converter,
    encodings: Encodings,
    encoder: Encoder,
    wanted: Wanted,
    /// What is left of the update that is being sent.
    update: VecDeque<Rectangle>,
    /// The screen's size, as the viewer knows it.
    size: Size,
    /// The size of the picture that it saw last.
    seen_size: Size,
    /// That picture's number.
    seen: u64,
    /// When the next update may begin.
    next: Duration,
    pipe: Pipe,
}

impl Session {
    /// A viewer that has just come. The server speaks first.
    pub fn new(name: &str) -> Self {
        let none = Size::new(0, 0);
        Self {
            name: name
                .chars()
                .scan(0, |length, letter| {
                    *length += letter.len_utf8();
                    (*length <= NAME_MAX).then_some(letter)
                })
                .collect(),
            phase: Phase::Greeting,
            version: Version::V8,
            parser: Parser::new(),
            output: b"RFB 003.008\n".to_vec(),
            sent: 0,
            converter: Converter::new(PixelFormat::OURS),
            encodings: Encodings::default(),
            encoder: Encoder::default(),
            wanted: Wanted::default(),
            update: VecDeque::new(),
            size: none,
            seen_size: none,
            seen: 0,
            next: Duration::ZERO,
            pipe: Pipe::default(),
        }
    }

    /// Whether it has said all that it has to before it gets pictures.
    pub fn is_greeted(&self) -> bool {
        self.phase != Phase::Greeting
    }

    /// Whether it waits for a picture.
    pub fn wants_picture(&self) -> bool {
        match self.phase {
            Phase::Greeting => false,
            Phase::Size => true,
            Phase::Pictures => self.wanted.changes || self.wanted.all.is_some() || !self.update.is_empty(),
        }
    }

    /// When it may get its next update.
    pub fn next_update(&self) -> Duration {
        self.next
    }

    /// Takes what the viewer says.
    ///
    /// # Errors
    /// It is not to be served any more.
    pub fn receive(&mut self, mut bytes: &[u8], input: &dyn ViewerInput) -> Result<(), Fault> {
        while let Some(message) = self.parser.next(&mut bytes)? {
            match message {
                Message::Version(version) => {
                    self.version = version;
                    match version {
                        Version::V3 => self.output.extend_from_slice(&u32::from(SECURITY_NONE).to_be_bytes()),
                        Version::V7 | Version::V8 => self.output.extend_from_slice(&[1, SECURITY_NONE]),
                    }
                }
                Message::Security => {
                    if self.version == Version::V8 {
                        // All is well.
                        self.output.extend_from_slice(&[0; 4]);
                    }
                }
                Message::Init => self.phase = Phase::Size,
                Message::Format(format) => self.converter = Converter::new(format),
                Message::Encodings => self.encodings = Encodings::default(),
                Message::Encoding(encoding) => self.encodings.add(encoding),
                Message::Request { incremental: true, .. } => self.wanted.changes = true,
                Message::Request { area, .. } => {
                    self.wanted.all = Some(self.wanted.all.map_or(area, |before| around(before, area)));
                }
                Message::Key { down, key } => input.key(down, key),
                Message::Pointer { buttons, x, y } => input.pointer(buttons, x, y),
            }
        }
        Ok(())
    }

    /// Makes output of a picture, as far as it is wanted. `now` is any clock's time.
    pub fn fill(&mut self, picture: &Picture, now: Duration) {
        if self.phase == Phase::Size {
            self.begin(picture);
        }
        while self.phase == Phase::Pictures && self.output().len() < OUTPUT_MAX {
            if self.update.is_empty() && !self.begin_update(picture, now) {
                return;
            }
            if let Some(area) = self.update.pop_front() {
                let encoding = match self.encodings.zrle {
                    true if self.pipe.is_wide() => Encoding::ZrleIfSmall,
                    true => Encoding::Zrle,
                    false => Encoding::Raw,
                };
                self.encoder.rectangle(&picture.frame, area, (&self.converter, encoding), &mut self.output);
            }
        }
    }

    /// Tells the size of the screen.
    fn begin(&mut self, picture: &Picture) {
        self.size = picture.frame.size();
        for side in [self.size.width(), self.size.height()] {
            self.output.extend_from_slice(&side.to_be_bytes());
        }
        self.output.extend_from_slice(&PixelFormat::OURS.write());
        let length = u32::try_from(self.name.len()).unwrap_or(0);
        self.output.extend_from_slice(&length.to_be_bytes());
        self.output.extend_from_slice(self.name.as_bytes());
        self.phase = Phase::Pictures;
    }

    /// Begins an update if there is anything to send. False if not.
    fn begin_update(&mut self, picture: &Picture, now: Duration) -> bool {
        if now < self.next || !self.wants_picture() {
            return false;
        }
        let size = picture.frame.size();
        if size != self.size && self.encodings.desktop_size {
            // It asks again for what it then wants to see.
            update::resized(size, &mut self.output);
            (self.size, self.seen, self.seen_size) = (size, 0, size);
            self.wanted = Wanted::default();
            return true;
        }
        let screen = Rectangle::all(self.size);
        let all = match self.wanted.all {
            // What is around a picture of another size is to become black.
            _ if self.seen_size != size && self.wanted.changes => Some(screen),
            Some(area) => area.common(screen),
            None => None,
        };
        let mut parts: VecDeque<Rectangle> = all.into_iter().flat_map(update::strips).collect();
        if all == Some(screen) || self.wanted.changes {
            if all != Some(screen) {
                let changed = picture.tiles.changed_since(self.seen).into_iter();
                parts.extend(changed.filter_map(|part| part.common(screen)));
            }
            (self.seen, self.seen_size) = (picture.number, size);
        }
        if parts.is_empty() && self.wanted.all.is_none() {
            return false;
        }
        self.wanted = Wanted::default();
        self.next = now + FRAME_TIME;
        self.pipe.begin();
        update::begin(parts.len(), &mut self.output);
        self.update = parts;
        true
    }

    /// What is to be sent.
    pub fn output(&self) -> &[u8] {
        self.output.get(self.sent..).unwrap_or_default()
    }

    /// So many bytes of it were sent; the viewer took no more for the moment if some are left.
    pub fn sent(&mut self, bytes: usize, now: Duration) {
        self.sent += bytes;
        if self.sent >= self.output.len() {
            self.output.clear();
            self.sent = 0;
            self.pipe.flows(now);
        } else {
            self.pipe.is_full(now);
            if self.sent > OUTPUT_MAX {
                self.output.drain(..self.sent);
                self.sent = 0;
            }
        }
        // What one large rectangle needed is given back.
        if self.output.is_empty() && self.output.capacity() > 2 * OUTPUT_MAX {
            self.output.shrink_to(OUTPUT_MAX);
        }
    }
}

/// The smallest rectangle with both in it.
fn around(one: Rectangle, other: Rectangle) -> Rectangle {
    let axis = |from: u16, length: u16, other_from: u16, other_length: u16| {
        let first = from.min(other_from);
        let end = from.saturating_add(length).max(other_from.saturating_add(other_length));
        (first, end - first)
    };
    let (x, width) = axis(one.x, one.width, other.x, other.width);
    let (y, height) = axis(one.y, one.height, other.y, other.height);
    Rectangle { x, y, width, height }
}
