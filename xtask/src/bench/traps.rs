//! `cargo xtask bench traps`: the benchmark of the KVM front end (`benches/traps.rs`), which runs micro
//! guests on this host's KVM.

use anyhow::{Result, ensure};

use super::own;

/// Whether all of its figures are within their limits.
pub(super) fn run(json: bool) -> Result<bool> {
    ensure!(
        std::path::Path::new("/dev/kvm").exists(),
        "This host has no /dev/kvm: traps cannot be measured without KVM (any kind of it will do, PVM too)"
    );
    own::run("traps", json)
}
