//! A GPU's file: which physical GPU the aggregator owns, and where backends and operators meet it.

use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use super::chip::{self, VRAM_GRANULE};
use super::hang;
use super::reader::TableReader;
use super::value::{self, NAME_ALLOWED};
use super::vm_entry;
use crate::aggregator::{ScrubPolicy, VmEntry};
use crate::chip::{Chip, Face};
use crate::gpu::rm::Timeslice;
use crate::host::processors::to_spare;
use crate::host::socket_path::SocketSpec;
use crate::jail::Mode;
use crate::pci::PciAddress;
use crate::scheduler::HangLimits;
use crate::scheduler::policy::PolicyKind;
use crate::scheduler::settings::{PERIOD_RANGE, SLICE_RANGE, Settings};
use crate::softgpu::{Preemption, Workers};

/// How the aggregator reaches the physical GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The software GPU, in the aggregator's own process.
    Soft {
        /// The chip that it models.
        chip: Chip,
        /// Its VRAM in bytes.
        vram: u64,
        /// Where it takes work off an engine.
        preemption: Preemption,
        /// Threads that execute a grid.
        workers: Workers,
    },
    /// A GPU whose host keeps the NVIDIA driver loaded.
    Rm {
        /// Which; `None`: the only one that there is.
        device: Option<PciAddress>,
        /// Its chip; `None`: whatever it is.
        chip: Option<Chip>,
        /// VRAM for all VMs together, in bytes.
        vram: u64,
        /// User to become when started as root.
        uid: u32,
        /// How long a VM's channels have an engine while another VM's wait.
        timeslice: Timeslice,
    },
    /// A GPU that is given to the kernel's `vfio-pci`: its registers, driven by ourselves.
    Vfio {
        /// PCI address of the card.
        device: PciAddress,
        /// Its chip.
        chip: Chip,
        /// Script that brings it up, besides the driver's own steps for its chip.
        init: Option<PathBuf>,
        /// The card's VBIOS, for a card that does not show it: what brings it up may be for one VBIOS only.
        vbios: Option<PathBuf>,
    },
}

impl Backend {
    /// Its name as in the file.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Soft { .. } => "soft",
            Self::Rm { .. } => "rm",
            Self::Vfio { .. } => "vfio",
        }
    }

    /// The GPU's chip, where the file says it or leaves no choice.
    pub const fn chip(&self) -> Option<Chip> {
        match self {
            Self::Soft { chip, .. } | Self::Vfio { chip, .. } => Some(*chip),
            Self::Rm { chip, .. } => *chip,
        }
    }
}

/// A GPU's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuConfig {
    /// Name of the GPU.
    pub name: String,
    /// How it is reached.
    pub backend: Backend,
    /// How VMs share it.
    pub policy: PolicyKind,
    /// Settings of the policy.
    pub settings: Settings,
    /// When partitions are zeroed.
    pub scrub: ScrubPolicy,
    /// Limits for channels that make no progress, and the penalties of their VMs.
    pub hang: HangLimits,
    /// How long the aggregator looks for more doorbells after one, without sleeping.
    pub poll: Duration,
    /// Socket that device backends connect to.
    pub socket: SocketSpec,
    /// Socket that operators connect to.
    pub control: Option<SocketSpec>,
    /// VMs that may come, and no others; `None`: the file does not say.
    pub vms: Option<Vec<VmEntry>>,
    /// Socket at which the schedule is recorded.
    pub recorder: Option<SocketSpec>,
    /// Mode of the aggregator's jail.
    pub jail: Mode,
}

