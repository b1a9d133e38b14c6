//! FSP: the processor that a driver asks to boot GSP. Only that message is modelled.
//!
//! The driver writes its message into EMEM through a port that moves on by itself, sets the queue's tail to
//! the last word and then the head, which sends it. FSP takes it at once: head and tail are equal again when
//! the write returns. The answer lies at the start of EMEM. There is one port, and one queue each way; the
//! message is copied and checked when it is sent, what the driver writes afterwards does not matter.
//!
//! Signatures are not checked: what the message names is never executed.

use zerocopy::{FromBytes, IntoBytes};

use super::super::hal::FspBoot;
use gpuvmk_chip::gsp::fsp::{
    CotMessage, EMEM_SIZE, Headers, INVALID_DATA, INVALID_STATE, MCTP_SINGLE_PACKET, NOT_SUPPORTED, NVDM_COT,
    NVDM_HEADER, NVDM_VENDOR, OK, Response,
};
use gpuvmk_chip::gsp::regs::fsp::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError, Words};
use serde::{Deserialize, Serialize};

/// EMEMC: position in EMEM, a multiple of 4.
const POSITION: u32 = NV_PFSP_EMEMC::BLK.mask() | NV_PFSP_EMEMC::OFFS.mask();
/// EMEMC: writes move on.
const AINCW: u32 = NV_PFSP_EMEMC::AINCW.mask();
/// EMEMC: reads move on.
const AINCR: u32 = NV_PFSP_EMEMC::AINCR.mask();

/// Words of EMEM.
const EMEM_WORDS: usize = EMEM_SIZE / 4;

