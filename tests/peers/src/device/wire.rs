//! Messages that say something impossible.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Result, bail};
use gpuvmk::frontend::vfio_user::wire::{self, Header, command, flags};
use gpuvmk_attacks::Outcome;
use zerocopy::IntoBytes;

use crate::Scene;
use crate::client::{Answer, Client, PROPOSAL, map_body, version, write_body};
use crate::files;
use crate::findings::Findings;
use crate::random::ODD;

/// Commands of the protocol, and some beyond.
const COMMANDS: std::ops::Range<u16> = 0..24;

/// The client again, or a new one if it was closed.
fn alive(scene: &Scene, client: Client, answer: &Answer) -> Result<Client> {
    if *answer == Answer::Closed { Client::negotiated(&scene.device) } else { Ok(client) }
}

/// Headers with impossible sizes, and bodies of every wrong size.
pub fn sizes(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    for size in [0, 1, 15, (1 << 20) + 0x1000, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        let mut client = Client::negotiated(&scene.device)?;
        let header = Header { message_id: 1, command: command::REGION_READ, size, flags: 0, error: 0 };
        client.send_raw(header.as_bytes())?;
        let first = client.receive()?;
        findings.count(format!("impossible size: {}", first.name()));
        findings.check(first.refused(), format!("a message of {size} bytes is done"));
        findings.check(
            first == Answer::Closed || client.receive()? == Answer::Closed,
            format!("the stream goes on after a message of {size} bytes"),
        );
    }
    let mut client = Client::negotiated(&scene.device)?;
    for command in COMMANDS {
        for size in [0, 1, 3, 4, 7, 8, 15, 16, 17, 19, 21, 23, 25, 31, 33, 100, 4096, 65_536] {
            for byte in [0x00, 0xff] {
                let answer = client.ask(command, &vec![byte; size])?;
                findings.count(answer.name());
                client = alive(scene, client, &answer)?;
            }
        }
        client.in_step()?;
    }
    Ok(Outcome::Refused)
}

/// Commands that do not exist, replies that nobody waits for, unknown types.
pub fn commands(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut client = Client::negotiated(&scene.device)?;
    let unknown = (19..64).chain((0..16).map(|bit| 1 << bit)).chain([0, 11, 12, u16::MAX]);
    for command in unknown.filter(|command| !(1..=10).contains(command) && !(13..=18).contains(command)) {
        let answer = client.ask(command, &[0; 16])?;
        findings.count(answer.name());
        findings.check(answer.refused(), format!("command {command} is done"));
        client = alive(scene, client, &answer)?;
    }
    // Replies as requests are dropped without a word; so the next command's answer comes first.
    for command in COMMANDS {
        let mut header = client.header(command, 0);
        header.flags = flags::REPLY;
        client.send_raw(header.as_bytes())?;
        header.flags = flags::REPLY | flags::ERROR | flags::NO_REPLY;
        client.send_raw(header.as_bytes())?;
    }
    client.in_step()?;
    findings.add("replies dropped", 48);
    for kind in 2..16 {
        let mut header = client.header(command::DEVICE_GET_INFO, 0);
        header.flags = kind;
        client.send_raw(header.as_bytes())?;
        let answer = client.receive()?;
        findings.count(format!("unknown type: {}", answer.name()));
        findings.check(answer.refused(), format!("message type {kind} is done"));
        client = alive(scene, client, &answer)?;
    }
    client.in_step()?;
    Ok(Outcome::Refused)
}

/// Descriptors on messages that take none, more than one where one is taken, and as many as the kernel lets
/// through.
pub fn descriptors(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let file = files::memory(4096)?;
    let mut client = Client::negotiated(&scene.device)?;
    for round in 0..8 {
        for command in COMMANDS {
            for count in [1, 2, 15, 16, 17, 64, 250] {
                // A mapping that may be made with one descriptor, of a different page each time.
                let body = match command {
                    command::DMA_MAP => map_body(3, 0, 0, 4096).as_bytes().to_vec(),
                    _ => vec![0; 20],
                };
                let fds: Vec<BorrowedFd<'_>> = vec![file.as_fd(); count];
                let answer = client.ask_with(command, &body, &fds)?;
                let may = command == command::DMA_MAP && count == 1 && round == 0;
                findings.check(may || answer.refused(), format!("command {command} with {count} is done"));
                findings.count(answer.name());
                client = alive(scene, client, &answer)?;
            }
        }
        client.in_step()?;
    }
    Ok(Outcome::Refused)
}

