//! Child processes that never outlive the run: ended on drop, and by the kernel if this process is killed.
//!
//! The standard library can only kill; a daemon must also be asked to end (SIGTERM), and must go when the
//! process that started it was itself killed; and some are to run at a low priority. Each needs a system call
//! that the standard library does not offer, and they are the only unsafe code of the laboratory.
#![allow(
    unsafe_code,
    reason = "kill(2), setpriority(2), and prctl(2) between fork and exec, have no safe wrapper in std"
)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How long a process may take to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(30);
/// After this it is noted what its threads wait for.
const SOON: Duration = Duration::from_secs(1);
/// A priority below the usual one. (The lowest of all would starve beside other work.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Priority {
    /// That of any process.
    Usual = 0,
    /// A tenth of the usual share of a processor.
    Low = 10,
    /// A thirtieth of it.
    Lower = 15,
}

/// How often a process is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(5);

/// A child process that is ended when this value goes.
///
/// It also dies with the *thread* that started it (that is how the kernel counts parents), so start it from a
/// thread that lives as long as it should.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Starts `command`; `name` is what messages call it.
    pub fn start(command: Command, name: &str) -> Result<Self> {
        Self::spawn(command, name)
    }

    /// The same with a lower priority from its first instruction on.
    pub fn start_lower(mut command: Command, name: &str, priority: Priority) -> Result<Self> {
        let lower = move || {
            // SAFETY: setpriority takes plain numbers, and may be called between fork and exec.
            match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, priority as libc::c_int) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes one async-signal-safe call.
        unsafe { command.pre_exec(lower) };
        Self::spawn(command, name)
    }

    fn spawn(mut command: Command, name: &str) -> Result<Self> {
        // SAFETY: the closure runs in the child between fork and exec, and makes one async-signal-safe call.
        unsafe { command.pre_exec(die_with_parent) };
        let child = command
            .spawn()
            .with_context(|| format!("Cannot start {name} ({})", command.get_program().to_string_lossy()))?;
        Ok(Self { child, name: name.to_owned() })
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("Cannot look at {}", self.name))
    }

    /// Waits until it ends, at most `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(Some(status));
            }
            if start.elapsed() >= limit {
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
    }

    /// Kills it at once, as `kill -9` does.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        if self.ended()?.is_none() {
            self.child.kill().with_context(|| format!("Cannot kill {}", self.name))?;
        }
        self.child.wait().with_context(|| format!("Cannot wait for {}", self.name))
    }

    /// Asks it to end (SIGTERM) and waits; kills it if it does not. Returns its status and how long it took,
    /// without the time for which its threads were ready and had no processor, and that for which the whole
    /// machine stood still.
    pub fn stop(&mut self) -> Result<(ExitStatus, Duration)> {
        let start = Instant::now();
        let mut delays = RunDelays::begin(self.child.id());
        let mut stood_still = Duration::ZERO;
        if self.ended()?.is_none() {
            self.terminate();
            let mut noted = false;
            loop {
                let began = Instant::now();
                let ended = self.wait(LOOK)?.is_some();
                stood_still += stall(began.elapsed());
                if ended {
                    break;
                }
                delays.look();
                if !noted && start.elapsed() >= SOON {
                    noted = true;
                    log::warn!("{} is still there {SOON:?} after SIGTERM: {}", self.name, self.whereabouts());
                }
                if start.elapsed() >= GRACE {
                    log::warn!("{} did not end within {GRACE:?} of SIGTERM: killing it", self.name);
                    break;
                }
            }
        }
        let status = self.kill()?;
        Ok((status, start.elapsed().saturating_sub(delays.total() + stood_still)))
    }

    /// The processor time that it has used, by all its threads, those that have ended too. Nothing once it
    /// was waited for.
    pub fn cpu_time(&self) -> Duration {
        let Ok(pid) = libc::pid_t::try_from(self.child.id()) else { return Duration::ZERO };
        let mut clock: libc::clockid_t = 0;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: it takes a plain number, and writes to the variable that it is given.
        let found = unsafe { libc::clock_getcpuclockid(pid, &mut clock) } == 0;
        // SAFETY: as above.
        let told = found && unsafe { libc::clock_gettime(clock, &mut time) } == 0;
        match (told, u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
            (true, Ok(seconds), Ok(nanos)) => Duration::new(seconds, nanos),
            _ => Duration::ZERO,
        }
    }

    /// Memory of its own, in KiB: not what it shares with others, such as a guest's memory and VRAM, nor
    /// files.
    pub fn own_kib(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        own.trim().strip_suffix("kB")?.trim().parse().ok()
    }

    /// Gives all its threads a priority; threads that they start later have it too. Only root can raise one.
    pub fn set_priority(&self, priority: Priority) -> Result<()> {
        let tasks = format!("/proc/{}/task", self.child.id());
        for entry in
            std::fs::read_dir(&tasks).with_context(|| format!("Cannot look at {}", self.name))?.flatten()
        {
            let Ok(thread) = entry.file_name().to_string_lossy().parse() else { continue };
            // SAFETY: setpriority takes plain numbers. The thread may have ended meanwhile: then nothing
            // happens.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, priority as libc::c_int) };
        }
        Ok(())
    }

    /// What each of its threads does: its state, the system call that it is in, and where in the kernel it
    /// waits if no signal reaches it there (root sees that).
    fn whereabouts(&self) -> String {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let thread = |folder: std::path::PathBuf| {
            let read = |name| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
            let (status, call) = (read("status"), read("syscall"));
            let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or("?").trim();
            let place = if state.starts_with('D') { in_kernel(&read("stack")) } else { String::new() };
            format!("{} {state} in {}{place}", read("comm").trim(), call.trim())
        };
        let threads: Vec<String> =
            tasks.into_iter().flatten().flatten().map(|entry| thread(entry.path())).collect();
        threads.join("; ")
    }

    fn terminate(&self) {
        let Ok(pid) = libc::pid_t::try_from(self.child.id()) else { return };
        // SAFETY: kill takes plain numbers; the child has not been waited for, so its id is still its own.
        unsafe {
            libc::kill(pid, libc::SIGTERM);
        }
    }
}

