//! Ends a run in order when the user interrupts it: processes stopped, sockets removed.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on SIGINT and SIGTERM are noted for [`check`]; a second one ends the process at once.
pub fn watch() -> Result<()> {
    let asked = Arc::clone(ASKED.get_or_init(|| Arc::new(AtomicBool::new(false))));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset and only sets it.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&asked))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&asked)))
            .with_context(|| format!("Cannot watch for signal {signal}"))?;
    }
    Ok(())
}

/// An error if the user asked to end.
pub fn check() -> Result<()> {
    if ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed)) {
        bail!("Interrupted");
    }
    Ok(())
}
