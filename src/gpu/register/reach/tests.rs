use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Mutex;

use super::*;
use gpuvmk_host::clock::{Clock, ManualClock};
use gpuvmk_pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk_pci::{DmaBacking, PciFunction};
use gpuvmk_softgpu::{SoftGpu, SoftGpuConfig};

const MIB: u64 = 1 << 20;
const BASE: u64 = 1 << 32;
/// What the kernel takes to hold a piece whose pages are there, and to let it go, in nanoseconds.
const PIN: u64 = 100_000;
const UNPIN: u64 = 40_000;

/// Carries orders out one after the other, by a clock.
struct LateTeller {
    clock: Arc<ManualClock>,
    orders: VecDeque<(u64, Order)>,
    /// What the card reaches.
    told: Arc<Mutex<BTreeMap<u64, u64>>>,
    /// Bus addresses that the kernel refuses once.
    refused: Arc<Mutex<Vec<u64>>>,
}

impl Teller for LateTeller {
    fn order(&mut self, order: Order) {
        let takes = if matches!(order, Order::Map(..)) { PIN } else { UNPIN };
        let begins = self.orders.back().map_or(0, |(due, _)| *due).max(self.clock.now());
        self.orders.push_back((begins + takes, order));
    }

    fn answer(&mut self) -> Option<Answer> {
        self.orders.front().filter(|(due, _)| *due <= self.clock.now())?;
        let mut told = self.told.lock().unwrap();
        Some(match self.orders.pop_front()?.1 {
            Order::Map(DmaMapping { iova, size, .. }, _) => {
                let mut refused = self.refused.lock().unwrap();
                if let Some(index) = refused.iter().position(|at| *at == iova) {
                    refused.swap_remove(index);
                    return Some(Answer::Mapped(iova, Err(DmaError::TooMany(1))));
                }
                assert_eq!(told.insert(iova, size), None, "told twice of {iova:#x}");
                Answer::Mapped(iova, Ok(()))
            }
            Order::Unmap { iova, size } => {
                let (first, whole) = told.range(..=iova).next_back().map(|(at, size)| (*at, *size)).unwrap();
                told.remove(&first);
                let (end, last) = (iova + size, first + whole);
                assert!(end <= last, "{end:#x} is beyond {last:#x}");
                told.extend(
                    [(first, iova - first), (end, last - end)].into_iter().filter(|(_, size)| *size > 0),
                );
                Answer::Unmapped(iova, Ok(()))
            }
        })
    }
}

struct Rig {
    reach: Reach,
    clock: Arc<ManualClock>,
    told: Arc<Mutex<BTreeMap<u64, u64>>>,
    refused: Arc<Mutex<Vec<u64>>>,
}

fn guest_memory(iova: u64, size: u64) -> DmaMapping {
    let backing = Some(DmaBacking { fd: create_memory_file(c"ram", size).unwrap(), offset: 0 });
    DmaMapping { iova, size, writable: true, backing, owner: None }
}

impl Rig {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let (told, refused) = (Arc::default(), Arc::default());
        let teller = LateTeller {
            clock: Arc::clone(&clock),
            orders: VecDeque::new(),
            told: Arc::clone(&told),
            refused: Arc::clone(&refused),
        };
        Self { reach: Reach::new(Box::new(teller)), clock, told, refused }
    }

    fn told(&self) -> Vec<(u64, u64)> {
        self.told.lock().unwrap().iter().map(|(at, size)| (at - BASE, *size)).collect()
    }

    /// Asks until all is held.
    fn hold(&mut self, offset: u64, size: u64) -> Result<(), GpuError> {
        while !self.reach.hold(Iova(BASE + offset), size)? {
            self.clock.advance(10_000);
        }
        Ok(())
    }

    fn withdraw(&mut self, offset: u64, size: u64) {
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        loop {
            let mut budget = Budget::new(&clock, std::time::Duration::from_micros(100));
            let gone = self.reach.advance_withdraw(Iova(BASE + offset), size, &mut budget).unwrap();
            if gone == Progress::Done {
                return;
            }
            self.clock.advance(10_000);
        }
    }
}

#[test]
fn card_is_told_of_what_is_named_and_of_no_more() {
    let mut rig = Rig::new();
    rig.reach.announce(guest_memory(BASE + 0x1000, 64 * MIB), Memory::Guest).unwrap();
    assert_eq!(rig.told(), []);

    rig.hold(3 * MIB, 0x1000).unwrap();
    assert_eq!(rig.told(), [(2 * MIB, PIECE)]);

    // The first block begins where its range does, and the last ends there.
    rig.hold(0x1000, 0x1000).unwrap();
    rig.hold(64 * MIB, 0x1000).unwrap();
    assert_eq!(rig.told(), [(0x1000, PIECE - 0x1000), (2 * MIB, PIECE), (64 * MIB, 0x1000)]);

    for at in [0, 64 * MIB + 0x1000] {
        assert!(rig.hold(at, 0x1000).is_err(), "{at:#x}");
    }
    rig.withdraw(0x1000, 64 * MIB);
    assert_eq!(rig.told(), []);
}

/// All of it would be 512 calls of 0.1 ms, one after the other.
#[test]
fn whoever_asks_waits_for_no_call_of_the_kernels() {
    let mut rig = Rig::new();
    rig.reach.announce(guest_memory(BASE, 1024 * MIB), Memory::Guest).unwrap();

    let mut waits = 0;
    while !rig.reach.hold(Iova(BASE), 1024 * MIB).unwrap() {
        // The clock moves by what others do, and not while the owner is in a call.
        let before = rig.clock.now();
        assert!(!rig.reach.hold(Iova(BASE), 1024 * MIB).unwrap());
        assert_eq!(rig.clock.now(), before);
        rig.clock.advance(PIN);
        waits += 1;
    }

    assert_eq!((waits, rig.told().len()), (512, 512));
}

