//! Tests of mappings: bounds, contiguity, and files that are not what they claim.

#[path = "../../../tests/common/small_tmpfs.rs"]
mod small_tmpfs;

use self::small_tmpfs::{give_back, small_tmpfs};
use super::*;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

const PAGE: u64 = PAGE_SIZE;

fn memory_file(size: u64) -> File {
    let file = File::from(memory_file::memfd_create(c"test").unwrap());
    file.set_len(size).unwrap();
    file
}

fn mapping(file: &File, size: u64) -> Mapping {
    Mapping::of_file(file.as_fd(), 0, size, Access::ReadWrite).unwrap()
}

#[test]
fn written_bytes_are_read_back_and_reach_the_file() {
    let file = memory_file(2 * PAGE);
    let memory = Mapping::of_file(file.as_fd(), PAGE, PAGE, Access::ReadWrite).unwrap();

    memory.write(7, b"odd place").unwrap();
    memory.write_u32(64, 0x1122_3344).unwrap();
    memory.write_u64(72, 0x1122_3344_5566_7788).unwrap();

    let mut bytes = [0; 9];
    file.read_exact_at(&mut bytes, PAGE + 7).unwrap();
    assert_eq!(&bytes, b"odd place");
    assert_eq!(memory.read_u32(64), Ok(0x1122_3344));
    assert_eq!(memory.read_u64(72), Ok(0x1122_3344_5566_7788));
    let mut first = [0; 2];
    memory.read(64, &mut first).unwrap();
    assert_eq!(first, [0x44, 0x33], "little endian");
}

#[test]
fn access_beyond_the_end_is_refused() {
    let file = memory_file(PAGE);
    let memory = mapping(&file, PAGE);

    for offset in [PAGE - 3, PAGE, u64::MAX - 1, u64::MAX] {
        assert!(matches!(memory.read_u32(offset), Err(MemoryError::OutOfRange { .. })), "{offset:#x}");
        assert!(matches!(memory.write(offset, &[0; 4]), Err(MemoryError::OutOfRange { .. })), "{offset:#x}");
    }
    assert!(memory.fill(1, PAGE, 0).is_err());
    assert!(memory.copy_to(0, &memory, 1, PAGE).is_err());
    assert_eq!(memory.read(PAGE, &mut []), Ok(()));
}

#[test]
fn read_only_mapping_refuses_writes() {
    let file = memory_file(PAGE);
    let memory = Mapping::of_file(file.as_fd(), 0, PAGE, Access::ReadOnly).unwrap();

    assert_eq!(memory.write_u32(8, 1), Err(MemoryError::ReadOnly { offset: 8 }));
    assert_eq!(memory.fill(0, 8, 1), Err(MemoryError::ReadOnly { offset: 0 }));
    assert_eq!(memory.read_u32(8), Ok(0));
}

#[test]
fn contiguous_pieces_read_as_one_memory() {
    let (first, second) = (memory_file(2 * PAGE), memory_file(PAGE));
    let pieces = [
        FilePiece { fd: first.as_fd(), offset: PAGE, size: PAGE },
        FilePiece { fd: second.as_fd(), offset: 0, size: PAGE },
        FilePiece { fd: first.as_fd(), offset: 0, size: PAGE },
    ];

    let memory = Mapping::contiguous(&pieces, Access::ReadWrite).unwrap();
    memory.write(PAGE - 2, &[1, 2, 3, 4]).unwrap();
    memory.fill(2 * PAGE, PAGE, 0x55).unwrap();

    assert_eq!(memory.size(), 3 * PAGE);
    assert_eq!(mapping(&first, 2 * PAGE).read_u32(2 * PAGE - 4), Ok(0x0201_0000));
    assert_eq!(mapping(&second, PAGE).read_u32(0), Ok(0x0403));
    assert_eq!(mapping(&first, 2 * PAGE).read_u32(0), Ok(0x5555_5555));
}

