//! Class 906f: objects that name their engine, semaphores of 32 bits, notifications.
//!
//! TLB maintenance from the command stream (MEM_OP) is accepted and does nothing: only the driver's register
//! flushes.

use super::HostClass;
use crate::fifo::Departure;
use crate::fifo::ramfc::Semaphore;
use crate::mmu::channel_memory::{ChannelMemory, Report};
use crate::pbdma::ending::Ending;
use crate::pbdma::loaded::Loaded;
use gpuvmk_chip::Engine;
use gpuvmk_chip::channel_event::MmuFault;
use gpuvmk_chip::gf100::engines::{COPY0_NUMBER, COPY1_NUMBER, SOFTWARE_NUMBER};
use gpuvmk_chip::gf100::methods::{self, host, pcopy};
use gpuvmk_chip::gf100::ramin::USERD_REFERENCE;
use gpuvmk_chip::gf100::regs::pfifo::NV_PPBDMA_INTR_0;
use gpuvmk_chip::stream::{GP_ENTRY1, Method, opcode};

/// The class.
#[derive(Debug)]
pub(crate) struct Fermi;

impl HostClass for Fermi {
    fn method(&self, loaded: &mut Loaded<'_>, method: Method) -> Result<(), Ending> {
        let data = method.data;
        let semaphore = &mut loaded.state.semaphore;
        match method.method {
            host::SEMAPHORE_A => {
                let upper = host::SEMAPHORE_A::OFFSET_UPPER.get(data);
                semaphore.address = semaphore.address & 0xffff_ffff | u64::from(upper) << 32;
            }
            host::SEMAPHORE_B => {
                let lower = data & host::SEMAPHORE_B::OFFSET_LOWER.mask();
                semaphore.address = semaphore.address & !0xffff_ffff | u64::from(lower);
            }
            host::SEMAPHORE_C => semaphore.value = data.into(),
            host::SEMAPHORE_D => return execute_semaphore(loaded, method),
            host::NON_STALL_INTERRUPT => {
                let engine = loaded.engine_of(loaded.bound(method.subchannel));
                let engine = engine.or_else(|| loaded.engine_of(loaded.state.current_engine));
                let engine = engine.unwrap_or(Engine::Graphics);
                loaded.notify(engine);
            }
            host::SET_REFERENCE => {
                loaded.state.reference = data;
                loaded.write_userd(USERD_REFERENCE, data)?;
            }
            host::YIELD => return Err(Departure::Yielded.into()),
            // Engines have finished a method before the next one begins, and memory has no caches.
            host::NOP | host::FB_FLUSH | host::MEM_OP_A | host::MEM_OP_B | host::WFI => {}
            host::CRC_CHECK if data == 0 => {}
            host::CRC_CHECK => return Err(loaded.host_error(NV_PPBDMA_INTR_0::METHODCRC, Some(method))),
            _ => return Err(loaded.host_error(NV_PPBDMA_INTR_0::METHOD, Some(method))),
        }
        Ok(())
    }

    /// Binds a subchannel. Classes that name their engine go there whatever the engine field says.
    fn bind(&self, loaded: &mut Loaded<'_>, method: Method) -> Result<(), Ending> {
        let class = host::SET_OBJECT::NVCLASS.get_u16(method.data);
        let number = match class {
            pcopy::CLASS_COPY0 => COPY0_NUMBER,
            pcopy::CLASS_COPY1 => COPY1_NUMBER,
            methods::CLASS_SOFTWARE => SOFTWARE_NUMBER,
            _ => host::SET_OBJECT::ENGINE.get_u8(method.data),
        };
        if number != SOFTWARE_NUMBER && loaded.engine_of(number).is_none() {
            return Err(loaded.host_error(NV_PPBDMA_INTR_0::METHOD, Some(method)));
        }
        if let Some(bound) = loaded.state.engines.get_mut(usize::from(method.subchannel)) {
            *bound = number;
        }
        Ok(())
    }

    fn control_entry(&self, loaded: &mut Loaded<'_>, entry: u64) -> Result<(), Ending> {
        // Only the one that does nothing is known.
        if opcode(entry) == GP_ENTRY1::OPCODE::NOP {
            Ok(())
        } else {
            Err(loaded.host_error(NV_PPBDMA_INTR_0::GPENTRY, None))
        }
    }

    fn reached(&self, loaded: &Loaded<'_>, semaphore: &Semaphore) -> Result<bool, MmuFault> {
        let value = loaded.client().read_u32(semaphore.address)?;
        // CAST: the value has 32 bits here.
        let wanted = u32::try_from(semaphore.value).unwrap_or(0);
        Ok(match host::SEMAPHORE_D::OPERATION.get(semaphore.operation) {
            host::SEMAPHORE_D::OPERATION::ACQ_GEQ => value.wrapping_sub(wanted).cast_signed() >= 0,
            host::SEMAPHORE_D::OPERATION::ACQ_AND => value & wanted != 0,
            _ => value == wanted,
        })
    }
}

fn execute_semaphore(loaded: &mut Loaded<'_>, method: Method) -> Result<(), Ending> {
    loaded.state.semaphore.operation = method.data;
    match host::SEMAPHORE_D::OPERATION.get(method.data) {
        host::SEMAPHORE_D::OPERATION::RELEASE => {
            let semaphore = loaded.state.semaphore;
            let short = host::SEMAPHORE_D::RELEASE_SIZE.is_set(method.data);
            let report = if short { Report::Word } else { Report::FourWords };
            loaded.client().write_report(semaphore.address, semaphore.value, report)?;
            loaded.released();
            Ok(())
        }
        host::SEMAPHORE_D::OPERATION::ACQUIRE
        | host::SEMAPHORE_D::OPERATION::ACQ_GEQ
        | host::SEMAPHORE_D::OPERATION::ACQ_AND => {
            loaded.state.semaphore.pending = true;
            Ok(())
        }
        _ => Err(loaded.host_error(NV_PPBDMA_INTR_0::SEMAPHORE, Some(method))),
    }
}
