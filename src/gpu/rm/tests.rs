//! The driver on a kernel module in memory: object tree, addresses, refusals, and that nothing is left.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use super::abi::classes::{
    FERMI_VASPACE_A, HOPPER_CHANNEL_GPFIFO_A, HOPPER_COMPUTE_A, HOPPER_DMA_COPY_A, KEPLER_CHANNEL_GROUP_A,
    NV01_MEMORY_LOCAL_USER, NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
};
use super::abi::{Handle, RmStatus, flags};
use super::discovery::open_device;
use super::driver::{Helpers, RmDriver, wake};
use super::host_paths::HostPaths;
use super::mock::{Mock, Wiper};
use super::timed::{QuickPinner, context};
use crate::{
    Budget, ChannelSpec, GpuDriver, GpuDriverExt as _, GpuError, GpuEvent, HostMapping, HostRange,
    HostTarget, Renewal, Scrubber as _, SpaceHandle,
};
use gpuvmk_chip::addr::{GpuVa, HostChannel, HostVram, Iova};
use gpuvmk_chip::{Engine, EngineSet, TextureClusters};
use gpuvmk_host::clock::ManualClock;
use gpuvmk_pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk_pci::{DmaBacking, DmaMapping};

mod channels;
mod holes;
mod mappings;
mod opening;
mod partitions;
mod random;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = u64::MAX;

type Wiped = Arc<Mutex<Vec<(Handle, u64, u64)>>>;

struct Rig {
    mock: Mock,
    driver: RmDriver,
    wiped: Wiped,
    clock: Arc<ManualClock>,
}

impl Rig {
    /// A driver with 1 GiB for tenants.
    fn new() -> Self {
        let mock = Mock::new();
        let (mut device, facts, table, chip) =
            open_device(&mock.kernel(), &HostPaths::default(), None).unwrap();
        let doorbell = Arc::new(device.doorbell(chip).unwrap());
        let wiper = Wiper::default();
        let wiped = Arc::clone(&wiper.wiped);
        let clock = Arc::new(ManualClock::default());
        let answers = VecDeque::new();
        let helpers = Helpers {
            cleaner: Box::new(wiper),
            pinner: Box::new(QuickPinner { context: context(&mock, &device), answers }),
            clock: Arc::clone(&clock) as _,
            wake: wake().unwrap(),
            windows: device.client.kernel().open_files().unwrap(),
        };
        let driver =
            RmDriver::with_helpers(device, doorbell, helpers, facts, (table, chip), 1 << 30).unwrap();
        Self { mock, driver, wiped, clock }
    }

    /// With a partition of 64 MiB at 0 and 256 MiB of RAM at bus address 4 GiB.
    fn with_tenant() -> (Self, SpaceHandle) {
        let mut rig = Self::new();
        rig.driver.share_vram(HostVram(0), 64 * MIB).unwrap();
        rig.ram(1 << 32, 256 * MIB);
        let space = rig.driver.create_space().unwrap();
        (rig, space)
    }

    /// With a channel that may run, and does not leave its engine.
    fn with_clinging_channel() -> (Self, SpaceHandle, HostChannel) {
        let (mut rig, space) = Self::with_tenant();
        let channel = rig.channel(space, EngineSet::COPY2).unwrap();
        rig.driver.enable_channel(channel, true).unwrap();
        rig.driver.commit_runlist(&[channel]).unwrap();
        rig.mock.state().clings = true;
        (rig, space, channel)
    }

    fn ram(&mut self, iova: u64, size: u64) {
        let fd = create_memory_file(c"ram", size).unwrap();
        let backing = Some(DmaBacking { fd, offset: 0 });
        self.driver.dma_map(DmaMapping { iova, size, writable: true, backing, owner: None }).unwrap();
    }

    fn map(&mut self, space: SpaceHandle, maps: &[HostMapping]) -> Result<(), GpuError> {
        self.driver.update_space(space, &[], maps, BUDGET)
    }

