//! What viewers send, taken apart as it comes.
//!
//! At most the head of one message is kept; what a message has behind it (encodings, text) is taken as it
//! comes, and text is dropped.

use thiserror::Error;

use super::format::{FORMAT_BYTES, FormatError, PixelFormat};
use crate::tiles::Rectangle;

/// Bytes of a viewer's version.
const VERSION_BYTES: usize = 12;

/// Longest head of a message: that of a pixel format.
const HEAD_BYTES: usize = 4 + FORMAT_BYTES;

/// Longest text that a viewer may send. It is dropped.
const TEXT_MAX: u32 = 1 << 20;

/// The security type without any.
pub(super) const SECURITY_NONE: u8 = 1;

/// Why a viewer is not served any more.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// It does not speak RFB.
    #[error("it does not begin with a version of RFB")]
    Version,
    /// It chose a security type that was not offered.
    #[error("it chose security type {0}, and none (1) is what there is")]
    Security(u8),
    /// A message whose end is not known.
    #[error("it sent a message of type {0}, which is not known")]
    Message(u8),
    /// Too much text.
    #[error("it sent {0} bytes of text, and {TEXT_MAX} are the limit")]
    Text(u32),
    /// A pixel format that is not sent.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Versions of the protocol that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// 3.3: the server says which security there is.
    V3,
    /// 3.7: the viewer chooses, and is told no result.
    V7,
    /// 3.8: it is told one.
    V8,
}

/// What a viewer said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Version(Version),
    /// It chose no security.
    Security,
    /// It is ready for the picture's size.
    Init,
    Format(PixelFormat),
    /// A new list of encodings begins.
    Encodings,
    /// The next one of the list.
    Encoding(i32),
    Request {
        incremental: bool,
        area: Rectangle,
    },
    Key {
        down: bool,
        key: u32,
    },
    Pointer {
        buttons: u8,
        x: u16,
        y: u16,
    },
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Version,
    Security,
    Init,
    Message,
    /// So many encodings.
    Encodings(u16),
    /// So many bytes of text.
    Text(u32),
}

/// Takes messages apart.
#[derive(Debug)]
pub(super) struct Parser {
    next: Next,
    head: [u8; HEAD_BYTES],
    have: usize,
}

impl Parser {
    pub(super) fn new() -> Self {
        Self { next: Next::Version, head: [0; HEAD_BYTES], have: 0 }
    }

