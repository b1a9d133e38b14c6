//! Words of commands become actions: the host unit's methods here, those of objects where they belong.

mod state;

pub use state::DecoderState;

use super::action::{Acquire, Action, Combine, Condition, Launch, Release};
use super::copy_engine::CopyEngine;
use super::memory::Invalidation;
use super::refusal::Refusal;
use gpuvmk_chip::addr::{GpuVa, PAGE_SIZE};
use gpuvmk_chip::gh100::methods::host::{self, MEM_OP_A, MEM_OP_C, MEM_OP_D, SEM_EXECUTE, SEMAPHORE_D};
use gpuvmk_chip::gh100::methods::{SUBCHANNEL_SOFTWARE, graphics, role};
use gpuvmk_chip::nv::classes::{GP100_UVM_SW, Role};
use gpuvmk_chip::reduction::Operand;
use gpuvmk_chip::stream::{Command, Header, Method};
use gpuvmk_chip::{Aperture, PhysicalAddress};
use serde::{Deserialize, Serialize};

/// Words of the host unit's state, of which each method has one.
const WORDS: usize = (host::ENGINE_METHODS / 4) as usize;

/// What a subchannel is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Object {
    /// Nothing yet.
    #[default]
    None,
    /// The copy engine.
    Copy,
    /// Two-dimensional drawing, of which a driver's kernel uses notifiers alone.
    TwoD,
    /// Methods that end faults of others. There are no faults to end.
    Software,
}

/// What a channel has been told so far.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// A header whose words are still to come.
    pending: Header,
    objects: [Object; 8],
    host: [u32; WORDS],
    copy: CopyEngine,
    /// Where a notifier is: both halves.
    notifier: [u32; 2],
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            pending: Header::default(),
            objects: [Object::default(); 8],
            host: [0; WORDS],
            copy: CopyEngine::default(),
            notifier: [0; 2],
        }
    }
}

/// What a word of a segment means for the rest of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Goes on.
    Nothing,
    /// Something is to be done before the next word, which this method asks for.
    Action(Method, Action),
    /// The rest of the segment does not count.
    EndSegment,
}

impl Decoder {
    /// The next word.
    ///
    /// # Errors
    /// It is not carried out.
    pub fn word(&mut self, word: u32) -> Result<Decoded, Refusal> {
        let method = if self.pending.remaining > 0 {
            self.pending.take(word)
        } else {
            match Command::decode(word) {
                Command::Immediate(method) => method,
                Command::Methods(header) => {
                    self.pending = header;
                    return Ok(Decoded::Nothing);
                }
                Command::Nothing => return Ok(Decoded::Nothing),
                Command::EndSegment => return Ok(Decoded::EndSegment),
                Command::Illegal(_) => return Err(Refusal::Header(word)),
            }
        };
        let action = self.method(method)?;
        Ok(action.map_or(Decoded::Nothing, |action| Decoded::Action(method, action)))
    }

    /// A method of the host unit, or of an object.
    ///
    /// # Errors
    /// It is not carried out.
    pub fn method(&mut self, method: Method) -> Result<Option<Action>, Refusal> {
        if method.method < host::ENGINE_METHODS {
            return self.host_method(method);
        }
        let object = self.objects.get(usize::from(method.subchannel)).copied().unwrap_or_default();
        match object {
            Object::Copy => Ok(self.copy.method(method)?.map(Action::Launch)),
            Object::TwoD => Ok(self.two_d(method)),
            Object::Software => Ok(None),
            // Drivers use the copy engine of a runlist without binding it.
            Object::None if method.subchannel < SUBCHANNEL_SOFTWARE => {
                Ok(self.copy.method(method)?.map(Action::Launch))
            }
            Object::None => Err(Refusal::Method(method)),
        }
    }

    fn host_method(&mut self, method: Method) -> Result<Option<Action>, Refusal> {
        let data = method.data;
        if let Some(word) = self.host.get_mut(usize::from(method.method / 4)) {
            *word = data;
        }
        match method.method {
            host::SET_OBJECT => self.bind(method),
            host::NOP
            | host::SEMAPHORE_A
            | host::SEMAPHORE_B
            | host::SEMAPHORE_C
            | MEM_OP_A
            | host::MEM_OP_B
            | MEM_OP_C
            | host::SEM_ADDR_LO
            | host::SEM_ADDR_HI
            | host::SEM_PAYLOAD_LO
            | host::SEM_PAYLOAD_HI
            // Everything is done in order, and in memory when it is done; nobody else waits for this channel.
            | host::FB_FLUSH
            | host::WFI
            | host::YIELD
            | host::SET_REFERENCE
            // There are no faults.
            | host::CLEAR_FAULTED => Ok(None),
            host::CRC_CHECK if data == 0 => Ok(None),
            host::NON_STALL_INTERRUPT => Ok(Some(Action::Launch(Launch { notify: true, ..Launch::default() }))),
            SEMAPHORE_D => self.old_semaphore(method).map(Some),
            SEM_EXECUTE => self.semaphore(method).map(Some),
            MEM_OP_D => self.memory_operation(method),
            _ => Err(Refusal::Method(method)),
        }
    }

