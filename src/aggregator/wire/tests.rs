//! Everything survives the wire; nothing else gets through it.

use proptest::prelude::*;

use std::time::Duration;

use super::reply::refusal_kind;
use super::*;
use crate::protocol::{
    GuestMapping, GuestRange, GuestTarget, Hello, MAX_UPDATE_RUNS, Reply, Request, SpaceId, TenantLimits,
    Welcome,
};
use gpuvmk_chip::addr::{Gpa, GpuVa, GuestChannel, GuestVram};
use gpuvmk_chip::{Chip, TextureClusters};
use gpuvmk_scheduler::share::Share;

fn mapping_strategy() -> impl Strategy<Value = GuestMapping> {
    let target = prop_oneof![
        any::<u64>().prop_map(|v| GuestTarget::Vram(GuestVram(v))),
        (any::<u64>(), any::<bool>())
            .prop_map(|(a, coherent)| GuestTarget::System { address: Gpa(a), coherent }),
    ];
    (any::<u64>(), any::<u32>(), any::<u8>(), target, any::<bool>(), any::<u8>()).prop_map(
        |(va, pages, page_shift, target, read_only, kind)| GuestMapping {
            va: GpuVa(va),
            pages,
            page_shift,
            target,
            read_only,
            kind,
        },
    )
}

fn range_strategy() -> impl Strategy<Value = GuestRange> {
    (any::<u64>(), any::<u32>(), any::<u8>()).prop_map(|(va, pages, page_shift)| GuestRange {
        va: GpuVa(va),
        pages,
        page_shift,
    })
}

fn share_strategy() -> impl Strategy<Value = Share> {
    let percent = || prop::option::of(1_u8..=255);
    (any::<u32>(), percent(), percent(), any::<(u32, u32)>()).prop_map(
        |(weight, cap, fixed, (period, budget))| {
            let [period, budget] = [period, budget].map(|us| Duration::from_micros(us.into()));
            Share { weight, cap, fixed, period, budget }
        },
    )
}

fn request_strategy() -> impl Strategy<Value = Request> {
    let engines = any::<u64>().prop_map(EngineSet::from_bits_truncate);
    let channel = any::<u16>().prop_map(GuestChannel);
    prop_oneof![
        (
            "[a-z0-9-]{0,64}",
            "[A-Z0-9]{0,16}",
            any::<(u32, u64, u16)>(),
            any::<(u64, u64, u32, u8, u32)>(),
            share_strategy()
        )
            .prop_map(|(name, chip, (version, vram, channels), limits, share)| {
                let (page_tables, mappings, doorbells, thread_time, memory_ranges) = limits;
                let limits = TenantLimits { page_tables, mappings, doorbells, thread_time, memory_ranges };
                Request::Hello(Hello { version, name, chip: chip.into(), vram, channels, share, limits })
            }),
        any::<(u64, u64, u64, bool)>().prop_map(|(gpa, size, offset, writable)| Request::DmaMap {
            gpa: Gpa(gpa),
            size,
            offset,
            writable
        }),
        any::<(u64, u64)>().prop_map(|(gpa, size)| Request::DmaUnmap { gpa: Gpa(gpa), size }),
        any::<u16>().prop_map(|s| Request::CreateSpace(SpaceId(s))),
        any::<u16>().prop_map(|s| Request::DestroySpace(SpaceId(s))),
        (
            any::<u16>(),
            prop::collection::vec(range_strategy(), 0..20),
            prop::collection::vec(mapping_strategy(), 0..20)
        )
            .prop_map(|(space, unmap, map)| Request::UpdateSpace {
                space: SpaceId(space),
                unmap,
                map
            }),
        (channel.clone(), any::<(u16, u64, u8, u64)>(), engines.clone(), any::<Option<u16>>()).prop_map(
            |(channel, (space, gpfifo, log2, userd), engines, context_of)| Request::CreateChannel {
                context_of: context_of.map(GuestChannel),
                channel,
                space: SpaceId(space),
                gpfifo: GpuVa(gpfifo),
                gpfifo_entries_log2: log2,
                userd: GuestVram(userd),
                engines,
            }
        ),
        channel.clone().prop_map(Request::DestroyChannel),
        (channel.clone(), engines).prop_map(|(channel, engines)| Request::SetEngines { channel, engines }),
        (channel.clone(), any::<u32>(), prop::sample::select(Engine::ALL.to_vec()))
            .prop_map(|(channel, class, engine)| Request::CreateObject { channel, class, engine }),
        (channel.clone(), any::<bool>())
            .prop_map(|(channel, enabled)| Request::EnableChannel { channel, enabled }),
        prop::collection::vec(channel.clone(), 0..50).prop_map(Request::SetRunlist),
        channel.prop_map(Request::Preempt),
        any::<bool>().prop_map(|given| Request::MessageEvent { given }),
        any::<bool>().prop_map(|scrub| Request::Reset { scrub }),
    ]
}

