//! Mistakes are named with line, key, what is allowed, and the nearest key.

#[path = "gpu_tests.rs"]
mod gpu_files;

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::aggregator::{DEFAULT_CHANNELS, EntryLimits, ScrubPolicy};
use crate::chip::Chip;
use crate::frontend::vfio_user::USUAL_POLL;
use crate::host::size::{parse_size, show_size};
use crate::jail::Mode;
use crate::pci::PciAddress;
use crate::pci::Region;
use crate::scheduler::HangLimits;
use crate::scheduler::share::Share;
use crate::softgpu::{Preemption, Workers};
use crate::vgpu::Bar3;

const VM: &str = r#"
name = "vm1"
gpu = "/run/gpuvmk/gpu0.sock"
vram = "256M"

[socket]
path = "vm1.sock"
"#;

fn vm(text: &str) -> Result<VmConfig, ConfigError> {
    parse(Path::new("/etc/gpuvmk/vm1.toml"), text, VmConfig::read)
}

fn gpu(text: &str) -> Result<GpuConfig, ConfigError> {
    parse(Path::new("/etc/gpuvmk/gpu0.toml"), text, GpuConfig::read)
}

fn mistakes<T: std::fmt::Debug>(result: Result<T, ConfigError>) -> Vec<Mistake> {
    match result.expect_err("the text has mistakes") {
        ConfigError::Mistakes { mistakes, .. } => mistakes,
        other => panic!("{other}"),
    }
}

#[test]
fn minimal_vm_gets_the_documented_defaults() {
    let config = vm(VM).expect("valid");
    assert_eq!(config.channels, 32);
    assert_eq!(config.share, Share::default());
    assert_eq!(config.chip, Chip::GF100);
    assert_eq!(config.vram, 256 << 20);
    let socket = config.socket.expect("given");
    assert_eq!(socket.path, Path::new("/etc/gpuvmk/vm1.sock"));
    assert_eq!(socket.mode, 0o660);
}

#[test]
fn display_is_off_or_a_mode_of_a_chip_that_has_one() {
    let with = |chip: &str, display: &str| {
        vm(&VM.replace("vram =", &format!("chip = \"{chip}\"\ndisplay = {display}\nvram =")))
    };
    assert_eq!(vm(VM).expect("valid").display, None);
    assert_eq!(with("GH100", "\"off\"").expect("valid").display, None);
    let mode = with("AD104", "\"1280x800\"").expect("valid").display.expect("there is a head");
    assert_eq!(mode.size().to_string(), "1280x800");
    for (chip, display, why) in [
        ("GH100", "\"1280x800\"", "a GH100 has no display here; chips that have one: AD104"),
        ("GF100", "\"1280x800\"", "a GF100 has no display here"),
        ("AD102", "\"1280x800\"", "a AD102 has no display here"),
        ("AD104", "\"1280\"", "is no size"),
        ("AD104", "\"8000x8000\"", "side of more than"),
        ("AD104", "\"4000x3000\"", "needs a pixel clock"),
        ("AD104", "true", "not a string"),
    ] {
        let found = mistakes(with(chip, display));
        let told = found.iter().any(|mistake| mistake.key == "display" && mistake.to_string().contains(why));
        assert!(told, "{chip} {display}: {found:?}");
    }
}

#[test]
fn people_who_look_need_something_to_look_at() {
    let viewers = "\n[viewers]\npath = \"viewers.sock\"\n";
    let file = format!("{VM}{viewers}");
    let found = mistakes(vm(&file));
    let line = file.lines().position(|line| line == "[viewers]").unwrap() + 1;
    assert_eq!((found.len(), found[0].key.as_str(), found[0].line), (1, "viewers", line), "{found:?}");
    assert!(found[0].to_string().contains("no `display`"), "{found:?}");
    let with = file.replace("vram =", "chip = \"AD104\"\ndisplay = \"640x480\"\nvram =");
    assert!(vm(&with).expect("valid").viewers.is_some());
}

#[test]
fn misspelt_key_is_refused_with_line_and_nearest_key() {
    let found = mistakes(vm(&VM.replace("vram =", "vrma =")));
    assert_eq!(found.len(), 2);
    let unknown = found.iter().find(|m| m.key == "vrma").expect("named");
    assert_eq!(unknown.line, 4);
    assert!(unknown.problem.contains("did you mean `vram`?"), "{unknown}");
    let missing = found.iter().find(|m| m.key == "vram").expect("named");
    assert!(missing.problem.contains("missing"), "{missing}");
}

