//! Requests as bytes.

use std::time::Duration;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Head, MAX_CHIP, MAX_NAME, MAX_RUNLIST, WireError, bounded, engine, engines, flag, id, kind, split_head,
};
use crate::protocol::{
    GuestMapping, GuestRange, GuestTarget, Hello, MAX_UPDATE_RUNS, Request, SpaceId, TenantLimits,
};
use gpuvmk_chip::addr::{Gpa, GpuVa, GuestChannel, GuestVram};
use gpuvmk_scheduler::share::Share;

/// No request is longer than this.
pub const MAX_REQUEST_BYTES: usize = size_of::<Head>() + MAX_UPDATE_RUNS * size_of::<WireMapping>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct WireHello {
    version: U32,
    weight: U32,
    period_us: U32,
    budget_us: U32,
    vram: U64,
    channels: U16,
    name_length: u8,
    chip_length: u8,
    doorbells: U32,
    name: [u8; MAX_NAME],
    chip: [u8; MAX_CHIP],
    page_tables: U64,
    mappings: U64,
    thread_time: u8,
    /// In percent; zero is none.
    cap: u8,
    fixed: u8,
    reserved: u8,
    memory_ranges: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct WireMemory {
    gpa: U64,
    size: U64,
    offset: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct WireRange {
    va: U64,
    pages: U32,
    page_shift: u8,
    reserved: [u8; 3],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct WireMapping {
    va: U64,
    target: U64,
    pages: U32,
    page_shift: u8,
    flags: u8,
    kind: u8,
    reserved: u8,
}

const FLAG_SYSTEM: u8 = 1 << 0;
const FLAG_COHERENT: u8 = 1 << 1;
const FLAG_READ_ONLY: u8 = 1 << 2;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct WireChannel {
    gpfifo: U64,
    userd: U64,
    engines: U64,
    space: U16,
    gpfifo_entries_log2: u8,
    reserved: u8,
    /// The channel's number and 1; 0: none.
    context_of: U32,
}

const _: () = assert!(size_of::<WireHello>() == 136);
const _: () = assert!(size_of::<WireRange>() == 16);
const _: () = assert!(size_of::<WireMapping>() == 24);
const _: () = assert!(size_of::<WireChannel>() == 32);

/// Writes `request` into `out`, which is emptied first.
pub fn encode_request(request: &Request, out: &mut Vec<u8>) {
    out.clear();
    let mut head = |kind, first, second| out.extend_from_slice(Head::new(kind, first, second).as_bytes());
    match request {
        Request::Hello(hello) => {
            head(kind::HELLO, 0, 0);
            out.extend_from_slice(wire_hello(hello).as_bytes());
        }
        Request::DmaMap { gpa, size, offset, writable } => {
            head(kind::DMA_MAP, u32::from(*writable), 0);
            let memory = WireMemory { gpa: gpa.0.into(), size: (*size).into(), offset: (*offset).into() };
            out.extend_from_slice(memory.as_bytes());
        }
        Request::DmaUnmap { gpa, size } => {
            head(kind::DMA_UNMAP, 0, 0);
            let memory = WireMemory { gpa: gpa.0.into(), size: (*size).into(), offset: 0.into() };
            out.extend_from_slice(memory.as_bytes());
        }
        Request::CreateSpace(space) => head(kind::CREATE_SPACE, space.0.into(), 0),
        Request::DestroySpace(space) => head(kind::DESTROY_SPACE, space.0.into(), 0),
        Request::UpdateSpace { space, unmap, map } => {
            let counts = u32::try_from(unmap.len().min(0xffff)).unwrap_or(0) << 16
                | u32::try_from(map.len().min(0xffff)).unwrap_or(0);
            head(kind::UPDATE_SPACE, space.0.into(), counts);
            for range in unmap {
                out.extend_from_slice(wire_range(range).as_bytes());
            }
            for mapping in map {
                out.extend_from_slice(wire_mapping(mapping).as_bytes());
            }
        }
        Request::CreateChannel {
            channel,
            space,
            gpfifo,
            gpfifo_entries_log2,
            userd,
            engines,
            context_of,
        } => {
            head(kind::CREATE_CHANNEL, channel.0.into(), 0);
            let wire = WireChannel {
                gpfifo: gpfifo.0.into(),
                userd: userd.0.into(),
                engines: engines.bits().into(),
                space: space.0.into(),
                gpfifo_entries_log2: *gpfifo_entries_log2,
                reserved: 0,
                context_of: context_of.map_or(0, |channel| u32::from(channel.0).saturating_add(1)).into(),
            };
            out.extend_from_slice(wire.as_bytes());
        }
        Request::DestroyChannel(channel) => head(kind::DESTROY_CHANNEL, channel.0.into(), 0),
        Request::SetEngines { channel, engines } => {
            head(kind::SET_ENGINES, channel.0.into(), 0);
            out.extend_from_slice(U64::new(engines.bits()).as_bytes());
        }
        Request::CreateObject { channel, class, engine } => {
            head(kind::CREATE_OBJECT, channel.0.into(), *class);
            out.extend_from_slice(U32::new(engine.place().into()).as_bytes());
        }
        Request::EnableChannel { channel, enabled } => {
            head(kind::ENABLE_CHANNEL, channel.0.into(), u32::from(*enabled));
        }
        Request::SetRunlist(channels) => {
            head(kind::SET_RUNLIST, u32::try_from(channels.len()).unwrap_or(u32::MAX), 0);
            for channel in channels {
                out.extend_from_slice(U16::new(channel.0).as_bytes());
            }
        }
        Request::Preempt(channel) => head(kind::PREEMPT, channel.0.into(), 0),
        Request::MessageEvent { given } => head(kind::MESSAGE_EVENT, u32::from(*given), 0),
        Request::Reset { scrub } => head(kind::RESET, u32::from(*scrub), 0),
    }
}

/// Reads a request.
///
/// # Errors
/// The datagram is not one.
pub fn decode_request(bytes: &[u8]) -> Result<Request, WireError> {
    let (head, body) = split_head(bytes)?;
    let kind = head.kind.get();
    let length = WireError::Length { kind, got: bytes.len() };
    let empty = |request| if body.is_empty() { Ok(request) } else { Err(length) };
    let channel = || id(head.first.get(), kind, "channel number").map(GuestChannel);
    let space = || id(head.first.get(), kind, "space number").map(SpaceId);
    match kind {
        kind::HELLO => {
            let wire = WireHello::read_from_bytes(body).map_err(|_| length)?;
            Ok(Request::Hello(Hello {
                version: wire.version.get(),
                name: text(&wire.name, wire.name_length, kind, "name")?,
                chip: text(&wire.chip, wire.chip_length, kind, "chip name")?.into(),
                vram: wire.vram.get(),
                channels: wire.channels.get(),
                share: Share {
                    weight: wire.weight.get(),
                    cap: (wire.cap != 0).then_some(wire.cap),
                    fixed: (wire.fixed != 0).then_some(wire.fixed),
                    period: Duration::from_micros(wire.period_us.get().into()),
                    budget: Duration::from_micros(wire.budget_us.get().into()),
                },
                limits: TenantLimits {
                    page_tables: wire.page_tables.get(),
                    mappings: wire.mappings.get(),
                    doorbells: wire.doorbells.get(),
                    thread_time: wire.thread_time,
                    memory_ranges: wire.memory_ranges.get(),
                },
            }))
        }
        kind::DMA_MAP => {
            let wire = WireMemory::read_from_bytes(body).map_err(|_| length)?;
            Ok(Request::DmaMap {
                gpa: Gpa(wire.gpa.get()),
                size: wire.size.get(),
                offset: wire.offset.get(),
                writable: flag(head.first.get(), kind, "writable flag")?,
            })
        }
        kind::DMA_UNMAP => {
            let wire = WireMemory::read_from_bytes(body).map_err(|_| length)?;
            Ok(Request::DmaUnmap { gpa: Gpa(wire.gpa.get()), size: wire.size.get() })
        }
        kind::CREATE_SPACE => empty(Request::CreateSpace(space()?)),
        kind::DESTROY_SPACE => empty(Request::DestroySpace(space()?)),
        kind::UPDATE_SPACE => decode_update(&head, body, length),
        kind::CREATE_CHANNEL => {
            let wire = WireChannel::read_from_bytes(body).map_err(|_| length)?;
            Ok(Request::CreateChannel {
                channel: channel()?,
                space: SpaceId(wire.space.get()),
                gpfifo: GpuVa(wire.gpfifo.get()),
                gpfifo_entries_log2: wire.gpfifo_entries_log2,
                userd: GuestVram(wire.userd.get()),
                engines: engines(wire.engines.get(), kind)?,
                context_of: match wire.context_of.get() {
                    0 => None,
                    number => Some(GuestChannel(id(number.saturating_sub(1), kind, "channel number")?)),
                },
            })
        }
        kind::DESTROY_CHANNEL => empty(Request::DestroyChannel(channel()?)),
        kind::SET_ENGINES => {
            let wire = U64::read_from_bytes(body).map_err(|_| length)?;
            Ok(Request::SetEngines { channel: channel()?, engines: engines(wire.get(), kind)? })
        }
        kind::CREATE_OBJECT => {
            let wire = U32::read_from_bytes(body).map_err(|_| length)?;
            let engine = engine(wire.get(), kind)?;
            Ok(Request::CreateObject { channel: channel()?, class: head.second.get(), engine })
        }
        kind::ENABLE_CHANNEL => empty(Request::EnableChannel {
            channel: channel()?,
            enabled: flag(head.second.get(), kind, "start bit")?,
        }),
        kind::SET_RUNLIST => {
            let count = bounded(u64::from(head.first.get()), MAX_RUNLIST, kind)?;
            let channels = <[U16]>::ref_from_bytes_with_elems(body, count).map_err(|_| length)?;
            Ok(Request::SetRunlist(channels.iter().map(|c| GuestChannel(c.get())).collect()))
        }
        kind::PREEMPT => empty(Request::Preempt(channel()?)),
        kind::MESSAGE_EVENT => {
            empty(Request::MessageEvent { given: flag(head.first.get(), kind, "given flag")? })
        }
        kind::RESET => empty(Request::Reset { scrub: flag(head.first.get(), kind, "scrub flag")? }),
        _ => Err(WireError::Kind(kind)),
    }
}

fn decode_update(head: &Head, body: &[u8], length: WireError) -> Result<Request, WireError> {
    let kind = kind::UPDATE_SPACE;
    let counts = head.second.get();
    let (unmaps, maps) = (u64::from(counts >> 16), u64::from(counts & 0xffff));
    bounded(unmaps.saturating_add(maps), MAX_UPDATE_RUNS, kind)?;
    let unmaps = bounded(unmaps, MAX_UPDATE_RUNS, kind)?;
    let maps = bounded(maps, MAX_UPDATE_RUNS, kind)?;
    let (ranges, rest) = <[WireRange]>::ref_from_prefix_with_elems(body, unmaps).map_err(|_| length)?;
    let mappings = <[WireMapping]>::ref_from_bytes_with_elems(rest, maps).map_err(|_| length)?;
    Ok(Request::UpdateSpace {
        space: SpaceId(id(head.first.get(), kind, "space number")?),
        unmap: ranges
            .iter()
            .map(|r| GuestRange { va: GpuVa(r.va.get()), pages: r.pages.get(), page_shift: r.page_shift })
            .collect(),
        map: mappings.iter().map(guest_mapping).collect(),
    })
}

fn text(bytes: &[u8], length: u8, kind: u32, field: &'static str) -> Result<String, WireError> {
    let bytes = bytes.get(..usize::from(length)).ok_or(WireError::Field { kind, field })?;
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| WireError::Field { kind, field })
}

fn micros(time: Duration) -> U32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX).into()
}

