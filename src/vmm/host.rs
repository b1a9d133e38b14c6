//! Whether this host's KVM can run a stock kernel.

use std::path::Path;

/// Why it cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// There is no KVM at all.
    #[error(
        "This host has no /dev/kvm. `gpuvmk vmm` needs hardware virtualisation (vmx or svm in /proc/cpuinfo) with the module kvm_intel or kvm_amd loaded; \
         `gpuvmk device` with QEMU does not"
    )]
    NoKvm,
    /// Its KVM has no hardware below it.
    #[error(
        "This host's KVM is PVM, which runs guests without hardware virtualisation: only kernels that were built for it boot there, stock kernels stop at \
         their first page tables. Use `gpuvmk device` with QEMU (which has its own emulation), or a host with vmx or svm"
    )]
    Pvm,
}

/// Looks at this host.
///
/// # Errors
/// See [`HostError`].
pub fn check() -> Result<(), HostError> {
    judge(Path::new("/dev/kvm").exists(), |module| Path::new("/sys/module").join(module).exists())
}

fn judge(has_kvm: bool, has_module: impl Fn(&str) -> bool) -> Result<(), HostError> {
    match (has_kvm, ["kvm_intel", "kvm_amd"].into_iter().any(&has_module)) {
        (false, _) => Err(HostError::NoKvm),
        (true, false) if has_module("kvm_pvm") => Err(HostError::Pvm),
        // Built in, or an unknown module: KVM itself will report what it cannot do.
        (true, _) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_apart_by_their_modules() {
        let with = |modules: &'static [&str]| judge(true, |module| modules.contains(&module));
        assert_eq!(with(&["kvm", "kvm_amd"]), Ok(()));
        assert_eq!(with(&["kvm", "kvm_intel", "kvm_pvm"]), Ok(()));
        assert_eq!(with(&["kvm", "kvm_pvm"]), Err(HostError::Pvm));
        assert_eq!(with(&[]), Ok(()));
        assert_eq!(judge(false, |_| true), Err(HostError::NoKvm));
    }
}
