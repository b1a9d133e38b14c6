//! QEMU as what runs an inner guest that has all of a card.

use std::process::{Child, Command, Stdio};

use anyhow::Result;

use super::inner::Front;
use super::{ADDRESS_FILE, CONFIGS, daemon, wait_for_socket};

/// QEMU with its libraries and firmware, in the folders of Debian's packages.
const FOLDER: &str = "/host/qemu";
const LIBRARIES: &str = "/host/qemu/usr/lib/x86_64-linux-gnu";
const FIRMWARE: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];
/// Where the device back end listens.
const SOCKET: &str = "/run/vm1.sock";

/// The device back end of the only guest.
pub fn start_device() -> Result<Child> {
    let config = format!("{CONFIGS}/vm1.toml");
    let mut device = daemon(&["device", &config, "--socket-path", SOCKET], "device")?;
    wait_for_socket(&mut device, SOCKET, "device")?;
    Ok(device)
}

/// The only guest's QEMU. Its console is standard output.
pub fn command(front: Front, words: &str, cpus: u32, memory: &str) -> Command {
    let mut qemu = Command::new(format!("{LIBRARIES}/ld-linux-x86-64.so.2"));
    qemu.args(["--library-path", LIBRARIES, &format!("{FOLDER}/usr/bin/qemu-system-x86_64")]);
    for folder in FIRMWARE {
        qemu.arg("-L").arg(format!("{FOLDER}/{folder}"));
    }
    // A device back end maps the guest's memory itself.
    let kind = if front == Front::QemuUser { "memfd" } else { "ram" };
    let ram = format!(
        "memory-backend-{kind},id=ram,size={memory},share={}",
        if front == Front::QemuUser { "on" } else { "off" }
    );
    qemu.args(["-machine", "q35,memory-backend=ram", "-accel", "kvm", "-cpu", "host", "-object", &ram]);
    qemu.args(["-m", memory, "-smp", &cpus.to_string()]);
    qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"]);
    qemu.args(["-kernel", "/host/vmlinuz", "-initrd", "/host/initramfs.cpio", "-append", words, "-device"]);
    qemu.arg(match front {
        Front::QemuUser => {
            let socket = format!("{{\"type\":\"unix\",\"path\":\"{SOCKET}\"}}");
            format!("{{\"driver\":\"vfio-user-pci\",\"socket\":{socket}}}")
        }
        Front::Vmm | Front::QemuVfio => {
            let address = std::fs::read_to_string(ADDRESS_FILE).unwrap_or_default();
            format!("vfio-pci,host={address}")
        }
    });
    if front == Front::QemuUser {
        let file = std::path::Path::new(SOCKET).with_extension("no-migration");
        let node = "driver=vdi,node-name=gpuvmk-no-migration,read-only=on,file.driver=file,file.filename=";
        qemu.arg("-blockdev").arg(format!("{node}{}", file.display()));
    }
    qemu.stdin(Stdio::null());
    qemu
}
