//! A channel of the guest driver's kernel: rings and commands of every kind, over a small machine whose pages
//! are mapped, read-only or absent. A call does no more than its budget, nothing is written where the space
//! has it read-only, and work that is cut by small budgets comes out as it does in one call.

use gpuvmk::addr::GpuVa;
use gpuvmk::chip::gh100::methods::copy;
use gpuvmk::chip::stream::DMA::SEC_OP;
use gpuvmk::chip::stream::{RingEntry, header};
use gpuvmk::chip::{Aperture, Chip, PhysicalAddress};
use gpuvmk::fifo_virt::{Budget, Invalidation, KernelChannel, KernelMemory, NotGuests, Outcome, Target};

use crate::bench::{RAM_VA, READ_ONLY_VA, VRAM_VA};
use crate::input::Input;
use crate::pushbuffer::stream;

const PAGE: u64 = 4096;
/// Bytes of memory of each kind.
const MEMORY: u64 = 64 << 10;
/// The ring is the first page of VRAM, commands the two behind it. Both are mapped from [`VRAM_VA`] on.
const COMMANDS: u64 = 0x1000;
/// A page that is mapped for reading alone, at [`READ_ONLY_VA`], and that nothing else maps.
const READ_ONLY: u64 = 0x8000;
const ENTRIES_LOG2: u8 = 4;
/// Most segments of a run.
const SEGMENTS: u64 = 4;
/// Calls of small budgets that a run makes.
const CALLS: usize = 4096;

/// Runs a ring in one call, and again in small steps.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut machine = Machine::new(&mut input);
    let put = machine.submit(&mut input);
    let small = Budget { steps: 1 + u32::from(input.u8()), bytes: 1 + u64::from(input.u16()) };

    let mut at_once = machine.clone();
    let (mut channel, mut plenty) = (channel(), Budget { steps: 1 << 16, bytes: 1 << 22 });
    let end = channel.run(put, &mut at_once, &mut plenty);
    at_once.check(Budget { steps: 1 << 16, bytes: 1 << 22 });

    let mut cut = self::channel();
    let mut last = Ok(Outcome::More);
    for _ in 0..CALLS {
        machine.accesses = 0;
        last = cut.run(put, &mut machine, &mut small.clone());
        machine.check(small);
        assert!(cut.get() < 1 << ENTRIES_LOG2, "GP_GET outside the ring");
        if last != Ok(Outcome::More) {
            break;
        }
    }
    if end == Ok(Outcome::More) || last == Ok(Outcome::More) {
        return;
    }
    if let Err(refusal) = &end {
        assert!(!refusal.to_string().is_empty());
    }
    assert_eq!(last, end, "cut by {small:?}");
    assert_eq!(cut.get(), channel.get());
    assert!(machine.same_memory(&at_once), "cut by {small:?}, other bytes are written");
}

fn channel() -> KernelChannel {
    KernelChannel::new(GpuVa(VRAM_VA), ENTRIES_LOG2)
}

/// A guest's memory.
#[derive(Clone)]
struct Machine {
    vram: Vec<u8>,
    ram: Vec<u8>,
    /// Pages of system memory that are not mapped at [`RAM_VA`], by bits.
    absent: u16,
    /// The address that was translated last may not be written.
    only_read: bool,
    told: Vec<Invalidation>,
    notified: u32,
    accesses: u64,
}

impl Machine {
    fn new(input: &mut Input<'_>) -> Self {
        let size = usize::try_from(MEMORY).expect("a small size");
        let mut vram: Vec<u8> = (0_u8..=255).cycle().take(size).collect();
        vram[..0x3000].fill(0);
        Self {
            vram,
            ram: vec![0x55; size],
            absent: input.u16(),
            only_read: false,
            told: Vec::new(),
            notified: 0,
            accesses: 0,
        }
    }

    /// Puts segments into memory and the ring. Returns GP_PUT.
    fn submit(&mut self, input: &mut Input<'_>) -> u32 {
        let mut at = COMMANDS;
        for entry in 0..SEGMENTS {
            let words = if input.flag() { transfer(input) } else { stream::words(input, Chip::GH100) };
            let raw: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let fits = raw.len().min(usize::try_from(READ_ONLY - at).expect("a small size"));
            self.put(at, &raw[..fits]);
            let ring = match input.below(8) {
                7 => input.u64(),
                _ => RingEntry::segment(VRAM_VA + at, u32::try_from(fits / 4).expect("few words")),
            };
            self.put(8 * entry, &ring.to_le_bytes());
            at += u64::try_from(fits).expect("a small size");
        }
        match input.below(16) {
            15 => input.u32(),
            _ => u32::try_from(SEGMENTS).expect("few"),
        }
    }

    fn put(&mut self, vram: u64, data: &[u8]) {
        let at = usize::try_from(vram).expect("a small address");
        self.vram[at..at + data.len()].copy_from_slice(data);
    }