    fn unmap(&mut self, space: SpaceHandle, va: u64, pages: u32, page_shift: u8) -> Result<(), GpuError> {
        self.driver.update_space(space, &[HostRange { va: GpuVa(va), pages, page_shift }], &[], BUDGET)
    }

    fn channel(&mut self, space: SpaceHandle, engines: EngineSet) -> Result<HostChannel, GpuError> {
        self.channel_with(space, engines, None)
    }

    /// One that shares the graphics context of another, if that is given.
    fn channel_with(
        &mut self,
        space: SpaceHandle,
        engines: EngineSet,
        context_of: Option<HostChannel>,
    ) -> Result<HostChannel, GpuError> {
        self.driver.create_channel(ChannelSpec {
            context_of,
            space,
            gpfifo: GpuVa(0x1_1000),
            gpfifo_entries_log2: 10,
            userd: HostVram(0x4200),
            engines,
        })
    }
}

fn vram(va: u64, pages: u32, page_shift: u8, at: u64) -> HostMapping {
    HostMapping {
        va: GpuVa(va),
        pages,
        page_shift,
        target: HostTarget::Vram(HostVram(at)),
        read_only: false,
        kind: 0,
    }
}

fn system(va: u64, pages: u32, iova: u64) -> HostMapping {
    let target = HostTarget::System { iova: Iova(iova), coherent: true };
    HostMapping { va: GpuVa(va), pages, page_shift: 12, target, read_only: false, kind: 0 }
}

#[test]
fn engines_of_the_vgpu_and_real_ones_behind_them() {
    let (_, _, table, _) = open_device(&Mock::new().kernel(), &HostPaths::default(), None).unwrap();
    // Of the lone ones COPY4 has most units; then the first.
    assert_eq!(table.copy, [0, 4, 2]);
}

#[test]
fn tenant_that_leaves_and_nothing_of_it() {
    let (mut rig, space) = Rig::with_tenant();
    let channel = rig.channel(space, EngineSet::GRAPHICS | EngineSet::COPY0).unwrap();
    rig.driver.create_object(channel, HOPPER_COMPUTE_A.number, Engine::Graphics).unwrap();
    rig.map(space, &[system(0x20_0000, 4, 1 << 32), vram(0x40_0000, 1, 12, 0)]).unwrap();
    assert!(rig.driver.destroy_space(space).is_err());
    rig.driver.destroy_channel(channel).unwrap();
    rig.driver.clear_space(space).unwrap();
    rig.driver.dma_unmap(Iova(1 << 32), 256 * MIB).unwrap();
    rig.driver.destroy_space(space).unwrap();
    assert_eq!(rig.driver.left_behind().unwrap(), Vec::<String>::new());
    let state = rig.mock.state();
    assert_eq!((state.count(FERMI_VASPACE_A), state.count(KEPLER_CHANNEL_GROUP_A)), (0, 0));
    assert!(state.mappings.is_empty());
}

#[test]
fn object_that_the_driver_keeps_and_its_handle() {
    let (mut rig, space) = Rig::with_tenant();
    let channel = rig.channel(space, EngineSet::COPY1).unwrap();
    rig.mock.state().keep_class = Some(KEPLER_CHANNEL_GROUP_A.number);
    rig.driver.destroy_channel(channel).unwrap();
    rig.driver.destroy_space(space).unwrap();
    let left = rig.driver.left_behind().unwrap();
    assert!(left.iter().any(|object| object.contains("by the driver's list")), "{left:?}");
}

#[test]
fn driver_that_ends_and_no_object_at_all() {
    let (mut rig, space) = Rig::with_tenant();
    rig.channel(space, EngineSet::COPY1).unwrap();
    rig.map(space, &[vram(0x40_0000, 1, 12, 0)]).unwrap();
    drop(rig.driver);
    assert_eq!(rig.mock.state().objects, BTreeMap::new());
}