#[test]
fn overlapping_copy_moves_bytes_correctly() {
    let file = memory_file(PAGE);
    let memory = mapping(&file, PAGE);
    memory.write(0, &[1, 2, 3, 4, 5]).unwrap();

    memory.copy_to(0, &memory, 2, 5).unwrap();

    let mut bytes = [0; 7];
    memory.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 1, 2, 3, 4, 5]);
}

#[test]
fn file_smaller_than_claimed_is_refused() {
    let file = memory_file(PAGE);

    let behind = Mapping::of_file(file.as_fd(), 0, 2 * PAGE, Access::ReadWrite);
    let offset = Mapping::of_file(file.as_fd(), PAGE, PAGE, Access::ReadWrite);
    let wrapping = Mapping::of_file(file.as_fd(), u64::MAX - PAGE + 1, PAGE, Access::ReadWrite);

    assert!(matches!(behind, Err(MapError::TooSmall { file_size: PAGE, .. })));
    assert!(matches!(offset, Err(MapError::TooSmall { file_size: PAGE, .. })));
    assert!(matches!(wrapping, Err(MapError::Invalid { .. })));
}

#[test]
fn unaligned_and_empty_ranges_are_refused() {
    let file = memory_file(4 * PAGE);

    for (offset, size) in [(0, 0), (1, PAGE), (0, 100)] {
        let result = Mapping::of_file(file.as_fd(), offset, size, Access::ReadWrite);
        assert!(matches!(result, Err(MapError::Invalid { .. })), "{offset:#x}+{size:#x}");
    }
    assert!(matches!(Mapping::contiguous(&[], Access::ReadOnly), Err(MapError::Invalid { .. })));
}

#[test]
fn devices_and_pipes_are_not_memory() {
    let zero = File::open("/dev/zero").unwrap();
    let (pipe, _writer) = io::pipe().unwrap();

    let device = Mapping::of_file(zero.as_fd(), 0, PAGE, Access::ReadOnly);
    let fifo = Mapping::of_file(pipe.as_fd(), 0, PAGE, Access::ReadOnly);

    assert!(matches!(device, Err(MapError::Kind(_))));
    assert!(matches!(fifo, Err(MapError::Kind(_))));
}

#[test]
fn sealed_memory_file_keeps_its_size() {
    let file = File::from(create_memory_file(c"test", PAGE).unwrap());

    assert!(file.set_len(0).is_err());
    assert!(file.set_len(2 * PAGE).is_err());
    assert_eq!(file.metadata().unwrap().size(), PAGE);
}

#[test]
fn file_truncated_under_a_mapping_reads_zero_and_is_counted() {
    let file = memory_file(4 * PAGE);
    let memory = mapping(&file, 4 * PAGE);
    memory.fill(0, 4 * PAGE, 0xaa).unwrap();
    let before = sigbus::contained();

    file.set_len(PAGE).unwrap();
    let lost = memory.read_u32(2 * PAGE);
    let stored = memory.write_u32(3 * PAGE, 7);
    let kept = memory.read_u32(0);

    assert_eq!((lost, stored, kept), (Ok(0), Ok(()), Ok(0xaaaa_aaaa)));
    assert!(sigbus::contained() > before);
}

#[test]
fn scattered_accesses_to_a_truncated_file_cut_its_mapping_once() {
    let pages = 64;
    let file = memory_file(pages * PAGE);
    let memory = mapping(&file, pages * PAGE);
    file.set_len(PAGE).unwrap();

    // From the end, so that every access meets a page that is still the file's.
    for page in (1..pages).rev().step_by(2) {
        assert_eq!(memory.read_u32(page * PAGE), Ok(0));
    }

    assert_eq!(pieces(&memory), 2);
}

/// How many mappings the kernel has of it.
fn pieces(memory: &Mapping) -> usize {
    let start = memory.address();
    let end = start + usize::try_from(memory.size()).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let begins_inside = |line: &&str| {
        let first = line.split('-').next().and_then(|first| usize::from_str_radix(first, 16).ok());
        first.is_some_and(|first| (start..end).contains(&first))
    };
    maps.lines().filter(begins_inside).count()
}

