//! `soak`: verified copies until the host says how this guest goes on.
//!
//! The host writes a line to the report port:
//!
//! | order | what happens |
//! | --- | --- |
//! | `fill` | VRAM is filled with the pattern that `residue` looks for, and given back |
//! | `flr` | nouveau is removed, the function is reset through its capability, nouveau is loaded again |
//! | `reset-at-work` | the function is reset under a driver and a channel at work; then the kernel restarts at once |
//! | `end` | the program ends, and `/init` reboots or powers off |
//! | `off` | the machine is powered off from here |
//! | `panic` | the kernel panics |
//!
//! Orders are read between two copies. What was verified so far is told twice a second, and before each end.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::session::Session;
use super::{Figures, Options, reload, residue};
use crate::cmdline::Plan;
use crate::drm::render_nodes;
use crate::report::Reports;
use crate::{init, sys};

const LENGTHS: [usize; 4] = [4096, 65_536, 300_001, 1 << 20];
const BUFFER: usize = 2 << 20;
const TELL: Duration = Duration::from_millis(500);

pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    let plan = Plan::parse(&fs::read_to_string("/proc/cmdline")?);
    let port = plan.report.context("this program needs a report port (gpuvmk.report)")?;
    let mut soak = Soak {
        gpu,
        session: Session::open(gpu, BUFFER)?,
        reports: Reports::to(Some(&port)),
        copies: 0,
        bytes: 0,
    };
    let orders = orders(&port)?;
    soak.reports.event("soak-ready", json!({}));
    let mut told = Instant::now();
    loop {
        soak.work()?;
        if told.elapsed() > TELL {
            soak.tell("soak-work");
            told = Instant::now();
        }
        match orders.try_recv().as_deref() {
            Ok("end") => return Ok(soak.end()),
            Ok(order) => soak = soak.follow(order).with_context(|| format!("at the order '{order}'"))?,
            Err(_) => {}
        }
    }
}

struct Soak {
    gpu: usize,
    session: Session,
    reports: Reports,
    copies: u32,
    bytes: u64,
}

impl Soak {
    fn work(&mut self) -> Result<()> {
        for length in LENGTHS {
            let copies = self.copies;
            self.session
                .there_and_back(copies, [0, 4096, 0], length)
                .with_context(|| format!("copy {copies}"))?;
            self.copies = copies.wrapping_add(1);
            self.bytes += length as u64;
        }
        Ok(())
    }

    fn tell(&mut self, event: &str) {
        self.reports.event(event, json!({ "copies": self.copies, "bytes": self.bytes }));
    }

    /// The same, and everything leaves the machine.
    fn last_words(&mut self) {
        self.tell("soak-over");
        self.reports.drain();
    }

    fn end(&mut self) -> Figures {
        self.tell("soak-over");
        let mut figures = Figures::new();
        figures.insert("copies".into(), self.copies.into());
        figures.insert("bytes".into(), self.bytes.into());
        figures
    }

    fn follow(mut self, order: &str) -> Result<Self> {
        match order {
            "fill" => {
                let bytes = residue::fill_vram(&self.session.device)?.bytes();
                self.reports.event("soak-filled", json!({ "mib": bytes >> 20 }));
                Ok(self)
            }
            "flr" => {
                let Self { gpu, session, mut reports, copies, bytes } = self;
                let folder = pci_folder(gpu)?;
                drop(session);
                let start = Instant::now();
                reload::remove()?;
                reset(&folder)?;
                init::load_nouveau().context("after the reset")?;
                let session = Session::open(gpu, BUFFER).context("after the reset")?;
                let took = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
                reports.event("soak-flr", json!({ "took_ms": took }));
                Ok(Self { gpu, session, reports, copies, bytes })
            }
            "reset-at-work" => {
                self.last_words();
                let session = &mut self.session;
                session.channel.copy((&session.vram, 0), (&session.source, 0), BUFFER)?;
                reset(&pci_folder(self.gpu)?)?;
                fs::write("/proc/sysrq-trigger", "b")?;
                wait_for_the_end()
            }
            "off" => {
                self.last_words();
                bail!("the machine does not power off: {}", sys::end_machine(false))
            }
            "panic" => {
                self.last_words();
                fs::write("/proc/sysrq-trigger", "c")?;
                wait_for_the_end()
            }
            other => bail!("'{other}' is no order"),
        }
    }
}

/// The kernel is going down.
fn wait_for_the_end() -> Result<Soak> {
    thread::sleep(Duration::from_secs(30));
    bail!("the kernel did not go down")
}

fn pci_folder(gpu: usize) -> Result<PathBuf> {
    let node = render_nodes().get(gpu).cloned().context("no such GPU")?;
    let name = node.file_name().context("a node without a name")?;
    fs::canonicalize(Path::new("/sys/class/drm").join(name).join("device")).context("no PCI device")
}

fn reset(folder: &Path) -> Result<()> {
    fs::write(folder.join("reset"), "1").with_context(|| format!("cannot reset {}", folder.display()))
}

/// What the host writes, line by line. The thread ends with the program.
fn orders(port: &str) -> Result<Receiver<String>> {
    let mut lines = BufReader::new(File::open(format!("/dev/{port}"))?).lines();
    let (told, orders) = mpsc::channel();
    thread::spawn(move || {
        while let Some(Ok(line)) = lines.next() {
            let line = line.trim().to_owned();
            if !line.is_empty() && told.send(line).is_err() {
                return;
            }
        }
    });
    Ok(orders)
}
