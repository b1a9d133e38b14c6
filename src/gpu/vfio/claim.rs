//! One gpuvmk at a time: a lock on the function's configuration file.
//!
//! VFIO itself lets one process open a group, and says only "busy" to the next, not who has it. Between two
//! commands of gpuvmk (`unbind` while an aggregator starts) it says nothing at all.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};

use super::sysfs::PciDevice;

/// A function that no other gpuvmk may touch meanwhile.
#[derive(Debug)]
pub struct Claim {
    // The lock lasts as long as the file is open.
    _file: File,
}

impl Claim {
    /// Claims a function; `None` if another process has it.
    pub(super) fn take(device: &PciDevice) -> io::Result<Option<Self>> {
        let file = File::open(device.folder.join("config"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sysfs::tests::{FakeHost, GPU};
    use super::*;

    #[test]
    fn second_claim_waits_for_the_first_to_go() {
        let host = FakeHost::new();
        host.write(GPU, "config", "");
        let device = host.device();

        let first = Claim::take(&device).unwrap();
        assert!(first.is_some() && Claim::take(&device).unwrap().is_none());

        drop(first);
        assert!(Claim::take(&device).unwrap().is_some());
    }
}
