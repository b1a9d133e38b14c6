//! What `gpuvmk vmm` gives a VM beside its GPU and its disks: a network, folders, and devices of other
//! processes. QEMU's user gives them to QEMU.

use std::net::IpAddr;
use std::path::PathBuf;

use uuid::Uuid;

use super::reader::TableReader;
use super::value;
use crate::vmm::vhost_user::{BackEnd, DeviceKind};

/// A protocol whose ports can be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A port of the host's at which the guest is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Whose port it is.
    pub protocol: Protocol,
    /// The host's address; `None`: all.
    pub address: Option<IpAddr>,
    /// The host's port.
    pub host: u16,
    /// The guest's.
    pub guest: u16,
}

impl Forward {
    /// Reads `[udp:][ADDRESS/]PORT[:PORT]`: the host's port and the guest's, which is the same if it is not
    /// there.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refused = || format!("`{text}` is not [udp:][ADDRESS/]PORT[:PORT], such as 127.0.0.1/2222:22");
        let (protocol, rest) = match text.split_once(':') {
            Some(("udp", rest)) => (Protocol::Udp, rest),
            Some(("tcp", rest)) => (Protocol::Tcp, rest),
            _ => (Protocol::Tcp, text),
        };
        let (address, ports) = match rest.rsplit_once('/') {
            Some((address, ports)) => (Some(address.parse().map_err(|_| refused())?), ports),
            None => (None, rest),
        };
        let port = |text: &str| text.parse().ok().filter(|port| *port != 0).ok_or_else(refused);
        let (host, guest) = ports.split_once(':').unwrap_or((ports, ports));
        Ok(Self { protocol, address, host: port(host)?, guest: port(guest)? })
    }
}

/// A folder of the host's that the guest has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The folder.
    pub folder: PathBuf,
    /// What the guest mounts it by.
    pub tag: String,
}

impl Share {
    /// Reads `FOLDER=TAG`.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('=').filter(|(folder, _)| !folder.is_empty());
        let (folder, tag) = parts.ok_or_else(|| format!("`{text}` is not FOLDER=TAG"))?;
        DeviceKind::fs(tag)?;
        Ok(Self { folder: folder.into(), tag: tag.to_owned() })
    }
}

/// The devices of a VM's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// It has a network of its user's, by passt.
    pub user_network: bool,
    /// Ports at which it is reached there.
    pub forwards: Vec<Forward>,
    /// Folders.
    pub shares: Vec<Share>,
    /// Devices of other processes, as a command line has them.
    pub vhost_user: Vec<String>,
}

/// Network cards' addresses are made of VMs' names (RFC 9562, version 5), in a space of our own: a random
/// number.
const ADDRESSES: Uuid = Uuid::from_u128(0x1d47_a2c5_90be_4f3a_8e11_72d6_0b3c_95f8);

/// A network card's address, unless somebody says: one for each name, of those that anybody may take.
pub fn usual_mac(name: &str) -> [u8; 6] {
    let [first, b, c, d, e, f, ..] = Uuid::new_v5(&ADDRESSES, name.as_bytes()).into_bytes();
    [first & 0xfc | 0x02, b, c, d, e, f]
}

impl Devices {
    /// Reads the section `[machine]`.
    pub(super) fn read(reader: &mut TableReader<'_, '_>) -> Option<Self> {
        let user_network = reader.defaulted("network", false, "\"user\" or \"none\"", |v| {
            value::word(v, &[("user", true), ("none", false)])
        });
        let forwards = reader.defaulted(
            "forward",
            Vec::new(),
            "a list of [udp:][ADDRESS/]PORT[:PORT], such as [\"127.0.0.1/2222:22\"], beside network = \"user\"",
            |v| value::strings(v)?.iter().map(|text| Forward::parse(text)).collect(),
        );
        let shares = reader.defaulted(
            "share",
            Vec::new(),
            "a list of FOLDER=TAG, such as [\"/srv/data=data\"]",
            |v| value::strings(v)?.iter().map(|text| Share::parse(text)).collect(),
        );
        let vhost_user = reader.defaulted(
            "vhost_user",
            Vec::new(),
            "a list of back ends as gpuvmk vmm --vhost-user takes them, such as [\"fs=/run/fs.sock,tag=data\"]",
            |v| {
                let words = value::strings(v)?;
                words.iter().try_for_each(|word| BackEnd::parse(word, [0; 6]).map(|_| ()))?;
                Ok(words)
            },
        );
        let shares = shares?.into_iter().map(|share: Share| {
            let folder =
                share.folder.to_str().map_or_else(|| share.folder.clone(), |folder| reader.path(folder));
            Share { folder, ..share }
        });
        Some(Self {
            user_network: user_network?,
            forwards: forwards?,
            shares: shares.collect(),
            vhost_user: vhost_user?,
        })
    }

    /// True without any device.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_and_shares_are_what_is_written() {
        let forward = Forward::parse("2222:22").unwrap();
        assert_eq!(
            (forward.protocol, forward.address, forward.host, forward.guest),
            (Protocol::Tcp, None, 2222, 22)
        );
        let forward = Forward::parse("udp:::1/53").unwrap();
        let address = Some("::1".parse().unwrap());
        assert_eq!(
            (forward.protocol, forward.address, forward.host, forward.guest),
            (Protocol::Udp, address, 53, 53)
        );
        for wrong in ["", "0", "70000", "a:22", "22:", "host/22", "127.0.0.1/", "22:0", "1-3"] {
            assert!(Forward::parse(wrong).is_err(), "{wrong}");
        }
        let share = Share::parse("/srv/a=b=data").unwrap();
        assert_eq!((share.folder.to_str(), share.tag.as_str()), (Some("/srv/a=b"), "data"));
        for wrong in ["/srv", "=data", "/srv=", "/srv=a b"] {
            assert!(Share::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_have_addresses_of_their_own_that_no_maker_has() {
        let (one, two) = (usual_mac("vm1"), usual_mac("vm2"));
        assert_ne!(one, two);
        assert_eq!((one, one[0] & 3), (usual_mac("vm1"), 2));
    }
}