/// For how long the machine stood still while this thread slept for [`LOOK`], by how long that took: its host
/// stops a virtual machine for seconds at times. What is shorter than a busy machine's delays counts for
/// nothing.
fn stall(slept: Duration) -> Duration {
    if slept > 20 * LOOK { slept - LOOK } else { Duration::ZERO }
}

/// How long a process's threads were ready to run since then and had no processor, by
/// `/proc/PID/task/TID/schedstat` (its second number, in nanoseconds).
#[derive(Debug)]
struct RunDelays {
    pid: u32,
    /// By thread: what it was at the beginning, and what it was last.
    threads: BTreeMap<OsString, (u64, u64)>,
}

impl RunDelays {
    fn begin(pid: u32) -> Self {
        let mut begun = Self { pid, threads: BTreeMap::new() };
        begun.look();
        begun.threads.values_mut().for_each(|(first, last)| *first = *last);
        begun
    }

    /// Reads them again. A thread that has ended keeps what was read last.
    fn look(&mut self) {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else { return };
        for task in tasks.flatten() {
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let Some(delay) = text.split_whitespace().nth(1).and_then(|word| word.parse().ok()) else {
                continue;
            };
            self.threads.entry(task.file_name()).or_default().1 = delay;
        }
    }

    fn total(&self) -> Duration {
        Duration::from_nanos(self.threads.values().map(|(first, last)| last.saturating_sub(*first)).sum())
    }
}

