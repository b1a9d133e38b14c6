//! The face as a driver meets it, over a back that only records.

#![allow(clippy::cast_possible_truncation, reason = "addresses of these tests fit in registers")]

mod boot;
mod doorbells;
mod driver;
mod events;
mod falcons;
#[path = "../../../../tests/common/gsp_queues.rs"]
mod gsp_queues;
mod hal_rows;
mod heads;
mod hostile;
mod interrupts;
mod kernel_channels;
mod memory;
mod other_chip;
mod state;

use std::sync::{Arc, Mutex};

use super::hal::{GH100, Hal};
use super::{GspFaceConfig, GspFunction};
use gpuvmk_backend::testing::{FakeGspBack, FakeGspBackConfig};
use gpuvmk_chip::EngineSet;
use gpuvmk_chip::registers::Reg;
use gpuvmk_host::clock::ManualClock;
use gpuvmk_pci::{InterruptSink, PciFunction, Region};
use gpuvmk_saved_state::testing::through_text;

/// Bytes of VRAM in these tests.
const VRAM: u64 = 64 << 20;
/// Bus address of the guest's memory.
const RAM: u64 = 0x1_0000_0000;
const RAM_SIZE: u64 = 2 << 20;

/// A back with so many bytes of VRAM, graphics and three copy engines.
fn back(vram: u64) -> FakeGspBack {
    FakeGspBack::new(FakeGspBackConfig {
        vram,
        ram: RAM..RAM + RAM_SIZE,
        channels: 16,
        engines: EngineSet::GRAPHICS | EngineSet::COPY0 | EngineSet::COPY1 | EngineSet::COPY2,
    })
}

/// A function with everything a test looks at.
struct Gpu {
    function: GspFunction<FakeGspBack>,
    back: Arc<FakeGspBack>,
    clock: Arc<ManualClock>,
}

impl Gpu {
    fn new() -> Self {
        Self::with_vram(VRAM)
    }

    fn with_vram(vram: u64) -> Self {
        Self::of(&GH100, vram)
    }

    fn of(hal: &'static Hal, vram: u64) -> Self {
        let back = Arc::new(back(vram));
        let clock = Arc::new(ManualClock::default());
        let config = GspFaceConfig { clock: clock.clone(), ..GspFaceConfig::of(hal) };
        let function = GspFunction::new(back.clone(), config).unwrap();
        Self { function, back, clock }
    }

    /// Another function for the place of this one, over the same back.
    fn restored(&self) -> Self {
        let (back, clock) = (self.back.clone(), self.clock.clone());
        let state = through_text(&self.function.state());
        back.disconnect();
        let hal = self.function.hal();
        let config = GspFaceConfig { clock: clock.clone(), ..GspFaceConfig::of(hal) };
        let function = GspFunction::from_state(back.clone(), config, &state).unwrap();
        assert_eq!(function.state(), state);
        // No calls but those that each function makes anew.
        assert_eq!(back.calls(), []);
        Self { function, back, clock }
    }

    fn rd(&self, offset: u32) -> u32 {
        let mut raw = [0; 4];
        self.function.read(Region::Bar(0), u64::from(offset), &mut raw).unwrap();
        u32::from_le_bytes(raw)
    }

    fn wr(&self, offset: u32, value: u32) {
        self.function.write(Region::Bar(0), u64::from(offset), &value.to_le_bytes()).unwrap();
    }

    fn reg(&self, reg: Reg) -> u32 {
        self.rd(reg.0)
    }

    fn bar_rd(&self, bar: u8, offset: u64) -> u32 {
        let mut raw = [0; 4];
        self.function.read(Region::Bar(bar), offset, &mut raw).unwrap();
        u32::from_le_bytes(raw)
    }

    fn bar_wr(&self, bar: u8, offset: u64, value: u32) {
        self.function.write(Region::Bar(bar), offset, &value.to_le_bytes()).unwrap();
    }

    fn config_wr(&self, offset: u64, data: &[u8]) {
        self.function.write(Region::Config, offset, data).unwrap();
    }

    fn config_rd(&self, offset: u64) -> u32 {
        let mut raw = [0; 4];
        self.function.read(Region::Config, offset, &mut raw).unwrap();
        u32::from_le_bytes(raw)
    }

    /// A function whose driver gets messages (or the line), with the vectors of `leaf` enabled.
    fn listen(&self, msi: bool, leaves: &[u32]) -> Arc<Sink> {
        let sink = Arc::new(Sink::default());
        self.function.connect_interrupts(Some(sink.clone()));
        self.config_wr(4, &[6, 0]);
        if msi {
            let control = self.function.hal().pci.capabilities.msi + 2;
            self.config_wr(control.into(), &[1, 0]);
        }
        for leaf in leaves {
            self.wr(0xb8_1200 + 4 * leaf, u32::MAX);
        }
        self.wr(0xb8_1608, 0xf);
        sink
    }
}

/// What reached the guest's interrupt controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    Line(bool),
    Message,
    /// Another process has sent it.
    Sent,
}

#[derive(Default)]
struct Sink(Mutex<Vec<Signal>>);

impl InterruptSink for Sink {
    fn set_intx(&self, asserted: bool) {
        self.0.lock().unwrap().push(Signal::Line(asserted));
    }

    fn fire_msi(&self, _: u16) {
        self.0.lock().unwrap().push(Signal::Message);
    }

    fn message_sent(&self, _: u16) {
        self.0.lock().unwrap().push(Signal::Sent);
    }
}

impl Sink {
    fn taken(&self) -> Vec<Signal> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}
