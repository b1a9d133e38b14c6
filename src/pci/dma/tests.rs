//! Tests of the DMA space: announcing, taking away, crossing, faults, and a model check.

use super::*;
use crate::DmaBacking;
use crate::mapping::Mapping;
use proptest::prelude::*;
use std::fs::File;
use std::os::fd::OwnedFd;

const PAGE: u64 = PAGE_SIZE;

fn memory_file(pages: u64) -> OwnedFd {
    crate::mapping::create_memory_file(c"dma test", pages * PAGE).unwrap()
}

fn part(file: &OwnedFd, iova: u64, size: u64, offset: u64) -> DmaMapping {
    let backing = Some(DmaBacking { fd: file.try_clone().unwrap(), offset });
    DmaMapping { iova, size, writable: true, backing, owner: None }
}

fn read_only(mut mapping: DmaMapping) -> DmaMapping {
    mapping.writable = false;
    mapping
}

/// `size` bytes at `iova` with separate memory.
fn own(iova: u64, size: u64) -> DmaMapping {
    part(&memory_file(size / PAGE), iova, size, 0)
}

fn fault(address: u64, kind: FaultKind) -> DmaFault {
    DmaFault { address, kind }
}

#[test]
fn access_crosses_adjacent_ranges() {
    let space = DmaSpace::new();
    space.map(own(0x1000, PAGE)).unwrap();
    space.map(own(0x2000, PAGE)).unwrap();
    let data: Vec<u8> = (0..=255).cycle().take(6000).collect();

    space.write(0x1100, &data).unwrap();

    let mut back = vec![0; 6000];
    space.read(0x1100, &mut back).unwrap();
    assert_eq!(back, data);
    space.write(0x1ffe, &[1, 2, 3, 4]).unwrap();
    assert_eq!(space.read_u32(0x1ffe), Ok(0x0403_0201));
}

#[test]
fn access_faults_at_the_first_hole_after_copying_what_lies_before() {
    let space = DmaSpace::new();
    space.map(own(0x1000, PAGE)).unwrap();

    let result = space.write(0x1ffc, &[0xff; 8]);

    assert_eq!(result, Err(fault(0x2000, FaultKind::NotMapped)));
    assert_eq!(space.read_u32(0x1ffc), Ok(u32::MAX));
    assert_eq!(space.read_u32(0xffc), Err(fault(0xffc, FaultKind::NotMapped)));
}

#[test]
fn read_only_range_refuses_writes_and_serves_reads() {
    let space = DmaSpace::new();
    space.map(read_only(own(0, PAGE))).unwrap();

    assert_eq!(space.write_u32(8, 1), Err(fault(8, FaultKind::ReadOnly)));
    assert_eq!(space.fill(0, 4, 1), Err(fault(0, FaultKind::ReadOnly)));
    assert_eq!(space.read_u32(8), Ok(0));
}

#[test]
fn read_only_and_writable_ranges_of_one_file_show_the_same_bytes() {
    let file = memory_file(2);
    let space = DmaSpace::new();
    space.map(read_only(part(&file, 0, PAGE, 0))).unwrap();
    space.map(part(&file, 0x10000, 2 * PAGE, 0)).unwrap();

    space.write_u32(0x10010, 77).unwrap();

    assert_eq!(space.read_u32(0x10), Ok(77));
}

#[test]
fn range_without_memory_is_listed_and_faults() {
    let space = DmaSpace::new();
    space.map(DmaMapping { iova: 0xc0000, size: PAGE, writable: false, backing: None, owner: None }).unwrap();

    assert_eq!(space.read_u32(0xc0000), Err(fault(0xc0000, FaultKind::Unreachable)));
    assert_eq!(space.ranges(), [DmaRange { iova: 0xc0000, size: PAGE, writable: false, reachable: false }]);
}

#[test]
fn overlap_is_refused_and_changes_nothing() {
    let space = DmaSpace::new();
    space.map(own(0x4000, 4 * PAGE)).unwrap();

    for (iova, size) in [(0x4000, PAGE), (0x7000, PAGE), (0x3000, 2 * PAGE), (0, 16 * PAGE), (0x5000, PAGE)] {
        assert!(matches!(space.map(own(iova, size)), Err(DmaError::Overlap { .. })), "{iova:#x}");
    }
    space.map(own(0x3000, PAGE)).unwrap();
    space.map(own(0x8000, PAGE)).unwrap();
    assert_eq!(space.len(), 3);
}