impl GpuConfig {
    pub(super) fn read(reader: &mut TableReader<'_, '_>) -> Option<Self> {
        let name = reader.required("name", NAME_ALLOWED, value::name);
        let backend = backend(reader);
        let allowed = PolicyKind::allowed();
        let policy =
            reader.defaulted("policy", PolicyKind::Fifo, &allowed, |v| value::word(v, &PolicyKind::ALL));
        let settings = settings(reader);
        let words =
            [("release", ScrubPolicy::Release), ("attach", ScrubPolicy::Attach), ("both", ScrubPolicy::Both)];
        let allowed = "\"release\", \"attach\" or \"both\"";
        let scrub = reader.defaulted("scrub", ScrubPolicy::default(), allowed, |v| value::word(v, &words));
        let poll = value::poll(reader, default_poll());
        let jail = value::jail(reader);
        if !reader.has("socket") {
            reader.reject("socket", "is missing".to_owned(), "a [socket] section with `path`");
        }
        let socket = reader.table("socket", value::socket);
        let has_hang = reader.has("hang");
        let usual = match &backend {
            Some(Backend::Rm { .. } | Backend::Vfio { .. }) => HangLimits::of_real_gpu(),
            Some(Backend::Soft { .. }) | None => HangLimits::default(),
        };
        let hang = reader.table("hang", |reader| hang::read(reader, usual));
        let vms = vm_entry::read(reader, backend.as_ref().and_then(Backend::chip));
        let has_control = reader.has("control");
        let control = reader.table("control", value::socket);
        let has_trace = reader.has("trace");
        let recorder = reader.table("trace", |reader| reader.table("socket", value::socket));
        if has_control && control.is_none() || has_trace && recorder.is_none() {
            return None;
        }
        Some(Self {
            name: name?,
            backend: backend?,
            policy: policy?,
            settings: settings?,
            scrub: scrub?,
            hang: if has_hang { hang? } else { usual },
            poll: poll?,
            socket: socket?,
            control,
            vms: vms?,
            recorder,
            jail: jail?,
        })
    }
}

/// The keys that set what a policy leaves open.
pub(super) fn settings(reader: &mut TableReader<'_, '_>) -> Option<Settings> {
    let mut micros = |key, (least, most): (u64, u64)| {
        let allowed = format!("a whole number of microseconds from {least} to {most}");
        reader.defaulted(key, None, &allowed, |v| {
            value::integer(v, least, most).map(|us| Some(Duration::from_micros(us)))
        })
    };
    let slice = micros("slice", SLICE_RANGE);
    let period = micros("period", PERIOD_RANGE);
    Some(Settings { slice: slice?, period: period? })
}

/// Polling costs a CPU while guests submit work, though others may have it: longer where there are CPUs to
/// spare.
fn default_poll() -> Duration {
    if to_spare() { Duration::from_millis(1) } else { Duration::from_micros(200) }
}

/// The user `nobody`, who owns no files.
const NOBODY: u32 = 65_534;

const ONLY_RM: &str = "belongs to `backend = \"rm\"`";
const ONLY_SOFT: &str = "belongs to `backend = \"soft\"`";
const ONLY_VFIO: &str = "belongs to `backend = \"vfio\"`";
const ONLY_REAL: &str = "belongs to `backend = \"rm\"` and `\"vfio\"`";
const NOT_VFIO: &str = "belongs to `backend = \"soft\"` and `\"rm\"`";
const NO_PREEMPTION: &str = "no `preemption` for a GPU that is not software";

const NO_WORKERS: &str = "no `workers` for a GPU that is not software";
const NO_SHADERS: &str = "belongs to chips whose shaders the software GPU executes";

#[derive(Clone, Copy)]
enum Kind {
    Soft,
    Rm,
    Vfio,
}

/// The keys that say what the physical GPU is.
fn backend(reader: &mut TableReader<'_, '_>) -> Option<Backend> {
    let words = [("soft", Kind::Soft), ("rm", Kind::Rm), ("vfio", Kind::Vfio)];
    match reader.required("backend", "\"soft\", \"rm\" or \"vfio\"", |v| value::word(v, &words)) {
        Some(Kind::Soft) => soft(reader),
        Some(Kind::Rm) => rm(reader),
        Some(Kind::Vfio) => vfio(reader),
        None => {
            // All keys are known, and are checked where that is possible.
            chip::read(reader, Chip::GF100);
            soft_vram(reader, None);
            preemption(reader);
            workers(reader, None);
            device(reader);
            uid(reader);
            timeslice(reader);
            init(reader);
            vbios(reader);
            None
        }
    }
}

