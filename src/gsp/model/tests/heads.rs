//! A chip whose display has a head: what nouveau asks when it makes the display engine, finds the monitor and
//! makes its channels, and what is refused.

use std::sync::{Arc, Mutex};

use super::config;
use super::driver::{Driver, R535, R570, SPEAKS, poke, words};
use super::probe::{DEVICE, SUBDEVICE, client};
use crate::abi::values::{DisplayChannel, InstanceMemory};
use crate::hal::{AD104, AD107};
use crate::model::{DisplayEngine, Gsp, GspConfig};
use gpuvmk_chip::display::{ChannelKind, ChannelName};
use gpuvmk_chip::{Aperture, PhysicalAddress};

const CLIENT: u32 = 0xc1d0_0002;
const COMMON: u32 = 0x0073_0000;
const ROOT: u32 = 0xc770_0000;
const INTERNAL: u32 = 0xc1e0_0004;
const INTERNAL_SUBDEVICE: u32 = 0xabcd_2080;
const CORE: u32 = 0xc77d_0000;
const NOT_SUPPORTED: u32 = 0x56;
const INVALID_CLASS: u32 = 0x22;
const PUSH: u64 = 0x30_0000;

/// What the engine was told.
#[derive(Debug, Default)]
struct Told {
    instance: Option<InstanceMemory>,
    opened: Vec<DisplayChannel>,
    closed: Vec<ChannelName>,
}

#[derive(Debug, Default)]
pub(super) struct Engine {
    told: Mutex<Told>,
    is_unplugged: Mutex<bool>,
}

impl DisplayEngine for Engine {
    fn edid(&self) -> Option<Vec<u8>> {
        (!*self.is_unplugged.lock().unwrap()).then(|| (0..128).collect())
    }

    fn set_instance_memory(&self, memory: Option<InstanceMemory>) {
        self.told.lock().unwrap().instance = memory;
    }

    fn instance_memory(&self) -> Option<InstanceMemory> {
        self.told.lock().unwrap().instance
    }

    fn open(&self, channel: DisplayChannel) {
        self.told.lock().unwrap().opened.push(channel);
    }

    fn close(&self, channel: ChannelName) {
        self.told.lock().unwrap().closed.push(channel);
    }
}

pub(super) fn with_head() -> GspConfig {
    GspConfig { hal: &AD104, has_head: true, ..config() }
}

/// A driver that has booted firmware of a chip with a head.
pub(super) fn booted() -> (Driver, Arc<Engine>) {
    let mut driver = Driver::new(with_head());
    let engine = Arc::new(Engine::default());
    driver.gsp.set_display(engine.clone());
    driver.boot(super::driver::LIBOS).unwrap();
    (driver, engine)
}

/// A driver with the objects by which it asks about its display.
fn driver() -> (Driver, Arc<Engine>) {
    let (mut driver, engine) = booted();
    driver.poll();
    client(&mut driver, CLIENT, true);
    assert_eq!(driver.alloc(CLIENT, DEVICE, COMMON, 0x0073, &[]), 0);
    assert_eq!(driver.alloc(CLIENT, DEVICE, ROOT, 0xc770, &[]), 0);
    (driver, engine)
}

/// Numbers and sizes that the versions have in their own way.
struct Numbers {
    static_info: usize,
    supported: u32,
    connected: u32,
    active: u32,
    push: usize,
    channel: usize,
}

fn numbers() -> Numbers {
    if SPEAKS.get().name == R535.name {
        Numbers {
            static_info: 0x1c,
            supported: 0x73_0120,
            connected: 0x73_0122,
            active: 0x73_0126,
            push: 0x28,
            channel: 0x20,
        }
    } else {
        Numbers {
            static_info: 0x24,
            supported: 0x73_0107,
            connected: 0x73_0108,
            active: 0x73_010c,
            push: 0x38,
            channel: 0x28,
        }
    }
}

pub(super) fn instance_memory(driver: &mut Driver, address: u64, size: u64, space: u32) -> u32 {
    let mut raw = [address.to_le_bytes(), size.to_le_bytes()].concat();
    raw.extend(words(&[space, 2]));
    driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a49, &raw).0
}

fn push_buffer(driver: &mut Driver, class: u32, instance: u32, at: u64, limit: u64, valid: u8) -> u32 {
    let mut raw = vec![0; numbers().push];
    poke(&mut raw, 0, &words(&[1]));
    poke(&mut raw, 8, &at.to_le_bytes());
    poke(&mut raw, 0x10, &limit.to_le_bytes());
    poke(&mut raw, 0x18, &words(&[1, class, instance]));
    raw[0x24] = valid;
    driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a58, &raw).0
}

fn channel(driver: &mut Driver, class: u32, instance: u32, offset: u32) -> u32 {
    let mut raw = vec![0; if class == 0xc67a { 0x10 } else { numbers().channel }];
    poke(&mut raw, 0, &words(&[instance]));
    if class != 0xc67a {
        poke(&mut raw, 0xc, &words(&[offset]));
    }
    driver.alloc(CLIENT, ROOT, class << 16 | instance, class, &raw)
}