fn wire_hello(hello: &Hello) -> WireHello {
    let mut wire = WireHello {
        version: hello.version.into(),
        weight: hello.share.weight.into(),
        period_us: micros(hello.share.period),
        budget_us: micros(hello.share.budget),
        vram: hello.vram.into(),
        channels: hello.channels.into(),
        name_length: 0,
        chip_length: 0,
        doorbells: hello.limits.doorbells.into(),
        name: [0; MAX_NAME],
        chip: [0; MAX_CHIP],
        page_tables: hello.limits.page_tables.into(),
        mappings: hello.limits.mappings.into(),
        thread_time: hello.limits.thread_time,
        cap: hello.share.cap.unwrap_or(0),
        fixed: hello.share.fixed.unwrap_or(0),
        reserved: 0,
        memory_ranges: hello.limits.memory_ranges.into(),
    };
    wire.name_length = store_text(&mut wire.name, &hello.name);
    wire.chip_length = store_text(&mut wire.chip, hello.chip.as_str());
    wire
}

/// Stores as much of `text` as fits. A length that says otherwise makes the receiver refuse the message, so
/// that an over-long name is an error and not a shorter name.
fn store_text(to: &mut [u8], text: &str) -> u8 {
    if text.len() > to.len() {
        return u8::MAX;
    }
    for (to, from) in to.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    u8::try_from(text.len()).unwrap_or(u8::MAX)
}

