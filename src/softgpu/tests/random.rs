//! Anything may be in rings, push buffers, page tables, instance blocks and images: the core neither panics
//! nor hangs, and a channel beside goes on.

use proptest::prelude::*;

use super::commands::*;
use super::rig::*;
use gpuvmk_backend::{Backend, EngineBackend};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::gf100::ramin::{GRAPHICS_CONTEXT_LO, PAGE_DIRECTORY_LO};

const VA: u64 = 0x4000_0000;

/// Words that are headers of known methods more often than not.
fn word() -> impl Strategy<Value = u32> {
    let class = prop_oneof![
        Just(0x9039u32),
        Just(0x90b5),
        Just(0x90b8),
        Just(0x9097),
        Just(0x90c0),
        Just(0x902d),
        Just(0x1f_906e)
    ];
    let method = prop_oneof![
        Just(0u32),
        Just(0x10),
        Just(0x1c),
        Just(0x20),
        Just(0x50),
        Just(0x80),
        0x200u32..0x350,
        Just(0x300),
        Just(0x304),
        Just(0x1b0c),
        0u32..0x4000
    ];
    let header = (prop_oneof![Just(1u32), Just(3), Just(4), Just(5), 0u32..8], 0u32..9, 0u32..8, method)
        .prop_map(|(op, count, subchannel, method)| op << 29 | count << 16 | subchannel << 13 | method >> 2);
    let address = (0u32..0x1_0000).prop_map(|offset| VA as u32 + offset);
    prop_oneof![
        4 => header,
        2 => class,
        2 => address,
        2 => 0u32..0x4000,
        1 => any::<u32>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn random_streams_and_tables_harm_nobody(
        streams in prop::collection::vec(prop::collection::vec(word(), 1..200), 1..4),
        entries in prop::collection::vec(any::<u64>(), 0..3),
        tables in prop::collection::vec((0u64..0x2_0000, any::<u64>()), 0..40),
        ptes in prop::collection::vec(any::<u64>(), 0..16),
        ramfc in prop::collection::vec((0u64..0x80, any::<u32>()), 0..4),
        image in prop::collection::vec((0u64..0x200, any::<u32>()), 0..6),
        context in prop::option::of(any::<u64>()),
        directory in prop::option::of(any::<u64>()),
    ) {
        let rig = Rig::with_vram(32 << 20);
        let mut space = rig.space();
        let memory = rig.alloc(0x1_0000);
        rig.map(&mut space, VA, vram(memory), 0x1_0000);
        for (index, pte) in ptes.iter().enumerate() {
            let entry = rig.pte_address(&mut space, VA + index as u64 * 0x1000, 12);
            // Half of them stay inside memory.
            let pte = if pte % 2 == 0 { pte & 0xff_0000_0000 | 1 | (memory >> 8) } else { *pte };
            rig.write_u64(entry, pte);
        }
        for (offset, word) in &tables {
            rig.write_u64(space.directory + (offset & !7) / 2, *word);
        }
        let mut channel = rig.unlisted_channel(1, &mut space);
        for (index, word) in &ramfc {
            rig.write_u32(channel.instance + index * 4, *word);
        }
        for (index, word) in &image {
            rig.write_u32(channel.graphics_image + index * 4, *word);
        }
        if let Some(context) = context {
            rig.write_u64(channel.instance + GRAPHICS_CONTEXT_LO, context);
        }
        if let Some(directory) = directory {
            rig.write_u64(channel.instance + PAGE_DIRECTORY_LO, directory);
        }
        for stream in &streams {
            rig.prepare(&mut channel, stream);
        }
        for entry in &entries {
            rig.prepare_entry(&mut channel, *entry);
        }
        let mut beside_space = rig.space();
        let page = rig.alloc(0x1000);
        rig.map(&mut beside_space, VA, vram(page), 0x1000);
        let mut beside = rig.channel(2, &mut beside_space);

        rig.core.enable_channel(GuestChannel(1), true);
        rig.list(1);
        rig.ring_doorbell(&channel);
        // Random addresses may hit anything in VRAM, the other channel's tables too: it is only asked to end.
        rig.submit(&mut beside, &semaphore(VA, 1, 2));
        rig.core.preempt_channel(GuestChannel(1));
        rig.wait(|| !rig.core.preempt_pending());
        rig.core.bind_channel(GuestChannel(1), None);
        rig.core.reset();
        rig.core.set_fifo_state(Rig::running());

        // A new driver finds a working core.
        let mut space = rig.space();
        let page = rig.alloc(0x1000);
        rig.map(&mut space, VA, vram(page), 0x1000);
        let mut channel = rig.channel(3, &mut space);
        rig.write(channel.graphics_image, &[0; 0x2000]);
        rig.run(&mut channel, &m2mf_copy(VA, VA + 0x100, 64, 64, 1));
    }
}
