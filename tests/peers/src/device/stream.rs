//! The byte stream itself: pieces, ends at the wrong place, many connections, random changes.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result};
use gpuvmk::frontend::vfio_user::wire::{self, command};
use gpuvmk_attacks::Outcome;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use zerocopy::IntoBytes;

use crate::Scene;
use crate::client::{Client, PROPOSAL, map_body, version, write_body};
use crate::files;
use crate::findings::Findings;
use crate::random::{ODD, Random};

/// Messages in pieces, descriptors in the middle, and ends at each byte.
pub fn fragments(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let file = files::memory(4096)?;
    let mut client = Client::negotiated(&scene.device)?;
    let body = wire::DeviceInfo { argsz: 16, flags: 0, num_regions: 0, num_irqs: 0 };
    let whole = [client.header(command::DEVICE_GET_INFO, 16).as_bytes(), body.as_bytes()].concat();
    for byte in &whole {
        client.send_raw(&[*byte])?;
    }
    findings.check(!client.receive()?.refused(), "a message in single bytes is not done");
    // A descriptor with each byte: more than a message may bring.
    for byte in &whole {
        client.send_with(&[*byte], &[file.as_fd()])?;
    }
    let answer = client.receive()?;
    findings.count(format!("a descriptor a byte: {}", answer.name()));
    findings.check(answer.refused(), "a message with 32 descriptors in pieces is done");
    client.in_step()?;
    drop(client);

    let map = map_body(3, 0, 0, 4096);
    let header = Client::negotiated(&scene.device)?.header(command::DMA_MAP, 32);
    let whole = [header.as_bytes(), map.as_bytes()].concat();
    for cut in 0..whole.len() {
        let mut client = Client::negotiated(&scene.device)?;
        client.send_with(whole.get(..cut.max(1)).unwrap_or_default(), &[file.as_fd()])?;
        drop(client);
        findings.count("cut off");
    }
    Ok(Outcome::Values)
}

/// A connection that does not wait where the queue is full.
fn hasty(scene: &Scene) -> Option<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    connect(&socket, &SocketAddrUnix::new(&scene.device).ok()?).ok()?;
    Some(UnixStream::from(socket))
}

/// Hundreds of connections at a time.
pub fn connections(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    while scene.goes_on() {
        let mut all = Vec::new();
        for number in 0..400 {
            let Some(mut stream) = hasty(scene) else {
                findings.count("turned away");
                continue;
            };
            findings.count("queued");
            if number % 3 == 1 {
                // Half a header.
                let _ = std::io::Write::write(&mut stream, &[1; 7]);
            }
            all.push(stream);
        }
        std::thread::sleep(Duration::from_millis(100));
        drop(all);
    }
    Ok(Outcome::Values)
}

/// Good messages, to be spoilt.
fn good(random: &mut Random) -> (u16, Vec<u8>) {
    let offset = random.next() & 0x1ff_fffc;
    let region = u32::try_from(random.below(9)).unwrap_or(0);
    let access = wire::RegionAccess { offset, region, count: 4 };
    match random.below(8) {
        0 => (command::REGION_READ, access.as_bytes().to_vec()),
        1 => (command::REGION_WRITE, write_body(region, offset, &random.bytes(8))),
        2 => {
            let small = wire::SmallWrite { access, data: [0x5a; 8] };
            (command::REGION_WRITE_MULTI, [1u64.as_bytes(), small.as_bytes()].concat())
        }
        3 => (command::DMA_MAP, map_body(3, 0, offset & !0xfff, 0x1000).as_bytes().to_vec()),
        4 => {
            let body = wire::DmaUnmap { argsz: 24, flags: 0, address: offset & !0xfff, size: 0x1000 };
            (command::DMA_UNMAP, body.as_bytes().to_vec())
        }
        5 => {
            let body = wire::SetIrqs {
                argsz: 20,
                flags: 0x21,
                index: [0, 1, 2][random.below(3)],
                start: 0,
                count: 1,
            };
            (command::DEVICE_SET_IRQS, body.as_bytes().to_vec())
        }
        6 => (command::DEVICE_RESET, Vec::new()),
        _ => (command::VERSION, version(PROPOSAL)),
    }
}

/// Changes a few bytes, or a word to a value at which fields break.
fn spoil(bytes: &mut [u8], random: &mut Random) {
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len());
        if random.below(2) == 0 {
            let byte = random.next().to_le_bytes();
            if let (Some(place), [first, ..]) = (bytes.get_mut(at), byte) {
                *place = first;
            }
        } else {
            let odd = random.one_of(ODD).to_le_bytes();
            let width = 4 << random.below(2);
            bytes.iter_mut().skip(at & !3).take(width).zip(odd).for_each(|(to, from)| *to = from);
        }
    }
}

/// Random changes to good messages, several at a time, answers read as they come.
pub fn random(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let file = files::memory(1 << 20)?;
    let mut random = Random::new(34);
    let mut client = Client::negotiated(&scene.device)?;
    while scene.goes_on() {
        let mut batch = Vec::new();
        for _ in 0..16 {
            let (command, body) = good(&mut random);
            let mut header = client.header(command, body.len());
            // Half of them keep their size, so that the stream goes on.
            let mut message = [header.as_bytes(), &body].concat();
            spoil(&mut message, &mut random);
            if random.below(16) > 0 {
                header.flags = u32::try_from(random.below(2)).unwrap_or(0) << 4;
                message.iter_mut().zip(header.as_bytes()).for_each(|(to, from)| *to = *from);
            }
            batch.extend(message);
        }
        findings.add("messages", 16);
        let fds = [file.as_fd()];
        let sent = match client.send_with(&batch, if random.below(4) == 0 { &fds } else { &[] }) {
            Ok(true) => drain(&mut client)?,
            Ok(false) => false,
            // Resets without end are carried out ever later: its own messages wait for them.
            Err(error) if is_late(&error) => {
                findings.count("not taken in time");
                false
            }
            Err(error) => return Err(error),
        };
        if !sent {
            findings.count("closed");
            client = Client::negotiated(&scene.device)?;
        }
    }
    drop(client);
    Ok(Outcome::Values)
}

/// Whether something was not done because it took too long.
fn is_late(error: &anyhow::Error) -> bool {
    let plain =
        error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
    plain || error.downcast_ref() == Some(&rustix::io::Errno::AGAIN)
}

/// Reads what is there. False when the connection is closed, or out of step.
fn drain(client: &mut Client) -> Result<bool> {
    client.socket.set_nonblocking(true)?;
    let mut bytes = vec![0; 65_536];
    let open = loop {
        match client.socket.read(&mut bytes) {
            Ok(0) => break false,
            Ok(_) => {}
            Err(error) => break error.kind() == std::io::ErrorKind::WouldBlock,
        }
    };
    client.socket.set_nonblocking(false).context("a socket")?;
    Ok(open)
}
