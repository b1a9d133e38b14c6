//! A small driver of virtio disks: what a guest's does, and what it must not do.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

use super::{Disk, VirtioFunction, disk_function, pci};
use gpuvmk_pci::mapping::create_memory_file;
use gpuvmk_pci::{DmaBacking, DmaError, DmaMapping, InterruptSink, PciFunction, Region, header};

const MEMORY: u64 = 1 << 20;
const MEMORY_BYTES: usize = 1 << 20;
pub(super) const BAR: Region = Region::Bar(pci::BAR);
const ISR: u64 = pci::STRUCTURE;
const DEVICE: u64 = 2 * pci::STRUCTURE;
const NOTIFY: u64 = 3 * pci::STRUCTURE;
const STATUS: u64 = 20;
const NEEDS_RESET: u8 = 1 << 6;
/// Rings, and what requests need.
const ENTRIES: u16 = 16;
pub(super) const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
pub(super) const USED: u64 = 0x3000;
pub(super) const HEADER: u64 = 0x4000;
pub(super) const OUTCOME: u64 = 0x4100;
const DATA: u64 = 0x1_0000;
/// Requests.
pub(super) const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const ZERO: u32 = 13;
/// Version 1, and what makes writes permanent.
pub(super) const FEATURES: u64 = 1 << 32 | 1 << 9;

#[derive(Default)]
pub(super) struct Line(pub(super) AtomicBool);

impl InterruptSink for Line {
    fn set_intx(&self, asserted: bool) {
        self.0.store(asserted, Ordering::SeqCst);
    }

    fn fire_msi(&self, _vector: u16) {}

    fn message_sent(&self, _vector: u16) {}
}

pub(super) struct Rig {
    pub(super) disk: VirtioFunction,
    pub(super) memory: GuestMemoryMmap,
    file: OwnedFd,
    pub(super) line: Arc<Line>,
    image: tempfile::NamedTempFile,
    asked: u16,
    /// The device is not told of requests.
    pub(super) quiet: bool,
}

impl Rig {
    /// A disk of 64 sectors, each full of its number, and a driver that has begun.
    pub(super) fn new(read_only: bool) -> Self {
        let image = tempfile::NamedTempFile::new().unwrap();
        let contents: Vec<_> = (0..64).flat_map(|sector| [sector; 512]).collect();
        std::fs::write(image.path(), contents).unwrap();
        let file = create_memory_file(c"virtio-test", MEMORY).unwrap();
        let seen = FileOffset::new(file.try_clone().unwrap().into(), 0);
        let ranges = [(GuestAddress(0), MEMORY_BYTES, Some(seen))];
        let disk = disk_function(Disk::open(image.path(), read_only).unwrap(), 2).unwrap();
        let memory = GuestMemoryMmap::from_ranges_with_files(ranges).unwrap();
        let rig = Self { disk, memory, file, line: Arc::default(), image, asked: 0, quiet: false };
        rig.disk.dma_map(rig.mapping(0, MEMORY)).unwrap();
        rig.disk.connect_interrupts(Some(rig.line.clone()));
        let command = header::COMMAND_MEMORY | 1 << 2;
        rig.disk.write(Region::Config, header::COMMAND, &command.to_le_bytes()).unwrap();
        rig
    }

    fn mapping(&self, iova: u64, size: u64) -> DmaMapping {
        let fd = self.file.as_fd().try_clone_to_owned().unwrap();
        DmaMapping { iova, size, writable: true, backing: Some(DmaBacking { fd, offset: 0 }), owner: None }
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) {
        self.disk.write(BAR, offset, data).unwrap();
    }

    fn byte(&self, offset: u64) -> u8 {
        let mut data = [0];
        self.disk.read(BAR, offset, &mut data).unwrap();
        data[0]
    }

    /// What every driver does first.
    pub(super) fn start(&mut self, features: u64, table: u64) -> u8 {
        self.asked = 0;
        self.memory.write_slice(&[0; 0x1000], GuestAddress(AVAILABLE)).unwrap();
        self.memory.write_slice(&[0; 0x1000], GuestAddress(USED)).unwrap();
        for status in [0u8, 1, 3] {
            self.write(STATUS, &[status]);
        }
        for (select, half) in (0u32..).zip(features.to_le_bytes().chunks(4)) {
            self.write(8, &select.to_le_bytes());
            self.write(12, half);
        }
        self.write(STATUS, &[0b1011]);
        self.write(22, &0u16.to_le_bytes());
        self.write(24, &ENTRIES.to_le_bytes());
        for (register, address) in [(32, table), (40, AVAILABLE), (48, USED)] {
            self.write(register, &address.to_le_bytes());
        }
        self.write(28, &1u16.to_le_bytes());
        self.write(STATUS, &[0b1111]);
        self.byte(STATUS)
    }

