//! Every command of `gpuvmk` with a standard output that takes nothing: it ends with a line and exit status
//! 1, and never with a panic. Whoever gave an order learns that it was carried out. An output that nobody
//! reads is no error.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on panics")]

#[path = "common/daemon.rs"]
mod daemon;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use daemon::{Site, until};
use gpuvmk::gpu::vfio::vbios::Vbios;
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};
use gpuvmk::trace::writer::Writer;
use gpuvmk::trace::{Entry, Event, Header};

/// What a command is to say when its output is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    /// That standard output takes nothing.
    Lost,
    /// That the order was carried out, and that standard output takes nothing.
    CarriedOut,
    /// Nothing of it: it fails for another reason here, since it needs hardware, a terminal or a screen.
    Other,
}
use Says::{CarriedOut, Lost, Other};

/// All that print something. Those that serve, and those that write files only, are in `SILENT`.
const COMMANDS: &[(&[&str], Says)] = &[
    (&["--help"], Lost),
    (&["--version"], Lost),
    (&["trace", "dump", "--help"], Lost),
    (&["apply", ".", "--dry-run", "--json"], Lost),
    (&["apply", ".", "--json", "--only-settings"], CarriedOut),
    (&["assert", ".", "--json"], Lost),
    (&["check", "vm1.toml"], Lost),
    (&["check", "gpu0.toml"], Lost),
    (&["device", "--print-capabilities"], Lost),
    (&["drain", "--gpu", "gpu0.toml"], CarriedOut),
    (&["drain", "--undo", "--gpu", "gpu0.toml", "--json"], CarriedOut),
    (&["generate", "completions", "bash"], Lost),
    (&["gpu", "list"], Lost),
    (&["gpu", "list", "--json"], Lost),
    (&["gpu", "bind", "0000:7f:1f.7", "--dry-run"], Other),
    (&["gpu", "unbind", "0000:7f:1f.7", "--dry-run"], Other),
    (&["gpu", "probe", "0000:7f:1f.7"], Other),
    (&["gpu", "init", "one.trace", "--output", "card.init"], Other),
    (&["gpu", "vbios", "--file", "card.rom"], Lost),
    (&["gpu", "vbios", "--file", "card.rom", "--json"], Lost),
    (&["guest-firmware", "--out", "firmware"], CarriedOut),
    (&["jail"], Lost),
    (&["jail", "--json"], Lost),
    (&["ls", "--gpu", "gpu0.toml"], Lost),
    (&["ls", "--gpu", "gpu0.toml", "--json"], Lost),
    (&["metrics", "--socket", "gpu0.control"], Lost),
    (&["pause", "vm1", "--gpu", "gpu0.toml"], CarriedOut),
    (&["resume", "vm1", "--gpu", "gpu0.toml", "--json"], CarriedOut),
    (&["reset", "vm1", "--gpu", "gpu0.toml"], CarriedOut),
    (&["reset", "vm1", "--gpu", "gpu0.toml", "--json"], CarriedOut),
    (&["registers"], Lost),
    (&["registers", "--format", "markdown"], Lost),
    (&["controls"], Lost),
    (&["sched-sim", "scenarios/busy.toml"], Lost),
    (&["sched-sim", "scenarios/busy.toml", "--json"], Lost),
    (&["screenshot", "vm1.toml", "vm1.png"], Other),
    (&["set", "vm1", "weight=200", "--gpu", "gpu0.toml"], CarriedOut),
    (&["set", "gpu", "policy=credit", "--gpu", "gpu0.toml", "--json"], CarriedOut),
    (&["show", "vm1", "--gpu", "gpu0.toml"], Lost),
    (&["show", "vm1", "--gpu", "gpu0.toml", "--json"], Lost),
    (&["softgpu", "--print-capabilities"], Lost),
    (&["status", "gpu0.toml"], Lost),
    (&["status", "gpu0.toml", "--json"], Lost),
    (&["top", "--gpu", "gpu0.toml"], Other),
    (&["trace", "diff", "one.trace", "one.trace"], Lost),
    (&["trace", "dump", "one.trace"], Lost),
    (&["trace", "follow", "one.trace"], Lost),
    (&["trace", "lookup", "0x0"], Lost),
    (&["trace", "lookup", "0x100", "1"], Lost),
    (&["trace", "record", "vm1.toml", "--output", "some.trace", "--seconds", "1"], CarriedOut),
    (&["trace", "replay", "one.trace"], Lost),
    (&["trace", "stat", "one.trace"], Lost),
    (&["trace", "verify", "one.trace"], Lost),
    (&["types", "--gpu", "gpu0.toml"], Lost),
    (&["types", "--gpu", "gpu0.toml", "--json"], Lost),
    (&["version"], Lost),
    (&["version", "--running", "--gpu", "gpu0.toml", "--json"], Lost),
    (&["view", "vm1.toml", "--how"], Other),
];

