//! How a driver is told why a channel was stopped: robust-channel codes (the Xid) and Volta's numbers of MMU
//! faults.

use super::gsp::Stopped;
use crate::backend::{ChannelError, ChannelHang, FaultUnit, GraphicsError, HangKind, HostError, MmuFault};
use gpuvmk_chip::{Engine, FaultReason};

/// `ROBUST_CHANNEL_GR_EXCEPTION`.
const GRAPHICS_EXCEPTION: u32 = 13;
/// `ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT`.
const MMU_FAULT: u32 = 31;
/// `ROBUST_CHANNEL_PBDMA_ERROR`.
const PBDMA_ERROR: u32 = 32;
/// `ROBUST_CHANNEL_CTXSW_TIMEOUT_ERROR`.
const CONTEXT_SWITCH_TIMEOUT: u32 = 109;

/// `NV_PFAULT_FAULT_TYPE_*` of a reason, whose own numbers are those of GF100.
pub const fn fault_type(reason: FaultReason) -> u32 {
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

/// A channel stopped by an MMU fault; `None` for faults that belong to no channel.
pub fn mmu_fault(fault: &MmuFault) -> Option<Stopped> {
    Some(Stopped {
        slot: fault.channel?,
        engine: match fault.unit {
            FaultUnit::Engine(engine) => engine,
            // The host unit serves every engine; which one the channel is for, GSP knows.
            FaultUnit::Host | FaultUnit::Bar1 | FaultUnit::Bar3 => Engine::Graphics,
        },
        code: MMU_FAULT,
        address: fault.address.0,
        fault_type: fault_type(fault.reason),
    })
}

/// A channel stopped by the host unit.
pub const fn host_error(error: &HostError) -> Stopped {
    plain(error.channel, PBDMA_ERROR)
}

/// A channel stopped by the graphics engine.
pub const fn graphics_error(error: &GraphicsError) -> Stopped {
    plain(error.channel, GRAPHICS_EXCEPTION)
}

/// A channel stopped by the host's own channel manager.
pub const fn channel_error(error: &ChannelError) -> Stopped {
    plain(error.channel, error.code)
}

/// A channel that the host took off because it made no progress: what a GPU's own watchdog would have said.
pub const fn hang(hang: &ChannelHang) -> Stopped {
    let code = match hang.kind {
        HangKind::Engine => CONTEXT_SWITCH_TIMEOUT,
        HangKind::Acquire => PBDMA_ERROR,
    };
    Stopped { slot: hang.channel, engine: hang.engine, code, address: 0, fault_type: 0 }
}

const fn plain(slot: u16, code: u32) -> Stopped {
    Stopped { slot, engine: Engine::Graphics, code, address: 0, fault_type: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::AccessKind;
    use gpuvmk_chip::addr::GpuVa;

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
            channel: Some(3),
            unit: FaultUnit::Engine(Engine::Copy(1)),
            address: GpuVa(0x7f_dead_0000),
            access: AccessKind::Write,
            reason: FaultReason::WriteToReadOnly,
        };
        let expected =
            Stopped { slot: 3, engine: Engine::Copy(1), code: 31, address: 0x7f_dead_0000, fault_type: 6 };
        assert_eq!(mmu_fault(&fault), Some(expected));
        assert_eq!(mmu_fault(&MmuFault { channel: None, ..fault }), None);
    }
}