#[test]
fn part_of_a_piece_goes_and_what_is_left_is_reached_again() {
    let mut rig = Rig::new();
    rig.reach.announce(guest_memory(BASE, 8 * MIB), Memory::Guest).unwrap();
    rig.hold(0, 8 * MIB).unwrap();

    rig.withdraw(3 * MIB, 0x8000);

    let rest = 3 * MIB + 0x8000;
    let whole = [(0, PIECE), (2 * MIB, MIB), (rest, 4 * MIB - rest), (4 * MIB, PIECE), (6 * MIB, PIECE)];
    assert_eq!(rig.told(), whole);
    // Nothing is told of twice, and nothing is where it was.
    rig.hold(2 * MIB, MIB).unwrap();
    rig.hold(rest, 4 * MIB - rest).unwrap();
    assert_eq!(rig.told(), whole);
    assert!(rig.hold(3 * MIB, 0x1000).is_err());
    // Other memory may be announced there.
    rig.reach.announce(guest_memory(BASE + 3 * MIB, 0x8000), Memory::Guest).unwrap();
    rig.hold(2 * MIB, 2 * MIB).unwrap();
    assert_eq!(rig.told().len(), 6);
    rig.withdraw(0, 8 * MIB);
    assert_eq!(rig.told(), []);
}

#[test]
fn memory_that_goes_while_the_card_is_being_told_of_it_is_waited_for() {
    let mut rig = Rig::new();
    rig.reach.announce(guest_memory(BASE, 8 * MIB), Memory::Guest).unwrap();
    assert!(!rig.reach.hold(Iova(BASE), 8 * MIB).unwrap());

    let once = rig.reach.advance_withdraw(Iova(BASE), 8 * MIB, &mut Budget::unlimited()).unwrap();
    assert_eq!(once, Progress::Waits);
    assert!(rig.reach.hold(Iova(BASE), 0x1000).is_err(), "it is gone for tables");
    assert!(rig.reach.announce(guest_memory(BASE, 8 * MIB), Memory::Guest).is_err(), "and not for others");
    rig.withdraw(0, 8 * MIB);

    assert_eq!(rig.told(), []);
    rig.reach.announce(guest_memory(BASE, 8 * MIB), Memory::Guest).unwrap();
}

#[test]
fn memory_that_the_kernel_refuses_is_refused_once_and_tried_again() {
    let mut rig = Rig::new();
    rig.reach.announce(guest_memory(BASE, 4 * MIB), Memory::Guest).unwrap();
    rig.refused.lock().unwrap().push(BASE + PIECE);

    let error = rig.hold(0, 4 * MIB).unwrap_err();

    assert!(matches!(error, GpuError::Unmappable(_)), "{error}");
    assert_eq!(rig.told(), [(0, PIECE)]);
    rig.hold(0, 4 * MIB).unwrap();
    assert_eq!(rig.told(), [(0, PIECE), (PIECE, PIECE)]);
}

#[test]
fn pages_of_a_guest_are_made_by_its_back_end_and_those_of_the_host_here() {
    let function: Arc<dyn PciFunction> =
        SoftGpu::new(SoftGpuConfig { vram: 64 * MIB, ..SoftGpuConfig::default() }).unwrap();
    let memory = guest_memory(BASE, PIECE);
    let file = memory.backing.as_ref().unwrap().fd.try_clone().unwrap();
    let again = || {
        let backing = Some(DmaBacking { fd: file.try_clone().unwrap(), offset: 0 });
        DmaMapping { iova: BASE, size: PIECE, writable: true, backing, owner: None }
    };
    let told = |memory, whose| match carry_out(function.as_ref(), Order::Map(memory, whose)) {
        Answer::Mapped(_, told) => told,
        Answer::Unmapped(..) => panic!("nothing was to go"),
    };

    let mapping = Mapping::of_file(file.as_fd(), 0, PIECE, Access::ReadWrite).unwrap();
    mapping.fill(0, PIECE - 0x1000, 1).unwrap();
    let error = told(memory, Memory::Guest).unwrap_err().to_string();
    assert!(error.contains("back end"), "{error}");
    mapping.fill(PIECE - 0x1000, 0x1000, 1).unwrap();
    told(again(), Memory::Guest).unwrap();

    function.dma_unmap(BASE, PIECE).unwrap();
    told(guest_memory(BASE, PIECE), Memory::Host).unwrap();
}

#[test]
fn memory_that_is_no_cards_is_refused_when_it_is_announced() {
    let mut rig = Rig::new();
    let refused = |rig: &mut Rig, memory| rig.reach.announce(memory, Memory::Guest).unwrap_err().to_string();
    rig.reach.announce(guest_memory(BASE, 4 * MIB), Memory::Guest).unwrap();
    assert!(matches!(
        rig.reach.announce(guest_memory(BASE + MIB, MIB), Memory::Guest),
        Err(DmaError::Overlap { .. })
    ));
    let at = BASE + 16 * MIB;
    let only_read = DmaMapping { writable: false, ..guest_memory(at, MIB) };
    assert!(refused(&mut rig, only_read).contains("only read"));
    assert!(refused(&mut rig, DmaMapping { backing: None, ..guest_memory(at, MIB) }).contains("no file"));
    assert!(refused(&mut rig, DmaMapping { size: 2 * MIB, ..guest_memory(at, MIB) }).contains("smaller"));
    assert!(refused(&mut rig, guest_memory(at + 1, MIB)).contains("4096"));
}
