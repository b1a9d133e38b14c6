//! What the GPU has: engines, interrupts, graphics units and buffers.

use crate::abi::status::Status;
use crate::abi::values::{Device, Devices, Graphics, InterruptSource, InterruptVectors};
use crate::model::engines;
use crate::model::rm::Rm;

/// Size and alignment of a context buffer: one page, since none is used.
pub(super) const CONTEXT_BUFFER: u32 = 0x1000;

/// Size of a copy engine's buffer for methods that faulted, one for each channel.
pub(super) const FAULT_METHOD_BUFFER: u32 = 0x1000;

/// Which texture processing clusters a graphics processing cluster has.
pub(super) fn tpc_mask(rm: &Rm, gpc: u32) -> Result<u32, Status> {
    rm.config.graphics().tpc_mask(gpc).ok_or(Status::InvalidArgument)
}

/// What the graphics engine has.
pub(super) fn graphics(rm: &Rm) -> Graphics {
    let hal = rm.config.hal;
    Graphics {
        tpc_masks: rm.config.graphics().tpc_masks(),
        multiprocessor: hal.multiprocessor,
        memory: hal.memory,
    }
}

/// Sources about memory, in the order of their vectors. Only the first is ever raised, by the driver itself.
const MEMORY_SOURCES: [InterruptSource; 7] = [
    InterruptSource::CpuDoorbell,
    InterruptSource::NonReplayableFault,
    InterruptSource::ReplayableFault,
    InterruptSource::AccessCounter,
    InterruptSource::ReplayableFaultError,
    InterruptSource::InfoFault,
    InterruptSource::NonReplayableFaultError,
];

/// The sources of interrupts, with their vectors.
pub(super) fn interrupts(rm: &Rm) -> Vec<InterruptVectors> {
    let gsp = InterruptVectors {
        source: InterruptSource::Gsp,
        stall: Some(rm.config.hal.vectors.gsp_stall),
        non_stall: None,
    };
    let engines = rm.config.engines.engines().map(|engine| InterruptVectors {
        source: InterruptSource::Engine(engine),
        stall: None,
        non_stall: Some((rm.config.hal.vectors.non_stall)(engine)),
    });
    let display = rm.config.display().into_iter().flat_map(|display| {
        let stall = |source, vector| InterruptVectors { source, stall: Some(vector), non_stall: None };
        [stall(InterruptSource::Display, display.stall), stall(InterruptSource::DisplayLow, display.low)]
    });
    let first = rm.config.hal.vectors.memory;
    let memory = (first..).zip(MEMORY_SOURCES).map(|(vector, source)| InterruptVectors {
        source,
        stall: Some(vector),
        non_stall: None,
    });
    std::iter::once(gsp).chain(display).chain(engines).chain(memory).collect()
}

/// The engines from `base` on, those of a runlist in a row: drivers name a runlist's channels after its first
/// engine.
pub(super) fn devices(rm: &Rm, base: u32) -> Devices {
    let skip = usize::try_from(base).unwrap_or(usize::MAX);
    let device = |(index, engine)| Device {
        index,
        engine,
        runlist: engines::runlist(engine),
        on_runlist: engines::place_on_runlist(engine),
    };
    let known = (0..).zip(rm.config.engines.engines()).skip(skip);
    Devices { base, devices: known.map(device).collect() }
}
