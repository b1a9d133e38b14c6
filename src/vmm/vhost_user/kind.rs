//! The kinds of devices that back ends are, and what their drivers are told of them where the back end does
//! not say: of networks and folders that is ours, as everywhere with vhost-user.

use std::path::PathBuf;

use virtio_bindings::virtio_blk::VIRTIO_BLK_F_MQ;
use virtio_bindings::virtio_config::{
    VIRTIO_F_ACCESS_PLATFORM, VIRTIO_F_ADMIN_VQ, VIRTIO_F_NOTIFICATION_DATA, VIRTIO_F_RING_PACKED,
    VIRTIO_F_RING_RESET, VIRTIO_F_SR_IOV, VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, VIRTIO_NET_F_CTRL_MAC_ADDR, VIRTIO_NET_F_CTRL_RX,
    VIRTIO_NET_F_CTRL_RX_EXTRA, VIRTIO_NET_F_CTRL_VLAN, VIRTIO_NET_F_CTRL_VQ, VIRTIO_NET_F_GUEST_ANNOUNCE,
    VIRTIO_NET_F_HASH_REPORT, VIRTIO_NET_F_MAC, VIRTIO_NET_F_MQ, VIRTIO_NET_F_RSS, VIRTIO_NET_F_STATUS,
};

use crate::virtio::Kind;

/// Bytes of a folder's name, with zeros behind it.
const TAG_BYTES: usize = 36;
/// Most bytes of a device's own configuration.
pub(super) const CONFIG_BYTES: usize = 256;
/// Most queues of a device that its user may ask for.
pub(super) const MOST_QUEUES: u16 = 64;

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A network card, with this address.
    Net {
        /// Its address.
        mac: [u8; 6],
    },
    /// A folder.
    Fs {
        /// What its guest mounts it by.
        tag: String,
    },
    /// A disk.
    Blk,
    /// Anything else, by virtio's number of its kind. Its back end says all of it.
    Other(u8),
}

/// A back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackEnd {
    /// What it is.
    pub kind: DeviceKind,
    /// The socket at which it listens.
    pub socket: PathBuf,
    /// How many queues its guest is to have at most; `None`: what its kind has, or the back end says.
    pub queues: Option<u16>,
    /// Bytes of configuration that a device of another kind has, at most 256.
    pub configuration: usize,
}

/// Features that are a matter of how rings lie in memory and are reset: of those the ones that this program
/// has no part in are passed on.
const NOT_PASSED: [u32; 6] = [
    VIRTIO_F_RING_PACKED,
    VIRTIO_F_ACCESS_PLATFORM,
    VIRTIO_F_SR_IOV,
    VIRTIO_F_NOTIFICATION_DATA,
    VIRTIO_F_RING_RESET,
    VIRTIO_F_ADMIN_VQ,
];
/// vhost's own: a log of written pages, and the protocol's features.
const OF_THE_PROTOCOL: [u32; 2] = [26, 30];

/// What a network card has a queue of its own for, which its back end does not serve.
const BY_CONTROL: [u32; 11] = [
    VIRTIO_NET_F_CTRL_VQ,
    VIRTIO_NET_F_CTRL_RX,
    VIRTIO_NET_F_CTRL_VLAN,
    VIRTIO_NET_F_CTRL_RX_EXTRA,
    VIRTIO_NET_F_CTRL_MAC_ADDR,
    VIRTIO_NET_F_CTRL_GUEST_OFFLOADS,
    VIRTIO_NET_F_GUEST_ANNOUNCE,
    VIRTIO_NET_F_MQ,
    VIRTIO_NET_F_RSS,
    VIRTIO_NET_F_HASH_REPORT,
    // Not by control, and this program's own.
    VIRTIO_NET_F_STATUS,
];

fn bits(features: &[u32]) -> u64 {
    features.iter().fold(0, |bits, feature| bits | 1 << feature)
}

impl DeviceKind {
    /// What its function is.
    pub(super) const fn function(&self) -> Kind {
        match self {
            Self::Net { .. } => Kind { device: 1, class: 0x02_00_00 },
            Self::Blk => Kind { device: 2, class: 0x01_80_00 },
            Self::Fs { .. } => Kind { device: 26, class: 0x01_80_00 },
            // CAST: widened.
            Self::Other(id) => Kind { device: *id as u16, class: 0xff_00_00 },
        }
    }

    /// The features that its driver is offered, of those that its back end has.
    pub(super) fn offered(&self, of_back_end: u64) -> u64 {
        let passed = of_back_end & !bits(&NOT_PASSED) & !bits(&OF_THE_PROTOCOL);
        let passed = passed | 1 << VIRTIO_F_VERSION_1;
        match self {
            Self::Net { .. } => passed & !bits(&BY_CONTROL) | bits(&[VIRTIO_NET_F_MAC, VIRTIO_NET_F_STATUS]),
            Self::Fs { .. } | Self::Blk | Self::Other(_) => passed,
        }
    }

