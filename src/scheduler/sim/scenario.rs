//! What is simulated: VMs with loads on a modelled GPU, what changes when, and what is expected of it.

use std::time::Duration;

use crate::policy::PolicyKind;
use crate::settings::Settings;
use crate::share::{Share, ShareSetting};
use gpuvmk_chip::Engine;

/// A scenario for the simulator.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Virtual time that it takes.
    pub duration: Duration,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Policy at the start.
    pub policy: PolicyKind,
    /// Its settings at the start.
    pub settings: Settings,
    /// Properties of the modelled GPU.
    pub gpu: GpuModel,
    /// Steps of the picture of shares over time.
    pub window: Duration,
    /// The kinds of VMs.
    pub vms: Vec<VmKind>,
    /// Changes during the run, by time.
    pub changes: Vec<Change>,
    /// Expectations of the run.
    pub expect: Expect,
}

/// The modelled GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuModel {
    /// Time in which an engine does no work when it changes from one VM to another.
    pub switch: Duration,
    /// What the scheduler takes that for.
    pub taken_for: Duration,
    /// Hardware's own turns among the channels of one runlist.
    pub timeslice: Duration,
    /// The aggregator comes up to so much too late to what is due.
    pub late: Duration,
    /// Hardware counts how long each engine works.
    pub counts: bool,
    /// True: hardware notifies the end of each job. False: only looks show it, as where a driver asks for no
    /// interrupt.
    pub tells: bool,
}

/// VMs of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct VmKind {
    /// Name; with a number where there are several.
    pub name: String,
    /// How many there are.
    pub count: u32,
    /// Share that each was granted.
    pub share: Share,
    /// When they come.
    pub come: Duration,
    /// When they go, if they do.
    pub go: Option<Duration>,
    /// What each does: one channel for each load.
    pub loads: Vec<Load>,
    /// Expected use of its first load's engine by each, in percent of time.
    pub expect: Option<f64>,
}

/// Work of one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Engine of the work.
    pub engine: Engine,
    /// How long each piece of work takes.
    pub length: Length,
    /// The longest stretch of it that hardware does not interrupt; `None`: it can be interrupted anywhere.
    pub piece: Option<Duration>,
    /// When work comes.
    pub arrival: Arrival,
}

/// How long work takes.
#[derive(Clone, Debug, PartialEq)]
pub enum Length {
    /// Always the same.
    Constant(Duration),
    /// Exponentially distributed with this mean.
    Exponential(Duration),
    /// These, over and over.
    Listed(Vec<Duration>),
}

/// When work comes.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrival {
    /// So long after the last one is done; so many are submitted at a time.
    Closed {
        /// Pause after each piece of work.
        think: Duration,
        /// Pieces of work that are submitted and not done.
        depth: u32,
    },
    /// Regularly, done or not.
    Periodic {
        /// Time between two submissions.
        every: Duration,
    },
    /// As recorded: when, and how long each takes.
    Recorded(Vec<(Duration, Duration)>),
}

/// A change while VMs run.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Time since the start of the run.
    pub at: Duration,
    /// The change.
    pub what: Changed,
}

/// A change in a scenario.
#[derive(Clone, Debug, PartialEq)]
pub enum Changed {
    /// The policy, with its settings.
    Policy(PolicyKind, Settings),
    /// A new share for the VMs of a kind.
    Share(String, Vec<ShareSetting>),
}

/// Expectations that a run must meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expect {
    /// Least fairness among VMs that always want more.
    pub jain: Option<f64>,
    /// By how many percent of time a VM may miss what is expected of it.
    pub error: f64,
    /// The longest that 99 of 100 pieces of work may wait, for each VM.
    pub wait_p99: Option<Duration>,
    /// The most time in percent that engines may rest or change over while work waits.
    pub idle: Option<f64>,
}
