//! The display engine as a driver meets it: push buffers that are written word by word, in memory that only
//! tests have.

#![allow(clippy::cast_possible_truncation, reason = "addresses and sizes of these tests are small")]

use std::cell::RefCell;

use fastrand::Rng;
use gpuvmk_chip::display::core::{self, head};
use gpuvmk_chip::display::window;
use gpuvmk_chip::display::{ChannelKind, ChannelName};
use gpuvmk_chip::registers::Reg;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_display::{Format, Layout, ReadBytes, Scanout, Size};
use gpuvmk_gsp::abi::values::{DisplayChannel, InstanceMemory};
use gpuvmk_mmio_trap::PhysicalMemory;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::testing::{corrupted_states_are_refused_or_taken_as_they_are, through_text};

use super::{Display, DisplayState, HeadMemory};

/// Where things are in memory.
const INSTANCE: u64 = 0x1_0000;
const SYNC: u64 = 0x2_0000;
const PUSH: u64 = 0x3_0000;
const PICTURE: u64 = 0x10_0000;
const MEMORY: usize = 8 << 20;
/// Handles, as nouveau has them.
const SYNC_HANDLE: u32 = 0xf000_0000;
const VRAM_HANDLE: u32 = 0xf000_0001;
const PICTURE_HANDLE: u32 = 0xfb00_0000;
/// Nanoseconds of a frame of [`Driver::light`].
const FRAME: u64 = 20_000_000;

const CORE: ChannelName = ChannelName { kind: ChannelKind::Core, instance: 0 };
const WINDOW: ChannelName = ChannelName { kind: ChannelKind::Window, instance: 0 };
const PLACE: ChannelName = ChannelName { kind: ChannelKind::Immediate, instance: 0 };

struct Memory(RefCell<Vec<u8>>);

impl PhysicalMemory for Memory {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> bool {
        let start = usize::try_from(address.address).unwrap_or(usize::MAX);
        let memory = self.0.borrow();
        let Some(from) = start.checked_add(data.len()).and_then(|end| memory.get(start..end)) else {
            return false;
        };
        data.copy_from_slice(from);
        true
    }

    fn write(&self, address: PhysicalAddress, data: &[u8]) -> bool {
        let start = usize::try_from(address.address).unwrap_or(usize::MAX);
        let mut memory = self.0.borrow_mut();
        let Some(to) = start.checked_add(data.len()).and_then(|end| memory.get_mut(start..end)) else {
            return false;
        };
        to.copy_from_slice(data);
        true
    }
}

impl Memory {
    fn put(&self, address: u64, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(self.write(at(address), &bytes));
    }

    fn word(&self, address: u64) -> u32 {
        let mut bytes = [0; 4];
        assert!(self.read(at(address), &mut bytes));
        u32::from_le_bytes(bytes)
    }
}

