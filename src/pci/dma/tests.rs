//! Tests of the DMA space: announcing, taking away, crossing, faults, and a model check.

use super::*;
use crate::pci::DmaBacking;
use proptest::prelude::*;
use std::fs::File;
use std::os::fd::OwnedFd;

const PAGE: u64 = PAGE_SIZE;

fn memory_file(pages: u64) -> OwnedFd {
    crate::pci::mapping::create_memory_file(c"dma test", pages * PAGE).unwrap()
}

fn part(file: &OwnedFd, iova: u64, size: u64, offset: u64) -> DmaMapping {
    let backing = Some(DmaBacking { fd: file.try_clone().unwrap(), offset });
    DmaMapping { iova, size, writable: true, backing }
}

fn read_only(mut mapping: DmaMapping) -> DmaMapping {
    mapping.writable = false;
    mapping
}

/// `size` bytes at `iova` with memory of their own.
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
    space.map(DmaMapping { iova: 0xc0000, size: PAGE, writable: false, backing: None }).unwrap();

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
fn unmap_of_part_or_of_nothing_is_refused() {
    let space = DmaSpace::new();
    space.map(own(0x4000, 4 * PAGE)).unwrap();

    for (iova, size) in [(0x4000, PAGE), (0x5000, PAGE), (0x7000, 4 * PAGE), (0, 5 * PAGE)] {
        assert!(matches!(space.unmap(iova, size), Err(DmaError::Invalid { .. })), "{iova:#x}");
    }
    assert!(matches!(space.unmap(0x8000, PAGE), Err(DmaError::NotMapped { .. })));
    assert_eq!(space.len(), 1);
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
    let first = table.entries.values().next().and_then(|entry| entry.memory.clone()).unwrap().0;
    assert!(table.entries.values().all(|entry| Arc::ptr_eq(&entry.memory.as_ref().unwrap().0, &first)));
}

#[test]
fn file_that_grew_is_mapped_anew() {
    let space = DmaSpace::new();
    let file = tempfile::tempfile().unwrap();
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
fn number_of_ranges_is_limited() {
    let space = DmaSpace::new();
    let nameless = |page: u64| DmaMapping { iova: page * PAGE, size: PAGE, writable: false, backing: None };
    for page in 0..MAX_MAPPINGS as u64 {
        space.map(nameless(page)).unwrap();
    }

    let one_more = space.map(nameless(MAX_MAPPINGS as u64));

    assert!(matches!(one_more, Err(DmaError::TooMany(MAX_MAPPINGS))));
}

#[test]
fn number_of_files_is_limited_and_recovers() {
    let space = DmaSpace::with_file_limit(8);
    for page in 0..8 {
        space.map(own(page * PAGE, PAGE)).unwrap();
    }

    let ninth = space.map(own(8 * PAGE, PAGE));
    space.unmap(0, PAGE).unwrap();
    let after_one_went = space.map(own(8 * PAGE, PAGE));

    assert!(matches!(ninth, Err(DmaError::Backing { .. })));
    assert!(after_one_went.is_ok());
}

#[test]
fn descriptors_are_not_kept() {
    use std::os::fd::AsRawFd;
    let space = DmaSpace::new();
    let mapping = own(0, PAGE);
    let number = mapping.backing.as_ref().unwrap().fd.as_raw_fd();
    let link = format!("/proc/self/fd/{number}");
    let name = std::fs::read_link(&link).unwrap();
    // The inode tells this file from those that other tests open under the same number meanwhile.
    let inode = || {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(&link).map(|facts| (facts.dev(), facts.ino())).ok()
    };
    let before = inode();

    space.map(mapping).unwrap();

    assert!(name.to_string_lossy().contains("dma test") && before.is_some());
    assert_ne!(inode(), before);
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
        Mapping::of_file(window_file.as_fd(), 0, 2 * PAGE, crate::pci::mapping::Access::ReadWrite).unwrap()
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
        let mut model: Vec<Option<(usize, Vec<u8>)>> = vec![None; 32];
        for (id, step) in steps.into_iter().enumerate() {
            match step {
                Step::Map { page, pages } => {
                    let (first, end) = (index(page), index(page + pages));
                    let free = model[first..end].iter().all(Option::is_none);
                    prop_assert_eq!(space.map(own(page * PAGE, pages * PAGE)).is_ok(), free);
                    if free {
                        model[first..end].fill(Some((id, vec![0; 4096])));
                    }
                }
                Step::Unmap { page, pages } => {
                    let (first, end) = (index(page), index(page + pages));
                    let owner = |at: usize| model[at].as_ref().map(|(id, _)| *id);
                    let cut_front = first > 0 && owner(first).is_some() && owner(first - 1) == owner(first);
                    let cut_back = owner(end - 1).is_some() && owner(end - 1) == owner(end);
                    let any = (first..end).any(|at| owner(at).is_some());
                    let allowed = any && !cut_front && !cut_back;
                    prop_assert_eq!(space.unmap(page * PAGE, pages * PAGE).is_ok(), allowed);
                    if allowed {
                        model[first..end].fill(None);
                    }
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
