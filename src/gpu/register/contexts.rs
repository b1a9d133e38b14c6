//! Engines and the contexts that channels have on them.
//!
//! Firmware for the falcons is a few words of our own, which the software GPU takes, or the firmware that a
//! stock driver was seen to upload to this card ([`crate::init_script`]). A tenant's firmware never gets
//! here. Context images are copies of a golden image that FECS itself saved. They are in the host's own
//! memory, and instance blocks point at them by physical address, so no address space contains one.

use std::sync::Arc;

use super::bus::Bus;
use super::memory::HostMemory;
use super::script::play;
use super::window::{block, halves};
use crate::GpuError;
use crate::init_script::{Script, Section};
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::gf100::engines::{self, ENGINES, EngineIds};
use gpuvmk_chip::gf100::ramin::{INSTANCE_SIZE, target};
use gpuvmk_chip::gf100::regs::falcon::{
    ACCESS_EN, CODE_DATA, CODE_INDEX, CODE_TAG, CPU_CONTROL, DMA_CONTROL, ENTRY,
};
use gpuvmk_chip::gf100::regs::fecs::NV_PGRAPH_PRI_FECS_METHOD_PUSH::ADR;
use gpuvmk_chip::gf100::regs::fecs::{
    NV_PGRAPH_PRI_FECS_CC_SCRATCH, NV_PGRAPH_PRI_FECS_CC_SCRATCH_CLEAR, NV_PGRAPH_PRI_FECS_CURRENT_CTX,
    NV_PGRAPH_PRI_FECS_INTR_SET, NV_PGRAPH_PRI_FECS_METHOD_DATA, NV_PGRAPH_PRI_FECS_METHOD_PUSH,
    NV_PGRAPH_PRI_FECS_NEXT_CTX,
};
use gpuvmk_chip::gf100::regs::gpccs::NV_PGRAPH_PRI_GPCCS_INTR_SET;
use gpuvmk_chip::gf100::regs::pce0::NV_PCE0_INTR_SET;
use gpuvmk_chip::gf100::regs::pce1::NV_PCE1_INTR_SET;
use gpuvmk_chip::gf100::regs::pgraph::{
    NV_PGRAPH_EXCEPTION_EN, NV_PGRAPH_GRFIFO_CONTROL, NV_PGRAPH_INTR, NV_PGRAPH_INTR_EN,
};
use gpuvmk_chip::gf100::regs::pmc::NV_PMC_ENABLE;
use gpuvmk_chip::registers::Reg;
use gpuvmk_chip::{Engine, EngineSet, PhysicalAddress};

/// Our firmware: a falcon's unconditional branch to itself, in Falcon's encoding (`bra $pc`), padded.
const FIRMWARE: [u32; 4] = [0x0000_0ef4, 0, 0, 0];

/// NV_PGRAPH_GRFIFO_CONTROL: the engine goes on.
pub(super) const TAKES_METHODS: u32 =
    NV_PGRAPH_GRFIFO_CONTROL::SEMAPHORE_ACCESS.mask() | NV_PGRAPH_GRFIFO_CONTROL::ACCESS.mask();

/// Bytes of a copy engine's context.
const COPY_CONTEXT_SIZE: u64 = PAGE_SIZE;

/// Mailbox 0: the command succeeded.
const DONE: u32 = NV_PGRAPH_PRI_FECS_CC_SCRATCH::DONE.mask();
/// Context registers: a context is named.
const VALID: u32 = NV_PGRAPH_PRI_FECS_CURRENT_CTX::VALID.mask();
/// Both kinds of access of a falcon to the FIFO.
const ACCESS_ALL: u32 = ACCESS_EN::CHSW.mask() | ACCESS_EN::FIFO.mask();

/// What units know an engine by.
fn ids(engine: Engine) -> Result<&'static EngineIds, GpuError> {
    engines::ids(engine).ok_or_else(|| no_such(engine))
}

fn no_such(engine: Engine) -> GpuError {
    GpuError::Invalid(format!("GF100 has no engine {engine}"))
}