#[test]
fn parts_of_the_gpu_are_read_and_wrong_ones_named() {
    let config = vm(&format!("weight = 250\ncap = 30\nfixed = 25\nperiod = 10000\nbudget = 2500\n{VM}"))
        .expect("valid");
    let micros = Duration::from_micros;
    let share =
        Share { weight: 250, cap: Some(30), fixed: Some(25), period: micros(10_000), budget: micros(2500) };
    assert_eq!(config.share, share);

    let found = mistakes(vm(&format!("cap = 0\nfixed = 101\nperiod = 10\nbudget = -1\n{VM}")));
    let keys: Vec<&str> = found.iter().map(|m| m.key.as_str()).collect();
    assert_eq!(keys, ["cap", "fixed", "period", "budget"]);
    let found = mistakes(vm(&format!("period = 2000\nbudget = 2001\n{VM}")));
    assert!(found[0].allowed.contains("which is 2000"), "{}", found[0]);
}

#[test]
fn ways_to_the_guest_are_read_and_wrong_ones_named() {
    let usual = vm(VM).expect("valid");
    assert_eq!((usual.bar3, usual.poll), (Bar3::Trapped, USUAL_POLL));
    let usual = vm(&format!("chip = \"GH100\"\n{VM}")).expect("valid");
    assert_eq!(usual.bar3, Bar3::WherePossible);
    let config = vm(&format!("bar3 = \"direct\"\npoll = 0\n{VM}")).expect("valid");
    assert_eq!((config.bar3, config.poll), (Bar3::Direct, Duration::ZERO));
    let found = mistakes(vm(&format!("bar3 = \"mapped\"\npoll = 10001\n{VM}")));
    let told: Vec<_> = found.iter().map(|m| (m.key.as_str(), m.line, m.allowed.as_str())).collect();
    let poll = "a whole number of microseconds from 0 to 10000";
    assert_eq!(told, [("bar3", 1, "\"trapped\" or \"direct\""), ("poll", 2, poll)]);
}

#[test]
fn uuid_is_made_of_the_name_unless_the_file_says() {
    let [one, same, other] = ["vm1", "vm1", "vm2"].map(|name| {
        let text = VM.replacen("name = \"vm1\"", &format!("name = \"{name}\""), 1);
        vm(&text).expect("valid").uuid
    });
    assert!(one == same && one != other && !one.is_nil());
    let given = "01234567-89ab-4cde-8f01-23456789abcd";
    assert_eq!(vm(&format!("uuid = \"{given}\"\n{VM}")).expect("valid").uuid.to_string(), given);
    for wrong in ["\"vm1\"", "\"00000000-0000-0000-0000-000000000000\"", "5"] {
        let found = mistakes(vm(&format!("uuid = {wrong}\n{VM}")));
        assert!(found[0].key == "uuid" && found[0].allowed.contains("a UUID such as"), "{}", found[0]);
    }
}

#[test]
fn every_mistake_is_reported_at_once_in_order() {
    let text = "name = \"../x\"\ngpu = 5\nvram = \"100M\"\nchannels = 1000\nweight = 0\n[socket]\npath = \"a\"\nmode = \"9\"\n";
    let found = mistakes(vm(text));
    let keys: Vec<&str> = found.iter().map(|m| m.key.as_str()).collect();
    assert_eq!(keys, ["name", "gpu", "vram", "channels", "weight", "socket.mode"]);
    let lines: Vec<usize> = found.iter().map(|m| m.line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 5, 8]);
    assert!(found.iter().all(|m| !m.allowed.is_empty()));
}

#[test]
fn key_in_a_section_is_named_with_its_section() {
    let found = mistakes(vm(&format!("{VM}\ngroop = \"kvm\"\n")));
    assert_eq!(found[0].key, "socket.groop");
    assert!(found[0].problem.contains("`socket.group`"), "{}", found[0]);
}

#[test]
fn syntax_error_names_its_line() {
    let found = mistakes(vm("name = \"a\"\nvram = = 3\n"));
    assert_eq!(found[0].line, 2);
}