#[test]
fn invalid_ranges_are_refused() {
    let space = DmaSpace::new();
    let file = memory_file(1);

    for (iova, size) in [(0, 0), (1, PAGE), (0, 100), (u64::MAX - PAGE + 1, 2 * PAGE)] {
        let result = space.map(part(&file, iova, size, 0));
        assert!(matches!(result, Err(DmaError::Invalid { .. })), "{iova:#x}+{size:#x}");
        assert!(matches!(space.unmap(iova, size), Err(DmaError::Invalid { .. })), "{iova:#x}+{size:#x}");
    }
}

#[test]
fn file_smaller_than_claimed_is_refused() {
    let space = DmaSpace::new();
    let file = memory_file(2);

    for (size, offset) in [(3 * PAGE, 0), (PAGE, 2 * PAGE), (2 * PAGE, PAGE), (PAGE, u64::MAX - PAGE + 1)] {
        let result = space.map(part(&file, 0, size, offset));
        assert!(matches!(result, Err(DmaError::Backing { .. })), "{offset:#x}+{size:#x}");
    }
    assert!(space.is_empty());
}

#[test]
fn file_that_is_no_memory_is_refused() {
    let space = DmaSpace::new();
    let zero = OwnedFd::from(File::open("/dev/zero").unwrap());

    assert!(matches!(space.map(part(&zero, 0, PAGE, 0)), Err(DmaError::Backing { .. })));
}

#[test]
fn unmap_takes_several_whole_ranges() {
    let space = DmaSpace::new();
    for page in 0..4 {
        space.map(own(page * PAGE, PAGE)).unwrap();
    }

    space.unmap(PAGE, 2 * PAGE).unwrap();

    assert_eq!(space.read_u32(0), Ok(0));
    assert_eq!(space.read_u32(PAGE), Err(fault(PAGE, FaultKind::NotMapped)));
    assert_eq!(space.len(), 2);
}

#[test]
fn unmap_of_part_leaves_the_rest_and_of_nothing_is_no_error() {
    let space = DmaSpace::new();
    let file = memory_file(8);
    space.map(part(&file, 0x4000, 8 * PAGE, 0)).unwrap();
    for page in 0..8_u32 {
        space.write_u32(0x4000 + u64::from(page) * PAGE, page).unwrap();
    }

    space.unmap(0x6000, 2 * PAGE).unwrap();
    space.unmap(0, 5 * PAGE).unwrap();
    space.unmap(0x40000, PAGE).unwrap();

    let there: Vec<u32> =
        (0..8).filter(|page| space.read_u32(0x4000 + u64::from(*page) * PAGE) == Ok(*page)).collect();
    assert_eq!(there, [1, 4, 5, 6, 7]);
    assert_eq!((space.len(), space.owner().ranges()), (2, 2));
    space.unmap(0, 1 << 40).unwrap();
    assert_eq!((space.len(), space.owner().ranges()), (0, 0));
}

#[test]
fn ranges_that_follow_each_other_in_one_file_are_one() {
    let space = DmaSpace::new();
    let file = memory_file(16);
    // In any order, as a guest with an IOMMU has its pages mapped.
    for page in [3, 1, 0, 2, 7, 5, 6, 4] {
        space.map(part(&file, 0x10000 + page * PAGE, PAGE, page * PAGE)).unwrap();
    }
    assert_eq!(space.len(), 1);
    let (others, rights) = (memory_file(1), read_only(part(&file, 0x1a000, PAGE, 10 * PAGE)));
    space.map(part(&others, 0x18000, PAGE, 0)).unwrap();
    space.map(part(&file, 0x19000, PAGE, 9 * PAGE)).unwrap();
    space.map(rights).unwrap();
    space.map(part(&file, 0x1b000, PAGE, 10 * PAGE)).unwrap();
    assert_eq!(space.len(), 5);

    // Taken away one by one, in another order.
    for page in [6, 0, 4, 2, 7, 1, 5, 3] {
        space.unmap(0x10000 + page * PAGE, PAGE).unwrap();
        assert!(space.read_u32(0x10000 + page * PAGE).is_err());
    }
    assert_eq!(space.len(), 4);
}

