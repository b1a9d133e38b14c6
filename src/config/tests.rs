//! Mistakes are named with line, key, what is allowed, and the nearest key.

use std::path::Path;

use super::*;

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
    assert_eq!(config.weight, 100);
    assert_eq!(config.chip, "GF100");
    assert_eq!(config.vram, 256 << 20);
    let socket = config.socket.expect("given");
    assert_eq!(socket.path, Path::new("/etc/gpuvmk/vm1.sock"));
    assert_eq!(socket.mode, 0o660);
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
fn gpu_without_socket_is_refused() {
    let found = mistakes(gpu("name = \"gpu0\"\nbackend = \"soft\"\n"));
    assert_eq!(found[0].key, "socket");
}

#[test]
fn gpu_with_unknown_backend_lists_what_is_allowed() {
    let found = mistakes(gpu("name = \"gpu0\"\nbackend = \"vfio\"\n[socket]\npath = \"g\"\n"));
    assert_eq!(found[0].key, "backend");
    assert!(found[0].allowed.contains("\"soft\""));
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
        let read =
            if example.contains("backend") { gpu(example).map(|_| ()) } else { vm(example).map(|_| ()) };
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
