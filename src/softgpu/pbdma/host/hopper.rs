//! Class c86f, and the channel classes since Volta: engines by subchannel, semaphores of 32 and 64 bits with
//! reductions, memory barriers.
//!
//! No channel is privileged here: TLB maintenance, access counters and CLEAR_FAULTED are refused as hardware
//! refuses them to ordinary channels.

use super::HostClass;
use crate::fifo::Departure;
use crate::fifo::ramfc::Semaphore;
use crate::mmu::channel_memory::{ChannelMemory, Report};
use crate::pbdma::ending::Ending;
use crate::pbdma::loaded::Loaded;
use gpuvmk_chip::Engine;
use gpuvmk_chip::channel_event::MmuFault;
use gpuvmk_chip::gh100::methods::host;
use gpuvmk_chip::gh100::userd::USERD_REFERENCE;
use gpuvmk_chip::reduction::{Operand, Reduction};
use gpuvmk_chip::stream::{GP_ENTRY1, Method, opcode};

/// The class.
#[derive(Debug)]
pub(crate) struct Hopper;

impl HostClass for Hopper {
    fn method(&self, loaded: &mut Loaded<'_>, method: Method) -> Result<(), Ending> {
        let data = method.data;
        let semaphore = &mut loaded.state.semaphore;
        let low = 0xffff_ffff;
        match method.method {
            host::SEMAPHORE_A => {
                let upper = host::SEMAPHORE_A::OFFSET_UPPER.get(data);
                semaphore.address = semaphore.address & low | u64::from(upper) << 32;
            }
            host::SEMAPHORE_B => {
                let lower = data & host::SEMAPHORE_B::OFFSET_LOWER.mask();
                semaphore.address = semaphore.address & !low | u64::from(lower);
            }
            host::SEMAPHORE_C => semaphore.value = data.into(),
            host::SEMAPHORE_D => {
                let Some(data) = in_new_form(data) else {
                    return Err(loaded.host_error(host::NV_PPBDMA_INTR_0::SEMAPHORE, Some(method)));
                };
                return execute_semaphore(loaded, Method { data, ..method });
            }
            host::SEM_ADDR_LO => {
                let lower = data & host::SEM_ADDR_LO::OFFSET.mask();
                semaphore.address = semaphore.address & !low | u64::from(lower);
            }
            host::SEM_ADDR_HI => {
                let upper = host::SEM_ADDR_HI::OFFSET.get(data);
                semaphore.address = semaphore.address & low | u64::from(upper) << 32;
            }
            host::SEM_PAYLOAD_LO => semaphore.value = semaphore.value & !low | u64::from(data),
            host::SEM_PAYLOAD_HI => semaphore.value = semaphore.value & low | u64::from(data) << 32,
            host::SEM_EXECUTE => return execute_semaphore(loaded, method),
            host::NON_STALL_INTERRUPT => {
                // Of the runlist, whatever the subchannel: its engine is behind subchannel 0.
                let engine = loaded.engine_of(loaded.bound(0)).unwrap_or(Engine::Graphics);
                loaded.notify(engine);
            }
            host::SET_REFERENCE => {
                loaded.state.reference = data;
                loaded.write_userd(USERD_REFERENCE, data)?;
            }
            host::YIELD => match host::YIELD::OP.get(data) {
                host::YIELD::OP::RUNLIST_TIMESLICE => return Err(Departure::Yielded.into()),
                // Every channel is a group of its own.
                host::YIELD::OP::NOP | host::YIELD::OP::TSG => {}
                _ => return Err(loaded.host_error(host::NV_PPBDMA_INTR_0::METHOD, Some(method))),
            },
            host::MEM_OP_D => match host::MEM_OP_D::OPERATION.get(data) {
                // Engines have finished a method before the next one begins, and memory has no caches.
                host::MEM_OP_D::OPERATION::MEMBAR
                | host::MEM_OP_D::OPERATION::L2_PEERMEM_INVALIDATE
                | host::MEM_OP_D::OPERATION::L2_SYSMEM_INVALIDATE
                | host::MEM_OP_D::OPERATION::L2_CLEAN_COMPTAGS
                | host::MEM_OP_D::OPERATION::L2_FLUSH_DIRTY
                | host::MEM_OP_D::OPERATION::L2_WAIT_FOR_SYS_PENDING_READS => {}
                _ => return Err(loaded.host_error(host::NV_PPBDMA_INTR_0::METHOD, Some(method))),
            },
            host::NOP | host::FB_FLUSH | host::MEM_OP_A | host::MEM_OP_B | host::MEM_OP_C | host::WFI => {}
            host::CRC_CHECK if data == 0 => {}
            host::CRC_CHECK => return Err(loaded.host_error(host::NV_PPBDMA_INTR_0::METHODCRC, Some(method))),
            _ => return Err(loaded.host_error(host::NV_PPBDMA_INTR_0::METHOD, Some(method))),
        }
        Ok(())
    }

    fn bind(&self, _loaded: &mut Loaded<'_>, _method: Method) -> Result<(), Ending> {
        // The subchannel decides; the engine checks the class.
        Ok(())
    }

