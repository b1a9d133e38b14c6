//! The reasons of stopped channels for drivers: robust-channel codes (the Xid) and Volta's numbers of MMU
//! faults.

use crate::abi::values::FaultOfChannel;
use gpuvmk_chip::channel_event::{FaultUnit, HangKind, StopCause};
use gpuvmk_chip::{AccessKind, Engine, FaultReason};

/// `ROBUST_CHANNEL_GR_EXCEPTION`.
const GRAPHICS_EXCEPTION: u32 = 13;
/// `ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT`.
const MMU_FAULT: u32 = 31;
/// `ROBUST_CHANNEL_PBDMA_ERROR`.
const PBDMA_ERROR: u32 = 32;
/// `ROBUST_CHANNEL_CTXSW_TIMEOUT_ERROR`.
const CONTEXT_SWITCH_TIMEOUT: u32 = 109;

/// `ROBUST_CHANNEL_CE0_ERROR`. The numbers of engines 1 and 2 follow it.
const CE0_ERROR: u32 = 39;
/// `ROBUST_CHANNEL_CE3_ERROR`. The numbers of those above follow it.
const CE3_ERROR: u32 = 88;

/// The number of an engine's own error.
pub(super) fn copy_error(engine: Engine) -> u32 {
    let Engine::Copy(number) = engine else { return GRAPHICS_EXCEPTION };
    let number = u32::from(number.get());
    number.checked_sub(3).map_or(CE0_ERROR + number, |above| CE3_ERROR + above)
}

/// Why a channel was stopped, for the driver's recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RobustChannelError {
    /// Engine that reported it.
    pub engine: Engine,
    /// `ROBUST_CHANNEL_*` number (the Xid): 31 for an MMU fault, 32 for a host error, 13 for a graphics
    /// error.
    pub code: u32,
    /// Faulting virtual address, for MMU faults.
    pub address: u64,
    /// Fault type in Volta's numbering, for MMU faults.
    pub fault_type: u32,
    /// Access that faulted, for MMU faults.
    pub access: AccessKind,
}

impl RobustChannelError {
    /// An error that is no MMU fault.
    pub const fn plain(engine: Engine, code: u32) -> Self {
        Self { engine, code, address: 0, fault_type: 0, access: AccessKind::Read }
    }

    /// The MMU fault that it is; none for another error.
    pub(super) fn fault(&self) -> Option<FaultOfChannel> {
        let Self { fault_type, access, .. } = *self;
        (self.code == MMU_FAULT).then_some(FaultOfChannel { fault_type, access })
    }

    /// What a driver's log says of it behind the number. Who reads such logs looks for these words.
    pub(super) fn text(&self) -> String {
        match self.code {
            MMU_FAULT => {
                let (high, low) = (self.address >> 32, self.address & u64::from(u32::MAX));
                let access = match self.access {
                    AccessKind::Read => "READ",
                    AccessKind::Write => "WRITE",
                };
                format!(
                    "MMU Fault: ENGINE {} faulted @ {high:#x}_{low:08x}. Fault is of type {} ACCESS_TYPE_VIRT_{access}",
                    unit(self.engine),
                    fault_name(self.fault_type)
                )
            }
            code => format!("{}: {}", unit(self.engine), meaning(code)),
        }
    }
}

impl From<StopCause> for RobustChannelError {
    fn from(cause: StopCause) -> Self {
        // The host unit serves every engine; which one the channel is for, it does not say.
        let host = Engine::Graphics;
        match cause {
            StopCause::Fault(fault) => Self {
                engine: match fault.unit {
                    FaultUnit::Engine(engine) => engine,
                    FaultUnit::Host | FaultUnit::Bar1 | FaultUnit::Bar3 => host,
                },
                code: MMU_FAULT,
                address: fault.address.0,
                fault_type: fault_type(fault.reason),
                access: fault.access,
            },
            StopCause::Host(_) => Self::plain(host, PBDMA_ERROR),
            StopCause::Graphics(_) => Self::plain(Engine::Graphics, GRAPHICS_EXCEPTION),
            StopCause::Manager(code) => Self::plain(host, code),
            // The code that a GPU's own watchdog reports.
            StopCause::Hang(hang) => {
                let code = match hang.kind {
                    HangKind::Engine => CONTEXT_SWITCH_TIMEOUT,
                    HangKind::Acquire => PBDMA_ERROR,
                };
                Self::plain(hang.engine, code)
            }
        }
    }
}

