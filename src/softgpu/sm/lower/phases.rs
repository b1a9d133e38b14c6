//! Operations on barriers in shared memory (mbarrier).

use gpuvmk_isa::modifier::Arrivals;
use gpuvmk_isa::{Instruction, Kind, Opcode as O};

use crate::op::Phased;

/// What one of them does; none if that is not executed.
pub(super) fn phased(instruction: &Instruction, opcode: O) -> Option<Phased> {
    Some(match opcode {
        O::AtomsArrive => Phased::Arrive { several: false, leave: false, ampere: true },
        O::SyncsExch => Phased::Exchange,
        O::SyncsPhasechk => Phased::Check,
        _ => {
            // Bytes that are waited for come by operations that are not executed.
            let several = match instruction.get() {
                Arrivals::A1T0 => false,
                Arrivals::ArT0 => true,
                _ => return None,
            };
            Phased::Arrive { several, leave: instruction.flag(Kind::OptOut), ampere: false }
        }
    })
}