    fn bind(&mut self, method: Method) -> Result<Option<Action>, Refusal> {
        let class = host::SET_OBJECT::NVCLASS.get_u16(method.data);
        let object = match role(class.into()) {
            Some(Role::Copy) => Object::Copy,
            Some(Role::TwoD) => Object::TwoD,
            _ if class == GP100_UVM_SW.method_class() => Object::Software,
            _ => return Err(Refusal::Class(class)),
        };
        if let Some(place) = self.objects.get_mut(usize::from(method.subchannel)) {
            *place = object;
        }
        Ok(None)
    }

    fn get(&self, method: u16) -> u32 {
        self.host.get(usize::from(method / 4)).copied().unwrap_or(0)
    }

    fn semaphore(&self, method: Method) -> Result<Action, Refusal> {
        let data = method.data;
        let width = Operand::of(SEM_EXECUTE::PAYLOAD_SIZE.is_set(data));
        let pair = |upper: u32, lower: u32| u64::from(upper) << 32 | u64::from(lower);
        let upper = host::SEM_ADDR_HI::OFFSET.get(self.get(host::SEM_ADDR_HI));
        let lower = self.get(host::SEM_ADDR_LO) & host::SEM_ADDR_LO::OFFSET.mask();
        let address = GpuVa(pair(upper, lower));
        let payload = pair(self.get(host::SEM_PAYLOAD_HI), self.get(host::SEM_PAYLOAD_LO));
        let acquire = |until| Ok(Action::Acquire(Acquire { address, payload, width, until }));
        match SEM_EXECUTE::OPERATION.get(data) {
            SEM_EXECUTE::OPERATION::ACQUIRE => acquire(Condition::Equal),
            SEM_EXECUTE::OPERATION::ACQ_STRICT_GEQ => acquire(Condition::AtLeast),
            SEM_EXECUTE::OPERATION::ACQ_CIRC_GEQ => acquire(Condition::NotBefore),
            SEM_EXECUTE::OPERATION::ACQ_AND => acquire(Condition::SharesOne),
            SEM_EXECUTE::OPERATION::ACQ_NOR => acquire(Condition::SharesZero),
            operation @ (SEM_EXECUTE::OPERATION::RELEASE | SEM_EXECUTE::OPERATION::REDUCTION) => {
                let reduction = if operation == SEM_EXECUTE::OPERATION::REDUCTION {
                    let signed = !SEM_EXECUTE::REDUCTION_FORMAT.is_set(data);
                    let number = SEM_EXECUTE::REDUCTION.get(data);
                    Some(Combine::of_host(number, width, signed).ok_or(Refusal::Method(method))?)
                } else {
                    None
                };
                let stamped = SEM_EXECUTE::RELEASE_TIMESTAMP.is_set(data);
                Ok(release(Release { address, payload, width, stamped, reduction }))
            }
            _ => Err(Refusal::Method(method)),
        }
    }

    fn old_semaphore(&self, method: Method) -> Result<Action, Refusal> {
        let data = method.data;
        let upper = u64::from(host::SEMAPHORE_A::OFFSET_UPPER.get(self.get(host::SEMAPHORE_A)));
        let lower = self.get(host::SEMAPHORE_B) & host::SEMAPHORE_B::OFFSET_LOWER.mask();
        let address = GpuVa(upper << 32 | u64::from(lower));
        let payload = self.get(host::SEMAPHORE_C).into();
        let width = Operand::Word;
        let acquire = |until| Ok(Action::Acquire(Acquire { address, payload, width, until }));
        match SEMAPHORE_D::OPERATION.get(data) {
            SEMAPHORE_D::OPERATION::ACQUIRE => acquire(Condition::Equal),
            SEMAPHORE_D::OPERATION::ACQ_GEQ => acquire(Condition::NotBefore),
            SEMAPHORE_D::OPERATION::ACQ_AND => acquire(Condition::SharesOne),
            SEMAPHORE_D::OPERATION::RELEASE => {
                let stamped = !SEMAPHORE_D::RELEASE_SIZE.is_set(data);
                Ok(release(Release { address, payload, width, stamped, reduction: None }))
            }
            _ => Err(Refusal::Method(method)),
        }
    }

