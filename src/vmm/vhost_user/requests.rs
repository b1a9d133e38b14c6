//! What a back end asks of us, over a socket of its own: that its configuration is another, and nothing else
//! is granted. It is read without a wait, some at a time, and no descriptor is taken.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use vhost::vhost_user::message::MAX_MSG_SIZE;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A message's beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Header {
    request: U32,
    flags: U32,
    size: U32,
}

const HEADER: usize = size_of::<Header>();
/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`.
const CONFIG_CHANGE: u32 = 2;
/// Flags: the version, an answer, an answer is wanted.
const VERSION: u32 = 0x1;
const VERSION_MASK: u32 = 0x3;
const REPLY: u32 = 0x4;
const NEED_REPLY: u32 = 0x8;
/// Bytes that are read at a time, before others have their turn.
const AT_ONCE: usize = 4096;
/// The answer to what is not granted: an error, whichever.
const REFUSED: u64 = 1;

/// Why a back end is not listened to any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("a request of {0} bytes, or of another version")]
    Malformed(u32),
    #[error("it takes no answers")]
    NoAnswer,
    #[error("its requests cannot be read")]
    Socket(#[from] io::Error),
}

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The configuration is another.
    pub(super) configuration: bool,
    /// Requests that were not granted.
    pub(super) refused: u32,
    /// The back end asks no more: it has closed its end.
    pub(super) closed: bool,
}

/// The reader of one back end's requests.
#[derive(Debug)]
pub(super) struct Requests {
    socket: UnixStream,
    /// Bytes of a header that have come.
    header: Vec<u8>,
    /// Bytes of the present request that are still to come, and its answer.
    rest: u32,
}

impl Requests {
    /// The reader, and the end that the back end gets.
    pub(super) fn new() -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((Self { socket: ours, header: Vec::with_capacity(HEADER), rest: 0 }, theirs))
    }

    /// Where requests are waited for.
    pub(super) const fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Reads what has come, up to a limit.
    pub(super) fn read(&mut self) -> Result<Asked, RequestError> {
        let mut bytes = [0; AT_ONCE];
        let size = match self.socket.read(&mut bytes) {
            Ok(0) => return Ok(Asked { closed: true, ..Asked::default() }),
            Ok(size) => size,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                return Ok(Asked { closed: true, ..Asked::default() });
            }
            Err(error) => return Err(error.into()),
        };
        let (read, _) = bytes.split_at(size);
        let mut asked = Asked::default();
        self.take(read, &mut asked)?;
        Ok(asked)
    }

    fn take(&mut self, mut bytes: &[u8], asked: &mut Asked) -> Result<(), RequestError> {
        while !bytes.is_empty() {
            if self.rest > 0 {
                // The content of what is not granted.
                let skipped = bytes.len().min(usize::try_from(self.rest).unwrap_or(usize::MAX));
                (_, bytes) = bytes.split_at(skipped);
                self.rest -= u32::try_from(skipped).unwrap_or(self.rest);
                continue;
            }
            let wanted = bytes.len().min(HEADER - self.header.len());
            let (part, behind) = bytes.split_at(wanted);
            self.header.extend_from_slice(part);
            bytes = behind;
            if let Ok(header) = Header::read_from_bytes(&self.header) {
                self.header.clear();
                self.begin(header, asked)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, header: Header, asked: &mut Asked) -> Result<(), RequestError> {
        let (flags, size) = (header.flags.get(), header.size.get());
        let limit = u32::try_from(MAX_MSG_SIZE).unwrap_or(0);
        if size > limit || flags & VERSION_MASK != VERSION || flags & REPLY != 0 {
            return Err(RequestError::Malformed(size));
        }
        self.rest = size;
        let granted = header.request.get() == CONFIG_CHANGE && size == 0;
        asked.configuration |= granted;
        asked.refused += u32::from(!granted);
        if flags & NEED_REPLY == 0 {
            return Ok(());
        }
        let answer = Header { flags: (VERSION | REPLY).into(), size: 8.into(), ..header };
        let value = if granted { 0 } else { REFUSED };
        let bytes = [answer.as_bytes(), &value.to_le_bytes()].concat();
        // One that does not read its answers fills the socket.
        match self.socket.write(&bytes) {
            Ok(written) if written == bytes.len() => Ok(()),
            _ => Err(RequestError::NoAnswer),
        }
    }
}

/// Carries out what came as bytes, for a fuzzer: nothing that comes may do more than be refused.
pub fn try_requests(bytes: &[u8]) {
    let Ok((mut requests, theirs)) = Requests::new() else { return };
    for piece in bytes.chunks(AT_ONCE) {
        if (&theirs).write_all(piece).is_err() || requests.read().is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(request: u32, flags: u32, content: &[u8]) -> Vec<u8> {
        let size = u32::try_from(content.len()).unwrap();
        let header = Header { request: request.into(), flags: flags.into(), size: size.into() };
        [header.as_bytes(), content].concat()
    }

    #[test]
    fn change_of_configuration_is_all_that_is_granted() {
        let (mut requests, mut theirs) = Requests::new().unwrap();
        let all = [message(2, 1, &[]), message(9, 9, &[0; 40]), message(2, 9, &[])].concat();
        // However it is cut.
        let mut asked = Asked::default();
        for byte in &all {
            theirs.write_all(&[*byte]).unwrap();
            let more = requests.read().unwrap();
            asked.configuration |= more.configuration;
            asked.refused += more.refused;
        }
        assert_eq!(asked, Asked { configuration: true, refused: 1, closed: false });
        let mut answers = [0; 40];
        theirs.read_exact(&mut answers).unwrap();
        assert_eq!((answers[0], answers[4], answers[12]), (9, 5, 1));
        assert_eq!((answers[20], answers[24], answers[32]), (2, 5, 0));
        drop(theirs);
        assert!(requests.read().unwrap().closed);
    }

    #[test]
    fn what_is_no_request_or_takes_no_answer_is_not_listened_to() {
        for wrong in
            [message(2, 0, &[]), message(2, 5, &[]), [2, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255].to_vec()]
        {
            let (mut requests, mut theirs) = Requests::new().unwrap();
            theirs.write_all(&wrong).unwrap();
            assert!(matches!(requests.read(), Err(RequestError::Malformed(_))), "{wrong:?}");
        }
        let (mut requests, mut theirs) = Requests::new().unwrap();
        let flood = message(2, 9, &[]).repeat(300);
        let mut rounds = 0;
        while requests.read().is_ok() {
            theirs.write_all(&flood).unwrap();
            rounds += 1;
            assert!(rounds < 10_000, "answers that nobody reads go somewhere");
        }
    }
}
