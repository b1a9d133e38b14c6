//! Eventfds for messages to a driver that are none, or that would make a write to them wait.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk::aggregator::link::LinkError;
use gpuvmk::aggregator::protocol::{Event, Request};
use gpuvmk::backend::InterruptInterest;
use gpuvmk::chip::EngineSet;
use gpuvmk_attacks::Outcome;
use rustix::event::{EventfdFlags, epoll, eventfd};

use super::tenant;
use crate::Scene;
use crate::files;
use crate::findings::Findings;
use crate::raw::{Answer, Raw, encoded};
use crate::tenant::{DATA, Tenant, VRAM_VA};

/// Who waits for an eventfd, each to be called when it is signalled.
const WAITERS: usize = 500;

/// A message is due at the end of this tenant's next copy.
fn expect(tenant: &Tenant, event: OwnedFd) -> Result<(), LinkError> {
    tenant.link.request(&Request::MessageEvent { given: true }, Some(event))?;
    tenant.link.set_notification_interest(InterruptInterest::Message(EngineSet::all()));
    Ok(())
}

/// What the aggregator says of the message for a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// Nothing.
    Nothing,
    /// It sent it.
    Sent,
    /// It could not send it.
    Unsent,
}

/// Copies, and waits for what is said of its message; that it was sent may be taken back for `patience`.
fn copy(tenant: &mut Tenant, patience: Duration) -> Result<Said> {
    tenant.copy(0, 0, VRAM_VA + DATA, VRAM_VA + 2 * DATA, 0x1000);
    ensure!(tenant.finishes_within(0, Duration::from_secs(5)), "a copy does not end");
    let (start, mut sent) = (Instant::now(), None);
    loop {
        // Work of others at the same engine ends too, and is told of.
        if tenant.events.try_recv() == Ok(Event::Unsent) {
            return Ok(Said::Unsent);
        }
        if tenant.link.take_notifications().sent {
            sent = Some(Instant::now());
        }
        match sent {
            Some(sent) if sent.elapsed() >= patience => return Ok(Said::Sent),
            None if start.elapsed() >= Duration::from_secs(5) => return Ok(Said::Nothing),
            _ => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

/// An eventfd that many wait for.
fn popular() -> Result<(OwnedFd, Vec<OwnedFd>)> {
    let event = eventfd(0, EventfdFlags::CLOEXEC)?;
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        let waiter = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&waiter, &event, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        waiters.push(waiter);
    }
    Ok((event, waiters))
}

/// The tenant's copies end, and everybody else is served, whatever is to be signalled.
pub fn descriptors(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut raw = Raw::joined(&scene.aggregator, "no-messages")?;
    let file = files::event(0)?;
    let request = |given| encoded(&Request::MessageEvent { given });
    for (given, count) in [(true, 0), (true, 2), (true, 200), (false, 1)] {
        let answer = raw.ask_bytes(&request(given), &vec![file.as_fd(); count])?;
        findings.count(answer.name());
        findings.check(answer.refused(), format!("{count} descriptors are taken for a message's eventfd"));
        if answer == Answer::Closed {
            raw = Raw::joined(&scene.aggregator, "no-messages")?;
        }
    }
    drop(raw);
    let mut tenant = tenant(scene, "messages")?;
    tenant.channel(0, 0);
    tenant.list(&[0]);
    let (popular, waiters) = popular()?;
    let (mut sent, mut unsent) = (0u64, 0u64);
    // Once at least: to get here takes a while on a busy machine.
    loop {
        for (what, fd) in files::wrong()? {
            expect(&tenant, fd).context(what)?;
            let said = copy(&mut tenant, Duration::from_secs(5))?;
            findings.check(said == Said::Unsent, format!("{what}: the message was {said:?}"));
            tenant.link.take_notifications();
            unsent += 1;
        }
        // Full, and made to wait for room; and one that calls many.
        let full = files::event(0)?;
        rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes())?;
        for event in [full, popular.try_clone()?] {
            expect(&tenant, event.try_clone()?)?;
            for _ in 0..20 {
                rustix::io::ioctl_fionbio(&event, false)?;
                let said = copy(&mut tenant, Duration::from_millis(5))?;
                findings.check(said == Said::Sent, format!("a message was {said:?}"));
                tenant.link.set_notification_interest(InterruptInterest::Message(EngineSet::all()));
                sent += 1;
            }
        }
        if !scene.goes_on() {
            break;
        }
    }
    drop(waiters);
    findings.add("messages sent", sent);
    findings.add("messages refused by the kernel", unsent);
    tenant.link.request(&Request::MessageEvent { given: false }, None)?;
    scene.keep(tenant);
    Ok(Outcome::Values)
}
