//! Datagrams that are no requests, first requests that lie, descriptors where none belong, and old requests
//! again.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Result, ensure};
use gpuvmk::addr::{Gpa, GpuVa, GuestChannel, GuestVram};
use gpuvmk::aggregator::protocol::{GuestMapping, GuestRange, GuestTarget, Hello, Request, SpaceId};
use gpuvmk::chip::{Chip, Engine, EngineSet};
use gpuvmk::scheduler::share::Share;
use gpuvmk_attacks::Outcome;

use crate::Scene;
use crate::files;
use crate::findings::Findings;
use crate::random::{ODD, Random};
use crate::raw::{Answer, Raw, encoded, hello};

/// One honest request of every kind, in an order in which all are done.
pub fn every_kind() -> Vec<Request> {
    let (channel, space) = (GuestChannel(0), SpaceId(0));
    let mapping = GuestMapping {
        va: GpuVa(0x10_0000),
        pages: 16,
        page_shift: 12,
        target: GuestTarget::Vram(GuestVram(0)),
        read_only: false,
        kind: 0,
    };
    let range = GuestRange { va: GpuVa(0x10_0000), pages: 1, page_shift: 12 };
    vec![
        Request::DmaMap { gpa: Gpa(0), size: 1 << 20, offset: 0, writable: true },
        Request::CreateSpace(space),
        Request::UpdateSpace { space, unmap: vec![], map: vec![mapping] },
        Request::UpdateSpace { space, unmap: vec![range], map: vec![] },
        Request::CreateChannel {
            context_of: None,
            channel,
            space,
            gpfifo: GpuVa(0x10_2000),
            gpfifo_entries_log2: 6,
            userd: GuestVram(0x1000),
            engines: EngineSet::COPY0,
        },
        Request::SetEngines { channel, engines: EngineSet::COPY1 },
        Request::CreateObject { channel, class: 0x90b8, engine: Engine::COPY1 },
        Request::EnableChannel { channel, enabled: true },
        Request::SetRunlist(vec![channel]),
        Request::Preempt(channel),
        Request::MessageEvent { given: false },
        Request::SetRunlist(vec![]),
        Request::DestroyChannel(channel),
        Request::DestroySpace(space),
        Request::DmaUnmap { gpa: Gpa(0), size: 1 << 20 },
        Request::Reset { scrub: true },
    ]
}

/// Random bytes of every length, and good requests with changed words.
pub fn garbage(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut random = Random::new(3);
    for length in [0, 1, 15, 16, 17, 4096, 65_536, 200_000] {
        let mut stranger = Raw::connect(&scene.aggregator)?;
        let bytes = random.bytes(length);
        // The kernel may refuse to send so much.
        match stranger.ask_bytes(&bytes, &[]) {
            Ok(answer) => {
                findings.count(answer.name());
                findings.check(answer.refused(), format!("{length} random bytes are a hello"));
            }
            Err(_) => findings.count("not sent"),
        }
    }
    let file = files::memory(1 << 20)?;
    let mut raw = Raw::joined(&scene.aggregator, "garbage")?;
    let kinds = every_kind();
    let mut closed = 0;
    while scene.goes_on() {
        let Some(request) = kinds.get(random.below(kinds.len())) else { continue };
        let mut bytes = encoded(request);
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len()) & !3;
            let odd = random.one_of(ODD).to_le_bytes();
            bytes.iter_mut().skip(at).take(4 << random.below(2)).zip(odd).for_each(|(to, from)| *to = from);
        }
        if random.below(8) == 0 {
            bytes.truncate(random.below(bytes.len()));
        }
        if bytes.is_empty() {
            continue;
        }
        let fds = [file.as_fd()];
        let answer = raw.ask_bytes(&bytes, if random.below(2) == 0 { &fds } else { &[] })?;
        findings.count(answer.name());
        ensure!(answer != Answer::Silence, "a request is not answered: {request:?}");
        if answer == Answer::Closed {
            closed += 1;
            raw = Raw::joined(&scene.aggregator, &format!("garbage-{closed}"))?;
        }
    }
    scene.keep(raw);
    Ok(Outcome::Refused)
}

/// First requests that nobody should have.
pub fn names(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let good = hello("liar");
    let with_weight = |weight| Hello { share: Share { weight, ..Share::default() }, ..good.clone() };
    let with_name = |name: &str| Hello { name: name.to_owned(), ..good.clone() };
    let lies = [
        ("the victim's name", with_name("victim")),
        ("no name", with_name("")),
        ("a name with a new line", with_name("a\nb")),
        ("a name that is a path", with_name("../../etc/passwd")),
        ("a name of 65 bytes", with_name(&"x".repeat(65))),
        ("control bytes", with_name("a\u{1b}[2J")),
        ("no VRAM", Hello { vram: 0, ..good.clone() }),
        ("too much VRAM", Hello { vram: 1 << 40, ..good.clone() }),
        ("all VRAM that a number can say", Hello { vram: u64::MAX, ..good.clone() }),
        ("too many channels", Hello { channels: u16::MAX, ..good.clone() }),
        ("another chip", Hello { chip: Chip::GH100.into(), ..good.clone() }),
        ("a chip of 17 bytes", Hello { chip: "x".repeat(17).into(), ..good.clone() }),
        ("another version", Hello { version: 99, ..good.clone() }),
        ("no weight", with_weight(0)),
        ("all weight that a number can say", with_weight(u32::MAX)),
    ];
    // All stay connected: a tenant that leaves would have others wait for what it had.
    let mut all = Vec::new();
    for (what, lie) in lies {
        let mut raw = Raw::connect(&scene.aggregator)?;
        let answer = raw.ask(&Request::Hello(lie))?;
        findings.count(answer.name());
        findings.check(answer.refused(), format!("{what} is answered '{}'", answer.name()));
        if matches!(answer, Answer::Welcome(_)) {
            all.push(raw);
        }
    }
    // Something else first, and hello twice.
    for request in every_kind() {
        let answer = Raw::connect(&scene.aggregator)?.ask(&request)?;
        findings.check(answer.refused(), format!("{request:?} is done for a stranger"));
    }
    let mut raw = Raw::joined(&scene.aggregator, "names")?;
    let answer = raw.ask(&Request::Hello(hello("again")))?;
    findings.check(answer.refused(), "hello is done twice");
    scene.keep((raw, all));
    Ok(Outcome::Refused)
}

