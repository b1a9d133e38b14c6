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
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_host::clock::ManualClock;
use gpuvmk_pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk_pci::{DmaBacking, DmaMapping};

mod holes;
mod opening;
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
        self.driver.create_channel(ChannelSpec {
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
fn new_partition_and_one_object_that_is_dirty_until_it_was_cleared_whole() {
    let mut rig = Rig::new();
    let pieces = rig.driver.share_vram(HostVram(0), 64 * MIB).unwrap();
    assert_eq!(pieces.iter().map(|piece| piece.size).sum::<u64>(), 64 * MIB);
    assert_eq!(rig.mock.state().count(NV01_MEMORY_LOCAL_USER), 1);
    assert!(rig.driver.is_vram_dirty(HostVram(0), 64 * MIB));
    for at in 0..4 {
        assert!(rig.driver.is_vram_dirty(HostVram(0), 64 * MIB));
        rig.driver.scrub_vram(HostVram(at * 16 * MIB), 16 * MIB).unwrap();
    }
    assert!(!rig.driver.is_vram_dirty(HostVram(0), 64 * MIB));
    let wiped = rig.wiped.lock().unwrap().iter().map(|(_, at, size)| (*at, *size)).collect::<Vec<_>>();
    let pieces: Vec<(u64, u64)> = (0..16).map(|at| (at * 4 * MIB, 4 * MIB)).collect();
    assert_eq!(wiped, pieces);
}

#[test]
fn partition_shared_again_and_the_same_object() {
    let mut rig = Rig::new();
    rig.driver.share_vram(HostVram(0), 64 * MIB).unwrap();
    rig.driver.share_vram(HostVram(0), 64 * MIB).unwrap();
    assert_eq!(rig.mock.state().count(NV01_MEMORY_LOCAL_USER), 1);
}

#[test]
fn partition_in_another_shape_and_a_new_object_unless_the_old_is_in_use() {
    let (mut rig, space) = Rig::with_tenant();
    rig.map(space, &[vram(0x20_0000, 1, 12, 0)]).unwrap();
    assert!(rig.driver.share_vram(HostVram(0), 128 * MIB).is_err());
    rig.driver.clear_space(space).unwrap();
    rig.driver.share_vram(HostVram(0), 128 * MIB).unwrap();
    assert_eq!(rig.mock.state().count(NV01_MEMORY_LOCAL_USER), 1);
}

/// Memory of a partition is freed only when no process has its file any more, and the next owner gets other
/// memory.
#[test]
fn partition_that_somebody_has_kept_and_is_not_freed() {
    let mut rig = Rig::new();
    let renew = |rig: &mut Rig| rig.driver.renew_vram(HostVram(0), 4 * MIB).unwrap();
    let object = |rig: &Rig| rig.mock.state().handles(NV01_MEMORY_LOCAL_USER);
    let window = rig.driver.share_vram(HostVram(0), 64 * MIB).unwrap();
    let old = object(&rig);
    assert_eq!(renew(&mut rig), Renewal::Held);
    let [piece] = window.as_slice() else { panic!("{window:?}") };
    let mapped = Mapping::of_file(piece.fd.as_fd(), 0, 64 * MIB, Access::ReadWrite).unwrap();
    drop(window);
    assert_eq!(renew(&mut rig), Renewal::Held, "a mapping keeps it");
    // Nor can it become a partition of another size.
    assert!(rig.driver.share_vram(HostVram(0), 128 * MIB).is_err());
    assert!(rig.driver.share_vram(HostVram(0), 64 * MIB).is_err());
    assert_eq!(object(&rig), old);

    drop(mapped);
    for piece in 0..16 {
        assert_eq!(rig.driver.renew_vram(HostVram(piece * 4 * MIB), 4 * MIB).unwrap(), Renewal::Done);
    }

    assert_eq!(object(&rig), []);
    rig.driver.share_vram(HostVram(0), 64 * MIB).unwrap();
    assert!(rig.driver.is_vram_dirty(HostVram(0), 64 * MIB));
    assert_ne!(object(&rig), old);
}

/// A rig without room in BAR1, and with a partition of 128 MiB at 0.
fn with_host_partition() -> (Rig, Mapping) {
    let mut rig = Rig::new();
    rig.mock.state().vram_free = 0;
    let mapping = host_window(&mut rig);
    (rig, mapping)
}

/// What a process that has the partition's window sees.
fn host_window(rig: &mut Rig) -> Mapping {
    let window = rig.driver.share_vram(HostVram(0), 128 * MIB).unwrap();
    Mapping::of_file(window[0].fd.as_fd(), 0, 128 * MIB, Access::ReadWrite).unwrap()
}

fn held(rig: &Rig) -> usize {
    rig.mock.state().count(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR)
}

fn renew_all(rig: &mut Rig) {
    for piece in 0..32 {
        let start = HostVram(piece * 4 * MIB);
        let again = (0..10).find(|_| rig.driver.renew_vram(start, 4 * MIB).unwrap() == Renewal::Done);
        assert!(again.is_some(), "piece {piece} does not come back");
    }
}

/// Where partitions are system memory, the next one is another file, even if a process has the old one.
#[test]
fn partition_in_system_memory_and_another_file_for_the_next_owner() {
    let (mut rig, kept) = with_host_partition();
    let space = rig.driver.create_space().unwrap();
    assert!(!rig.driver.is_vram_dirty(HostVram(0), 128 * MIB), "a new file is zeros");
    kept.fill(0, 128 * MIB, 0x5a).unwrap();
    rig.map(space, &[vram(0x20_0000, 1024, 12, 63 * MIB)]).unwrap();
    assert!(rig.driver.renew_vram(HostVram(0), 4 * MIB).is_err(), "it is mapped");
    rig.driver.destroy_space(space).unwrap();

    renew_all(&mut rig);

    assert_eq!(held(&rig), 0);
    assert_eq!(rig.driver.left_behind().unwrap(), Vec::<String>::new());
    let next = host_window(&mut rig);
    assert_eq!((next.read_u32(0x1000), kept.read_u32(0x1000)), (Ok(0), Ok(0)));
    kept.fill(0, 128 * MIB, 0x22).unwrap();
    assert_eq!(next.read_u32(0x1000), Ok(0));
}

/// What the GPU is shown of it, and no more.
#[test]
fn partition_in_system_memory_is_held_where_it_is_named() {
    let (mut rig, window) = with_host_partition();
    let space = rig.driver.create_space().unwrap();
    assert_eq!(held(&rig), 0);

    rig.map(space, &[vram(0x20_0000, 1024, 12, 63 * MIB)]).unwrap();

    assert_eq!(held(&rig), 3, "it begins and ends within pieces");
    let (object, offset, _) = rig.mock.state().translate(0x20_0000 + MIB).unwrap();
    assert_eq!(offset, 0, "a piece begins there");
    assert!(rig.mock.state().handles(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR).contains(&object));
    let channel = rig.channel(space, EngineSet::COPY1).unwrap();
    assert_eq!(held(&rig), 4, "the USERD's");
    assert_eq!(rig.driver.left_behind().unwrap(), Vec::<String>::new());

    rig.driver.destroy_channel(channel).unwrap();
    rig.driver.destroy_space(space).unwrap();
    window.fill(0, 128 * MIB, 0x5a).unwrap();
    rig.driver.scrub_vram(HostVram(0), 128 * MIB).unwrap();
    assert_eq!(held(&rig), 0, "zeroed memory is given back");
    assert_eq!(window.read_u32(64 * MIB), Ok(0));
}

#[test]
fn scrub_of_a_range_and_the_parts_of_partitions_in_it() {
    let mut rig = Rig::new();
    rig.driver.share_vram(HostVram(0), 64 * MIB).unwrap();
    rig.driver.share_vram(HostVram(128 * MIB), 64 * MIB).unwrap();
    rig.wiped.lock().unwrap().clear();
    rig.driver.scrub_vram(HostVram(32 * MIB), 128 * MIB).unwrap();
    let wiped: Vec<(u64, u64)> = rig.wiped.lock().unwrap().iter().map(|(_, at, size)| (*at, *size)).collect();
    let pieces: Vec<(u64, u64)> = (8..16).chain(0..8).map(|at| (at * 4 * MIB, 4 * MIB)).collect();
    assert_eq!(wiped, pieces);
    assert!(rig.driver.scrub_vram(HostVram(1 << 30), MIB).is_err());
}

#[test]
fn mappings_that_go_on_and_one_call() {
    let (mut rig, space) = Rig::with_tenant();
    let maps: Vec<_> = (0..8).map(|n| vram(0x20_0000 + n * 0x1000, 1, 12, n * 0x1000)).collect();
    rig.map(space, &maps).unwrap();
    assert_eq!(rig.mock.state().maps, 1);
    let (_, offset, _) = rig.mock.state().translate(0x20_5000).unwrap();
    assert_eq!(offset, 0x5000);
}

#[test]
fn page_sizes_of_vram_and_pages_of_system_memory() {
    let (mut rig, space) = Rig::with_tenant();
    let maps = [vram(0x400_0000, 2, 21, 0), vram(0x500_0000, 2, 16, 0), system(0x600_0000, 16, 1 << 32)];
    rig.map(space, &maps).unwrap();
    let state = rig.mock.state();
    let page = |va| state.translate(va).unwrap().2 & 0xf00;
    assert_eq!(page(0x400_0000), flags::map::PAGE_2M);
    assert_eq!(page(0x500_0000), flags::map::PAGE_64K);
    assert_eq!(page(0x600_0000), flags::map::PAGE_4K);
}

#[test]
fn read_only_mapping_and_its_flag() {
    let (mut rig, space) = Rig::with_tenant();
    let map = HostMapping { read_only: true, ..system(0x20_0000, 1, 1 << 32) };
    rig.map(space, &[map]).unwrap();
    let (_, _, found) = rig.mock.state().translate(0x20_0000).unwrap();
    assert_eq!(found & flags::map::READ_ONLY, flags::map::READ_ONLY);
}

#[test]
fn addresses_that_are_the_drivers_and_a_refusal_that_leaves_the_rest_mapped() {
    let (mut rig, space) = Rig::with_tenant();
    for taken in [0x0, 0x1_0000_0000, 0xc0_0000_0000, 0xff_ffff_f000] {
        let error = rig.map(space, &[vram(taken, 1, 12, 0), vram(0x20_0000, 1, 12, 0)]).unwrap_err();
        assert!(error.to_string().contains("the NVIDIA driver's"), "{error}");
        assert!(rig.mock.state().translate(0x20_0000).is_some());
        assert!(rig.mock.state().translate(taken).is_none());
    }
    rig.map(space, &[vram(1 << 40, 1, 12, 0), vram(0xbf_ffff_f000, 1, 12, 0)]).unwrap();
}

#[test]
fn mapping_across_pieces_of_memory_and_each_its_object() {
    let (mut rig, space) = Rig::with_tenant();
    let pages = u32::try_from((2 * super::pinner::PIECE) >> 12).unwrap();
    rig.map(space, &[system(0x1000_0000, pages, (1 << 32) + 0x1000)]).unwrap();
    assert_eq!(rig.mock.state().count(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR), 3);
    let (first, offset, _) = rig.mock.state().translate(0x1000_0000).unwrap();
    let (second, start, _) = rig.mock.state().translate(0x1000_0000 + super::pinner::PIECE - 0x1000).unwrap();
    assert_eq!((offset, start), (0x1000, 0));
    assert_ne!(first, second);
}

#[test]
fn hole_in_a_large_page_and_its_remains_as_small_pages() {
    let (mut rig, space) = Rig::with_tenant();
    rig.map(space, &[vram(0x400_0000, 2, 21, 0)]).unwrap();
    rig.unmap(space, 0x400_5000, 1, 12).unwrap();
    let state = rig.mock.state();
    assert!(state.translate(0x400_5000).is_none());
    for (va, page) in [
        (0x400_4000, flags::map::PAGE_4K),
        (0x400_6000, flags::map::PAGE_4K),
        (0x420_0000, flags::map::PAGE_2M),
    ] {
        let (_, offset, found) = state.translate(va).unwrap();
        assert_eq!((offset, found & 0xf00), (va - 0x400_0000, page), "{va:#x}");
    }
}

#[test]
fn small_page_over_a_large_one_and_the_rest_of_it_as_small_pages() {
    let (mut rig, space) = Rig::with_tenant();
    rig.map(space, &[vram(0x400_0000, 1, 21, 0)]).unwrap();
    rig.map(space, &[vram(0x400_0000, 1, 12, 0x10_0000)]).unwrap();
    let state = rig.mock.state();
    let offset = |va| state.translate(va).map(|(_, offset, _)| offset);
    assert_eq!(offset(0x400_0000), Some(0x10_0000));
    assert_eq!(offset(0x400_1000), Some(0x1000));
    assert_eq!(offset(0x41f_f000), Some(0x1f_f000));
}

#[test]
fn map_call_that_fails_and_books_that_say_what_is_there() {
    let (mut rig, space) = Rig::with_tenant();
    rig.mock.state().refuse_map_after = Some(1);
    let maps = [vram(0x20_0000, 1, 12, 0), vram(0x40_0000, 1, 12, 0), vram(0x60_0000, 1, 12, 0)];
    let error = rig.map(space, &maps).unwrap_err();
    assert!(matches!(&error, GpuError::Unmappable(why) if why.contains("ERR_NO_MEMORY")), "{error}");
    assert_eq!(rig.driver.space_usage(space).unwrap().pages, 2);
    assert!(rig.mock.state().translate(0x40_0000).is_none());
    assert!(rig.mock.state().translate(0x60_0000).is_some());
}

#[test]
fn revoked_memory_and_no_mapping_of_it() {
    let (mut rig, space) = Rig::with_tenant();
    rig.map(space, &[system(0x20_0000, 4, 1 << 32), vram(0x40_0000, 1, 12, 0)]).unwrap();
    assert!(rig.driver.dma_unmap(Iova(1 << 32), 256 * MIB).is_err());
    assert_eq!(rig.driver.revoke_system(space, Iova(1 << 32), 256 * MIB).unwrap(), 4);
    rig.driver.dma_unmap(Iova(1 << 32), 256 * MIB).unwrap();
    assert!(rig.mock.state().translate(0x20_0000).is_none());
    assert!(rig.mock.state().translate(0x40_0000).is_some());
    assert_eq!(rig.mock.state().count(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR), 0);
}

#[test]
fn memory_announced_in_pieces_and_registered_once() {
    let mut rig = Rig::new();
    let space = rig.driver.create_space().unwrap();
    let file = create_memory_file(c"ram", 64 * MIB).unwrap();
    for (iova, offset, size) in [(1 << 32, 0, MIB), ((1 << 32) + MIB, MIB, 63 * MIB)] {
        let backing = Some(DmaBacking { fd: file.try_clone().unwrap(), offset });
        rig.driver.dma_map(DmaMapping { iova, size, writable: true, backing, owner: None }).unwrap();
    }
    rig.map(space, &[system(0x20_0000, 512, 1 << 32)]).unwrap();
    assert_eq!(rig.mock.state().count(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR), 1);
    assert_eq!(rig.driver.system().registered(), 1);
}

#[test]
fn memory_without_a_file_or_for_reading_only_and_no_mapping() {
    let mut rig = Rig::new();
    let space = rig.driver.create_space().unwrap();
    rig.driver
        .dma_map(DmaMapping { iova: 1 << 33, size: MIB, writable: true, backing: None, owner: None })
        .unwrap();
    let fd = create_memory_file(c"rom", MIB).unwrap();
    let backing = Some(DmaBacking { fd, offset: 0 });
    rig.driver
        .dma_map(DmaMapping { iova: 1 << 34, size: MIB, writable: false, backing, owner: None })
        .unwrap();
    assert!(rig.map(space, &[system(0x20_0000, 1, 1 << 33)]).is_err());
    assert!(rig.map(space, &[system(0x20_0000, 1, 1 << 34)]).is_err());
    assert_eq!(rig.mock.state().maps, 0);
}

#[test]
fn channel_that_runs_and_is_held_back_and_runs_again() {
    let (mut rig, space) = Rig::with_tenant();
    let channel = rig.channel(space, EngineSet::COPY1).unwrap();
    rig.driver.enable_channel(channel, true).unwrap();
    assert_eq!(rig.mock.state().scheduled.len(), 0);
    rig.driver.commit_runlist(&[channel]).unwrap();
    assert_eq!(rig.mock.state().scheduled.len(), 1);
    rig.driver.doorbell(channel).unwrap();
    rig.driver.commit_runlist(&[]).unwrap();
    assert_eq!(rig.mock.state().disabled.len(), 1);
    rig.driver.enable_channel(channel, false).unwrap();
    rig.driver.commit_runlist(&[channel]).unwrap();
    assert_eq!(rig.mock.state().disabled.len(), 1);
    rig.driver.enable_channel(channel, true).unwrap();
    assert_eq!(rig.mock.state().disabled.len(), 0);
    assert_eq!(rig.mock.state().scheduled.len(), 1);
}

#[test]
fn classes_that_tenants_may_have_and_no_others() {
    let (mut rig, space) = Rig::with_tenant();
    let graphics = rig.channel(space, EngineSet::GRAPHICS | EngineSet::COPY0).unwrap();
    rig.driver.create_object(graphics, HOPPER_COMPUTE_A.number, Engine::Graphics).unwrap();
    rig.driver.create_object(graphics, HOPPER_COMPUTE_A.number, Engine::Graphics).unwrap();
    rig.driver.create_object(graphics, HOPPER_DMA_COPY_A.number, Engine::COPY0).unwrap();
    assert_eq!(rig.mock.state().count(HOPPER_COMPUTE_A), 1);
    for (class, engine) in [
        (0xc661, Engine::Graphics),
        (HOPPER_COMPUTE_A.number, Engine::COPY0),
        (HOPPER_DMA_COPY_A.number, Engine::COPY1),
        (HOPPER_DMA_COPY_A.number, Engine::Graphics),
    ] {
        let error = rig.driver.create_object(graphics, class, engine).unwrap_err();
        assert!(matches!(error, GpuError::NoClass { .. }), "{class:#x} {engine:?}: {error}");
    }
}

#[test]
fn engines_that_no_channel_has_together_and_a_refusal() {
    let (mut rig, space) = Rig::with_tenant();
    for engines in
        [EngineSet::empty(), EngineSet::COPY1 | EngineSet::COPY2, EngineSet::GRAPHICS | EngineSet::COPY1]
    {
        assert!(rig.channel(space, engines).is_err(), "{engines:?}");
    }
    assert_eq!(rig.mock.state().count(KEPLER_CHANNEL_GROUP_A), 0);
}

#[test]
fn channel_that_the_driver_refuses_and_nothing_left_of_it() {
    let (mut rig, space) = Rig::with_tenant();
    let before = rig.mock.state().objects.len();
    rig.mock.state().refuse_class = Some((HOPPER_CHANNEL_GPFIFO_A.number, RmStatus::ERR_NO_FREE_FIFOS));
    let error = rig.channel(space, EngineSet::COPY1).unwrap_err();
    assert!(matches!(&error, GpuError::Rm(error) if error.is_shortage()), "{error}");
    assert_eq!(rig.mock.state().objects.len(), before);
}

#[test]
fn notifications_and_each_engine_once() {
    let mut rig = Rig::new();
    let objects: BTreeMap<u32, Handle> = rig
        .driver
        .device()
        .client
        .objects()
        .filter(|(_, object)| object.class.number == 0x79)
        .zip(0..)
        .map(|((handle, _), index)| (index, handle))
        .collect();
    for index in [0, 2, 0] {
        let object = objects[&index];
        let event = super::abi::calls::EventData { object, ..Default::default() };
        rig.mock.state().events.push_back(event);
    }
    let mut events = Vec::new();
    rig.driver.take_events(&mut events);
    assert_eq!(events, [GpuEvent::NonStall(Engine::Graphics), GpuEvent::NonStall(Engine::COPY1)]);
}

#[test]
fn preemption_and_its_event() {
    let (mut rig, space) = Rig::with_tenant();
    let channel = rig.channel(space, EngineSet::COPY2).unwrap();
    rig.driver.preempt_channel(channel).unwrap();
    let mut events = Vec::new();
    rig.driver.take_events(&mut events);
    assert_eq!(events, [GpuEvent::Preempted(channel)]);
}

/// Hardware would take up its next work between two looks.
#[test]
fn preempted_channel_that_does_not_run_before_it_has_left() {
    let (mut rig, _, channel) = Rig::with_clinging_channel();
    rig.driver.preempt_channel(channel).unwrap();
    let mut budget = Budget::unlimited();
    assert!(rig.driver.advance_pending(&mut budget), "it is there");
    // Neither a new list nor another preemption lets it run.
    rig.driver.commit_runlist(&[channel]).unwrap();
    rig.driver.preempt_channel(channel).unwrap();
    assert_eq!(rig.mock.state().disabled.len(), 1);

    rig.mock.state().clings = false;
    let mut events = Vec::new();
    rig.clock.advance(100_000_000);
    assert!(!rig.driver.advance_pending(&mut budget), "it has left");
    rig.driver.take_events(&mut events);

    assert_eq!(events, [GpuEvent::Preempted(channel)]);
    assert!(rig.mock.state().disabled.is_empty(), "it runs again");
}

/// The driver's own time for a preemption is short; who asked has a longer one, and then takes the channel
/// away: it is disabled first, and freed by the driver, which resets what must be.
#[test]
fn channel_that_does_not_yield_is_held_back_and_taken_away() {
    let (mut rig, space, channel) = Rig::with_clinging_channel();

    rig.driver.preempt_channel(channel).unwrap();
    let mut events = Vec::new();
    rig.driver.take_events(&mut events);
    assert_eq!(events, [], "it has not left");
    rig.driver.commit_runlist(&[]).unwrap();
    assert_eq!(rig.mock.state().disabled.len(), 1);
    rig.driver.destroy_channel(channel).unwrap();

    assert_eq!(rig.mock.state().count(KEPLER_CHANNEL_GROUP_A), 0);
    rig.channel(space, EngineSet::COPY2).unwrap();
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
