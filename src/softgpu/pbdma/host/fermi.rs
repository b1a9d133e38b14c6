//! Class 906f: objects that name their engine, semaphores of 32 bits, notifications.
//!
//! TLB maintenance from the command stream (MEM_OP) is accepted and does nothing: only the driver's register
//! flushes.

use super::{HostClass, USERD_REFERENCE};
use crate::fifo::Departure;
use crate::fifo::ramfc::{Semaphore, engine_number};
use crate::mmu::channel_memory::{ChannelMemory, Report};
use crate::pbdma::ending::Ending;
use crate::pbdma::loaded::Loaded;
use gpuvmk_chip::Engine;
use gpuvmk_chip::channel_event::MmuFault;
use gpuvmk_chip::gf100::methods::{self, host, pbdma_intr, pcopy};
use gpuvmk_chip::stream::Method;

/// The class.
#[derive(Debug)]
pub(crate) struct Fermi;

impl HostClass for Fermi {
    fn method(&self, loaded: &mut Loaded<'_>, method: Method) -> Result<(), Ending> {
        let data = method.data;
        let semaphore = &mut loaded.state.semaphore;
        match method.method {
            host::SEMAPHORE_A => {
                semaphore.address = semaphore.address & 0xffff_ffff | u64::from(data & 0xff) << 32;
            }
            host::SEMAPHORE_B => semaphore.address = semaphore.address & !0xffff_ffff | u64::from(data & !3),
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
            host::CRC_CHECK => return Err(loaded.host_error(pbdma_intr::CRC_MISMATCH, Some(method))),
            _ => return Err(loaded.host_error(pbdma_intr::ILLEGAL_METHOD, Some(method))),
        }
        Ok(())
    }

    /// Binds a subchannel. Classes that name their engine go there whatever the engine field says.
    fn bind(&self, loaded: &mut Loaded<'_>, method: Method) -> Result<(), Ending> {
        let [low, high, number, _] = method.data.to_le_bytes();
        let class = u16::from_le_bytes([low, high]);
        let number = match class {
            pcopy::CLASS_COPY0 => engine_number(Engine::Copy(0)),
            pcopy::CLASS_COPY1 => engine_number(Engine::Copy(1)),
            methods::CLASS_SOFTWARE => host::ENGINE_SOFTWARE,
            _ => number & 0x1f,
        };
        if number != host::ENGINE_SOFTWARE && loaded.engine_of(number).is_none() {
            return Err(loaded.host_error(pbdma_intr::ILLEGAL_METHOD, Some(method)));
        }
        if let Some(bound) = loaded.state.engines.get_mut(usize::from(method.subchannel)) {
            *bound = number;
        }
        Ok(())
    }

    fn control_entry(&self, loaded: &mut Loaded<'_>, entry: u64) -> Result<(), Ending> {
        // Only the one that does nothing is known.
        let operation = (entry >> 32) & 0xff;
        if operation == 0 { Ok(()) } else { Err(loaded.host_error(pbdma_intr::ENTRY_INVALID, None)) }
    }

    fn reached(&self, loaded: &Loaded<'_>, semaphore: &Semaphore) -> Result<bool, MmuFault> {
        let value = loaded.client().read_u32(semaphore.address)?;
        // CAST: the value has 32 bits here.
        let wanted = u32::try_from(semaphore.value).unwrap_or(0);
        Ok(match semaphore.operation & 0xf {
            host::ACQUIRE_GEQUAL => value.wrapping_sub(wanted).cast_signed() >= 0,
            host::ACQUIRE_AND => value & wanted != 0,
            _ => value == wanted,
        })
    }
}

fn execute_semaphore(loaded: &mut Loaded<'_>, method: Method) -> Result<(), Ending> {
    loaded.state.semaphore.operation = method.data;
    match method.data & 0xf {
        host::RELEASE => {
            let semaphore = loaded.state.semaphore;
            let short = method.data & host::RELEASE_SHORT != 0;
            let report = if short { Report::Word } else { Report::FourWords };
            loaded.client().write_report(semaphore.address, semaphore.value, report)?;
            loaded.released();
            Ok(())
        }
        host::ACQUIRE_EQUAL | host::ACQUIRE_GEQUAL | host::ACQUIRE_AND => {
            loaded.state.semaphore.pending = true;
            Ok(())
        }
        _ => Err(loaded.host_error(pbdma_intr::ILLEGAL_SEMAPHORE, Some(method))),
    }
}
