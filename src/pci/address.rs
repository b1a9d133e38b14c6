//! Where a PCI function is on its host.

use std::fmt;
use std::str::FromStr;

/// Where a GPU is: domain, bus, device and function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    /// PCI domain (segment), 16 bits in practice.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// Why a text is no PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a PCI address such as \"0000:65:00.0\"")]
pub struct NoPciAddress(String);

impl FromStr for PciAddress {
    type Err = NoPciAddress;

    /// Parses `0000:65:00.0`; the domain may be left out.
    fn from_str(text: &str) -> Result<Self, NoPciAddress> {
        parse_address(text).ok_or_else(|| NoPciAddress(text.to_owned()))
    }
}

fn parse_address(text: &str) -> Option<PciAddress> {
    let hex = |digits: &str, most: usize| {
        let good = (1..=most).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        good.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    };
    let (place, function) = text.split_once('.')?;
    let mut parts = place.rsplit(':');
    let device = hex(parts.next()?, 2)?;
    let bus = hex(parts.next()?, 2)?;
    let domain = parts.next().map_or(Some(0), |domain| hex(domain, 8))?;
    let function = hex(function, 1)?;
    if parts.next().is_some() || device > 0x1f || function > 7 {
        return None;
    }
    Some(PciAddress {
        domain,
        bus: u8::try_from(bus).ok()?,
        device: u8::try_from(device).ok()?,
        function: u8::try_from(function).ok()?,
    })
}
