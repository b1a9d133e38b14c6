//! Giving a function to `vfio-pci`, and back: a few words written to files of the kernel's.
//!
//! What is written is planned first ([`to_vfio`], [`from_vfio`]), so that it can be shown without being done. If the kernel
//! refuses a step, or another driver has the function afterwards, everything before is taken back.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::sysfs::{PciDevice, Sysfs, SysfsError};
use crate::config::PciAddress;

/// The driver.
pub const VFIO_PCI: &str = "vfio-pci";

/// A word to be written to a file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Step {
    /// What for.
    pub what: String,
    /// The file.
    pub file: PathBuf,
    /// The word.
    pub word: String,
}

impl Step {
    fn new(what: impl Into<String>, file: PathBuf, word: impl Into<String>) -> Self {
        Self { what: what.into(), file, word: word.into() }
    }

    fn take(&self) -> Result<(), BindingError> {
        let failed = |source| BindingError::Refused {
            what: self.what.clone(),
            word: self.word.trim().to_owned(),
            file: self.file.clone(),
            source,
        };
        // The kernel takes a word by one write to a file that is there; it has nothing to cut off.
        let file = fs::File::options().write(true).truncate(true).open(&self.file);
        file.and_then(|mut file| io::Write::write_all(&mut file, self.word.as_bytes())).map_err(failed)
    }
}

/// Why a function could not be given to another driver. It has the one that it had.
#[derive(Debug, thiserror::Error)]
pub enum BindingError {
    /// The kernel refused a step.
    #[error("{what}: cannot write \"{word}\" to {}{}", .file.display(), remedy(.source))]
    Refused {
        /// What the step was for.
        what: String,
        /// What was to be written.
        word: String,
        /// Where.
        file: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Everything was written, and the function has another driver.
    #[error("{address} has {} after that, not {wanted}: see the kernel's messages (dmesg)", shown(.driver))]
    Elsewhere {
        /// Which.
        address: PciAddress,
        /// Whose it is.
        driver: Option<String>,
        /// Whose it was to be.
        wanted: String,
    },
    /// It cannot be looked at.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => " (that takes root: try sudo)",
        _ => "",
    }
}

fn shown(driver: &Option<String>) -> String {
    driver.as_ref().map_or_else(|| "no driver".to_owned(), |name| format!("driver {name}"))
}

/// What gives a function to `vfio-pci`; nothing, if it has it.
pub fn to_vfio(sysfs: &Sysfs, device: &PciDevice) -> Vec<Step> {
    if device.driver.as_deref() == Some(VFIO_PCI) {
        return Vec::new();
    }
    let mut steps =
        vec![Step::new("let only vfio-pci have it", device.folder.join("driver_override"), VFIO_PCI)];
    steps.extend(unbind(device));
    steps.push(Step::new("let vfio-pci find it", sysfs.drivers_probe(), device.address.to_string()));
    steps
}

/// What gives a function to whichever driver the kernel finds for it; nothing, if `vfio-pci` does not have it.
pub fn from_vfio(sysfs: &Sysfs, device: &PciDevice) -> Vec<Step> {
    if device.driver.as_deref() != Some(VFIO_PCI) {
        return Vec::new();
    }
    let mut steps: Vec<_> = unbind(device).into_iter().collect();
    // An empty line takes the word back.
    steps.push(Step::new("let any driver have it", device.folder.join("driver_override"), "\n"));
    steps.push(Step::new("let its driver find it", sysfs.drivers_probe(), device.address.to_string()));
    steps
}

fn unbind(device: &PciDevice) -> Option<Step> {
    let driver = device.driver.as_ref()?;
    let what = format!("take it from {driver}");
    Some(Step::new(what, device.folder.join("driver/unbind"), device.address.to_string()))
}

