//! A card that is brought up by what stock nouveau was seen to do to one, kernel by kernel: its engines work
//! for a vGPU, and what was recorded was really done.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::card::{Card, card_service};
use crate::scenarios;
use gpuvmk::aggregator::connect_in_process;
use gpuvmk::aggregator::protocol::{Hello, PROTOCOL_VERSION, TenantLimits};
use gpuvmk::chip::Chip;
use gpuvmk::chip::gf100::regs;
use gpuvmk::chip::registers::Policy;
use gpuvmk::gpu::GpuError;
use gpuvmk::gpu::init_script::{NoScript, Recorder, Report, Script, Section, Step};
use gpuvmk::gpu::register::RegisterDriver;
use gpuvmk::pci::{PciFunction, Region};
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::share::Share;
use gpuvmk::trace::Source;
use gpuvmk::vgpu::{Vgpu, VgpuConfig};

fn golden(kernel: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/gf100-linux-{kernel}.trace.xz"))
}

/// What a kernel's nouveau did when it probed its GPU.
fn recorded(kernel: &str) -> Result<(Script, Report), NoScript> {
    let source = Source::open(File::open(golden(kernel)).unwrap()).unwrap();
    let device = source.header().function.clone().unwrap().device;
    let mut recorder = Recorder::default();
    source.for_each(|entry| recorder.step(&entry.unwrap()));
    recorder.finish(device)
}

fn word(card: &Card, offset: u32) -> u32 {
    let mut word = [0; 4];
    card.read(Region::Bar(0), offset.into(), &mut word).unwrap();
    u32::from_le_bytes(word)
}

/// Registers of the parts that keep what is written, with what was written last.
fn kept(script: &Script) -> BTreeMap<u32, u32> {
    let steps = Section::ALL.into_iter().filter_map(|section| script.section(section)).flatten();
    let writes = steps.filter_map(|step| match step {
        Step::Write { reg, value } => Some((*reg, *value)),
        Step::Wait { .. } => None,
    });
    let keeps = |reg| regs::index().definition(reg).is_none_or(|known| known.policy == Policy::Scratch);
    writes.filter(|(reg, _)| keeps(*reg)).map(|(reg, value)| (reg.0, value)).collect()
}

#[track_caller]
fn works_by(kernel: &str) {
    let (script, report) = recorded(kernel).unwrap();
    assert!(report.unknown.is_empty(), "no rule for {:#x?}", report.unknown);
    for section in [Section::Board, Section::Graphics, Section::Golden] {
        assert!(script.section(section).is_some_and(|steps| steps.len() > 20), "{kernel}: {section}");
    }
    // As an operator does it.
    let script = Script::parse(&script.to_text()).unwrap();
    let card = Card::new(256 << 20);
    let driver = RegisterDriver::on_card(card.clone(), Some(Arc::new(script.clone()))).unwrap();

    let written = kept(&script);
    let other: Vec<_> = written.iter().filter(|(offset, value)| word(&card, **offset) != **value).collect();
    assert!(written.len() > 100 && other.is_empty(), "{kernel}: {other:#x?} of {}", written.len());

    let service = Arc::new(card_service(&card, driver, PolicyKind::Fifo));
    let hello = Hello {
        version: PROTOCOL_VERSION,
        name: "one".to_owned(),
        chip: Chip::GF100.into(),
        vram: 48 << 20,
        channels: 16,
        share: Share::default(),
        limits: TenantLimits::default(),
    };
    let (link, grant) = connect_in_process(&service, hello).unwrap();
    let vgpu = Arc::new(Vgpu::new(link, grant, VgpuConfig::of(Chip::GF100).unwrap()).unwrap());
    scenarios::copies_on_every_engine(vgpu.clone());
    let tenants = service.status().unwrap().tenants;
    assert_eq!(tenants.first().and_then(|tenant| tenant.foreign_accesses), Some(0));
}

/// Its nouveau brings an engine up when somebody uses it, and nobody did.
#[test]
fn probe_that_used_no_engine_is_refused_with_why() {
    let why = recorded("6.1").unwrap_err();
    assert_eq!(why, NoScript::NoGraphics(Section::Graphics));
    assert!(why.to_string().contains("have the guest use it"), "{why}");
}

#[test]
fn card_works_by_what_linux_6_12_did() {
    works_by("6.12");
}

#[test]
fn card_works_by_what_linux_7_2_did() {
    works_by("7.2");
}

#[test]
fn script_of_another_card_is_refused_before_anything_is_written() {
    let (mut script, _) = recorded("6.12").unwrap();
    script.device = 0x1180;
    let card = Card::new(64 << 20);
    let Err(GpuError::Invalid(why)) = RegisterDriver::on_card(card.clone(), Some(Arc::new(script))) else {
        panic!()
    };
    assert!(why.contains("0x1180") && why.contains("0x06c0"), "{why}");
    assert_eq!(word(&card, 0x200), word(&Card::new(64 << 20), 0x200));
}

#[test]
fn register_that_does_not_become_what_it_was_is_an_error() {
    let (mut script, _) = recorded("6.12").unwrap();
    let reg = gpuvmk::chip::registers::Reg(0x10_f204);
    script.sections.get_mut(&Section::Board).unwrap().push(Step::Wait { reg, mask: 1, value: 1 });
    let tried = RegisterDriver::on_card(Card::new(64 << 20), Some(Arc::new(script)));
    assert!(matches!(tried, Err(GpuError::Timeout { .. })), "{tried:?}");
}

#[test]
fn operators_command_writes_the_file_once_and_says_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("card.init");
    let make = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
        command.args(["gpu", "init", "--json", "-o"]).arg(&file).arg(golden("6.12")).output().unwrap()
    };
    let output = make();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["ok"], &said["device"]), (&true.into(), &"10de:06c0".into()), "{said}");
    let script = Script::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(
        (&script, said["steps"].as_u64()),
        (&recorded("6.12").unwrap().0, Some(script.steps() as u64))
    );

    // A file that an aggregator may be using is not written over.
    let output = make();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("card.init"));
}