    /// Of the features that its driver has accepted, those that its back end hears of.
    pub(super) fn told(&self, accepted: u64, of_back_end: u64) -> u64 {
        // What is ours is none of its business, unless it has it too.
        accepted & of_back_end
    }

    /// Number of queues, where the back end can have `most` and its user wants so many at most.
    pub(super) fn queues(&self, most: u16, wanted: Option<u16>, of_back_end: u64) -> u16 {
        let several = match self {
            // One of each direction.
            Self::Net { .. } => return 2,
            // One for urgent requests, and at least one for others.
            Self::Fs { .. } => wanted.map_or(2, |wanted| wanted.saturating_add(1).max(2)),
            Self::Blk if of_back_end >> VIRTIO_BLK_F_MQ & 1 == 0 => return 1,
            Self::Blk => wanted.unwrap_or(most),
            Self::Other(_) => wanted.unwrap_or(most),
        };
        several.clamp(1, most.clamp(1, MOST_QUEUES))
    }

    /// Most entries of a queue: a folder's requests have many parts.
    pub(super) const fn queue_size(&self) -> u16 {
        match self {
            Self::Fs { .. } => 1024,
            Self::Net { .. } | Self::Blk | Self::Other(_) => 256,
        }
    }

    /// True if the configuration is the back end's and not ours.
    pub(super) const fn is_told_by_back_end(&self) -> bool {
        matches!(self, Self::Blk | Self::Other(_))
    }

    /// The configuration of a device with that many queues, where it is ours; `connected`, whether there is a
    /// back end.
    pub(super) fn configuration(&self, queues: u16, connected: bool) -> Vec<u8> {
        match self {
            Self::Net { mac } => {
                // Address, status (a link), pairs of queues.
                let mut bytes = mac.to_vec();
                bytes.extend(u16::from(connected).to_le_bytes());
                bytes.extend(1u16.to_le_bytes());
                bytes
            }
            Self::Fs { tag } => {
                let mut bytes = tag.clone().into_bytes();
                bytes.resize(TAG_BYTES, 0);
                bytes.extend(u32::from(queues.saturating_sub(1)).to_le_bytes());
                bytes
            }
            Self::Blk | Self::Other(_) => Vec::new(),
        }
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Net { .. } => "network".to_owned(),
            Self::Fs { tag } => format!("folder `{tag}`"),
            Self::Blk => "disk".to_owned(),
            Self::Other(id) => format!("device of kind {id}"),
        }
    }
}

/// Whether a folder can have that name: its guest's driver takes 36 bytes.
pub(super) fn is_tag(tag: &str) -> bool {
    !tag.is_empty() && tag.len() <= TAG_BYTES && tag.bytes().all(|byte| byte.is_ascii_graphic())
}

impl BackEnd {
    /// Reads it as a command line has it: `net=PATH,mac=..`, `fs=PATH,tag=..`, `blk=PATH`, `NUMBER=PATH`,
    /// each with `queues=N`, the last with `config=BYTES`. Without an address, a network has `mac`.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn parse(text: &str, mac: [u8; 6]) -> Result<Self, String> {
        let (kind, rest) = text
            .split_once('=')
            .ok_or("a kind is missing: net=PATH, fs=PATH,tag=NAME, blk=PATH or NUMBER=PATH")?;
        let mut parts = rest.split(',');
        let socket = PathBuf::from(
            parts.next().filter(|path| !path.is_empty()).ok_or("the path of a socket is missing")?,
        );
        let (mut own_mac, mut tag, mut queues, mut configuration) = (None, None, None, 0);
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is no key=value"))?;
            match key {
                "mac" if kind == "net" => own_mac = Some(parse_mac(value)?),
                "tag" if kind == "fs" => tag = Some(value.to_owned()),
                "queues" if kind != "net" => {
                    let number = value.parse().ok().filter(|number| (1..=MOST_QUEUES).contains(number));
                    queues = Some(number.ok_or_else(|| {
                        format!("`{value}` is not a number of queues from 1 to {MOST_QUEUES}")
                    })?);
                }
                "config" if kind.parse::<u8>().is_ok() => {
                    let bytes = value.parse().ok().filter(|bytes| *bytes <= CONFIG_BYTES);
                    configuration = bytes
                        .ok_or_else(|| format!("`{value}` is not a number of bytes up to {CONFIG_BYTES}"))?;
                }
                _ => return Err(format!("`{kind}` has no key `{key}`")),
            }
        }
        let kind = match kind {
            "net" => DeviceKind::Net { mac: own_mac.unwrap_or(mac) },
            "fs" => DeviceKind::fs(
                tag.as_deref().ok_or("a folder needs tag=NAME, by which the guest mounts it")?,
            )?,
            "blk" => DeviceKind::Blk,
            number => match number.parse() {
                Ok(id) if (1..64).contains(&id) => DeviceKind::Other(id),
                _ => {
                    return Err(format!(
                        "there is no kind `{number}`: there are net, fs, blk, and virtio's numbers from 1 to 63"
                    ));
                }
            },
        };
        Ok(Self { kind, socket, queues, configuration })
    }
}