/// Those that print nothing there themselves: a demonstration, measurements and shaders are other programs',
/// `vmm`'s standard output is its guest's console.
const SILENT: &[&str] = &[
    "aggregator",
    "demo",
    "generate man",
    "generate no-migration",
    "gpu bench",
    "shader disasm",
    "shader run",
    "trace convert",
    "trace filter",
    "trace report",
    "vmm",
];

const SCENARIO: &str = "duration = 1000000\npolicy = \"credit\"\n[[vm]]\nname = \"busy\"\n[[vm.load]]\nlength = 500\npiece = 100\n";

fn gpuvmk(folder: &Path, arguments: &[&str], output: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
    // A backtrace would be more than a line.
    command.env_remove("RUST_BACKTRACE").spawn().unwrap().wait_with_output().unwrap()
}

/// The commands that the help of `words` names, with those below them.
fn commands_below(words: &[&str]) -> BTreeSet<String> {
    let output = gpuvmk(Path::new("."), &[words, &["--help"]].concat(), Stdio::piped());
    let text = String::from_utf8(output.stdout).unwrap();
    let listed = text.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let listed = listed.split("\n\n").next().unwrap_or_default();
    let names = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let mut all = BTreeSet::new();
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        let words = [words, &[name]].concat();
        let below = commands_below(&words);
        if below.is_empty() {
            all.insert(words.join(" "));
        }
        all.extend(below);
    }
    all
}

fn site() -> Site {
    let site = Site::with("[trace.socket]\npath = \"vm1.trace.sock\"\n");
    let path = site.path();
    let header = Header { chip: Some("GF100".into()), program: "test".into(), ..Header::default() };
    let mut writer = Writer::new(File::create(path.join("one.trace")).unwrap(), &header).unwrap();
    writer.push(&Entry { nanos: 1, event: Event::Reset }).unwrap();
    writer.finish().unwrap();
    let gpu = SoftGpu::new(SoftGpuConfig::default()).unwrap();
    std::fs::write(path.join("card.rom"), Vbios::of_card(gpu.as_ref()).unwrap().bytes()).unwrap();
    // The folder of configuration files is read as a whole.
    std::fs::create_dir(path.join("scenarios")).unwrap();
    std::fs::write(path.join("scenarios/busy.toml"), SCENARIO).unwrap();
    until("the VM is there", || {
        let list = gpuvmk(path, &["ls", "--gpu", "gpu0.toml"], Stdio::piped());
        String::from_utf8_lossy(&list.stdout).contains("vm1")
    });
    site
}

#[test]
fn every_command_says_in_a_line_that_its_output_is_lost() {
    let site = site();
    for (arguments, says) in COMMANDS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = gpuvmk(site.path(), arguments, Stdio::from(full));

        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(!error.contains("panicked"), "{arguments:?}: {error}");
        let lost = "Cannot write to standard output: No space left on device";
        assert_eq!(error.contains(lost), *says != Other, "{arguments:?}: {error}");
        assert_eq!(error.contains("was carried out"), *says == CarriedOut, "{arguments:?}: {error}");
        assert!(*says == Other || error.lines().count() == 1, "{arguments:?}: {error}");
    }
    // The orders hold.
    let vm = gpuvmk(site.path(), &["show", "vm1", "--gpu", "gpu0.toml"], Stdio::piped());
    assert!(String::from_utf8_lossy(&vm.stdout).contains("weight: 200"));
}

#[test]
fn every_command_is_tried() {
    let tried = COMMANDS.iter().map(|(words, _)| words.join(" "));
    let tried: Vec<_> = tried.chain(SILENT.iter().map(|words| (*words).to_owned())).collect();
    let all = commands_below(&[]);

    assert!(all.len() > 30 && all.contains("trace dump"), "{all:?}");
    let missing: Vec<_> = all
        .iter()
        .filter(|name| !tried.iter().any(|tried| format!("{tried} ").starts_with(&format!("{name} "))))
        .collect();
    assert!(missing.is_empty(), "not tried with a full output: {missing:?}");
}

#[test]
fn output_that_nobody_reads_is_no_error() {
    let site = site();
    for (arguments, _) in COMMANDS.iter().filter(|(_, says)| *says != Other) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = gpuvmk(site.path(), arguments, Stdio::from(writer));

        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.is_empty(), "{arguments:?}: {error}");
    }
}

#[test]
fn errors_that_nobody_takes_leave_the_exit_status() {
    for (arguments, code) in
        [(&["check", "nowhere.toml"][..], 1), (&["ls", "--gpu", "nowhere.toml"], 1), (&["nonsense"], 2)]
    {
        let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
        let status = command.args(arguments).stdout(full()).stderr(full()).status().unwrap();

        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}
