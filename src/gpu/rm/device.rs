//! One GPU of the NVIDIA driver: device, subdevice, doorbell page, and what it is.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::abi::RmStatus;
use super::abi::calls::CardInfo;
use super::abi::classes::{
    Class, DeviceParams, NV01_DEVICE_0, NV20_SUBDEVICE_0, SubdeviceParams, UsermodeParams,
};
use super::abi::controls::{
    ArchInfo, ClassList, CopyCaps, CopyUnits, Engines, FB_BAR1_FREE, FB_HEAP_FREE, FB_TOTAL_RAM, FbInfo,
    FbQuestion, GpcMask, IdInfo, NameString, TpcMask,
};
use super::abi::{Handle, flags};
use super::client::Client;
use super::error::RmError;
use super::kernel::{CallError, Node};
use super::open_error::OpenError;
use super::timeslice::Timeslice;
use gpuvmk_chip::gh100::regs::vfn::NV_VIRTUAL_FUNCTION_DOORBELL;
use gpuvmk_chip::{Chip, Engine, Face, TextureClusters};
use gpuvmk_pci::mapping::Mapping;

/// Bytes of the doorbell page.
const USERMODE_SIZE: u64 = 0x1_0000;

/// Where the doorbell (`NVC661_NOTIFY_CHANNEL_PENDING`) is in that page.
const DOORBELL: u64 = NV_VIRTUAL_FUNCTION_DOORBELL.0 as u64 % USERMODE_SIZE;

/// A copy engine, as the driver numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEngine {
    /// N of COPYn.
    pub number: u32,
    /// True for one that shares the graphics runlist.
    pub with_graphics: bool,
    /// Physical copy engines behind it, a bit each.
    pub units: u32,
}

/// Facts about a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// PCI address of the function.
    pub address: String,
    /// Marketing name of the GPU.
    pub name: String,
    /// NVIDIA's number of the architecture.
    pub architecture: u32,
    /// Chips that a vGPU on it can be: those all of whose classes it makes. Its own is first.
    pub chips: Vec<Chip>,
    /// Bytes of VRAM.
    pub vram: u64,
    /// Free VRAM in bytes.
    pub vram_free: u64,
    /// Free space of BAR1 in bytes.
    pub bar1_free: u64,
    /// True when there is a graphics engine.
    pub graphics: bool,
    /// What it has.
    pub texture_clusters: TextureClusters,
    /// Its copy engines.
    pub copy_engines: Vec<CopyEngine>,
}

/// The name of an architecture number.
pub fn architecture_name(architecture: u32) -> String {
    match architecture {
        0x160 => "Turing".into(),
        0x170 => "Ampere".into(),
        0x180 => "Hopper".into(),
        0x190 => "Ada".into(),
        0x1a0 | 0x1b0 => "Blackwell".into(),
        other => format!("{other:#x}"),
    }
}

/// The chips all of whose classes are listed, first that of this chipset.
fn served(listed: &[u32], chipset: u32) -> Vec<Chip> {
    let has = |class: Class| listed.contains(&class.number);
    let mut chips: Vec<Chip> = Chip::with_face(Face::Gsp)
        .filter(|chip| chip.classes.for_tenants().into_iter().chain(chip.classes.usermode).all(has))
        .collect();
    chips.sort_by_key(|chip| chip.boot_0 >> 20 != chipset);
    chips
}

/// PCI address of a card.
pub fn address_of(card: &CardInfo) -> String {
    format!("{:04x}:{:02x}:{:02x}.{:x}", card.domain, card.bus, card.slot, card.function)
}

/// A GPU that a client has opened.
#[derive(Debug)]
pub struct Device {
    /// The client that owns the device.
    pub client: Client,
    /// `NV01_DEVICE_0`.
    pub device: Handle,
    /// `NV20_SUBDEVICE_0`.
    pub subdevice: Handle,
    /// Its device node.
    pub node: Node,
    /// Time slice of groups that are made from now on.
    pub timeslice: Timeslice,
    file: OwnedFd,
}

impl Device {
    /// Opens a GPU with a separate client.
    ///
    /// # Errors
    /// The node is not accessible, or the driver refuses.
    pub fn open(mut client: Client, card: &CardInfo) -> Result<Self, OpenError> {
        let node = Node::Device(card.minor);
        let file = client.kernel().open(node).map_err(|source| OpenError::node(node, source))?;
        client
            .kernel()
            .register(file.as_fd())
            .map_err(|error| RmError::new(format!("to register {node}"), error))?;
        let mut id = IdInfo { gpu_id: card.gpu_id, ..Default::default() };
        client.control(client.root(), &mut id)?;
        let root = client.root();
        let mut params = DeviceParams { device: id.device, client_share: root, ..Default::default() };
        let device = client.alloc(root, NV01_DEVICE_0, &mut params)?;
        let mut params = SubdeviceParams { subdevice: id.subdevice };
        let subdevice = client.alloc(device, NV20_SUBDEVICE_0, &mut params)?;
        let timeslice = Timeslice::default();
        Ok(Self { client, device, subdevice, node, timeslice, file })
    }

