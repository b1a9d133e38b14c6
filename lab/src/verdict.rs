//! Judges a guest's run: its programs' results, and every line its kernel said.
//!
//! A kernel line with a word such as "fault", "timeout" or "failed" fails the run unless it is explained:
//! each explained line stands in a table with its reason, and some are explained only where a program
//! provokes them. A line that nobody has explained is a finding, not noise.

use crate::machine::Outcome;
use crate::report::{ProgramResult, Report};

/// Words that make a kernel line suspicious.
const SUSPICIOUS: [&str; 24] = [
    "fault",
    "faults",
    "faulted",
    "timeout",
    "timeouts",
    "timed",
    "fail",
    "fails",
    "failed",
    "failure",
    "error",
    "errors",
    "warning",
    "oops",
    "panic",
    "stall",
    "stalls",
    "stalled",
    "hung",
    "lockup",
    "unable",
    "unhandled",
    "killed",
    "refused",
];
/// Longer signs, case as the kernel has it.
const SIGNS: [&str; 5] = ["BUG:", "nobody cared", "Call Trace", "init: cannot", "init: the machine"];

/// Why a suspicious line is none.
#[derive(Debug, Clone, Copy)]
struct Explanation {
    /// The line has all of these.
    parts: &'static [&'static str],
    /// Only where one of these programs was to run, with these very options if there are any; everywhere if
    /// none is named.
    provoked_by: &'static [&'static str],
    /// The reason.
    #[allow(dead_code, reason = "read by whoever edits the table")]
    reason: &'static str,
}

const ALWAYS: &[&str] = &[];
const EMULATED_CLOCK: &str = "an emulated processor's clocks are uneven while the host is busy";
const BAD_ADDRESS: &[&str] = &["badaddr", "badcopy", "badexec"];
const HANG: &[&str] = &["hang"];
const BAD_LAUNCH: &[&str] = &["badlaunch"];
/// NVIDIA's own driver.
const NVIDIA: &[&str] = &["smi", "cuda"];
const CUDA_FAULT: &[&str] = &["cuda:checks=fault"];