    fn control_entry(&self, loaded: &mut Loaded<'_>, entry: u64) -> Result<(), Ending> {
        if let Some(base) = host::segment_base(entry) {
            loaded.state.segment_base = base;
        } else if opcode(entry) != GP_ENTRY1::OPCODE::NOP {
            return Err(loaded.host_error(host::NV_PPBDMA_INTR_0::GPENTRY, None));
        }
        Ok(())
    }

    fn reached(&self, loaded: &Loaded<'_>, semaphore: &Semaphore) -> Result<bool, MmuFault> {
        let operand = operand(semaphore.operation);
        let client = loaded.client();
        let value = match operand {
            Operand::Word => u64::from(client.read_u32(semaphore.address)?),
            Operand::DoubleWord => client.read_u64(semaphore.address)?,
        };
        let wanted = semaphore.value & operand.mask();
        Ok(match host::SEM_EXECUTE::OPERATION.get(semaphore.operation) {
            host::SEM_EXECUTE::OPERATION::ACQ_STRICT_GEQ => value >= wanted,
            host::SEM_EXECUTE::OPERATION::ACQ_CIRC_GEQ => !operand.is_negative(value.wrapping_sub(wanted)),
            host::SEM_EXECUTE::OPERATION::ACQ_AND => value & wanted != 0,
            host::SEM_EXECUTE::OPERATION::ACQ_NOR => !(value | wanted) & operand.mask() != 0,
            _ => value == wanted,
        })
    }
}

/// SEMAPHORED's data as SEM_EXECUTE's; `None` for an operation that there is not.
fn in_new_form(data: u32) -> Option<u32> {
    let timestamp = if host::SEMAPHORE_D::RELEASE_SIZE.is_set(data) {
        0
    } else {
        host::SEM_EXECUTE::RELEASE_TIMESTAMP.mask()
    };
    // The reduction and its format are where SEM_EXECUTE has them.
    let reduction = host::SEM_EXECUTE::REDUCTION.mask() | host::SEM_EXECUTE::REDUCTION_FORMAT.mask();
    Some(match host::SEMAPHORE_D::OPERATION.get(data) {
        host::SEMAPHORE_D::OPERATION::ACQUIRE => host::SEM_EXECUTE::OPERATION::ACQUIRE,
        host::SEMAPHORE_D::OPERATION::RELEASE => host::SEM_EXECUTE::OPERATION::RELEASE | timestamp,
        host::SEMAPHORE_D::OPERATION::ACQ_GEQ => host::SEM_EXECUTE::OPERATION::ACQ_CIRC_GEQ,
        host::SEMAPHORE_D::OPERATION::ACQ_AND => host::SEM_EXECUTE::OPERATION::ACQ_AND,
        host::SEMAPHORE_D::OPERATION::REDUCTION => host::SEM_EXECUTE::OPERATION::REDUCTION | data & reduction,
        _ => return None,
    })
}

fn operand(operation: u32) -> Operand {
    Operand::of(host::SEM_EXECUTE::PAYLOAD_SIZE.is_set(operation))
}

fn execute_semaphore(loaded: &mut Loaded<'_>, method: Method) -> Result<(), Ending> {
    let data = method.data;
    loaded.state.semaphore.operation = data;
    let semaphore = loaded.state.semaphore;
    let operand = operand(data);
    let operation = host::SEM_EXECUTE::OPERATION.get(data);
    let writes =
        matches!(operation, host::SEM_EXECUTE::OPERATION::RELEASE | host::SEM_EXECUTE::OPERATION::REDUCTION);
    let timestamp = writes && host::SEM_EXECUTE::RELEASE_TIMESTAMP.is_set(data);
    let alignment = match operand {
        _ if timestamp => 16,
        Operand::DoubleWord => 8,
        Operand::Word => 4,
    };
    let refused = loaded.host_error(host::NV_PPBDMA_INTR_0::SEMAPHORE, Some(method));
    if !semaphore.address.is_multiple_of(alignment) {
        return Err(refused);
    }
    let value = semaphore.value & operand.mask();
    match operation {
        host::SEM_EXECUTE::OPERATION::RELEASE => {
            let report = match operand {
                _ if timestamp => Report::FourWords,
                Operand::DoubleWord => Report::DoubleWord,
                Operand::Word => Report::Word,
            };
            loaded.client().write_report(semaphore.address, value, report)?;
        }
        host::SEM_EXECUTE::OPERATION::REDUCTION => {
            let number = host::SEM_EXECUTE::REDUCTION.get(data);
            let signed = !host::SEM_EXECUTE::REDUCTION_FORMAT.is_set(data);
            let reduction = Reduction::of_host(number).filter(|which| which.supports(operand, signed));
            let Some(reduction) = reduction else { return Err(refused) };
            let client = loaded.client();
            if timestamp {
                client.write_time(semaphore.address)?;
            }
            client.reduce(semaphore.address, reduction, operand, signed, value)?;
        }
        host::SEM_EXECUTE::OPERATION::ACQUIRE
        | host::SEM_EXECUTE::OPERATION::ACQ_STRICT_GEQ
        | host::SEM_EXECUTE::OPERATION::ACQ_CIRC_GEQ
        | host::SEM_EXECUTE::OPERATION::ACQ_AND
        | host::SEM_EXECUTE::OPERATION::ACQ_NOR => {
            loaded.state.semaphore.pending = true;
            return Ok(());
        }
        _ => return Err(refused),
    }
    loaded.released();
    Ok(())
}