fn wire_range(range: &GuestRange) -> WireRange {
    WireRange {
        va: range.va.0.into(),
        pages: range.pages.into(),
        page_shift: range.page_shift,
        reserved: [0; 3],
    }
}

fn wire_mapping(mapping: &GuestMapping) -> WireMapping {
    let (target, mut flags) = match mapping.target {
        GuestTarget::Vram(offset) => (offset.0, 0),
        GuestTarget::System { address, coherent: false } => (address.0, FLAG_SYSTEM),
        GuestTarget::System { address, coherent: true } => (address.0, FLAG_SYSTEM | FLAG_COHERENT),
    };
    if mapping.read_only {
        flags |= FLAG_READ_ONLY;
    }
    WireMapping {
        va: mapping.va.0.into(),
        target: target.into(),
        pages: mapping.pages.into(),
        page_shift: mapping.page_shift,
        flags,
        kind: mapping.kind,
        reserved: 0,
    }
}

/// Unknown flag bits mean nothing, so that every record has a meaning.
fn guest_mapping(wire: &WireMapping) -> GuestMapping {
    let target = if wire.flags & FLAG_SYSTEM != 0 {
        GuestTarget::System { address: Gpa(wire.target.get()), coherent: wire.flags & FLAG_COHERENT != 0 }
    } else {
        GuestTarget::Vram(GuestVram(wire.target.get()))
    };
    GuestMapping {
        va: GpuVa(wire.va.get()),
        pages: wire.pages.get(),
        page_shift: wire.page_shift,
        target,
        read_only: wire.flags & FLAG_READ_ONLY != 0,
        kind: wire.kind,
    }
}