/// What VERSION may carry, in all the ways in which it should not.
pub fn version_bombs(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let nul = |text: &[u8]| [text, &[0]].concat();
    let capabilities = |text: &str| nul(format!("{{\"capabilities\":{text}}}").as_bytes());
    let keys: String = (0..20_000).map(|key| format!("\"k{key}\":0,")).collect();
    let bombs: Vec<(&str, Vec<u8>)> = vec![
        ("deep arrays", nul(&[b'['; 1_000_000])),
        ("deep objects", nul("{\"a\":".repeat(150_000).as_bytes())),
        ("shallow deep arrays", nul(&[b'['; 4000])),
        ("a million spaces", nul(&[b' '; 1_000_000])),
        ("many keys", nul(format!("{{{keys}\"x\":1}}").as_bytes())),
        (
            "a number without end",
            nul(format!("{{\"capabilities\":{{\"max_msg_fds\":{}}}}}", "9".repeat(3000)).as_bytes()),
        ),
        ("1e999999999", capabilities("{\"max_msg_fds\":1e999999999}")),
        ("a negative count", capabilities("{\"max_msg_fds\":-1}")),
        ("a wrong type", capabilities("{\"max_msg_fds\":[[]]}")),
        ("null", nul(b"null")),
        ("a doubled key", capabilities("{\"max_msg_fds\":1,\"max_msg_fds\":2}")),
        ("no NUL", b"{}".to_vec()),
        ("a NUL inside", b"{\0}\0".to_vec()),
        ("no UTF-8", nul(b"{\"\xff\xfe\":1}")),
        ("a lone surrogate", nul(b"{\"\\ud800\":1}")),
        ("a string without end", nul(format!("{{\"{}", "x".repeat(3000)).as_bytes())),
    ];
    for (what, bomb) in &bombs {
        let mut client = Client::connect(&scene.device)?;
        let answer = client.ask(command::VERSION, &version(bomb))?;
        findings.count(answer.name());
        findings.check(answer.refused(), format!("{what} in VERSION is taken"));
    }
    for (major, minor) in [(1, 0), (u16::MAX, u16::MAX)] {
        let mut client = Client::connect(&scene.device)?;
        let body = [wire::Version { major, minor }.as_bytes(), PROPOSAL].concat();
        let answer = client.ask(command::VERSION, &body)?;
        findings.check(answer.refused(), format!("version {major}.{minor} is taken"));
    }
    // Something else first; and VERSION again later.
    let mut client = Client::connect(&scene.device)?;
    let answer = client.ask(command::REGION_READ, &[0; 16])?;
    findings.check(answer.refused(), "a command before VERSION is done");
    let mut client = Client::negotiated(&scene.device)?;
    let answer = client.ask(command::VERSION, &version(PROPOSAL))?;
    findings.check(answer.refused(), "VERSION is done twice");
    Ok(Outcome::Refused)
}

/// Counts and offsets that overflow.
pub fn counts(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut client = Client::negotiated(&scene.device)?;
    let odd32 = || ODD.iter().filter_map(|value| u32::try_from(*value).ok());
    for region in [0, 1, 3, 6, 7, 8, 9, u32::MAX] {
        for count in odd32().filter(|count| *count > 1 << 20) {
            for offset in [0, 0xff_fff0, u64::MAX, u64::MAX - 3] {
                let access = wire::RegionAccess { offset, region, count };
                for command in [command::REGION_READ, command::REGION_WRITE] {
                    let answer = client.ask(command, access.as_bytes())?;
                    findings.check(answer.refused(), format!("{count} bytes at {offset:#x} are done"));
                    findings.count(answer.name());
                    client = alive(scene, client, &answer)?;
                }
            }
        }
        for offset in ODD.iter().copied().filter(|offset| *offset > 1 << 40) {
            let read = wire::RegionAccess { offset, region, count: 8 };
            let read = client.ask(command::REGION_READ, read.as_bytes())?;
            let write = client.ask(command::REGION_WRITE, &write_body(region, offset, &[0; 8]))?;
            findings.check(read.refused() && write.refused(), format!("an access at {offset:#x} is done"));
        }
    }
    for count in ODD.iter().copied().filter(|count| *count > 4096) {
        let answer = client.ask(command::REGION_WRITE_MULTI, &[count.as_bytes(), &[0; 48]].concat())?;
        findings.check(answer.refused(), format!("{count} writes in one message are done"));
        client = alive(scene, client, &answer)?;
    }
    for argsz in odd32() {
        let region =
            wire::RegionInfo { argsz, flags: !0, index: u32::MAX, cap_offset: !0, size: !0, offset: !0 };
        let answer = client.ask(command::DEVICE_GET_REGION_INFO, region.as_bytes())?;
        findings.check(answer.refused(), "a region that there is not is described");
        let irq = wire::IrqInfo { argsz, flags: !0, index: u32::MAX, count: !0 };
        let answer = client.ask(command::DEVICE_GET_IRQ_INFO, irq.as_bytes())?;
        findings.check(answer.refused(), "an interrupt type that there is not is described");
    }
    match client.in_step() {
        Ok(()) => Ok(Outcome::Refused),
        Err(error) => bail!("the stream is out of step: {error:#}"),
    }
}