impl DeviceKind {
    /// A folder of that name.
    ///
    /// # Errors
    /// It is no name for one.
    pub fn fs(tag: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "`{tag}` is no name for a folder: 1 to {TAG_BYTES} letters, digits and signs of ASCII are"
            )
        };
        is_tag(tag).then(|| Self::Fs { tag: tag.to_owned() }).ok_or_else(refused)
    }
}

/// An address such as `52:54:00:12:34:56`, of one station.
fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Vec<_> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() == 2)).collect();
    let address: Option<Vec<u8>> = bytes.into_iter().collect();
    let address = address.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
    let one = address.filter(|address| address[0] & 1 == 0 && *address != [0; 6]);
    one.ok_or_else(|| format!("`{text}` is no address of a network card, such as 52:54:00:12:34:56"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    #[test]
    fn back_ends_are_named_by_kind_and_socket() {
        let parsed = |text: &str| BackEnd::parse(text, MAC).unwrap();
        let net = parsed("net=/run/net.sock");
        assert_eq!(
            (net.kind, net.socket.to_str(), net.queues),
            (DeviceKind::Net { mac: MAC }, Some("/run/net.sock"), None)
        );
        let mac = DeviceKind::Net { mac: [0x52, 0x54, 0, 0x12, 0x34, 0x56] };
        assert_eq!(parsed("net=a,mac=52:54:00:12:34:56").kind, mac);
        let fs = parsed("fs=a,tag=home,queues=3");
        assert_eq!((fs.kind, fs.queues), (DeviceKind::fs("home").unwrap(), Some(3)));
        assert_eq!((parsed("blk=a").kind, parsed("4=a").kind), (DeviceKind::Blk, DeviceKind::Other(4)));
        let long = format!("fs=a,tag={}", "x".repeat(37));
        for wrong in [
            "net",
            "net=",
            "fs=a",
            "fs=a,tag=",
            "64=a",
            "0=a",
            "gpu=a",
            "net=a,tag=b",
            "net=a,mac=53:54:00:12:34:56",
            "net=a,mac=52:54:00:12:34",
            "net=a,mac=0:0:0:0:0:0",
            "blk=a,queues=0",
            "blk=a,queues=65",
            "blk=a,b",
            &long,
        ] {
            assert!(BackEnd::parse(wrong, MAC).is_err(), "{wrong}");
        }
    }

    #[test]
    fn features_are_passed_on_but_for_those_that_need_somebody_here() {
        let all = DeviceKind::Other(4).offered(u64::MAX);
        assert_eq!(all, !(1 << 26 | 1 << 30 | 1 << 33 | 1 << 34 | 1 << 37 | 1 << 38 | 1 << 40 | 1 << 41));
        let net = DeviceKind::Net { mac: MAC };
        assert_eq!(net.offered(0), 1 << 32 | 1 << 5 | 1 << 16);
        assert_eq!(net.offered(u64::MAX) >> 17 & 1, 0, "nobody serves a control queue");
        assert_eq!(net.told(1 << 32 | 1 << 5 | 1 << 15, 1 << 32 | 1 << 15), 1 << 32 | 1 << 15);
    }

    #[test]
    fn what_a_driver_is_told_of_folders_and_networks_is_ours() {
        let fs = DeviceKind::fs("home").unwrap();
        let bytes = fs.configuration(3, true);
        assert_eq!((&bytes[..5], &bytes[36..]), (&b"home\0"[..], &[2, 0, 0, 0][..]));
        let net = DeviceKind::Net { mac: MAC };
        assert_eq!(net.configuration(2, true), [2, 0, 0, 0, 0, 1, 1, 0, 1, 0]);
        assert_eq!(net.configuration(2, false)[6], 0, "no back end, no link");
        assert_eq!((fs.queues(64, None, 0), fs.queues(64, Some(4), 0), fs.queues(1, Some(4), 0)), (2, 5, 1));
        assert_eq!((DeviceKind::Blk.queues(9, None, 0), DeviceKind::Blk.queues(9, None, 1 << 12)), (1, 9));
        assert_eq!(DeviceKind::Other(4).queues(u16::MAX, None, 0), MOST_QUEUES);
    }
}
