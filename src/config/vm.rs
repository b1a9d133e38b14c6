//! A VM's file: what its vGPU is, and where QEMU and the aggregator are met.

use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

use super::chip::{self, VRAM_GRANULE};
use super::devices::Devices;
use super::display;
use super::limits::VmLimits;
use super::reader::TableReader;
use super::value::{self, NAME_ALLOWED, UUID_ALLOWED};
use crate::aggregator::DEFAULT_CHANNELS;
use crate::chip::register_sets::RegisterSet;
use crate::chip::{Chip, Face};
use crate::frontend::vfio_user::USUAL_POLL;
use crate::host::socket_path::SocketSpec;
use crate::jail::Mode;
use crate::scheduler::share::{MAX_PERIOD, MAX_WEIGHT, MIN_PERIOD, Share};
use crate::trace::Filter;
use crate::vgpu::Bar3;

/// A VM's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmConfig {
    /// Name of the VM.
    pub name: String,
    /// What drivers call the GPU's UUID.
    pub uuid: Uuid,
    /// Socket of the aggregator that owns the GPU.
    pub gpu: PathBuf,
    /// Chip that the guest sees.
    pub chip: Chip,
    /// VRAM in bytes.
    pub vram: u64,
    /// Number of channels.
    pub channels: u16,
    /// Its part of the GPU's time.
    pub share: Share,
    /// How QEMU reaches instance memory.
    pub bar3: Bar3,
    /// The mode that its monitor prefers; none: the GPU has no head.
    pub display: Option<crate::display::Mode>,
    /// Socket at which people look at the head.
    pub viewers: Option<Box<SocketSpec>>,
    /// How long QEMU's next message is looked for, at most, before the back end sleeps.
    pub poll: Duration,
    /// Socket that QEMU connects to; the command line may give it instead.
    pub socket: Option<SocketSpec>,
    /// Limits of the guest's cost for the host.
    pub limits: VmLimits,
    /// A trace from the start on.
    pub trace: Option<TraceFile>,
    /// Socket at which operators record while the VM works.
    pub recorder: Option<SocketSpec>,
    /// Mode of the device back end's jail.
    pub jail: Mode,
    /// What `gpuvmk vmm` gives it beside its GPU.
    pub devices: Box<Devices>,
}

/// How a guest reaches instance memory, unless its file says. QEMU waits for every write to a device,
/// doorbells too, once it has mapped one of its regions. A chip whose driver asks GSP has a mapped page of
/// registers anyway. A GF100 has none, and its submissions would take twice as long.
fn usual_bar3(chip: Option<Chip>) -> Bar3 {
    match chip.map(|chip| chip.face) {
        Some(Face::Gsp) => Bar3::WherePossible,
        Some(Face::Registers) | None => Bar3::Trapped,
    }
}

/// Names of VMs are what UUIDs are made of (RFC 9562, version 5), in a space of our own: a random number.
const NAMES_OF_VMS: Uuid = Uuid::from_u128(0x6f2c_9d1e_38a7_4b05_9c41_e0d7_52b8_a3f6);

/// The GPU's UUID, unless the VM's file says.
fn usual_uuid(name: &str) -> Uuid {
    Uuid::new_v5(&NAMES_OF_VMS, name.as_bytes())
}