    /// Makes a chain of `(address, bytes, writable)` available and says so.
    pub(super) fn make_available(&mut self, chain: &[(u64, u32, bool)]) {
        for (index, (address, size, writable)) in (0u16..).zip(chain) {
            let more = usize::from(index) + 1 < chain.len();
            let flags = u16::from(more) | u16::from(*writable) << 1;
            let entry = TABLE + 16 * u64::from(index);
            self.memory.write_obj(*address, GuestAddress(entry)).unwrap();
            self.memory.write_obj(*size, GuestAddress(entry + 8)).unwrap();
            self.memory.write_obj(flags, GuestAddress(entry + 12)).unwrap();
            self.memory.write_obj(index + 1, GuestAddress(entry + 14)).unwrap();
        }
        let slot = AVAILABLE + 4 + 2 * u64::from(self.asked % ENTRIES);
        self.memory.write_obj(0u16, GuestAddress(slot)).unwrap();
        self.asked += 1;
        self.memory.store(self.asked, GuestAddress(AVAILABLE + 2), Ordering::Release).unwrap();
        if !self.quiet {
            self.write(NOTIFY, &0u16.to_le_bytes());
        }
    }

    /// Carries a request with one buffer out; its outcome, and the bytes that the device says it wrote.
    fn request(&mut self, kind: u32, sector: u64, size: u32) -> (u8, u32) {
        self.memory.write_obj(u64::from(kind), GuestAddress(HEADER)).unwrap();
        self.memory.write_obj(sector, GuestAddress(HEADER + 8)).unwrap();
        self.memory.write_obj(0xffu8, GuestAddress(OUTCOME)).unwrap();
        let data = (DATA, size, !matches!(kind, OUT | DISCARD | ZERO));
        let chain = [(HEADER, 16, false), data, (OUTCOME, 1, true)];
        let without_data = [chain[0], chain[2]];
        self.make_available(if size == 0 { &without_data } else { &chain });
        let used = |rig: &Self| rig.memory.load::<u16>(GuestAddress(USED + 2), Ordering::Acquire).unwrap();
        wait(|| used(self) == self.asked);
        let written = USED + 4 + 8 * u64::from((self.asked - 1) % ENTRIES) + 4;
        let outcome = self.memory.read_obj(GuestAddress(OUTCOME)).unwrap();
        (outcome, self.memory.read_obj(GuestAddress(written)).unwrap())
    }

    fn data(&self, size: usize) -> Vec<u8> {
        let mut data = vec![0; size];
        self.memory.read_slice(&mut data, GuestAddress(DATA)).unwrap();
        data
    }
}

pub(super) fn wait(done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not come");
        std::thread::yield_now();
    }
}

#[test]
fn driver_finds_all_structures_by_their_capabilities() {
    let rig = Rig::new(false);
    let mut at = u64::from(header::byte(&rig.disk, 0x34));
    let mut found = Vec::new();
    while at != 0 {
        let word = |offset| header::dword(&rig.disk, at + offset);
        match word(0) & 0xff {
            0x11 => assert_eq!((word(0) >> 16, word(4), word(8)), (2, 0x4000, 0x5000), "three messages"),
            id => {
                assert_eq!(id, 9);
                found.push((word(0) >> 24, word(4) & 0xff, word(8), word(12)));
            }
        }
        at = u64::from(word(0) >> 8 & 0xff);
    }
    let expected =
        [(1, 0, 0, 56), (2, 0, 0x3000, 0x200), (3, 0, 0x1000, 1), (4, 0, 0x2000, 0x100), (5, 0, 0, 0)];
    assert_eq!(found, expected);
    let mut sectors = [0; 8];
    rig.disk.read(BAR, DEVICE, &mut sectors).unwrap();
    assert_eq!(u64::from_le_bytes(sectors), 64);
    assert!(rig.disk.read(BAR, 0x8000, &mut sectors).is_err());
    assert!(rig.disk.read(Region::Bar(1), 0, &mut sectors).is_err());
}