/// Contexts of one channel, for its release.
#[derive(Debug, Default)]
pub(super) struct ChannelContexts {
    images: Vec<(Engine, u64, u64)>,
}

impl ChannelContexts {
    pub(super) fn engines(&self) -> EngineSet {
        self.images.iter().map(|(engine, ..)| EngineSet::from(*engine)).collect()
    }

    pub(super) fn release(self, memory: &mut HostMemory) {
        for (_, address, size) in self.images {
            memory.give_back(address, size);
        }
    }
}

/// The golden image, in whole pages, and how engines are started.
pub(super) struct Contexts {
    golden: Vec<u8>,
    script: Option<Arc<Script>>,
}

impl Contexts {
    /// Starts the engines, and has FECS make the golden image.
    pub(super) fn new(
        bus: &Bus,
        memory: &mut HostMemory,
        script: Option<Arc<Script>>,
    ) -> Result<Self, GpuError> {
        for copy in [Engine::COPY0, Engine::COPY1] {
            start_copy(bus, copy, script.as_deref())?;
        }
        let size = start_graphics(bus, script.as_deref())?;
        let image_size = u64::from(size).next_multiple_of(PAGE_SIZE);
        let image = memory.take(image_size, PAGE_SIZE)?;
        let instance = memory.take(INSTANCE_SIZE, PAGE_SIZE)?;
        write_pointer(memory, instance, Engine::Graphics, image)?;
        run_golden(bus, memory.physical(instance), script.as_deref())?;
        // With the zeros behind it, so that it is whole pages.
        let mut golden = vec![0; usize::try_from(image_size).unwrap_or(0)];
        memory.read(image, &mut golden)?;
        memory.give_back(instance, INSTANCE_SIZE);
        memory.give_back(image, image_size);
        Ok(Self { golden, script })
    }

    /// Gives a channel the contexts that it lacks. Contexts once given stay until the channel goes.
    pub(super) fn provide(
        &self,
        memory: &mut HostMemory,
        instance: u64,
        contexts: &mut ChannelContexts,
        engines: EngineSet,
    ) -> Result<(), GpuError> {
        for engine in ENGINES.map(|ids| ids.engine) {
            if !engines.contains(engine.into()) || contexts.engines().contains(engine.into()) {
                continue;
            }
            let (image, size) = match engine {
                Engine::Graphics => (memory.take_with(&self.golden)?, self.golden.len() as u64),
                _ => (memory.take(COPY_CONTEXT_SIZE, PAGE_SIZE)?, COPY_CONTEXT_SIZE),
            };
            contexts.images.push((engine, image, size));
            write_pointer(memory, instance, engine, image)?;
        }
        Ok(())
    }

    /// Takes an engine through reset and starts it again; work on it is dropped.
    pub(super) fn reset_engine(&self, bus: &Bus, engine: Engine) -> Result<(), GpuError> {
        let bit = ids(engine)?.enable.mask();
        let enabled = bus.read(NV_PMC_ENABLE)?;
        bus.write(NV_PMC_ENABLE, enabled & !bit)?;
        bus.write(NV_PMC_ENABLE, enabled | bit)?;
        match engine {
            Engine::Graphics => start_graphics(bus, self.script.as_deref()).map(|_| ()),
            _ => start_copy(bus, engine, self.script.as_deref()),
        }
    }
}

fn write_pointer(memory: &HostMemory, instance: u64, engine: Engine, image: u64) -> Result<(), GpuError> {
    let place = ids(engine)?.context;
    // The mode bit clear: a physical address.
    let PhysicalAddress { aperture, address } = memory.physical(image);
    let (low, high) = halves(address);
    memory.write_u32(instance.saturating_add(place), low | target(aperture))?;
    memory.write_u32(instance.saturating_add(place).saturating_add(4), high)
}