    fn memory_operation(&self, method: Method) -> Result<Option<Action>, Refusal> {
        let targeted = match MEM_OP_D::OPERATION.get(method.data) {
            // Writes are in memory when they are done, and nothing here keeps copies.
            MEM_OP_D::OPERATION::MEMBAR
            | MEM_OP_D::OPERATION::L2_PEERMEM_INVALIDATE
            | MEM_OP_D::OPERATION::L2_SYSMEM_INVALIDATE
            | MEM_OP_D::OPERATION::L2_CLEAN_COMPTAGS
            | MEM_OP_D::OPERATION::L2_FLUSH_DIRTY
            | MEM_OP_D::OPERATION::L2_WAIT_FOR_SYS_PENDING_READS
            // No access is counted.
            | MEM_OP_D::OPERATION::ACCESS_COUNTER_CLR => return Ok(None),
            MEM_OP_D::OPERATION::MMU_TLB_INVALIDATE => false,
            MEM_OP_D::OPERATION::MMU_TLB_INVALIDATE_TARGETED => true,
            _ => return Err(Refusal::Method(method)),
        };
        let operand = self.get(MEM_OP_C);
        if MEM_OP_C::TLB_INVALIDATE_REPLAY.get(operand) >= MEM_OP_C::TLB_INVALIDATE_REPLAY::CANCEL_TARGETED {
            return Ok(None);
        }
        let directory = if MEM_OP_C::TLB_INVALIDATE_PDB.is_set(operand) {
            None
        } else {
            let aperture = match MEM_OP_C::TLB_INVALIDATE_PDB_APERTURE.get(operand) {
                MEM_OP_C::TLB_INVALIDATE_PDB_APERTURE::VID_MEM => Aperture::Vram,
                MEM_OP_C::TLB_INVALIDATE_PDB_APERTURE::SYS_MEM_COHERENT => Aperture::SystemCoherent,
                MEM_OP_C::TLB_INVALIDATE_PDB_APERTURE::SYS_MEM_NONCOHERENT => Aperture::SystemNonCoherent,
                _ => return Err(Refusal::Method(method)),
            };
            let upper = u64::from(MEM_OP_D::TLB_INVALIDATE_PDB_ADDR_HI.get(method.data));
            let lower = operand & MEM_OP_C::TLB_INVALIDATE_PDB_ADDR_LO.mask();
            Some(PhysicalAddress { aperture, address: upper << 32 | u64::from(lower) })
        };
        let range = if targeted { self.invalidated_range() } else { None };
        Ok(Some(Action::Invalidate(Invalidation { directory, range })))
    }

    /// What a targeted invalidation names; none where that is all there is.
    fn invalidated_range(&self) -> Option<(GpuVa, u64)> {
        let low = self.get(MEM_OP_A);
        let log2 = MEM_OP_A::TLB_INVALIDATE_INVALIDATION_SIZE.get(low);
        let bytes = PAGE_SIZE.checked_shl(log2).filter(|bytes| bytes >> log2 == PAGE_SIZE)?;
        let lower = low & MEM_OP_A::TLB_INVALIDATE_TARGET_ADDR_LO.mask();
        let address = u64::from(self.get(host::MEM_OP_B)) << 32 | u64::from(lower);
        Some((GpuVa(address & bytes.wrapping_neg()), bytes))
    }

    /// Methods of two-dimensional drawing: a notifier is written, all else is state that nothing uses.
    fn two_d(&mut self, method: Method) -> Option<Action> {
        let [upper, lower] = &mut self.notifier;
        match method.method {
            graphics::SET_NOTIFY_A => *upper = graphics::SET_NOTIFY_A::ADDRESS_UPPER.get(method.data),
            graphics::SET_NOTIFY_B => *lower = method.data,
            graphics::NOTIFY => {
                // A notifier: the time, and a status of 0 behind it.
                let address = u64::from(*upper) << 32 | u64::from(*lower);
                let zero = Release {
                    address: GpuVa(address.wrapping_add(8)),
                    payload: 0,
                    width: Operand::DoubleWord,
                    stamped: false,
                    reduction: None,
                };
                let notify = graphics::NOTIFY::AWAKEN.is_set(method.data);
                return Some(Action::Launch(Launch { transfer: None, release: Some(zero), notify }));
            }
            _ => {}
        }
        None
    }
}

const fn release(release: Release) -> Action {
    Action::Launch(Launch { transfer: None, release: Some(release), notify: false })
}
