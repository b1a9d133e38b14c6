//! The mailbox: one short request and its answer through shared memory, while both sides are awake.
//!
//! A message through a socket costs two system calls on each side, and a wake-up where the other end sleeps.
//! A tenant that has CPUs to spare puts its request here and polls for the answer for a while. If none comes
//! it announces that it sleeps, and the answer comes through the socket. Requests with files, long ones, and
//! those of tenants that do not poll go through the socket altogether. There is one request at a time on
//! either way.
//!
//! The tenant can write all of this memory at any time. The aggregator takes a copy of the request before it
//! looks at it, and a state that makes no sense costs the tenant its own answer.

use std::sync::atomic::Ordering;

use super::shared::SharedWords;

/// Words of the shared board that the mailbox takes.
pub const WORDS: usize = 1024;

/// Bytes of a request or an answer that it can hold.
pub const BYTES: usize = (WORDS - DATA) * 4;

const STATE: usize = 0;
const LENGTH: usize = 1;
const DATA: usize = 16;

/// Words of a mailbox that mean something by their place.
pub(super) const LANDMARKS: [usize; 3] = [STATE, LENGTH, DATA];

/// Values of [`STATE`].
mod state {
    /// The mailbox is empty.
    pub const IDLE: u32 = 0;
    /// A request; its sender looks for the answer.
    pub const ASKED: u32 = 1;
    /// A request; its sender waits for the answer at the socket.
    pub const ASLEEP: u32 = 2;
    /// It holds an answer.
    pub const ANSWERED: u32 = 3;
    /// The answer is at the socket.
    pub const AT_SOCKET: u32 = 4;
}

/// State of a request for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is no answer yet.
    Nothing,
    /// The answer, of so many bytes.
    Answer(usize),
    /// The answer is at the socket.
    AtSocket,
}

/// A mailbox in shared words.
#[derive(Clone, Copy, Debug)]
pub struct Mailbox<'a> {
    words: &'a SharedWords,
    first: usize,
}

impl<'a> Mailbox<'a> {
    /// The mailbox from word `first` on.
    pub fn new(words: &'a SharedWords, first: usize) -> Self {
        Self { words, first }
    }

    fn word(&self, index: usize) -> &std::sync::atomic::AtomicU32 {
        self.words.word(self.first.wrapping_add(index))
    }

    /// Puts a request in; false when it is too long. The receiver must be woken if it sleeps.
    pub fn ask(&self, request: &[u8]) -> bool {
        if request.len() > BYTES {
            return false;
        }
        self.write(request);
        self.word(STATE).store(state::ASKED, Ordering::SeqCst);
        true
    }

    /// Looks for the answer to [`Mailbox::ask`].
    pub fn look(&self, answer: &mut [u8]) -> Found {
        match self.word(STATE).load(Ordering::Acquire) {
            state::ANSWERED => {
                let length = self.read(answer);
                self.word(STATE).store(state::IDLE, Ordering::Release);
                Found::Answer(length)
            }
            state::AT_SOCKET => {
                self.word(STATE).store(state::IDLE, Ordering::Release);
                Found::AtSocket
            }
            _ => Found::Nothing,
        }
    }

