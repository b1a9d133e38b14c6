//! Files behind ranges: what is refused, how often one is mapped, whose it is.

use super::*;
use std::fs::File;

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
