//! The packaged files: the one socket that a VM's QEMU reaches is that of its own vGPU. Who is in which group
//! is read from the files that make users and groups, and who runs as whom from units and the libvirt domain.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on panics")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuvmk::config::{AnyConfig, VmFile};
use gpuvmk::host::socket_path::SocketSpec;
use serde_json::{Value, json};

fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(packaged(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The groups of each user, by the sysusers files. A user's own group has its name.
fn users() -> BTreeMap<String, BTreeSet<String>> {
    let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in ["sysusers/gpuvmk.conf", "examples/sysusers-vm1.conf"] {
        for line in text(file).lines().filter(|line| !line.starts_with('#')) {
            let (user, group) = match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["u", user, ..] => (user, user),
                ["m", user, group] => (user, group),
                ["g", _] => continue,
                _ => panic!("{file}: {line}"),
            };
            users.entry(user.to_owned()).or_default().insert(group.to_owned());
        }
    }
    users
}

/// Groups that the files make.
fn groups() -> BTreeSet<String> {
    let lines = text("sysusers/gpuvmk.conf") + &text("examples/sysusers-vm1.conf");
    let made = lines.lines().filter(|line| line.starts_with("g ") || line.starts_with("u "));
    made.filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
}

/// Who may connect, as far as the file says: by the group.
fn lets_in(spec: &SocketSpec, groups: &BTreeSet<String>) -> bool {
    let others = spec.mode & 0o002 != 0;
    let group = spec.mode & 0o020 != 0 && spec.group.as_ref().is_none_or(|group| groups.contains(group));
    (others || group) && spec.users.is_none()
}

/// The sockets of the examples, with their keys, and the VM's own for its QEMU.
fn sockets() -> (Vec<(&'static str, SocketSpec)>, SocketSpec) {
    let AnyConfig::Gpu(gpu) = AnyConfig::load(&packaged("examples/gpu0.toml")).unwrap() else { panic!() };
    let AnyConfig::Vm(VmFile::Part(vm)) = AnyConfig::load(&packaged("examples/vm1.toml")).unwrap() else {
        panic!()
    };
    let others = vec![
        ("[socket] of the GPU", gpu.socket),
        ("[control]", gpu.control.unwrap()),
        ("[trace.socket] of the GPU", gpu.recorder.unwrap()),
        ("[trace.socket] of the VM", vm.recorder.unwrap()),
    ];
    (others, vm.socket.unwrap())
}

/// The value of a key of a unit, for the instance `vm1`.
fn unit(name: &str, key: &str) -> Vec<String> {
    let text = text(&format!("systemd/{name}")).replace("%i", "vm1");
    let values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

#[test]
fn qemu_reaches_its_vms_socket_and_no_other() {
    let users = users();
    let domain = text("libvirt/vm1.xml");
    let label = domain.split("<label>").nth(1).unwrap().split(':').next().unwrap();
    let qemu = &users[label];
    let (others, own) = sockets();

    assert!(lets_in(&own, qemu), "its own");
    assert!(domain.contains(&own.path.display().to_string()));
    for (key, spec) in others {
        assert!(!lets_in(&spec, qemu), "{key} lets {label} in, who is in {qemu:?}");
        // Nor is it reached by who is in the groups that QEMUs are usually in.
        let usual = ["kvm", "libvirt", "libvirt-qemu", "qemu"].map(str::to_owned).into();
        assert!(!lets_in(&spec, &usual), "{key}");
    }
    assert_eq!(unit("gpuvmk-device@.socket", "SocketGroup"), [own.group.unwrap()], "by systemd as well");
}

#[test]
fn back_end_reaches_the_aggregator_and_operates_nothing() {
    let users = users();
    let user = unit("gpuvmk-device@.service", "User").remove(0);
    let groups: BTreeSet<String> = unit("gpuvmk-device@.service", "Group")
        .into_iter()
        .chain(unit("gpuvmk-device@.service", "SupplementaryGroups"))
        .collect();
    assert_eq!(users[&user], groups, "the unit and sysusers say the same");
    let (others, own) = sockets();
    let lets = |key: &str| lets_in(&others.iter().find(|(name, _)| *name == key).unwrap().1, &groups);
    assert!(lets("[socket] of the GPU") && !lets("[control]"));
    assert!(groups.contains(&own.group.unwrap()), "it gives its socket to that group");
    assert!(unit("gpuvmk-device@.service", "ExecReload").is_empty(), "that would need the operators' socket");
    let AnyConfig::Gpu(gpu) = AnyConfig::load(&packaged("examples/gpu0.toml")).unwrap() else { panic!() };
    let entry = &gpu.vms.unwrap()[0];
    assert_eq!((entry.name.as_str(), entry.user.as_deref()), ("vm1", Some(user.as_str())));
}

#[test]
fn every_group_is_made_and_the_aggregator_may_give_its_sockets_to_theirs() {
    let made = groups();
    let (others, own) = sockets();
    let aggregator: BTreeSet<String> =
        unit("gpuvmk-aggregator@.service", "SupplementaryGroups").into_iter().collect();
    for group in others.iter().take(3).filter_map(|(_, spec)| spec.group.as_ref()) {
        assert!(made.contains(group) && aggregator.contains(group), "{group}");
        assert!(users()["gpuvmk"].contains(group), "{group}");
    }
    assert!(made.contains(&own.group.unwrap()));
    for name in ["gpuvmk-aggregator@.service", "gpuvmk-device@.service", "gpuvmk-device@.socket"] {
        assert!(!text(&format!("systemd/{name}")).contains("kvm\n"), "{name} has group kvm");
    }
}

#[test]
fn check_has_nothing_to_warn_of_and_does_where_a_group_is_qemus() {
    let folder = tempfile::tempdir().unwrap();
    let check = |gpu: &str, vm: &str| {
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (gpu, vm) = (file("gpu0.toml", gpu), file("vm1.toml", vm));
        let output = Command::new(env!("CARGO_BIN_EXE_gpuvmk"))
            .arg("check")
            .args([gpu, vm])
            .arg("--json")
            .output()
            .unwrap();
        assert!(output.status.success(), "a warning is no mistake");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let (gpu, vm) = (text("examples/gpu0.toml"), text("examples/vm1.toml"));
    let said = check(&gpu, &vm);
    assert_eq!((&said["ok"], &said["warnings"]), (&json!(true), &json!([])));

    let said = check(&gpu.replace("gpuvmk-operator", "kvm"), &vm.replace("vgpu-vm1", "gpuvmk-backend"));
    let keys: Vec<_> =
        said["warnings"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["socket.group", "control.group"], "{said}");
}