/// Why FSP refuses a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FspError {
    /// Head and tail name no words of EMEM.
    #[error(
        "the queue's head {head:#x} and tail {tail:#x} are no message: multiples of 4 below {EMEM_SIZE:#x}, head first"
    )]
    Pointers {
        /// First word.
        head: u32,
        /// Last word.
        tail: u32,
    },
    /// The message's headers are not those of a message of one packet to NVIDIA's firmware.
    #[error("the headers {mctp:#010x} {nvdm:#010x} are not those of a vendor message in one packet")]
    Headers {
        /// MCTP header.
        mctp: u32,
        /// NVDM header.
        nvdm: u32,
    },
    /// Another kind of message than the one that boots GSP.
    #[error("messages of type {0:#04x} are not supported, only {NVDM_COT:#04x} (boot GSP)")]
    Kind(u8),
    /// The boot message has another size.
    #[error("a boot message has {} bytes, not {bytes}", size_of::<CotMessage>())]
    Size {
        /// Bytes sent.
        bytes: usize,
    },
    /// The boot message is of another version or contradicts its size.
    #[error(
        "the boot message says version {version} and {size} bytes, not version {wanted} and {} bytes",
        CotMessage::PAYLOAD
    )]
    Version {
        /// The version that the message names.
        version: u16,
        /// The version that FSP takes.
        wanted: u16,
        /// Bytes of its payload.
        size: u16,
    },
    /// The parameters that the boot message points at are not acceptable.
    #[error("the boot parameters at {address:#x} are {why}")]
    Parameters {
        /// Bus address.
        address: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// GSP did not accept its arguments.
    #[error(transparent)]
    Gsp(#[from] gpuvmk_gsp::BootError),
}

impl FspError {
    /// The error code for the driver.
    pub const fn code(self) -> u32 {
        match self {
            Self::Pointers { .. } | Self::Headers { .. } | Self::Size { .. } | Self::Parameters { .. } => {
                INVALID_DATA
            }
            Self::Kind(_) | Self::Version { .. } => NOT_SUPPORTED,
            Self::Gsp(_) => INVALID_STATE,
        }
    }
}

/// FSP's state.
#[derive(Clone, Debug)]
pub struct Fsp {
    boot: FspBoot,
    emem: [u32; EMEM_WORDS],
    port: u32,
    queue_head: u32,
    queue_tail: u32,
    answer_head: u32,
    answer_tail: u32,
}

impl Fsp {
    /// FSP in its reset state.
    pub const fn new(boot: FspBoot) -> Self {
        Self {
            boot,
            emem: [0; EMEM_WORDS],
            port: 0,
            queue_head: 0,
            queue_tail: 0,
            answer_head: 0,
            answer_tail: 0,
        }
    }

    /// Reads a register.
    pub fn read(&mut self, reg: Reg) -> u32 {
        match reg {
            NV_PFSP_EMEMC => self.port,
            NV_PFSP_EMEMD => {
                let value = self.emem.get(self.position()).copied().unwrap_or(0);
                self.move_on(AINCR);
                value
            }
            NV_PFSP_QUEUE_HEAD => self.queue_head,
            NV_PFSP_QUEUE_TAIL => self.queue_tail,
            NV_PFSP_MSGQ_HEAD => self.answer_head,
            NV_PFSP_MSGQ_TAIL => self.answer_tail,
            _ => 0,
        }
    }

    /// Writes a register. A message to boot GSP gives the bus address of what says where GSP's arguments are.
    ///
    /// # Errors
    /// A message was refused, and the driver got the error.
    pub fn write(&mut self, reg: Reg, word: Word) -> Result<Option<u64>, FspError> {
        match reg {
            NV_PFSP_EMEMC => self.port = word.merge(self.port) & (POSITION | AINCW | AINCR),
            NV_PFSP_EMEMD => {
                let position = self.position();
                if let Some(place) = self.emem.get_mut(position) {
                    *place = word.merge(*place);
                }
                self.move_on(AINCW);
            }
            NV_PFSP_QUEUE_TAIL => self.queue_tail = word.merge(self.queue_tail),
            NV_PFSP_QUEUE_HEAD => {
                self.queue_head = word.merge(self.queue_head);
                // Equal pointers mean that there is no message.
                if self.queue_head != self.queue_tail {
                    return self.take().map(Some);
                }
            }
            NV_PFSP_MSGQ_HEAD => self.answer_head = word.merge(self.answer_head),
            NV_PFSP_MSGQ_TAIL => self.answer_tail = word.merge(self.answer_tail),
            _ => {}
        }
        Ok(None)
    }

    /// Answers the boot message.
    pub fn booted(&mut self, result: Result<(), FspError>) {
        self.answer(NVDM_COT, result.err().map_or(OK, FspError::code));
    }

    fn take(&mut self) -> Result<u64, FspError> {
        let result = self.message();
        self.queue_head = 0;
        self.queue_tail = 0;
        let result = result.and_then(|message| parse(&message, self.boot));
        if let Err(error) = result {
            let kind = if let FspError::Kind(kind) = error { kind } else { NVDM_COT };
            self.answer(kind, error.code());
        }
        result
    }

    /// A copy of the message between head and tail.
    fn message(&self) -> Result<Vec<u8>, FspError> {
        let (head, tail) = (self.queue_head, self.queue_tail);
        let words = match (head % 4, tail % 4, usize::try_from(head), usize::try_from(tail)) {
            (0, 0, Ok(first), Ok(last)) if head < tail => self.emem.get(first / 4..=last / 4),
            _ => None,
        };
        let words = words.ok_or(FspError::Pointers { head, tail })?;
        Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    fn answer(&mut self, command: u8, error: u32) {
        let response = Response::new(command, error);
        let words = response.as_bytes().chunks_exact(4).filter_map(|word| word.first_chunk::<4>());
        for (place, word) in self.emem.iter_mut().zip(words) {
            *place = u32::from_le_bytes(*word);
        }
        self.answer_head = 0;
        // The last word of the answer.
        self.answer_tail = const {
            assert!(size_of::<Response>() == 20);
            16
        };
    }

    fn position(&self) -> usize {
        usize::try_from((self.port & POSITION) / 4).unwrap_or(usize::MAX)
    }

    fn move_on(&mut self, when: u32) {
        if self.port & when != 0 {
            // The position wraps in its field.
            self.port = self.port & !POSITION | self.port.wrapping_add(4) & POSITION;
        }
    }
}

/// Address of the boot parameters that a message names.
fn parse(message: &[u8], boot: FspBoot) -> Result<u64, FspError> {
    let Ok((headers, _)) = Headers::read_from_prefix(message) else {
        return Err(FspError::Size { bytes: message.len() });
    };
    let (mctp, nvdm) = (headers.mctp.get(), headers.nvdm.get());
    if mctp & MCTP_SINGLE_PACKET != MCTP_SINGLE_PACKET || nvdm & !NVDM_HEADER::NVDM_TYPE.mask() != NVDM_VENDOR
    {
        return Err(FspError::Headers { mctp, nvdm });
    }
    let [.., kind] = nvdm.to_le_bytes();
    if kind != NVDM_COT {
        return Err(FspError::Kind(kind));
    }
    let cot = CotMessage::read_from_bytes(message).map_err(|_| FspError::Size { bytes: message.len() })?;
    let (version, size) = (cot.version.get(), cot.size.get());
    let wanted = boot.message_version;
    if version != wanted || usize::from(size) != CotMessage::PAYLOAD {
        return Err(FspError::Version { version, wanted, size });
    }
    Ok(cot.boot_params.get())
}

/// State of [`Fsp`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FspState {
    /// EMEM.
    pub emem: Words,
    /// NV_PFSP_EMEMC.
    pub ememc: u32,
    /// NV_PFSP_QUEUE_HEAD.
    pub queue_head: u32,
    /// NV_PFSP_QUEUE_TAIL.
    pub queue_tail: u32,
    /// NV_PFSP_MSGQ_HEAD.
    pub msgq_head: u32,
    /// NV_PFSP_MSGQ_TAIL.
    pub msgq_tail: u32,
}

impl Fsp {
    /// The state to save.
    pub fn state(&self) -> FspState {
        let Self { boot: _, emem, port, queue_head, queue_tail, answer_head, answer_tail } = self;
        FspState {
            emem: Words::of(emem),
            ememc: *port,
            queue_head: *queue_head,
            queue_tail: *queue_tail,
            msgq_head: *answer_head,
            msgq_tail: *answer_tail,
        }
    }

    /// FSP in a saved state.
    ///
    /// # Errors
    /// EMEM does not hold what is to be in it, or its port has bits that do not stick.
    pub fn from_state(state: &FspState, boot: FspBoot) -> Result<Self, StateError> {
        let check = Check("FSP");
        let memory = state.emem.memory(check, "EMEM", EMEM_WORDS)?;
        check.bits("NV_PFSP_EMEMC", state.ememc, POSITION | AINCW | AINCR)?;
        let mut emem = [0; EMEM_WORDS];
        for (place, word) in emem.iter_mut().zip(memory) {
            *place = word;
        }
        Ok(Self {
            boot,
            emem,
            port: state.ememc,
            queue_head: state.queue_head,
            queue_tail: state.queue_tail,
            answer_head: state.msgq_head,
            answer_tail: state.msgq_tail,
        })
    }
}

#[cfg(test)]
mod tests;
