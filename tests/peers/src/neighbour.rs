//! An honest tenant that times its own requests and copies all the while: what others do to the aggregator
//! shows there.
//!
//! One line of JSON for each [`WINDOW`] says how many microseconds each request took (a page mapped or
//! unmapped), and each copy of a page from its submission to its fence; how late a thread was that sleeps and
//! does nothing else, which is the machine's own doing; and how many copies were wrong. Times are of the
//! monotonic clock. It goes on until its standard input ends.

use std::io::Read;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gpuvmk::addr::{GpuVa, GuestVram};
use gpuvmk::aggregator::protocol::{GuestMapping, GuestRange, GuestTarget, Request, SpaceId};
use gpuvmk::aggregator::{LinkTimeouts, connect};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::tenant::{DATA, RAM_VA, Tenant, VRAM_VA};

/// What one line tells of.
const WINDOW: Duration = Duration::from_millis(100);
/// Between two rounds.
const PAUSE: Duration = Duration::from_micros(200);
/// Between two looks at a fence. Who yields instead is put off by whoever computes beside it (Linux 6.18),
/// and measures that.
const LOOK: Duration = Duration::from_micros(20);
/// Nothing takes longer, or the neighbour gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where the timed page is mapped.
const PAGE_VA: GpuVa = GpuVa(0x30_0000_0000);
const PAGE: u64 = 0x1000;

/// Works until the end of standard input.
pub fn work(aggregator: &Path) -> Result<()> {
    // As a device back end asks for them, whose threads wait for answers all the time.
    gpuvmk::host::urgency::request_short_slices();
    // A sleep is as long as it says.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let (link, grant) = connect(aggregator, crate::raw::hello("victim"), &LinkTimeouts::none())?;
    let mut tenant = Tenant::new(link, &grant);
    tenant.channel(0, 0);
    tenant.list(&[0]);
    let ended = Arc::new(AtomicBool::new(false));
    let lateness = yardstick(&ended);
    {
        let ended = Arc::clone(&ended);
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            ended.store(true, Ordering::Relaxed);
        });
    }
    let (mut from, mut requests, mut copies, mut wrong) = (micros(), Vec::new(), Vec::new(), 0_u64);
    let mut number = 0_u64;
    while !ended.load(Ordering::Relaxed) {
        for request in [map(), unmap()] {
            let start = Instant::now();
            tenant.link.request(&request, None).context("a request of the neighbour's")?;
            requests.push(start.elapsed().as_micros());
        }
        number += 1;
        let (took, right) = copy(&mut tenant, number)?;
        copies.push(took.as_micros());
        wrong += u64::from(!right);
        let to = micros();
        if to.saturating_sub(from) >= WINDOW.as_micros() {
            let machine = std::mem::take(&mut *lateness.lock().unwrap_or_else(PoisonError::into_inner));
            println!(
                "{}",
                json!({ "from": from, "to": to, "requests": requests, "copies": copies, "machine": machine,
                    "wrong": wrong })
            );
            (from, wrong) = (to, 0);
            requests.clear();
            copies.clear();
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Microseconds of the monotonic clock, which all processes share.
fn micros() -> u128 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u128::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + u128::try_from(now.tv_nsec).unwrap_or(0) / 1000
}

/// By how many microseconds a thread that only sleeps was late, each time since this was last taken.
fn yardstick(ended: &Arc<AtomicBool>) -> Arc<Mutex<Vec<u128>>> {
    let lateness = Arc::new(Mutex::new(Vec::new()));
    let (told, ended) = (Arc::clone(&lateness), Arc::clone(ended));
    std::thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            let start = Instant::now();
            std::thread::sleep(PAUSE);
            let late = start.elapsed().saturating_sub(PAUSE);
            told.lock().unwrap_or_else(PoisonError::into_inner).push(late.as_micros());
        }
    });
    lateness
}

fn map() -> Request {
    let page = GuestMapping {
        va: PAGE_VA,
        pages: 1,
        page_shift: 12,
        target: GuestTarget::Vram(GuestVram(DATA)),
        read_only: false,
        kind: 0,
    };
    Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map: vec![page] }
}

fn unmap() -> Request {
    let page = GuestRange { va: PAGE_VA, pages: 1, page_shift: 12 };
    Request::UpdateSpace { space: SpaceId(0), unmap: vec![page], map: vec![] }
}

/// A page from system memory to VRAM: how long that took, and whether it is there.
fn copy(tenant: &mut Tenant, number: u64) -> Result<(Duration, bool)> {
    tenant.ram.write(0, &number.to_le_bytes())?;
    tenant.ram.write(PAGE - 8, &number.to_le_bytes())?;
    let start = Instant::now();
    tenant.copy(0, 0, RAM_VA, VRAM_VA + DATA, PAGE);
    loop {
        // What another thread of this process holds up is not the aggregator's doing: nothing is taken on the
        // way.
        if tenant.done(0) {
            break;
        }
        match start.elapsed() {
            waited if waited > PATIENCE => bail!("a copy of the neighbour's does not end"),
            _ => std::thread::sleep(LOOK),
        }
    }
    let took = start.elapsed();
    let right = [0, PAGE - 8]
        .into_iter()
        .all(|at| tenant.window.read_u64(DATA + at).is_ok_and(|found| found == number));
    Ok((took, right))
}
