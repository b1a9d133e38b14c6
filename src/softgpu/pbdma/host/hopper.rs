//! Class c86f, and the channel classes since Volta: engines by subchannel, semaphores of 32 and 64 bits with
//! reductions, memory barriers.
//!
//! No channel is privileged here: TLB maintenance, access counters and CLEAR_FAULTED are refused as hardware
//! refuses them to ordinary channels.

use super::{HostClass, USERD_REFERENCE};
use crate::fifo::Departure;
use crate::fifo::ramfc::Semaphore;
use crate::mmu::channel_memory::{ChannelMemory, Report};
use crate::mmu::reduction::{Operand, Reduction};
use crate::pbdma::ending::Ending;
use crate::pbdma::loaded::Loaded;
use gpuvmk_chip::Engine;
use gpuvmk_chip::channel_event::MmuFault;
use gpuvmk_chip::gh100::methods::host::{self, control_entry, mem_op, old_sem, pbdma_intr, sem, yield_op};
use gpuvmk_chip::stream::Method;

/// Address bits 56:32 in a high word.
const ADDRESS_HIGH: u32 = 0x01ff_ffff;

/// Address bits 39:32 in the old form's high word.
const OLD_ADDRESS_HIGH: u32 = 0xff;

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
                semaphore.address = semaphore.address & low | u64::from(data & OLD_ADDRESS_HIGH) << 32;
            }
            host::SEMAPHORE_B => semaphore.address = semaphore.address & !low | u64::from(data & !3),
            host::SEMAPHORE_C => semaphore.value = data.into(),
            host::SEMAPHORE_D => {
                let Some(data) = in_new_form(data) else {
                    return Err(loaded.host_error(pbdma_intr::SEMAPHORE, Some(method)));
                };
                return execute_semaphore(loaded, Method { data, ..method });
            }
            host::SEM_ADDR_LO => semaphore.address = semaphore.address & !low | u64::from(data & !3),
            host::SEM_ADDR_HI => {
                semaphore.address = semaphore.address & low | u64::from(data & ADDRESS_HIGH) << 32;
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
            host::YIELD => match data & 3 {
                yield_op::RUNLIST_TIMESLICE => return Err(Departure::Yielded.into()),
                // Every channel is a group of its own.
                yield_op::NOP | yield_op::TSG => {}
                _ => return Err(loaded.host_error(pbdma_intr::METHOD, Some(method))),
            },
            host::MEM_OP_D => match data >> mem_op::SHIFT {
                // Engines have finished a method before the next one begins, and memory has no caches.
                mem_op::MEMBAR
                | mem_op::L2_PEERMEM_INVALIDATE
                | mem_op::L2_SYSMEM_INVALIDATE
                | mem_op::L2_CLEAN_COMPTAGS
                | mem_op::L2_FLUSH_DIRTY
                | mem_op::L2_WAIT_FOR_SYS_PENDING_READS => {}
                _ => return Err(loaded.host_error(pbdma_intr::METHOD, Some(method))),
            },
            host::NOP | host::FB_FLUSH | host::MEM_OP_A | host::MEM_OP_B | host::MEM_OP_C | host::WFI => {}
            host::CRC_CHECK if data == 0 => {}
            host::CRC_CHECK => return Err(loaded.host_error(pbdma_intr::METHODCRC, Some(method))),
            _ => return Err(loaded.host_error(pbdma_intr::METHOD, Some(method))),
        }
        Ok(())
    }

    fn bind(&self, _loaded: &mut Loaded<'_>, _method: Method) -> Result<(), Ending> {
        // The subchannel decides; the engine checks the class.
        Ok(())
    }

    fn control_entry(&self, loaded: &mut Loaded<'_>, entry: u64) -> Result<(), Ending> {
        if let Some(base) = control_entry::segment_base(entry) {
            loaded.state.segment_base = base;
        } else if control_entry::operation(entry) != control_entry::NOP {
            return Err(loaded.host_error(pbdma_intr::GPENTRY, None));
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
        Ok(match semaphore.operation & sem::OPERATION {
            sem::ACQ_STRICT_GEQ => value >= wanted,
            sem::ACQ_CIRC_GEQ => !operand.is_negative(value.wrapping_sub(wanted)),
            sem::ACQ_AND => value & wanted != 0,
            sem::ACQ_NOR => !(value | wanted) & operand.mask() != 0,
            _ => value == wanted,
        })
    }
}

/// SEMAPHORED's data as SEM_EXECUTE's; `None` for an operation that there is not.
fn in_new_form(data: u32) -> Option<u32> {
    let timestamp = if data & old_sem::RELEASE_4_BYTES == 0 { sem::RELEASE_TIMESTAMP } else { 0 };
    Some(match data & old_sem::OPERATION {
        old_sem::ACQUIRE => sem::ACQUIRE,
        old_sem::RELEASE => sem::RELEASE | timestamp,
        old_sem::ACQ_GEQ => sem::ACQ_CIRC_GEQ,
        old_sem::ACQ_AND => sem::ACQ_AND,
        old_sem::REDUCTION => sem::REDUCTION | data & old_sem::REDUCTION_FIELDS,
        _ => return None,
    })
}

fn operand(operation: u32) -> Operand {
    if operation & sem::PAYLOAD_64BIT != 0 { Operand::DoubleWord } else { Operand::Word }
}

fn execute_semaphore(loaded: &mut Loaded<'_>, method: Method) -> Result<(), Ending> {
    let data = method.data;
    loaded.state.semaphore.operation = data;
    let semaphore = loaded.state.semaphore;
    let operand = operand(data);
    let operation = data & sem::OPERATION;
    let writes = matches!(operation, sem::RELEASE | sem::REDUCTION);
    let timestamp = writes && data & sem::RELEASE_TIMESTAMP != 0;
    let alignment = match operand {
        _ if timestamp => 16,
        Operand::DoubleWord => 8,
        Operand::Word => 4,
    };
    let refused = loaded.host_error(pbdma_intr::SEMAPHORE, Some(method));
    if !semaphore.address.is_multiple_of(alignment) {
        return Err(refused);
    }
    let value = semaphore.value & operand.mask();
    match operation {
        sem::RELEASE => {
            let report = match operand {
                _ if timestamp => Report::FourWords,
                Operand::DoubleWord => Report::DoubleWord,
                Operand::Word => Report::Word,
            };
            loaded.client().write_report(semaphore.address, value, report)?;
        }
        sem::REDUCTION => {
            let number = data >> sem::REDUCTION_SHIFT & 0xf;
            let signed = data & sem::REDUCTION_UNSIGNED == 0;
            let reduction = Reduction::of_host(number).filter(|which| which.supports(operand, signed));
            let Some(reduction) = reduction else { return Err(refused) };
            let client = loaded.client();
            if timestamp {
                client.write_time(semaphore.address)?;
            }
            client.reduce(semaphore.address, reduction, operand, signed, value)?;
        }
        sem::ACQUIRE | sem::ACQ_STRICT_GEQ | sem::ACQ_CIRC_GEQ | sem::ACQ_AND | sem::ACQ_NOR => {
            loaded.state.semaphore.pending = true;
            return Ok(());
        }
        _ => return Err(refused),
    }
    loaded.released();
    Ok(())
}
