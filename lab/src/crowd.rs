//! Several guests that want one GPU, each as much of it as it is told to (the guest program `contend`).

pub mod figures;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gpuvmk_control_client::EngineStatus;
use serde_json::json;

use crate::machine::{Machine, Outcome};
use crate::process::Priority;
use crate::report::Report;
use crate::rig::Rig;

/// What a VM had of the GPU so far, all engines together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Had {
    /// Time as the aggregator counted it, in microseconds.
    pub used: f64,
    /// Time in truth, where the GPU tells (software GPUs).
    pub truth: f64,
    /// Doorbells.
    pub submissions: f64,
    /// Turns.
    pub switches: f64,
    /// Bytes that its copies wrote, counted when they were submitted.
    pub copied: f64,
    /// The longest of 99 of 100 waits of its doorbells, in milliseconds, since the policy was set.
    pub wait_p99_ms: f64,
}

/// What VMs had in a stretch of time.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// How long it was.
    pub seconds: f64,
    /// What each VM had.
    pub vms: Vec<Had>,
}

impl Stretch {
    /// What was had from one moment to a later one.
    pub fn between(before: &[Had], after: &[Had], seconds: f64) -> Self {
        let vms = before.iter().zip(after).map(|(before, after)| Had {
            used: after.used - before.used,
            truth: after.truth - before.truth,
            submissions: after.submissions - before.submissions,
            switches: after.switches - before.switches,
            copied: after.copied - before.copied,
            wait_p99_ms: after.wait_p99_ms,
        });
        Self { seconds, vms: vms.collect() }
    }

    /// Each VM's time in truth, in seconds.
    pub fn truth(&self) -> Vec<f64> {
        self.vms.iter().map(|had| had.truth / 1e6).collect()
    }
}

/// The guests and their GPU.
#[derive(Debug)]
pub struct Crowd {
    // Field order is drop order: guests go before the GPU.
    machines: Vec<Machine>,
    names: Vec<String>,
    rig: Rig,
}

/// Whether a guest says that it waits for orders.
pub fn is_ready(report: &Report) -> bool {
    matches!(report, Report::Event { name, .. } if name == "contend-ready")
}

impl Crowd {
    /// Waits until all machines, one for each of the rig's GPUs, are ready; none of them wants anything yet.
    pub fn gather(rig: Rig, names: Vec<String>, machines: Vec<Machine>) -> Result<Self> {
        let mut crowd = Self { machines: Vec::new(), names: Vec::new(), rig };
        names.into_iter().zip(machines).try_for_each(|(name, machine)| crowd.join(name, machine))?;
        Ok(crowd)
    }

    /// The same with one machine more, in front of the next of the rig's GPUs.
    pub fn join(&mut self, name: String, mut machine: Machine) -> Result<()> {
        machine.wait_for("it was ready", is_ready)?;
        // Emulated processors stand for ones that guests would have to themselves: the host's daemons go
        // before them, as they do where they may (`LimitNICE=`).
        machine.set_priority(Priority::Low)?;
        self.machines.push(machine);
        self.names.push(name);
        Ok(())
    }

    /// The GPU's processes.
    pub fn rig(&mut self) -> &mut Rig {
        &mut self.rig
    }

    /// Tells some what to want.
    pub fn order(&mut self, whom: impl IntoIterator<Item = usize>, order: &str) -> Result<()> {
        for index in whom {
            self.machines.get_mut(index).context("no such guest")?.order(order)?;
        }
        Ok(())
    }

    /// Changes settings of a VM, or of the GPU without one, as `gpuvmk set` does.
    pub fn set(&self, vm: Option<usize>, settings: &[&str]) -> Result<()> {
        let vm = vm.and_then(|index| self.names.get(index));
        let (method, params) = match vm {
            Some(vm) => ("vm.set", json!({ "vm": vm, "settings": settings })),
            None => ("gpu.set", json!({ "settings": settings })),
        };
        self.rig.call(method, &params).map(drop).with_context(|| format!("{settings:?}"))
    }

    /// What all had in a time from now.
    pub fn watch(&mut self, time: Duration) -> Result<Stretch> {
        let (began, before) = (Instant::now(), self.had()?);
        self.pass(time)?;
        let (seconds, after) = (began.elapsed().as_secs_f64(), self.had()?);
        Ok(Stretch::between(&before, &after, seconds))
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            for (machine, name) in self.machines.iter_mut().zip(&self.names) {
                if let Some(outcome) = machine.pump(&mut |_| {})? {
                    bail!("{name} ended: {}", outcome.problem.unwrap_or_else(|| "it powered off".into()));
                }
            }
            std::thread::sleep(end.saturating_duration_since(Instant::now()).min(Duration::from_millis(100)));
        }
        Ok(())
    }

    /// Processor time of the aggregator.
    pub fn aggregator_time(&mut self) -> Result<Duration> {
        Ok(self.rig.aggregator().context("there is no aggregator")?.cpu_time())
    }

    /// How late the aggregator comes to what is due, in milliseconds: the median, and 99 of 100 at the most,
    /// since the policy was set.
    pub fn lateness(&self) -> Result<(f64, f64)> {
        let status = self.rig.status()?;
        let late = status.first().context("there is no aggregator")?.gpu.late_ns;
        Ok((late.p50 as f64 / 1e6, late.p99 as f64 / 1e6))
    }

    /// What all had so far.
    pub fn had(&self) -> Result<Vec<Had>> {
        let tenants = self.rig.tenants()?;
        self.names
            .iter()
            .map(|name| {
                let tenant = tenants.iter().find(|tenant| tenant.name == *name);
                let tenant = tenant.with_context(|| format!("{name} is not connected"))?;
                let sum = |of: fn(&EngineStatus) -> u64| tenant.engines.iter().map(of).sum::<u64>() as f64;
                let wait = tenant.engines.iter().map(|engine| engine.wait_ns.p99).max().unwrap_or(0);
                Ok(Had {
                    used: sum(|engine| engine.used_us),
                    truth: sum(|engine| engine.true_us.unwrap_or(0)),
                    submissions: sum(|engine| engine.submissions),
                    switches: sum(|engine| engine.switches),
                    copied: tenant.copied_bytes as f64,
                    wait_p99_ms: wait as f64 / 1e6,
                })
            })
            .collect()
    }

    /// The GPU's processes, without their guests.
    pub fn into_rig(self) -> Rig {
        self.rig
    }

    /// Ends all guests; returns what came of each.
    pub fn end(&mut self) -> Result<Vec<Outcome>> {
        self.order(0..self.machines.len(), "end")?;
        self.machines.iter_mut().map(|machine| machine.wait(&mut |_| {})).collect()
    }
}
