//! A request that is not carried out, and why.

use crate::dma_map::DmaMapError;
use crate::limit::Limit;
use crate::protocol::RefusalKind;
use gpuvmk_gpu::GpuError;

/// A request that is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind of refusal.
    pub kind: RefusalKind,
    /// What is wrong, where, and what is allowed.
    pub message: String,
    /// The limit that was met, if it was one.
    pub limit: Option<Limit>,
}

impl Refusal {
    /// A refusal of a class, with its text.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), limit: None }
    }

    /// The same, because of a limit.
    pub fn met(limit: Limit, kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { limit: Some(limit), ..Self::new(kind, message) }
    }
}

impl From<GpuError> for Refusal {
    fn from(error: GpuError) -> Self {
        let kind = match &error {
            GpuError::Exhausted { .. } => RefusalKind::Exhausted,
            GpuError::NoClass { .. } | GpuError::NoSharedContext => RefusalKind::Class,
            GpuError::Dma(_) | GpuError::Unmappable(_) => RefusalKind::OutsidePartition,
            GpuError::Rm(error) if error.is_shortage() => RefusalKind::Exhausted,
            GpuError::Rm(_)
            | GpuError::NoSuch { .. }
            | GpuError::Invalid(_)
            | GpuError::Timeout { .. }
            | GpuError::Io(_)
            | GpuError::Lost => RefusalKind::Hardware,
        };
        Self::new(kind, error.with_causes())
    }
}

impl From<DmaMapError> for Refusal {
    fn from(error: DmaMapError) -> Self {
        Self::new(RefusalKind::OutsidePartition, error.to_string())
    }
}
