//! Memory of a VM that nobody has filled: a process that serves many VMs does not make its pages, whatever is
//! read or written there. A test of its own, since it holds for the whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use gpuvmk::pci::dma::{DmaSpace, MemoryOwner};
use gpuvmk::pci::mapping::{Access, Mapping, absent, create_memory_file};
use gpuvmk::pci::{DmaBacking, DmaMapping};

const PAGE: u64 = 4096;
const PAGES: u64 = 64;
const BASE: u64 = 1 << 32;

/// A file whose page 3 has content, as somebody's memory for DMA.
struct Rig {
    file: File,
    space: DmaSpace,
    owner: MemoryOwner,
}

impl Rig {
    fn new(access: Access) -> Self {
        absent::refuse_here().unwrap();
        assert!(absent::are_refused());
        let file = File::from(create_memory_file(c"ram", PAGES * PAGE).unwrap());
        file.write_all_at(b"there", 3 * PAGE).unwrap();
        let (space, owner) = (DmaSpace::new(), MemoryOwner::deferring(8));
        let writable = access == Access::ReadWrite;
        let fd = if writable {
            OwnedFd::from(file.try_clone().unwrap())
        } else {
            OwnedFd::from(File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap())
        };
        let backing = Some(DmaBacking { fd, offset: 0 });
        let mapping =
            DmaMapping { iova: BASE, size: PAGES * PAGE, writable, backing, owner: Some(owner.clone()) };
        space.map(mapping).unwrap();
        Self { file, space, owner }
    }

    fn pages(&self) -> u64 {
        u64::try_from(rustix::fs::fstat(&self.file).unwrap().st_blocks).unwrap() * 512 / PAGE
    }

    fn read(&self, page: u64) -> [u8; 5] {
        let mut bytes = [1; 5];
        self.space.read(BASE + page * PAGE, &mut bytes).unwrap();
        bytes
    }
}

#[test]
fn page_that_nobody_has_is_lost_and_not_made() {
    let rig = Rig::new(Access::ReadWrite);

    assert_eq!((rig.pages(), &rig.read(3)), (1, b"there"));
    assert_eq!((rig.pages(), rig.owner.lost_pages()), (1, 0));

    assert_eq!(rig.read(5), [0; 5]);
    rig.space.write(BASE + 6 * PAGE, b"wrote").unwrap();
    rig.space.fill(BASE + 16 * PAGE, 32 * PAGE, 0xff).unwrap();

    assert!(rig.owner.lost_pages() >= 3, "{}", rig.owner.lost_pages());
    assert_eq!(rig.pages(), 1, "pages were made in this process's name");
    assert_eq!(&rig.read(3), b"there");
}

/// What pins memory for a device has the kernel get its pages, as this call has.
#[test]
fn page_that_nobody_has_is_not_made_by_the_kernel_for_us() {
    let rig = Rig::new(Access::ReadWrite);
    let backing = DmaBacking { fd: rig.file.try_clone().unwrap().into(), offset: 0 };
    let (memory, offset) = rig.owner.memory(&backing, PAGES * PAGE, true).unwrap();

    memory.populate(offset + 3 * PAGE, PAGE).unwrap();
    assert!(memory.populate(offset + 2 * PAGE, 3 * PAGE).is_err());

    assert_eq!(rig.pages(), 1, "pages were made in this process's name");
}

#[test]
fn page_that_somebody_fills_is_there_again_once_it_is_mended() {
    let rig = Rig::new(Access::ReadWrite);
    assert_eq!(rig.read(5), [0; 5]);

    // Whoever's memory it is: its own mapping makes pages.
    let own = Mapping::of_file(rig.file.as_fd(), 0, PAGES * PAGE, Access::ReadWrite).unwrap();
    own.populate(5 * PAGE, PAGE).unwrap();
    own.write(5 * PAGE, b"late!").unwrap();
    assert_eq!((rig.pages(), rig.read(5)), (2, [0; 5]));
    rig.owner.restore_file();

    assert_eq!((&rig.read(5), rig.owner.lost_pages()), (b"late!", 0));
    assert_eq!(rig.read(7), [0; 5], "mended memory refuses as before");
    assert_eq!((rig.owner.lost_pages(), rig.pages()), (1, 2));
}

#[test]
fn descriptor_for_reading_makes_no_pages_either() {
    let rig = Rig::new(Access::ReadOnly);

    assert_eq!((&rig.read(3), rig.read(9)), (b"there", [0; 5]));
    rig.file.write_all_at(b"since", 3 * PAGE).unwrap();

    assert_eq!(&rig.read(3), b"since", "it is the file, not a copy");
    assert_eq!((rig.owner.lost_pages(), rig.pages()), (1, 1));
}
