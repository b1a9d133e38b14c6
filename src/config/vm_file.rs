//! A VM's file of either kind, and what both have.

use std::path::Path;
use std::time::Duration;

use super::devices::Devices;
use super::file::{has, parse, read_file};
use super::mistake::ConfigError;
use super::vm::{TraceFile, VmConfig};
use super::whole_card::{self, WholeCardConfig};
use crate::host::socket_path::SocketSpec;
use crate::jail::Mode;

/// A VM's file of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmFile {
    /// It has a part of a GPU.
    Part(VmConfig),
    /// It has a whole card.
    Whole(WholeCardConfig),
}

impl VmFile {
    /// Reads and checks a VM's file: one with the key `card` gives it a whole one.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::of_text(path, &read_file(path)?)
    }

    pub(super) fn of_text(path: &Path, text: &str) -> Result<Self, ConfigError> {
        if has(text, whole_card::CARD) {
            parse(path, text, WholeCardConfig::read).map(Self::Whole)
        } else {
            parse(path, text, VmConfig::read).map(Self::Part)
        }
    }

    /// Name of the VM.
    pub fn name(&self) -> &str {
        match self {
            Self::Part(vm) => &vm.name,
            Self::Whole(vm) => &vm.name,
        }
    }

    /// Socket that QEMU connects to.
    pub fn socket(&self) -> Option<&SocketSpec> {
        match self {
            Self::Part(vm) => vm.socket.as_ref(),
            Self::Whole(vm) => vm.socket.as_ref(),
        }
    }

    /// How long QEMU's next message is looked for, at most, before the back end sleeps.
    pub const fn poll(&self) -> Duration {
        match self {
            Self::Part(vm) => vm.poll,
            Self::Whole(vm) => vm.poll,
        }
    }

    /// A trace from the start on.
    pub fn trace(&self) -> Option<&TraceFile> {
        match self {
            Self::Part(vm) => vm.trace.as_ref(),
            Self::Whole(vm) => vm.trace.as_ref(),
        }
    }

    /// Socket at which operators record while the VM works.
    pub fn recorder(&self) -> Option<&SocketSpec> {
        match self {
            Self::Part(vm) => vm.recorder.as_ref(),
            Self::Whole(vm) => vm.recorder.as_ref(),
        }
    }

    /// Socket at which people look at the head.
    pub fn viewers(&self) -> Option<&SocketSpec> {
        match self {
            Self::Part(vm) => vm.viewers.as_deref(),
            Self::Whole(_) => None,
        }
    }

    /// What `gpuvmk vmm` gives it beside its GPU.
    pub fn devices(&self) -> &Devices {
        match self {
            Self::Part(vm) => &vm.devices,
            Self::Whole(vm) => &vm.devices,
        }
    }

    /// Mode of the process's jail.
    pub fn jail(&self) -> Mode {
        match self {
            Self::Part(vm) => vm.jail,
            Self::Whole(vm) => vm.jail,
        }
    }
}