fn soft(reader: &mut TableReader<'_, '_>) -> Option<Backend> {
    let chip = chip::read(reader, Chip::GF100);
    let vram = soft_vram(reader, chip);
    let preemption = preemption(reader);
    let workers = workers(reader, chip);
    let device_absent = reader.unused("device", ONLY_REAL, "no `device` for the software GPU");
    let uid_absent = reader.unused("uid", ONLY_RM, "no `uid` for the software GPU");
    let timeslice_absent = reader.unused("timeslice", ONLY_RM, "`slice`, the length of a policy's turns");
    let init_absent = reader.unused("init", ONLY_VFIO, "no `init` for the software GPU")
        & reader.unused("vbios", ONLY_VFIO, "no `vbios` for the software GPU");
    let backend = Backend::Soft { chip: chip?, vram: vram?, preemption: preemption?, workers: workers? };
    (device_absent && uid_absent && timeslice_absent && init_absent).then_some(backend)
}

fn rm(reader: &mut TableReader<'_, '_>) -> Option<Backend> {
    let named = reader.has("chip");
    let chip = chip::read(reader, Chip::GH100);
    let served = chip.is_none_or(|chip| chip.face == Face::Gsp);
    if !served {
        reader.reject(
            "chip",
            "cannot be served by the NVIDIA driver, which has no GPUs of that age".to_owned(),
            &format!("{} for `backend = \"rm\"`", chip::choice(Chip::with_face(Face::Gsp))),
        );
    }
    let allowed = "a multiple of \"16M\" from \"64M\" to \"1024G\"";
    let vram =
        reader.defaulted("vram", 16 << 30, allowed, |v| value::size(v, 64 << 20, 1 << 40, VRAM_GRANULE));
    let device = device(reader);
    let uid = uid(reader);
    let timeslice = timeslice(reader);
    let preemption_absent = reader.unused("preemption", ONLY_SOFT, NO_PREEMPTION)
        & reader.unused("workers", ONLY_SOFT, NO_WORKERS);
    let init_absent = reader.unused("init", ONLY_VFIO, "no `init` for a GPU that the NVIDIA driver has")
        & reader.unused("vbios", ONLY_VFIO, "no `vbios` for a GPU that the NVIDIA driver has");
    let backend = Backend::Rm {
        device: device?,
        chip: chip.map(|chip| named.then_some(chip))?,
        vram: vram?,
        uid: uid?,
        timeslice: timeslice?,
    };
    (preemption_absent && init_absent && served).then_some(backend)
}

fn vfio(reader: &mut TableReader<'_, '_>) -> Option<Backend> {
    let chip = chip::read(reader, Chip::GF100);
    let served = chip.is_none_or(|chip| chip.face == Face::Registers);
    if !served {
        let by_registers = chip::choice(Chip::with_face(Face::Registers));
        reader.reject(
            "chip",
            "has no driver here that works by registers: NVIDIA's own driver serves it".to_owned(),
            &format!("{by_registers} for `backend = \"vfio\"`, or `backend = \"rm\"`"),
        );
    }
    let device = card_address(reader, "device");
    let absent = [
        reader.unused("vram", NOT_VFIO, "no `vram` for a card, which has its own"),
        reader.unused("uid", ONLY_RM, "no `uid` for a card, whose files are opened before"),
        reader.unused("timeslice", ONLY_RM, "`slice`, the length of a policy's turns"),
        reader.unused("preemption", ONLY_SOFT, NO_PREEMPTION),
        reader.unused("workers", ONLY_SOFT, NO_WORKERS),
    ];
    let init = init(reader);
    let vbios = vbios(reader);
    let backend = Backend::Vfio { device: device?, chip: chip?, init: init?, vbios: vbios? };
    (absent == [true; 5] && served).then_some(backend)
}

