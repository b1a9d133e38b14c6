//! Processes that are killed in the middle of each kind of request.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk::aggregator::protocol::Request;
use gpuvmk_attacks::Outcome;

use super::datagrams::every_kind;
use crate::Scene;
use crate::files;
use crate::findings::Findings;
use crate::raw::{Answer, Raw, encoded, hello};

/// For each kind of request, a process that sends it and is killed before the answer. The next one has its
/// name and must be admitted within a second.
pub fn in_each_request(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let kinds = u64::try_from(every_kind().len())?;
    let mut worst = Duration::ZERO;
    let mut killed: Option<Instant> = None;
    for kind in 0..=kinds {
        // The same name as the dead one, and the memory that it had: the child asks for more once it is
        // admitted.
        let mut child = scene.child("killed-backend", kind)?.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a child's output")?).read_line(&mut line)?;
        ensure!(line.contains("sent"), "request {kind} was not sent: {line}");
        // The first one does not wait to be admitted.
        if let Some(killed) = killed.filter(|_| kind > 0) {
            worst = worst.max(killed.elapsed());
        }
        child.kill()?;
        killed = Some(Instant::now());
        child.wait()?;
        findings.count("killed");
    }
    findings.add("slowest ms", u64::try_from(worst.as_millis())?);
    ensure!(worst < Duration::from_secs(1), "a backend waited {worst:?} for the dead one to be cleared away");
    Ok(Outcome::Values)
}

/// The child: gets as far as its request, sends it, and does not wait for the answer.
pub fn backend(scene: &mut Scene) -> Result<Outcome> {
    let file = files::memory(1 << 20)?;
    let mut raw = Raw::connect(&scene.aggregator)?;
    let all = [vec![Request::Hello(hello("killed"))], every_kind()].concat();
    let last = usize::try_from(scene.step)?;
    for (number, request) in all.iter().enumerate() {
        let fds = [file.as_fd()];
        let fds: &[_] = if matches!(request, Request::DmaMap { .. }) { &fds } else { &[] };
        if number == last {
            raw.send(&encoded(request), fds)?;
            println!("sent");
            std::thread::sleep(Duration::from_secs(10));
            break;
        }
        let answer = raw.ask_bytes(&encoded(request), fds)?;
        ensure!(number > 0 || matches!(answer, Answer::Welcome(_)), "hello is answered '{}'", answer.name());
    }
    Ok(Outcome::Values)
}
