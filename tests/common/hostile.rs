//! Hostile tenants as values: what one may ask, say or do, for property tests to make sequences of.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::time::Duration;

use gpuvmk::addr::{Gpa, GpuVa, GuestChannel, GuestVram};
use gpuvmk::aggregator::link::LinkError;
use gpuvmk::aggregator::protocol::{Doorbell, GuestMapping, GuestRange, GuestTarget, Request, SpaceId};
use gpuvmk::chip::EngineSet;
use gpuvmk::pci::mapping::create_memory_file;
use proptest::prelude::*;

use crate::tenant::{DATA, RAM, RAM_VA, Tenant, VRAM_VA};

/// VRAM of every tenant.
pub const PARTITION: u64 = 16 << 20;

/// One thing that a tenant does.
#[derive(Clone, Debug)]
pub enum Op {
    Map {
        space: u16,
        va: u64,
        pages: u32,
        shift: u8,
        target: GuestTarget,
    },
    Unmap {
        space: u16,
        va: u64,
        pages: u32,
    },
    CreateSpace(u16),
    DestroySpace(u16),
    Create {
        id: u16,
        space: u16,
        userd: u64,
        ring: u64,
        log2: u8,
        engines: EngineSet,
        context_of: Option<u16>,
    },
    Destroy(u16),
    Enable(u16, bool),
    Engines(u16, EngineSet),
    List(Vec<u16>),
    Preempt(u16),
    /// A doorbell without work behind it.
    Ring(u16, u32),
    /// Work: a copy between any two addresses.
    Copy {
        id: u16,
        from: u64,
        to: u64,
        size: u64,
    },
    /// A command stream of any words.
    Words(u16, Vec<u32>),
    /// Work that never ends.
    Hang(u16),
    TakeMemory {
        gpa: u64,
        size: u64,
    },
    GiveMemory {
        gpa: u64,
        size: u64,
    },
    Reset(bool),
    /// The connection ends, and a new tenant comes.
    Leave,
}

/// Numbers of channels and spaces: those that there are, the first that there is not, and some that are far
/// off.
fn id() -> impl Strategy<Value = u16> {
    prop_oneof![8 => 0u16..5, 1 => Just(8u16), 1 => any::<u16>()]
}

/// Offsets around the ends of a partition, and those that wrap.
fn offset() -> impl Strategy<Value = u64> {
    let page = 0x1000u64;
    prop_oneof![
        4 => (0u64..16).prop_map(move |pages| DATA + pages * page),
        1 => Just(0),
        2 => (0u64..4).prop_map(move |pages| PARTITION - 2 * page + pages * page),
        1 => (1u64..8).prop_map(|count| count * PARTITION),
        1 => (1u64..8).prop_map(|count| 0u64.wrapping_sub(count * PARTITION)),
        1 => any::<u64>(),
    ]
}

fn target() -> impl Strategy<Value = GuestTarget> {
    let system =
        (prop_oneof![offset(), (0u64..4).prop_map(|page| RAM - 0x2000 + page * 0x1000)], any::<bool>());
    prop_oneof![
        offset().prop_map(|offset| GuestTarget::Vram(GuestVram(offset))),
        system.prop_map(|(address, coherent)| GuestTarget::System { address: Gpa(address), coherent }),
    ]
}

/// Virtual addresses: of what every tenant has mapped, of what it maps on the way, and of nothing.
fn va() -> impl Strategy<Value = u64> {
    prop_oneof![
        offset().prop_map(|offset| VRAM_VA.wrapping_add(offset) & ((1 << 40) - 1)),
        (0u64..RAM / 0x1000).prop_map(|page| RAM_VA + page * 0x1000),
        any::<u64>(),
    ]
}

/// Pages that are mapped and used on the way: few, so that what is mapped is what is used.
fn page() -> impl Strategy<Value = u64> {
    (0u64..6).prop_map(|page| 0x30_0000_0000 + page * 0x1000)
}

/// Addresses that work uses.
fn operand() -> impl Strategy<Value = u64> {
    prop_oneof![4 => page(), 2 => Just(VRAM_VA + DATA), 1 => Just(RAM_VA), 2 => va()]
}

fn engines() -> impl Strategy<Value = EngineSet> {
    prop_oneof![
        Just(EngineSet::COPY0),
        Just(EngineSet::COPY1),
        Just(EngineSet::GRAPHICS),
        Just(EngineSet::empty()),
        Just(EngineSet::all()),
    ]
}

