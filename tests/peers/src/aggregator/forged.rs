//! Numbers and ranges of somebody else's.

use std::time::Duration;

use anyhow::{Result, ensure};
use gpuvmk::addr::{Gpa, GpuVa, GuestChannel, GuestVram};
use gpuvmk::aggregator::link::LinkError;
use gpuvmk::aggregator::protocol::{Doorbell, GuestMapping, GuestTarget, Request, SpaceId};
use gpuvmk::chip::{Engine, EngineSet};
use gpuvmk_attacks::Outcome;

use super::tenant;
use crate::Scene;
use crate::findings::Findings;
use crate::honest::VRAM;
use crate::random::{ODD, Random};
use crate::tenant::{DATA, RAM, RAM_VA, Tenant, VRAM_VA};

/// Counts an answer; a problem unless it is a refusal.
fn refused(tenant: &Tenant, request: &Request, findings: &mut Findings) {
    match tenant.link.request(request, None) {
        Err(LinkError::Refused { kind, .. }) => findings.count(format!("{kind:?}")),
        Err(LinkError::Lost(why)) => findings.problem(format!("{request:?}: the connection is lost: {why}")),
        Ok(()) => findings.problem(format!("{request:?} is done")),
    }
}

fn create(channel: u16, space: u16, gpfifo: u64, log2: u8, userd: u64) -> Request {
    Request::CreateChannel {
        context_of: None,
        channel: GuestChannel(channel),
        space: SpaceId(space),
        gpfifo: GpuVa(gpfifo),
        gpfifo_entries_log2: log2,
        userd: GuestVram(userd),
        engines: EngineSet::COPY0,
    }
}

/// Channels and spaces that are not there, not free, or out of bounds. The victim has channels 0 to some; so
/// has this tenant: the same numbers must mean its own.
pub fn ids(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut tenant = tenant(scene, "ids")?;
    tenant.channel(0, 0);
    tenant.list(&[0]);
    for number in [1, 7, 8, 9, 31, 32, 127, 128, 511, 512, 4095, 0x7fff, u16::MAX] {
        let channel = GuestChannel(number);
        refused(&tenant, &Request::DestroyChannel(channel), findings);
        refused(&tenant, &Request::EnableChannel { channel, enabled: true }, findings);
        refused(&tenant, &Request::SetEngines { channel, engines: EngineSet::COPY0 }, findings);
        refused(&tenant, &Request::CreateObject { channel, class: 0x90b5, engine: Engine::COPY0 }, findings);
        refused(&tenant, &Request::Preempt(channel), findings);
        refused(&tenant, &Request::SetRunlist(vec![GuestChannel(0), channel]), findings);
        tenant.link.doorbell(Doorbell { channel, gp_put: 1 });
        let space = SpaceId(number);
        refused(&tenant, &Request::DestroySpace(space), findings);
        refused(&tenant, &Request::UpdateSpace { space, unmap: vec![], map: vec![] }, findings);
        refused(&tenant, &create(1, number, VRAM_VA + 0x1000, 6, 0x4_0000), findings);
    }
    for number in [8, 9, 127, 128, u16::MAX] {
        refused(&tenant, &create(number, 0, VRAM_VA + 0x1000, 6, 0x4_0000), findings);
    }
    refused(&tenant, &create(0, 0, VRAM_VA + 0x1000, 6, 0x4_0000), findings);
    refused(&tenant, &Request::CreateSpace(SpaceId(0)), findings);
    refused(&tenant, &Request::DestroySpace(SpaceId(0)), findings);
    refused(&tenant, &Request::CreateSpace(SpaceId(u16::MAX)), findings);
    refused(&tenant, &Request::SetRunlist(vec![GuestChannel(0); 4096]), findings);
    // Rings and USERD pages that lie outside.
    for userd in [VRAM, VRAM - 0x800, VRAM + 0x1000, 0x801, !0xfff, 1 << 40] {
        refused(&tenant, &create(1, 0, VRAM_VA + 0x1000, 6, userd), findings);
    }
    for (gpfifo, log2) in [(1 << 40, 6), (!0xfff, 6), (VRAM_VA + 0x1000, 20), (VRAM_VA + 0x1000, 255)] {
        refused(&tenant, &create(1, 0, gpfifo, log2, 0x4_0000), findings);
    }
    // What is its own still works.
    tenant.copy(0, 0, VRAM_VA + DATA, VRAM_VA + 2 * DATA, 0x10000);
    ensure!(tenant.finishes_within(0, Duration::from_secs(5)), "its own work does not end");
    scene.keep(tenant);
    Ok(Outcome::Refused)
}

