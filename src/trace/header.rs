//! The head of a trace: whose it is, what its function looks like, when it began.

use serde::{Deserialize, Serialize};

use gpuvmk_chip::register_sets::RegisterSet;
use gpuvmk_pci::{AccessError, PciFunction, Region, RegionKind, RegionTable};

/// First bytes of a trace.
pub const MAGIC: [u8; 8] = *b"GPUVMKT2";

/// The longest head.
pub const MOST_HEAD: usize = 64 << 10;

/// The head of a trace, JSON in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Whose trace: a VM's or a GPU's name.
    pub source: String,
    /// The chip's name, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chip: Option<String>,
    /// The function that was traced; none in a trace of a scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<Function>,
    /// VRAM of the function in bytes, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram: Option<u64>,
    /// Nanoseconds since 1970 at the trace's time zero.
    #[serde(default)]
    pub unix_nanos: u64,
    /// The host's CLOCK_MONOTONIC at the trace's time zero: traces of one host are put in order by it.
    #[serde(default)]
    pub monotonic_nanos: u64,
    /// The filter of the trace, as the operator wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// What wrote it.
    pub program: String,
    /// The format that it was converted from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// Ids of a function, and the places of its regions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Its BARs and ROM by VFIO index.
    pub regions: [FunctionRegion; 7],
}

/// A region of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionRegion {
    /// Bytes; 0 if there is none.
    pub size: u64,
    /// Memory below 4 GiB, 64-bit prefetchable memory, or ports.
    pub kind: FunctionRegionKind,
}

/// Kinds of regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionRegionKind {
    /// There is no such region.
    #[default]
    Absent,
    /// Memory below 4 GiB.
    Memory32,
    /// Prefetchable memory anywhere.
    Memory64,
    /// I/O ports.
    Ports,
    /// The expansion ROM.
    Rom,
}

impl Function {
    /// Reads these from a function.
    ///
    /// # Errors
    /// Its configuration space cannot be read.
    pub fn of(function: &dyn PciFunction) -> Result<Self, AccessError> {
        let mut identity = [0; 4];
        function.read(Region::Config, 0, &mut identity)?;
        let [vendor_low, vendor_high, device_low, device_high] = identity;
        let vendor = u16::from_le_bytes([vendor_low, vendor_high]);
        let device = u16::from_le_bytes([device_low, device_high]);
        Ok(Self::new(vendor, device, &function.regions()))
    }

    /// Of a function with these numbers and regions.
    pub fn new(vendor: u16, device: u16, table: &RegionTable) -> Self {
        let mut regions = [FunctionRegion::default(); 7];
        for (region, info) in regions.iter_mut().zip(table) {
            let kind = match info.kind {
                RegionKind::Absent | RegionKind::Config => FunctionRegionKind::Absent,
                RegionKind::Memory32 => FunctionRegionKind::Memory32,
                RegionKind::Memory64Prefetch => FunctionRegionKind::Memory64,
                RegionKind::Io => FunctionRegionKind::Ports,
                RegionKind::Rom => FunctionRegionKind::Rom,
            };
            *region = FunctionRegion { size: info.size, kind };
        }
        Self { vendor, device, regions }
    }
}

impl Header {
    /// Of a function's trace; `source` says whose it is, `vram` how many bytes it has, if that is known.
    ///
    /// # Errors
    /// Its configuration space, or the register that identifies its chip, cannot be read.
    pub fn of_function(
        source: &str,
        vram: Option<u64>,
        function: &dyn PciFunction,
    ) -> Result<Self, AccessError> {
        let mut boot_0 = [0; 4];
        function.read(Region::Bar(0), 0, &mut boot_0)?;
        let set = RegisterSet::by_boot_0(u32::from_le_bytes(boot_0));
        Ok(Self {
            source: source.to_owned(),
            chip: set.map(|set| set.chip.to_owned()),
            function: Some(Function::of(function)?),
            vram,
            program: program(),
            ..Self::default()
        })
    }

    /// The head as it is in the file: magic, length, JSON.
    ///
    /// # Errors
    /// A name is longer than a head may be.
    pub fn encode(&self) -> std::io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let length = u32::try_from(json.len()).ok().filter(|_| json.len() <= MOST_HEAD);
        let length = length.ok_or_else(|| std::io::Error::other("the head of the trace is too long"))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&json);
        Ok(bytes)
    }
}

/// This program's name in heads.
pub fn program() -> String {
    concat!("gpuvmk ", env!("CARGO_PKG_VERSION")).to_owned()
}
