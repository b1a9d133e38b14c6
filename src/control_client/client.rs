//! Asks a control socket: JSON-RPC 2.0, one line there, one line back.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::{Value, json};

use crate::Status;

/// How long the aggregator may take to accept, to read and to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Longest answer in bytes. A status has some KiB for each VM.
const LONGEST: u64 = 64 << 20;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The socket takes no connection.
    #[error("No aggregator answers at {}: is it running?", path.display())]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The connection broke, or the aggregator did not answer in time.
    #[error("No aggregator answers at {}: is it running?", path.display())]
    Silent {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The aggregator ended the connection.
    #[error("The aggregator at {} closed the connection without an answer", .0.display())]
    Closed(PathBuf),
    /// The answer is no JSON.
    #[error("The aggregator's answer is not as expected: {line}")]
    Answer {
        /// The line that came as an answer.
        line: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The answer has neither a result nor an error.
    #[error("{method} has no result: {line}")]
    NoResult {
        /// Name of the method.
        method: String,
        /// The line that came as an answer.
        line: String,
    },
    /// The state is of another form than [`Status`].
    #[error("The aggregator's status is not as expected: {shown}")]
    Status {
        /// The state.
        shown: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The aggregator refuses the call, and says why.
    #[error("{0}")]
    Refused(String),
}

impl ControlError {
    /// True if there is no socket, or no listener at it.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Connect { source, .. }
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused))
    }
}

/// The state of the aggregator whose control socket is at `path`.
///
/// # Errors
/// There is no answer, or it is no status.
pub fn status(path: &Path) -> Result<Status, ControlError> {
    let answer = call(path, "status", &json!({}))?;
    serde_json::from_value(answer.clone())
        .map_err(|source| ControlError::Status { shown: answer.to_string(), source })
}

/// Calls a method of the aggregator whose control socket is at `path`; returns the result.
///
/// # Errors
/// There is no answer within five seconds, or the aggregator refuses the call.
pub fn call(path: &Path, method: &str, params: &Value) -> Result<Value, ControlError> {
    let silent = |source| ControlError::Silent { path: path.to_owned(), source };
    let mut stream = open(path).map_err(|source| ControlError::Connect { path: path.to_owned(), source })?;
    stream.set_read_timeout(Some(LIMIT)).map_err(silent)?;
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    stream.write_all(format!("{request}\n").as_bytes()).map_err(silent)?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line).map_err(silent)?;
    if line.is_empty() {
        return Err(ControlError::Closed(path.to_owned()));
    }
    let mut answer: Value = match serde_json::from_str(&line) {
        Ok(answer) => answer,
        Err(source) => return Err(ControlError::Answer { line, source }),
    };
    if let Some(message) = answer["error"]["message"].as_str() {
        return Err(ControlError::Refused(message.to_owned()));
    }
    answer
        .get_mut("result")
        .map(Value::take)
        .ok_or_else(|| ControlError::NoResult { method: method.to_owned(), line })
}

/// Connects. The limit for writing is set before, because Linux applies it also while the aggregator accepts
/// no connection.
fn open(path: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(LIMIT))?;
    connect(&socket, &address)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Answers one call with a line; returns what the caller asked and got.
    fn exchange<T>(answer: &'static str, ask: impl FnOnce(&Path) -> T) -> (String, T) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            line
        });
        let got = ask(&path);
        (server.join().unwrap(), got)
    }

    #[test]
    fn status_is_asked_for_and_read() {
        let answer = concat!(
            r#"{"jsonrpc":"2.0","id":1,"result":{"gpu":{"chip":"GF100","scrub":{"by":"copy engine","#,
            r#""engine_ns":9,"departures":{"wanted_us":5}}},"tenants":[{"name":"vm1","vram":268435456,"#,
            r#""foreign_accesses":0,"submissions":7}]}}"#,
            "\n"
        );
        let (asked, status) = exchange(answer, |path| status(path).unwrap());
        assert!(asked.contains("\"method\":\"status\""));
        let scrub = &status.gpu.scrub;
        assert_eq!((scrub.figures.as_ref().unwrap().engine_ns, scrub.departures.wanted_us), (9, 5));
        let tenant = status.tenant("vm1").unwrap();
        assert_eq!((tenant.submissions, tenant.foreign_accesses, tenant.vram), (7, Some(0), 268_435_456));
    }

    #[test]
    fn refusals_and_answers_that_are_none_are_told_apart() {
        let said = |answer| {
            let (_, result) = exchange(answer, |path| call(path, "version", &json!({})));
            result.unwrap_err()
        };
        let refused = said("{\"error\":{\"code\":-32002,\"message\":\"not now\"}}\n");
        assert_eq!(refused.to_string(), "not now");
        assert!(matches!(said(""), ControlError::Closed(_)));
        assert!(matches!(said("{}\n"), ControlError::NoResult { .. }));
        assert!(matches!(said("what?\n"), ControlError::Answer { .. }));
        let (_, wrong) = exchange("{\"result\":{\"gpu\":7}}\n", |path| status(path).unwrap_err());
        assert!(matches!(wrong, ControlError::Status { .. }));
    }

    #[test]
    fn absent_aggregator_is_named_by_its_socket() {
        let error = status(Path::new("/no/such/control.sock")).unwrap_err();
        assert!(error.to_string().contains("/no/such/control.sock"), "{error}");
        assert!(error.is_absent() && error.source().unwrap().to_string().contains("No such file"));
    }

    #[test]
    fn socket_that_nobody_listens_at_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(status(&path).unwrap_err().is_absent());
    }
}
