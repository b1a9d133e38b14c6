//! What keeps a GPU from being taken: each its own message with the remedy, and nothing left of the attempt.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::rm::abi::RmStatus;
use crate::rm::abi::calls::CardInfo;
use crate::rm::abi::classes::{FERMI_VASPACE_A, NV01_ROOT_CLIENT, SpaceParams};
use crate::rm::channel_group::ChannelGroup;
use crate::rm::discovery::{open_as, open_device};
use crate::rm::host_paths::{HostDriver, HostPaths};
use crate::rm::inventory::{Inventory, inventory_with};
use crate::rm::kernel::Node;
use crate::rm::mock::{Mock, classes_of};
use crate::rm::open_error::OpenError;
use crate::rm::{RmConfig, TakenGpu, Timeslice};
use gpuvmk_chip::{Chip, Engine, Face};

fn card(bus: u8) -> CardInfo {
    CardInfo { valid: 1, bus, gpu_id: u32::from(bus) << 8, device: 0x2335, ..Default::default() }
}

/// The refusal, after which the kernel has no object of ours.
fn refusal(mock: &Mock, config: &RmConfig) -> OpenError {
    let error = TakenGpu::on_kernel(&mock.kernel(), config).unwrap_err();
    assert_eq!(mock.state().objects, BTreeMap::new(), "something is left after: {error}");
    error
}

/// A GPU on the bus of a host.
fn on_bus(root: &Path, address: &str, driver: Option<&str>) {
    let device = root.join("sys/bus/pci/devices").join(address);
    std::fs::create_dir_all(&device).unwrap();
    for (file, text) in [("class", "0x030200\n"), ("vendor", "0x10de\n"), ("device", "0x2335\n")] {
        std::fs::write(device.join(file), text).unwrap();
    }
    if let Some(driver) = driver {
        std::os::unix::fs::symlink(Path::new("/sys/bus/pci/drivers").join(driver), device.join("driver"))
            .unwrap();
    }
}

