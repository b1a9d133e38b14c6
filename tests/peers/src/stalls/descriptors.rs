//! Descriptors that are slow to close, of every kind, wherever a datagram can carry one.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gpuvmk::addr::Gpa;
use gpuvmk::aggregator::protocol::{Request, SpaceId};
use gpuvmk_attacks::Outcome;
use rustix::event::epoll;
use rustix::net::sockopt::set_socket_linger;

use crate::Scene;
use crate::files;
use crate::findings::Findings;
use crate::raw::{Answer, Raw, encoded};

/// How long the last close of a lingering socket waits.
const LINGER: Duration = Duration::from_secs(3);

/// A TCP connection with data that nobody takes, whose last close waits for them.
fn lingering(scene: &mut Scene) -> Result<OwnedFd> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    let (deaf, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    let block = [0; 0x1_0000];
    while stream.write(&block).is_ok() {}
    set_socket_linger(&stream, Some(LINGER))?;
    stream.set_nonblocking(false)?;
    scene.keep(deaf);
    Ok(stream.into())
}

fn dma_map() -> Vec<u8> {
    encoded(&Request::DmaMap { gpa: Gpa(1 << 33), size: 0x1000, offset: 0, writable: true })
}

/// Gives a descriptor away and forgets it: whoever drops it next has the last one.
fn give_away(raw: &Raw, bytes: &[u8], fd: OwnedFd, findings: &mut Findings) -> Result<()> {
    let sent = raw.send(bytes, &[fd.as_fd()])?;
    findings.count(if sent == Some(true) { "given away" } else { "not taken" });
    if sent != Some(true) {
        // Its close would wait here.
        std::thread::spawn(move || drop(fd));
    }
    Ok(())
}

/// In the first message of somebody who never says hello.
pub fn of_a_stranger(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    for _ in 0..3 {
        let fd = lingering(scene)?;
        let raw = Raw::connect(&scene.aggregator)?;
        give_away(&raw, &[0; 16], fd, findings)?;
        // One that is closed before it is read, and one that stays.
        let fd = lingering(scene)?;
        let other = Raw::connect(&scene.aggregator)?;
        give_away(&other, &dma_map(), fd, findings)?;
        scene.keep(other);
    }
    rest(scene);
    Ok(Outcome::Refused)
}

/// As guest memory, as what sends messages, and where none belongs.
pub fn of_a_tenant(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let requests = [
        dma_map(),
        encoded(&Request::MessageEvent { given: true }),
        encoded(&Request::CreateSpace(SpaceId(3))),
        encoded(&Request::MessageEvent { given: false }),
    ];
    for (number, request) in requests.iter().enumerate() {
        let fd = lingering(scene)?;
        let mut raw = Raw::joined(&scene.aggregator, &format!("linger-{number}"))?;
        give_away(&raw, request, fd, findings)?;
        // The answer may wait for the close: that is the tenant's own time.
        let answer = raw.receive_within(LINGER * 2)?;
        findings.count(answer.name());
        findings.check(
            answer != Answer::Done || number == 1,
            format!("a socket is taken with request {number}: {}", answer.name()),
        );
        scene.keep(raw);
    }
    Ok(Outcome::Refused)
}

/// Within sockets that are given away: whoever closes the socket closes what waits in it.
pub fn queued(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    for stranger in [true, false] {
        let (ours, theirs) = UnixStream::pair()?;
        let carrier = Raw { socket: ours.into(), files: Vec::new() };
        for _ in 0..2 {
            let fd = lingering(scene)?;
            give_away(&carrier, b"x", fd, findings)?;
        }
        drop(carrier);
        let raw = if stranger {
            Raw::connect(&scene.aggregator)?
        } else {
            Raw::joined(&scene.aggregator, "queued")?
        };
        give_away(&raw, &dma_map(), theirs.into(), findings)?;
        // What was sent and not read goes with the connection.
        let fd = lingering(scene)?;
        give_away(&raw, &dma_map(), fd, findings)?;
    }
    rest(scene);
    Ok(Outcome::Refused)
}

/// Pipes, sockets, epoll instances, files on disk, sealed and read-only files, many at once and one by one.
pub fn of_every_kind(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    // What a process had as one VM is nobody's before it ends, so it is one VM as long as it can.
    let mut names = (0..).map(|number| format!("kinds-{number}"));
    let mut join = |scene: &Scene| Raw::joined(&scene.aggregator, &names.next().unwrap_or_default());
    let mut raw = join(scene)?;
    let mut rounds = 0;
    while scene.goes_on() {
        let mut all = files::wrong()?;
        let disk = std::fs::File::open(std::env::current_exe()?)?;
        all.push(("a file on disk", disk.into()));
        all.push(("a sealed file", files::sealed(0x1000)?));
        let watched = files::event(0)?;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&set, &watched, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        all.push(("an epoll instance", set));
        let borrowed: Vec<BorrowedFd<'_>> = all.iter().map(|(_, fd)| fd.as_fd()).collect();
        for request in [dma_map(), encoded(&Request::MessageEvent { given: true })] {
            for fd in &borrowed {
                let answer = raw.ask_bytes(&request, &[*fd])?;
                findings.count(answer.name());
                if answer == Answer::Closed {
                    raw = join(scene)?;
                }
            }
            let answer = raw.ask_bytes(&request, &borrowed)?;
            findings.check(answer.refused(), "many descriptors are taken at once");
        }
        let stranger = Raw::connect(&scene.aggregator)?;
        stranger.send(&[1; 16], &borrowed).context("a stranger's descriptors")?;
        rounds += 1;
    }
    ensure!(rounds > 0, "nothing was tried");
    Ok(Outcome::Refused)
}

/// What was given away is being closed by somebody meanwhile.
fn rest(scene: &Scene) {
    while scene.goes_on() {
        std::thread::sleep(Duration::from_millis(20));
    }
}
