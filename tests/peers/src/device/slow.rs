//! A client that does not read.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gpuvmk::frontend::vfio_user::wire::{self, command};
use gpuvmk_attacks::Outcome;
use zerocopy::IntoBytes;

use crate::Scene;
use crate::client::Client;
use crate::findings::Findings;

/// Asks for megabytes until the sockets are full both ways, and stays so. Only its own vGPU may stand still.
pub fn reader(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut client = Client::negotiated(&scene.device)?;
    let access = wire::RegionAccess { offset: 0, region: 1, count: 1 << 20 };
    let header = client.header(command::REGION_READ, 16);
    let message = [header.as_bytes(), access.as_bytes()].concat();
    client.socket.set_write_timeout(Some(Duration::from_millis(200)))?;
    let mut taken = 0;
    let full = loop {
        match client.socket.write(&message) {
            Ok(bytes) => taken += bytes,
            Err(error) => break error,
        }
        if taken > 64 << 20 {
            break std::io::ErrorKind::OutOfMemory.into();
        }
    };
    ensure!(full.kind() != std::io::ErrorKind::OutOfMemory, "64 MiB of requests are taken without a reader");
    findings.add("bytes taken", u64::try_from(taken)?);
    while scene.goes_on() {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(client);
    let start = Instant::now();
    Client::negotiated(&scene.device)?.in_step()?;
    let took = start.elapsed();
    findings.add("next client served after ms", u64::try_from(took.as_millis())?);
    // A reader that holds it up would do so for good.
    ensure!(took < Duration::from_secs(20), "the next client waited {took:?}");
    Ok(Outcome::Limited)
}