/// Gives a function to `vfio-pci`.
///
/// # Errors
/// The kernel refuses; the function has its former driver then, as far as the kernel lets it.
pub fn bind(sysfs: &Sysfs, device: &PciDevice) -> Result<PciDevice, BindingError> {
    let steps = to_vfio(sysfs, device);
    if steps.is_empty() {
        return Ok(device.clone());
    }
    let done = steps.iter().try_for_each(Step::take).and_then(|()| {
        let now = sysfs.device(device.address)?;
        if now.driver.as_deref() == Some(VFIO_PCI) {
            return Ok(now);
        }
        Err(BindingError::Elsewhere {
            address: device.address,
            driver: now.driver,
            wanted: VFIO_PCI.to_owned(),
        })
    });
    if done.is_err() {
        restore(sysfs, device);
    }
    done
}

/// Gives a function back.
///
/// # Errors
/// The kernel refuses.
pub fn unbind_from_vfio(sysfs: &Sysfs, device: &PciDevice) -> Result<PciDevice, BindingError> {
    from_vfio(sysfs, device).iter().try_for_each(Step::take)?;
    let now = sysfs.device(device.address)?;
    if now.driver.as_deref() == Some(VFIO_PCI) {
        let (driver, wanted) = (now.driver, "its own driver".to_owned());
        return Err(BindingError::Elsewhere { address: device.address, driver, wanted });
    }
    Ok(now)
}

/// Makes everything as `before` again.
fn restore(sysfs: &Sysfs, before: &PciDevice) {
    let word = before.driver_override.as_deref().unwrap_or("\n");
    let mut steps = vec![Step::new("undo", before.folder.join("driver_override"), word)];
    let now = sysfs.device(before.address).ok().and_then(|now| now.driver);
    if before.driver.is_some() && now != before.driver {
        steps.push(Step::new("undo", sysfs.drivers_probe(), before.address.to_string()));
    }
    for step in steps {
        if let Err(error) = step.take() {
            log::warn!(
                "{error}: {}",
                std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sysfs::tests::{FakeHost, GPU};
    use super::*;

    fn words(steps: &[Step]) -> Vec<(String, &str)> {
        let file = |step: &Step| step.file.file_name().unwrap().to_string_lossy().into_owned();
        steps.iter().map(|step| (file(step), &*step.word)).collect()
    }

    #[test]
    fn function_goes_to_vfio_by_three_words() {
        let host = FakeHost::new();
        let steps = to_vfio(&host.sysfs(), &host.device());
        let wanted = [("driver_override", "vfio-pci"), ("unbind", GPU), ("drivers_probe", GPU)];
        assert_eq!(words(&steps), wanted.map(|(file, word)| (file.to_owned(), word)));
    }

    #[test]
    fn function_of_vfio_goes_back_by_three_others() {
        let host = FakeHost::new();
        let device = PciDevice { driver: Some(VFIO_PCI.to_owned()), ..host.device() };
        assert_eq!(to_vfio(&host.sysfs(), &device), []);
        let steps = from_vfio(&host.sysfs(), &device);
        let wanted = [("unbind", GPU), ("driver_override", "\n"), ("drivers_probe", GPU)];
        assert_eq!(words(&steps), wanted.map(|(file, word)| (file.to_owned(), word)));
        assert_eq!(from_vfio(&host.sysfs(), &host.device()), []);
    }

    #[test]
    fn what_the_kernel_refuses_is_undone() {
        // Here is no file `unbind`: the second step fails.
        let host = FakeHost::new();
        let before = host.device();

        let error = bind(&host.sysfs(), &before).unwrap_err();

        assert!(error.to_string().starts_with("take it from nouveau: cannot write"), "{error}");
        assert_eq!(host.device(), before);
    }

    #[test]
    fn driver_that_does_not_come_is_told() {
        let host = FakeHost::new();
        let sysfs = host.sysfs();
        // Files that take everything and do nothing.
        fs::write(sysfs.driver("nouveau").join("unbind"), "").unwrap();
        fs::write(sysfs.drivers_probe(), "").unwrap();

        let error = bind(&sysfs, &host.device()).unwrap_err();

        assert!(error.to_string().contains("has driver nouveau after that, not vfio-pci"), "{error}");
        assert_eq!(host.device().driver_override, None);
    }
}