/// What QEMU does with a virtio-mem device: a block at a time is mapped, all are taken away in one go.
#[test]
fn blocks_of_a_section_are_mapped_one_by_one_and_unmapped_together() {
    const BLOCK: u64 = 2 << 20;
    let space = DmaSpace::with_owner(MemoryOwner::new(4));
    let file = crate::mapping::create_memory_file(c"virtio-mem", 1024 * BLOCK).unwrap();
    for block in 0..512 {
        space.map(part(&file, (1 << 32) + block * BLOCK, BLOCK, block * BLOCK)).unwrap();
    }
    assert_eq!(space.len(), 1);
    space.unmap((1 << 32) + 100 * BLOCK, BLOCK).unwrap();

    space.unmap(1 << 32, 1024 * BLOCK).unwrap();

    assert!(space.is_empty());
}

#[test]
fn range_may_end_where_the_address_space_ends() {
    let space = DmaSpace::new();
    let top = u64::MAX - PAGE + 1;
    space.map(own(top, PAGE)).unwrap();

    space.write_u32(u64::MAX - 3, 5).unwrap();

    assert_eq!(space.read_u32(u64::MAX - 3), Ok(5));
    assert_eq!(space.read_u32(u64::MAX - 1), Err(fault(u64::MAX, FaultKind::NotMapped)));
    space.unmap(top, PAGE).unwrap();
    assert!(space.is_empty());
}

#[test]
fn unmap_all_leaves_nothing() {
    let space = DmaSpace::new();
    space.map(own(0, PAGE)).unwrap();
    space.map(own(0x10000, PAGE)).unwrap();

    space.unmap_all();

    assert!(space.is_empty());
    assert!(space.read_u32(0).is_err());
}

#[test]
fn one_file_in_many_ranges_is_mapped_once() {
    let space = DmaSpace::new();
    let file = memory_file(64);

    for page in 0..64 {
        space.map(part(&file, page * 2 * PAGE, PAGE, page * PAGE)).unwrap();
    }

    let table = space.shared();
    let first = table.values().next().and_then(|range| range.memory.clone()).unwrap().0;
    assert_eq!(table.len(), 64);
    assert!(table.values().all(|range| Arc::ptr_eq(&range.memory.as_ref().unwrap().0, &first)));
}

#[test]
fn file_that_grew_is_mapped_anew() {
    let space = DmaSpace::new();
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(PAGE).unwrap();
    let fd = OwnedFd::from(file.try_clone().unwrap());
    space.map(part(&fd, 0, PAGE, 0)).unwrap();

    file.set_len(4 * PAGE).unwrap();
    space.map(part(&fd, 0x10000, 4 * PAGE, 0)).unwrap();

    space.write_u32(0x10000, 9).unwrap();
    assert_eq!(space.read_u32(0), Ok(9));
    space.write_u32(0x13000, 1).unwrap();
}

#[test]
fn number_of_ranges_is_limited_for_each_owner() {
    let space = DmaSpace::with_owner(MemoryOwner::new(100));
    let other = MemoryOwner::new(1);
    // With gaps, which nothing joins.
    let nameless = |page: u64| DmaMapping {
        iova: 2 * page * PAGE,
        size: PAGE,
        writable: false,
        backing: None,
        owner: (page >= 1000).then(|| other.clone()),
    };
    for page in 0..100 {
        space.map(nameless(page)).unwrap();
    }

    assert!(matches!(space.map(nameless(100)), Err(DmaError::TooMany(100))));
    space.map(nameless(1000)).unwrap();
    assert!(matches!(space.map(nameless(1001)), Err(DmaError::TooMany(1))));
    space.unmap(0, PAGE).unwrap();
    space.map(nameless(100)).unwrap();
}

#[test]
fn number_of_files_is_limited_and_recovers() {
    let space = DmaSpace::with_owner(MemoryOwner::with(MAX_MAPPINGS, 8, false));
    for page in 0..8 {
        space.map(own(page * PAGE, PAGE)).unwrap();
    }

    let ninth = space.map(own(8 * PAGE, PAGE));
    space.unmap(0, PAGE).unwrap();
    // Where there is a reaper in this process, it has to come to it first.
    let again = |_: &u32| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        space.map(own(8 * PAGE, PAGE)).is_ok()
    };

    assert!(matches!(ninth, Err(DmaError::Backing { .. })));
    assert!((0..500).any(|round| again(&round)));
}