const EXPLAINED: &[Explanation] = &[
    Explanation {
        parts: &["failed to create ce channel, -22"],
        provoked_by: ALWAYS,
        reason: "6.12 and 7.2 ask for a privileged channel, which nouveau has none of on GF100; it uses M2MF instead",
    },
    Explanation {
        parts: &["WARNING: NVK is not a conformant Vulkan implementation"],
        provoked_by: &["nvk"],
        reason: "Mesa says so of chips that nobody has had certified",
    },
    Explanation {
        parts: &["nvidia: module verification failed: signature and/or required key missing"],
        provoked_by: NVIDIA,
        reason: "the module is built here, and signed by nobody",
    },
    Explanation {
        parts: &["NVRM: Xid ", ": 31, ", "MMU Fault: ENGINE GRAPHICS faulted @ "],
        provoked_by: CUDA_FAULT,
        reason: "the kernel that stores where nothing is",
    },
    Explanation {
        parts: &["shpchp ", "_register failed with error -16"],
        provoked_by: &["takeover"],
        reason: "ACPI has the slots of QEMU's bridge already",
    },
    Explanation {
        parts: &["shpchp ", "Slot initialization failed"],
        provoked_by: &["takeover"],
        reason: "the same",
    },
    Explanation { parts: &["ommand line: console="], provoked_by: ALWAYS, reason: "our own words" },
    Explanation {
        parts: &["ACPI Warning", "_DSM: Argument #4 type mismatch"],
        provoked_by: ALWAYS,
        reason: "6.1's nouveau asks QEMU's slot for a laptop's switchable graphics, in an outdated form",
    },
    Explanation {
        parts: &["kvm: ", "Unhandled WRMSR(0xc0010007)"],
        provoked_by: ALWAYS,
        reason: "a guest's guest looks for performance counters of AMD's that KVM has not",
    },
    Explanation {
        parts: &["Correctable Errors collector initialized"],
        provoked_by: ALWAYS,
        reason: "the name of a kernel facility",
    },
    Explanation {
        parts: &["[drm] Registered ", " planes with drm panic"],
        provoked_by: ALWAYS,
        reason: "the name of a kernel facility",
    },
    Explanation { parts: &["tsc: Fast TSC calibration failed"], provoked_by: ALWAYS, reason: EMULATED_CLOCK },
    Explanation {
        parts: &["tsc: Unable to calibrate against PIT"],
        provoked_by: ALWAYS,
        reason: EMULATED_CLOCK,
    },
    Explanation {
        parts: &["calibrate_delay_direct() failed to get a good estimate"],
        provoked_by: ALWAYS,
        reason: EMULATED_CLOCK,
    },
    Explanation { parts: &["....... failed."], provoked_by: ALWAYS, reason: EMULATED_CLOCK },
    Explanation {
        parts: &["clocksource: Watchdog", "read timed out"],
        provoked_by: ALWAYS,
        reason: EMULATED_CLOCK,
    },
    Explanation {
        parts: &["nouveau", "fault", "_NOT_PRESENT"],
        provoked_by: BAD_ADDRESS,
        reason: "the address that the program made up",
    },
    Explanation {
        parts: &["nouveau", "gsp: rc engn:", "type:31", "fault_addr:"],
        provoked_by: BAD_ADDRESS,
        reason: "the same on a chip whose firmware reports it",
    },
    Explanation {
        parts: &["nouveau", "gsp: rc engn:"],
        provoked_by: BAD_LAUNCH,
        reason: "a kernel that the program made to fail",
    },
    Explanation {
        parts: &["nouveau", "killed"],
        provoked_by: BAD_LAUNCH,
        reason: "the channel of that launch",
    },
    Explanation {
        parts: &["nouveau", "SCHED_ERROR 0a [CTXSW_TIMEOUT]"],
        provoked_by: HANG,
        reason: "the channel that the program hung was taken off its engine",
    },
    Explanation {
        parts: &["nouveau", "gsp: rc engn:"],
        provoked_by: HANG,
        reason: "the same on a chip whose firmware reports it",
    },
    Explanation { parts: &["nouveau", "killed"], provoked_by: HANG, reason: "that channel's end" },
    Explanation {
        parts: &["nouveau", "error fencing pushbuf: -19"],
        provoked_by: HANG,
        reason: "work that was on its way into that channel at its end",
    },
    Explanation {
        parts: &["nouveau", "error fencing pushbuf: -19"],
        provoked_by: BAD_ADDRESS,
        reason: "the channel was dead before the kernel put its own fence behind the bad commands",
    },
    Explanation {
        parts: &["WARNING: ", "gf100_fifo_recover"],
        provoked_by: BAD_ADDRESS,
        reason: "6.1's nouveau looks for the faulting engine's number and has none for the host unit",
    },
    Explanation {
        parts: &["nouveau", "engine fault on channel", "recovering"],
        provoked_by: BAD_ADDRESS,
        reason: "6.1's words for the fault of the address that the program made up",
    },
    Explanation {
        parts: &["nouveau", "killed"],
        provoked_by: BAD_ADDRESS,
        reason: "the channel that used the address that the program made up",
    },
    Explanation {
        parts: &["nouveau", "error", "channel"],
        provoked_by: BAD_ADDRESS,
        reason: "the channel that used the address that the program made up",
    },
];

/// What a guest was to do.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// The programs that were to pass, as they were called (`copy`, `load:secs=5`).
    pub programs: Vec<String>,
    /// How many GPUs the guest was to find.
    pub gpus: usize,
    /// How often it was to boot.
    pub boots: usize,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// Everything that was wrong; empty if the run passed.
    pub problems: Vec<String>,
    /// Every program's result, in the order of the reports.
    pub results: Vec<ProgramResult>,
}

impl Verdict {
    /// Whether the run passed.
    pub fn ok(&self) -> bool {
        self.problems.is_empty()
    }

    /// The first result of `program` on GPU `gpu`.
    pub fn result(&self, program: &str, gpu: u64) -> Option<&ProgramResult> {
        self.results.iter().find(|result| result.program == program && result.gpu == gpu)
    }
}

/// Judges a run.
pub fn judge(outcome: &Outcome, expected: &Expected) -> Verdict {
    let mut verdict = Verdict::default();
    verdict.problems.extend(outcome.problem.clone());

    let boots = outcome.reports.iter().filter(|report| is_event(report, "boot")).count();
    if boots != expected.boots {
        verdict.problems.push(format!("booted {boots} times instead of {}", expected.boots));
    }
    for report in &outcome.reports {
        match report {
            Report::Result(result) => verdict.results.push(result.clone()),
            Report::Event { name, fields } if name == "loaded" => {
                if let Some(error) = fields.get("error").and_then(|error| error.as_str()) {
                    verdict.problems.push(format!("nouveau was not loaded: {error}"));
                }
                let gpus = fields.get("gpus").and_then(serde_json::Value::as_u64).unwrap_or(0);
                if usize::try_from(gpus) != Ok(expected.gpus) {
                    verdict
                        .problems
                        .push(format!("nouveau brought up {gpus} GPUs instead of {}", expected.gpus));
                }
            }
            Report::Event { .. } => {}
        }
    }
    for call in &expected.programs {
        let program = program_of(call);
        let found = verdict.results.iter().filter(|result| result.program == program).count();
        let least = if runs_once(program) { expected.boots } else { expected.boots * expected.gpus.max(1) };
        if found < least {
            verdict.problems.push(format!("{program} has {found} results instead of {least}"));
        }
    }
    for result in verdict.results.iter().filter(|result| !result.ok) {
        let why = result.error.as_deref().unwrap_or("no reason given");
        verdict.problems.push(format!("{} on GPU {} failed: {why}", result.program, result.gpu));
    }
    let unexplained = unexplained(&outcome.console, &expected.programs);
    verdict.problems.extend(unexplained.into_iter().map(|line| format!("unexplained: {line}")));
    verdict
}

