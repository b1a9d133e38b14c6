//! The host unit's own methods: objects, semaphores, notifications.
//!
//! TLB maintenance from the command stream (MEM_OP) is accepted and does nothing: only the driver's register
//! flushes.

use std::time::{Duration, Instant};

use super::execution::Execution;
use super::fifo::Departure;
use super::pbdma::Ending;
use super::ramfc::{Method, engine_of};
use crate::chip::Engine;
use crate::chip::gf100::methods::{self, host, pbdma_intr, pcopy};

/// USERD: the reference count, written by hardware.
const USERD_REFERENCE: u64 = 0x48;

impl Execution<'_> {
    /// Executes a method below 0x100, other than SET_OBJECT.
    pub(super) fn host_method(&mut self, method: Method) -> Result<(), Ending> {
        let data = method.data;
        let semaphore = &mut self.state.semaphore;
        match method.method {
            host::SEMAPHORE_A => {
                semaphore.address = semaphore.address & 0xffff_ffff | u64::from(data & 0xff) << 32;
            }
            host::SEMAPHORE_B => semaphore.address = semaphore.address & !0xffff_ffff | u64::from(data & !3),
            host::SEMAPHORE_C => semaphore.value = data,
            host::SEMAPHORE_D => return self.semaphore(method),
            host::NON_STALL_INTERRUPT => {
                let engine = engine_of(self.bound(method.subchannel));
                let engine = engine.or_else(|| engine_of(self.state.current_engine));
                let engine = engine.unwrap_or(Engine::Graphics);
                self.shared.hardware.tell(|events| events.non_stall(engine));
            }
            host::SET_REFERENCE => {
                self.state.reference = data;
                self.write_userd(USERD_REFERENCE, data)?;
            }
            host::YIELD => return Err(Departure::Yielded.into()),
            // Engines have finished a method before the next one begins, and memory has no caches.
            host::NOP | host::FB_FLUSH | host::MEM_OP_A | host::MEM_OP_B | host::WFI => {}
            host::CRC_CHECK if data == 0 => {}
            host::CRC_CHECK => return Err(self.host_error(pbdma_intr::CRC_MISMATCH, Some(method))),
            _ => return Err(self.host_error(pbdma_intr::ILLEGAL_METHOD, Some(method))),
        }
        Ok(())
    }

    /// Binds a subchannel. Classes that name their engine go there whatever the engine field says.
    pub(super) fn bind(&mut self, method: Method) -> Result<(), Ending> {
        let [low, high, number, _] = method.data.to_le_bytes();
        let class = u16::from_le_bytes([low, high]);
        let number = match class {
            pcopy::CLASS_COPY0 => host::ENGINE_COPY0,
            pcopy::CLASS_COPY1 => host::ENGINE_COPY1,
            methods::CLASS_SOFTWARE => host::ENGINE_SOFTWARE,
            _ => number & 0x1f,
        };
        if number != host::ENGINE_SOFTWARE && engine_of(number).is_none() {
            return Err(self.host_error(pbdma_intr::ILLEGAL_METHOD, Some(method)));
        }
        if let Some(bound) = self.state.engines.get_mut(usize::from(method.subchannel)) {
            *bound = number;
        }
        Ok(())
    }

    fn semaphore(&mut self, method: Method) -> Result<(), Ending> {
        self.state.semaphore.operation = method.data;
        match method.data & 0xf {
            host::RELEASE => {
                let semaphore = self.state.semaphore;
                let short = method.data & host::RELEASE_SHORT != 0;
                self.client().write_report(semaphore.address, semaphore.value, short)?;
                self.shared.released();
                Ok(())
            }
            host::ACQUIRE_EQUAL | host::ACQUIRE_GEQUAL | host::ACQUIRE_AND => {
                self.state.semaphore.pending = true;
                Ok(())
            }
            _ => Err(self.host_error(pbdma_intr::ILLEGAL_SEMAPHORE, Some(method))),
        }
    }

    /// Looks at the semaphore of a pending acquire: goes on, or lets others run until the next look.
    pub(super) fn acquire(&mut self) -> Result<(), Ending> {
        let semaphore = self.state.semaphore;
        let value = self.client().read_u32(semaphore.address)?;
        let reached = match semaphore.operation & 0xf {
            host::ACQUIRE_GEQUAL => value.wrapping_sub(semaphore.value).cast_signed() >= 0,
            host::ACQUIRE_AND => value & semaphore.value != 0,
            _ => value == semaphore.value,
        };
        if reached {
            self.state.semaphore.pending = false;
            self.job.acquired();
            return Ok(());
        }
        let waited = self.job.waiting_since.map_or(Duration::ZERO, |since| Instant::now() - since);
        if self.state.acquire_limit().is_some_and(|limit| waited > Duration::from_micros(limit)) {
            return Err(self.host_error(pbdma_intr::ACQUIRE_TIMEOUT, None));
        }
        Err(Departure::Blocked.into())
    }
}
