//! Hosts on which no GPU can be taken, through the program itself: what it says, that it fails, and that
//! nothing of it stays. Their `/proc`, `/dev` and `/sys` are folders; nothing here touches a real driver.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const GPU: &str =
    "name = \"gpu0\"\nbackend = \"rm\"\n[socket]\npath = \"gpu0.sock\"\n[control]\npath = \"gpu0.control\"\n";
/// The user that an aggregator becomes when root starts it, as in the documentation.
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Who an aggregator is once it opens nodes.
fn user() -> u32 {
    if is_root() { NOBODY } else { rustix::process::geteuid().as_raw() }
}

/// A host with an empty `/proc`, `/dev` and `/sys`, and a folder for configuration.
struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // As open to other users as a real root folder.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let host = Self { folder };
        for name in ["root/dev", "root/proc/driver/nvidia", "root/sys/bus/pci/devices", "etc"] {
            fs::create_dir_all(host.path(name)).unwrap();
        }
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn with_driver(self, version: &str) -> Self {
        let text =
            format!("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n");
        fs::write(self.path("root/proc/driver/nvidia/version"), text).unwrap();
        self
    }

    fn with_node(self, name: &str, mode: u32) -> Self {
        let path = self.path("root/dev").join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        self
    }

    fn with_gpu(self, address: &str, driver: &str) -> Self {
        let device = self.path("root/sys/bus/pci/devices").join(address);
        fs::create_dir(&device).unwrap();
        for (file, text) in [("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x2335")] {
            fs::write(device.join(file), text).unwrap();
        }
        symlink(Path::new("../drivers").join(driver), device.join("driver")).unwrap();
        self
    }

    fn gpuvmk(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_gpuvmk"))
            .args(arguments)
            .env("GPUVMK_TEST_ROOT", self.path("root"))
            .current_dir(self.path("etc"))
            .output()
            .unwrap()
    }

    /// What an aggregator with this file says; it must fail and leave no socket.
    fn aggregator_fails(&self, file: &str) -> String {
        fs::write(self.path("etc/gpu0.toml"), file).unwrap();
        let said = self.fails(&["aggregator", "gpu0.toml"]);
        let left: Vec<_> = fs::read_dir(self.path("etc")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["gpu0.toml"], "{said}");
        said
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.gpuvmk(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}: {said}");
        said
    }

    fn list(&self) -> serde_json::Value {
        let output = self.gpuvmk(&["gpu", "list", "--json"]);
        assert!(output.status.success());
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "'{part}' is not in: {said}");
    }
}

#[test]
fn host_without_the_driver() {
    let host = Host::new().with_gpu("0000:06:00.0", "vfio-pci");
    let parts = ["No NVIDIA driver is loaded", "modprobe nvidia", "branch 580", "backend = \"soft\""];
    assert_says(&host.aggregator_fails(GPU), &parts);
    assert_says(&host.fails(&["gpu", "bench", "--uid", "65534"]), &parts);

    let list = host.list();
    assert!(list["nvidia_driver"].is_null());
    assert_says(list["problem"].as_str().unwrap(), &parts);
    assert_eq!(list["gpus"][0]["address"], "0000:06:00.0");
    assert_eq!(list["gpus"][0]["driver"], "vfio-pci");
    assert_eq!(list["gpus"][0]["backends"]["rm"]["possible"], false);
    assert_eq!(list["soft"]["chips"], serde_json::json!(["GF100", "GH100"]));
}

#[test]
fn which_cards_an_aggregator_can_have_through_vfio() {
    let host = Host::new();
    let folder = |address: &str| host.path("root/sys/bus/pci/devices").join(address);
    for (address, number, driver) in [
        ("0000:0a:00.0", "0x06cd", Some("nouveau")),
        ("0000:06:00.0", "0x06c0", Some("vfio-pci")),
        ("0000:07:00.0", "0x2335", Some("vfio-pci")),
        ("0000:08:00.0", "0x06c0", None),
    ] {
        fs::create_dir(folder(address)).unwrap();
        for (file, text) in [("class", "0x030000"), ("vendor", "0x10de"), ("device", number)] {
            fs::write(folder(address).join(file), text).unwrap();
        }
        if let Some(driver) = driver {
            symlink(Path::new("../drivers").join(driver), folder(address).join("driver")).unwrap();
            symlink("../../../kernel/iommu_groups/7", folder(address).join("iommu_group")).unwrap();
        }
    }

    let list = host.list();

    let of = |index: usize| {
        let gpu = &list["gpus"][index];
        let verdict = &gpu["backends"]["vfio"];
        let why = verdict["why"].as_str().unwrap().to_owned();
        (gpu["address"].as_str().unwrap().to_owned(), verdict["possible"] == true, why)
    };
    for (index, (address, possible, why)) in [
        ("0000:06:00.0", true, "vfio-pci has it"),
        ("0000:07:00.0", false, "knows GF100 only"),
        ("0000:08:00.0", false, "no IOMMU group"),
        ("0000:0a:00.0", true, "gpuvmk gpu bind"),
    ]
    .into_iter()
    .enumerate()
    {
        let found = of(index);
        assert!(found.0 == address && found.1 == possible && found.2.contains(why), "{found:?}");
    }
    assert_eq!(list["gpus"][0]["backends"]["vfio"]["chips"], serde_json::json!(["GF100"]));
}

