//! Shared memory that is overwritten while the aggregator reads it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gpuvmk::addr::GuestChannel;
use gpuvmk::aggregator::protocol::Request;
use gpuvmk::pci::mapping::Mapping;
use gpuvmk_attacks::Outcome;

use super::datagrams::every_kind;
use crate::Scene;
use crate::findings::Findings;
use crate::random::{ODD, Random};
use crate::raw::{Answer, Raw, encoded};

/// Word of the board where the mailbox begins: state, length, and the request 16 words on.
const MAILBOX: u64 = 2048 * 4;

/// Writes anything anywhere, again and again.
fn overwrite(memory: &Mapping, from: u64, seed: u64, over: &AtomicBool) -> u64 {
    let mut random = Random::new(seed);
    let mut written = 0;
    while !over.load(Ordering::Relaxed) {
        for _ in 0..64 {
            let at = from + (random.next() % (memory.size() - from)) / 4 * 4;
            let word = if random.below(2) == 0 { random.one_of(ODD) } else { random.next() };
            let _ = memory.write_u32(at, u32::try_from(word & 0xffff_ffff).unwrap_or(0));
        }
        written += 64;
        // What else runs on this machine shall run.
        std::thread::sleep(Duration::from_micros(50));
    }
    written
}

/// Puts good and changed requests into the mailbox, with states and lengths that lie.
fn ask_by_mailbox(memory: &Mapping, bell: &std::os::fd::OwnedFd, over: &AtomicBool) -> u64 {
    let mut random = Random::new(5);
    let kinds = every_kind();
    let mut asked = 0;
    while !over.load(Ordering::Relaxed) {
        let Some(request) = kinds.get(random.below(kinds.len())) else { continue };
        let bytes = encoded(request);
        let _ = memory.write(MAILBOX + 64, &bytes);
        let length = if random.below(4) == 0 { random.one_of(ODD) } else { bytes.len() as u64 };
        let _ = memory.write_u32(MAILBOX + 4, u32::try_from(length & 0xffff_ffff).unwrap_or(0));
        let _ = memory.write_u32(MAILBOX, u32::try_from(random.below(7)).unwrap_or(0));
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        // And again before it can have been read to its end.
        let _ = memory.write(MAILBOX + 64, &random.bytes(bytes.len()));
        asked += 1;
        std::thread::sleep(Duration::from_micros(50));
    }
    asked
}

/// All three at once, beside requests through the socket.
pub fn overwritten(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut raw = Raw::joined(&scene.aggregator, "rings")?;
    let (board, ring) = (raw.shared(0)?, raw.shared(2)?);
    let bell = raw.files.get(1).context("the bell")?.try_clone()?;
    for index in [0, 2] {
        let file = raw.files.get(index).context("shared memory")?;
        findings.check(rustix::fs::ftruncate(file, 0).is_err(), "shared memory can be truncated");
        findings.check(rustix::fs::ftruncate(file, 1 << 30).is_err(), "shared memory can be made larger");
    }
    let over = AtomicBool::new(false);
    let (mut written, mut asked) = (0, 0);
    let mut closed = false;
    std::thread::scope(|scope| -> Result<()> {
        let on_board = scope.spawn(|| overwrite(&board, 0, 1, &over));
        let on_ring = scope.spawn(|| overwrite(&ring, 0, 2, &over));
        let mailbox = scope.spawn(|| ask_by_mailbox(&board, &bell, &over));
        while scene.goes_on() {
            // Answers of the mailbox may come through the socket too: any answer is one.
            match raw.ask(&Request::Preempt(GuestChannel(0)))? {
                // What was written looked like a request under way, which only a liar sends beside another.
                Answer::Closed => {
                    closed = true;
                    break;
                }
                answer => findings.count(answer.name()),
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        while scene.goes_on() {
            std::thread::sleep(Duration::from_millis(10));
        }
        over.store(true, Ordering::Relaxed);
        written = on_board.join().unwrap_or(0) + on_ring.join().unwrap_or(0);
        asked = mailbox.join().unwrap_or(0);
        Ok(())
    })?;
    findings.add("words written", written);
    findings.add("mailbox requests", asked);
    if closed {
        findings.count("closed");
    }
    ensure!(written > 0 && asked > 0, "nothing was written");
    scene.keep(raw);
    Ok(Outcome::Values)
}