fn upload(bus: &Bus, falcon: u32) -> Result<(), GpuError> {
    let at = |offset: u32| Reg(falcon.wrapping_add(offset));
    bus.write(at(CODE_INDEX), CODE_INDEX::INCREMENT_ON_WRITE.mask())?;
    bus.write(at(CODE_TAG), 0)?;
    for word in FIRMWARE {
        bus.write(at(CODE_DATA), word)?;
    }
    Ok(())
}

fn start_copy(bus: &Bus, engine: Engine, script: Option<&Script>) -> Result<(), GpuError> {
    let (section, falcon) = match engine {
        Engine::COPY0 => (Section::Copy0, NV_PCE0_INTR_SET.0),
        Engine::COPY1 => (Section::Copy1, NV_PCE1_INTR_SET.0),
        _ => return Err(no_such(engine)),
    };
    if play(bus, script, section)? {
        return Ok(());
    }
    let at = |offset: u32| Reg(falcon.wrapping_add(offset));
    upload(bus, falcon)?;
    bus.write(at(DMA_CONTROL), DMA_CONTROL::BLOCK.mask())?;
    bus.write(at(ENTRY), 0)?;
    bus.write(at(CPU_CONTROL), CPU_CONTROL::START.mask())?;
    bus.write(at(ACCESS_EN), ACCESS_ALL)
}

/// Starts PGRAPH's controllers; returns the size of a context image.
fn start_graphics(bus: &Bus, script: Option<&Script>) -> Result<u32, GpuError> {
    let fecs = NV_PGRAPH_PRI_FECS_INTR_SET.0;
    bus.write(NV_PGRAPH_INTR, u32::MAX)?;
    bus.write(NV_PGRAPH_INTR_EN, u32::MAX)?;
    bus.write(NV_PGRAPH_EXCEPTION_EN, u32::MAX)?;
    bus.write(NV_PGRAPH_GRFIFO_CONTROL, TAKES_METHODS)?;
    if !play(bus, script, Section::Graphics)? {
        upload(bus, NV_PGRAPH_PRI_GPCCS_INTR_SET.0)?;
        upload(bus, fecs)?;
        bus.write(Reg(fecs.wrapping_add(DMA_CONTROL)), 0)?;
        bus.write(Reg(fecs.wrapping_add(CPU_CONTROL)), CPU_CONTROL::START.mask())?;
    }
    let mailbox = NV_PGRAPH_PRI_FECS_CC_SCRATCH;
    bus.poll(mailbox.at(0), "the start of FECS", |value| value & DONE != 0)?;
    let size = bus.read(mailbox.at(1))?;
    if size == 0 || size > 1 << 20 {
        return Err(GpuError::Invalid(format!("FECS reports context images of {size:#x} bytes")));
    }
    Ok(size)
}

/// Has FECS load an empty context and save it, with the state between that a driver gives to new ones.
fn run_golden(bus: &Bus, instance: PhysicalAddress, script: Option<&Script>) -> Result<(), GpuError> {
    bus.write(NV_PGRAPH_PRI_FECS_CC_SCRATCH_CLEAR.at(0), DONE)?;
    bus.write(NV_PGRAPH_PRI_FECS_METHOD_DATA, VALID | block(instance)?)?;
    bus.write(NV_PGRAPH_PRI_FECS_METHOD_PUSH, ADR::SET_CHAN)?;
    bus.poll(NV_PGRAPH_PRI_FECS_CC_SCRATCH.at(0), "loading the golden context", |value| value & DONE != 0)?;
    play(bus, script, Section::Golden)?;
    let next = bus.read(NV_PGRAPH_PRI_FECS_NEXT_CTX)?;
    bus.write(NV_PGRAPH_PRI_FECS_NEXT_CTX, next & !VALID)?;
    bus.write(NV_PGRAPH_PRI_FECS_INTR_SET, NV_PGRAPH_PRI_FECS_INTR_SET::CHSW.mask())?;
    bus.poll(NV_PGRAPH_PRI_FECS_CURRENT_CTX, "saving the golden context", |value| value & VALID == 0)?;
    Ok(())
}
