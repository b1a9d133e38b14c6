//! What a program shows to the host, which looks at the monitor from outside: an event says what is to be
//! seen, and the program goes on when the host has seen it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cmdline::Plan;
use crate::report::Reports;

/// The host's word that it has seen what was shown.
const SEEN: &str = "seen";

/// The way to the host.
#[derive(Debug)]
pub struct Stage {
    reports: Reports,
    orders: BufReader<File>,
}

impl Stage {
    /// By the report port, on which the host gives orders.
    pub fn open() -> Result<Self> {
        let plan = Plan::parse(&fs::read_to_string("/proc/cmdline").context("cannot read /proc/cmdline")?);
        let port = plan.report.context("the host's orders need a report port (gpuvmk.report)")?;
        let orders = File::open(format!("/dev/{port}")).context("cannot take orders")?;
        Ok(Self { reports: Reports::to(Some(&port)), orders: BufReader::new(orders) })
    }

    /// Says what is shown, and waits until the host has seen it.
    pub fn show(&mut self, what: Value) -> Result<()> {
        self.ask("shown", what, SEEN)
    }

    /// Says something to the host, and waits for this answer.
    pub fn ask(&mut self, event: &str, what: Value, answer: &str) -> Result<()> {
        self.reports.event(event, what);
        let mut line = String::new();
        self.orders.read_line(&mut line).context("no answer of the host")?;
        ensure!(line.trim() == answer, "the host says '{}', not '{answer}'", line.trim());
        Ok(())
    }
}