/// A descriptor of the same file that may only read.
fn reader_of(file: &OwnedFd) -> OwnedFd {
    use std::os::fd::AsRawFd;
    OwnedFd::from(File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap())
}

#[test]
fn right_to_write_is_proven_by_each_descriptor() {
    let space = DmaSpace::new();
    let file = memory_file(4);
    let refused = |result| matches!(result, Err(DmaError::Backing { .. }));

    assert!(refused(space.map(part(&reader_of(&file), 0, PAGE, 0))));
    space.map(part(&file, 0x10000, 4 * PAGE, 0)).unwrap();
    // There is a mapping for writing now, but this descriptor gives no right to write.
    assert!(refused(space.map(part(&reader_of(&file), 0, PAGE, 0))));
    space.map(read_only(part(&reader_of(&file), 0, PAGE, 0))).unwrap();
    assert!(space.write_u32(0, 1).is_err());
}

#[test]
fn files_of_different_owners_are_mapped_apart() {
    let space = DmaSpace::new();
    let file = memory_file(2);
    let owners = [MemoryOwner::new(8), MemoryOwner::new(8)];
    for (page, owner) in (0..).zip(&owners) {
        let mapping = part(&file, page * PAGE, PAGE, page * PAGE);
        space.map(DmaMapping { owner: Some(owner.clone()), ..mapping }).unwrap();
    }

    // They follow each other in one file, and are not one.
    assert_eq!(space.len(), 2);
    let table = space.shared();
    let mut memory = table.values().map(|range| Arc::as_ptr(&range.memory.as_ref().unwrap().0));
    assert_ne!(memory.next(), memory.next());
}

/// An access that waits for its page for as long as it likes, as in memory that has to be swapped in.
#[test]
fn access_that_takes_long_is_in_nobodys_way() {
    let space = Arc::new(DmaSpace::new());
    let [slow, other] = [MemoryOwner::deferring(8), MemoryOwner::deferring(8)];
    let file = memory_file(8);
    space.map(DmaMapping { owner: Some(slow.clone()), ..part(&file, 0, 4 * PAGE, 0) }).unwrap();
    let (entered, is_in) = std::sync::mpsc::channel();
    let (leave, may_leave) = std::sync::mpsc::channel::<()>();
    let engine = {
        let space = Arc::clone(&space);
        std::thread::spawn(move || {
            space.pieces(0, 4 * PAGE, Direction::FromMemory, |_, _, _| {
                entered.send(()).unwrap();
                may_leave.recv().unwrap();
                Ok(())
            })
        })
    };
    is_in.recv().unwrap();

    // Others map, use and unmap theirs, and its owner takes it away, without waiting.
    for _ in 0..100 {
        space.map(DmaMapping { owner: Some(other.clone()), ..own(0x100000, PAGE) }).unwrap();
        space.write_u32(0x100000, 1).unwrap();
        space.unmap(0x100000, PAGE).unwrap();
        assert!(other.is_settled(0x100000, PAGE));
    }
    space.map(DmaMapping { owner: Some(slow.clone()), ..part(&file, 4 * PAGE, PAGE, 4 * PAGE) }).unwrap();
    space.unmap(PAGE, PAGE).unwrap();
    assert!(space.read_u32(PAGE).is_err(), "nobody new gets in");
    assert_eq!(space.read_u32(2 * PAGE), Ok(0));
    assert!(!slow.is_settled(PAGE, PAGE));

    leave.send(()).unwrap();
    engine.join().unwrap().unwrap();
    assert!(slow.is_settled(PAGE, PAGE));
}