    /// Says that the answer is awaited at the socket from now on. False when it is here already.
    pub fn sleep(&self) -> bool {
        let (from, to) = (state::ASKED, state::ASLEEP);
        self.word(STATE).compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// True when there is a request. It stays there until it is answered.
    pub fn has_request(&self) -> bool {
        matches!(self.word(STATE).load(Ordering::SeqCst), state::ASKED | state::ASLEEP)
    }

    /// Copies the request; returns its length.
    pub fn take(&self, request: &mut [u8]) -> usize {
        std::sync::atomic::fence(Ordering::Acquire);
        self.read(request)
    }

    /// Answers the request. False when the answer must go through the socket.
    pub fn answer(&self, answer: &[u8]) -> bool {
        let fits = answer.len() <= BYTES;
        if fits {
            self.write(answer);
        }
        let to = if fits { state::ANSWERED } else { state::AT_SOCKET };
        if self.word(STATE).compare_exchange(state::ASKED, to, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return fits;
        }
        // Before the answer goes out: the next request may follow it at once.
        self.word(STATE).store(state::IDLE, Ordering::Release);
        false
    }

    fn write(&self, bytes: &[u8]) {
        for (index, chunk) in bytes.chunks(4).enumerate() {
            let mut word = [0; 4];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.word(DATA.wrapping_add(index)).store(u32::from_le_bytes(word), Ordering::Relaxed);
        }
        let length = u32::try_from(bytes.len()).unwrap_or(0);
        self.word(LENGTH).store(length, Ordering::Relaxed);
    }

    /// Reads the message. Its length is the other side's word, so it is cut to the buffer.
    fn read(&self, bytes: &mut [u8]) -> usize {
        let length = usize::try_from(self.word(LENGTH).load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let length = length.min(BYTES).min(bytes.len());
        for (index, chunk) in bytes.get_mut(..length).unwrap_or_default().chunks_mut(4).enumerate() {
            let word = self.word(DATA.wrapping_add(index)).load(Ordering::Relaxed).to_le_bytes();
            chunk.iter_mut().zip(word).for_each(|(to, from)| *to = from);
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> SharedWords {
        SharedWords::create("test", 2).unwrap().0
    }

    #[test]
    fn request_and_answer_go_through_and_leave_it_empty() {
        let words = words();
        let mailbox = Mailbox::new(&words, 1024);
        let mut bytes = [0; 64];
        assert!(!mailbox.has_request());
        assert!(mailbox.ask(b"map seven pages"));
        assert_eq!(mailbox.look(&mut bytes), Found::Nothing);

        assert!(mailbox.has_request());
        let length = mailbox.take(&mut bytes);
        assert_eq!(&bytes[..length], b"map seven pages");
        assert!(mailbox.answer(b"done"));

        assert!(!mailbox.has_request());
        assert_eq!(mailbox.look(&mut bytes), Found::Answer(4));
        assert_eq!(&bytes[..4], b"done");
        assert_eq!(mailbox.look(&mut bytes), Found::Nothing);
    }

    #[test]
    fn sender_that_sleeps_gets_its_answer_at_the_socket() {
        let words = words();
        let mailbox = Mailbox::new(&words, 0);
        mailbox.ask(b"x");

        assert!(mailbox.sleep());
        assert!(mailbox.has_request(), "the request is still there");
        assert!(!mailbox.answer(b"y"), "through the socket");

        assert!(!mailbox.has_request(), "and is not taken twice");
    }

    #[test]
    fn answer_that_came_first_keeps_the_sender_awake() {
        let words = words();
        let mailbox = Mailbox::new(&words, 0);
        mailbox.ask(b"x");
        assert!(mailbox.answer(b"y"));

        assert!(!mailbox.sleep());

        assert_eq!(mailbox.look(&mut [0; 8]), Found::Answer(1));
    }

    #[test]
    fn what_is_too_long_goes_through_the_socket() {
        let words = words();
        let mailbox = Mailbox::new(&words, 0);
        assert!(!mailbox.ask(&[0; BYTES + 1]));
        assert!(mailbox.ask(&[7; BYTES]));

        assert!(!mailbox.answer(&[0; BYTES + 1]));

        assert_eq!(mailbox.look(&mut [0; 8]), Found::AtSocket);
    }

    #[test]
    fn length_that_is_a_lie_reads_what_is_there() {
        let words = words();
        let mailbox = Mailbox::new(&words, 0);
        mailbox.ask(b"x");
        words.word(LENGTH).store(u32::MAX, Ordering::Relaxed);

        let mut bytes = vec![0; 2 * BYTES];
        assert_eq!(mailbox.take(&mut bytes), BYTES);
        assert_eq!(mailbox.take(&mut bytes[..5]), 5);
    }
}