/// Anything.
pub fn op() -> impl Strategy<Value = Op> {
    let pages = || prop_oneof![4 => 1u32..32, 1 => any::<u32>()];
    let shift = prop_oneof![6 => Just(12u8), 1 => Just(17u8), 1 => any::<u8>()];
    let size = || prop_oneof![Just(0x1000u64), Just(0x1_0000), Just(PARTITION), any::<u64>()];
    prop_oneof![
        6 => (page(), 1u32..4, target())
            .prop_map(|(va, pages, target)| Op::Map { space: 0, va, pages, shift: 12, target }),
        3 => (id(), va(), pages(), shift, target())
            .prop_map(|(space, va, pages, shift, target)| Op::Map { space, va, pages, shift, target }),
        2 => (id(), va(), pages()).prop_map(|(space, va, pages)| Op::Unmap { space, va, pages }),
        1 => id().prop_map(Op::CreateSpace),
        1 => id().prop_map(Op::DestroySpace),
        3 => (id(), id(), offset(), va(), 0u8..24, engines(), prop::option::of(id())).prop_map(
            |(id, space, userd, ring, log2, engines, context_of)| {
                Op::Create { id, space, userd, ring, log2, engines, context_of }
            }
        ),
        1 => id().prop_map(Op::Destroy),
        2 => (id(), any::<bool>()).prop_map(|(id, on)| Op::Enable(id, on)),
        1 => (id(), engines()).prop_map(|(id, engines)| Op::Engines(id, engines)),
        2 => prop::collection::vec(id(), 0..6).prop_map(Op::List),
        1 => id().prop_map(Op::Preempt),
        2 => (id(), any::<u32>()).prop_map(|(id, put)| Op::Ring(id, put)),
        8 => (0u16..2, operand(), operand(), 1u64..4)
            .prop_map(|(id, from, to, lines)| Op::Copy { id, from, to, size: lines * 0x1000 }),
        2 => (0u16..4, prop::collection::vec(any::<u32>(), 1..40)).prop_map(|(id, words)| Op::Words(id, words)),
        1 => (0u16..4).prop_map(Op::Hang),
        1 => (offset(), size()).prop_map(|(gpa, size)| Op::TakeMemory { gpa, size }),
        1 => (offset(), size()).prop_map(|(gpa, size)| Op::GiveMemory { gpa, size }),
        1 => any::<bool>().prop_map(Op::Reset),
        1 => Just(Op::Leave),
    ]
}

impl Op {
    /// Does it, whatever the answer. False when the tenant is to leave.
    pub fn apply(&self, tenant: &mut Tenant) -> bool {
        let ask = |tenant: &Tenant, request: Request, file| match tenant.link.request(&request, file) {
            Ok(()) | Err(LinkError::Refused { .. }) => {}
            Err(LinkError::Lost(why)) => panic!("{request:?} ends the aggregator or the connection: {why}"),
        };
        let request = match *self {
            Self::Map { space, va, pages, shift, target } => {
                let run = GuestMapping {
                    va: GpuVa(va),
                    pages,
                    page_shift: shift,
                    target,
                    read_only: false,
                    kind: 0,
                };
                Request::UpdateSpace { space: SpaceId(space), unmap: vec![], map: vec![run] }
            }
            Self::Unmap { space, va, pages } => {
                let run = GuestRange { va: GpuVa(va), pages, page_shift: 12 };
                Request::UpdateSpace { space: SpaceId(space), unmap: vec![run], map: vec![] }
            }
            Self::CreateSpace(space) => Request::CreateSpace(SpaceId(space)),
            Self::DestroySpace(space) => Request::DestroySpace(SpaceId(space)),
            Self::Create { id, space, userd, ring, log2, engines, context_of } => Request::CreateChannel {
                context_of: context_of.map(GuestChannel),
                channel: GuestChannel(id),
                space: SpaceId(space),
                gpfifo: GpuVa(ring),
                gpfifo_entries_log2: log2,
                userd: GuestVram(userd),
                engines,
            },
            Self::Destroy(id) => Request::DestroyChannel(GuestChannel(id)),
            Self::Enable(id, enabled) => Request::EnableChannel { channel: GuestChannel(id), enabled },
            Self::Engines(id, engines) => Request::SetEngines { channel: GuestChannel(id), engines },
            Self::List(ref ids) => Request::SetRunlist(ids.iter().copied().map(GuestChannel).collect()),
            Self::Preempt(id) => Request::Preempt(GuestChannel(id)),
            Self::Reset(scrub) => Request::Reset { scrub },
            Self::TakeMemory { gpa, size } => Request::DmaUnmap { gpa: Gpa(gpa), size },
            Self::GiveMemory { gpa, size } => {
                let request = Request::DmaMap { gpa: Gpa(gpa), size, offset: 0, writable: true };
                let file = create_memory_file(c"more", size.min(1 << 20)).unwrap();
                ask(tenant, request, Some(file));
                return true;
            }
            Self::Ring(id, gp_put) => {
                tenant.link.doorbell(Doorbell { channel: GuestChannel(id), gp_put });
                return true;
            }
            Self::Copy { id, from, to, size } => {
                revive(tenant, id);
                tenant.copy(id, (id % 2) as u8, from, to, size);
                // Done, or stopped by a fault.
                tenant.finishes_within(id, Duration::from_millis(1));
                return true;
            }
            Self::Words(id, ref words) => {
                tenant.submit(id, words);
                return true;
            }
            Self::Hang(id) => {
                tenant.acquire_for_ever(id);
                return true;
            }
            Self::Leave => return false,
        };
        ask(tenant, request, None);
        true
    }
}

