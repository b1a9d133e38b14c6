//! Giving a function to `vfio-pci`, and back: a few words written to files of the kernel's.
//!
//! Writes are planned first ([`to_vfio`], [`from_vfio`]), so that they can be shown without being made. If
//! the kernel refuses a step, or another driver has the function afterwards, all steps are undone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::sysfs::{PciDevice, Sysfs, SysfsError};

/// Name of the kernel's VFIO driver.
pub const VFIO_PCI: &str = "vfio-pci";

/// A word to be written to a file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Step {
    /// What it was for, in words.
    pub what: String,
    /// Path of the file.
    pub file: PathBuf,
    /// The text to write.
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
        /// Purpose of the step.
        what: String,
        /// The text to write.
        word: String,
        /// The file to write to.
        file: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Everything was written, and the function has another driver.
    #[error("{address} has {} after that, not {wanted}: see the kernel's messages (dmesg)", shown(.driver))]
    Elsewhere {
        /// PCI address of the function.
        address: String,
        /// The driver that has it.
        driver: Option<String>,
        /// The driver that it should have.
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

/// A function that is to change hands.
struct Party<'a> {
    address: String,
    folder: &'a Path,
    driver: Option<&'a str>,
    driver_override: Option<&'a str>,
}

/// The GPU, then the card's other functions: VFIO resets all of a card or nothing of it, and takes a group as
/// a whole.
fn parties(device: &PciDevice) -> impl Iterator<Item = Party<'_>> {
    let gpu = Party {
        address: device.address.to_string(),
        folder: &device.folder,
        driver: device.driver.as_deref(),
        driver_override: device.driver_override.as_deref(),
    };
    let siblings = device.siblings().map(|sibling| Party {
        address: sibling.address.clone(),
        folder: &sibling.folder,
        driver: sibling.driver.as_deref(),
        driver_override: sibling.driver_override.as_deref(),
    });
    std::iter::once(gpu).chain(siblings)
}

/// Steps that give a card to `vfio-pci`; none if it has it.
pub fn to_vfio(sysfs: &Sysfs, device: &PciDevice) -> Vec<Step> {
    let missing = parties(device).filter(|party| party.driver != Some(VFIO_PCI));
    missing
        .flat_map(|party| {
            let only = format!("let only vfio-pci have {}", party.address);
            let find = format!("let vfio-pci find {}", party.address);
            let mut steps = vec![Step::new(only, party.folder.join("driver_override"), VFIO_PCI)];
            steps.extend(unbind(&party));
            steps.push(Step::new(find, sysfs.drivers_probe(), &*party.address));
            steps
        })
        .collect()
}

/// Steps that give a card back to the drivers that the kernel finds for it; none if `vfio-pci` does not have
/// it.
pub fn from_vfio(sysfs: &Sysfs, device: &PciDevice) -> Vec<Step> {
    let taken = parties(device).filter(|party| party.driver == Some(VFIO_PCI));
    taken
        .flat_map(|party| {
            let any = format!("let any driver have {}", party.address);
            let find = format!("let its driver find {}", party.address);
            let mut steps: Vec<_> = unbind(&party).into_iter().collect();
            // An empty line takes the word back.
            steps.push(Step::new(any, party.folder.join("driver_override"), "\n"));
            steps.push(Step::new(find, sysfs.drivers_probe(), &*party.address));
            steps
        })
        .collect()
}

fn unbind(party: &Party<'_>) -> Option<Step> {
    let what = format!("take {} from {}", party.address, party.driver?);
    Some(Step::new(what, party.folder.join("driver/unbind"), &*party.address))
}

/// Gives a card to `vfio-pci`.
///
/// # Errors
/// The kernel refuses. Its functions then have their former drivers again, unless the kernel refuses that
/// too.
pub fn bind(sysfs: &Sysfs, device: &PciDevice) -> Result<PciDevice, BindingError> {
    let steps = to_vfio(sysfs, device);
    if steps.is_empty() {
        return Ok(device.clone());
    }
    let done = steps.iter().try_for_each(Step::take).and_then(|()| {
        let now = sysfs.device(device.address)?;
        let other = parties(&now).find(|party| party.driver != Some(VFIO_PCI));
        let elsewhere = other.map(|other| BindingError::Elsewhere {
            address: other.address,
            driver: other.driver.map(str::to_owned),
            wanted: VFIO_PCI.to_owned(),
        });
        elsewhere.map_or(Ok(now), Err)
    });
    if done.is_err() {
        restore(sysfs, device);
    }
    done
}

/// Gives a card back.
///
/// # Errors
/// The kernel refuses.
pub fn unbind_from_vfio(sysfs: &Sysfs, device: &PciDevice) -> Result<PciDevice, BindingError> {
    from_vfio(sysfs, device).iter().try_for_each(Step::take)?;
    let now = sysfs.device(device.address)?;
    let still = parties(&now).find(|party| party.driver == Some(VFIO_PCI));
    let elsewhere = still.map(|still| BindingError::Elsewhere {
        address: still.address,
        driver: Some(VFIO_PCI.to_owned()),
        wanted: "its own driver".to_owned(),
    });
    elsewhere.map_or(Ok(now), Err)
}

/// Makes everything as `before` again.
fn restore(sysfs: &Sysfs, before: &PciDevice) {
    for party in parties(before) {
        let word = party.driver_override.unwrap_or("\n");
        let mut steps = vec![Step::new("undo", party.folder.join("driver_override"), word)];
        let now = party.address.parse().ok().and_then(|address| sysfs.device(address).ok());
        let now = now.and_then(|now| now.driver);
        if now.as_deref() != party.driver {
            // The driver that has it now has it by mistake.
            let taken = Party { driver: now.as_deref(), ..party };
            steps.extend(unbind(&taken));
            if party.driver.is_some() {
                steps.push(Step::new("undo", sysfs.drivers_probe(), &*taken.address));
            }
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
    fn other_functions_of_the_card_go_with_it() {
        let host = FakeHost::new();
        host.add("0000:01:00.1", 0x04_0300, Some("snd_hda_intel"));
        host.add("0000:01:00.2", 0x0c_0330, Some(VFIO_PCI));
        // Another slot of the bus, and a bridge.
        host.add("0000:01:01.0", 0x02_0000, Some("e1000e"));
        host.add("0000:01:00.3", 0x06_0400, Some("pcieport"));

        let steps = to_vfio(&host.sysfs(), &host.device());
        let what: Vec<_> = steps.iter().map(|step| &*step.what).collect();
        assert_eq!(
            what,
            [
                "let only vfio-pci have 0000:01:00.0",
                "take 0000:01:00.0 from nouveau",
                "let vfio-pci find 0000:01:00.0",
                "let only vfio-pci have 0000:01:00.1",
                "take 0000:01:00.1 from snd_hda_intel",
                "let vfio-pci find 0000:01:00.1",
            ]
        );
        let back = from_vfio(&host.sysfs(), &host.device());
        assert_eq!(words(&back).first(), Some(&("unbind".to_owned(), "0000:01:00.2")), "{back:?}");
        assert_eq!(back.len(), 3);
    }

    #[test]
    fn what_the_kernel_refuses_is_undone() {
        // Here is no file `unbind`: the second step fails.
        let host = FakeHost::new();
        let before = host.device();

        let error = bind(&host.sysfs(), &before).unwrap_err();

        let said = error.to_string();
        assert!(said.starts_with("take 0000:01:00.0 from nouveau: cannot write"), "{said}");
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