#[test]
fn gpu_of_another_architecture_and_the_chips_that_can_be_served() {
    let mock = Mock::new();
    mock.state().architecture = 0x140;
    // What a Volta lists.
    mock.state().classes = vec![0xc36f, 0xc3b5, 0xc397, 0xc3c0, 0x902d, 0xa140, 0xc361];
    let error = refusal(&mock, &RmConfig::default());
    assert!(matches!(&error, OpenError::NoChip { .. }), "{error}");
    let text = error.to_string();
    for part in ["0x140", "can serve no vGPU", "GH100", "backend = \"soft\""] {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
    // Each class counts.
    for missing in classes_of(Chip::GH100) {
        let mock = Mock::new();
        mock.state().classes.retain(|class| *class != missing);
        let opened = open_device(&mock.kernel(), &HostPaths::default(), None);
        assert_eq!(opened.is_ok(), missing == 0xc36f, "without {missing:04x}");
    }
}

#[test]
fn gpus_of_each_family_and_the_chips_that_they_serve() {
    for chip in Chip::with_face(Face::Gsp) {
        let mock = Mock::new();
        mock.state().architecture = chip.boot_0 >> 20;
        mock.state().classes = classes_of(chip);
        let (_, facts, _, own) = open_device(&mock.kernel(), &HostPaths::default(), None).unwrap();
        assert_eq!(own, chip);
        let family: Vec<Chip> =
            Chip::with_face(Face::Gsp).filter(|other| other.family == chip.family).collect();
        let mut served = facts.chips.clone();
        served.sort();
        assert_eq!(served, family);
        let other = if chip == Chip::GH100 { Chip::GF100 } else { Chip::GH100 };
        let error = refusal(&mock, &RmConfig { chip: Some(other), ..Default::default() });
        assert!(matches!(&error, OpenError::OtherChip { wanted, .. } if *wanted == other), "{error}");
    }
}

#[test]
fn gpu_of_another_aggregator_until_that_is_gone() {
    let mock = Mock::new();
    let node = rustix::fs::memfd_create("node", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    mock.state().node = Some(node);
    let other = mock.kernel().open(Node::Device(0)).unwrap();
    rustix::fs::flock(&other, FlockOperation::LockExclusive).unwrap();
    // What would be refused next.
    let config = RmConfig { vram: 16 << 30, ..Default::default() };

    let error = refusal(&mock, &config);

    assert!(matches!(error, OpenError::Taken { node: Node::Device(0), .. }), "{error}");
    let text = error.to_string();
    for part in ["at 0000:06:00.0 is another aggregator's", "the lock of /dev/nvidia0", "end the other one"] {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
    drop(other);
    assert!(matches!(refusal(&mock, &config), OpenError::NotEnoughVram { .. }));
}

#[test]
fn groups_have_the_time_slice_of_the_configuration() {
    for timeslice in [Timeslice::default(), Timeslice::new(500).unwrap()] {
        let mock = Mock::new();
        let config = RmConfig { timeslice, ..Default::default() };
        let (mut device, ..) = open_as(&mock.kernel(), &config).unwrap();
        let mut params = SpaceParams { base: 0x1000, ..Default::default() };
        let space = device.client.alloc(device.device, FERMI_VASPACE_A, &mut params).unwrap();
        let group = ChannelGroup::new(&mut device, space, Engine::Graphics.nv2080_type()).unwrap();

        group.set_timeslice(&device).unwrap();

        assert_eq!(mock.state().slices, [timeslice.micros()]);
    }
}

#[test]
fn too_little_vram_and_both_sizes() {
    let mock = Mock::new();
    let error = refusal(&mock, &RmConfig { vram: 16 << 30, ..Default::default() });
    assert!(matches!(error, OpenError::NotEnoughVram { free: 8192, wanted: 16384, .. }), "{error}");
    assert!(error.to_string().contains("Lower `vram`"), "{error}");
}

#[test]
fn unknown_gpu_and_those_that_are_there() {
    let wanted = RmConfig { gpu: Some("0000:01:00.0".to_owned()), ..Default::default() };
    let text = refusal(&Mock::new(), &wanted).to_string();
    assert!(text.starts_with("The NVIDIA driver has no GPU 0000:01:00.0; it has 0000:06:00.0."), "{text}");
    assert!(text.contains("`device`"), "{text}");
}

#[test]
fn gpu_of_another_kernel_driver_and_its_name() {
    let host = tempfile::tempdir().unwrap();
    on_bus(host.path(), "0000:01:00.0", Some("vfio-pci"));
    on_bus(host.path(), "0000:02:00.0", None);
    for (address, part) in
        [("0000:01:00.0", "kernel driver vfio-pci has"), ("0000:02:00.0", "no kernel driver")]
    {
        let paths = HostPaths::below(host.path());
        let config = RmConfig { gpu: Some(address.to_owned()), paths, ..Default::default() };
        let text = refusal(&Mock::new(), &config).to_string();
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
}

#[test]
fn several_gpus_or_none_and_what_to_do() {
    let mock = Mock::new();
    mock.state().cards = vec![card(6), card(7)];
    let text = refusal(&mock, &RmConfig::default()).to_string();
    assert!(text.contains("0000:06:00.0, 0000:07:00.0") && text.contains("`device`"), "{text}");

    mock.state().cards = Vec::new();
    let error = refusal(&mock, &RmConfig::default());
    assert!(matches!(error, OpenError::NoGpus), "{error}");
}

#[test]
fn node_of_the_gpu_that_is_closed_and_who_may_not() {
    let mock = Mock::new();
    mock.state().closed = true;
    let error = refusal(&mock, &RmConfig::default());
    assert!(matches!(&error, OpenError::Node { .. }));
    let uid = rustix::process::geteuid().as_raw();
    assert!(
        error.to_string().starts_with(&format!("/dev/nvidia0 is not accessible for user {uid}.")),
        "{error}"
    );
}

#[test]
fn gpu_without_the_engines_and_what_takes_them_away() {
    for engines in [vec![Engine::COPY0], vec![Engine::Graphics, Engine::COPY0]] {
        let mock = Mock::new();
        mock.state().engines = engines.into_iter().map(Engine::nv2080_type).collect();
        let error = refusal(&mock, &RmConfig::default());
        assert!(matches!(&error, OpenError::MissingEngine { .. }));
        assert!(error.to_string().contains("MIG"), "{error}");
    }
}

#[test]
fn call_that_the_driver_refuses_and_its_name_with_the_status() {
    let mock = Mock::new();
    mock.state().refuse_class = Some((NV01_ROOT_CLIENT.number, RmStatus::ERR_INSUFFICIENT_PERMISSIONS));
    let text = refusal(&mock, &RmConfig::default()).to_string();
    assert!(text.contains("NV01_ROOT_CLIENT") && text.contains("INSUFFICIENT_PERMISSIONS"), "{text}");
}

/// What is listed on a host with one GPU in the driver.
fn listed(mock: &Mock, root: &Path) -> Inventory {
    let driver = HostDriver::Loaded {
        version: "580.159.04".to_owned(),
        branch: crate::rm::abi::Branch::of_version("580"),
    };
    let listed = inventory_with(&HostPaths::below(root), &driver, Ok(mock.kernel()));
    assert_eq!(mock.state().objects, BTreeMap::new());
    listed
}

#[test]
fn hopper_and_the_chip_that_it_serves() {
    let host = tempfile::tempdir().unwrap();
    on_bus(host.path(), "0000:06:00.0", Some("nvidia"));
    on_bus(host.path(), "0000:07:00.0", Some("nouveau"));
    let listed = listed(&Mock::new(), host.path());
    let [gpu, other] = listed.gpus.as_slice() else { panic!("{listed:?}") };
    assert!(gpu.backends.rm.possible);
    assert_eq!(gpu.backends.rm.chips, ["GH100"]);
    assert_eq!((gpu.name.as_deref(), gpu.architecture.as_deref()), (Some("NVIDIA H200"), Some("Hopper")));
    assert_eq!(gpu.copy_engines.iter().find(|engine| engine.number == 4).map(|engine| engine.units), Some(6));
    assert!(!other.backends.rm.possible);
    assert!(other.backends.rm.why.contains("nouveau"), "{other:?}");
}

#[test]
fn gpu_in_a_container_without_sysfs_and_listed_all_the_same() {
    let host = tempfile::tempdir().unwrap();
    let mock = Mock::new();
    mock.state().architecture = 0x140;
    mock.state().classes.clear();
    let listed = listed(&mock, host.path());
    let [gpu] = listed.gpus.as_slice() else { panic!("{listed:?}") };
    assert_eq!(gpu.address, "0000:06:00.0");
    assert!(!gpu.backends.rm.possible);
    assert!(gpu.backends.rm.why.contains("0x140"), "{gpu:?}");
    assert!(gpu.backends.rm.chips.is_empty());
}
