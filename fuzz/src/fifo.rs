//! Instance blocks, runlists and the states of a channel: what a GF100's driver leaves in memory for its
//! FIFO, read and checked.

use gpuvmk::chip::gf100::mmu::VA_BITS;
use gpuvmk::chip::stream::MAX_GPFIFO_ENTRIES_LOG2;
use gpuvmk::chip::{Aperture, PhysicalAddress};
use gpuvmk::fifo_virt::{Channel, Effect, INSTANCE_BYTES, Input as Event, InstanceBlock, NotPlaced, Runlist};

use crate::input::Input;

/// Reads an instance block and a runlist, and takes a channel through some states.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let vram = input.near(&[1 << 20, 64 << 20, 1 << 38]);
    let blocks = [block(&mut input, vram), block(&mut input, vram)];
    states(&mut input, &blocks);
    runlist(&mut input);
}

type Block = Result<InstanceBlock, gpuvmk::fifo_virt::InstanceError>;

fn block(input: &mut Input<'_>, vram: u64) -> Block {
    let mut raw = [0; INSTANCE_BYTES];
    // Most of the words that matter; a signature that is right more often than by chance.
    let known = [0x08, 0x0c, 0x48, 0x4c, 0x200, 0x204, 0x210, 0x220, 0x224, 0x230, 0x234, 0x240, 0x244];
    if input.below(8) != 0 {
        raw[0x10..0x14].copy_from_slice(&0xface_u32.to_le_bytes());
    }
    for _ in 0..input.below(24) {
        let at = match input.below(4) {
            0 => usize::from(input.u16()) % (INSTANCE_BYTES - 3),
            _ => input.pick(&known),
        };
        let value = match input.below(4) {
            0 => input.u32().to_le_bytes(),
            _ => {
                let like = input.near(&[0, vram, vram.wrapping_sub(0x1000), 1 << 32, 0x13_0000]);
                let half = if input.flag() { like >> 32 } else { like & 0xffff_ffff };
                u32::try_from(half).expect("32 bits").to_le_bytes()
            }
        };
        raw[at..at + 4].copy_from_slice(&value);
    }
    let parsed = InstanceBlock::parse(&raw, vram);
    match &parsed {
        Ok(block) => check(block, vram),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    parsed
}

fn check(block: &InstanceBlock, vram: u64) {
    let userd = block.userd.0;
    assert!(userd.is_multiple_of(0x1000), "a USERD inside a page");
    assert!(userd.checked_add(0x1000).is_some_and(|end| end <= vram), "a USERD outside the guest's VRAM");
    assert!(block.page_directory.address.is_multiple_of(0x1000));
    assert!(block.gpfifo_entries_log2 <= MAX_GPFIFO_ENTRIES_LOG2);
    let bytes = 8u64 << block.gpfifo_entries_log2;
    let end = block.gpfifo.0.checked_add(bytes);
    assert!(end.is_some_and(|end| end <= 1 << VA_BITS), "a ring outside the address space: {block:?}");
}

/// Every effect is one that the host side can carry out: nothing is done with a host channel that is not
/// there.
fn states(input: &mut Input<'_>, blocks: &[Block; 2]) {
    let mut channel = Channel::default();
    let mut host = None;
    for _ in 0..input.below(32) {
        let place = PhysicalAddress { aperture: Aperture::Vram, address: u64::from(input.below(4)) << 12 };
        let event = match input.below(7) {
            0 => Event::Bind(place),
            1 => Event::Unbind,
            2 | 3 => Event::Start(blocks[usize::from(input.below(2))]),
            4 => Event::Stop,
            5 => Event::Fault,
            _ => Event::Refused,
        };
        if event == Event::Refused {
            // The host side has given the channel up.
            host = None;
        }
        let (next, effects) = channel.step(event);
        for effect in effects {
            match effect {
                Effect::Create(block) => assert!(host.replace(block).is_none(), "a second host channel"),
                Effect::Destroy(block) => {
                    let gone = host.take().expect("a host channel to destroy");
                    assert_eq!(
                        InstanceBlock { engines: block.engines, ..gone },
                        block,
                        "another channel is destroyed"
                    );
                }
                Effect::SetEngines(_) | Effect::Enable | Effect::Disable => {
                    assert!(host.is_some(), "{effect:?} without a host channel");
                }
            }
        }
        channel = next;
        assert_eq!(channel.placed().is_some(), host.is_some(), "{channel:?}");
        if let Channel::NotPlaced { why: NotPlaced::Instance(error), .. } = channel {
            assert!(!error.to_string().is_empty());
        }
    }
}

fn runlist(input: &mut Input<'_>) {
    let granted = u16::from(input.u8());
    let count = if input.flag() { input.u32() } else { u32::from(input.u8()) };
    let most = Runlist::bytes_to_read(count, granted);
    assert!(most <= usize::from(granted) * 16, "more is read than a guest's channels can need");
    let mut raw = Vec::new();
    while input.more() && raw.len() < most {
        let (id, kind) =
            if input.below(8) == 0 { (input.u32(), input.u32()) } else { (input.u8().into(), 4) };
        raw.extend(id.to_le_bytes());
        raw.extend(kind.to_le_bytes());
    }
    let list = Runlist::parse(&raw, count, granted);
    let mut ids: Vec<u16> = list.channels.iter().map(|id| id.0).collect();
    assert!(ids.iter().all(|id| *id < granted), "a channel that was not granted is listed");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), list.channels.len(), "a channel is listed twice");
}
