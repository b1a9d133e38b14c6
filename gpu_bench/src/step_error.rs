//! Why a step of a measurement or of the rehearsal failed.

use gpuvmk_gpu::GpuError;
use gpuvmk_gpu::rm::{OpenError, RmError};

/// The reason.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    #[error(transparent)]
    Gpu(#[from] GpuError),
    #[error(transparent)]
    Rm(#[from] RmError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Wrong(String),
}

impl StepError {
    /// Whether the driver refused a call.
    pub(crate) fn is_refusal(&self) -> bool {
        let status = match self {
            Self::Gpu(GpuError::Rm(error)) | Self::Rm(error) | Self::Open(OpenError::Rm(error)) => {
                error.status()
            }
            Self::Open(OpenError::Setup(error)) => match error.as_ref() {
                GpuError::Rm(error) => error.status(),
                _ => None,
            },
            _ => None,
        };
        status.is_some()
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
