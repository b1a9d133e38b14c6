//! A panic: one line in the log, and for most threads the end of their process.
//!
//! A panic is a defect. A process that goes on without the thread that owns the GPU, serves QEMU or delivers
//! interrupts would leave its guests waiting for ever; one that ends is noticed at once: QEMU or the back
//! ends see their connection close, and a manager starts it again. Threads without which guests lose nothing
//! just end.

use super::Role;
use super::violation;

/// Logs panics, and ends the process if the thread is indispensable.
pub(super) fn install() {
    // The standard hook looks for symbols in files.
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        log::error!("thread `{}` {panic}", thread.name().unwrap_or("?"));
        if let Some(role) = violation::role().filter(|role| !role.is_expendable()) {
            log::error!("nothing goes on without a thread `{role}`: the process ends");
            std::process::abort();
        }
    }));
}

impl Role {
    /// True when its process goes on after a panic of its thread: the trace counts what it loses; status is
    /// only for people.
    pub const fn is_expendable(self) -> bool {
        matches!(self, Self::Trace | Self::Recorder | Self::Control)
    }
}