#[test]
fn what_is_written_is_in_the_image_and_is_read_again() {
    let mut rig = Rig::new(false);
    assert_eq!(rig.start(FEATURES, TABLE), 0b1111);
    assert_eq!(rig.request(IN, 62, 1024), (0, 1025));
    assert_eq!(rig.data(1024), [[62; 512], [63; 512]].concat());
    wait(|| rig.line.0.load(Ordering::SeqCst));
    assert_eq!((rig.byte(ISR), rig.byte(ISR)), (1, 0));
    assert!(!rig.line.0.load(Ordering::SeqCst));

    let large = 300 << 10;
    assert_eq!(rig.request(IN, 0, large), (1, 1), "the disk has no more than 32 KiB");
    let pattern: Vec<_> = (0..1024u32).map(|index| (index % 251) as u8).collect();
    rig.memory.write_slice(&pattern, GuestAddress(DATA)).unwrap();
    assert_eq!(rig.request(OUT, 8, 1024), (0, 1));
    assert_eq!(rig.request(FLUSH, 0, 0), (0, 1));
    assert_eq!(std::fs::read(rig.image.path()).unwrap()[4096..5120], pattern);
    rig.memory.write_slice(&[0; 1024], GuestAddress(DATA)).unwrap();
    assert_eq!(rig.request(IN, 8, 1024), (0, 1025));
    assert_eq!(rig.data(1024), pattern);

    assert_eq!(rig.request(GET_ID, 0, 20), (0, 21));
    assert_eq!(&rig.data(7), b"gpuvmk\0");
    assert_eq!(rig.request(99, 0, 16), (2, 1), "nobody knows that");
    assert_eq!(rig.request(OUT, 63, 1024), (1, 1));
    assert_eq!(rig.request(OUT, 0, 100), (1, 1));
    assert_eq!(rig.request(IN, u64::MAX, 512), (1, 1));
}

