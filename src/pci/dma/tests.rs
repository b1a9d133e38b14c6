//! Tests of the DMA space: announcing, taking away, crossing, faults, and a model check.

mod files;
mod random;

use super::*;
use crate::DmaBacking;
use crate::mapping::Mapping;
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
