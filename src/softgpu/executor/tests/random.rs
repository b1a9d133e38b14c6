//! Anything may be in rings and command streams: the executor neither panics nor hangs, leaves the host's
//! memory and everybody else's alone, and a channel beside goes on.

use proptest::prelude::*;

use super::rig::*;
use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::{HostVram, TenantId};
use gpuvmk_gpu::{GpuDriver, GpuDriverExt as _};

const VA: u64 = 0x4000_0000;
const SIZE: u64 = 0x4_0000;

/// Words that are headers of known methods more often than not.
fn word() -> impl Strategy<Value = u32> {
    let class =
        prop_oneof![Just(0xc8b5u32), Just(0xcbc0), Just(0xcb97), Just(0xa140), Just(0x902d), Just(0xc86f)];
    let method = prop_oneof![
        Just(0u32),
        0x5cu32..0x70,
        0x20u32..0x38,
        0x78u32..0x88,
        0x158u32..0x16c,
        0x180u32..0x200,
        Just(0x1b4),
        0x240u32..0x264,
        Just(0x300),
        0x400u32..0x420,
        0x700u32..0x754,
        0x1b00u32..0x1b10,
        0u32..0x4000
    ];
    let operation = prop_oneof![8 => Just(1u32), 2 => Just(3), 2 => Just(4), 2 => Just(5), 1 => 0u32..8];
    let header = (operation, 0u32..9, 0u32..8, method)
        .prop_map(|(op, count, subchannel, method)| op << 29 | count << 16 | subchannel << 13 | method >> 2);
    let launch = (0u32..4, any::<u16>()).prop_map(|(kind, bits)| kind | u32::from(bits) << 3 & 0x78f8);
    let address = (0u32..SIZE as u32).prop_map(|offset| VA as u32 + offset);
    prop_oneof![
        6 => header,
        2 => class,
        3 => address,
        2 => launch,
        2 => 0u32..0x400,
        2 => Just(0u32),
        1 => any::<u32>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn random_streams_harm_nobody(
        streams in prop::collection::vec(prop::collection::vec(word(), 1..300), 1..4),
        entries in prop::collection::vec(any::<u64>(), 0..3),
        engines in prop::sample::select(vec![graphics(), EngineSet::COPY1, EngineSet::COPY2]),
    ) {
        const ME: TenantId = TenantId(1);
        let mut rig = Rig::new();
        let ledger = rig.gpu.ledger();
        let space = rig.space();
        let memory = rig.buffer(space, VA, SIZE);
        let mut channel = rig.idle_channel(space, engines);
        for (start, size) in
            [(memory, SIZE), (channel.ring, 0x1000), (channel.push, 256 << 10), (channel.userd, 0x200)]
        {
            ledger.own_vram(HostVram(start), size, Some(ME));
        }
        ledger.own_channel(channel.id, Some(ME));
        // Only now: a channel that runs reads its USERD, told of work or not.
        rig.start(&channel);
        let beside = rig.space();
        let report = rig.buffer(beside, VA, 0x1000);
        let mut witness = rig.channel(beside, engines);

        for stream in &streams {
            rig.prepare(&mut channel, stream);
        }
        for entry in &entries {
            rig.prepare_entry(&mut channel, *entry);
        }
        rig.ring_doorbell(&channel);
        for round in 1..4u64 {
            let words = [copy_lines(VA, VA + 0x100, 0, 64, 1, 0), semaphore(VA, round, 1)].concat();
            rig.run(&mut witness, &words);
            prop_assert_eq!(u64::from(rig.read_u32(report)), round);
        }
        rig.gpu.destroy_channel(channel.id).unwrap();
        rig.gpu.destroy_space(space).unwrap();
        prop_assert!(!rig.errors().contains_key(&witness.id));
        prop_assert_eq!(ledger.foreign_accesses(ME), 0);
    }
}
