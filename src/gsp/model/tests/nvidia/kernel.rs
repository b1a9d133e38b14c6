//! Channels of the driver's kernel, from their doorbells to what is in memory.

use super::objects::{
    CHANNEL, CLIENT, DEVICE, DIRECTORY, OK, SPACE, UVM, alloc, channel, control, cuda, free, set_directory,
};
use super::replay::Talk;
use crate::model::tests::driver::{RESTORES, words};
use crate::model::{Effect, Gsp, KernelWork};
use gpuvmk_backend::FlushScope;
use gpuvmk_backend::testing::BackCall;
use gpuvmk_chip::addr::Chid;
use gpuvmk_chip::gh100::methods::{copy, host};
use gpuvmk_chip::gmmu::{Gmmu, Level, Pde, Pte};
use gpuvmk_chip::stream::{DMA::SEC_OP, RingEntry, header};
use gpuvmk_chip::{Aperture, Engine, PhysicalAddress};
use gpuvmk_saved_state::testing::corrupted_states_are_refused_or_taken_as_they_are;

/// Where rings are that [`channel`] names, and what lies behind them: commands, and data.
const RING: u64 = 0x2_0060_0000;
const DATA: u64 = RING + 0x8000;
const RING_VRAM: u64 = 0x60_0000;
const INVALID_ADDRESS: u32 = 0x1e;
const INVALID_ARGUMENT: u32 = 0x1f;
const NO_FREE_FIFOS: u32 = 0x4f;
const DATA_VRAM: u64 = RING_VRAM + 0x8000;

const fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

fn put(talk: &Talk, address: u64, raw: &[u32]) {
    talk.driver.back.put_vram(address, &words(raw));
}

fn word(talk: &Talk, address: u64) -> u32 {
    talk.driver.back.vram_word(address)
}

/// Page tables below `directory`, with tables from `tables` on: 16 pages from the ring on lie at `target`.
fn map(talk: &Talk, directory: u64, tables: u64, target: u64) {
    let (format, back) = (Gmmu::V3, &talk.driver.back);
    let levels = [Level::Pd4, Level::Pd3, Level::Pd2, Level::Pd1];
    let mut table = directory;
    for (level, next) in levels.into_iter().zip((tables..).step_by(0x1000)) {
        let entry = format.encode_pde(Pde::Table(vram(next)));
        back.put_vram(table + 8 * format.index(level, RING), &entry.to_le_bytes());
        table = next;
    }
    let small = tables + 0x8000;
    let entry = format.encode_tables(Pde::Invalid, Pde::Table(vram(small)));
    back.put_vram(table + 16 * format.index(Level::Pd0, RING), &entry.to_le_bytes());
    for page in 0..16 {
        let target = vram(target + page * 0x1000);
        let page_entry = Pte { target, read_only: false, privileged: false, kind: 6 };
        let at = small + 8 * (format.index(Level::Small, RING) + page);
        back.put_vram(at, &format.encode_page(page_entry).to_le_bytes());
    }
}

/// A channel of the driver's kernel on copy engine 1, in the address space that UVM has page tables for; it
/// may run.
fn kernels(talk: &mut Talk, chid: u32) {
    let names = [CLIENT, DEVICE, CHANNEL + chid];
    assert_eq!(alloc(talk, names, 0xc86f, channel(chid, 0, SPACE, 10, 2)), OK);
    assert_eq!(control(talk, [CLIENT, CHANNEL + chid], 0xa06f_0103, vec![1, 0]), OK);
}

fn ready() -> Talk {
    let mut talk = cuda();
    map(&talk, DIRECTORY.address, 0x50_0000, RING_VRAM);
    kernels(&mut talk, 7);
    talk.driver.back.calls();
    talk
}

fn methods(first: u16, data: &[u32]) -> Vec<u32> {
    let count = u16::try_from(data.len()).unwrap();
    [&[header(SEC_OP::INC_METHOD, 0, first, count)], data].concat()
}

/// Both halves, lower first.
const fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