#[test]
fn cuts_far_apart_leave_few_mappings() {
    let size = 64 << 20;
    let file = memory_file(size);
    let memory = mapping(&file, size);
    file.set_len(PAGE).unwrap();

    for at in (1..32).rev().map(|n| n << 21) {
        assert_eq!(memory.read_u32(at), Ok(0));
    }

    // Eight with file on both sides, and the file at the front.
    assert!(pieces(&memory) <= 18, "{}", pieces(&memory));
    assert_eq!(memory.read_u32(PAGE), Ok(0));
}

#[test]
fn no_memory_takes_the_place_of_what_a_file_has_lost() {
    const SIZE: u64 = 256 << 20;
    let (file, other) = (memory_file(SIZE), memory_file(SIZE));
    let (memory, zeros) = (mapping(&file, SIZE), mapping(&other, SIZE));
    file.set_len(PAGE).unwrap();

    // One access meets the end. Those that come later, each at another page, get none.
    memory.write_u32(PAGE, 1).unwrap();
    memory.prepare_to_fill(0, SIZE);
    memory.populate(2 * PAGE, SIZE - 2 * PAGE).unwrap();
    memory.fill(2 * PAGE, SIZE - 2 * PAGE, 0xaa).unwrap();
    memory.write(SIZE - PAGE, &[1; 4096]).unwrap();
    zeros.copy_to(0, &memory, 0, SIZE).unwrap();
    assert!(resident(&memory) <= 2 << 20, "{} bytes", resident(&memory));

    // What crosses the cut is copied up to there.
    memory.write(PAGE - 2, &[1, 2, 3, 4]).unwrap();
    assert_eq!((memory.read_u32(PAGE - 4), memory.read_u32(PAGE - 2)), (Ok(0x0201_0000), Ok(0x0201)));
    zeros.fill(0, 8, 0xff).unwrap();
    memory.copy_to(PAGE - 2, &zeros, 0, 6).unwrap();
    assert_eq!(zeros.read_u64(0), Ok(0xffff_0000_0000_0201));
}

/// Bytes of it that this process has pages for, as the kernel counts them.
fn resident(memory: &Mapping) -> u64 {
    let start = memory.address();
    let end = start + usize::try_from(memory.size()).unwrap();
    let mut inside = false;
    let mut kib = 0;
    for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        if let Some(first) = word.split('-').next().and_then(|first| usize::from_str_radix(first, 16).ok())
            && word.contains('-')
        {
            inside = (start..end).contains(&first);
        } else if inside && let Some(size) = line.strip_prefix("Rss:") {
            kib += size.split_whitespace().next().unwrap().parse::<u64>().unwrap();
        }
    }
    kib << 10
}

#[test]
fn copy_of_a_truncated_file_does_not_end_the_process() {
    let (file, intact) = (memory_file(4 * PAGE), memory_file(4 * PAGE));
    let (memory, target) = (mapping(&file, 4 * PAGE), mapping(&intact, 4 * PAGE));
    memory.fill(0, 4 * PAGE, 0xaa).unwrap();

    file.set_len(0).unwrap();
    memory.copy_to(0, &target, 0, 4 * PAGE).unwrap();

    let mut bytes = vec![1; 4 * 4096];
    target.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 0));
}

