//! Runs one case and says what was wrong with it.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gpuvmk_control_client::TenantStatus;
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::machine::{self, Machine};
use gpuvmk_lab::report::Report;
use gpuvmk_lab::rig::{Rig, RigSpec, Topology};
use gpuvmk_lab::verdict::{self, Verdict};
use serde_json::{Value, json};

use crate::cases::{self, Case, Disturbance, Guest};
use crate::looked;
use crate::recording::{self, Recording};
use crate::workshop::{self, Workshop};

/// How long a guest works before it is disturbed.
const AT_WORK: Duration = Duration::from_secs(1);
/// How often it is looked whether a guest sleeps.
const NIGHT: Duration = Duration::from_millis(200);
/// How long the others may take to notice that a process has gone.
const NOTICE: Duration = Duration::from_secs(5);

/// What came of a case.
#[derive(Debug)]
pub struct CaseResult {
    pub name: String,
    pub problems: Vec<String>,
    pub wall: Duration,
    pub guests: Vec<(String, Verdict)>,
    pub accesses: Vec<Accesses>,
}

/// What guests had of a mediated GPU in a whole case, from the first boot on.
#[derive(Debug)]
pub struct Accesses {
    /// The GPU's VM.
    pub vm: String,
    pub chip: Chip,
    /// Accesses that stopped a processor until the GPU's process had answered.
    pub trapped: u64,
    /// Memory of that process alone at the end, in KiB.
    pub own_kib: Option<u64>,
}

impl Accesses {
    fn to_json(&self) -> Value {
        let own_mib = self.own_kib.map(|kib| kib.div_ceil(1024));
        json!({ "vm": self.vm, "chip": self.chip.name(), "trapped": self.trapped, "own_mib": own_mib })
    }
}

impl CaseResult {
    pub fn ok(&self) -> bool {
        self.problems.is_empty()
    }

    /// As the JSON result has it.
    pub fn to_json(&self) -> Value {
        let guests: Vec<Value> =
            self.guests.iter().map(|(name, verdict)| guest_json(name, verdict)).collect();
        json!({
            "name": self.name,
            "ok": self.ok(),
            "problems": self.problems,
            "seconds": crate::tenths(self.wall),
            "guests": guests,
            "accesses": self.accesses.iter().map(Accesses::to_json).collect::<Vec<_>>(),
        })
    }
}

fn guest_json(name: &str, verdict: &Verdict) -> Value {
    let programs: Vec<Value> = verdict
        .results
        .iter()
        .map(|result| {
            json!({ "prog": result.program, "gpu": result.gpu, "ok": result.ok, "error": result.error,
                    "figures": result.figures })
        })
        .collect();
    json!({ "name": name, "ok": verdict.ok(), "programs": programs })
}

/// Runs `case`. A case that cannot be run at all has failed.
pub fn run(workshop: &Workshop, case: &Case) -> CaseResult {
    let start = Instant::now();
    let mut run = Run { workshop, case, problems: Vec::new(), guests: Vec::new(), accesses: Vec::new() };
    if let Err(error) = run.everything() {
        run.problems.push(format!("{error:#}"));
    }
    let Run { problems, guests, accesses, .. } = run;
    CaseResult { name: case.name.clone(), problems, wall: start.elapsed(), guests, accesses }
}

/// A case while it runs.
struct Run<'a> {
    workshop: &'a Workshop,
    case: &'a Case,
    problems: Vec<String>,
    guests: Vec<(String, Verdict)>,
    accesses: Vec<Accesses>,
}