fn asks_about_its_display() {
    let (mut driver, engine) = driver();
    let Numbers { static_info, supported, connected, active, .. } = numbers();
    assert_eq!(instance_memory(&mut driver, 0x10_0000, 0x1_0000, 2), 0);
    let (status, answer) =
        driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a01, &vec![0xff; static_info]);
    assert_eq!((status, answer.word(4)), (0, 3), "windows");
    let mut ask = |number: u32, raw: Vec<u8>| driver.control(CLIENT, COMMON, number, &raw);
    let (status, answer) = ask(0x73_0102, vec![0xff; 0xc]);
    assert_eq!((status, answer.word(8)), (0, 1), "heads");
    assert_eq!(ask(0x73_0287, vec![0xff; 8]).1.word(4), 1);
    assert_eq!(ask(supported, vec![0xff; 0xc]).1.word(4), 1);
    assert_eq!(ask(active, words(&[0, 0, 0, 7])).1.word(0xc), 0);
    assert_eq!(ask(0x73_1365, vec![0xff; 4]).0, 0);

    let of_output = |size: usize| {
        let mut raw = vec![0; size];
        poke(&mut raw, 4, &words(&[1]));
        raw
    };
    let (status, resource) = ask(0x73_028b, of_output(0x38));
    assert_eq!(
        (status, resource.word(8), resource.word(0xc), resource.word(0x10)),
        (0, 0, 2, 1),
        "SOR 0, TMDS A"
    );
    let (status, connector) = ask(0x73_0250, of_output(0x48));
    assert_eq!((status, connector.word(0x10), connector.word(0x18)), (0, 1, 0x61), "HDMI-A");
    assert_eq!(ask(connected, words(&[0, 0, 3, 0])).1.word(8), 1);
    assert_eq!(ask(0x73_1140, of_output(0x10)).0, 0);
    let (status, edid) = ask(0x73_0245, of_output(0x810));
    assert_eq!((status, edid.word(8), edid.body[0x10 + 127]), (0, 128, 127));
    let (status, assigned) = ask(0x73_1152, of_output(0x50));
    assert_eq!((status, assigned.word(0x18), assigned.word(0x28)), (0, 1, 1), "SOR 0 again");

    let mut taken = of_output(0x50);
    taken[8] = 1;
    assert_eq!(ask(0x73_1152, taken).0, 0x1a, "the resource that is there is excluded");
    for (number, size) in [(0x73_028b, 0x38), (0x73_0245, 0x810)] {
        let mut other = vec![0; size];
        poke(&mut other, 4, &words(&[2]));
        assert_eq!(ask(number, other).0, 0x1f, "there is one output");
    }
    *engine.is_unplugged.lock().unwrap() = true;
    assert_eq!(ask(connected, words(&[0, 0, 1, 0])).1.word(8), 0);
    assert_eq!(ask(0x73_0245, of_output(0x810)).0, 0x40);
    let told = engine.told.lock().unwrap();
    assert_eq!(told.instance, Some(InstanceMemory { address: 0x10_0000, size: 0x1_0000 }));
}

#[test]
fn display_engine_with_a_head_answers_all_that_finds_its_monitor() {
    for version in [&R535, &R570] {
        SPEAKS.set(version);
        asks_about_its_display();
    }
    SPEAKS.set(&R570);
}

#[test]
fn channels_get_their_push_buffers_and_go_with_their_objects() {
    for version in [&R535, &R570] {
        SPEAKS.set(version);
        let (mut driver, engine) = driver();
        for (class, instance, offset) in [(0xc77d, 0, 0), (0xc67e, 1, 0x40), (0xc67b, 0, 0)] {
            let at = PUSH + u64::from(instance) * 0x1000;
            assert_eq!(push_buffer(&mut driver, class, instance, at, 0xfff, 1), 0);
            assert_eq!(channel(&mut driver, class, instance, offset), 0, "{class:#x}");
        }
        assert_eq!(push_buffer(&mut driver, 0xc67a, 0, 0, 0, 0), 0);
        assert_eq!(channel(&mut driver, 0xc67a, 0, 0), 0);
        let name = |kind, instance| ChannelName { kind, instance };
        let at = |address| Some(PhysicalAddress { aperture: Aperture::SystemCoherent, address });
        {
            let told = engine.told.lock().unwrap();
            assert_eq!(
                told.opened[1],
                DisplayChannel {
                    name: name(ChannelKind::Window, 1),
                    buffer: at(PUSH + 0x1000),
                    offset: 0x40
                }
            );
            assert_eq!((told.opened[3].buffer, told.opened[3].name.kind), (None, ChannelKind::Cursor));
        }
        assert_eq!(driver.gsp.display_channels().len(), 4);
        assert_eq!(driver.free(CLIENT, CORE), 0);
        assert_eq!(engine.told.lock().unwrap().closed, [name(ChannelKind::Core, 0)]);
        assert_eq!(driver.free(CLIENT, CLIENT), 0);
        assert_eq!(engine.told.lock().unwrap().closed.len(), 4);
        assert_eq!(driver.gsp.counters().refused, 0);
    }
    SPEAKS.set(&R570);
}