/// Programs that run once in a guest, however many GPUs it has.
fn runs_once(program: &str) -> bool {
    matches!(program, "reload" | "sleep")
}

/// The program of a call, such as `load` of `load:secs=5`.
pub fn program_of(call: &str) -> &str {
    call.split(':').next().unwrap_or(call)
}

fn is_event(report: &Report, wanted: &str) -> bool {
    matches!(report, Report::Event { name, .. } if name == wanted)
}

/// The suspicious lines among `console` that nothing explains.
///
/// A kernel warning is a block of lines; if the line that names its place is explained, the block is.
pub fn unexplained(console: &[String], programs: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut explained_block = false;
    for line in console {
        if line.contains("WARNING: ") {
            explained_block = explained(line, programs);
        }
        if suspicious(line) && !explained_block && !explained(line, programs) {
            found.push(line.clone());
        }
        if line.contains("---[ end trace") {
            explained_block = false;
        }
    }
    found
}

fn suspicious(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| SUSPICIOUS.contains(&word)) || SIGNS.iter().any(|sign| line.contains(sign))
}

fn explained(line: &str, programs: &[String]) -> bool {
    EXPLAINED.iter().any(|explanation| {
        let provokes = |call: &String| {
            explanation.provoked_by.iter().any(|one| *one == call.as_str() || *one == program_of(call))
        };
        let provoked = explanation.provoked_by.is_empty() || programs.iter().any(provokes);
        provoked && explanation.parts.iter().all(|part| line.contains(part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const FAULT: &str = "[    5.1] nouveau 0000:01:00.0: fifo: fault 00 [READ] at 0000003f00000000 engine 07 [PFIFO] \
                         client 06 [HUB/PFIFO] reason 00 [PT_NOT_PRESENT] on channel 1";

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    fn outcome(console: &[&str], reports: &[&str]) -> Outcome {
        let report = |line: &&str| Report::parse(&format!("GPUVMK-JSON {line}")).unwrap();
        Outcome {
            problem: None,
            console: lines(console),
            reports: reports.iter().map(report).collect(),
            wall: Duration::ZERO,
        }
    }

    fn expected(programs: &[&str]) -> Expected {
        Expected { programs: lines(programs), gpus: 1, boots: 1 }
    }

    const BOOT: &str = r#"{"event":"boot"}"#;
    const LOADED: &str = r#"{"event":"loaded","gpus":1}"#;

    #[test]
    fn quiet_run_with_passing_programs_passes() {
        let console =
            ["[ 0.1] Yama: disabled by default", "[ 3.0] nouveau: [drm] MM: using M2MF for buffer copies"];
        let run = outcome(&console, &[BOOT, LOADED, r#"{"prog":"copy","ok":true}"#]);
        let verdict = judge(&run, &expected(&["copy"]));
        assert!(verdict.ok(), "{:?}", verdict.problems);
        assert!(verdict.result("copy", 0).is_some());
    }

    #[test]
    fn suspicious_line_fails_the_run_unless_it_is_explained() {
        let known = "[ 3.0] nouveau 0000:01:00.0: drm: failed to create ce channel, -22";
        let unknown = "[ 3.0] nouveau 0000:01:00.0: gr: init failed, -110";
        assert_eq!(unexplained(&lines(&[known, unknown]), &[]), [unknown]);
    }

    #[test]
    fn fault_is_explained_only_where_a_program_provokes_it() {
        assert_eq!(unexplained(&lines(&[FAULT]), &lines(&["badaddr"])), Vec::<String>::new());
        assert_eq!(unexplained(&lines(&[FAULT]), &lines(&["copy", "load:secs=5"])), [FAULT]);
    }

    #[test]
    fn killed_channel_is_explained_by_a_launch_that_must_fail_only() {
        let line =
            "[ 9.1] nouveau 0000:01:00.0: fifo:000000:0003:0003:[init[88]] errored - disabling channel";
        let killed = "[ 9.1] nouveau 0000:01:00.0: init[88]: channel 3 killed!";
        assert_eq!(unexplained(&lines(&[line, killed]), &lines(&["badlaunch"])), Vec::<String>::new());
        assert_eq!(unexplained(&lines(&[killed]), &lines(&["compute"])), [killed]);
    }

    #[test]
    fn xid_is_explained_by_the_check_that_faults_only() {
        let line = "[ 63.4] NVRM: Xid (PCI:0000:01:00): 31, pid=169, name=gpuvmk-cuda, Ch 00000007, MMU Fault: ENGINE \
                    GRAPHICS faulted @ 0x10_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE";
        assert_eq!(
            unexplained(&lines(&[line]), &lines(&["cuda", "cuda:checks=fault"])),
            Vec::<String>::new()
        );
        assert_eq!(unexplained(&lines(&[line]), &lines(&["cuda", "cuda:checks=copy"])), [line]);
    }

    #[test]
    fn warning_is_explained_or_reported_as_a_block() {
        let block = |place: &str| {
            lines(&[
                "[ 9.3] ------------[ cut here ]------------",
                &format!("[ 9.3] WARNING: CPU: 0 PID: 99 at {place}"),
                "[ 9.3] Call Trace:",
                "[ 9.3]  gf100_fifo_intr_fault+0xee/0x120 [nouveau]",
                "[ 9.3] ---[ end trace 0000000000000000 ]---",
                "[ 9.4] nouveau: something failed",
            ])
        };
        let known =
            block("drivers/gpu/drm/nouveau/nvkm/engine/fifo/gf100.c:141 gf100_fifo_recover+0x14a/0x160");
        assert_eq!(
            unexplained(&known, &lines(&["badaddr"])),
            known[5..],
            "what follows the block counts again"
        );
        assert_eq!(unexplained(&known, &[]).len(), 4);
        assert_eq!(unexplained(&block("mm/slub.c:1"), &lines(&["badaddr"])).len(), 4);
    }

    #[test]
    fn words_are_matched_whole() {
        assert!(!suspicious("[ 0.5] pid_max: default: 32768 minimum: 301"));
        assert!(!suspicious("rcu: srcu_init: Setting srcu_struct sizes based on contention."));
        assert!(!suspicious("use \"pci=nocrs\" and report a bug"));
        assert!(suspicious("BUG: kernel NULL pointer dereference, address: 00000000000000a0"));
        assert!(suspicious("[   30.1] rcu: INFO: rcu_preempt self-detected stall on CPU"));
        assert!(suspicious("nouveau 0000:01:00.0: timer: stalled at ffffffff"));
        assert!(suspicious("irq 16: nobody cared (try booting with the \"irqpoll\" option)"));
    }

    #[test]
    fn missing_failed_and_repeated_programs_are_problems() {
        let reports = [BOOT, LOADED, r#"{"prog":"copy","ok":false,"error":"byte 0x9 differs"}"#];
        let problems = judge(&outcome(&[], &reports), &expected(&["copy", "fence"])).problems;
        assert_eq!(problems, ["fence has 0 results instead of 1", "copy on GPU 0 failed: byte 0x9 differs"]);
    }

    #[test]
    fn each_gpu_must_report_but_for_programs_of_the_whole_guest() {
        let loaded = r#"{"event":"loaded","gpus":2}"#;
        let reports =
            [BOOT, loaded, r#"{"prog":"copy","gpu":0,"ok":true}"#, r#"{"prog":"reload","ok":true}"#];
        let expected = Expected { gpus: 2, ..expected(&["copy", "reload"]) };
        assert_eq!(judge(&outcome(&[], &reports), &expected).problems, ["copy has 1 results instead of 2"]);
    }

    #[test]
    fn guest_without_its_gpu_and_guest_that_did_not_reboot_fail() {
        let none = outcome(&[], &[BOOT, r#"{"event":"loaded","gpus":0}"#]);
        assert_eq!(judge(&none, &expected(&[])).problems, ["nouveau brought up 0 GPUs instead of 1"]);
        let once = outcome(&[], &[BOOT, LOADED]);
        let problems = judge(&once, &Expected { boots: 2, ..expected(&[]) }).problems;
        assert_eq!(problems, ["booted 1 times instead of 2"]);
    }
}
