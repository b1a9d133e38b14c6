//! Interrupt descriptors that are none, numbers that overflow, and eventfds that block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gpuvmk::frontend::vfio_user::wire::{self, command, irq};
use gpuvmk_attacks::Outcome;
use rustix::fs::OFlags;
use zerocopy::IntoBytes;

use crate::Scene;
use crate::client::{Answer, Client};
use crate::files;
use crate::findings::Findings;
use crate::random::ODD;

fn body(flags: u32, index: u32, start: u32, count: u32) -> wire::SetIrqs {
    wire::SetIrqs { argsz: 20, flags, index, start, count }
}

fn set(client: &mut Client, body: wire::SetIrqs, fds: &[BorrowedFd<'_>]) -> Result<Answer> {
    client.ask_with(command::DEVICE_SET_IRQS, body.as_bytes(), fds)
}

const SIGNAL_BY: u32 = irq::DATA_EVENTFD | irq::ACTION_TRIGGER;
const UNMASK_BY: u32 = irq::DATA_EVENTFD | irq::ACTION_UNMASK;

/// Everything that is no eventfd.
pub fn wrong_descriptors(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut client = Client::negotiated(&scene.device)?;
    let mut all = files::wrong()?;
    all.push(("memory", files::memory(4096)?));
    for (what, fd) in &all {
        for (flags, index) in [(SIGNAL_BY, irq::INTX), (SIGNAL_BY, irq::MSI), (UNMASK_BY, irq::INTX)] {
            let answer = set(&mut client, body(flags, index, 0, 1), &[fd.as_fd()])?;
            findings.count(answer.name());
            findings.check(answer.refused(), format!("{what} is taken for an eventfd"));
        }
    }
    // An anonymous object of another kind passes for one: it must do no harm when it is signalled.
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
    for (flags, index) in [(SIGNAL_BY, irq::MSI), (SIGNAL_BY, irq::INTX), (UNMASK_BY, irq::INTX)] {
        let answer = set(&mut client, body(flags, index, 0, 1), &[epoll.as_fd()])?;
        findings.count(format!("an epoll instance: {}", answer.name()));
    }
    trigger(&mut client)?;
    // Several where one belongs; then the honest one.
    let event = files::event(0)?;
    let answer = set(&mut client, body(SIGNAL_BY, irq::MSI, 0, 1), &[event.as_fd(); 16])?;
    findings.check(answer.refused(), "16 eventfds are taken for one vector");
    ensure!(
        !set(&mut client, body(SIGNAL_BY, irq::MSI, 0, 1), &[event.as_fd()])?.refused(),
        "an eventfd is refused"
    );
    trigger(&mut client)?;
    let mut count = [0; 8];
    rustix::io::read(&event, &mut count)?;
    ensure!(u64::from_ne_bytes(count) == 1, "an honest eventfd is not signalled");
    client.in_step()?;
    Ok(Outcome::Refused)
}

/// Signals both kinds of interrupt as a client may that tests its wiring.
fn trigger(client: &mut Client) -> Result<()> {
    for index in [irq::MSI, irq::INTX] {
        set(client, body(irq::DATA_NONE | irq::ACTION_TRIGGER, index, 0, 1), &[])?;
    }
    Ok(())
}

/// Numbers that overflow.
pub fn overflow(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut client = Client::negotiated(&scene.device)?;
    let event = files::event(0)?;
    let odd = || ODD.iter().filter_map(|value| u32::try_from(*value).ok());
    let kinds = [irq::DATA_NONE, irq::DATA_BOOL, irq::DATA_EVENTFD, irq::DATA_BOOL | irq::DATA_EVENTFD];
    for kind in kinds {
        for action in [irq::ACTION_MASK, irq::ACTION_UNMASK, irq::ACTION_TRIGGER, !7, 0] {
            for index in [irq::INTX, irq::MSI, irq::MSIX, 3, u32::MAX] {
                for (start, count) in odd().map(|odd| (odd, 2)).chain(odd().map(|odd| (1, odd))) {
                    let fds: &[BorrowedFd<'_>] = if count % 2 == 0 { &[] } else { &[event.as_fd()] };
                    let answer = set(&mut client, body(kind | action, index, start, count), fds)?;
                    findings.count(answer.name());
                    // No vectors from 1 on is nothing at all.
                    let nothing = count == 0 && start <= 1;
                    findings.check(
                        answer.refused() || nothing,
                        format!("index {index}, {count} vectors from {start} on are set up"),
                    );
                    if answer == Answer::Closed {
                        client = Client::negotiated(&scene.device)?;
                    }
                }
            }
        }
        client.in_step()?;
    }
    for argsz in odd().filter(|argsz| *argsz < 20) {
        let lie = wire::SetIrqs { argsz, ..body(irq::DATA_NONE | irq::ACTION_TRIGGER, irq::MSI, 0, 1) };
        findings.check(set(&mut client, lie, &[])?.refused(), format!("a size of {argsz} is taken"));
    }
    client.in_step()?;
    Ok(Outcome::Refused)
}

/// Makes an eventfd blocking again: all who hold it share its flags.
fn block(event: &OwnedFd) -> Result<()> {
    rustix::fs::fcntl_setfl(event, OFlags::empty())?;
    Ok(())
}

/// An eventfd that is full and blocks whoever writes to it.
fn full() -> Result<OwnedFd> {
    let event = files::event(0)?;
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes())?;
    Ok(event)
}

/// Eventfds that are full, and made blocking after they were given.
pub fn blocking(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut client = Client::negotiated(&scene.device)?;
    for (index, what) in [(irq::MSI, "message"), (irq::INTX, "line")] {
        let event = full()?;
        ensure!(
            !set(&mut client, body(SIGNAL_BY, index, 0, 1), &[event.as_fd()])?.refused(),
            "an eventfd is refused"
        );
        block(&event)?;
        let start = Instant::now();
        trigger(&mut client)?;
        let took = start.elapsed();
        findings.count(format!("full {what}"));
        findings.check(
            took < Duration::from_millis(500),
            format!("a full {what} held the device up for {took:?}"),
        );
        client.in_step()?;
    }
    // The line's unmask eventfd, emptied by somebody else while the device reads it.
    let event = files::event(0)?;
    ensure!(
        !set(&mut client, body(UNMASK_BY, irq::INTX, 0, 1), &[event.as_fd()])?.refused(),
        "an eventfd is refused"
    );
    block(&event)?;
    let racer = event.try_clone()?;
    let (goes_on, told) = std::sync::mpsc::channel::<()>();
    let race = std::thread::spawn(move || {
        while told.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
            let _ = rustix::io::write(&racer, &1u64.to_ne_bytes());
            // Either this thread finds it, or the device does.
            let _ = rustix::fs::fcntl_setfl(&racer, OFlags::NONBLOCK);
            let _ = rustix::io::read(&racer, &mut [0; 8]);
            let _ = rustix::fs::fcntl_setfl(&racer, OFlags::empty());
        }
    });
    std::thread::sleep(scene.time);
    client.in_step()?;
    drop(goes_on);
    let _ = race.join();
    findings.count("unmask raced for");
    // Now the device must let go of it, whatever its thread waits for.
    drop(client);
    Ok(Outcome::Values)
}
