//! Why the physical GPU could not do something.

use super::rm::RmError;
use super::rm::abi::RmStatus;
use gpuvmk_chip::Engine;
use gpuvmk_pci::DmaError;

/// Why the physical GPU could not do something.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// Out of channels, spaces or host memory.
    #[error("The physical GPU has no {what} left ({limit} in all)")]
    Exhausted {
        /// The resource that is used up.
        what: &'static str,
        /// How many there are in all.
        limit: u64,
    },
    /// An id that was not given out, or was taken back.
    #[error("No such {what} on the physical GPU: {id}")]
    NoSuch {
        /// The kind of thing that was named.
        what: &'static str,
        /// Its number.
        id: u64,
    },
    /// Pages that stay faults, and nothing else is the matter: virtual addresses that the GPU's manager keeps
    /// for itself, or memory that cannot be made reachable.
    #[error("{0}")]
    Unmappable(String),
    /// A class that the channel's engines do not have, or that tenants may not use.
    #[error("The physical GPU offers no class {class:#06x} on {engine:?} to tenants")]
    NoClass {
        /// NVIDIA's class number.
        class: u32,
        /// Engine that the channel wanted it on.
        engine: Engine,
    },
    /// A channel that is to work with another one's graphics context. Only the software GPU's driver has
    /// that.
    #[error("The physical GPU's driver gives each channel a graphics context of its own: groups share none")]
    NoSharedContext,
    /// A caller's mistake that would program the hardware wrongly.
    #[error("Invalid request to the physical GPU: {0}")]
    Invalid(String),
    /// Hardware did not answer in time.
    #[error("The physical GPU did not finish {what} within {millis} ms")]
    Timeout {
        /// The operation that was waited for.
        what: &'static str,
        /// The time limit, in milliseconds.
        millis: u64,
    },
    /// System memory could not be made reachable.
    #[error("System memory cannot be made reachable for the physical GPU")]
    Dma(#[from] DmaError),
    /// Input or output failed.
    #[error("The physical GPU's resources are not accessible")]
    Io(#[from] std::io::Error),
    /// The NVIDIA driver that has the GPU refused.
    #[error(transparent)]
    Rm(RmError),
    /// The device is gone.
    #[error("The physical GPU is lost")]
    Lost,
}

impl GpuError {
    /// For failures to make memory reachable, which leave page tables as they were: its pages stay faults,
    /// and nothing is in doubt. A lost GPU, and hardware that did not answer, stay what they are.
    #[must_use]
    pub fn as_unmappable(self) -> Self {
        match self {
            Self::Lost | Self::Timeout { .. } | Self::Unmappable(_) => self,
            error => Self::Unmappable(error.with_causes()),
        }
    }

    /// Its message and those of its causes, joined.
    pub fn with_causes(&self) -> String {
        let mut message = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        message
    }
}

impl From<RmError> for GpuError {
    fn from(error: RmError) -> Self {
        match error.status() {
            Some(RmStatus::ERR_GPU_IS_LOST | RmStatus::ERR_GPU_IN_FULLCHIP_RESET) => Self::Lost,
            _ => Self::Rm(error),
        }
    }
}
