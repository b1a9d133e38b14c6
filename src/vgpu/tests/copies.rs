//! What is counted of a guest's copies at its doorbells.

use super::*;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::gf100::methods::{host, pcopy};
use gpuvmk_chip::stream::DMA::SEC_OP;

/// Pages of VRAM behind the ring and behind two pages of commands.
const RING: u64 = 0x5000;
const COMMANDS: u64 = 0x6000;
const COMMANDS_VA: u64 = GPFIFO + 0x1000;
const NOTHING_VA: u64 = GPFIFO + 0x3000;
/// Where one page of padding is mapped many times.
const PADDING_VA: u64 = GPFIFO + 0x1_0000;
const PADDING_PAGES: u64 = 32;

fn header(operation: u32, method: u16, count: u32) -> u32 {
    operation << 29 | count << 16 | u32::from(method) >> 2
}

/// A copy of that many lines of 256 bytes.
fn copy(lines: u32) -> Vec<u32> {
    let [bind, counts, go] = [(host::SET_OBJECT, 1), (pcopy::X_COUNT, 2), (pcopy::EXEC, 1)]
        .map(|(method, count)| header(SEC_OP::INC_METHOD, method, count));
    vec![bind, pcopy::CLASS_COPY0.into(), counts, 256, lines, go, 0x110]
}

/// A vGPU with a channel whose ring has 2^`log2` entries.
fn ring_of(log2: u32, grant: Grant) -> Fixture {
    let f = fixture_of(grant, MediatorConfig::default());
    f.write_instance(1);
    f.write_u32(INSTANCE + 0x1000 + ramin::RAMFC_GP_BASE_HI, log2 << 16);
    for (page, target) in [(0, RING), (1, COMMANDS), (2, COMMANDS + 0x1000)] {
        f.write_pte((GPFIFO >> 12) + page, vram(target));
    }
    for page in 0..PADDING_PAGES {
        f.write_pte((PADDING_VA >> 12) + page, vram(0xf000));
    }
    f.bind(1);
    f.mediator.enable_channel(GuestChannel(1), true);
    f
}

impl Fixture {
    fn commands(&self, at: u64, words: &[u32]) {
        for (at, word) in (COMMANDS + at..).step_by(4).zip(words) {
            self.write_u32(at, *word);
        }
    }

    fn entry(&self, index: u64, va: u64, words: u64) {
        self.write_u64(RING + index * 8, va | words << 42);
    }

    /// Bytes of copy engine 0 and ring entries that were not read, as told and as kept.
    fn counted(&self) -> (u64, u64) {
        let copied = self.mediator.status().copied;
        assert_eq!(copied, *self.link.copied.lock().unwrap());
        (copied.bytes(Engine::COPY0), copied.unread_entries)
    }
}

#[test]
fn every_entry_counts_once_around_the_end_of_the_ring() {
    let f = ring_of(2, grant());
    // Across a page, too.
    let words = copy(3);
    f.commands(0xff0, &words);
    for entry in 0..4 {
        f.entry(entry, COMMANDS_VA + 0xff0, words.len() as u64);
    }

    for (put, entries) in [(3, 3), (1, 5), (1, 5), (0, 8), (4, 8), (u32::MAX, 8), (2, 10)] {
        f.mediator.doorbell(GuestChannel(1), put);
        assert_eq!(f.counted(), (entries * 3 * 256, 0), "after {put}");
    }
}

#[test]
fn doorbell_reads_so_many_entries_and_no_more() {
    let f = ring_of(10, grant());
    let words = copy(1);
    f.commands(0, &words);
    for entry in 0..200 {
        f.entry(entry, COMMANDS_VA, words.len() as u64);
    }
    f.mediator.doorbell(GuestChannel(1), 64);
    assert_eq!(f.counted(), (64 * 256, 0));
    f.mediator.doorbell(GuestChannel(1), 164);
    assert_eq!(f.counted(), (128 * 256, 36));
    f.mediator.doorbell(GuestChannel(1), 165);
    assert_eq!(f.counted(), (129 * 256, 36));
}

#[test]
fn doorbell_reads_so_many_commands_and_passes_over_what_cannot_matter() {
    let f = ring_of(10, grant());
    let words = copy(1);
    f.commands(0, &words);
    let padding = PADDING_PAGES * 1024;
    f.entry(0, PADDING_VA, padding);
    f.entry(1, COMMANDS_VA, words.len() as u64);
    f.mediator.doorbell(GuestChannel(1), 2);
    assert_eq!(f.counted(), (0, 2), "more padding than is read");

    // Data for software, in memory that there is not, with a copy behind.
    f.commands(0x100, &[header(SEC_OP::NON_INC_METHOD, 0x100, 0x1000) | 7 << 13]);
    f.entry(2, COMMANDS_VA + 0x100, 1);
    f.entry(3, NOTHING_VA, 0x1000);
    f.entry(4, COMMANDS_VA, words.len() as u64);
    f.mediator.doorbell(GuestChannel(1), 5);
    assert_eq!(f.counted(), (256, 2));
}

#[test]
fn what_cannot_be_read_is_counted_as_such() {
    let f = ring_of(10, grant());
    let words = copy(1);
    f.commands(0, &words);
    for (entry, va) in (0..).zip([NOTHING_VA, COMMANDS_VA, 0xff_ffff_fffc, COMMANDS_VA]) {
        f.entry(entry, va, words.len() as u64);
    }
    f.mediator.doorbell(GuestChannel(1), 4);
    assert_eq!(f.counted(), (512, 2));

    // A page of commands that is not the guest's memory; then no page directory at all.
    f.write_pte((COMMANDS_VA >> 12) + 1, vram(VRAM));
    f.entry(4, COMMANDS_VA + 0x1000, 1);
    f.mediator.doorbell(GuestChannel(1), 5);
    f.write_u64(DIRECTORY, 0);
    f.mediator.doorbell(GuestChannel(1), 6);
    assert_eq!(f.counted(), (512, 4));
}

#[test]
fn commands_in_memory_that_is_slow_to_read_are_not_read() {
    let f = ring_of(10, Grant { slow_vram_reads: true, ..grant() });
    f.mediator.doorbell(GuestChannel(1), 3);
    assert_eq!(f.counted(), (0, 3));
}

#[test]
fn channel_begins_anew_with_its_host_channel_only() {
    let f = ring_of(10, grant());
    let words = copy(1);
    f.commands(0, &words);
    f.entry(0, COMMANDS_VA, words.len() as u64);
    f.mediator.doorbell(GuestChannel(1), 1);
    f.mediator.enable_channel(GuestChannel(1), false);
    f.mediator.enable_channel(GuestChannel(1), true);
    f.mediator.doorbell(GuestChannel(1), 1);
    assert_eq!(f.counted(), (256, 0));

    // Work that was there before the channel.
    f.write_u32(USERD + 0x1000 + ramin::USERD_GP_PUT, 1);
    f.bind(1);
    f.mediator.enable_channel(GuestChannel(1), true);
    assert_eq!(f.counted(), (512, 0));
    f.mediator.doorbell(GuestChannel(9), 1);
    f.mediator.doorbell(GuestChannel(u16::MAX), 1);
    assert_eq!(f.counted(), (512, 0));
}
