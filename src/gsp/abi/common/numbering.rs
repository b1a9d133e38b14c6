//! Numbers of engines: as sources of interrupts, and the firmware's own.
//!
//! Drivers of all versions read the same tables, in which versions number engines in their own ways.

use zerocopy::FromZeros;

use super::control::{
    ENGINE_INFO_TYPE_ENG_DESC, ENGINE_INFO_TYPE_FIFO_TAG, ENGINE_INFO_TYPE_INSTANCE_ID,
    ENGINE_INFO_TYPE_IS_HOST_DRIVEN_ENGINE, ENGINE_INFO_TYPE_MC, ENGINE_INFO_TYPE_RM_ENGINE_TYPE,
    ENGINE_INFO_TYPE_RUNLIST, ENGINE_INFO_TYPE_RUNLIST_ENGINE_ID, ENGINE_INFO_TYPE_RUNLIST_PRI_BASE,
    NV_INTR_VECTOR_INVALID, NV2080_CTRL_FIFO_DEVICE_ENTRY, NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS,
    NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_ENTRY, NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS, put,
};
use crate::abi::values::{Device, Devices, InterruptSource, InterruptVectors};
use gpuvmk_chip::Engine;

/// Distance of the runlists' register blocks. Drivers that leave runlists to firmware only tell them apart by
/// it.
const RUNLIST_STRIDE: u32 = 0x1_0000;

/// The number of the first engine of each kind; others follow.
#[derive(Clone, Copy, Debug)]
pub struct Firsts<T> {
    /// Graphics.
    pub graphics: T,
    /// Copy engines.
    pub copy: T,
    /// Video decoders.
    pub nvdec: T,
    /// Video encoders.
    pub nvenc: T,
    /// SEC2.
    pub sec2: T,
    /// JPEG decoders.
    pub nvjpg: T,
    /// Optical flow accelerators.
    pub ofa: T,
}

impl<T: Copy + From<u8>> Firsts<T> {
    /// The first of its kind, and the place among those.
    pub fn of(&self, engine: Engine) -> (T, T) {
        let place = |number: u8| T::from(number);
        match engine {
            Engine::Graphics => (self.graphics, place(0)),
            Engine::Copy(n) => (self.copy, place(n.get())),
            Engine::Nvdec(n) => (self.nvdec, place(n.get())),
            Engine::Nvenc(n) => (self.nvenc, place(n.get())),
            Engine::Sec2 => (self.sec2, place(0)),
            Engine::Nvjpg(n) => (self.nvjpg, place(n.get())),
            Engine::Ofa(n) => (self.ofa, place(n.get())),
        }
    }
}

/// Sources of interrupts that are about memory, and the driver's own doorbell (`MC_ENGINE_IDX_*`).
#[derive(Clone, Copy, Debug)]
pub struct MemorySources {
    /// CPU_DOORBELL
    pub cpu_doorbell: u16,
    /// REPLAYABLE_FAULT
    pub replayable_fault: u16,
    /// REPLAYABLE_FAULT_ERROR
    pub replayable_fault_error: u16,
    /// NON_REPLAYABLE_FAULT
    pub non_replayable_fault: u16,
    /// NON_REPLAYABLE_FAULT_ERROR
    pub non_replayable_fault_error: u16,
    /// INFO_FAULT
    pub info_fault: u16,
    /// ACCESS_CNTR
    pub access_counter: u16,
}

/// A version's numbers.
#[derive(Clone, Copy, Debug)]
pub struct Numbering {
    /// Copy engines that have numbers.
    pub copies: u8,
    /// GSP among the sources of interrupts (`MC_ENGINE_IDX_GSP`).
    pub gsp: u16,
    /// The display engine there (`MC_ENGINE_IDX_DISP`).
    pub display: u16,
    /// What of the display engine can wait (`MC_ENGINE_IDX_DISP_LOW`), where the version has that apart.
    pub display_low: Option<u16>,
    /// What drivers want to know beside those, and then which subtrees of interrupts are whose.
    pub memory: Option<MemorySources>,
    /// Engines among the sources of interrupts (`MC_ENGINE_IDX_*`).
    pub sources: Firsts<u16>,
    /// The firmware's own numbers of engines (`RM_ENGINE_TYPE_*`).
    pub types: Firsts<u32>,
}

impl Numbering {
    /// The version has numbers for the engine.
    pub fn has(&self, engine: Engine) -> bool {
        !matches!(engine, Engine::Copy(n) if n.get() >= self.copies)
    }

    /// Index of an engine among the sources of interrupts.
    fn source(&self, engine: Engine) -> u16 {
        let (first, place) = self.sources.of(engine);
        first.saturating_add(place)
    }

    /// The firmware's own number of an engine.
    fn engine_type(&self, engine: Engine) -> u32 {
        let (first, place) = self.types.of(engine);
        first.saturating_add(place)
    }

    /// Writes the table of interrupts.
    pub fn put_interrupts(&self, sources: &[InterruptVectors], raw: &mut [u8]) {
        let mut table = NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS::new_zeroed();
        let known = sources.iter().filter_map(|vectors| match vectors.source {
            InterruptSource::Gsp => Some((self.gsp, vectors)),
            InterruptSource::Display => Some((self.display, vectors)),
            InterruptSource::DisplayLow => self.display_low.map(|index| (index, vectors)),
            InterruptSource::Engine(engine) => self.has(engine).then(|| (self.source(engine), vectors)),
            source => self.memory.and_then(|memory| memory.of(source)).map(|index| (index, vectors)),
        });
        for (to, (index, from)) in table.table.iter_mut().zip(known) {
            *to = NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_ENTRY {
                engineIdx: index,
                pad: 0,
                pmcIntrMask: 0,
                vectorStall: from.stall.unwrap_or(NV_INTR_VECTOR_INVALID),
                vectorNonStall: from.non_stall.unwrap_or(NV_INTR_VECTOR_INVALID),
            };
            table.tableLen = table.tableLen.saturating_add(1);
        }
        if self.memory.is_some() {
            table.subtreeMap = subtrees(sources);
        }
        put(raw, &table);
    }

