//! Where a host shows its NVIDIA driver and its GPUs: files of `/proc`, `/dev` and `/sys`, below a folder
//! that tests choose.

use std::io;
use std::path::PathBuf;

use super::abi::Branch;
use super::abi::branch::{VERSION_FILE, version_of_proc_file};
use super::kernel::Node;
use super::open_error::OpenError;
use crate::vfio::sysfs::Sysfs;

/// The settings that the kernel module was loaded with.
const SETTINGS_FILE: &str = "/proc/driver/nvidia/params";

/// The module's setting for client validation. Two of its fields say whether clients are distinguished by
/// their files: `ALL` and `STRICT_CLIENT`, of two bits each, where 2 is off.
const CLIENT_CHECK: &str = "rmclientdatavalidation=";
const CLIENT_CHECK_FIELDS: [u32; 2] = [0, 6];

/// A host's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPaths {
    root: PathBuf,
}

impl Default for HostPaths {
    fn default() -> Self {
        Self::below("/")
    }
}

/// A folder that tests put in the place of `/` for the files of `/proc`, `/dev` and `/sys` that belong to the
/// NVIDIA driver.
const TEST_ROOT: &str = "GPUVMK_TEST_ROOT";

impl HostPaths {
    /// This host's, for programs.
    pub fn of_host() -> Self {
        match std::env::var_os(TEST_ROOT) {
            Some(root) => {
                log::warn!("{TEST_ROOT}: an NVIDIA driver is looked for below {}", root.display());
                Self::below(root)
            }
            None => Self::default(),
        }
    }

    /// Those that `root` has instead of `/`.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    /// Where a node is.
    pub(super) fn node(&self, node: Node) -> PathBuf {
        self.path(&node.to_string())
    }

    /// The kernel's files about PCI functions.
    pub(super) fn sysfs(&self) -> Sysfs {
        Sysfs::below(self.root.clone())
    }

    /// True if the module tells clients apart by their files. A VM's window includes an open file of the
    /// GPU's node, and its holder must not reach this process's objects. That is the module's default, unless
    /// it was loaded with another setting.
    ///
    /// # Errors
    /// Its settings cannot be read.
    pub(super) fn strict_clients(&self) -> io::Result<bool> {
        let text = std::fs::read_to_string(self.path(SETTINGS_FILE))?.to_ascii_lowercase();
        let Some((_, value)) = text.split_once(CLIENT_CHECK) else { return Ok(true) };
        let digits = |c: char| !c.is_ascii_hexdigit();
        let value = match value.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex.split(digits).next().unwrap_or_default(), 16),
            None => value.split(digits).next().unwrap_or_default().parse(),
        };
        let value = value.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(CLIENT_CHECK_FIELDS.into_iter().all(|shift| (value >> shift) & 3 != 2))
    }

    /// Facts about the NVIDIA driver that its files tell.
    pub fn driver(&self) -> HostDriver {
        match std::fs::read_to_string(self.path(VERSION_FILE)) {
            Ok(text) => match version_of_proc_file(&text) {
                Some(version) => HostDriver::Loaded { branch: Branch::of_version(&version), version },
                None => HostDriver::Unclear { why: format!("it says {:?}", first_line(&text)) },
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => HostDriver::Absent,
            Err(error) => HostDriver::Unclear { why: error.to_string() },
        }
    }
}

/// The start of a text, for a message.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(80).collect()
}

/// The NVIDIA driver of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostDriver {
    /// None is loaded.
    Absent,
    /// A driver is loaded, but its version is unknown.
    Unclear {
        /// The reason.
        why: String,
    },
    /// A driver is loaded.
    Loaded {
        /// The driver's version.
        version: String,
        /// Its branch, where it is one that can be driven.
        branch: Option<Branch>,
    },
}

impl HostDriver {
    /// The driver's version.
    pub fn version(&self) -> Option<&str> {
        match self {
            Self::Loaded { version, .. } => Some(version),
            Self::Absent | Self::Unclear { .. } => None,
        }
    }

    /// That it can be driven.
    ///
    /// # Errors
    /// There is none, or its structures are not known.
    pub fn check(self) -> Result<(), OpenError> {
        match self {
            Self::Loaded { branch: Some(_), .. } => Ok(()),
            Self::Loaded { version, branch: None } => Err(OpenError::WrongBranch { version }),
            Self::Absent => Err(OpenError::NoDriver),
            Self::Unclear { why } => Err(OpenError::UnclearDriver { why }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(version: &str) -> HostDriver {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proc/driver/nvidia/version");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, version).unwrap();
        HostPaths::below(folder.path()).driver()
    }

    #[test]
    fn clients_are_told_apart_by_their_files_unless_a_setting_says_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let paths = HostPaths::below(folder.path());
        assert!(paths.strict_clients().is_err(), "there is no such file");
        let file = folder.path().join("proc/driver/nvidia/params");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        for (dwords, strict) in [
            ("", true),
            ("RMSomething=1", true),
            ("RmClientDataValidation=0x40", true),
            ("RMOther=0x2;RmClientDataValidation=0x80;RMMore=1", false),
            ("RmClientDataValidation=128", false),
            ("RmClientDataValidation=2", false),
        ] {
            std::fs::write(&file, format!("ResmanDebugLevel: 4294967295\nRegistryDwords: \"{dwords}\"\n"))
                .unwrap();
            assert_eq!(paths.strict_clients().unwrap(), strict, "{dwords}");
        }
        std::fs::write(&file, "RegistryDwords: \"RmClientDataValidation=x\"\n").unwrap();
        assert!(paths.strict_clients().is_err());
    }

    #[test]
    fn known_branch_and_nothing_to_say() {
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n";
        let driver = host(text);
        assert_eq!(driver.version(), Some("580.159.04"));
        assert!(driver.check().is_ok());
    }

    #[test]
    fn other_branch_and_a_refusal_with_the_supported_ones() {
        let error =
            host("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu\n").check().unwrap_err();
        assert!(matches!(&error, OpenError::WrongBranch { version } if version == "550.54.14"));
        assert!(error.to_string().contains("supported: 580"), "{error}");
    }

    #[test]
    fn file_that_is_not_understood_and_a_refusal_with_its_words() {
        let error = host("hello\nworld").check().unwrap_err();
        assert!(matches!(&error, OpenError::UnclearDriver { .. }));
        assert!(error.to_string().contains("\"hello\""), "{error}");
    }

    #[test]
    fn no_file_and_no_driver() {
        let folder = tempfile::tempdir().unwrap();
        let error = HostPaths::below(folder.path()).driver().check().unwrap_err();
        assert!(matches!(error, OpenError::NoDriver));
        assert!(error.to_string().contains("modprobe nvidia"), "{error}");
    }
}