impl Run<'_> {
    fn everything(&mut self) -> Result<()> {
        self.workshop.forget_logs(&self.case.name)?;
        let devices_first = self.case.disturbance == Disturbance::DevicesFirst;
        let spec = self.workshop.rig_spec(&self.case.name, self.case.topology, &self.case.guests);
        let chips: Vec<_> = spec.gpus.iter().map(|gpu| (gpu.name.clone(), gpu.chip)).collect();
        let stubborn = self.case.disturbance == Disturbance::Hangs;
        let mut rig = Rig::start(RigSpec { devices_first, stubborn, ..spec })?;
        match self.case.disturbance {
            Disturbance::None | Disturbance::DevicesFirst | Disturbance::Hangs => self.undisturbed(&rig)?,
            Disturbance::Recorded => self.recorded(&rig)?,
            Disturbance::Looked => self.looked(&rig)?,
            Disturbance::OperatorResets => self.operator_resets(&rig)?,
            Disturbance::Sleeps => self.sleeps(&rig)?,
            Disturbance::Plugged => self.plugged(&rig)?,
            Disturbance::QemuKilled => self.qemu_killed(&rig)?,
            Disturbance::BackendKilled => self.backend_killed(&mut rig)?,
            Disturbance::AggregatorRestarted => self.aggregator_restarted(&mut rig)?,
        }
        if self.case.topology == Topology::Mediated {
            let tenants = rig.tenants()?;
            self.check_tenants(&tenants);
            self.accesses = counted(&tenants, &chips);
            for (index, accesses) in self.accesses.iter_mut().enumerate() {
                accesses.own_kib = rig.device(index).and_then(|device| device.process().own_kib());
            }
            self.check_memory();
        }
        self.problems.extend(rig.stop()?);
        Ok(())
    }

    /// A process that serves a GPU is small, however much its guest did.
    fn check_memory(&mut self) {
        let looked = self.case.disturbance == Disturbance::Looked;
        let most = OWN_KIB + if looked { LOOKED_KIB } else { 0 };
        for Accesses { vm, own_kib, .. } in &self.accesses {
            match own_kib {
                Some(kib) if *kib <= most => {}
                Some(kib) => {
                    self.problems
                        .push(format!("the process of {vm} has {kib} KiB of its own, {most} are allowed"));
                }
                None => self.problems.push(format!("nobody knows what memory the process of {vm} has")),
            }
        }
    }

    fn start(&self, rig: &Rig, label: &str, guest: &Guest, first_gpu: usize) -> Result<Machine> {
        self.workshop.start(&self.case.name, label, rig, guest, first_gpu)
    }

    fn undisturbed(&mut self, rig: &Rig) -> Result<()> {
        let mut machines = Vec::new();
        let mut first_gpu = 0;
        for guest in &self.case.guests {
            machines.push(self.start(rig, guest.name, guest, first_gpu)?);
            first_gpu += guest.gpus.len();
        }
        let outcomes = machine::wait_all(&mut machines, &mut |_, _| {})?;
        for (guest, outcome) in self.case.guests.iter().zip(outcomes) {
            self.judge(guest.name, guest, &outcome);
        }
        Ok(())
    }

    fn looked(&mut self, rig: &Rig) -> Result<()> {
        let (outcomes, problems) = looked::run(self.workshop, self.case, rig)?;
        for (guest, outcome) in self.case.guests.iter().zip(outcomes) {
            self.judge(guest.name, guest, &outcome);
        }
        self.problems.extend(problems);
        Ok(())
    }

    fn operator_resets(&mut self, rig: &Rig) -> Result<()> {
        let mut machines = Vec::new();
        for (first_gpu, guest) in self.case.guests.iter().enumerate() {
            machines.push(self.start(rig, guest.name, guest, first_gpu)?);
        }
        let victim = machines.first_mut().context("This case has no guest")?;
        victim.wait_for("its endless work began", |report| begins(report, "hang"))?;
        thread::sleep(AT_WORK);
        let done = rig.call("vm.reset", &json!({ "vm": self.victim()?.name }))?;
        if done["channels"] != 1 {
            self.problems.push(format!("the operator's reset took another number of channels off: {done}"));
        }
        let outcomes = machine::wait_all(&mut machines, &mut |_, _| {})?;
        for (guest, outcome) in self.case.guests.iter().zip(outcomes) {
            self.judge(guest.name, guest, &outcome);
        }
        Ok(())
    }

    fn sleeps(&mut self, rig: &Rig) -> Result<()> {
        let guest = self.victim()?;
        let mut machine = self.workshop.start_with_monitor(&self.case.name, guest.name, rig, &guest, 0)?;
        let mut nights = 0;
        let outcome = loop {
            if let Some(outcome) = machine.pump(&mut |_| {})? {
                break outcome;
            }
            // A QEMU that has just ended does not answer.
            if machine.is_asleep().unwrap_or(false) {
                machine.wake()?;
                nights += 1;
            }
            thread::sleep(NIGHT);
        };
        self.judge(guest.name, &guest, &outcome);
        if nights != cases::NIGHTS {
            self.problems.push(format!("it slept {nights} times, not {}", cases::NIGHTS));
        }
        Ok(())
    }

    fn plugged(&mut self, rig: &Rig) -> Result<()> {
        let guest = self.victim()?;
        let mut machine = self.workshop.start_with_monitor(&self.case.name, guest.name, rig, &guest, 0)?;
        let mut times = 0;
        let outcome = loop {
            if let Some(outcome) = machine.pump(&mut |_| {})? {
                break outcome;
            }
            let asked = machine.reports().iter().filter(|report| begins(report, "plug")).count();
            if times < asked {
                machine.unplug(0)?;
                machine.plug_in(0)?;
                times += 1;
            }
            thread::sleep(machine::LOOK);
        };
        self.judge(guest.name, &guest, &outcome);
        if times != cases::PLUGS {
            self.problems.push(format!("it was plugged in {times} times, not {}", cases::PLUGS));
        }
        Ok(())
    }

    fn recorded(&mut self, rig: &Rig) -> Result<()> {
        let guest = self.victim()?;
        let mut machine = self.start(rig, guest.name, &guest, 0)?;
        machine.wait_for(
            "its first program began",
            |report| matches!(report, Report::Event { name, .. } if name == "start"),
        )?;
        let file = self.workshop.folder(&self.case.name).join("recorded.trace");
        let schedule = file.with_file_name("schedule.trace");
        let chip = guest.gpus.first().copied().context("The guest has no GPU")?;
        let gpuvmk = self.workshop.gpuvmk();
        let recordings = [
            Recording::of_vm(gpuvmk, &rig.recorder(0), &file)?,
            Recording::of_gpu(gpuvmk, &rig.schedule_recorder(chip), &schedule)?,
        ];
        let outcome = machine.wait(&mut |_| {})?;
        self.judge(guest.name, &guest, &outcome);
        for recording in recordings {
            self.problems.extend(recording.finish()?);
        }
        self.problems.extend(recording::together(gpuvmk, &[file, schedule])?);
        Ok(())
    }

    fn qemu_killed(&mut self, rig: &Rig) -> Result<()> {
        let victim = self.victim()?;
        let mut machine = self.workshop.start_with_monitor(&self.case.name, "killed", rig, &victim, 0)?;
        until_at_work(&mut machine)?;
        for refusal in machine.refused_migrations()? {
            if !refusal.contains(machine::NO_MIGRATION) {
                self.problems.push(format!(
                    "a migration is refused without naming {}: {refusal}",
                    machine::NO_MIGRATION
                ));
            }
        }
        machine.kill()?;
        self.works_again(rig)
    }

    fn backend_killed(&mut self, rig: &mut Rig) -> Result<()> {
        let victim = self.victim()?;
        let neighbour = self.case.guests.get(1).cloned().context("This case has two guests")?;
        let mut killed = self.start(rig, "killed", &victim, 0)?;
        let mut other = self.start(rig, neighbour.name, &neighbour, 1)?;
        until_at_work(&mut killed)?;
        rig.device(0).context("The first device is not there")?.process().kill()?;
        self.gone(rig, victim.name)?;
        killed.kill()?;
        let outcome = other.wait(&mut |_| {})?;
        self.judge(neighbour.name, &neighbour, &outcome);
        rig.restart_device(0)?;
        self.works_again(rig)
    }

    fn aggregator_restarted(&mut self, rig: &mut Rig) -> Result<()> {
        let victim = self.victim()?;
        let mut machine = self.start(rig, "cut-off", &victim, 0)?;
        until_at_work(&mut machine)?;
        rig.aggregator().context("There is no aggregator")?.process().kill()?;
        thread::sleep(AT_WORK);
        if !rig.device(0).context("The device is not there")?.runs()? {
            self.problems.push("the device process ended with the aggregator".into());
            rig.restart_device(0)?;
        }
        machine.kill()?;
        rig.start_aggregators()?;
        self.works_again(rig)
    }

    /// Waits until the aggregator no longer lists `tenant` as running.
    fn gone(&mut self, rig: &Rig, tenant: &str) -> Result<()> {
        let start = Instant::now();
        while rig.tenants()?.iter().any(|found| found.name == tenant) {
            if start.elapsed() > NOTICE {
                self.problems.push(format!("the aggregator still lists {tenant} {NOTICE:?} after its end"));
                return Ok(());
            }
            thread::sleep(machine::LOOK);
        }
        Ok(())
    }

    /// A fresh guest on the first GPU must pass.
    fn works_again(&mut self, rig: &Rig) -> Result<()> {
        let guest = cases::afterwards(&self.victim()?);
        let outcome = self.start(rig, "afterwards", &guest, 0)?.wait(&mut |_| {})?;
        self.judge("afterwards", &guest, &outcome);
        Ok(())
    }

    fn victim(&self) -> Result<Guest> {
        self.case.guests.first().cloned().context("This case has no guest")
    }

    fn judge(&mut self, label: &str, guest: &Guest, outcome: &machine::Outcome) {
        let verdict = verdict::judge(outcome, &workshop::expected(guest));
        self.problems.extend(verdict.problems.iter().map(|problem| format!("{label}: {problem}")));
        self.guests.push((label.to_owned(), verdict));
    }

    /// What the software GPU counted: no tenant may ever have touched another's memory.
    fn check_tenants(&mut self, tenants: &[TenantStatus]) {
        for tenant in tenants {
            match tenant.foreign_accesses {
                Some(0) => {}
                Some(count) => self
                    .problems
                    .push(format!("{} made {count} engine accesses outside its own memory", tenant.name)),
                None => self.problems.push(format!("nobody counted the engine accesses of {}", tenant.name)),
            }
        }
        let hangs = match self.case.disturbance {
            Disturbance::Hangs => Some(cases::HANGS_IN_ALL),
            // What an operator takes off is held against nobody.
            Disturbance::OperatorResets => Some(0),
            _ => None,
        };
        if let Some(hangs) = hangs {
            let culprit = self.case.guests.first().map(|guest| guest.name);
            for tenant in tenants {
                let expected = if Some(tenant.name.as_str()) == culprit { hangs } else { 0 };
                if tenant.hangs != expected {
                    let problem = format!(
                        "{} is said to have hung {} times, not {expected}",
                        tenant.name, tenant.hangs
                    );
                    self.problems.push(problem);
                }
            }
        }
        if tenants.is_empty() {
            self.problems.push("the aggregator lists no tenant".into());
        }
    }
}

/// What a device process may have of its own.
const OWN_KIB: u64 = 16 << 10;
/// And beside that while its guest's monitor is looked at: two pictures of 1920x1080.
const LOOKED_KIB: u64 = 16 << 10;

/// What tenants counted, by the chips of these GPUs.
fn counted(tenants: &[TenantStatus], chips: &[(String, Chip)]) -> Vec<Accesses> {
    let of = |(vm, chip): &(String, Chip)| {
        let tenant = tenants.iter().find(|tenant| tenant.name == *vm)?;
        Some(Accesses { vm: vm.clone(), chip: *chip, trapped: tenant.trapped, own_kib: None })
    };
    chips.iter().filter_map(of).collect()
}

/// Whether a guest says that it begins a program.
fn begins(report: &Report, program: &str) -> bool {
    matches!(report, Report::Event { name, fields } if name == "start" && fields.get("prog") == Some(&program.into()))
}

/// Waits until the guest's `load` has run for a moment.
fn until_at_work(machine: &mut Machine) -> Result<()> {
    machine.wait_for("its load began", |report| begins(report, "load"))?;
    thread::sleep(AT_WORK);
    Ok(())
}