    /// Writes a page of the table of devices.
    pub fn put_devices(&self, devices: &Devices, raw: &mut [u8]) {
        let mut table = NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS::new_zeroed();
        table.baseIndex = devices.base;
        let known = devices.devices.iter().filter(|device| self.has(device.engine));
        for (to, from) in table.entries.iter_mut().zip(known) {
            *to = self.device(from);
            table.numEntries = table.numEntries.saturating_add(1);
        }
        put(raw, &table);
    }

    /// A driver's description of one engine.
    pub fn device(&self, device: &Device) -> NV2080_CTRL_FIFO_DEVICE_ENTRY {
        let mut entry = NV2080_CTRL_FIFO_DEVICE_ENTRY::new_zeroed();
        let runlist = u32::from(device.runlist);
        let (instance, name) = match device.engine {
            Engine::Graphics => (0, "GRAPHICS".to_string()),
            Engine::Copy(n) => (n.get(), format!("CE{n}")),
            Engine::Nvdec(n) => (n.get(), format!("NVDEC{n}")),
            Engine::Nvenc(n) => (n.get(), format!("NVENC{n}")),
            Engine::Nvjpg(n) => (n.get(), format!("NVJPEG{n}")),
            Engine::Ofa(n) => (n.get(), format!("OFA{n}")),
            Engine::Sec2 => (0, "SEC2".to_string()),
        };
        let engine_type = self.engine_type(device.engine);
        let data = &mut entry.engineData;
        // A number that is not another's: drivers compare it with falcons', of which there are none.
        data[ENGINE_INFO_TYPE_ENG_DESC] = engine_type.saturating_mul(0x100);
        data[ENGINE_INFO_TYPE_FIFO_TAG] = device.index;
        data[ENGINE_INFO_TYPE_RM_ENGINE_TYPE] = engine_type;
        data[ENGINE_INFO_TYPE_RUNLIST] = runlist;
        data[ENGINE_INFO_TYPE_MC] = self.source(device.engine).into();
        data[ENGINE_INFO_TYPE_INSTANCE_ID] = instance.into();
        data[ENGINE_INFO_TYPE_RUNLIST_PRI_BASE] = runlist.saturating_add(1).saturating_mul(RUNLIST_STRIDE);
        data[ENGINE_INFO_TYPE_IS_HOST_DRIVEN_ENGINE] = 1;
        data[ENGINE_INFO_TYPE_RUNLIST_ENGINE_ID] = device.on_runlist;
        entry.pbdmaIds = [runlist, 0];
        entry.numPbdmas = 1;
        entry.engineName.iter_mut().take(15).zip(name.bytes()).for_each(|(to, from)| *to = from);
        entry
    }
}

impl MemorySources {
    /// Its number.
    const fn of(self, source: InterruptSource) -> Option<u16> {
        match source {
            InterruptSource::CpuDoorbell => Some(self.cpu_doorbell),
            InterruptSource::ReplayableFault => Some(self.replayable_fault),
            InterruptSource::ReplayableFaultError => Some(self.replayable_fault_error),
            InterruptSource::NonReplayableFault => Some(self.non_replayable_fault),
            InterruptSource::NonReplayableFaultError => Some(self.non_replayable_fault_error),
            InterruptSource::InfoFault => Some(self.info_fault),
            InterruptSource::AccessCounter => Some(self.access_counter),
            InterruptSource::Gsp
            | InterruptSource::Engine(_)
            | InterruptSource::Display
            | InterruptSource::DisplayLow => None,
        }
    }
}

/// Vectors of a subtree: two leaves.
const SUBTREE_VECTORS: u32 = 64;
/// No subtree.
const NO_SUBTREE: u8 = 0xff;

/// The first and last subtree of each category (`NV2080_INTR_CATEGORY_*`): 0 sources of their own, 1 engines,
/// 2 their notifications, 3 runlists, 4 theirs, 5 what UVM has to itself, 6 what it shares.
fn subtrees(sources: &[InterruptVectors]) -> [[u8; 2]; 7] {
    let of = |which: &dyn Fn(&InterruptVectors) -> Option<u32>| {
        let mut all = sources.iter().filter_map(which).map(|vector| vector / SUBTREE_VECTORS);
        let first = all
            .next()
            .map(|first| all.fold((first, first), |(low, high), next| (low.min(next), high.max(next))));
        let small = |number: u32| u8::try_from(number).unwrap_or(NO_SUBTREE);
        first.map_or([NO_SUBTREE; 2], |(low, high)| [small(low), small(high)])
    };
    let stall = of(&|vectors| vectors.stall.filter(|_| vectors.source == InterruptSource::Gsp));
    let notify = of(&|vectors| vectors.non_stall);
    let memory = of(&|vectors| {
        let is_memory = !matches!(
            vectors.source,
            InterruptSource::Gsp
                | InterruptSource::Engine(_)
                | InterruptSource::Display
                | InterruptSource::DisplayLow
        );
        vectors.stall.filter(|_| is_memory)
    });
    [stall, stall, notify, stall, notify, memory, memory]
}
