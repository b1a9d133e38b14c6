//! A VM: its QEMU, and what its guest says of its work.

use std::time::{Duration, Instant};

use anyhow::Result;
use gpuvmk_lab::machine::{Machine, Outcome, Said};
use gpuvmk_lab::report::{ProgramResult, Report};
use gpuvmk_lab::verdict;
use serde_json::{Map, Value};

use super::deeds::Deed;

/// What guests did and saw to be right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Copies there and back, compared byte by byte.
    pub copies: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pages that were looked through for what an earlier guest left.
    pub scanned_pages: u64,
}

impl Work {
    /// Adds another's.
    pub fn add(&mut self, other: Self) {
        self.copies += other.copies;
        self.bytes += other.bytes;
        self.scanned_pages += other.scanned_pages;
    }
}

/// What a guest has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// It boots.
    Booted,
    /// It works.
    Ready,
    /// It carried out an order, which it named so.
    Done(String),
    /// Something is wrong.
    Problem(String),
    /// QEMU has ended; the reason if it did not end well.
    Ended(Option<String>),
}

/// A VM.
#[derive(Debug)]
pub struct Visitor {
    machine: Machine,
    label: String,
    programs: Vec<String>,
    /// What it did since it booted last.
    since_boot: Work,
    before: Work,
    heard: Instant,
    disturbed: bool,
}

impl Visitor {
    /// A VM that has just been started.
    pub fn new(machine: Machine, label: String) -> Self {
        let programs = machine.spec().programs.clone();
        let (since_boot, before) = (Work::default(), Work::default());
        Self { machine, label, programs, since_boot, before, heard: Instant::now(), disturbed: false }
    }

    /// Its name, which its logs have.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// How long it has said nothing of its work.
    pub fn silent(&self) -> Duration {
        self.heard.elapsed()
    }

    /// Takes in what it said.
    pub fn look(&mut self) -> Result<Vec<News>> {
        let mut reports = Vec::new();
        let ended = self.machine.pump(&mut |said| {
            if let Said::Report(report) = said {
                reports.push((*report).clone());
            }
        })?;
        let mut news: Vec<News> = reports.into_iter().filter_map(|report| self.news(report)).collect();
        news.extend(ended.map(|outcome| News::Ended(outcome.problem)));
        Ok(news)
    }

    fn news(&mut self, report: Report) -> Option<News> {
        match report {
            Report::Event { name, fields } => self.event(name, &fields),
            Report::Result(result) => self.result(&result),
        }
    }

    fn event(&mut self, name: String, fields: &Map<String, Value>) -> Option<News> {
        self.heard = Instant::now();
        let count = |name: &str| fields.get(name).and_then(Value::as_u64).unwrap_or(0);
        match name.as_str() {
            "boot" => {
                self.before.add(std::mem::take(&mut self.since_boot));
                Some(News::Booted)
            }
            "loaded" => {
                let why = fields.get("error").map(|error| format!("nouveau was not loaded: {error}"));
                let none =
                    || (count("gpus") != 1).then(|| format!("nouveau brought up {} GPUs", count("gpus")));
                why.or_else(none).map(News::Problem)
            }
            "soak-ready" => Some(News::Ready),
            "soak-work" | "soak-over" => {
                self.since_boot.copies = count("copies");
                self.since_boot.bytes = count("bytes");
                None
            }
            "soak-filled" | "soak-flr" => Some(News::Done(name)),
            _ => None,
        }
    }

    fn result(&mut self, result: &ProgramResult) -> Option<News> {
        self.heard = Instant::now();
        if !result.ok {
            let why = result.error.as_deref().unwrap_or("no reason given");
            return Some(News::Problem(format!("{} failed: {why}", result.program)));
        }
        if result.program == "residue" {
            self.since_boot.scanned_pages += result.figures.get("pages").and_then(Value::as_u64).unwrap_or(0);
        }
        None
    }

    /// Something is about to happen to it that it was told of if it can be.
    pub fn suffer(&mut self, deed: Deed) -> Result<()> {
        self.disturbed |= deed.disturbs();
        self.heard = Instant::now();
        match deed.order() {
            Some(order) => self.machine.order(order),
            None => Ok(()),
        }
    }

    /// Kills QEMU. When this returns its memory is gone.
    pub fn kill(&mut self) -> Result<Outcome> {
        self.machine.kill()
    }

    /// All its work, and what its kernel said that nothing explains.
    pub fn end(self) -> (Work, Vec<String>) {
        let mut work = self.before;
        work.add(self.since_boot);
        let unexplained = match self.disturbed {
            true => Vec::new(),
            false => verdict::unexplained(self.machine.console(), &self.programs),
        };
        (work, unexplained)
    }
}