/// Page tables that point outside, and the GPU sent through them.
pub fn ranges(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut tenant = tenant(scene, "ranges")?;
    let mut random = Random::new(9);
    let outside = [
        VRAM,
        VRAM + 0x1000,
        2 * VRAM,
        1 << 40,
        (1 << 40) + 0x1000,
        0u64.wrapping_sub(VRAM),
        0u64.wrapping_sub(0x1000),
        !0xfff,
    ];
    let mut targets: Vec<_> = outside.iter().map(|offset| GuestTarget::Vram(GuestVram(*offset))).collect();
    for address in [RAM, RAM + 0x1000, 1 << 32, 1 << 40, 0u64.wrapping_sub(0x1000)] {
        targets.push(GuestTarget::System { address: Gpa(address), coherent: true });
    }
    let target_va = 0x30_0000_0000;
    for (index, target) in (0..).zip(&targets) {
        let result = tenant.map(target_va + index * 0x10_0000, *target, 0x1000);
        findings.count(match &result {
            Err(LinkError::Refused { kind, .. }) => format!("{kind:?}"),
            other => format!("{other:?}"),
        });
        findings.check(matches!(result, Err(LinkError::Refused { .. })), format!("{target:?} is mapped"));
    }
    // Runs of which only the last page lies outside, and runs that wrap.
    let straddling = [
        (VRAM - 0x1000, 2, 12),
        (VRAM - 0x20000, 2, 17),
        (0, u32::MAX, 12),
        (0, u32::MAX, 17),
        (0x1000, u32::MAX, 63),
        (0, 1, 255),
        (0, 1, 0),
    ];
    for (offset, pages, page_shift) in straddling {
        let run = GuestMapping {
            va: GpuVa(0x40_0000_0000),
            pages,
            page_shift,
            target: GuestTarget::Vram(GuestVram(offset)),
            read_only: false,
            kind: 0,
        };
        refused(
            &tenant,
            &Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map: vec![run] },
            findings,
        );
    }
    for _ in 0..500 {
        let run = GuestMapping {
            va: GpuVa(random.one_of(ODD)),
            pages: u32::try_from(random.one_of(ODD) & 0xffff_ffff).unwrap_or(0),
            page_shift: u8::try_from(random.below(256)).unwrap_or(0),
            target: GuestTarget::Vram(GuestVram(random.one_of(ODD))),
            read_only: random.below(2) == 0,
            kind: u8::try_from(random.below(256)).unwrap_or(0),
        };
        let request = Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map: vec![run] };
        if let Err(LinkError::Lost(why)) = tenant.link.request(&request, None) {
            findings.problem(format!("{request:?}: the connection is lost: {why}"));
            break;
        }
        findings.count("random runs");
    }
    // A space of its own again, with the bad runs, and work through each of them.
    tenant.link.request(&Request::Reset { scrub: false }, None)?;
    tenant.make_space();
    for (index, target) in (0..).zip(&targets) {
        let va = target_va + index * 0x10_0000;
        let _ = tenant.map(va, *target, 0x1000);
        for (from, to) in [(va, VRAM_VA + DATA), (RAM_VA, va)] {
            tenant.channel(0, 0);
            tenant.list(&[0]);
            tenant.copy(0, 0, from, to, 0x1000);
            let done = tenant.finishes_within(0, Duration::from_millis(200));
            findings.check(!done, format!("a copy through {target:?} ends well"));
            findings.count(if done { "copied" } else { "faulted" });
            tenant.list(&[]);
            tenant.link.request(&Request::DestroyChannel(GuestChannel(0)), None)?;
        }
    }
    scene.keep(tenant);
    Ok(Outcome::Refused)
}