#[test]
fn copies_between_ranges_and_mappings_cross_borders() {
    let space = DmaSpace::new();
    space.map(own(0x1000, PAGE)).unwrap();
    space.map(own(0x2000, PAGE)).unwrap();
    space.map(own(0x8000, PAGE)).unwrap();
    space.map(own(0x9000, PAGE)).unwrap();
    let window_file = memory_file(2);
    let window = {
        use std::os::fd::AsFd;
        Mapping::of_file(window_file.as_fd(), 0, 2 * PAGE, crate::mapping::Access::ReadWrite).unwrap()
    };
    let data: Vec<u8> = (0..251).cycle().take(5000).collect();
    space.write(0x1800, &data).unwrap();

    space.copy(0x1800, 0x8123, 5000).unwrap();
    space.copy_to_mapping(0x8123, &window, 100, 5000).unwrap();
    space.fill(0x1800, 5000, 0).unwrap();
    space.copy_from_mapping(0x1800, &window, 100, 5000).unwrap();

    let mut back = vec![0; 5000];
    space.read(0x1800, &mut back).unwrap();
    assert_eq!(back, data);
    assert_eq!(space.copy(0x1800, 0x9800, 4096), Err(fault(0xa000, FaultKind::NotMapped)));
    assert_eq!(space.copy(0x2800, 0x8000, 4096), Err(fault(0x3000, FaultKind::NotMapped)));
    assert!(space.copy_to_mapping(0x1000, &window, PAGE, 2 * PAGE).is_err());
}

#[test]
fn unmap_waits_for_accesses_and_later_ones_fault() {
    let space = Arc::new(DmaSpace::new());
    space.map(own(0, 64 * PAGE)).unwrap();
    let engine = {
        let space = Arc::clone(&space);
        std::thread::spawn(move || {
            let mut rounds = 0u64;
            while space.fill(0, 64 * PAGE, 1).is_ok() {
                rounds += 1;
            }
            rounds
        })
    };
    std::thread::sleep(std::time::Duration::from_millis(20));

    space.unmap(0, 64 * PAGE).unwrap();

    assert!(engine.join().unwrap() > 0);
}

/// One step of the model check.
#[derive(Clone, Copy, Debug)]
enum Step {
    Map { page: u64, pages: u64 },
    Unmap { page: u64, pages: u64 },
    Write { at: u64, size: usize, byte: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0u64..16, 1u64..6);
    prop_oneof![
        range.clone().prop_map(|(page, pages)| Step::Map { page, pages }),
        range.prop_map(|(page, pages)| Step::Unmap { page, pages }),
        (0u64..20 * PAGE, 0usize..9000, any::<u8>()).prop_map(|(at, size, byte)| Step::Write {
            at,
            size,
            byte
        }),
    ]
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A naive model: every page knows its mapping and its bytes.
    #[test]
    fn space_agrees_with_a_page_array(steps in proptest::collection::vec(step(), 1..40)) {
        let space = DmaSpace::new();
        let shared = memory_file(32);
        let mut model: Vec<Option<(usize, Vec<u8>)>> = vec![None; 32];
        for (id, step) in steps.into_iter().enumerate() {
            match step {
                Step::Map { page, pages } => {
                    let (first, end) = (index(page), index(page + pages));
                    let free = model[first..end].iter().all(Option::is_none);
                    // Half of them in one file, where they may be joined.
                    let mapping = if id % 2 == 0 {
                        own(page * PAGE, pages * PAGE)
                    } else {
                        part(&shared, page * PAGE, pages * PAGE, page * PAGE)
                    };
                    prop_assert_eq!(space.map(mapping).is_ok(), free);
                    if free {
                        for (at, entry) in model[first..end].iter_mut().enumerate() {
                            let mut bytes = vec![0; 4096];
                            space.read((page + at as u64) * PAGE, &mut bytes).unwrap();
                            *entry = Some((id, bytes));
                        }
                    }
                }
                Step::Unmap { page, pages } => {
                    let (first, end) = (index(page), index(page + pages));
                    prop_assert!(space.unmap(page * PAGE, pages * PAGE).is_ok());
                    model[first..end].fill(None);
                }
                Step::Write { at, size, byte } => {
                    let mut expected = Ok(());
                    for address in at..at + size as u64 {
                        match &mut model[index(address / PAGE)] {
                            Some((_, bytes)) => bytes[index(address % PAGE)] = byte,
                            None => {
                                expected = Err(fault(address, FaultKind::NotMapped));
                                break;
                            }
                        }
                    }
                    prop_assert_eq!(space.write(at, &vec![byte; size]), expected);
                }
            }
        }
        for (page, entry) in model.iter().enumerate() {
            let mut bytes = vec![0; 4096];
            let result = space.read(page as u64 * PAGE, &mut bytes);
            prop_assert_eq!(result.is_ok(), entry.is_some());
            if let Some((_, expected)) = entry {
                prop_assert_eq!(&bytes, expected);
            }
        }
    }
}
