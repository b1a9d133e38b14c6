//! A pack: everything that runs guests on a machine without network, package manager or compiler.
//!
//! The folder that is carried holds a script, the runner and one compressed archive; what the archive unpacks
//! to is laid out here, for the one who packs and for the runner alike.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::kernel::{GuestKernel, KernelSeries};
use crate::qemu::Qemu;

/// The script that a user starts.
pub const SCRIPT: &str = "run.sh";
/// The program that it starts.
pub const RUNNER: &str = "gpuvmk-runner";
/// The archive.
pub const PAYLOAD: &str = "payload.cpio.xz";

/// What was packed, for people and for results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// gpuvmk's version.
    pub gpuvmk: String,
    /// The source's commit, where it was known.
    pub commit: Option<String>,
    /// QEMU's version.
    pub qemu: String,
    /// The guests' kernel series.
    pub series: String,
    /// The guests' kernel in full.
    pub kernel: String,
    /// Version of NVIDIA's own driver in the guests; none: they have nouveau.
    #[serde(default)]
    pub nvidia: Option<String>,
}

/// An unpacked pack.
#[derive(Debug, Clone)]
pub struct Pack {
    root: PathBuf,
}

impl Pack {
    /// The pack in `root`; nothing need be there yet.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Where gpuvmk lies.
    pub fn gpuvmk(&self) -> PathBuf {
        self.root.join("bin/gpuvmk")
    }

    /// Where the program lies that `gpuvmk gpu bench` starts: beside gpuvmk.
    pub fn gpu_bench(&self) -> PathBuf {
        self.root.join("bin/gpuvmk-gpu-bench")
    }

    /// Where the program lies that records machine code.
    pub fn sass(&self) -> PathBuf {
        self.root.join("bin/gpuvmk-sass")
    }

    /// The folder with what other GPUs gave for machine code.
    pub fn recordings(&self) -> PathBuf {
        self.root.join("sass")
    }

    /// Where the guests' kernel lies.
    pub fn kernel_image(&self) -> PathBuf {
        self.root.join("guest/vmlinuz")
    }

    /// Where the guests' initramfs lies.
    pub fn initramfs(&self) -> PathBuf {
        self.root.join("guest/initramfs.cpio")
    }

    /// Where the initramfs part with Vulkan lies.
    pub fn vulkan(&self) -> PathBuf {
        self.root.join("guest/nvk.cpio")
    }

    /// The folder with QEMU.
    pub fn qemu_folder(&self) -> PathBuf {
        self.root.join("qemu")
    }

    /// The file that says what was packed.
    pub fn manifest_file(&self) -> PathBuf {
        self.root.join("manifest.json")
    }

    /// What was packed.
    pub fn manifest(&self) -> Result<Manifest> {
        let path = self.manifest_file();
        let text = fs::read_to_string(&path).with_context(|| format!("Cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not as expected", path.display()))
    }

    /// QEMU, tried.
    pub fn qemu(&self) -> Result<Qemu> {
        Qemu::in_folder(&self.qemu_folder())
    }

    /// The guests' kernel. Its modules are in the initramfs already.
    pub fn kernel(&self) -> Result<GuestKernel> {
        let manifest = self.manifest()?;
        let series: KernelSeries = manifest.series.parse()?;
        Ok(GuestKernel { series, release: manifest.kernel, image: self.kernel_image(), modules: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_is_the_one_that_the_manifest_names() {
        let folder = tempfile::tempdir().unwrap();
        let pack = Pack::at(folder.path());
        let manifest = Manifest {
            gpuvmk: "0.1.0".into(),
            commit: None,
            qemu: "11.1".into(),
            series: "7.2".into(),
            kernel: "7.2.12+deb13-amd64".into(),
            nvidia: None,
        };
        fs::write(pack.manifest_file(), serde_json::to_string(&manifest).unwrap()).unwrap();

        let kernel = pack.kernel().unwrap();

        assert_eq!((kernel.series, kernel.release.as_str()), (KernelSeries::V7_2, "7.2.12+deb13-amd64"));
        assert_eq!(kernel.image, pack.kernel_image());
    }

    #[test]
    fn folder_that_is_no_pack_is_named() {
        let message = Pack::at(Path::new("/no/such")).kernel().unwrap_err().to_string();
        assert!(message.contains("/no/such/manifest.json"), "{message}");
    }
}