/// A semaphore in the data, at an offset.
fn semaphore(offset: u64, payload: u32, execute: u32) -> Vec<u32> {
    let [low, high] = halves(DATA + offset);
    methods(host::SEM_ADDR_LO, &[low, high, payload, 0, execute])
}

/// Puts commands in the memory at `ring`, with an entry `number`, and rings. All channels have one ring.
fn ring(talk: &mut Talk, ring: u64, (chid, number): (u16, u32), commands: &[u32]) -> Option<Vec<Effect>> {
    let offset = 0x1000 + 0x400 * u64::from(number);
    put(talk, ring + offset, commands);
    let entry = RingEntry::segment(RING + offset, u32::try_from(commands.len()).unwrap());
    put(talk, ring + 8 * u64::from(number), &halves(entry));
    put(talk, 0x20_0000 + 0x200 * u64::from(chid) + 0x8c, &[number + 1]);
    let driver = &mut talk.driver;
    driver.gsp.kernel_doorbell((1, Chid(chid))).then(|| driver.kernel_work(0x1234))
}

/// A page table's write as UVM makes it, its invalidation, and what it waits for.
#[test]
fn doorbell_carries_out_what_the_kernel_wrote_and_tells_the_back_of_page_tables() {
    let mut talk = ready();
    put(&talk, DATA_VRAM + 0x40, &[0x0123_4567]);
    let [low, high] = halves(DATA + 0x40);
    let mut commands = methods(host::SET_OBJECT, &[0xc8b5]);
    commands.extend(methods(copy::OFFSET_IN_UPPER, &[high, low, 0, 0x70_0000]));
    commands.extend(methods(copy::LINE_LENGTH_IN, &[4]));
    commands.extend(methods(copy::LAUNCH_DMA, &[0x2182]));
    commands.extend(methods(host::MEM_OP_A, &[0, 0, 0x0040_1000, 0x4800_0000]));
    commands.extend(semaphore(0, 5, 1 | 1 << 25));
    commands.extend(methods(host::NON_STALL_INTERRUPT, &[0]));

    let effects = ring(&mut talk, RING_VRAM, (7, 0), &commands);

    assert_eq!(effects, Some(vec![Effect::NonStall(Engine::COPY1)]));
    assert_eq!(word(&talk, 0x70_0000), 0x0123_4567);
    assert_eq!([0, 8].map(|at| word(&talk, DATA_VRAM + at)), [5, 0x1234]);
    assert_eq!(word(&talk, 0x20_0000 + 0x200 * 7 + 0x88), 1, "GP_GET");
    let flush = BackCall::Flush(FlushScope { page_directory: DIRECTORY, hub_only: false });
    assert_eq!(talk.driver.back.calls(), [flush]);
    // No such channel, or one that is gone.
    assert!(!talk.driver.gsp.kernel_doorbell((1, Chid(8))));
    assert_eq!(free(&mut talk, [CLIENT, CHANNEL + 7]), OK);
    assert!(!talk.driver.gsp.kernel_doorbell((1, Chid(7))));
}

#[test]
fn channel_goes_on_when_the_one_that_it_waits_for_has_come() {
    let mut talk = ready();
    kernels(&mut talk, 8);
    // Both read the same ring: what it says now is read by the first, what it says then by the other.
    let mut commands = semaphore(0x10, 3, 3);
    commands.extend(semaphore(0x20, 1, 1));
    assert_eq!(ring(&mut talk, RING_VRAM, (7, 0), &commands), Some(Vec::new()));
    assert_eq!(word(&talk, DATA_VRAM + 0x20), 0);
    assert_eq!(ring(&mut talk, RING_VRAM, (8, 0), &semaphore(0x10, 3, 1)), Some(Vec::new()));
    assert_eq!([0x10, 0x20].map(|at| word(&talk, DATA_VRAM + at)), [3, 1]);
}

