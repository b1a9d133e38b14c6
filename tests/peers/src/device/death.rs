//! Clients that are killed at any moment.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk::frontend::vfio_user::wire::command;
use gpuvmk_attacks::Outcome;
use zerocopy::IntoBytes;

use crate::Scene;
use crate::client::{Client, map_body};
use crate::files;
use crate::findings::Findings;
use crate::random::Random;

/// Kills one client after the other; each next one must be served within a second.
pub fn loop_of_clients(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut random = Random::new(31);
    let mut worst = Duration::ZERO;
    while scene.goes_on() {
        let mut child = scene.child("killed-client", random.next())?.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a child's output")?).read_line(&mut line)?;
        ensure!(line.contains("served"), "a client was not served");
        std::thread::sleep(Duration::from_micros(random.next() % 20_000));
        child.kill()?;
        let start = Instant::now();
        Client::negotiated(&scene.device)?.in_step()?;
        worst = worst.max(start.elapsed());
        child.wait()?;
        findings.count("killed");
    }
    findings.add("slowest ms", u64::try_from(worst.as_millis())?);
    ensure!(worst < Duration::from_secs(1), "a client waited {worst:?} for the dead one to be cleared away");
    Ok(Outcome::Values)
}

/// The child: maps and unmaps memory, writes and reads, until it is killed.
pub fn client(scene: &mut Scene) -> Result<Outcome> {
    let mut client = Client::negotiated(&scene.device)?;
    println!("served");
    let mut random = Random::new(scene.step);
    let file = files::memory(64 << 20)?;
    loop {
        match random.below(4) {
            0 => {
                let body = map_body(3, 0, 0, 64 << 20);
                client.ask_with(command::DMA_MAP, body.as_bytes(), &[file.as_fd()])?;
            }
            1 => drop(client.unmap(0, 64 << 20)?),
            2 => drop(client.load(1, random.next() & 0xf_fffc)?),
            // Half a message, as a process leaves that is killed in the middle of it.
            _ => {
                let header = client.header(command::DEVICE_GET_INFO, 16);
                client.send_raw(header.as_bytes())?;
                std::thread::sleep(Duration::from_micros(random.next() % 500));
                client.send_raw(&[16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
                client.receive()?;
            }
        }
    }
}
