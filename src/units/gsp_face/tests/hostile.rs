//! Accesses of every size to every place: nothing panics, nothing outside the regions is served.

use super::RAM;
use proptest::prelude::*;

use super::driver::Driver;
use super::*;
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, GraphicsError, HostError, MmuFault, StopCause};
use gpuvmk_chip::{AccessKind, Engine, FaultReason};
use gpuvmk_pci::AccessError;

#[test]
fn accesses_outside_the_regions_are_refused() {
    let gpu = Gpu::new();
    let mut data = [0; 8];
    for (region, offset) in [
        (Region::Bar(0), 0xff_fffc),
        (Region::Bar(1), u64::MAX),
        (Region::Bar(3), 32 << 20),
        (Region::Config, 4092),
    ] {
        let result = gpu.function.read(region, offset, &mut data);
        assert!(matches!(result, Err(AccessError::OutOfRange { .. })), "{region:?} {offset:#x}");
        assert!(gpu.function.write(region, offset, &data).is_err());
    }
    for region in [Region::Bar(2), Region::Bar(4), Region::Bar(5), Region::Rom] {
        assert_eq!(gpu.function.read(region, 0, &mut data), Err(AccessError::NoRegion(region)));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Read(Region, u64, usize),
    Write(Region, u64, Vec<u8>),
    Memory(u64, Vec<u8>),
    Event(u8, u16, u32),
    Boot(u64),
    Reset,
}

/// Places where something happens.
const HOT: &[u32] = &[
    0x0, 0x4, 0x9140, 0x9400, 0x9410, 0x7_0000, 0x10_0a34, 0x10_fd40, 0x11_0004, 0x11_0008, 0x11_0040,
    0x11_00f4, 0x11_03e8, 0x11_0c00, 0x11_0c08, 0x11_1388, 0x11_83a4, 0x70_0000, 0x7f_fffc, 0x8f_2ac0,
    0x8f_2ac4, 0x8f_2c00, 0x8f_2c04, 0x8f_2c80, 0x8f_2c84, 0xb8_1000, 0xb8_1004, 0xb8_100c, 0xb8_103c,
    0xb8_1204, 0xb8_120c, 0xb8_1404, 0xb8_1600, 0xb8_1608, 0xb8_1610, 0xb8_30a0, 0xb8_30a4, 0xb8_30b0,
    0xbb_0080, 0xbb_0090,
];

fn region() -> impl Strategy<Value = Region> {
    prop_oneof![
        8 => Just(Region::Bar(0)),
        2 => Just(Region::Bar(1)),
        2 => Just(Region::Bar(3)),
        1 => Just(Region::Config),
        1 => Just(Region::Rom),
    ]
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => (prop::sample::select(HOT), 0u64..4).prop_map(|(hot, lane)| u64::from(hot) + lane),
        2 => 0u64..0x100_0000,
        1 => 0u64..0x1000,
        1 => any::<u64>(),
    ]
}

/// Data whose words are often meaningful: single bits, small numbers, triggers.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        (0u32..32).prop_map(|bit| 1 << bit),
        Just(u32::MAX),
        Just(0),
        (0u32..0x400).prop_map(|number| 0x8000_0000 | number),
        0u32..0x1000,
        any::<u32>(),
    ];
    prop_oneof![
        4 => word.clone().prop_map(|word| word.to_le_bytes().to_vec()),
        1 => (word.clone(), word).prop_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()].concat()),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (region(), offset(), 0usize..12).prop_map(|(region, offset, len)| Step::Read(region, offset, len)),
        8 => (region(), offset(), data()).prop_map(|(region, offset, data)| Step::Write(region, offset, data)),
        // The queues and arguments of the driver.
        2 => (0u64..0x9_2000, data()).prop_map(|(offset, data)| Step::Memory(offset, data)),
        1 => (any::<u8>(), any::<u16>(), any::<u32>()).prop_map(|(kind, channel, a)| Step::Event(kind, channel, a)),
        1 => prop_oneof![Just(RAM + 0x2000), Just(0), any::<u64>()].prop_map(Step::Boot),
        1 => Just(Step::Reset),
    ]
}

fn event(gpu: &Gpu, kind: u8, channel: u16, a: u32) {
    let events = gpu.back.events();
    match kind % 6 {
        0 => events.non_stall(Engine::ALL[usize::from(kind) % Engine::COUNT]),
        1 => events.stopped(ChannelStop::new(
            GuestChannel((a != 0).then_some(channel).unwrap()),
            MmuFault {
                unit: FaultUnit::Engine(Engine::ALL[usize::from(kind) % Engine::COUNT]),
                address: GpuVa(u64::from(a) << 32),
                access: AccessKind::Read,
                reason: FaultReason::PageNotPresent,
            },
        )),
        2 => events.stopped(ChannelStop::new(
            GuestChannel(channel),
            HostError { pbdma: kind, status: a, method: a, data: a },
        )),
        3 => events.stopped(ChannelStop::new(
            GuestChannel(channel),
            GraphicsError { status: a, subchannel: kind, class: channel, method: channel, data: a },
        )),
        4 => events.stopped(ChannelStop::new(GuestChannel(channel), StopCause::Manager(a))),
        _ => events.patch_register(a, a),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_accesses_never_panic(steps in prop::collection::vec(step(), 1..200)) {
        let gpu = Gpu::new();
        let driver = Driver::booted(&gpu);
        for step in steps {
            match step {
                Step::Read(region, offset, len) => {
                    let _ = gpu.function.read(region, offset, &mut vec![0; len]);
                }
                Step::Write(region, offset, data) => {
                    let _ = gpu.function.write(region, offset, &data);
                }
                Step::Memory(offset, data) => gpu.back.put_ram(offset, &data),
                Step::Event(kind, channel, a) => event(&gpu, kind, channel, a),
                Step::Boot(arguments) => {
                    gpu.wr(0x8f_2c00, 0);
                    gpu.wr(0x8f_2c04, 0);
                    driver.send_fsp(arguments);
                }
                Step::Reset => gpu.function.reset(),
            }
            gpu.back.calls();
        }
        let gpu = gpu.restored();
        gpu.function.reset();
        prop_assert_eq!(gpu.rd(0), 0x1800_00a1);
        prop_assert_eq!(gpu.rd(0xb8_1600), 0);
    }
}
