//! A VM's file that gives it a whole card instead of a part of one.

use std::path::PathBuf;
use std::time::Duration;

use super::devices::Devices;
use super::gpu::{card_address, vbios};
use super::reader::TableReader;
use super::value::{self, NAME_ALLOWED};
use super::vm::{TraceFile, traces};
use crate::frontend::vfio_user::USUAL_POLL;
use crate::host::socket_path::SocketSpec;
use crate::jail::Mode;
use crate::pci::PciAddress;

/// A VM's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeCardConfig {
    /// Name of the VM.
    pub name: String,
    /// PCI address of the card.
    pub card: PciAddress,
    /// The VBIOS that the guest sees in place of the card's own.
    pub vbios: Option<PathBuf>,
    /// How long QEMU's next message is looked for, at most, before the back end sleeps.
    pub poll: Duration,
    /// Socket that QEMU connects to; the command line may give it instead.
    pub socket: Option<SocketSpec>,
    /// A trace from the start on.
    pub trace: Option<TraceFile>,
    /// Socket at which operators record while the VM works.
    pub recorder: Option<SocketSpec>,
    /// Mode of the device back end's jail.
    pub jail: Mode,
    /// What `gpuvmk vmm` gives it beside its GPU.
    pub devices: Box<Devices>,
}

/// The key that only such a file has.
pub(super) const CARD: &str = "card";

/// Keys that only a part of a GPU has.
const OF_PARTS: [&str; 12] = [
    "gpu", "uuid", "chip", "vram", "channels", "bar3", "weight", "cap", "fixed", "period", "budget", "limits",
];

impl WholeCardConfig {
    pub(super) fn read(reader: &mut TableReader<'_, '_>) -> Option<Self> {
        let name = reader.required("name", NAME_ALLOWED, value::name);
        let card = card_address(reader, CARD);
        let vbios = vbios(reader);
        let mut whole = true;
        for key in OF_PARTS {
            let why = "belongs to a VM that has a part of a GPU (`gpu`)";
            whole &= reader.unused(key, why, &format!("no `{key}` beside `card`, which is all of a GPU"));
        }
        let poll = value::poll(reader, USUAL_POLL);
        let has_socket = reader.has("socket");
        let socket = reader.table("socket", value::socket);
        let has_trace = reader.has("trace");
        // The chip is not known before the card is open.
        let trace = reader.table("trace", |reader| traces(reader, None));
        let jail = value::jail(reader);
        let has_devices = reader.has("machine");
        let devices = reader.table("machine", Devices::read);
        whole &= !has_devices || devices.is_some();
        if !whole || (has_socket && socket.is_none()) || (has_trace && trace.is_none()) {
            return None;
        }
        let (trace, recorder) = trace.unwrap_or_default();
        Some(Self {
            name: name?,
            card: card?,
            vbios: vbios?,
            poll: poll?,
            socket,
            trace,
            recorder,
            jail: jail?,
            devices: Box::new(devices.unwrap_or_default()),
        })
    }
}