#[test]
fn full_file_system_costs_the_page_alone_and_is_told_and_mended() {
    let Some(folder) = small_tmpfs(16) else { return };
    let open = |name| {
        File::options().read(true).write(true).create_new(true).open(folder.path().join(name)).unwrap()
    };
    let (file, filler) = (open("ram"), open("filler"));
    file.set_len(64 * PAGE).unwrap();
    let memory = mapping(&file, 64 * PAGE);
    memory.write_u32(5 * PAGE, 1).unwrap();
    let mut written = 0;
    while filler.write_all_at(&[1; 4096], written).is_ok() {
        written += PAGE;
    }

    // There is no page for these; those that are there, and those that come when there is room, are the
    // file's.
    memory.write_u32(20 * PAGE, 2).unwrap();
    memory.write_u32(40 * PAGE, 3).unwrap();
    assert_eq!(memory.lost_pages(), 2);
    filler.set_len(0).unwrap();
    for (page, value) in [(6, 4), (30, 5), (63, 6)] {
        memory.write_u32(page * PAGE, value).unwrap();
    }
    let in_file = |page: u64| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, page * PAGE).unwrap();
        u32::from_le_bytes(bytes)
    };
    assert_eq!([5, 6, 20, 30, 40, 63].map(in_file), [1, 4, 0, 5, 0, 6]);

    memory.restore_file().unwrap();
    memory.write_u32(20 * PAGE, 7).unwrap();
    assert_eq!((memory.lost_pages(), in_file(20), memory.read_u32(40 * PAGE)), (0, 7, Ok(0)));
    give_back(&folder);
}

#[test]
fn many_missing_pages_cut_a_mapping_a_bounded_number_of_times() {
    let Some(folder) = small_tmpfs(4) else { return };
    let file =
        File::options().read(true).write(true).create_new(true).open(folder.path().join("ram")).unwrap();
    file.set_len(256 * PAGE).unwrap();
    let memory = mapping(&file, 256 * PAGE);
    let before = sigbus::lost();

    for page in (0..256).step_by(2) {
        memory.write_u32(page * PAGE, 1).unwrap();
    }

    assert!(pieces(&memory) < 24);
    assert!(memory.lost_pages() >= 8 && sigbus::lost() > before);
    assert!(memory.populate(200 * PAGE, PAGE).is_ok(), "it is cut there");
    memory.restore_file().unwrap();
    assert!(memory.populate(0, 256 * PAGE).is_err(), "a full file system is an error, not a signal");
    assert_eq!(memory.lost_pages(), 0);
    give_back(&folder);
}

#[test]
fn page_behind_the_end_marks_nobody_and_is_back_when_the_file_is() {
    let file = memory_file(4 * PAGE);
    let memory = mapping(&file, 4 * PAGE);
    file.set_len(PAGE).unwrap();
    memory.write_u32(2 * PAGE, 7).unwrap();
    assert_eq!(memory.lost_pages(), 0);

    file.set_len(4 * PAGE).unwrap();
    memory.restore_file().unwrap();
    assert_eq!(memory.read_u32(2 * PAGE), Ok(0));
    memory.write_u32(2 * PAGE, 8).unwrap();
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, 2 * PAGE).unwrap();
    assert_eq!(bytes, [8, 0, 0, 0]);
}

#[test]
fn populated_memory_is_there_and_keeps_its_bytes() {
    let file = memory_file(64 * PAGE);
    let memory = mapping(&file, 64 * PAGE);
    memory.write_u32(3 * PAGE, 9).unwrap();
    memory.populate(0, 32 * PAGE).unwrap();

    assert_eq!(unbacked(file.as_fd(), 0, 64 * PAGE, u64::MAX).unwrap(), 32 * PAGE);
    assert_eq!(memory.read_u32(3 * PAGE), Ok(9));
}

/// No test by itself: [`foreign_sigbus_still_ends_the_process`] runs it in a separate process.
#[test]
#[ignore = "ends its process; run by foreign_sigbus_still_ends_the_process"]
fn raise_foreign_sigbus() {
    let file = memory_file(PAGE);
    let _guarded = mapping(&file, PAGE);
    raw_fault();
}

#[allow(unsafe_code, reason = "raises the signal that the test is about")]
fn raw_fault() {
    // SAFETY: raising a signal at ourselves.
    unsafe { libc::raise(libc::SIGBUS) };
    // A handler that returned to the default action leaves the second signal deadly.
    // SAFETY: as above.
    unsafe { libc::raise(libc::SIGBUS) };
}

#[test]
fn foreign_sigbus_still_ends_the_process() {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "mapping::tests::raise_foreign_sigbus"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();

    assert_eq!(status.signal(), Some(libc::SIGBUS));
}