fn soft_vram(reader: &mut TableReader<'_, '_>, chip: Option<Chip>) -> Option<u64> {
    let (least, most) = chip.map_or_else(chip::widest, chip::limits).soft_vram;
    let allowed = chip::vram_allowed(chip, |limits| limits.soft_vram);
    reader.defaulted("vram", 1 << 30, &allowed, |v| value::size(v, least, most, VRAM_GRANULE))
}

fn preemption(reader: &mut TableReader<'_, '_>) -> Option<Preemption> {
    let words = [("anywhere", Preemption::Anywhere), ("methods", Preemption::Methods)];
    let allowed = "\"anywhere\" or \"methods\"";
    reader.defaulted("preemption", Preemption::default(), allowed, |v| value::word(v, &words))
}

/// Without a chip, one that executes shaders is taken.
fn workers(reader: &mut TableReader<'_, '_>, chip: Option<Chip>) -> Option<Workers> {
    if chip.is_some_and(|chip| chip.face == Face::Registers) {
        let absent = reader.unused("workers", NO_SHADERS, "no `workers` for a GF100, or a chip with GSP");
        return absent.then_some(Workers::ONE);
    }
    let most = Workers::MOST;
    let allowed = format!("a whole number from 1 to {most}");
    reader.defaulted("workers", Workers::of_machine(), &allowed, |v| {
        let count = value::integer(v, 1, most.into())?;
        u8::try_from(count).ok().and_then(Workers::new).ok_or_else(|| format!("{count} is out of range"))
    })
}

/// `Some(None)` when the key is absent, `None` when it is wrong.
fn device(reader: &mut TableReader<'_, '_>) -> Option<Option<PciAddress>> {
    reader.defaulted("device", None, "a PCI address such as \"0000:65:00.0\"", |v| address(v).map(Some))
}

/// The address of a card that must be named.
pub(super) fn card_address(reader: &mut TableReader<'_, '_>, key: &'static str) -> Option<PciAddress> {
    let which = "a PCI address such as \"0000:65:00.0\": `gpuvmk gpu list` shows what there is";
    reader.required(key, which, address)
}

fn address(value: &DeValue<'_>) -> Result<PciAddress, String> {
    let text = value::string(value)?;
    text.parse().map_err(|_| format!("\"{text}\" is not a PCI address"))
}

fn uid(reader: &mut TableReader<'_, '_>) -> Option<u32> {
    let last = u32::MAX - 1;
    let allowed = format!("the number of a user from 1 to {last}, not root");
    reader.defaulted("uid", NOBODY, &allowed, |v| {
        let uid = value::integer(v, 1, last.into())?;
        u32::try_from(uid).map_err(|_| format!("{uid} is out of range"))
    })
}

fn timeslice(reader: &mut TableReader<'_, '_>) -> Option<Timeslice> {
    let (shortest, longest) = Timeslice::RANGE;
    let allowed = format!("a whole number of microseconds from {shortest} to {longest}");
    reader.defaulted("timeslice", Timeslice::default(), &allowed, |v| {
        let micros = value::integer(v, shortest.into(), longest.into())?;
        let slice = u32::try_from(micros).ok().and_then(Timeslice::new);
        slice.ok_or_else(|| format!("{micros} is out of range"))
    })
}

/// `Some(None)` when the key is absent, `None` when it is wrong.
fn init(reader: &mut TableReader<'_, '_>) -> Option<Option<PathBuf>> {
    let allowed = "a file that `gpuvmk gpu init` made, absolute or from the folder of this file";
    let path = reader.defaulted("init", None, allowed, |v| value::string(v).map(Some))?;
    Some(path.map(|path| reader.path(&path)))
}

/// A file with a card's VBIOS.
pub(super) fn vbios(reader: &mut TableReader<'_, '_>) -> Option<Option<PathBuf>> {
    let allowed = "a file that `gpuvmk gpu vbios` made, absolute or from the folder of this file";
    let path = reader.defaulted("vbios", None, allowed, |v| value::string(v).map(Some))?;
    Some(path.map(|path| reader.path(&path)))
}