#[test]
fn wait_is_over_at_the_next_message_when_a_processor_has_written() {
    let mut talk = ready();
    let mut commands = semaphore(0x10, 3, 3);
    commands.extend(semaphore(0x20, 1, 1));
    assert_eq!(ring(&mut talk, RING_VRAM, (7, 0), &commands), Some(Vec::new()));
    put(&talk, DATA_VRAM + 0x10, &[4]);
    assert_eq!(control(&mut talk, [CLIENT, CHANNEL + 7], 0xa06f_0103, vec![1, 0]), OK);
    assert_eq!(word(&talk, DATA_VRAM + 0x20), 1);
}

/// The first has a copy that does not end. The other has its turn all the same, and what is left is told.
#[test]
fn work_is_done_in_pieces_and_by_turns() {
    let mut talk = ready();
    kernels(&mut talk, 8);
    let [low, high] = halves(DATA);
    let mut endless = methods(copy::OFFSET_IN_UPPER, &[high, low, high, low + 0x1000]);
    endless.extend(methods(copy::LINE_LENGTH_IN, &[1, u32::MAX]));
    endless.extend(methods(copy::LAUNCH_DMA, &[0x0386]));
    put(&talk, RING_VRAM + 0x1000, &endless);
    put(&talk, RING_VRAM, &halves(RingEntry::segment(RING + 0x1000, u32::try_from(endless.len()).unwrap())));
    put(&talk, 0x20_0000 + 0x200 * 7 + 0x8c, &[1]);
    let driver = &mut talk.driver;
    let (gsp, back) = (&mut driver.gsp, &driver.back);
    assert!(gsp.kernel_doorbell((1, Chid(7))));
    assert_eq!(gsp.kernel_work(back, 0), []);
    assert_eq!(gsp.kernel_left(), KernelWork::More);

    // The first has read its commands: those of the other may stand there now.
    let wait = semaphore(0x10, 3, 3);
    put(&talk, RING_VRAM + 0x1000, &wait);
    put(&talk, RING_VRAM, &halves(RingEntry::segment(RING + 0x1000, u32::try_from(wait.len()).unwrap())));
    put(&talk, 0x20_0000 + 0x200 * 8 + 0x8c, &[1]);
    let driver = &mut talk.driver;
    assert!(driver.gsp.kernel_doorbell((1, Chid(8))));
    for _ in 0..2 {
        assert_eq!(driver.gsp.kernel_work(&driver.back, 0), []);
    }
    assert_eq!(word(&talk, 0x20_0000 + 0x200 * 8 + 0x88), 1, "GP_GET of the other");
    // Without the first, there is nothing to do but to wait.
    assert_eq!(free(&mut talk, [CLIENT, CHANNEL + 7]), OK);
    assert_eq!(talk.driver.gsp.kernel_left(), KernelWork::Waits);
    put(&talk, DATA_VRAM + 0x10, &[3]);
    talk.driver.kernel_work(0);
    assert_eq!(talk.driver.gsp.kernel_left(), KernelWork::Nothing);
}

#[test]
fn held_back_channel_does_nothing_until_it_may_run() {
    let mut talk = ready();
    assert_eq!(control(&mut talk, [CLIENT, CHANNEL + 7], 0xa06f_0103, vec![0, 0]), OK);
    assert_eq!(ring(&mut talk, RING_VRAM, (7, 0), &semaphore(0, 5, 1)), Some(Vec::new()));
    assert_eq!(word(&talk, DATA_VRAM), 0);
    assert_eq!(control(&mut talk, [CLIENT, CHANNEL + 7], 0xa06f_0103, vec![1, 0]), OK);
    assert_eq!(word(&talk, DATA_VRAM), 5);
}

#[test]
fn there_are_a_hundred_and_twenty_eight_at_most() {
    let mut talk = cuda();
    for chid in 0..128 {
        kernels(&mut talk, chid);
    }
    let names = [CLIENT, DEVICE, CHANNEL + 128];
    assert_eq!(alloc(&mut talk, names, 0xc86f, channel(128, 0, SPACE, 10, 2)), NO_FREE_FIFOS);
    assert_eq!(free(&mut talk, [CLIENT, CHANNEL + 5]), OK);
    kernels(&mut talk, 128);
    assert!(talk.driver.back.live().is_empty());
}