    /// Keeps other aggregators away for as long as this file is open here: a lock on its node, which the
    /// NVIDIA driver knows nothing of. False when another one has it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn lock(&self) -> std::io::Result<bool> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Its file, for calls that name the GPU by it.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Asks what it is.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn facts(&self, card: &CardInfo) -> Result<DeviceFacts, RmError> {
        let mut name = NameString::default();
        self.client.control(self.subdevice, &mut name)?;
        let text = name.name.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut arch = ArchInfo::default();
        self.client.control(self.subdevice, &mut arch)?;
        let chips = served(&self.classes()?, arch.architecture | arch.implementation);
        let [vram, vram_free, bar1_free] = self.memory([FB_TOTAL_RAM, FB_HEAP_FREE, FB_BAR1_FREE])?;
        let (graphics, copy_engines) = self.engines()?;
        let texture_clusters = if graphics { self.texture_clusters()? } else { TextureClusters::of(&[]) };
        Ok(DeviceFacts {
            address: address_of(card),
            name: String::from_utf8_lossy(text).into_owned(),
            architecture: arch.architecture,
            chips,
            vram,
            vram_free,
            bar1_free,
            graphics,
            texture_clusters,
            copy_engines,
        })
    }

    /// Texture processing clusters of each graphics processing cluster that the card has. Drivers number
    /// those that work without gaps.
    fn texture_clusters(&self) -> Result<TextureClusters, RmError> {
        let mut gpcs = GpcMask::default();
        self.client.control(self.subdevice, &mut gpcs)?;
        let mut counts = Vec::new();
        for gpc in (0..u32::BITS).filter(|gpc| gpcs.gpcs >> gpc & 1 == 1) {
            let mut tpcs = TpcMask { gpc, ..Default::default() };
            self.client.control(self.subdevice, &mut tpcs)?;
            counts.extend(u8::try_from(tpcs.tpcs.count_ones()).ok());
        }
        Ok(TextureClusters::of(&counts))
    }

    /// Numbers of the classes that can be made on it.
    fn classes(&self) -> Result<Vec<u32>, RmError> {
        let mut classes = ClassList::default();
        self.client.control(self.device, &mut classes)?;
        let count = usize::try_from(classes.count).unwrap_or(0);
        Ok(classes.list.iter().take(count).copied().collect())
    }

    /// Free space of BAR1 in bytes.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn bar1_free(&self) -> Result<u64, RmError> {
        let [free] = self.memory([FB_BAR1_FREE])?;
        Ok(free)
    }

    /// Answers about memory, in bytes.
    fn memory<const N: usize>(&self, questions: [u32; N]) -> Result<[u64; N], RmError> {
        let mut info = FbInfo { count: u32::try_from(N).unwrap_or(0), ..Default::default() };
        for (slot, index) in info.list.iter_mut().zip(questions) {
            *slot = FbQuestion { index, data: 0 };
        }
        self.client.control(self.subdevice, &mut info)?;
        let mut answers = [0; N];
        for (answer, slot) in answers.iter_mut().zip(&info.list) {
            *answer = u64::from(slot.data) << 10;
        }
        Ok(answers)
    }

    /// Whether there is a graphics engine, and the copy engines.
    fn engines(&self) -> Result<(bool, Vec<CopyEngine>), RmError> {
        let mut engines = Engines::default();
        self.client.control(self.subdevice, &mut engines)?;
        let count = usize::try_from(engines.count).unwrap_or(0);
        let present: Vec<u32> = engines.list.iter().take(count).copied().collect();
        let mut copy = Vec::new();
        for engine in present.iter().copied() {
            let number = match Engine::of_nv2080_type(engine) {
                // Others have no notifier that is known.
                Some(Engine::Copy(number)) if number.get() < flags::NOTIFIERS_CE => number.get().into(),
                _ => continue,
            };
            let mut caps = CopyCaps { engine, ..Default::default() };
            self.client.control(self.subdevice, &mut caps)?;
            let mut units = CopyUnits { engine, mask: 0 };
            // Tells how fast it may be; nothing depends on it.
            if let Err(error) = self.client.control(self.subdevice, &mut units) {
                log::debug!("{error}");
            }
            let [first, _] = caps.caps;
            copy.push(CopyEngine {
                number,
                with_graphics: first & flags::CE_IS_GRCE != 0,
                units: units.mask,
            });
        }
        Ok((present.contains(&Engine::Graphics.nv2080_type()), copy))
    }

    /// Maps the doorbell of a GPU of this chip.
    ///
    /// # Errors
    /// The driver refuses, or the chip has none.
    pub fn doorbell(&mut self, chip: Chip) -> Result<Doorbell, RmError> {
        let Some(class) = chip.classes.usermode else {
            return Err(RmError::new("a doorbell page", CallError::Status(RmStatus::ERR_INVALID_CLASS)));
        };
        let usermode = self.client.alloc(self.subdevice, class, &mut UsermodeParams::default())?;
        let page = self.client.cpu_mapping(
            self.node,
            self.subdevice,
            usermode,
            USERMODE_SIZE,
            "the doorbell page",
        )?;
        Ok(Doorbell { page })
    }
}

/// The page with the doorbell.
#[derive(Debug)]
pub struct Doorbell {
    page: Mapping,
}

impl Doorbell {
    /// Tells the GPU that a channel has work.
    pub fn ring(&self, token: u32) {
        // The page is larger than the offset.
        let _ = self.page.write_u32(DOORBELL, token);
    }
}