const fn at(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

struct Driver {
    display: Display,
    memory: Memory,
    /// Words that were written of each push buffer.
    written: [usize; 3],
    now: u64,
}

impl Driver {
    /// Channels of the core and a window, and objects of both.
    fn new() -> Self {
        let memory = Memory(RefCell::new(vec![0; MEMORY]));
        // Of the window, core, window: a handle, and an object with its own flags, start and last byte.
        let objects = [
            (CORE, SYNC_HANDLE, 5, SYNC, SYNC + 0xfff),
            (WINDOW, SYNC_HANDLE, 5, SYNC, SYNC + 0xfff),
            (CORE, VRAM_HANDLE, 5, 0, MEMORY as u64 - 1),
            (WINDOW, VRAM_HANDLE, 5, 0, MEMORY as u64 - 1),
            (WINDOW, PICTURE_HANDLE, 5, 0, MEMORY as u64 - 1),
            (WINDOW, PICTURE_HANDLE | 6, 5 | 1 << 20, 0, MEMORY as u64 - 1),
        ];
        for (place, (name, handle, flags, start, last)) in (0u32..).zip(objects) {
            let object = 0x2000 + place * 0x20;
            memory.put(INSTANCE + u64::from(place * 0x128), &[handle, name.number() << 25 | object << 9 | 2]);
            let [start, last] = [start >> 8, last >> 8].map(|units| units as u32);
            memory.put(INSTANCE + u64::from(object), &[flags, start, 0, last, 0]);
        }
        let mut display = Display::new(Some(vec![1; 128]));
        display.set_instance_memory(Some(InstanceMemory { address: INSTANCE, size: 0x1_0000 }));
        for (place, name) in (0u64..).zip([CORE, WINDOW, PLACE]) {
            display.open(DisplayChannel { name, buffer: Some(at(PUSH + place * 0x1000)), offset: 0 });
        }
        Self { display, memory, written: [0; 3], now: 1_000 }
    }

    fn place(name: ChannelName) -> usize {
        [CORE, WINDOW, PLACE].iter().position(|own| *own == name).unwrap()
    }

    const fn user(name: ChannelName) -> u32 {
        match name.kind {
            ChannelKind::Core => 0x68_0000,
            ChannelKind::Window => 0x69_0000,
            _ => 0x6b_0000,
        }
    }

    fn rd(&self, reg: u32) -> u32 {
        self.display.read(Reg(reg), self.now).unwrap()
    }

    fn wr(&mut self, reg: u32, value: u32) -> bool {
        self.display.write(Reg(reg), Word::full(value), &self.memory, self.now).unwrap()
    }

    /// Words behind what was written of a push buffer, and its PUT.
    fn push(&mut self, name: ChannelName, words: &[u32]) {
        let place = Self::place(name);
        self.memory.put(PUSH + place as u64 * 0x1000 + self.written[place] as u64 * 4, words);
        self.written[place] += words.len();
        self.wr(Self::user(name), self.written[place] as u32 * 4);
    }

    /// Methods with a value each.
    fn set(&mut self, name: ChannelName, methods: &[(u32, u32)]) {
        let words: Vec<u32> = methods.iter().flat_map(|(method, value)| [1 << 18 | method, *value]).collect();
        self.push(name, &words);
    }

    /// Has the core light its head with a picture of 64 by 32 pixels.
    fn light(&mut self) {
        self.set(
            CORE,
            &[
                (core::SET_CONTEXT_DMA_NOTIFIER, SYNC_HANDLE),
                (core::window_set_control(0), 0),
                (core::window_set_control(1), 0xf),
                (core::sor_set_control(0), 1 << 8 | 1),
                (head(0, core::HEAD_SET_VIEWPORT_SIZE_IN), 32 << 16 | 64),
                (head(0, core::HEAD_SET_VIEWPORT_SIZE_OUT), 32 << 16 | 64),
                (head(0, core::HEAD_SET_RASTER_SIZE), 50 << 16 | 100),
                (head(0, core::HEAD_SET_RASTER_BLANK_END), 10 << 16 | 20),
                (head(0, core::HEAD_SET_RASTER_BLANK_START), 42 << 16 | 84),
                (head(0, core::HEAD_SET_PIXEL_CLOCK_FREQUENCY), 250_000),
                (core::SET_NOTIFIER_CONTROL, 0x1000),
                (core::UPDATE, 1),
                (core::SET_NOTIFIER_CONTROL, 0),
            ],
        );
        assert_eq!(self.memory.word(SYNC) >> 30, 2, "the head was dark: at once");
    }

    /// Has the window show a picture at a place of VRAM in 256 bytes, with more methods.
    fn show(&mut self, place: u32, more: &[(u32, u32)]) {
        let mut all = vec![
            (window::SET_SIZE, 32 << 16 | 64),
            (window::SET_PARAMS, 0xcf),
            (window::SET_PLANAR_STORAGE, 4),
            (window::SET_CONTEXT_DMA_ISO, PICTURE_HANDLE),
            (window::SET_OFFSET, place),
            (window::SET_SIZE_OUT, 32 << 16 | 64),
            (window::SET_CONTEXT_DMA_NOTIFIER, SYNC_HANDLE),
            (window::SET_NOTIFIER_CONTROL, 0x60),
        ];
        all.extend(more);
        all.push((window::UPDATE, 1));
        self.set(WINDOW, &all);
    }

    fn blank(&mut self) -> bool {
        self.now += self.display.due(self.now).expect("somebody waits for a frame");
        self.display.blank(&self.memory, self.now)
    }

    fn scanout(&mut self) -> Option<Scanout> {
        self.display.scanout(&self.memory)
    }
}

#[test]
fn a_mode_lights_the_head_and_what_was_set_is_read_back() {
    let mut driver = Driver::new();
    assert_eq!((driver.rd(0x82_0c04), driver.scanout()), (0, None));
    assert_eq!(driver.rd(0x68_a004) >> 4 & 0xf, 4, "24 bits a pixel, before any mode");
    driver.light();
    assert_eq!((driver.rd(0x68_a064), driver.rd(0x68_2064)), (50 << 16 | 100, 50 << 16 | 100));
    assert_eq!((driver.rd(0x68_0004), driver.rd(0x68_0000)), (26 * 4, 26 * 4), "all was read");
    let shown = driver.scanout().unwrap();
    assert_eq!((shown.size, shown.windows.len(), shown.cursor), (Size::new(64, 32), 0, None));
    assert_eq!(driver.display.due(driver.now), None, "nobody waits for a frame");
}

#[test]
fn flips_take_effect_with_the_frame_and_are_notified() {
    let mut driver = Driver::new();
    driver.light();
    driver.now += 5_000_000;
    driver.show(0x1000, &[]);
    assert_eq!(driver.display.due(driver.now), Some(FRAME - 5_000_000));
    assert!(driver.scanout().unwrap().windows.is_empty() && driver.memory.word(SYNC + 0x60) == 0);
    assert!(!driver.display.blank(&driver.memory, driver.now), "it is not time");
    assert!(!driver.blank(), "the driver did not want to hear of it");
    assert_eq!(driver.memory.word(SYNC + 0x60) >> 30, 1);
    let time = u64::from(driver.memory.word(SYNC + 0x68)) | u64::from(driver.memory.word(SYNC + 0x6c)) << 32;
    assert_eq!(time, driver.now);
    let shown = driver.scanout().unwrap();
    let surface = shown.windows[0].surface;
    assert_eq!((surface.format, surface.layout), (Format::Argb8888, Layout::Pitch(256)));
    assert_eq!((surface.size, surface.address.offset), (Size::new(64, 32), PICTURE));
    driver.memory.put(PICTURE, &[0x12_3456]);
    let mut pixel = [0; 4];
    HeadMemory(&driver.memory).read(surface.address, &mut pixel).unwrap();
    assert_eq!(u32::from_le_bytes(pixel), 0x12_3456);
    assert_eq!(driver.display.due(driver.now), None);

    driver.show(0x2000, &[(window::SET_PRESENT_CONTROL, 1 << 4), (window::SET_NOTIFIER_CONTROL, 0x70)]);
    assert_eq!(driver.memory.word(SYNC + 0x70) >> 30, 1, "it may be torn, so it waits for nothing");
    driver.show(0x1000, &[(window::SET_CONTEXT_DMA_ISO, PICTURE_HANDLE | 6), (window::SET_STORAGE, 2)]);
    let surface = driver.scanout().unwrap().windows[0].surface;
    assert_eq!(surface.layout, Layout::Blocks { height_shift: 2, across: 4 });
}

#[test]
fn core_and_window_that_name_each_other_take_effect_together() {
    let mut driver = Driver::new();
    driver.light();
    driver.show(0x1000, &[(window::SET_INTERLOCK_FLAGS, 1), (window::SET_WINDOW_INTERLOCK_FLAGS, 1)]);
    assert_eq!(driver.display.due(driver.now), None, "the core has said nothing");
    driver.memory.put(SYNC, &[0]);
    driver.set(
        CORE,
        &[
            (core::SET_WINDOW_INTERLOCK_FLAGS, 1),
            (core::SET_NOTIFIER_CONTROL, 0x1000),
            (core::UPDATE, 1),
            (core::SET_NOTIFIER_CONTROL, 0),
        ],
    );
    assert_eq!((driver.memory.word(SYNC), driver.memory.word(SYNC + 0x60)), (0, 0));
    assert_ne!(driver.rd(0x68_0004), driver.rd(0x68_0000), "the core waits at its UPDATE");
    driver.blank();
    assert_eq!((driver.memory.word(SYNC) >> 30, driver.memory.word(SYNC + 0x60) >> 30), (2, 1));
    assert_eq!(driver.rd(0x68_0004), driver.rd(0x68_0000));
}

#[test]
fn blanking_interrupts_while_the_driver_wants_it() {
    let mut driver = Driver::new();
    driver.light();
    assert!(!driver.wr(0x61_1d80, 2));
    assert!(driver.blank() && driver.blank());
    assert_eq!((driver.rd(0x61_1ec0), driver.rd(0x61_1c00), driver.rd(0x61_1800)), (1, 2, 2));
    driver.wr(0x61_1800, 2);
    assert_eq!((driver.rd(0x61_1ec0), driver.rd(0x61_1c00)), (0, 0));
    assert_eq!((driver.rd(0x61_6330), driver.rd(0x61_6334)), (42, 0), "blanking begins with its first line");
    driver.now += FRAME / 2;
    assert_eq!(driver.rd(0x61_6330), 17);
    driver.wr(0x61_1d80, 0);
    assert_eq!(driver.display.due(driver.now), None);
    driver.set(CORE, &[(core::sor_set_control(0), 0), (core::UPDATE, 1)]);
    driver.blank();
    assert_eq!((driver.scanout(), driver.rd(0x61_6330)), (None, 0));
}

#[test]
fn the_cursor_is_where_it_was_put_and_what_is_named_lies_in_its_object() {
    let mut driver = Driver::new();
    let cursor = ChannelName { kind: ChannelKind::Cursor, instance: 0 };
    driver.display.open(DisplayChannel { name: cursor, buffer: None, offset: 0 });
    driver.light();
    assert!(driver.rd(0x6d_8008) >= 4);
    driver.wr(0x6d_8208, 0xffff << 16 | 7);
    driver.set(
        CORE,
        &[
            (head(0, core::HEAD_SET_CONTROL_CURSOR), 1 << 31 | 1 << 8 | 0xcf),
            (head(0, core::HEAD_SET_CONTROL_CURSOR_COMPOSITION), 0x72ff),
            (head(0, core::HEAD_SET_CONTEXT_DMA_CURSOR), VRAM_HANDLE),
            (head(0, core::HEAD_SET_OFFSET_CURSOR), 0x1000),
            (core::UPDATE, 1),
        ],
    );
    driver.blank();
    let place = |driver: &mut Driver| {
        driver.scanout().unwrap().cursor.map(|own| (own.to.x, own.to.y, own.address.offset))
    };
    assert_eq!(place(&mut driver), Some((0, 0, PICTURE)));
    driver.wr(0x6d_8200, 1);
    assert_eq!(place(&mut driver), Some((7, -1, PICTURE)));
    driver.set(CORE, &[(head(0, core::HEAD_SET_OFFSET_CURSOR), (MEMORY >> 8) as u32 - 1), (core::UPDATE, 1)]);
    driver.blank();
    assert_eq!((place(&mut driver), driver.display.counters().handles_refused), (None, 1));
}

#[test]
fn push_buffers_without_meaning_stop_their_channel_alone() {
    for words in [
        // A jump to itself, one that jumps about between methods, an UPDATE without end.
        &[1 << 29][..],
        &[1 << 18 | 0x210, 7, 1 << 29],
        &[1 << 18 | 0x200, 1, 1 << 29],
        // No operation, a method that is none of a window's.
        &[7 << 29, 0],
        &[1 << 18 | 0x1000, 1],
        &[0x3ff << 18 | 0xffc, 1, 1],
    ] {
        let mut driver = Driver::new();
        driver.push(WINDOW, words);
        driver.wr(0x69_0000, 0xffc);
        assert_eq!(driver.display.counters().channels_stopped, 1, "{words:x?}");
        driver.show(0x1000, &[]);
        assert_eq!(driver.memory.word(SYNC + 0x60), 0);
        driver.light();
        driver.display.close(WINDOW);
        driver.display.open(DisplayChannel { name: WINDOW, buffer: Some(at(PUSH + 0x1000)), offset: 0 });
        driver.written[1] = 0;
        driver.show(0x1000, &[]);
        driver.blank();
        assert_eq!(driver.memory.word(SYNC + 0x60) >> 30, 1);
    }
}

#[test]
fn handles_that_name_no_memory_are_counted_and_write_nothing() {
    for (handle, control) in [(0x1234, 0), (VRAM_HANDLE, 0)] {
        let mut driver = Driver::new();
        if handle == VRAM_HANDLE {
            // It becomes an object that ends where it begins.
            driver.memory.put(INSTANCE + 0x2000 + 0x60, &[5, 1, 0, 0, 0]);
        }
        driver.show(
            0x1000,
            &[(window::SET_CONTEXT_DMA_NOTIFIER, handle), (window::SET_NOTIFIER_CONTROL, control)],
        );
        assert_eq!(driver.display.counters().handles_refused, 1);
    }
    let mut driver = Driver::new();
    driver.display.set_instance_memory(None);
    driver.show(0x1000, &[]);
    assert_eq!(driver.display.counters().handles_refused, 1);
}

#[test]
fn random_words_neither_panic_nor_write_outside_what_is_named() {
    let mut random = Rng::with_seed(42);
    for _ in 0..200 {
        let mut driver = Driver::new();
        driver.light();
        let words: Vec<u32> = (0..800)
            .map(|_| match random.u8(0..4) {
                0 => random.u32(..),
                1 => random.u32(1..4) << 18 | random.u32(0x80..0x120) << 2,
                2 => SYNC_HANDLE,
                _ => random.u32(..0x2000),
            })
            .collect();
        let name = *random.choice(&[CORE, WINDOW, PLACE]).unwrap();
        driver.written = [0; 3];
        driver.push(name, &words);
        for _ in 0..8 {
            if let Some(due) = driver.display.due(driver.now) {
                driver.now += due;
                driver.display.blank(&driver.memory, driver.now);
            }
            driver.scanout();
            driver.wr(random.u32(0x68_0000..0x69_2000) & !3, random.u32(..));
        }
        let memory = driver.memory.0.borrow();
        let names = |at: usize| memory[INSTANCE as usize..][..0x3000][at];
        assert_eq!((names(3), names(0x2000)), (0xf0, 5), "instance memory is as it was");
        assert!(memory[PICTURE as usize..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn state_goes_on_where_it_was_and_corrupted_ones_are_refused_or_taken_as_they_are() {
    let mut driver = Driver::new();
    driver.light();
    driver.wr(0x61_1d80, 2);
    driver.now += 7_000_000;
    driver.show(0x1000, &[]);
    let state = driver.display.state(driver.now);
    assert_eq!(state.since_blanking, 7_000_000);
    let again: DisplayState = through_text(&state);
    driver.now = 77;
    driver.display = Display::from_state(&again, Some(vec![1; 128]), driver.now).unwrap();
    assert_eq!(
        (driver.display.state(driver.now), driver.display.due(driver.now)),
        (state.clone(), Some(FRAME - 7_000_000))
    );
    assert!(driver.blank());
    assert_eq!(driver.memory.word(SYNC + 0x60) >> 30, 1);
    let from_state = |state: &DisplayState| Display::from_state(state, None, 1 << 40);
    corrupted_states_are_refused_or_taken_as_they_are(&state, 2000, from_state, |own| own.state(1 << 40));
}