#[test]
fn page_tables_may_move_under_a_channel_of_the_kernel() {
    let mut talk = ready();
    assert_eq!(ring(&mut talk, RING_VRAM, (7, 0), &semaphore(0, 1, 1)), Some(Vec::new()));
    map(&talk, 0x48_0000, 0x58_0000, 0x80_0000);
    assert_eq!(set_directory(&mut talk, UVM, DEVICE, SPACE + 1, 0x48_0000), OK);
    assert_eq!(ring(&mut talk, 0x80_0000, (7, 1), &semaphore(0, 2, 1)), Some(Vec::new()));
    assert_eq!((word(&talk, DATA_VRAM), word(&talk, 0x80_8000)), (1, 2));
}

#[test]
fn refused_command_stops_the_channel_and_the_driver_is_told() {
    for (commands, code) in [
        (methods(host::ILLEGAL, &[0]), 32),
        (methods(copy::LAUNCH_DMA, &[0x0182 | 1 << 20]), 40),
        (methods(host::SEM_ADDR_LO, &[0, 0x100, 0, 0, 1]), 31),
    ] {
        let mut talk = ready();
        talk.driver.events.clear();
        assert_eq!(ring(&mut talk, RING_VRAM, (7, 0), &commands), Some(vec![Effect::Interrupt]));
        talk.driver.poll();
        let [log, event] = &talk.driver.events[..] else { panic!("{:?}", talk.driver.events) };
        assert_eq!((log.function, event.function), (0x1006, 0x1004));
        assert_eq!([0, 4, 0xc].map(|at| event.word(at)), [10, 7, code]);
        assert_eq!(talk.driver.gsp.counters().channels_stopped, 1);
        let notes: Vec<_> = talk.driver.gsp.take_notes().iter().map(ToString::to_string).collect();
        let told = notes.iter().any(|note| note.starts_with("Channel 0x10007 of the driver's kernel"));
        assert!(told, "{notes:?}");
        // It stays so.
        assert_eq!(ring(&mut talk, RING_VRAM, (7, 1), &semaphore(0, 5, 1)), Some(Vec::new()));
        assert_eq!(word(&talk, DATA_VRAM), 0);
    }
}

/// In system memory, at this bus address.
const USERD: u64 = 0x3e_0000;

/// A channel with its USERD in system memory.
fn with_userd_in_system_memory(chid: u32, privilege: u32) -> Vec<u8> {
    let mut parameters = channel(chid, 0, SPACE, 10, privilege);
    parameters[0xa8..0xb0].copy_from_slice(&USERD.to_le_bytes());
    parameters[0xb8] = 1;
    parameters
}

#[test]
fn userd_may_be_in_system_memory() {
    let mut talk = ready();
    talk.driver.back.put_ram(USERD + 0x88, &[0xff; 8]);
    let names = [CLIENT, DEVICE, CHANNEL + 9];
    assert_eq!(alloc(&mut talk, names, 0xc86f, with_userd_in_system_memory(9, 2)), OK);
    assert_eq!(talk.driver.back.ram(USERD + 0x88, 8), [0; 8], "of an earlier channel");
    assert_eq!(control(&mut talk, [CLIENT, CHANNEL + 9], 0xa06f_0103, vec![1, 0]), OK);

    put(&talk, RING_VRAM + 0x1000, &semaphore(0, 5, 1));
    put(&talk, RING_VRAM, &halves(RingEntry::segment(RING + 0x1000, 6)));
    talk.driver.back.put_ram(USERD + 0x8c, &words(&[1]));
    talk.driver.restore();
    assert!(talk.driver.gsp.kernel_doorbell((1, Chid(9))));
    talk.driver.kernel_work(0);

    assert_eq!(word(&talk, DATA_VRAM), 5);
    assert_eq!(talk.driver.back.ram(USERD + 0x88, 4), words(&[1]), "GP_GET");
}