    /// The next message of `input`, which becomes what is behind it. None if there is only a part of one: all
    /// of `input` was taken then.
    ///
    /// # Errors
    /// The viewer cannot be understood any more.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Message>, Fault> {
        while !input.is_empty() {
            if let Next::Text(left) = self.next {
                let taken = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                *input = input.get(taken..).unwrap_or_default();
                let left = left.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX));
                self.next = if left == 0 { Next::Message } else { Next::Text(left) };
                continue;
            }
            let Some(length) = self.length(input)? else { continue };
            if !self.take(length, input) {
                return Ok(None);
            }
            self.have = 0;
            if let Some(message) = self.read()? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Bytes of what comes next, up to what is taken as it comes. The type of a message is taken first.
    fn length(&mut self, input: &mut &[u8]) -> Result<Option<usize>, Fault> {
        Ok(Some(match self.next {
            Next::Version => VERSION_BYTES,
            Next::Security | Next::Init => 1,
            Next::Encodings(_) => 4,
            Next::Text(_) => return Ok(None),
            Next::Message => {
                if self.have == 0 && !self.take(1, input) {
                    return Ok(None);
                }
                match self.head[0] {
                    0 => HEAD_BYTES,
                    2 => 4,
                    3 => 10,
                    4 | 6 => 8,
                    5 => 6,
                    other => return Err(Fault::Message(other)),
                }
            }
        }))
    }

    /// Takes bytes of `input` until the head has this many. True once it has.
    fn take(&mut self, length: usize, input: &mut &[u8]) -> bool {
        let wanted = length.saturating_sub(self.have).min(input.len());
        let (taken, rest) = input.split_at(wanted);
        if let Some(to) = self.head.get_mut(self.have..self.have + wanted) {
            to.copy_from_slice(taken);
        }
        *input = rest;
        self.have += wanted;
        self.have >= length
    }

    /// Reads a whole head.
    fn read(&mut self) -> Result<Option<Message>, Fault> {
        let head = self.head;
        let two = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let four = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        match self.next {
            Next::Version => {
                let version =
                    version(head.first_chunk().unwrap_or(&[0; VERSION_BYTES])).ok_or(Fault::Version)?;
                self.next = if version == Version::V3 { Next::Init } else { Next::Security };
                Ok(Some(Message::Version(version)))
            }
            Next::Security => {
                self.next = Next::Init;
                let chosen = head[0];
                if chosen == SECURITY_NONE {
                    Ok(Some(Message::Security))
                } else {
                    Err(Fault::Security(chosen))
                }
            }
            Next::Init => {
                self.next = Next::Message;
                Ok(Some(Message::Init))
            }
            Next::Encodings(left) => {
                self.next = match left.saturating_sub(1) {
                    0 => Next::Message,
                    left => Next::Encodings(left),
                };
                Ok(Some(Message::Encoding(four(0).cast_signed())))
            }
            Next::Text(_) => Ok(None),
            Next::Message => match head[0] {
                0 => {
                    let format = head.last_chunk().map(PixelFormat::read).transpose()?;
                    Ok(format.map(Message::Format))
                }
                2 => {
                    if two(2) > 0 {
                        self.next = Next::Encodings(two(2));
                    }
                    Ok(Some(Message::Encodings))
                }
                3 => {
                    let area = Rectangle { x: two(2), y: two(4), width: two(6), height: two(8) };
                    Ok(Some(Message::Request { incremental: head[1] != 0, area }))
                }
                4 => Ok(Some(Message::Key { down: head[1] != 0, key: four(4) })),
                5 => Ok(Some(Message::Pointer { buttons: head[1], x: two(2), y: two(4) })),
                _ => {
                    let length = four(4);
                    if length > TEXT_MAX {
                        return Err(Fault::Text(length));
                    }
                    if length > 0 {
                        self.next = Next::Text(length);
                    }
                    Ok(None)
                }
            },
        }
    }
}