#[test]
fn what_no_channel_can_have_is_refused() {
    let (mut driver, engine) = driver();
    let vram = with_head().vram;
    for (address, size, space) in [
        (0, 0x1000, 2),
        (0, 0x2_0000, 2),
        (vram - 0x1000, 0x1_0000, 2),
        (u64::MAX, 0x2000, 2),
        (0, 0x1_0000, 1),
    ] {
        assert_ne!(instance_memory(&mut driver, address, size, space), 0);
    }
    assert_eq!(channel(&mut driver, 0xc77d, 0, 0), 0x40, "nobody has said where its push buffer is");
    for (class, instance, at, limit, valid) in [
        (0xc77d, 1, PUSH, 0xfff, 1),
        (0xc67e, 2, PUSH, 0xfff, 1),
        (0xc77e, 0, PUSH, 0xfff, 1),
        (0xc77d, 0, PUSH + 4, 0xfff, 1),
        (0xc77d, 0, PUSH, 0x1fff, 1),
        (0xc77d, 0, PUSH, u64::MAX, 1),
    ] {
        assert_ne!(push_buffer(&mut driver, class, instance, at, limit, valid), 0, "{class:#x} {instance}");
    }
    assert_eq!(push_buffer(&mut driver, 0xc77d, 0, PUSH, 0xfff, 1), 0);
    for offset in [2, 0x1000, u32::MAX] {
        assert_ne!(channel(&mut driver, 0xc77d, 0, offset), 0);
    }
    assert_eq!(push_buffer(&mut driver, 0xc77d, 0, 0, 0, 0), 0);
    assert_ne!(channel(&mut driver, 0xc77d, 0, 0), 0, "a core channel has a push buffer");
    assert!(engine.told.lock().unwrap().opened.is_empty());
}

#[test]
fn chips_without_a_head_know_no_channels() {
    for (hal, has_head) in [(&AD104, false), (&AD107, true)] {
        let mut driver = Driver::booted(GspConfig { hal, has_head, ..config() });
        client(&mut driver, CLIENT, true);
        assert_eq!(driver.alloc(CLIENT, DEVICE, ROOT, 0xc770, &[]), INVALID_CLASS);
        assert_eq!(push_buffer(&mut driver, 0xc77d, 0, PUSH, 0xfff, 1), NOT_SUPPORTED);
    }
}

#[test]
fn channels_and_what_was_said_of_them_are_in_a_state() {
    let (mut driver, _) = driver();
    assert_eq!(push_buffer(&mut driver, 0xc77d, 0, PUSH, 0xfff, 1), 0);
    assert_eq!(channel(&mut driver, 0xc77d, 0, 0), 0);
    assert_eq!(push_buffer(&mut driver, 0xc67e, 0, PUSH, 0xfff, 1), 0);
    let state = driver.gsp.state();
    assert_eq!((state.display_buffers.len(), driver.gsp.display_channels().len()), (1, 1));
    let again = Gsp::from_state(&state, with_head()).unwrap();
    assert_eq!((again.state(), again.display_channels()), (state.clone(), driver.gsp.display_channels()));
    let error =
        Gsp::from_state(&state, GspConfig { has_head: false, ..with_head() }).unwrap_err().to_string();
    assert!(error.contains("cannot be where it is"), "{error}");
    let mut wild = state;
    wild.display_buffers[0].name.instance = 9;
    assert!(Gsp::from_state(&wild, with_head()).is_err());
}

/// Makes an event of that index.
fn event(driver: &mut Driver, handle: u32, index: u32) {
    let mut parameters = words(&[CLIENT, 0, 0x7e, index]);
    parameters.resize(0x18, 0);
    assert_eq!(driver.alloc(CLIENT, SUBDEVICE, handle, 0x7e, &parameters), 0);
}

#[test]
fn driver_is_told_of_another_monitor_by_the_event_that_it_has_for_it() {
    let (mut driver, engine) = driver();
    assert!(driver.gsp.replugged(&driver.back).is_empty(), "nobody wants to know");
    event(&mut driver, 0x7e_0000, 0x0400_0001);
    event(&mut driver, 0x7e_0001, 0x0400_0007);
    for (is_unplugged, masks) in [(false, [1, 0]), (true, [0, 1])] {
        *engine.is_unplugged.lock().unwrap() = is_unplugged;
        assert_eq!(driver.gsp.replugged(&driver.back).len(), 1);
        driver.poll();
        let told = driver.events.pop().unwrap();
        assert_eq!((told.function, told.body.len()), (0x1003, 0x28));
        assert_eq!([0, 1, 2, 6].map(|word| told.word(word * 4)), [CLIENT, 0x7e_0000, 1, 8]);
        // Data begin before the end of the structure.
        assert_eq!(told.body[0x1d..0x25], *words(&masks));
    }
}

#[test]
fn events_of_another_monitor_are_few_however_many_a_driver_has() {
    let (mut driver, _) = driver();
    (0..20).for_each(|at| event(&mut driver, 0x7e_0000 + at, 1));
    assert_eq!(driver.gsp.replugged(&driver.back).len(), 8);
}
