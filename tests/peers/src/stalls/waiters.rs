//! Wake-ups that cost whoever makes them: eventfds, pipes and sockets that a hundred thousand wait for.

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gpuvmk::addr::GuestChannel;
use gpuvmk::aggregator::protocol::Request;
use gpuvmk::backend::InterruptInterest;
use gpuvmk::chip::EngineSet;
use gpuvmk_attacks::Outcome;
use rustix::event::epoll;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::Scene;
use crate::aggregator::{every_kind, tenant};
use crate::files;
use crate::findings::Findings;
use crate::raw::{Answer, Raw};
use crate::tenant::{DATA, VRAM_VA};

/// Who waits for one descriptor, all together.
const WAITERS: u64 = 100_000;
/// Descriptors that a waiting process keeps for other things.
const SPARE: u64 = 200;

/// Processes that wait, until this is dropped.
struct Crowd(Vec<Child>);

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // They have no end of their own.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// As many descriptors as this process may have.
fn raise_limit() -> Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(limit.current.unwrap_or(20_000).min(50_000))
}

/// The child: waits for its standard input as often as it has descriptors.
pub fn wait() -> Result<()> {
    let most = raise_limit()?.saturating_sub(SPARE);
    let watched = std::io::stdin().as_fd().try_clone_to_owned()?;
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut all: Vec<OwnedFd> = Vec::new();
    for number in 0..most {
        let fd = rustix::io::dup(&watched)?;
        // Each is told once, and stays.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, &fd, epoll::EventData::new_u64(number), flags)?;
        all.push(fd);
    }
    println!("{most}");
    std::thread::sleep(Duration::from_secs(120));
    Ok(())
}

/// Has processes wait for a descriptor.
fn crowd(scene: &Scene, fd: &OwnedFd, findings: &mut Findings) -> Result<Crowd> {
    let (mut crowd, mut waiters) = (Crowd(Vec::new()), 0);
    while waiters < WAITERS {
        let mut command = scene.child("child-waiter", 0)?;
        command.stdin(Stdio::from(fd.try_clone()?));
        let mut child = command.spawn()?;
        let output = child.stdout.take().context("a child's output")?;
        crowd.0.push(child);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let more: u64 = line.trim().parse().with_context(|| format!("a waiter said '{line}'"))?;
        ensure!(more > 0, "a waiter has no descriptors");
        waiters += more;
    }
    findings.add("waiters", waiters);
    Ok(crowd)
}

/// The eventfd that sends messages to the driver.
pub fn of_messages(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    raise_limit()?;
    let event = files::event(0)?;
    let mut tenant = tenant(scene, "message-waiters")?;
    tenant.channel(0, 0);
    tenant.list(&[0]);
    let _crowd = crowd(scene, &event, findings)?;
    tenant.link.request(&Request::MessageEvent { given: true }, Some(event))?;
    let mut copies = 0_u64;
    scene.begin();
    while scene.goes_on() {
        tenant.link.set_notification_interest(InterruptInterest::Message(EngineSet::all()));
        tenant.copy(0, 0, VRAM_VA + DATA, VRAM_VA + 2 * DATA, 0x1000);
        ensure!(tenant.finishes_within(0, Duration::from_secs(10)), "a copy does not end");
        tenant.link.take_notifications();
        copies += 1;
    }
    findings.add("copies", copies);
    scene.keep(tenant);
    Ok(Outcome::Limited)
}

/// The tenant's own socket, on which its answers come, and the pipe that tells of events.
pub fn of_answers_and_events(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    raise_limit()?;
    let mut raw = Raw::joined(&scene.aggregator, "socket-waiters")?;
    let memory = files::memory(1 << 20)?;
    for request in every_kind().into_iter().take(7) {
        let fds = [memory.as_fd()];
        let fds: &[_] = if matches!(request, Request::DmaMap { .. }) { &fds } else { &[] };
        raw.ask_bytes(&crate::raw::encoded(&request), fds)?;
    }
    let pipe = raw.files.get(3).context("the pipe of events")?.try_clone()?;
    let _pipe = crowd(scene, &pipe, findings)?;
    let _socket = crowd(scene, &raw.socket, findings)?;
    let mut told = 0_u64;
    scene.begin();
    while scene.goes_on() {
        // The answer is a wake-up, and so is the event that follows.
        match raw.ask(&Request::Preempt(GuestChannel(0)))? {
            Answer::Done | Answer::Refused(_) => told += 1,
            other => anyhow::bail!("a preemption was answered with '{}'", other.name()),
        }
        while rustix::io::read(&pipe, &mut [0; 64]).is_ok_and(|length| length == 64) {}
    }
    findings.add("answers", told);
    scene.keep(raw);
    Ok(Outcome::Limited)
}
