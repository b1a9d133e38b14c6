//! Asks an aggregator's control socket: JSON-RPC 2.0, one line there, one line back.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(5);

/// An aggregator's state.
#[derive(Debug, Clone, Deserialize)]
pub struct Status {
    /// The physical GPU.
    pub gpu: Gpu,
    /// Those who share it.
    #[serde(default)]
    pub tenants: Vec<Tenant>,
}

/// The physical GPU of an aggregator.
#[derive(Debug, Clone, Deserialize)]
pub struct Gpu {
    /// What was zeroed between tenants.
    pub scrub: Scrub,
    /// Everything else.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Zeroing of memory that changes hands.
#[derive(Debug, Clone, Deserialize)]
pub struct Scrub {
    /// Nanoseconds in which the copy engine had memory to zero, waiting for other channels included; 0 where the driver
    /// does not count.
    #[serde(default)]
    pub engine_ns: u64,
    /// Tenants that are gone.
    pub departures: Departures,
}

/// Tenants that are gone.
#[derive(Debug, Clone, Deserialize)]
pub struct Departures {
    /// Microseconds in which they had work that was not done, of all together.
    pub wanted_us: u64,
}

/// One tenant of the GPU.
#[derive(Debug, Clone, Deserialize)]
pub struct Tenant {
    /// The VM's name.
    pub name: String,
    /// Engine accesses that left the tenant's own memory, as the software GPU counted them; must be 0. Real hardware
    /// does not tell.
    #[serde(default)]
    pub foreign_accesses: Option<u64>,
    /// Its part of the engines' busy time, 0 to 1.
    #[serde(default)]
    pub gpu_share: f64,
    /// Its channels that were taken off because they made no progress.
    #[serde(default)]
    pub hangs: u64,
    /// Work it handed in.
    #[serde(default)]
    pub submissions: u64,
    /// Faults of its own channels.
    #[serde(default)]
    pub faults: u64,
    /// Everything else.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Status {
    /// The tenant called `name`.
    pub fn tenant(&self, name: &str) -> Option<&Tenant> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }
}

/// The state of the aggregator whose control socket is at `path`.
pub fn status(path: &Path) -> Result<Status> {
    let answer = call(path, "status", &json!({}))?;
    let shown = answer.to_string();
    serde_json::from_value(answer)
        .with_context(|| format!("The aggregator's status is not as expected: {shown}"))
}

/// Calls a method.
pub fn call(path: &Path, method: &str, params: &Value) -> Result<Value> {
    let absent = || format!("No aggregator answers at {}: is it running?", path.display());
    let mut stream = UnixStream::connect(path).with_context(absent)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    stream.write_all(format!("{request}\n").as_bytes()).with_context(absent)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).with_context(absent)?;
    ensure!(!line.is_empty(), "The aggregator at {} closed the connection without an answer", path.display());
    let mut answer: Value = serde_json::from_str(&line)
        .with_context(|| format!("The aggregator's answer is not as expected: {line}"))?;
    if let Some(message) = answer["error"]["message"].as_str() {
        bail!("{message}");
    }
    answer.get_mut("result").map(Value::take).with_context(|| format!("{method} has no result: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    #[test]
    fn status_is_asked_for_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"gpu":{"chip":"GF100","scrub":{"engine_ns":9,"departures":{"wanted_us":5}}},"tenants":[{"name":"vm1","vram":268435456,
                "foreign_accesses":0,"submissions":7}]}}"#;
            writeln!(&stream, "{}", answer.replace('\n', "")).unwrap();
            line
        });
        let status = status(&path).unwrap();
        assert!(server.join().unwrap().contains("\"method\":\"status\""));
        assert_eq!((status.gpu.scrub.engine_ns, status.gpu.scrub.departures.wanted_us), (9, 5));
        let tenant = status.tenant("vm1").unwrap();
        assert_eq!((tenant.submissions, tenant.foreign_accesses), (7, Some(0)));
        assert_eq!(tenant.more["vram"], 268_435_456);
        assert!(status.tenant("vm2").is_none());
    }

    #[test]
    fn absent_aggregator_is_named_by_its_socket() {
        let message = format!("{:#}", status(Path::new("/no/such/control.sock")).unwrap_err());
        assert!(message.contains("/no/such/control.sock"), "{message}");
    }
}