#[test]
fn limits_have_defaults_and_each_is_checked_against_its_range() {
    assert_eq!(vm(VM).expect("valid").limits, VmLimits::default());
    let text = format!(
        "{VM}\n[limits]\npage_tables = \"4M\"\nflushes = 1000\nthread_time = 50\nguest_tables = 64\n\
         objects = 64\nclient_objects = 16\n\
         memory_ranges = 65535\n"
    );
    let limits = vm(&text).expect("valid").limits;
    assert_eq!((limits.page_tables, limits.flushes), (Some(4 << 20), 1000));
    assert_eq!((limits.thread_time, limits.guest_tables), (50, Some(64)));
    assert_eq!((limits.objects, limits.client_objects, limits.memory_ranges), (64, 16, 65_535));
    assert_eq!(limits.interrupts, VmLimits::default().interrupts);

    let bad = "page_tables = \"1K\"\nmappings = 1\nguest_tables = 0\nbad_pages = -1\nflushes = 99\nrequests = 0\n\
               doorbells = 200001\ninterrupts = 5\nlog_lines = 0\nthread_time = 101\nobjects = 63\n\
               client_objects = 262145\nmemory_ranges = 65536\n";
    let found = mistakes(vm(&format!("{VM}\n[limits]\n{bad}")));
    assert_eq!(found.len(), 13, "{found:?}");
    assert!(found.iter().all(|m| m.key.starts_with("limits.") && m.allowed.contains("from")), "{found:?}");
    assert_eq!(
        found[9].to_string(),
        "line 19: `limits.thread_time`: 101 is out of range (allowed: a whole number from 1 to 100)"
    );
    assert_eq!(
        found[11].to_string(),
        "line 21: `limits.client_objects`: 262145 is out of range (allowed: a whole number from 16 to 262144)"
    );
    assert_eq!(mistakes(vm(&format!("{VM}\n[limits]\nflush = 1\n")))[0].key, "limits.flush");
}

#[test]
fn gpu_without_socket_is_refused() {
    let found = mistakes(gpu("name = \"gpu0\"\nbackend = \"soft\"\n"));
    assert_eq!(found[0].key, "socket");
}

#[test]
fn gpu_with_unknown_backend_lists_what_is_allowed() {
    let found = mistakes(gpu("name = \"gpu0\"\nbackend = \"sriov\"\n[socket]\npath = \"g\"\n"));
    assert_eq!(found[0].key, "backend");
    assert_eq!(found[0].allowed, "\"soft\", \"rm\" or \"vfio\"");
}
const SOFT: &str = "name = \"gpu0\"\nbackend = \"soft\"\n[socket]\npath = \"g\"\n";

/// The one mistake of a file that is `base` with `line` as its first line.
fn only_mistake(base: &str, line: &str) -> String {
    let found = mistakes(gpu(&format!("{line}\n{base}")));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].line, 1);
    found[0].to_string()
}

#[test]
fn modern_vm_may_have_what_its_chip_allows() {
    let text = VM.replace("vram = \"256M\"", "chip = \"gh100\"\nvram = \"64G\"\nchannels = 512");
    let config = vm(&text).expect("valid");
    assert_eq!((config.chip, config.vram, config.channels), (Chip::GH100, 64 << 30, 512));

    let found = mistakes(vm(&text.replace("gh100", "GF100")));
    let said: Vec<String> = found.iter().map(ToString::to_string).collect();
    let expected = [
        "line 5: `vram`: \"64G\" is out of range (allowed: a multiple of \"16M\" from \"32M\" to \"6G\" for a GF100)",
        "line 6: `channels`: 512 is out of range (allowed: a whole number from 1 to 128)",
    ];
    assert_eq!(said, expected);

    let found = mistakes(vm(&text.replace("64G", "32M").replace("512", "513")));
    assert!(found[0].allowed.contains("from \"64M\" to \"64G\" for a GH100"), "{}", found[0]);
    assert!(found[1].allowed.contains("1 to 512"), "{}", found[1]);
}

#[test]
fn partitions_are_zeroed_when_the_file_says() {
    let scrub = |line: &str| gpu(&format!("{line}\n{SOFT}")).expect("valid").scrub;
    assert_eq!(scrub(""), ScrubPolicy::Release);
    assert_eq!(
        (scrub("scrub = \"attach\""), scrub("scrub = \"both\"")),
        (ScrubPolicy::Attach, ScrubPolicy::Both)
    );
    let text = only_mistake(SOFT, "scrub = \"never\"");
    assert!(text.contains("\"release\", \"attach\" or \"both\""), "{text}");
}

#[test]
fn unknown_chip_is_one_mistake_with_the_known_ones() {
    let found = mistakes(vm(&VM.replace("vram =", "chip = \"GK104\"\nvram =")));
    assert_eq!(found.len(), 1, "{found:?}");
    let allowed = &found[0].allowed;
    assert!(allowed.starts_with("\"GF100\", \"TU102\", ") && allowed.ends_with(" or \"GB207\""), "{allowed}");
}

