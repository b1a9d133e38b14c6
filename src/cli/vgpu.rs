//! The vGPU that a VM's configuration file describes, for whatever shows it to the guest.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::aggregator::link::LinkError;
use crate::aggregator::protocol::{Hello, PROTOCOL_VERSION, TenantLimits};
use crate::aggregator::{LinkTimeouts, connect};
use crate::config::{VmConfig, VmLimits};
use crate::gsp::ObjectLimits;
use crate::host::cancel::Cancel;
use crate::trace::Tracer;
use crate::units::gsp_face::{GspFaceConfig, HeadConfig};
use crate::vgpu::{FaceConfig, MediatorConfig, Quotas, Vgpu, VgpuConfig, VgpuError};

/// How long a function reset may look for a new aggregator: QEMU waits 5 s for the reset's answer.
const RECONNECT_WITHIN: Duration = Duration::from_secs(2);

/// The vGPU, once the aggregator has admitted its VM, for which it waits at most `wait`. None if the order to
/// end came first.
pub(super) fn admitted(
    config: &VmConfig,
    file: &Path,
    wait: Duration,
    cancel: &Cancel,
    tracer: &Tracer,
) -> anyhow::Result<Option<Vgpu>> {
    let hello = Hello {
        version: PROTOCOL_VERSION,
        name: config.name.clone(),
        chip: config.chip.into(),
        vram: config.vram,
        channels: config.channels,
        share: config.share,
        limits: tenant_limits(&config.limits),
    };
    let patience = LinkTimeouts { limit: Some(wait), ..LinkTimeouts::until(cancel.clone()) };
    let (link, grant) = match connect(&config.gpu, hello.clone(), &patience) {
        Ok(admitted) => admitted,
        Err(_) if cancel.is_cancelled() => return Ok(None),
        Err(LinkError::Lost(why)) => bail!(
            "No aggregator within {} s ({why}); start it with `gpuvmk aggregator GPU.toml`, or correct `gpu` in {}",
            wait.as_secs(),
            file.display()
        ),
        Err(refused) => {
            return Err(refused).with_context(|| format!("VM `{}` was not admitted", config.name));
        }
    };
    let path = config.gpu.clone();
    let again = LinkTimeouts { limit: Some(RECONNECT_WITHIN), ..LinkTimeouts::until(cancel.clone()) };
    let mediator = MediatorConfig {
        scrub_on_reset: true,
        bar3: config.bar3,
        quotas: quotas(config),
        reconnect: Some(Box::new(move || connect(&path, hello.clone(), &again))),
        tracer: tracer.clone(),
        ..MediatorConfig::default()
    };
    let vgpu = face(config).and_then(|face| Vgpu::new(link, grant, VgpuConfig { face, mediator }));
    Ok(Some(vgpu.context("Cannot make the vGPU")?))
}

/// The limits that the aggregator keeps.
fn tenant_limits(limits: &VmLimits) -> TenantLimits {
    TenantLimits {
        page_tables: limits.page_tables.unwrap_or(u64::MAX),
        mappings: limits.mappings,
        doorbells: limits.doorbells,
        thread_time: limits.thread_time,
        memory_ranges: limits.memory_ranges,
    }
}

/// The limits that are kept here.
fn quotas(config: &VmConfig) -> Quotas {
    let VmLimits { bad_pages, flushes, requests, interrupts, guest_tables, memory_ranges, .. } =
        config.limits;
    Quotas { bad_pages, flushes, requests, interrupts, guest_tables, memory_ranges }
}

/// The card, with what its driver may have of it.
fn face(config: &VmConfig) -> Result<FaceConfig, VgpuError> {
    Ok(match FaceConfig::of(config.chip)? {
        FaceConfig::Gsp(card) => {
            let VmLimits { objects: total, client_objects: per_client, .. } = config.limits;
            let objects = ObjectLimits { total, per_client };
            let head = config.display.map(|mode| HeadConfig { name: config.name.clone(), mode: Some(mode) });
            FaceConfig::Gsp(GspFaceConfig { objects, uuid: config.uuid.into_bytes(), head, ..card })
        }
        card @ FaceConfig::Gf100(_) => card,
    })
}
