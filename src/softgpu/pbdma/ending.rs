//! How and why a channel leaves its PBDMA or engine.

use crate::engine::model::Refusal;
use crate::fifo::Departure;
use gpuvmk_chip::Engine;
use gpuvmk_chip::channel_event::{GraphicsError, HostError, MmuFault, StopCause};
use gpuvmk_chip::gf100::regs::pfifo::NV_PPBDMA_INTR_0;
use gpuvmk_chip::registers::Field;
use gpuvmk_chip::stream::Method;

/// How a channel's stay ended, and why it was stopped if it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) departure: Departure,
    pub(crate) cause: Option<StopCause>,
}

impl From<Departure> for Ending {
    fn from(departure: Departure) -> Self {
        Self { departure, cause: None }
    }
}

impl From<StopCause> for Ending {
    fn from(cause: StopCause) -> Self {
        Self { departure: Departure::Stopped, cause: Some(cause) }
    }
}

impl From<MmuFault> for Ending {
    fn from(fault: MmuFault) -> Self {
        StopCause::from(fault).into()
    }
}

/// The channel stops because the host unit refuses something.
pub(super) fn host_error(pbdma: u8, status: Field, method: Option<Method>) -> Ending {
    let error = HostError {
        pbdma,
        status: status.mask(),
        method: method.map_or(0, Method::address_word),
        data: method.map_or(0, |method| method.data),
    };
    StopCause::from(error).into()
}

/// The channel stops because its engine refuses something: what `method` asked for, that PBDMA `pbdma` gave
/// it.
pub(super) fn refused(pbdma: u8, engine: Engine, method: Method, refusal: Refusal) -> Ending {
    match refusal {
        Refusal::Fault(fault) => fault.into(),
        Refusal::Aborted => Departure::Stopped.into(),
        Refusal::Illegal => {
            log::debug!("softgpu: {engine:?} refuses method {:#x} = {:#x}", method.method, method.data);
            host_error(pbdma, NV_PPBDMA_INTR_0::METHOD, Some(method))
        }
        Refusal::Robust(code) => {
            log::debug!("softgpu: {engine:?} refuses method {:#x} = {:#x}", method.method, method.data);
            StopCause::Manager(code).into()
        }
        Refusal::Graphics { status, class } => {
            let error = GraphicsError {
                status,
                subchannel: method.subchannel,
                class,
                method: method.method,
                data: method.data,
            };
            StopCause::from(error).into()
        }
    }
}
