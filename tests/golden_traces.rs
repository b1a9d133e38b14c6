//! What a vGPU, and the software GPU itself, answer to the probes of stock nouveau that `cargo xtask golden`
//! recorded, kernel by kernel; and that an answer that is another one is found.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuvmk::chip::{Chip, Face};
use gpuvmk::pci::Region;
use gpuvmk::trace::writer::Writer;
use gpuvmk::trace::{Direction, Entry, Event, Place, Source};
use serde_json::Value;

/// What first has firmware look at the guest's memory, which no trace has. Of a chip with FSP:
/// NV_PFSP_QUEUE_HEAD (Open GPU kernel modules, hopper/gh100 `dev_fsp_pri.h`). Of a chip whose falcons boot
/// GSP, on GSP's falcon: NV_PFALCON_FALCON_DMATRFCMD and, where firmware gets into it by ports,
/// NV_PFALCON_FALCON_CPUCTL (turing/tu102 `dev_falcon_v4.h`).
const FIRMWARE_BEGINS: [u64; 3] = [0x8f_2c00, 0x11_0118, 0x11_0100];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn entries(file: &Path) -> Vec<Entry> {
    Source::open(File::open(file).unwrap()).unwrap().map(Result::unwrap).collect()
}

/// Plays a trace; whether that ended well, and what it says.
fn replay(file: &Path, more: &[&str]) -> (bool, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
    let output = command.args(["trace", "replay", "--json"]).args(more).arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.stdout.is_empty(), "{said}");
    (output.status.success(), serde_json::from_slice(&output.stdout).unwrap())
}

/// How many entries come before `first`.
fn before(file: &Path, first: impl Fn(&Event) -> bool) -> u64 {
    let at = entries(file).iter().position(|entry| first(&entry.event));
    at.unwrap() as u64
}

#[track_caller]
fn is_answered_as_it_was(name: &str, more: &[&str], least_reads: u64) {
    let (ok, outcome) = replay(&golden(name), more);
    assert!(ok, "{outcome:#}");
    assert_eq!(outcome["differing"], 0);
    assert_eq!((&outcome["refused"], &outcome["unknown"]), (&Value::from(0), &Value::from(0)));
    let reads = outcome["reads"].as_u64().unwrap();
    assert!(reads >= least_reads, "only {reads} reads were compared");
}

#[test]
fn probe_of_linux_6_1_is_answered_as_it_was() {
    is_answered_as_it_was("gf100-linux-6.1.trace.xz", &[], 1_900);
    is_answered_as_it_was("gf100-linux-6.1.trace.xz", &["--on", "softgpu"], 1_900);
}

#[test]
fn probe_of_linux_6_12_is_answered_as_it_was() {
    is_answered_as_it_was("gf100-linux-6.12.trace.xz", &[], 4_900);
    is_answered_as_it_was("gf100-linux-6.12.trace.xz", &["--on", "softgpu"], 4_900);
}

/// Its nouveau has the GPU work from a ring in the guest's memory, which no trace has: until then.
#[test]
fn probe_of_linux_7_2_is_answered_as_it_was_until_its_first_work() {
    let name = "gf100-linux-7.2.trace.xz";
    let most = before(&golden(name), |event| matches!(event, Event::Doorbell { .. }));
    let most = most.to_string();
    is_answered_as_it_was(name, &["--entries", &most], 4_900);
    is_answered_as_it_was(name, &["--entries", &most, "--on", "softgpu"], 4_900);
}

/// The traces of a chip, by name.
fn traces_of(chip: Chip) -> Vec<String> {
    let prefix = format!("{}-linux-", chip.name().to_ascii_lowercase());
    let files = std::fs::read_dir(golden("")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

#[test]
fn each_chip_has_a_golden_trace() {
    for chip in Chip::ALL {
        assert!(!traces_of(*chip).is_empty(), "{chip} has none: cargo xtask golden");
    }
}

#[test]
fn probe_of_each_chip_with_a_gsp_is_answered_as_it_was_until_firmware_begins() {
    for chip in Chip::with_face(Face::Gsp) {
        for name in traces_of(chip) {
            let most = before(&golden(&name), |event| {
                matches!(event, Event::Access(access) if access.direction == Direction::Write
                    && access.place == Place::Region(Region::Bar(0)) && FIRMWARE_BEGINS.contains(&access.offset))
            });
            is_answered_as_it_was(&name, &["--entries", &most.to_string()], 600);
        }
    }
}

#[test]
fn chip_with_a_gsp_has_no_registers_but_a_vgpus() {
    // What drives it below is the executor.
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
    let trace = golden("gh100-linux-7.2.trace.xz");
    let output = command.args(["trace", "replay", "--on", "softgpu"]).arg(trace).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("GH100 has no registers of its own"));
}

#[test]
fn first_answer_that_differs_is_named() {
    let file = golden("gf100-linux-6.1.trace.xz");
    let header = Source::open(File::open(&file).unwrap()).unwrap().header().clone();
    let mut entries = entries(&file);
    // A register that always reads the same, and once read something else.
    let mut reads = entries.iter_mut().enumerate().filter_map(|(index, entry)| match &mut entry.event {
        Event::Access(access)
            if access.direction == Direction::Read
                && access.place == Place::Region(Region::Bar(0))
                && access.offset == 0 =>
        {
            Some((index, access))
        }
        _ => None,
    });
    let (index, access) = reads.next().unwrap();
    access.value ^= 0x10;
    let (then, folder) = (access.value, tempfile::tempdir().unwrap());
    let changed = folder.path().join("changed.trace");
    let mut writer = Writer::new(File::create(&changed).unwrap(), &header).unwrap();
    entries.iter().for_each(|entry| writer.push(entry).unwrap());
    writer.finish().unwrap();

    let (ok, outcome) = replay(&changed, &[]);
    assert!(!ok);
    assert_eq!(outcome["differing"], 1);
    let first = &outcome["differences"][0];
    assert_eq!((&first["entry"], &first["name"]), (&Value::from(index + 1), &Value::from("NV_PMC_BOOT_0")));
    assert_eq!((&first["then"], &first["now"]), (&Value::from(then), &Value::from(then ^ 0x10)));
    // Before it there is none, and what the operator leaves out is not compared.
    assert!(replay(&changed, &["--entries", &index.to_string()]).0);
    let (ok, outcome) = replay(&changed, &["--leave-out", "unit=PMC"]);
    assert!(ok && outcome["left_out"].as_u64() > Some(1), "{outcome}");
}

/// A trace of other memory than its device had is another device's.
#[test]
fn replay_has_the_memory_that_the_trace_names() {
    let name = golden("gf100-linux-6.1.trace.xz");
    let (ok, outcome) = replay(&name, &["--vram", "256M"]);
    assert!(!ok);
    assert_eq!(outcome["differences"][0]["name"], "NV_PFBP_FBPA_CSTATUS");
}
