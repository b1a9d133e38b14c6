//! A host whose `/proc`, `/dev` and `/sys` are folders; nothing here touches a real driver.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A host with an empty `/proc`, `/dev` and `/sys`, and a folder for configuration.
pub struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // As open to other users as a real root folder.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let host = Self { folder };
        for name in ["root/dev", "root/proc/driver/nvidia", "root/sys/bus/pci/devices", "etc"] {
            fs::create_dir_all(host.path(name)).unwrap();
        }
        host
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn with_driver(self, version: &str) -> Self {
        let text =
            format!("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n");
        fs::write(self.path("root/proc/driver/nvidia/version"), text).unwrap();
        self
    }

    pub fn with_node(self, name: &str, mode: u32) -> Self {
        let path = self.path("root/dev").join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        self
    }

    pub fn with_gpu(self, address: &str, driver: &str) -> Self {
        let device = self.path("root/sys/bus/pci/devices").join(address);
        fs::create_dir(&device).unwrap();
        for (file, text) in [("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x2335")] {
            fs::write(device.join(file), text).unwrap();
        }
        symlink(Path::new("../drivers").join(driver), device.join("driver")).unwrap();
        self
    }

    /// What a program says and does there.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Output {
        Command::new(program)
            .args(arguments)
            .env("GPUVMK_TEST_ROOT", self.path("root"))
            .current_dir(self.path("etc"))
            .output()
            .unwrap()
    }

    /// What a program says that must fail.
    pub fn fails(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.run(program, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}: {said}");
        said
    }
}

pub fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "'{part}' is not in: {said}");
    }
}