/// Descriptors where none belong, too many of them, none where one belongs, and wrong ones.
pub fn descriptors(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let file = files::memory(1 << 20)?;
    let mut raw = Raw::joined(&scene.aggregator, "descriptors")?;
    let map = |gpa| encoded(&Request::DmaMap { gpa: Gpa(gpa), size: 0x1000, offset: 0, writable: true });
    let mut wrong = files::wrong()?;
    wrong.push(("an eventfd", files::event(0)?));
    wrong.push(("a sealed file, to be written", files::sealed(0x1000)?));
    wrong.push(("an empty file", files::memory(0)?));
    wrong.push(("the connection itself", raw.socket.try_clone()?));
    for (what, fd) in &wrong {
        let answer = raw.ask_bytes(&map(0x100_0000), &[fd.as_fd()])?;
        findings.count(answer.name());
        findings.check(answer.refused(), format!("{what} is taken for guest memory"));
    }
    for count in [2, 16, 250] {
        let fds: Vec<BorrowedFd<'_>> = vec![file.as_fd(); count];
        let answer = raw.ask_bytes(&map(0x200_0000), &fds)?;
        findings.count(format!("{count}: {}", answer.name()));
        findings.check(answer != Answer::Silence, format!("{count} descriptors are not answered"));
    }
    for _ in 0..64 {
        for request in every_kind() {
            let answer = raw.ask_bytes(&encoded(&request), &[file.as_fd(); 8])?;
            findings
                .check(answer != Answer::Silence, format!("{request:?} with 8 descriptors is not answered"));
            findings.count(answer.name());
        }
    }
    // More than the kernel's limit for one message of ours.
    let fds: Vec<BorrowedFd<'_>> = vec![file.as_fd(); 253];
    let answer = raw.ask_bytes(&map(0x300_0000), &fds)?;
    findings.count(format!("253: {}", answer.name()));
    findings.check(answer.refused(), "253 descriptors are taken");
    Ok(Outcome::Refused)
}

/// Requests that were right once.
pub fn replays(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let file = files::memory(1 << 20)?;
    let mut raw = Raw::joined(&scene.aggregator, "replays")?;
    let mut recorded = Vec::new();
    for request in every_kind() {
        let bytes = encoded(&request);
        let fds = [file.as_fd()];
        let takes_file = matches!(request, Request::DmaMap { .. });
        let answer = raw.ask_bytes(&bytes, if takes_file { &fds } else { &[] })?;
        ensure!(matches!(answer, Answer::Done | Answer::Refused(_)), "{request:?}: {}", answer.name());
        findings.count(format!("first time {}", answer.name()));
        recorded.push((request, bytes));
    }
    // Everything is gone: whatever needs a space, a channel or memory must be refused. To take away what is
    // not there is no error.
    let needs_something = |request: &Request| {
        !matches!(
            request,
            Request::DmaMap { .. }
                | Request::DmaUnmap { .. }
                | Request::CreateSpace(_)
                | Request::SetRunlist(_)
                | Request::MessageEvent { .. }
                | Request::Reset { .. }
        )
    };
    for _ in 0..16 {
        for (request, bytes) in recorded.iter().filter(|(request, _)| needs_something(request)) {
            let answer = raw.ask_bytes(bytes, &[])?;
            findings.count(format!("replayed {}", answer.name()));
            findings.check(answer.refused(), format!("{request:?} is done after teardown"));
        }
        let answer = raw.ask(&Request::SetRunlist(vec![GuestChannel(0)]))?;
        findings.check(answer.refused(), "a runlist names a channel that is gone");
    }
    // On a connection without hello, and on that of the next tenant.
    drop(raw);
    let mut next = Raw::joined(&scene.aggregator, "replayed-to")?;
    for (request, bytes) in &recorded {
        let answer = Raw::connect(&scene.aggregator)?.ask_bytes(bytes, &[])?;
        findings.check(answer.refused(), format!("{request:?} is done for a stranger"));
    }
    for (request, bytes) in recorded.iter().filter(|(request, _)| needs_something(request)) {
        let answer = next.ask_bytes(bytes, &[])?;
        findings.check(answer.refused(), format!("{request:?} is done for the next tenant"));
    }
    scene.keep(next);
    Ok(Outcome::Refused)
}