    fn bytes(&mut self, address: PhysicalAddress, size: usize) -> Option<&mut [u8]> {
        self.accesses += 1;
        assert!(size > 0, "an access to nothing");
        let memory = if address.aperture == Aperture::Vram { &mut self.vram } else { &mut self.ram };
        let start = usize::try_from(address.address).ok()?;
        memory.get_mut(start..start.checked_add(size)?)
    }

    /// A call took what its budget allows: a step reads some words, an action reaches some places, a piece of
    /// a copy reads and writes page by page.
    fn check(&self, budget: Budget) {
        let most = u64::from(budget.steps) * 8 + (budget.bytes / 256 + 1) * 16 + 64;
        assert!(self.accesses <= most, "{} accesses with {budget:?}", self.accesses);
    }

    fn same_memory(&self, other: &Self) -> bool {
        let all = |machine: &Self| (machine.told.clone(), machine.notified);
        self.vram == other.vram && self.ram == other.ram && all(self) == all(other)
    }
}

impl KernelMemory for Machine {
    fn translate(&mut self, va: GpuVa) -> Option<Target> {
        let inside = va.0 % PAGE;
        let page = |first: u64, bytes: u64| va.0.checked_sub(first).filter(|offset| *offset < bytes);
        let (aperture, address, read_only) = if let Some(offset) = page(VRAM_VA, READ_ONLY) {
            (Aperture::Vram, offset, false)
        } else if let Some(offset) = page(READ_ONLY_VA, PAGE) {
            (Aperture::Vram, READ_ONLY + offset, true)
        } else {
            let offset = page(RAM_VA, MEMORY).filter(|offset| self.absent >> (offset / PAGE) & 1 == 0)?;
            (Aperture::SystemCoherent, offset, false)
        };
        self.only_read = read_only;
        Some(Target { address: PhysicalAddress { aperture, address }, bytes: PAGE - inside, read_only })
    }

    fn read(&mut self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NotGuests> {
        self.only_read = false;
        data.copy_from_slice(self.bytes(address, data.len()).ok_or(NotGuests)?);
        Ok(())
    }

    fn write(&mut self, address: PhysicalAddress, data: &[u8]) -> Result<(), NotGuests> {
        assert!(!self.only_read, "{address:?} is written, which the space has read-only");
        self.bytes(address, data.len()).ok_or(NotGuests)?.copy_from_slice(data);
        Ok(())
    }

    fn invalidate(&mut self, what: Invalidation) {
        if let Some((va, bytes)) = what.range {
            assert!(bytes.is_power_of_two() && va.0.is_multiple_of(bytes), "{what:?}");
        }
        self.told.push(what);
    }

    fn notify(&mut self) {
        self.notified += 1;
    }

    fn now(&mut self) -> u64 {
        0x1122_3344_5566
    }
}

/// A launch of a copy engine, with places and forms that are likely.
fn transfer(input: &mut Input<'_>) -> Vec<u32> {
    let mut words = Vec::new();
    let mut method = |first: u16, data: &[u32]| {
        let count = u16::try_from(data.len()).expect("few words");
        words.push(header(SEC_OP::INC_METHOD, 4, first, count));
        words.extend(data);
    };
    for _ in 0..input.below(4) {
        let launch = match input.below(4) {
            0 => input.u32() & copy::LAUNCH_DMA::SRC_TYPE.mask() | 0x182,
            1 => 0x582 | u32::from(input.u8()) << 3,
            2 => 0x8 | u32::from(input.u16()),
            _ => 0x182 | u32::from(input.u16()) << 12,
        };
        let places = [VRAM_VA + 0x4000, READ_ONLY_VA, RAM_VA, RAM_VA + MEMORY - 16, 0x4000, 0x9000];
        let (from, to) = (halves(input.near(&places)), halves(input.near(&places)));
        method(copy::OFFSET_IN_UPPER, &[from[0], from[1], to[0], to[1]]);
        method(copy::LINE_LENGTH_IN, &[u32::from(input.u16()) & 0x3fff]);
        if input.flag() {
            method(copy::PITCH_IN, &[u32::from(input.u16()), u32::from(input.u16())]);
            method(copy::LINE_COUNT, &[u32::from(input.u8())]);
            method(copy::SET_REMAP_COMPONENTS, &[input.u32() & 0x0333_7777]);
        }
        let semaphore = halves(input.near(&places));
        method(copy::SET_SEMAPHORE_A, &[semaphore[0], semaphore[1], input.u32()]);
        method(copy::LAUNCH_DMA, &[launch]);
    }
    words
}

/// The upper half of an address, and the lower.
fn halves(value: u64) -> [u32; 2] {
    [32, 0].map(|shift| u32::try_from(value >> shift & 0xffff_ffff).expect("32 bits"))
}