impl VmConfig {
    pub(super) fn read(reader: &mut TableReader<'_, '_>) -> Option<Self> {
        let name = reader.required("name", NAME_ALLOWED, value::name);
        let uuid = reader.optional("uuid", UUID_ALLOWED, value::uuid);
        let gpu = value::socket_path(reader, "gpu");
        let chip = chip::read(reader, Chip::GF100);
        // Where the chip is wrong, the rest is checked against what any chip allows.
        let limits = chip.map_or_else(chip::widest, chip::limits);
        let vram = reader.required("vram", &chip::vram_allowed(chip, |limits| limits.vram), |v| {
            value::size(v, limits.vram.0, limits.vram.1, VRAM_GRANULE)
        });
        let allowed = format!("a whole number from 1 to {}", limits.channels);
        let channels = reader.defaulted("channels", DEFAULT_CHANNELS.into(), &allowed, |v| {
            value::integer(v, 1, limits.channels)
        });
        let share = share(reader);
        let words = [("trapped", Bar3::Trapped), ("direct", Bar3::Direct)];
        let bar3 = reader
            .defaulted("bar3", usual_bar3(chip), "\"trapped\" or \"direct\"", |v| value::word(v, &words));
        let display = display::read(reader, chip);
        let has_viewers = reader.has("viewers");
        let viewers = reader.table("viewers", value::socket);
        if has_viewers && display == Some(None) {
            let why = "there is nothing to look at: the file says no `display`";
            reader.reject("viewers", why.to_owned(), "a [viewers] section beside display = \"1280x800\"");
        }
        let poll = value::poll(reader, USUAL_POLL);
        let has_socket = reader.has("socket");
        let socket = reader.table("socket", value::socket);
        let has_trace = reader.has("trace");
        let registers = chip.and_then(|chip| RegisterSet::by_name(chip.name()));
        let trace = reader.table("trace", |reader| traces(reader, registers));
        let has_limits = reader.has("limits");
        let limits = reader.table("limits", VmLimits::read);
        let jail = value::jail(reader);
        let has_devices = reader.has("machine");
        let devices = reader.table("machine", Devices::read);
        if (has_socket && socket.is_none())
            || (has_limits && limits.is_none())
            || (has_trace && trace.is_none())
            || (has_viewers && viewers.is_none())
            || (has_devices && devices.is_none())
        {
            return None;
        }
        let (file, recorder) = trace.unwrap_or_default();
        Some(Self {
            uuid: uuid.unwrap_or_else(|| usual_uuid(name.as_deref().unwrap_or_default())),
            name: name?,
            gpu: gpu?,
            chip: chip?,
            vram: vram?,
            channels: u16::try_from(channels?).ok()?,
            share: share?,
            bar3: bar3?,
            display: display?,
            viewers: viewers.map(Box::new),
            poll: poll?,
            socket,
            limits: limits.unwrap_or_default(),
            trace: file,
            recorder,
            jail: jail?,
            devices: Box::new(devices.unwrap_or_default()),
        })
    }
}

/// A trace that is written to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFile {
    /// Path of the file.
    pub path: PathBuf,
    /// The filter of its entries.
    pub filter: Filter,
}

/// The file and the socket of traces.
pub(super) fn traces(
    reader: &mut TableReader<'_, '_>,
    registers: Option<&RegisterSet>,
) -> Option<(Option<TraceFile>, Option<SocketSpec>)> {
    let path = reader.optional("path", "the path of a file to write", value::string);
    let path = path.map(|path| reader.path(&path));
    let allowed = "a list of conditions, such as [\"bar=0\", \"op=read,write\"], beside a path";
    let has_path = path.is_some();
    let filter = reader.defaulted("filter", Filter::default(), allowed, |value| {
        let words = value::strings(value)?;
        if !has_path {
            return Err("is there without a path".to_owned());
        }
        Filter::parse(words.iter().map(String::as_str), registers).map_err(|error| error.to_string())
    })?;
    let file = path.map(|path| TraceFile { path, filter });
    let has_socket = reader.has("socket");
    let socket = reader.table("socket", value::socket);
    (!has_socket || socket.is_some()).then_some((file, socket))
}

/// The keys that say what the VM gets of the GPU's time, which `gpuvmk set` changes too.
pub(super) fn share(reader: &mut TableReader<'_, '_>) -> Option<Share> {
    let usual = Share::default();
    let weight = reader.defaulted(
        "weight",
        usual.weight.into(),
        &format!("a whole number from 1 to {MAX_WEIGHT}"),
        |v| value::integer(v, 1, MAX_WEIGHT.into()),
    );
    let mut percent = |key| {
        reader.defaulted(key, None, "a whole number of percent from 1 to 100", |v| {
            value::integer(v, 1, 100).map(|percent| u8::try_from(percent).ok())
        })
    };
    let (cap, fixed) = (percent("cap"), percent("fixed"));
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let (least, most) = (micros(MIN_PERIOD), micros(MAX_PERIOD));
    let allowed = format!("a whole number of microseconds from {least} to {most}");
    let period =
        reader.defaulted("period", micros(usual.period), &allowed, |v| value::integer(v, least, most));
    // Where the period is wrong, the budget is checked against the longest.
    let most = period.unwrap_or(most);
    let allowed = format!("a whole number of microseconds from 0 to the period, which is {most}");
    let budget = reader.defaulted("budget", 0, &allowed, |v| value::integer(v, 0, most));
    Some(Share {
        weight: u32::try_from(weight?).ok()?,
        cap: cap?,
        fixed: fixed?,
        period: Duration::from_micros(period?),
        budget: Duration::from_micros(budget?),
    })
}