/// The innermost functions of a kernel stack as /proc/PID/stack has it ("[<0>] name+0x1/0x2", innermost
/// first).
fn in_kernel(stack: &str) -> String {
    let names: Vec<&str> =
        stack.lines().filter_map(|line| line.split_whitespace().nth(1)?.split('+').next()).take(8).collect();
    if names.is_empty() { String::new() } else { format!(" at {}", names.join(" < ")) }
}

/// Has the kernel kill this process when the one that started it goes.
fn die_with_parent() -> std::io::Result<()> {
    // SAFETY: prctl takes plain numbers here and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    Ok(())
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            log::warn!("{error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn sleep() -> Process {
        let mut command = Command::new("sleep");
        command.arg("60");
        Process::start(command, "a sleeping process").unwrap()
    }

    #[test]
    fn stopped_process_ends_by_sigterm_at_once() {
        let (status, took) = sleep().stop().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGTERM));
        assert!(took < Duration::from_secs(2), "{took:?}");
    }

    #[test]
    fn processor_time_of_a_busy_process_grows_until_it_is_waited_for() {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        let mut process = Process::start(command, "a busy process").unwrap();
        let start = Instant::now();
        while process.cpu_time() < Duration::from_millis(20) {
            assert!(start.elapsed() < Duration::from_secs(30), "{:?}", process.cpu_time());
            thread::sleep(LOOK);
        }
        process.kill().unwrap();
        assert_eq!(process.cpu_time(), Duration::ZERO);
    }

    #[test]
    fn only_long_oversleeping_is_the_machines_standing_still() {
        assert_eq!([LOOK, 20 * LOOK].map(stall), [Duration::ZERO; 2]);
        assert_eq!(stall(Duration::from_secs(4) + LOOK), Duration::from_secs(4));
    }

    #[test]
    fn waits_for_a_processor_are_counted() {
        let busy = || {
            let mut command = Command::new("taskset");
            command.args(["-c", "0", "sh", "-c", "while :; do :; done"]);
            Process::start(command, "a busy process").unwrap()
        };
        let (one, _other) = (busy(), busy());
        let mut delays = RunDelays::begin(one.id());
        assert_eq!(delays.total(), Duration::ZERO);
        let start = Instant::now();
        while delays.total() < Duration::from_millis(20) {
            assert!(start.elapsed() < Duration::from_secs(30), "{delays:?}");
            thread::sleep(LOOK);
            delays.look();
        }
        assert!(delays.total() <= start.elapsed() + Duration::from_millis(20), "{delays:?}");
    }

    #[test]
    fn whereabouts_name_the_thread_and_its_state() {
        let process = sleep();
        let found = process.whereabouts();
        assert!(found.contains("S (sleeping)") || found.contains("R (running)"), "{found}");
    }

    #[test]
    fn kernel_stacks_are_read_from_the_innermost_function() {
        let stack = "[<0>] io_schedule+0x46/0x70\n[<0>] folio_wait_bit+0x12/0x330\n";
        assert_eq!(in_kernel(stack), " at io_schedule < folio_wait_bit");
        assert_eq!(in_kernel(""), "");
    }

    #[test]
    fn lowered_priority_is_that_of_all_threads() {
        let process = sleep();
        process.set_priority(Priority::Low).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
        // The name may have spaces; niceness is the 17th word behind it.
        assert_eq!(stat.rsplit(") ").next().unwrap().split(' ').nth(16), Some("10"));
    }

    #[test]
    fn killed_process_ends_by_sigkill() {
        assert_eq!(sleep().kill().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn waiting_for_a_running_process_ends_with_the_limit() {
        let mut process = sleep();
        assert_eq!(process.wait(Duration::from_millis(30)).unwrap(), None);
    }

    #[test]
    fn missing_program_is_named() {
        let error = Process::start(Command::new("/no/such/program"), "the daemon").unwrap_err();
        assert!(error.to_string().contains("the daemon") && error.to_string().contains("/no/such/program"));
    }
}
