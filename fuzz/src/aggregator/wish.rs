//! What tenants ask for: numbers that exist, that are next to those that exist, and any.

use std::time::Duration;

use gpuvmk::addr::{Gpa, GpuVa, GuestChannel, GuestVram};
use gpuvmk::aggregator::protocol::{
    GuestMapping, GuestRange, GuestTarget, Hello, PROTOCOL_VERSION, Request, SpaceId, TenantLimits,
};
use gpuvmk::aggregator::wire::decode_request;
use gpuvmk::chip::{Chip, Engine, EngineSet};
use gpuvmk::scheduler::share::Share;

use super::books::MIB;
use super::judge_gpu::PARTITION;
use crate::input::Input;

pub(super) fn hello(input: &mut Input<'_>, hopper: bool, number: usize) -> Hello {
    let chip = if hopper == (input.below(32) == 1) { Chip::GF100 } else { Chip::GH100 };
    let name = match input.below(8) {
        7 => String::from_utf8_lossy(input.bytes(70)).into_owned(),
        _ => format!("vm{}-{}", number, input.u8()),
    };
    Hello {
        version: if input.below(32) == 1 { input.u32() } else { PROTOCOL_VERSION },
        name,
        chip: chip.into(),
        vram: if input.below(8) == 7 { input.near(&[0, PARTITION, 8 * PARTITION]) } else { PARTITION },
        channels: if input.below(8) == 7 { input.u16() } else { 4 },
        share: share(input),
        limits: limits(input),
    }
}

fn share(input: &mut Input<'_>) -> Share {
    let usual = Share::default();
    if input.below(8) != 7 {
        return usual;
    }
    let percent = |byte: u8| (byte != 0).then_some(byte);
    Share {
        weight: input.u32(),
        cap: percent(input.u8()),
        fixed: percent(input.u8()),
        period: Duration::from_micros(input.u32().into()),
        budget: Duration::from_micros(input.u32().into()),
    }
}

fn limits(input: &mut Input<'_>) -> TenantLimits {
    if input.below(8) != 7 {
        return TenantLimits::default();
    }
    TenantLimits {
        page_tables: input.near(&[0, 4096, 1 << 16]),
        mappings: input.near(&[0, 16, 1 << 12]),
        doorbells: input.u32(),
        thread_time: input.u8(),
        memory_ranges: input.u32(),
    }
}

/// A channel or space number.
pub(super) fn id(input: &mut Input<'_>) -> u16 {
    if input.below(16) == 15 { input.u16() } else { input.below(6).into() }
}

fn gpa(input: &mut Input<'_>) -> u64 {
    input.near(&[0, MIB, 16 * MIB, 1 << 32, 1 << 40])
}

fn size(input: &mut Input<'_>) -> u64 {
    input.near(&[0x1000, MIB, 16 * MIB, 1 << 37])
}

fn va(input: &mut Input<'_>) -> u64 {
    input.near(&[0, 2 * MIB, 1 << 29, 1 << 39, 1 << 40, 1 << 57])
}

fn shape(input: &mut Input<'_>) -> (u32, u8) {
    let pages = match input.below(8) {
        7 => input.u32(),
        6 => u32::from(input.u16()),
        _ => u32::from(input.below(32)),
    };
    let shift = if input.below(16) == 15 { input.u8() } else { input.pick(&[12, 12, 12, 16, 17, 21, 29]) };
    (pages, shift)
}

fn mapping(input: &mut Input<'_>) -> GuestMapping {
    let (pages, page_shift) = shape(input);
    let target = match input.below(3) {
        0 => GuestTarget::Vram(GuestVram(input.near(&[0, PARTITION - 0x1000, PARTITION, MIB, 1 << 21]))),
        1 => GuestTarget::Vram(GuestVram(u64::from(input.u8()) << 17)),
        _ => GuestTarget::System { address: Gpa(gpa(input)), coherent: input.flag() },
    };
    let va = if input.flag() { u64::from(input.u8()) << page_shift.min(40) } else { va(input) };
    GuestMapping { va: GpuVa(va), pages, page_shift, target, read_only: input.flag(), kind: input.u8() }
}

fn engines(input: &mut Input<'_>) -> EngineSet {
    input.pick(&[
        EngineSet::GRAPHICS,
        EngineSet::COPY0,
        EngineSet::COPY1,
        EngineSet::GRAPHICS | EngineSet::COPY0,
        EngineSet::empty(),
        EngineSet::all(),
    ])
}

/// A request; `None` when the bytes are none.
pub(super) fn request(input: &mut Input<'_>) -> Option<Request> {
    Some(match input.below(20) {
        0 => return decode_request(input.bytes(200)).ok(),
        1 | 2 => {
            let offset = input.near(&[0, 0x1000]);
            Request::DmaMap { gpa: Gpa(gpa(input)), size: size(input), offset, writable: input.flag() }
        }
        3 => Request::DmaUnmap { gpa: Gpa(gpa(input)), size: size(input) },
        4 => Request::CreateSpace(SpaceId(id(input))),
        5 => Request::DestroySpace(SpaceId(id(input))),
        6..=9 => {
            let space = SpaceId(id(input));
            let unmap = (0..input.below(4)).map(|_| range(input)).collect();
            let map = (0..input.below(6)).map(|_| mapping(input)).collect();
            Request::UpdateSpace { space, unmap, map }
        }
        10 | 11 => Request::CreateChannel {
            context_of: (input.below(4) == 3).then(|| GuestChannel(id(input))),
            channel: GuestChannel(id(input)),
            space: SpaceId(id(input)),
            gpfifo: GpuVa(input.near(&[0x1000, 1 << 39, 1 << 40, 1 << 57])),
            gpfifo_entries_log2: if input.below(8) == 7 { input.u8() } else { 6 },
            userd: GuestVram(input.near(&[0, 0x1000, 0x1200, PARTITION - 0x200, PARTITION])),
            engines: engines(input),
        },
        12 => Request::DestroyChannel(GuestChannel(id(input))),
        13 => Request::SetEngines { channel: GuestChannel(id(input)), engines: engines(input) },
        14 => {
            let class = if input.flag() { input.u32() } else { input.pick(&[0xc8b5, 0xcbc0, 0x90b5]) };
            let engine = input.pick(&[Engine::Graphics, Engine::COPY0, Engine::COPY1, Engine::COPY9]);
            Request::CreateObject { channel: GuestChannel(id(input)), class, engine }
        }
        15 | 16 => Request::EnableChannel { channel: GuestChannel(id(input)), enabled: input.below(4) != 3 },
        17 => {
            let list = (0..input.below(8)).map(|_| GuestChannel(id(input))).collect();
            Request::SetRunlist(list)
        }
        18 => Request::Preempt(GuestChannel(id(input))),
        _ => Request::Reset { scrub: input.flag() },
    })
}

fn range(input: &mut Input<'_>) -> GuestRange {
    let (pages, page_shift) = shape(input);
    GuestRange { va: GpuVa(va(input)), pages, page_shift }
}
