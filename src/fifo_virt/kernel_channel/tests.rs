//! Channels over a small machine: VRAM, system memory, and pages that tests map.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "addresses and sizes of these tests are small"
)]

mod hostile;
mod transfers;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use gpuvmk_chip::gh100::methods::{CLASS_2D, CLASS_COMPUTE, CLASS_COPY, copy, graphics, host};
use gpuvmk_chip::stream::{DMA::SEC_OP, header};
use gpuvmk_chip::{AccessKind, Aperture, PhysicalAddress};

const VRAM: usize = 1 << 20;
const RAM: u64 = 0x10_0000_0000;
const PAGE: u64 = 4096;
/// Where the ring, the commands and what they work on are mapped.
const RING: u64 = 0x1_2000_0000;
const COMMANDS: u64 = 0x1_2001_0000;
const DATA: u64 = 0x20_0000_0000_0000;
/// The same, in VRAM.
const RING_VRAM: u64 = 0x1000;
const COMMANDS_VRAM: u64 = 0x8000;
const DATA_VRAM: u64 = 0x2_0000;

/// A guest's memory.
pub(super) struct Machine {
    pub(super) vram: Vec<u8>,
    pub(super) ram: Vec<u8>,
    pages: BTreeMap<u64, u64>,
    read_only: BTreeSet<u64>,
    /// What was told, with the word that was at the start of VRAM then.
    told: Vec<(Invalidation, u32)>,
    notified: u32,
    accesses: u64,
}

impl Machine {
    pub(super) fn new() -> Self {
        let mut machine = Self {
            vram: vec![0; VRAM],
            ram: vec![0; 0x1_0000],
            pages: BTreeMap::new(),
            read_only: BTreeSet::new(),
            told: Vec::new(),
            notified: 0,
            accesses: 0,
        };
        machine.map(RING, RING_VRAM, 1);
        machine.map(COMMANDS, COMMANDS_VRAM, 16);
        machine.map(DATA, DATA_VRAM, 16);
        machine
    }

    fn map(&mut self, va: u64, vram: u64, pages: u64) {
        self.pages.extend((0..pages).map(|page| (va / PAGE + page, vram + page * PAGE)));
    }

    fn bytes(&mut self, address: PhysicalAddress, size: usize) -> Option<&mut [u8]> {
        self.accesses += 1;
        let (memory, start) = match address.aperture {
            Aperture::Vram => (&mut self.vram, address.address),
            _ => (&mut self.ram, address.address.checked_sub(RAM)?),
        };
        let start = usize::try_from(start).ok()?;
        memory.get_mut(start..start.checked_add(size)?)
    }

    pub(super) fn word(&self, vram: u64) -> u32 {
        let at = vram as usize;
        u32::from_le_bytes(self.vram[at..at + 4].try_into().unwrap())
    }