#[test]
fn what_is_discarded_or_cleared_reads_as_zeros_and_nothing_beside_it_does() {
    let mut rig = Rig::new(false);
    rig.start(FEATURES, TABLE);
    let mut ask = |kind: u32, ranges: &[(u64, u32, u32)]| {
        let bytes: Vec<_> = ranges
            .iter()
            .flat_map(|(sector, sectors, flags)| {
                [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
            })
            .collect();
        rig.memory.write_slice(&bytes, GuestAddress(DATA)).unwrap();
        rig.request(kind, 0, u32::try_from(bytes.len()).unwrap()).0
    };
    assert_eq!(ask(DISCARD, &[(8, 8, 0), (24, 8, 0)]), 0);
    assert_eq!(ask(ZERO, &[(40, 1, 1)]), 0);
    // Flags that do not exist, ranges beyond the end, too much at once, and what is no range.
    assert_eq!((ask(DISCARD, &[(0, 1, 1)]), ask(ZERO, &[(0, 1, 2)])), (2, 2));
    assert_eq!((ask(DISCARD, &[(63, 2, 0)]), ask(DISCARD, &[(u64::MAX, 1, 0)])), (1, 1));
    assert_eq!((ask(DISCARD, &[(0, u32::MAX, 0)]), ask(DISCARD, &[(0, 0, 0); 17])), (1, 1));
    assert_eq!((rig.request(DISCARD, 0, 8).0, rig.request(DISCARD, 0, 0).0), (1, 1));
    let image = std::fs::read(rig.image.path()).unwrap();
    for (sector, content) in (0u8..).zip(image.chunks(512)) {
        let cleared = matches!(sector, 8..16 | 24..32 | 40);
        assert_eq!(content, [if cleared { 0 } else { sector }; 512], "sector {sector}");
    }
    let mut rig = Rig::new(true);
    rig.start(FEATURES, TABLE);
    assert_eq!((rig.request(DISCARD, 0, 16).0, rig.request(ZERO, 0, 16).0), (1, 1));
}

#[test]
fn disk_that_is_only_read_takes_no_writes_and_says_so() {
    let mut rig = Rig::new(true);
    let mut offered = [0; 4];
    rig.disk.read(BAR, 4, &mut offered).unwrap();
    assert_eq!(u32::from_le_bytes(offered) >> 5 & 1, 1);
    rig.start(FEATURES, TABLE);
    assert_eq!(rig.request(OUT, 1, 512), (1, 1));
    assert_eq!(rig.request(IN, 1, 512), (0, 513));
    assert_eq!(rig.data(512), [1; 512]);
}

#[test]
fn driver_without_flush_has_each_write_on_the_disk() {
    let mut rig = Rig::new(false);
    rig.start(1 << 32, TABLE);
    rig.memory.write_slice(&[0xab; 512], GuestAddress(DATA)).unwrap();
    assert_eq!(rig.request(OUT, 2, 512), (0, 1));
    assert_eq!(std::fs::read(rig.image.path()).unwrap()[1024..1536], [0xab; 512]);
}

#[test]
fn device_whose_driver_breaks_the_rules_waits_for_its_reset() {
    let mut rig = Rig::new(false);
    let stopped = |rig: &Rig| rig.byte(STATUS) & NEEDS_RESET != 0;
    // A queue outside memory, one that is not aligned.
    assert_ne!(rig.start(FEATURES, MEMORY - 64) & NEEDS_RESET, 0);
    assert_eq!(rig.byte(ISR), 2);
    assert_ne!(rig.start(FEATURES, TABLE + 8) & NEEDS_RESET, 0);
    // More requests than entries, a request without room for its outcome, buffers outside memory, a chain
    // without an end.
    rig.start(FEATURES, TABLE);
    rig.asked = 100;
    rig.make_available(&[(HEADER, 16, false)]);
    wait(|| stopped(&rig));
    for chain in [&[(HEADER, 16, false)][..], &[(HEADER, 16, false), (MEMORY, 512, true)]] {
        rig.start(FEATURES, TABLE);
        rig.make_available(chain);
        wait(|| stopped(&rig));
    }
    // Memory that goes while the queue is in it.
    rig.start(FEATURES, TABLE);
    rig.disk.dma_unmap(0, MEMORY).unwrap();
    rig.make_available(&[(HEADER, 16, false)]);
    wait(|| stopped(&rig));
    rig.disk.dma_map(rig.mapping(0, MEMORY)).unwrap();
    // It serves the driver that resets it.
    rig.start(FEATURES, TABLE);
    assert_eq!(rig.request(IN, 3, 512), (0, 513));
    assert_eq!(rig.data(512), [3; 512]);
}

#[test]
fn nothing_is_read_or_written_without_bus_mastering() {
    let mut rig = Rig::new(false);
    rig.disk.write(Region::Config, header::COMMAND, &header::COMMAND_MEMORY.to_le_bytes()).unwrap();
    rig.start(FEATURES, TABLE);
    rig.make_available(&[(HEADER, 16, false), (OUTCOME, 1, true)]);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(rig.memory.load::<u16>(GuestAddress(USED + 2), Ordering::Acquire).unwrap(), 0);
    rig.disk.write(Region::Config, header::COMMAND, &[6, 0]).unwrap();
    wait(|| rig.memory.load::<u16>(GuestAddress(USED + 2), Ordering::Acquire).unwrap() == 1);
}

#[test]
fn bar_is_reached_through_configuration_space() {
    let rig = Rig::new(false);
    let set = |at: u64, value: u32| rig.disk.write(Region::Config, at, &value.to_le_bytes()).unwrap();
    set(pci::WINDOW_OFFSET, u32::try_from(STATUS).unwrap());
    set(pci::WINDOW_LENGTH, 1);
    rig.disk.write(Region::Config, pci::WINDOW_DATA, &[3]).unwrap();
    let mut status = [0];
    rig.disk.read(Region::Config, pci::WINDOW_DATA, &mut status).unwrap();
    assert_eq!((status[0], rig.byte(STATUS)), (3, 3));
    // Another width than was set, and another BAR.
    set(pci::WINDOW_LENGTH, 4);
    rig.disk.write(Region::Config, pci::WINDOW_DATA, &[0]).unwrap();
    set(pci::WINDOW_LENGTH, 1);
    rig.disk.write(Region::Config, pci::WINDOW_BAR, &[1]).unwrap();
    rig.disk.write(Region::Config, pci::WINDOW_DATA, &[0]).unwrap();
    assert_eq!(rig.byte(STATUS), 3);
}

#[test]
fn memory_comes_and_goes_in_whole_parts() {
    let rig = Rig::new(false);
    assert!(matches!(rig.disk.dma_map(rig.mapping(MEMORY / 2, MEMORY)), Err(DmaError::Overlap { .. })));
    rig.disk.dma_map(rig.mapping(2 * MEMORY, MEMORY)).unwrap();
    assert!(matches!(rig.disk.dma_map(rig.mapping(4 * MEMORY, 2 * MEMORY)), Err(DmaError::Backing { .. })));
    assert!(matches!(rig.disk.dma_unmap(0, MEMORY / 2), Err(DmaError::Invalid { .. })));
    assert!(matches!(rig.disk.dma_unmap(MEMORY, MEMORY), Err(DmaError::NotMapped { .. })));
    rig.disk.dma_unmap(0, 3 * MEMORY).unwrap();
    assert!(matches!(rig.disk.dma_unmap(0, MEMORY), Err(DmaError::NotMapped { .. })));
    for part in 0..64 {
        rig.disk.dma_map(rig.mapping(part * MEMORY, MEMORY)).unwrap();
    }
    assert!(matches!(rig.disk.dma_map(rig.mapping(64 * MEMORY, MEMORY)), Err(DmaError::TooMany(64))));
}

#[test]
fn reset_makes_a_disk_as_new() {
    let mut rig = Rig::new(false);
    rig.start(FEATURES, TABLE);
    rig.request(IN, 0, 512);
    wait(|| rig.line.0.load(Ordering::SeqCst));
    rig.disk.reset();
    assert!(!rig.line.0.load(Ordering::SeqCst));
    assert_eq!((rig.byte(STATUS), header::word(&rig.disk, header::COMMAND)), (0, 0));
    rig.disk.write(Region::Config, header::COMMAND, &[6, 0]).unwrap();
    rig.start(FEATURES, TABLE);
    assert_eq!(rig.request(IN, 5, 512), (0, 513));
}

/// What a hostile guest does: any bytes anywhere in its memory and in the function's regions.
#[derive(Clone, Debug)]
enum Misdeed {
    Memory(u64, Vec<u8>),
    Bar(u64, Vec<u8>),
    Config(u64, Vec<u8>),
    Read(u64, usize),
    Notify,
}

fn misdeeds() -> impl Strategy<Value = Vec<Misdeed>> {
    let bytes = || prop::collection::vec(any::<u8>(), 1..=8);
    let one = prop_oneof![
        4 => (prop_oneof![TABLE..TABLE + 0x100, AVAILABLE..AVAILABLE + 0x30, HEADER..HEADER + 16], bytes())
            .prop_map(|(at, bytes)| Misdeed::Memory(at, bytes)),
        2 => (0u64..0x40, bytes()).prop_map(|(at, bytes)| Misdeed::Bar(at, bytes)),
        1 => (0u64..0x100, bytes()).prop_map(|(at, bytes)| Misdeed::Config(at, bytes)),
        1 => (0u64..0x8000, 1usize..=8).prop_map(|(at, size)| Misdeed::Read(at, size)),
        3 => Just(Misdeed::Notify),
    ];
    prop::collection::vec(one, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_driver_keeps_a_disk_from_the_next_one(misdeeds in misdeeds()) {
        let mut rig = Rig::new(true);
        rig.start(FEATURES | 1 << 28 | 1 << 29, TABLE);
        for misdeed in misdeeds {
            match misdeed {
                Misdeed::Memory(at, bytes) => rig.memory.write_slice(&bytes, GuestAddress(at)).unwrap(),
                Misdeed::Bar(at, bytes) => rig.write(at, &bytes),
                Misdeed::Config(at, bytes) => rig.disk.write(Region::Config, at, &bytes).unwrap(),
                Misdeed::Read(at, size) => {
                    let mut data = vec![0; size];
                    let inside = at + size as u64 <= 0x8000;
                    prop_assert_eq!(rig.disk.read(BAR, at, &mut data).is_ok(), inside);
                }
                Misdeed::Notify => rig.write(NOTIFY, &[0, 0]),
            }
        }
        rig.disk.reset();
        rig.disk.write(Region::Config, header::COMMAND, &[6, 0]).unwrap();
        prop_assert_eq!(rig.start(FEATURES, TABLE), 0b1111);
        prop_assert_eq!(rig.request(IN, 9, 512), (0, 513));
        prop_assert_eq!(rig.data(512), vec![9; 512]);
    }
}