#[test]
fn vm_with_a_whole_card_has_none_of_the_keys_of_a_part() {
    let of = |text: &str| VmFile::of_text(Path::new("/etc/gpuvmk/vm1.toml"), text);
    let file = of("name = \"vm1\"\ncard = \"65:00.1\"\n[trace]\npath = \"all.trace\"\n").expect("valid");
    let VmFile::Whole(config) = &file else { panic!("{file:?}") };
    assert_eq!(config.card, "0000:65:00.1".parse().expect("an address"));
    assert_eq!(file.trace().expect("given").path, Path::new("/etc/gpuvmk/all.trace"));
    assert_eq!((file.name(), file.socket(), file.jail()), ("vm1", None, Mode::Enforce));

    let found = mistakes(of(&format!("card = \"65:00\"\nweight = 3{VM}")));
    let keys: Vec<_> = found.iter().map(|mistake| mistake.key.as_str()).collect();
    assert_eq!(keys, ["card", "weight", "gpu", "vram"], "{found:?}");
    assert!(found[0].problem.contains("\"65:00\" is not a PCI address"), "{}", found[0]);
    assert!(found[1].problem.contains("a part of a GPU"), "{}", found[1]);
}

#[test]
fn sizes_parse_with_binary_units() {
    assert_eq!(parse_size("64M"), Some(64 << 20));
    assert_eq!(parse_size("1 GiB"), Some(1 << 30));
    assert_eq!(parse_size("4096"), Some(4096));
    assert_eq!(parse_size("99999999999G"), None);
    assert_eq!(parse_size("12Q"), None);
    assert_eq!(show_size(256 << 20), "256M");
}

#[test]
fn documented_examples_parse() {
    let page = include_str!("../../docs/configuration.md");
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or("")).collect();
    assert!(examples.len() >= 3, "the page has examples");
    for example in examples {
        let read = AnyConfig::of_text(Path::new("/etc/gpuvmk/example.toml"), example);
        read.unwrap_or_else(|error| panic!("{error}\n{example}"));
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
        let _ = vm(&text);
        let _ = gpu(&text);
    }
}

#[test]
fn hang_limits_have_defaults_and_zero_turns_off_those_that_protect_their_own_vm() {
    let base = "name = \"gpu0\"\nbackend = \"soft\"\npreemption = \"methods\"\n[socket]\npath = \"a\"\n";
    let config = gpu(base).expect("valid");
    assert_eq!(config.hang, HangLimits::default());
    assert!(matches!(config.backend, Backend::Soft { preemption: Preemption::Methods, .. }));

    let hang = gpu(&format!("{base}[hang]\npreempt_ms = 50\nprogress_ms = 0\nacquire_ms = 1500\n"))
        .expect("valid")
        .hang;
    assert_eq!(
        (hang.preempt.as_millis(), hang.progress, hang.acquire),
        (50, None, Some(Duration::from_millis(1500)))
    );

    let found = mistakes(gpu(&format!("{base}[hang]\npreempt_ms = 0\nacquire_ms = 5\nhold = 1\n")));
    let mut keys: Vec<&str> = found.iter().map(|m| m.key.as_str()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["hang.acquire_ms", "hang.hold", "hang.preempt_ms"]);
}

#[test]
fn trace_of_a_vm_has_a_filter_of_known_conditions() {
    let text =
        |trace: &str| format!("name = \"vm1\"\ngpu = \"gpu0.sock\"\nvram = \"64M\"\n[trace]\n{trace}\n");
    let config = vm(&text("path = \"vm1.trace\"\nfilter = [\"bar=0\", \"unit=PFIFO\"]")).expect("valid");
    let filter = config.trace.expect("a trace").filter;
    assert!(filter.wants_region(Region::Bar(0)) && !filter.wants_region(Region::Bar(3)));
    let all = vm(&text("path = \"vm1.trace\"")).expect("valid").trace.expect("a trace");
    assert!(all.filter.wants_region(Region::Bar(3)));
    for wrong in [
        "path = \"a\"\nfilter = [\"bar=9\"]",
        "path = \"a\"\nfilter = \"bar=0\"",
        "filter = []",
        "path = \"a\"\nfilter = [3]",
    ] {
        let found = mistakes(vm(&text(wrong)));
        assert_eq!(
            found.iter().map(|mistake| mistake.key.as_str()).collect::<Vec<_>>(),
            ["trace.filter"],
            "{wrong}"
        );
    }
}