proptest! {
    #[test]
    fn requests_survive_the_wire(request in request_strategy()) {
        let mut bytes = Vec::new();
        encode_request(&request, &mut bytes);

        prop_assert!(bytes.len() <= MAX_REQUEST_BYTES);
        prop_assert_eq!(decode_request(&bytes), Ok(request));
    }

    #[test]
    fn truncated_or_extended_requests_are_refused(request in request_strategy(), cut in 1_usize..20) {
        let mut bytes = Vec::new();
        encode_request(&request, &mut bytes);
        let shorter = bytes.len().saturating_sub(cut);

        prop_assert!(decode_request(&bytes[..shorter]).is_err());
        bytes.extend(std::iter::repeat_n(0, cut));
        prop_assert!(decode_request(&bytes).is_err());
    }

    #[test]
    fn random_bytes_decode_or_fail_without_panic(kind in 0_u32..20, mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode_request(&bytes);
        let _ = decode_reply(&bytes);
        if bytes.len() >= 16 {
            bytes[..4].copy_from_slice(&kind.to_le_bytes());
            bytes[4..12].fill(0);
            let _ = decode_request(&bytes);
            bytes[3] = 0x80;
            let _ = decode_reply(&bytes);
        }
    }

    #[test]
    fn refusals_survive_the_wire(message in "\\PC{0,300}", kind in 1_u32..=10) {
        let reply = Reply::Refused { kind: refusal_kind(kind).unwrap(), message };
        let mut bytes = Vec::new();
        encode_reply(&reply, &mut bytes);

        if bytes.len() < 16 + MAX_MESSAGE {
            prop_assert_eq!(decode_reply(&bytes), Ok(reply));
        } else {
            prop_assert!(decode_reply(&bytes).is_ok());
        }
    }
}

#[test]
fn welcome_and_done_survive_the_wire() {
    let welcome = Reply::Welcome(Welcome {
        vram: 256 << 20,
        channels: 32,
        spaces: 64,
        engines: EngineSet::all(),
        va_bits: 57,
        page_shifts: vec![12, 16, 21, 29],
        slow_vram_reads: true,
        texture_clusters: Some(TextureClusters::of(&[9, 8, 0, 7])),
        window: vec![(0, 16 << 20), (4096, 1)],
    });
    let mut bytes = Vec::new();

    encode_reply(&welcome, &mut bytes);
    assert_eq!(decode_reply(&bytes), Ok(welcome));
    encode_reply(&Reply::Done, &mut bytes);
    assert_eq!(decode_reply(&bytes), Ok(Reply::Done));
}

/// The end of a request with its last `replaced` bytes changed, decoded.
fn forged(request: &Request, replaced: &[u8]) -> Result<Request, WireError> {
    let mut bytes = Vec::new();
    encode_request(request, &mut bytes);
    let start = bytes.len() - replaced.len();
    bytes[start..].copy_from_slice(replaced);
    decode_request(&bytes)
}

#[test]
fn engines_that_do_not_exist_are_refused_by_name_and_not_dropped() {
    let channel = GuestChannel(1);
    let known = EngineSet::all().bits();
    let set = Request::SetEngines { channel, engines: EngineSet::COPY9 };
    for unknown in [1 << 44, 1 << 63, !known] {
        let error = forged(&set, &(known | unknown).to_le_bytes()).unwrap_err();
        assert_eq!(error, WireError::Engines { kind: kind::SET_ENGINES, unknown });
    }
    assert_eq!(
        WireError::Engines { kind: 9, unknown: 1 << 44 }.to_string(),
        "Message of kind 9 names engines that do not exist, by bits 0x100000000000; known are bits 0xfffffffffff"
    );
    let object = Request::CreateObject { channel, class: 0xc8b5, engine: Engine::COPY9 };
    for place in [44_u32, 256, u32::MAX] {
        let error = forged(&object, &place.to_le_bytes()).unwrap_err();
        assert_eq!(error, WireError::Engine { kind: kind::CREATE_OBJECT, place });
    }
    for engine in Engine::ALL {
        let request = Request::CreateObject { channel, class: 0, engine };
        assert_eq!(forged(&request, &u32::from(engine.place()).to_le_bytes()), Ok(request));
    }
}

#[test]
fn more_runs_than_allowed_are_refused_by_count() {
    let mut bytes = Vec::new();
    let range = GuestRange { va: GpuVa(0), pages: 1, page_shift: 12 };
    let request =
        Request::UpdateSpace { space: SpaceId(0), unmap: vec![range; MAX_UPDATE_RUNS + 1], map: Vec::new() };

    encode_request(&request, &mut bytes);

    assert!(matches!(decode_request(&bytes), Err(WireError::Count { .. })));
}

#[test]
fn over_long_name_is_refused_not_shortened() {
    let mut bytes = Vec::new();
    let hello = Hello {
        version: 1,
        name: "x".repeat(MAX_NAME + 1),
        chip: Chip::GF100.into(),
        vram: 0,
        channels: 0,
        share: Share::default(),
        limits: TenantLimits::default(),
    };

    encode_request(&Request::Hello(hello), &mut bytes);

    assert!(matches!(decode_request(&bytes), Err(WireError::Field { field: "name", .. })));
}
