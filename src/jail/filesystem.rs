//! Files, TCP, abstract sockets and signals: the rights that Landlock removes.
//!
//! Everything is forbidden but what is listed. Descriptors that are open already, or that come over a socket,
//! are not concerned. Kernels differ in how much they can forbid; rights that a kernel cannot remove are
//! logged.
//!
//! Not handled: connections to sockets at paths before Linux 7.1 (permissions on the sockets decide there).

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    PathFdError, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::error::JailError;

/// The Landlock version that is asked for: the newest.
const WANTED: ABI = ABI::V9;

/// A right that a process keeps below a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRight {
    /// A folder, or a file.
    pub path: PathBuf,
    /// The right to it.
    pub right: Right,
}

/// A kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Remove files in this folder: a socket of one's own.
    Remove,
    /// Connect to sockets in this folder.
    Connect,
    /// Use this device.
    Device,
}

impl Right {
    fn access(self) -> BitFlags<AccessFs> {
        match self {
            Self::Remove => AccessFs::RemoveFile.into(),
            Self::Connect => AccessFs::ResolveUnix.into(),
            Self::Device => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
        }
    }
}

/// The folder of a path, as a place for a [`PathRight`].
pub fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The confinement that the kernel enforces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Confinement {
    /// All rights are enforced.
    Full,
    /// A part: the version of Landlock that it has.
    Part(String),
    /// Nothing, and why.
    None(&'static str),
}

/// Takes everything away from this thread and those that it will start, but for `rights`.
pub(super) fn confine(rights: &[PathRight]) -> Result<Confinement, JailError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(AccessNet::from_all(WANTED))?
        .scope(Scope::from_all(WANTED))?
        .create()?;
    for PathRight { path, right } in rights {
        match PathFd::new(path) {
            Ok(place) => rules = rules.add_rule(PathBeneath::new(place, right.access()))?,
            // A path that is missing, or not accessible, cannot be reached either.
            Err(PathFdError::OpenCall { source, .. })
                if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) =>
            {
                log::debug!("jail: nothing to do in {}: {source}", path.display());
            }
            Err(error) => return Err(JailError::Place(error)),
        }
    }
    let status = rules.restrict_self()?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::FullyEnforced, _) => Confinement::Full,
        (RulesetStatus::PartiallyEnforced, LandlockStatus::Available { effective_abi, .. }) => {
            Confinement::Part(format!("{effective_abi:?} of {WANTED:?}"))
        }
        (_, LandlockStatus::NotEnabled) => Confinement::None("Landlock is not enabled at boot"),
        (_, LandlockStatus::NotImplemented) => Confinement::None("this kernel has no Landlock"),
        _ => Confinement::None("the kernel enforces nothing"),
    })
}
