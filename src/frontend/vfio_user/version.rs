//! Negotiation: versions, and capabilities as JSON.
//!
//! The reply names only what the client proposed, so that it is never longer than the proposal: QEMU's client
//! has no room for more. Capabilities that are left out have the protocol's defaults, which are this server's
//! values anyway.

use super::framing::Outbox;
use super::refusal::Refusal;
use super::wire::{self, MAX_DATA, MAX_FDS, command};
use serde::{Deserialize, Serialize};
use zerocopy::FromBytes;

/// Bytes of version data that are looked at; QEMU sends about 200.
const MAX_VERSION_DATA: usize = 4096;

/// Smallest page of a DMA range.
const PAGE_SIZES: u64 = 4096;

/// The agreed capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    pub(super) minor: u16,
    /// The client may send many writes in one message. They are taken in any case.
    pub(super) write_multiple: bool,
}

/// The client's capabilities that matter here; others are ignored.
#[derive(Debug, Default, Deserialize)]
struct Proposal {
    #[serde(default)]
    capabilities: Proposed,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Proposed {
    max_msg_fds: Option<u64>,
    max_data_xfer_size: Option<u64>,
    max_dma_maps: Option<u64>,
    pgsizes: Option<u64>,
    write_multiple: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Reply {
    capabilities: Offered,
}

/// Subset of the proposal.
#[derive(Debug, Serialize)]
struct Offered {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_msg_fds: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_data_xfer_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_dma_maps: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pgsizes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_multiple: Option<bool>,
}

/// Answers the client's proposal for a device that takes `most_ranges` ranges of memory at a time.
pub(super) fn negotiate(body: &[u8], most_ranges: usize, reply: &mut Outbox) -> Result<Agreement, Refusal> {
    let (version, data) = wire::Version::read_from_prefix(body).map_err(|_| Refusal::BodySize {
        command: command::VERSION,
        size: body.len(),
        expected: "4 and version data",
    })?;
    if version.major != wire::MAJOR {
        return Err(Refusal::Field {
            command: command::VERSION,
            field: "the major version",
            value: version.major.into(),
            allowed: "this server speaks version 0",
        });
    }
    let minor = version.minor.min(wire::MINOR);
    reply.put(&wire::Version { major: wire::MAJOR, minor });
    if data.is_empty() {
        return Ok(Agreement { minor, write_multiple: false });
    }
    let proposed = parse(data)?.capabilities;
    let write_multiple = proposed.write_multiple == Some(true);
    let offered = Offered {
        max_msg_fds: proposed.max_msg_fds.map(|_| MAX_FDS),
        max_data_xfer_size: proposed.max_data_xfer_size.map(|_| MAX_DATA),
        // Ranges that follow each other are one, so it may be more; a client that goes by this is never
        // refused.
        max_dma_maps: proposed
            .max_dma_maps
            .map(|most| usize::try_from(most).map_or(most_ranges, |most| most.min(most_ranges))),
        pgsizes: proposed.pgsizes.map(|_| PAGE_SIZES),
        write_multiple: write_multiple.then_some(true),
    };
    let json = serde_json::to_vec(&Reply { capabilities: offered })
        .map_err(|error| Refusal::VersionData(error.to_string()))?;
    reply.put_bytes(&json);
    reply.put_bytes(&[0]);
    Ok(Agreement { minor, write_multiple })
}

/// The JSON in front of the final NUL. Its depth is bounded by the parser, its size here.
fn parse(data: &[u8]) -> Result<Proposal, Refusal> {
    let refuse = |why: &str| Refusal::VersionData(why.to_owned());
    if data.len() > MAX_VERSION_DATA {
        return Err(refuse("it is longer than 4096 bytes"));
    }
    let json = data.strip_suffix(&[0]).ok_or_else(|| refuse("the final NUL is missing"))?;
    serde_json::from_slice(json).map_err(|error| Refusal::VersionData(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(major: u16, minor: u16, data: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(major.to_ne_bytes());
        body.extend(minor.to_ne_bytes());
        body.extend(data);
        body
    }

    fn answer(data: &[u8]) -> Result<Agreement, i32> {
        negotiate(&body(0, 0, data), 4096, &mut Outbox::new()).map_err(|refusal| refusal.errno())
    }

    #[test]
    fn minor_version_is_the_lower_of_both() {
        let minor = |minor| negotiate(&body(0, minor, b""), 4096, &mut Outbox::new()).unwrap().minor;

        assert_eq!((minor(0), minor(1), minor(7)), (0, 1, 1));
    }

    #[test]
    fn write_multiple_is_offered_only_to_those_who_propose_it() {
        let multiple = |data: &[u8]| answer(data).unwrap().write_multiple;

        assert!(multiple(b"{\"capabilities\":{\"write_multiple\":true}}\0"));
        assert!(!multiple(b"{\"capabilities\":{\"write_multiple\":false}}\0"));
        assert!(!multiple(b"{\"capabilities\":{}}\0"));
    }

    #[test]
    fn client_is_told_how_many_ranges_there_may_be() {
        let told = |proposed: u64| {
            let mut reply = Outbox::new();
            let data = format!("{{\"capabilities\":{{\"max_dma_maps\":{proposed}}}}}\0");
            negotiate(&body(0, 0, data.as_bytes()), 4096, &mut reply).unwrap();
            let bytes = reply.bytes();
            String::from_utf8_lossy(bytes).contains(&format!("\"max_dma_maps\":{}}}", proposed.min(4096)))
        };

        assert!(told(65_535) && told(100));
    }

    #[test]
    fn unusual_but_legal_data_is_accepted() {
        for data in
            [&b""[..], b"{}\0", b"{\"capabilities\":{\"twin_socket\":{\"supported\":true}},\"x\":[1]}\0"]
        {
            assert!(answer(data).is_ok(), "{}", String::from_utf8_lossy(data));
        }
    }

    #[test]
    fn malformed_data_is_refused() {
        let deep = [vec![b'['; 2000], vec![0]].concat();
        let long = [vec![b' '; 5000], b"{}\0".to_vec()].concat();
        for data in [
            &b"{}"[..],
            b"\0",
            b"null\0",
            b"{\"capabilities\":3}\0",
            b"{\"capabilities\":{\"max_msg_fds\":-1}}\0",
            b"{}\0{}\0",
            b"\xff\xfe\0",
            &deep,
            &long,
        ] {
            assert_eq!(answer(data), Err(libc::EINVAL));
        }
    }

    #[test]
    fn other_major_version_and_short_body_are_refused() {
        let mut reply = Outbox::new();

        assert_eq!(negotiate(&body(1, 0, b""), 4096, &mut reply).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(negotiate(&[0, 0, 0], 4096, &mut reply).unwrap_err().errno(), libc::EINVAL);
    }
}
