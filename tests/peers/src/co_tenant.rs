//! An honest tenant that copies a page, again and again, without a pause: what the neighbour's copies wait
//! for where a GPU is shared and nobody attacks.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use gpuvmk::aggregator::{LinkTimeouts, connect};

use crate::tenant::{DATA, Tenant, VRAM_VA};

/// Works until the end of standard input.
pub fn work(aggregator: &Path) -> Result<()> {
    gpuvmk::host::urgency::request_short_slices();
    let (link, grant) = connect(aggregator, crate::raw::hello("co-tenant"), &LinkTimeouts::none())?;
    let mut tenant = Tenant::new(link, &grant);
    tenant.channel(0, 0);
    tenant.list(&[0]);
    let ended = Arc::new(AtomicBool::new(false));
    {
        let ended = Arc::clone(&ended);
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            ended.store(true, Ordering::Relaxed);
        });
    }
    println!("at work");
    while !ended.load(Ordering::Relaxed) {
        tenant.copy(0, 0, VRAM_VA + DATA, VRAM_VA + 2 * DATA, 0x1000);
        ensure!(tenant.finishes_within(0, Duration::from_secs(10)), "a copy does not end");
    }
    Ok(())
}
