//! Process 1: brings the guest up, runs the programs, ends the machine.

mod cmos;
mod load;
mod root;

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};

use crate::cmdline::Plan;
use crate::report::{self, MARKER, Reports};
use crate::{drm, programs, sys};

pub use load::{load_nouveau, probe_ms};

/// What the kernel offers as files, and where.
const KERNEL_FILE_SYSTEMS: [(&str, &str); 4] =
    [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/run")];

/// How long a killed program may take to go; one that hangs in the kernel never does.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Everything that happens in a test guest. Does not return: without process 1 the kernel panics.
pub fn run() -> ! {
    for (kind, place) in KERNEL_FILE_SYSTEMS {
        if let Err(error) = sys::mount(kind, kind, place) {
            println!("init: cannot mount {kind} on {place}: {error}");
        }
    }
    let plan = Plan::parse(&fs::read_to_string("/proc/cmdline").unwrap_or_default());
    let mut reports = Reports::to(plan.report.as_deref());
    let rooted = load::load_needed().and_then(|()| match &plan.root {
        Some(device) => root::switch(device).map(|()| root::count_boot()),
        None => Ok(cmos::count_boot()),
    });
    let boots = *rooted.as_ref().unwrap_or(&u8::MAX);
    reports.event("boot", json!({ "kernel": kernel_release(), "boot": boots }));

    match rooted.and_then(|_| load::load_at_boot(&plan.nouveau_options, plan.bare)) {
        Ok(Some(probe_ms)) => {
            reports.event("loaded", json!({ "probe_ms": probe_ms, "gpus": drm::render_nodes().len() }));
        }
        Ok(None) => {}
        Err(error) => reports.event("loaded", json!({ "error": format!("{error:#}") })),
    }
    for call in &plan.programs {
        run_program(call, plan.limit_s, &mut reports);
    }

    let again = boots <= plan.reboots;
    reports.event("end", json!({ "reboots": again }));
    if !again && plan.root.is_none() {
        cmos::forget();
    }
    reports.drain();
    let error = sys::end_machine(again);
    println!("init: the machine does not end: {error}");
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Runs one call (`copy`, `load:secs=5`) on each GPU, each in a process of its own.
fn run_program(call: &str, limit_s: u64, reports: &mut Reports) {
    let mut words = call.split(':');
    let program = words.next().unwrap_or_default();
    let options: Vec<&str> = words.collect();
    let gpus = if programs::runs_once(program) { 1 } else { drm::render_nodes().len().max(1) };
    for gpu in 0..gpus {
        reports.event("start", json!({ "prog": program, "gpu": gpu }));
        let start = Instant::now();
        let result = match spawn(program, gpu, &options) {
            Ok(child) => collect(child, program, gpu, Duration::from_secs(limit_s)),
            Err(error) => report::missing(program, gpu, &format!("cannot be started: {error}")),
        };
        let mut result = result;
        if let Value::Object(fields) = &mut result {
            let took = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
            fields.insert("took_ms".into(), took.into());
        }
        reports.send(&result);
    }
}

fn spawn(program: &str, gpu: usize, options: &[&str]) -> std::io::Result<Child> {
    Command::new("/init")
        .arg(program)
        .arg(format!("gpu={gpu}"))
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
}

/// The program's own result line, or one that says why there is none.
fn collect(mut child: Child, program: &str, gpu: usize, limit: Duration) -> Value {
    let ended = match wait(&child, limit) {
        Ok(ended) => ended,
        Err(error) => return report::missing(program, gpu, &format!("cannot be waited for: {error}")),
    };
    if !ended {
        let gone = child.kill().and_then(|()| wait(&child, LAST_WAIT));
        let why = match gone {
            Ok(true) => format!("not done after {} s", limit.as_secs()),
            Ok(false) => {
                format!("hangs in the kernel: not gone {} s after its time was up", LAST_WAIT.as_secs())
            }
            Err(error) => format!("not done after {} s, and cannot be killed: {error}", limit.as_secs()),
        };
        return report::missing(program, gpu, &why);
    }
    let status = match child.wait() {
        Ok(status) => status,
        Err(error) => return report::missing(program, gpu, &format!("cannot be waited for: {error}")),
    };
    let mut output = String::new();
    if let Some(pipe) = &mut child.stdout {
        let _ = pipe.read_to_string(&mut output);
    }
    let line = output.lines().find_map(|line| line.strip_prefix(MARKER));
    match line.and_then(|line| serde_json::from_str(line).ok()) {
        Some(result) => result,
        None => report::missing(program, gpu, &format!("ended without a result: {status}")),
    }
}

/// Sleeps until a child has ended; false when the time is up. AdaptivePoll every now and then instead would
/// cost an emulated processor, and so the host, a noticeable part of its time.
fn wait(child: &Child, limit: Duration) -> std::io::Result<bool> {
    let pid = Pid::from_child(child);
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(std::io::Error::other)?;
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