#[test]
fn driver_of_another_branch_and_one_that_nobody_knows() {
    let host = Host::new().with_driver("550.54.14").with_node("nvidiactl", 0o666);
    let parts = ["550.54.14", "not supported", "supported: 580", "Install a driver"];
    assert_says(&host.aggregator_fails(GPU), &parts);
    let list = host.list();
    assert_eq!((&list["nvidia_driver"], &list["branch_supported"]), (&"550.54.14".into(), &false.into()));
    assert_eq!(list["supported_branches"], serde_json::json!([580]));

    let host = Host::new().with_driver("of unknown origin");
    assert_says(&host.aggregator_fails(GPU), &["cannot be told", "of unknown origin", "580"]);
}

#[test]
fn nodes_that_do_not_exist_or_are_not_for_this_user() {
    let who = format!("/dev/nvidiactl is not accessible for user {}", user());
    let missing = Host::new().with_driver("580.159.04");
    assert_says(&missing.aggregator_fails(GPU), &[&who, "nvidia-modprobe", "No such file"]);

    // For root's process the node is closed only once it has become the other user.
    let closed =
        Host::new().with_driver("580.159.04").with_node("nvidiactl", if is_root() { 0o600 } else { 0 });
    assert_says(&closed.aggregator_fails(GPU), &[&who, "group", "Permission denied"]);
}

#[test]
fn node_that_is_not_the_drivers() {
    let host = Host::new().with_driver("580.159.04").with_node("nvidiactl", 0o666);
    assert_says(&host.aggregator_fails(GPU), &["the list of GPUs", "ioctl"]);
    assert_says(host.list()["problem"].as_str().unwrap(), &["the list of GPUs", "ioctl"]);
}

#[test]
fn root_that_names_nobody_and_somebody_who_is_not_root() {
    let host = Host::new().with_driver("580.159.04").with_node("nvidiactl", 0o666);
    if is_root() {
        assert_says(&host.fails(&["gpu", "bench"]), &["does not run as root", "ordinary user", "`uid`"]);
    } else {
        assert_says(&host.fails(&["gpu", "bench", "--uid", "1"]), &["cannot become user 1", "Start it as"]);
    }
}

#[test]
fn address_that_is_none() {
    let host = Host::new();
    assert_says(&host.fails(&["gpu", "bench", "--gpu", "6:0"]), &["\"6:0\"", "0000:65:00.0"]);
    let file = format!("device = \"6:0\"\n{GPU}");
    assert_says(&host.aggregator_fails(&file), &["line 1: `device`", "\"6:0\"", "0000:65:00.0"]);
}

#[test]
fn keys_that_do_not_go_together() {
    let host = Host::new();
    let soft = GPU.replace("\"rm\"", "\"soft\"");
    for (file, parts) in [
        (format!("chip = \"GF100\"\n{GPU}"), ["`chip`", "\"GH100\" for `backend = \"rm\"`"]),
        (format!("uid = 0\n{GPU}"), ["`uid`", "not root"]),
        (format!("uid = 5\n{soft}"), ["`uid`", "belongs to `backend = \"rm\"`"]),
        (format!("device = \"65:00.0\"\n{soft}"), ["`device`", "belongs to `backend = \"rm\"`"]),
        (format!("vram = \"32M\"\n{GPU}"), ["`vram`", "\"64M\" to \"1024G\""]),
        (format!("chip = \"GH100\"\nvram = \"256G\"\n{soft}"), ["`vram`", "\"128G\" for a GH100"]),
        (GPU.replace("\"rm\"", "\"sriov\""), ["`backend`", "\"soft\", \"rm\" or \"vfio\""]),
        (GPU.replace("\"rm\"", "\"vfio\""), ["`device`", "gpuvmk gpu list"]),
        (
            format!("device = \"7f:1f.7\"\n{}", GPU.replace("\"rm\"", "\"vfio\"")),
            ["cannot be served", "There is no PCI function 0000:7f:1f.7"],
        ),
    ] {
        assert_says(&host.aggregator_fails(&file), &parts);
    }
}