/// `NV_PFAULT_FAULT_TYPE_*` of a reason, whose own numbers are those of GF100.
const fn fault_type(reason: FaultReason) -> u32 {
    match reason {
        FaultReason::PageTableNotPresent => 0x0,
        FaultReason::PageTableTooShort => 0x1,
        FaultReason::PageNotPresent => 0x2,
        FaultReason::VmLimitExceeded => 0x3,
        FaultReason::NoChannel => 0x4,
        FaultReason::PageSystemOnly => 0x5,
        FaultReason::WriteToReadOnly => 0x6,
        FaultReason::UnsupportedAperture => 0xa,
        FaultReason::CompressionFault => 0xb,
    }
}

/// NVIDIA's name of a fault type.
const fn fault_name(fault_type: u32) -> &'static str {
    match fault_type {
        0x0 => "FAULT_PDE",
        0x1 => "FAULT_PDE_SIZE",
        0x2 => "FAULT_PTE",
        0x3 => "FAULT_VA_LIMIT_VIOLATION",
        0x4 => "FAULT_UNBOUND_INST_BLOCK",
        0x5 => "FAULT_PRIV_VIOLATION",
        0x6 => "FAULT_RO_VIOLATION",
        0xa => "FAULT_UNSUPPORTED_APERTURE",
        _ => "FAULT_COMPRESSION_FAILURE",
    }
}

/// NVIDIA's name of an engine.
fn unit(engine: Engine) -> String {
    match engine {
        Engine::Graphics => "GRAPHICS".into(),
        Engine::Copy(number) => format!("CE{number}"),
        other => other.to_string().to_uppercase(),
    }
}

/// An error of which nothing but its number is known.
const fn meaning(code: u32) -> &'static str {
    match code {
        GRAPHICS_EXCEPTION => "an exception of the engine",
        PBDMA_ERROR => "the host unit could not carry a command out",
        CONTEXT_SWITCH_TIMEOUT => "the channel did not leave its engine in time",
        _ => "the channel was stopped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::AccessKind;
    use gpuvmk_chip::addr::GpuVa;
    use gpuvmk_chip::channel_event::MmuFault;

    #[test]
    fn every_reason_has_a_number_of_its_own() {
        let mut numbers = FaultReason::ALL.map(fault_type).to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), FaultReason::ALL.len());
        assert!(numbers.iter().all(|number| *number < 16));
    }

    #[test]
    fn fault_of_a_channel_says_who_where_and_why() {
        let fault = MmuFault {
            unit: FaultUnit::Engine(Engine::COPY1),
            address: GpuVa(0x7f_dead_0000),
            access: AccessKind::Write,
            reason: FaultReason::WriteToReadOnly,
        };
        let expected = RobustChannelError {
            engine: Engine::COPY1,
            code: 31,
            address: 0x7f_dead_0000,
            fault_type: 6,
            access: AccessKind::Write,
        };
        let error = RobustChannelError::from(StopCause::Fault(fault));
        assert_eq!(error, expected);
        assert_eq!(error.fault(), Some(FaultOfChannel { fault_type: 6, access: AccessKind::Write }));
        assert_eq!(
            error.text(),
            "MMU Fault: ENGINE CE1 faulted @ 0x7f_dead0000. Fault is of type FAULT_RO_VIOLATION ACCESS_TYPE_VIRT_WRITE"
        );
    }

    #[test]
    fn what_is_no_fault_says_its_engine() {
        let error = RobustChannelError::plain(Engine::Graphics, PBDMA_ERROR);
        assert_eq!(error.fault(), None);
        assert_eq!(error.text(), "GRAPHICS: the host unit could not carry a command out");
    }
}
