//! The way back to whoever drives the GPU.

use std::sync::{Arc, OnceLock};

use gpuvmk_units::backend::EngineEvents;

/// Who is told of what happens.
#[derive(Default)]
pub(crate) struct Events {
    receiver: OnceLock<Arc<dyn EngineEvents>>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// The first caller wins; there is one.
    pub(crate) fn connect(&self, receiver: Arc<dyn EngineEvents>) {
        if self.receiver.set(receiver).is_err() {
            log::warn!("softgpu: a second receiver of events was refused");
        }
    }

    /// Tells something. To be called without holding a lock of this room: the receiver may call back.
    pub(crate) fn tell(&self, event: impl FnOnce(&dyn EngineEvents)) {
        if let Some(receiver) = self.receiver.get() {
            event(receiver.as_ref());
        }
    }
}