/// Makes the channel anew, as after a fault, and its address space if that has gone.
fn revive(tenant: &mut Tenant, id: u16) {
    let ask = |tenant: &Tenant, request: Request| drop(tenant.link.request(&request, None));
    ask(tenant, Request::DestroyChannel(GuestChannel(id)));
    if tenant.try_channel(id, (id % 2) as u8).is_err() {
        ask(tenant, Request::Reset { scrub: false });
        // Where memory was taken away, a part of it stays unmapped.
        drop(tenant.try_make_space());
        drop(tenant.try_channel(id, (id % 2) as u8));
    }
    ask(tenant, Request::SetRunlist(vec![GuestChannel(0), GuestChannel(1)]));
}

/// A mark that is in no other tenant's memory.
pub fn mark(number: usize) -> [u8; 16] {
    let mut mark = *b"this belongs to ";
    mark[15] = b'A' + number as u8;
    mark
}

/// Fills some of a tenant's VRAM and memory with its mark.
pub fn sign(tenant: &Tenant, number: usize) {
    let page = mark(number).repeat(0x100);
    for at in (0..0x1_0000u64).step_by(0x1000) {
        tenant.window.write(DATA + at, &page).unwrap();
        tenant.window.write(PARTITION - 0x1_0000 + at, &page).unwrap();
        tenant.ram.write(RAM - 0x1_0000 + at, &page).unwrap();
    }
}

/// The marks of others that are in a tenant's memory.
pub fn foreign_marks(tenant: &Tenant, number: usize, tenants: usize) -> Vec<usize> {
    let mut bytes = vec![0; (PARTITION + RAM) as usize];
    let (vram, ram) = bytes.split_at_mut(PARTITION as usize);
    tenant.window.read(0, vram).unwrap();
    tenant.ram.read(0, ram).unwrap();
    let others: Vec<_> = (0..tenants).filter(|other| *other != number).collect();
    let marks: Vec<_> = others.iter().map(|other| u128::from_ne_bytes(mark(*other))).collect();
    let mut found = vec![false; marks.len()];
    // Most is zero, which is no mark.
    let words = bytes.as_chunks().0.iter().map(|chunk| u128::from_ne_bytes(*chunk));
    for word in words.filter(|word| *word != 0) {
        for (found, _) in found.iter_mut().zip(&marks).filter(|(_, mark)| **mark == word) {
            *found = true;
        }
    }
    others.into_iter().zip(found).filter_map(|(other, found)| found.then_some(other)).collect()
}

const ZEROES: [u8; 4096] = [0; 4096];

/// True when every byte of a tenant's VRAM is zero.
pub fn is_blank(tenant: &Tenant) -> bool {
    let mut bytes = vec![0xff; PARTITION as usize];
    tenant.window.read(0, &mut bytes).unwrap();
    bytes.chunks(ZEROES.len()).all(|chunk| *chunk == ZEROES[..chunk.len()])
}

/// What several tenants do, in this order: who, and what.
pub fn script(tenants: usize, most: usize) -> impl Strategy<Value = Vec<(usize, Op)>> {
    prop::collection::vec((0..tenants, op()), 1..most)
}
