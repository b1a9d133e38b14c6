//! Accesses of every size to every place: nothing panics, nothing outside the regions is served.

use proptest::prelude::*;

use super::*;
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, GraphicsError, HostError, MmuFault};
use gpuvmk_chip::{AccessKind, Engine, FaultReason};
use gpuvmk_pci::AccessError;

#[test]
fn accesses_outside_the_regions_are_refused() {
    let gpu = Gpu::new();
    let mut data = [0; 8];
    for (region, offset) in [
        (Region::Bar(0), 0xff_fffc),
        (Region::Bar(1), u64::MAX),
        (Region::Bar(3), 64 << 20),
        (Region::Config, 4092),
        (Region::Bar(5), 124),
    ] {
        let result = gpu.function.read(region, offset, &mut data);
        assert!(matches!(result, Err(AccessError::OutOfRange { .. })), "{region:?} {offset:#x}");
        assert!(gpu.function.write(region, offset, &data).is_err());
    }
    for region in [Region::Bar(2), Region::Bar(4), Region::Rom] {
        assert_eq!(gpu.function.read(region, 0, &mut data), Err(AccessError::NoRegion(region)));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Read(Region, u64, usize),
    Write(Region, u64, Vec<u8>),
    Event(u8, u16, u32, u32),
    Reset,
}

/// Places where something happens.
const HOT: &[u32] = &[
    0x100, 0x140, 0x200, 0x204, 0x640, 0x1700, 0x1704, 0x1714, 0x2100, 0x2140, 0x2200, 0x2254, 0x2270,
    0x2274, 0x259c, 0x25a8, 0x2628, 0x2630, 0x2634, 0x2640, 0x2a30, 0x3000, 0x3004, 0x33f8, 0x33fc, 0x9100,
    0x9140, 0x9400, 0x9410, 0x9420, 0x40108, 0x4010c, 0x88004, 0x88068, 0x88080, 0x88704, 0x100c80, 0x100cb8,
    0x100cbc, 0x104100, 0x104184, 0x10a100, 0x300000, 0x3ffffc, 0x400100, 0x409000, 0x409100, 0x409184,
    0x4091c0, 0x4091c4, 0x409500, 0x409504, 0x409b04, 0x41a184, 0x6ffffc, 0x700000, 0x7ffffc,
];

fn region() -> impl Strategy<Value = Region> {
    prop_oneof![
        8 => Just(Region::Bar(0)),
        2 => Just(Region::Bar(1)),
        2 => Just(Region::Bar(3)),
        1 => Just(Region::Config),
        1 => Just(Region::Bar(5)),
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

/// Data whose words are often meaningful: single bits, enables, page numbers inside VRAM.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        (0u32..32).prop_map(|bit| 1 << bit),
        Just(u32::MAX),
        Just(0),
        (0u32..0x2000).prop_map(|page| 0x8000_0000 | page),
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
        1 => (any::<u8>(), any::<u16>(), any::<u32>(), any::<u32>())
            .prop_map(|(kind, channel, a, b)| Step::Event(kind, channel, a, b)),
        1 => Just(Step::Reset),
    ]
}

fn event(gpu: &Gpu, kind: u8, channel: u16, a: u32, b: u32) {
    let events = gpu.back.events();
    match kind % 5 {
        0 => events.non_stall(Engine::ALL[usize::from(kind) % Engine::COUNT]),
        1 => events.stopped(ChannelStop::new(
            GuestChannel(channel),
            MmuFault {
                unit: FaultUnit::Engine(Engine::ALL[usize::from(kind) % Engine::COUNT]),
                address: GpuVa(u64::from(a) << 32 | u64::from(b)),
                access: AccessKind::Read,
                reason: FaultReason::PageNotPresent,
            },
        )),
        2 => events.stopped(ChannelStop::new(
            GuestChannel(channel),
            HostError { pbdma: kind, status: a, method: b, data: a },
        )),
        3 => events.stopped(ChannelStop::new(
            GuestChannel(channel),
            GraphicsError { status: a, subchannel: kind, class: channel, method: channel, data: b },
        )),
        _ => events.patch_register(a, b),
    }
}

proptest! {
    #[test]
    fn random_accesses_never_panic(steps in prop::collection::vec(step(), 1..300)) {
        let gpu = Gpu::new();
        for step in steps {
            match step {
                Step::Read(region, offset, len) => {
                    let _ = gpu.function.read(region, offset, &mut vec![0; len]);
                }
                Step::Write(region, offset, data) => {
                    let _ = gpu.function.write(region, offset, &data);
                }
                Step::Event(kind, channel, a, b) => event(&gpu, kind, channel, a, b),
                Step::Reset => gpu.function.reset(),
            }
            gpu.back.calls();
        }
        gpu.back.calls();
        let gpu = gpu.restored();
        gpu.function.reset();
        prop_assert_eq!(gpu.rd(0), 0x0c00_00a3);
        prop_assert_eq!(gpu.rd(0x100), 0);
    }
}
