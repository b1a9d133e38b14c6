//! Hosts on which no GPU can be taken, through the program itself: what it says, that it fails, and that
//! nothing of it stays.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

#[path = "common/nvidia_host.rs"]
mod nvidia_host;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nvidia_host::{Host, assert_says, is_root};

const GPUVMK: &str = env!("CARGO_BIN_EXE_gpuvmk");

const GPU: &str =
    "name = \"gpu0\"\nbackend = \"rm\"\n[socket]\npath = \"gpu0.sock\"\n[control]\npath = \"gpu0.control\"\n";
/// The user that an aggregator becomes when root starts it, as in the documentation.
const NOBODY: u32 = 65_534;

/// Who an aggregator is once it opens nodes.
fn user() -> u32 {
    if is_root() { NOBODY } else { rustix::process::geteuid().as_raw() }
}

/// What an aggregator with this file says; it must fail and leave no socket.
fn aggregator_fails(host: &Host, file: &str) -> String {
    fs::write(host.path("etc/gpu0.toml"), file).unwrap();
    let said = host.fails(GPUVMK, &["aggregator", "gpu0.toml"]);
    let left: Vec<_> = fs::read_dir(host.path("etc")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["gpu0.toml"], "{said}");
    said
}

fn list(host: &Host) -> serde_json::Value {
    let output = host.run(GPUVMK, &["gpu", "list", "--json"]);
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn host_without_the_driver() {
    let host = Host::new().with_gpu("0000:06:00.0", "vfio-pci");
    let parts = ["No NVIDIA driver is loaded", "modprobe nvidia", "branch 580", "backend = \"soft\""];
    assert_says(&aggregator_fails(&host, GPU), &parts);

    let list = list(&host);
    assert!(list["nvidia_driver"].is_null());
    assert_says(list["problem"].as_str().unwrap(), &parts);
    assert_eq!(list["gpus"][0]["address"], "0000:06:00.0");
    assert_eq!(list["gpus"][0]["driver"], "vfio-pci");
    assert_eq!(list["gpus"][0]["backends"]["rm"]["possible"], false);
    let soft = list["soft"]["chips"].as_array().unwrap();
    assert!(soft.contains(&"GF100".into()) && soft.contains(&"AD104".into()), "{soft:?}");
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

    let list = list(&host);

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
    assert_says(&aggregator_fails(&host, GPU), &parts);
    let list = list(&host);
    assert_eq!((&list["nvidia_driver"], &list["branch_supported"]), (&"550.54.14".into(), &false.into()));
    assert_eq!(list["supported_branches"], serde_json::json!([580]));

    let host = Host::new().with_driver("of unknown origin");
    assert_says(&aggregator_fails(&host, GPU), &["cannot be told", "of unknown origin", "580"]);
}

#[test]
fn nodes_that_do_not_exist_or_are_not_for_this_user() {
    let who = format!("/dev/nvidiactl is not accessible for user {}", user());
    let missing = Host::new().with_driver("580.159.04");
    assert_says(&aggregator_fails(&missing, GPU), &[&who, "nvidia-modprobe", "No such file"]);

    // For root's process the node is closed only once it has become the other user.
    let closed =
        Host::new().with_driver("580.159.04").with_node("nvidiactl", if is_root() { 0o600 } else { 0 });
    assert_says(&aggregator_fails(&closed, GPU), &[&who, "group", "Permission denied"]);
}

#[test]
fn node_that_is_not_the_drivers() {
    let host = Host::new().with_driver("580.159.04").with_node("nvidiactl", 0o666);
    assert_says(&aggregator_fails(&host, GPU), &["the list of GPUs", "ioctl"]);
    assert_says(list(&host)["problem"].as_str().unwrap(), &["the list of GPUs", "ioctl"]);
}

#[test]
fn address_that_is_none() {
    let host = Host::new();
    assert_says(&host.fails(GPUVMK, &["gpu", "bench", "--gpu", "6:0"]), &["\"6:0\"", "0000:65:00.0"]);
    let file = format!("device = \"6:0\"\n{GPU}");
    assert_says(&aggregator_fails(&host, &file), &["line 1: `device`", "\"6:0\"", "0000:65:00.0"]);
}

#[test]
fn keys_that_do_not_go_together() {
    let host = Host::new();
    let soft = GPU.replace("\"rm\"", "\"soft\"");
    for (file, parts) in [
        (format!("chip = \"GF100\"\n{GPU}"), ["`chip`", "\"GB207\" for `backend = \"rm\"`"]),
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
        assert_says(&aggregator_fails(&host, &file), &parts);
    }
}