/// The version of "RFB 003.008\n".
fn version(bytes: &[u8; VERSION_BYTES]) -> Option<Version> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (major, minor) = text.strip_prefix("RFB ")?.strip_suffix('\n')?.split_once('.')?;
    let number = |digits: &str| {
        let plain = digits.len() == 3 && digits.bytes().all(|digit| digit.is_ascii_digit());
        if plain { digits.parse::<u16>().ok() } else { None }
    };
    match (number(major)?, number(minor)?) {
        (0..3, _) => None,
        // Versions that never were are taken as 3.3, as the protocol demands.
        (3, 0..7) => Some(Version::V3),
        (3, 7) => Some(Version::V7),
        _ => Some(Version::V8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All messages of bytes that come in pieces of this length.
    fn messages(bytes: &[u8], piece: usize) -> (Vec<Message>, Option<Fault>) {
        let mut parser = Parser::new();
        let mut found = Vec::new();
        for mut input in bytes.chunks(piece) {
            loop {
                match parser.next(&mut input) {
                    Ok(Some(message)) => found.push(message),
                    Ok(None) => break assert!(input.is_empty()),
                    Err(fault) => return (found, Some(fault)),
                }
            }
        }
        (found, None)
    }

    /// What a viewer says at first.
    const GREETING: &[u8] = b"RFB 003.008\n\x01\x00";

    fn after_greeting(bytes: &[u8]) -> Result<Vec<Message>, Fault> {
        let (mut found, fault) = messages(&[GREETING, bytes].concat(), usize::MAX);
        let greeting = found.drain(..3).collect::<Vec<_>>();
        assert_eq!(greeting, [Message::Version(Version::V8), Message::Security, Message::Init]);
        fault.map_or(Ok(found), Err)
    }

    #[test]
    fn messages_are_understood() {
        let format = [&[0, 0, 0, 0][..], &PixelFormat::OURS.write()].concat();
        assert_eq!(after_greeting(&format), Ok(vec![Message::Format(PixelFormat::OURS)]));
        let encodings = [2, 0, 0, 2, 0, 0, 0, 16, 0xff, 0xff, 0xff, 0x21];
        let expected = vec![Message::Encodings, Message::Encoding(16), Message::Encoding(-223)];
        assert_eq!(after_greeting(&encodings), Ok(expected));
        assert_eq!(after_greeting(&[2, 0, 0, 0]), Ok(vec![Message::Encodings]));
        let area = Rectangle { x: 1, y: 2, width: 0x0304, height: 5 };
        let expected = vec![Message::Request { incremental: true, area }];
        assert_eq!(after_greeting(&[3, 1, 0, 1, 0, 2, 3, 4, 0, 5]), Ok(expected));
        let expected = vec![Message::Key { down: true, key: 0xff0d }];
        assert_eq!(after_greeting(&[4, 1, 0, 0, 0, 0, 0xff, 0x0d]), Ok(expected));
        let expected = vec![Message::Pointer { buttons: 1, x: 2, y: 3 }];
        assert_eq!(after_greeting(&[5, 1, 0, 2, 0, 3]), Ok(expected.clone()));
        // Text is dropped, and what is behind it found.
        let text = [&[6, 0, 0, 0, 0, 0, 0, 3][..], b"abc", &[6, 0, 0, 0, 0, 0, 0, 0], &[5, 1, 0, 2, 0, 3]];
        assert_eq!(after_greeting(&text.concat()), Ok(expected));
    }

    #[test]
    fn viewers_that_cannot_be_understood_are_told_apart() {
        assert_eq!(after_greeting(&[7]), Err(Fault::Message(7)));
        assert_eq!(after_greeting(&[6, 0, 0, 0, 0, 0x10, 0, 1]), Err(Fault::Text((1 << 20) + 1)));
        let format = [0; 20];
        assert_eq!(after_greeting(&format), Err(Fault::Format(FormatError::ColourMap)));
        assert_eq!(messages(b"GET / HTTP/1.1\r\n", 3).1, Some(Fault::Version));
        assert_eq!(messages(b"RFB 003.008\n\x02", 3).1, Some(Fault::Security(2)));
    }

    #[test]
    fn older_and_newer_versions_are_known() {
        let of = |text: &[u8; 12]| version(text);
        assert_eq!(of(b"RFB 003.003\n"), Some(Version::V3));
        assert_eq!(of(b"RFB 003.005\n"), Some(Version::V3));
        assert_eq!(of(b"RFB 003.007\n"), Some(Version::V7));
        assert_eq!(of(b"RFB 003.889\n"), Some(Version::V8));
        assert_eq!(of(b"RFB 004.001\n"), Some(Version::V8));
        for wrong in [b"RFB 002.002\n", b"RFB +03.008\n", b"RFB 0003.08\n", b"RFB 003.008 "] {
            assert_eq!(of(wrong), None);
        }
        // 3.3 has no choice of security.
        assert_eq!(messages(b"RFB 003.003\n\x01", 1).0, [Message::Version(Version::V3), Message::Init]);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            bytes in prop::collection::vec(prop_oneof![0_u8..8, any::<u8>()], 0..200), piece in 1_usize..30,
        ) {
            let all = [GREETING, &bytes].concat();
            prop_assert_eq!(messages(&all, piece), messages(&all, usize::MAX));
            prop_assert_eq!(messages(&bytes, piece), messages(&bytes, usize::MAX));
        }
    }
}
