//! One operator's connection: lines in, lines out, and never more kept than what one read brought and one
//! answer.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use gpuvmk_host::socket_path::peer::Credentials;

/// Longest request line.
const MAX_LINE: usize = 4096;

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// The operator's next bytes.
    ToAsk,
    /// Room for the answer.
    Room,
    /// It has ended.
    Nothing,
}

/// A connection of an operator.
#[derive(Debug)]
pub(super) struct Operator {
    socket: UnixStream,
    peer: Credentials,
    asked: Vec<u8>,
    unsent: Vec<u8>,
    last: Instant,
}

impl Operator {
    /// A peer that has just connected.
    pub(super) fn new(socket: UnixStream, peer: Credentials) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, peer, asked: Vec::new(), unsent: Vec::new(), last: Instant::now() })
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// The process at the other end.
    pub(super) fn peer(&self) -> Credentials {
        self.peer
    }

    /// How long it has neither asked nor read.
    pub(super) fn idle(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last)
    }

    /// Sends, answers and receives (once) what is possible without waiting. Nothing is answered while an
    /// answer is unsent: a peer that does not read causes no work.
    pub(super) fn turn(&mut self, answer: impl Fn(&str) -> Option<String>) -> io::Result<Wants> {
        let mut received = false;
        loop {
            if !self.send()? {
                return Ok(Wants::Room);
            }
            if let Some(line) = self.line()? {
                if let Some(answer) = answer(&line) {
                    self.unsent = answer.into_bytes();
                    self.unsent.push(b'\n');
                }
                continue;
            }
            if received {
                return Ok(Wants::ToAsk);
            }
            let mut bytes = [0; MAX_LINE];
            let room = MAX_LINE.saturating_sub(self.asked.len());
            match self.socket.read(bytes.get_mut(..room).unwrap_or_default()) {
                Ok(0) => return Ok(Wants::Nothing),
                Ok(read) => self.asked.extend_from_slice(bytes.get(..read).unwrap_or_default()),
                Err(error) if is_for_later(&error) => return Ok(Wants::ToAsk),
                Err(error) => return Err(error),
            }
            self.last = Instant::now();
            received = true;
        }
    }

    /// The next line that is complete.
    fn line(&mut self) -> io::Result<Option<String>> {
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        match self.asked.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                let line = self.asked.drain(..=end).collect();
                String::from_utf8(line).map(Some).map_err(|_| invalid("a request is no UTF-8"))
            }
            None if self.asked.len() >= MAX_LINE => Err(invalid("a request line is too long")),
            None => Ok(None),
        }
    }

    /// True when all is sent.
    fn send(&mut self) -> io::Result<bool> {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    self.unsent.drain(..sent.min(self.unsent.len()));
                    self.last = Instant::now();
                }
                Err(error) if is_for_later(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Operator, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let peer = Credentials::of(&ours).unwrap();
        (Operator::new(ours, peer).unwrap(), theirs)
    }

    fn shout(line: &str) -> Option<String> {
        Some(line.trim_end().to_uppercase())
    }

    #[test]
    fn line_in_pieces_and_one_answer() {
        let (mut operator, mut other) = pair();
        other.write_all(b"ab").unwrap();
        assert_eq!(operator.turn(shout).unwrap(), Wants::ToAsk);
        other.write_all(b"c\nd").unwrap();
        assert_eq!(operator.turn(shout).unwrap(), Wants::ToAsk);

        let mut answer = [0; 16];
        let read = other.read(&mut answer).unwrap();
        assert_eq!(&answer[..read], b"ABC\n");
    }

    #[test]
    fn operator_who_does_not_read_and_bounded_memory() {
        let (mut operator, other) = pair();
        other.set_nonblocking(true).unwrap();
        let mut wants = Wants::ToAsk;
        for _ in 0..10_000 {
            // The socket fills at some point.
            let _ = (&other).write(&[b'\n'; 512]);
            wants = operator.turn(|_| Some("x".repeat(1000))).unwrap();
        }
        assert_eq!(wants, Wants::Room);
        assert!(operator.unsent.len() <= 1001, "{}", operator.unsent.len());
        assert!(operator.asked.len() <= MAX_LINE);
    }

    #[test]
    fn lines_at_once_and_all_answers_in_order() {
        let (mut operator, mut other) = pair();
        other.write_all(b"a\nb\nc\n").unwrap();
        assert_eq!(operator.turn(shout).unwrap(), Wants::ToAsk);

        let mut answer = [0; 16];
        let read = other.read(&mut answer).unwrap();
        assert_eq!(&answer[..read], b"A\nB\nC\n");
    }

    #[test]
    fn endless_line_and_an_error() {
        let (mut operator, mut other) = pair();
        other.write_all(&[b'x'; MAX_LINE]).unwrap();
        assert!(operator.turn(shout).is_err());
    }

    #[test]
    fn operator_who_goes_and_nothing_more() {
        let (mut operator, other) = pair();
        drop(other);
        assert_eq!(operator.turn(shout).unwrap(), Wants::Nothing);
    }
}