#[test]
fn userd_in_system_memory_is_for_the_drivers_kernel_and_in_memory_that_is_there() {
    let mut talk = ready();
    let names = [CLIENT, DEVICE, CHANNEL + 9];
    assert_eq!(alloc(&mut talk, names, 0xc86f, with_userd_in_system_memory(9, 0)), INVALID_ARGUMENT);
    for (userd, status) in
        [(USERD + 0x100, INVALID_ARGUMENT), (1 << 40, INVALID_ADDRESS), (!0x1ff, INVALID_ADDRESS)]
    {
        let mut parameters = with_userd_in_system_memory(9, 2);
        parameters[0xa8..0xb0].copy_from_slice(&userd.to_le_bytes());
        assert_eq!(alloc(&mut talk, names, 0xc86f, parameters), status, "{userd:#x}");
    }
}

#[test]
fn channels_of_a_gsp_that_is_restored_before_each_piece_do_what_they_did() {
    for test in [
        doorbell_carries_out_what_the_kernel_wrote_and_tells_the_back_of_page_tables,
        channel_goes_on_when_the_one_that_it_waits_for_has_come,
        wait_is_over_at_the_next_message_when_a_processor_has_written,
        held_back_channel_does_nothing_until_it_may_run,
        page_tables_may_move_under_a_channel_of_the_kernel,
        copy_of_many_pieces_ends_with_its_last_byte,
    ] {
        RESTORES.set(Some(0));
        test();
    }
    RESTORES.set(None);
}

/// Lines of a page, each to the same place, but for the last: more than a piece of work.
fn long_copy() -> Vec<u32> {
    let [low, high] = halves(DATA);
    let mut commands = methods(host::SET_OBJECT, &[0xc8b5]);
    commands.extend(methods(copy::OFFSET_IN_UPPER, &[high, low, 0, 0x70_0000, 0, 0, 0x1000, LINES]));
    commands.extend(methods(copy::LAUNCH_DMA, &[0x2386]));
    commands.extend(semaphore(0x7ff0, 5, 1));
    commands
}

const LINES: u32 = 200;

#[test]
fn copy_of_many_pieces_ends_with_its_last_byte() {
    let mut talk = ready();
    put(&talk, DATA_VRAM, &[0x0123_4567]);
    put(&talk, DATA_VRAM + 0xffc, &[0x89ab_cdef]);
    assert_eq!(ring(&mut talk, RING_VRAM, (7, 0), &long_copy()), Some(Vec::new()));
    assert_eq!([0, 0xffc].map(|at| word(&talk, 0x70_0000 + at)), [0x0123_4567, 0x89ab_cdef]);
    assert_eq!(word(&talk, DATA_VRAM + 0x7ff0), 5);
}

#[test]
fn states_of_channels_with_mistakes_are_refused() {
    let mut talk = ready();
    kernels(&mut talk, 8);
    let mut waits = semaphore(0x10, 3, 3);
    waits.extend(semaphore(0x20, 1, 1));
    assert_eq!(ring(&mut talk, RING_VRAM, (8, 0), &waits), Some(Vec::new()));
    let copy = long_copy();
    put(&talk, RING_VRAM + 0x1000, &copy);
    put(&talk, RING_VRAM, &halves(RingEntry::segment(RING + 0x1000, u32::try_from(copy.len()).unwrap())));
    put(&talk, 0x20_0000 + 0x200 * 7 + 0x8c, &[1]);
    let driver = &mut talk.driver;
    assert!(driver.gsp.kernel_doorbell((1, Chid(7))));
    assert_eq!(driver.gsp.kernel_work(&driver.back, 0), []);
    let (state, config) = (driver.gsp.state(), driver.config);
    let under_way = |index: usize| state.kernel_channels.channels[index].channel.under_way.clone();
    assert!(under_way(0).unwrap().done.is_some() && under_way(1).unwrap().done.is_none());
    corrupted_states_are_refused_or_taken_as_they_are(
        &state,
        4_000,
        |state| Gsp::from_state(state, config),
        Gsp::state,
    );
}