    pub(super) fn put(&mut self, vram: u64, words: &[u32]) {
        for (at, word) in (vram as usize..).step_by(4).zip(words) {
            self.vram[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Puts a segment into the ring, as its entry `number`.
    pub(super) fn submit(&mut self, number: u32, words: &[u32]) {
        let offset = u64::from(number) * 0x800;
        self.put(COMMANDS_VRAM + offset, words);
        let entry = RingEntry::segment(COMMANDS + offset, words.len() as u32);
        self.put(RING_VRAM + 8 * u64::from(number), &[entry as u32, (entry >> 32) as u32]);
    }
}

impl KernelMemory for Machine {
    fn translate(&mut self, va: GpuVa) -> Option<Target> {
        let vram = self.pages.get(&(va.0 / PAGE))? + va.0 % PAGE;
        let address = PhysicalAddress { aperture: Aperture::Vram, address: vram };
        Some(Target {
            address,
            bytes: PAGE - va.0 % PAGE,
            read_only: self.read_only.contains(&(va.0 / PAGE)),
        })
    }

    fn read(&mut self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NotGuests> {
        data.copy_from_slice(self.bytes(address, data.len()).ok_or(NotGuests)?);
        Ok(())
    }

    fn write(&mut self, address: PhysicalAddress, data: &[u8]) -> Result<(), NotGuests> {
        self.bytes(address, data.len()).ok_or(NotGuests)?.copy_from_slice(data);
        Ok(())
    }

    fn invalidate(&mut self, what: Invalidation) {
        self.told.push((what, self.word(0)));
    }

    fn notify(&mut self) {
        self.notified += 1;
    }

    fn now(&mut self) -> u64 {
        0x1122_3344_5566
    }
}

/// Methods that follow each other, from the first.
pub(super) fn methods(subchannel: u8, first: u16, data: &[u32]) -> Vec<u32> {
    let mut words = vec![header(SEC_OP::INC_METHOD, subchannel, first, data.len() as u16)];
    words.extend(data);
    words
}

pub(super) fn halves(value: u64) -> [u32; 2] {
    [(value >> 32) as u32, value as u32]
}

pub(super) const PLENTY: Budget = Budget { steps: 100_000, bytes: 64 << 20 };

pub(super) fn channel() -> KernelChannel {
    KernelChannel::new(GpuVa(RING), 4)
}

/// Runs one segment on a new channel.
pub(super) fn run(machine: &mut Machine, words: &[u32]) -> Result<Outcome, Refusal> {
    machine.submit(0, words);
    channel().run(1, machine, &mut PLENTY.clone())
}

/// A semaphore of the host unit's.
fn semaphore(va: u64, payload: u64, execute: u32) -> Vec<u32> {
    let ([upper, lower], [high, low]) = (halves(va), halves(payload));
    methods(0, host::SEM_ADDR_LO, &[lower, upper, low, high, execute])
}

/// A copy of one line.
fn copy_line(from: u64, to: u64, bytes: u32, launch: u32) -> Vec<u32> {
    let ([from_high, from_low], [to_high, to_low]) = (halves(from), halves(to));
    let mut words = methods(0, copy::OFFSET_IN_UPPER, &[from_high, from_low, to_high, to_low]);
    words.extend(methods(0, copy::LINE_LENGTH_IN, &[bytes]));
    words.extend(methods(0, copy::LAUNCH_DMA, &[launch]));
    words
}

/// What NVIDIA's UVM submits to change a page table (recorded): the words of entries, copied from the
/// commands to VRAM; a barrier; an invalidation of a range; a semaphore.
#[test]
fn page_table_write_is_in_memory_when_its_invalidation_is_told() {
    let mut machine = Machine::new();
    let mut words = methods(0, host::SET_OBJECT, &[CLASS_COPY.into()]);
    words.extend(methods(5, host::SET_OBJECT, &[0xc076]));
    words.extend(methods(0, copy::SET_DST_PHYS_MODE, &[0]));
    words.extend(copy_line(DATA, 0, 0x10, 0x0400_2181));
    words.extend(methods(0, host::MEM_OP_A, &[0, 0, 1, 5 << 27]));
    words.extend(methods(0, host::MEM_OP_A, &[0x8b, 2, 0x0040_1100, 0x5000_0000]));
    words.extend(methods(0, copy::SET_SEMAPHORE_A, &[halves(DATA + 0x100)[0], 0x100, 7]));
    words.extend(methods(0, copy::LAUNCH_DMA, &[0x0400_000c]));
    machine.put(DATA_VRAM, &[0x1234, 0x5678, 1, 2]);

    assert_eq!(run(&mut machine, &words), Ok(Outcome::Idle));
    let directory = PhysicalAddress { aperture: Aperture::Vram, address: 0x40_1000 };
    let range = Some((GpuVa(0x2_0000_0000), 8 << 20));
    assert_eq!(machine.told, [(Invalidation { directory: Some(directory), range }, 0x1234)]);
    assert_eq!([0, 4, 8, 12].map(|at| machine.word(at)), [0x1234, 0x5678, 1, 2]);
    assert_eq!(machine.word(DATA_VRAM + 0x100), 7);
}

#[test]
fn invalidation_of_all_has_no_range_and_may_have_no_directory() {
    let mut machine = Machine::new();
    let mut words = methods(0, host::MEM_OP_A, &[0x80, 0, 0x0040_1b00, 0x4800_0003]);
    words.extend(methods(0, host::MEM_OP_A, &[0x3f, 0, 1, 0x5000_0000]));
    // Cancels faults, of which there are none.
    words.extend(methods(0, host::MEM_OP_A, &[0, 0, 5 << 2, 0x5000_0000]));

    assert_eq!(run(&mut machine, &words), Ok(Outcome::Idle));
    let directory = PhysicalAddress { aperture: Aperture::SystemCoherent, address: 0x3_0040_1000 };
    let told: Vec<_> = machine.told.iter().map(|(what, _)| *what).collect();
    let all = Invalidation { directory: None, range: None };
    assert_eq!(told, [Invalidation { directory: Some(directory), range: None }, all]);
}

/// The driver's own self-test, as recorded: four bytes from VRAM to system memory.
#[test]
fn physical_copy_reaches_system_memory_and_nothing_beyond_it() {
    let mut machine = Machine::new();
    machine.put(0x3_0000, &[0xabcd_ef01]);
    let copy = |to| {
        let mut words = methods(0, copy::SET_SRC_PHYS_MODE, &[0, 1]);
        words.extend(copy_line(0x3_0000, to, 4, 0x0000_318e));
        words
    };
    // The launch releases a semaphore, too.
    let mut words = methods(0, copy::SET_SEMAPHORE_A, &[halves(DATA)[0], 0, 9]);
    words.extend(copy(RAM + 0x20));
    assert_eq!(run(&mut machine, &words), Ok(Outcome::Idle));
    assert_eq!(machine.ram[0x20..0x24], 0xabcd_ef01_u32.to_le_bytes());
    assert_eq!(machine.word(DATA_VRAM), 9);

    let mut again = semaphore(DATA, 1, 1);
    machine.read_only.insert(DATA / PAGE);
    let refusal = Refusal::Virtual { va: GpuVa(DATA), kind: AccessKind::Write };
    assert_eq!(run(&mut machine, &again), Err(refusal), "the page may be read only");
    again = semaphore(DATA, 9, 0);
    assert_eq!(run(&mut machine, &again), Ok(Outcome::Idle));
    let address = PhysicalAddress { aperture: Aperture::SystemCoherent, address: RAM + 0xfffe };
    let refusal = Refusal::Physical { address, kind: AccessKind::Write };
    assert_eq!(run(&mut machine, &copy(RAM + 0xfffe)), Err(refusal));
}

#[test]
fn semaphores_are_written_with_and_without_time() {
    let mut machine = Machine::new();
    let mut words = semaphore(DATA + 0x10, 0x9_0000_0001, 1 | 1 << 24);
    words.extend(semaphore(DATA + 0x20, 5, 1 | 1 << 25));
    words.extend(semaphore(DATA + 0x30, 3, 6 | 5 << 27));
    // The old form: four words.
    words.extend(methods(0, host::SEMAPHORE_A, &[0x12, 0x0001_0040, 8, 2]));
    words.extend(methods(0, host::NON_STALL_INTERRUPT, &[0]));
    machine.map(0x12_0001_0000, DATA_VRAM, 1);
    machine.put(DATA_VRAM + 0x24, &[0xffff_ffff]);
    machine.put(DATA_VRAM + 0x30, &[4]);

    assert_eq!(run(&mut machine, &words), Ok(Outcome::Idle));
    let words = |at: u64| [0, 4, 8, 12].map(|word| machine.word(DATA_VRAM + at + word));
    assert_eq!(words(0x10), [1, 9, 0, 0]);
    assert_eq!(words(0x20), [5, 0, 0x3344_5566, 0x1122]);
    assert_eq!(words(0x30), [7, 0, 0, 0]);
    assert_eq!(words(0x40), [8, 0, 0x3344_5566, 0x1122]);
    assert_eq!(machine.notified, 1);
}

#[test]
fn wait_goes_on_when_the_semaphore_has_come() {
    let mut machine = Machine::new();
    let (mut words, mut channel) = (semaphore(DATA, 5, 3), channel());
    words.extend(semaphore(DATA + 0x10, 1, 1));
    machine.submit(0, &words);
    machine.submit(1, &semaphore(DATA + 0x20, 2, 1));
    let mut go_on = |machine: &mut Machine, put| channel.run(put, machine, &mut PLENTY.clone());

    assert_eq!(go_on(&mut machine, 1), Ok(Outcome::Waits));
    machine.put(DATA_VRAM, &[4]);
    assert_eq!(go_on(&mut machine, 2), Ok(Outcome::Waits));
    assert_eq!(machine.word(DATA_VRAM + 0x10), 0);
    machine.put(DATA_VRAM, &[6]);
    assert_eq!(go_on(&mut machine, 2), Ok(Outcome::Idle));
    assert_eq!((machine.word(DATA_VRAM + 0x10), machine.word(DATA_VRAM + 0x20)), (1, 2));
    assert_eq!(channel.get(), 2);
}

#[test]
fn ring_wraps_and_its_controls_move_segments() {
    let (mut machine, mut channel) = (Machine::new(), channel());
    let base = 0x15_u64 << 40;
    machine.map(base | COMMANDS, COMMANDS_VRAM, 16);
    for number in 0..16 {
        machine.submit(number, &semaphore(DATA + 8 * u64::from(number), 1, 1));
    }
    assert_eq!(channel.run(15, &mut machine, &mut PLENTY.clone()), Ok(Outcome::Idle));
    // Nothing, and a new base.
    machine.put(RING_VRAM, &[0, 0, 0x15 << 8, 4]);
    assert_eq!(channel.run(2, &mut machine, &mut PLENTY.clone()), Ok(Outcome::Idle));
    machine.pages.remove(&(COMMANDS / PAGE + 1));
    machine.submit(2, &semaphore(DATA + 0x100, 3, 1));
    assert_eq!(channel.run(3, &mut machine, &mut PLENTY.clone()), Ok(Outcome::Idle));
    assert_eq!((machine.word(DATA_VRAM + 8 * 15), machine.word(DATA_VRAM + 0x100)), (1, 3));
    assert_eq!(channel.get(), 3);
    machine.put(RING_VRAM + 24, &[0, 9]);
    assert_eq!(channel.run(4, &mut machine, &mut PLENTY.clone()), Err(Refusal::Entry(9 << 32)));
}

#[test]
fn watchdogs_notifier_is_written_and_the_driver_told() {
    let mut machine = Machine::new();
    machine.put(DATA_VRAM + 8, &[1, 2]);
    let mut words = methods(3, host::SET_OBJECT, &[CLASS_2D.into()]);
    words.extend(methods(3, graphics::SET_NOTIFY_A, &halves(DATA)));
    words.extend(methods(3, 0x200, &[1, 2, 3]));
    words.extend(methods(3, graphics::NOTIFY, &[1]));
    assert_eq!(run(&mut machine, &words), Ok(Outcome::Idle));
    assert_eq!((machine.word(DATA_VRAM + 8), machine.word(DATA_VRAM + 12), machine.notified), (0, 0, 1));
}

#[test]
fn classes_and_methods_that_a_kernel_has_no_use_for_are_refused() {
    let mut machine = Machine::new();
    let mut refused = |words: &[u32]| run(&mut machine, words).unwrap_err();
    let bind = methods(1, host::SET_OBJECT, &[CLASS_COMPUTE.into()]);
    assert_eq!(refused(&bind), Refusal::Class(CLASS_COMPUTE));
    assert!(matches!(refused(&methods(0, host::ILLEGAL, &[0])), Refusal::Method(_)));
    assert!(matches!(refused(&methods(0, host::CRC_CHECK, &[1])), Refusal::Method(_)));
    assert!(matches!(refused(&methods(6, 0x300, &[0])), Refusal::Method(_)), "nothing is bound there");
    assert!(matches!(refused(&methods(0, 0x1234, &[0])), Refusal::Method(_)));
    assert_eq!(refused(&[2 << 29]), Refusal::Header(2 << 29));
    let said = refused(&methods(0, host::MEM_OP_D, &[0x1f << 27])).to_string();
    assert_eq!(said, "method 0x0034 of subchannel 0 with 0xf8000000 is not carried out");
}
