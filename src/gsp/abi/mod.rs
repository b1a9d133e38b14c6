//! How driver and firmware say it: by version of the firmware.
//!
//! GSP's message ABI has no compatibility promise: a driver is built for one firmware version. [`common`] has
//! the parts that are the same in every known version. The others (boot arguments, static info, parameters,
//! numbers of controls, events) are in one module a version, which fills in an [`Abi`]: tables of functions,
//! classes and controls, whose rows read a driver's bytes into [`values`] and write [`values`] for it. The
//! model knows nothing else, and nothing outside of this folder names a version.
//!
//! Sources: headers of open-gpu-kernel-modules, and `nvkm/subdev/gsp/rm` of Linux 7.2.

pub mod common;
pub mod display;
pub mod forms;
pub mod names;
pub mod nvidia;
pub mod object_type;
pub mod r535_113;
pub mod r535_261;
pub mod r550_163;
pub mod r570_144;
pub mod status;
pub mod table;
pub mod values;
mod version;

pub use version::Abi;

// The layouts hold native integers.
const _: () = assert!(cfg!(target_endian = "little"));

/// Every version that is spoken, the one first that is taken until a driver says which it speaks.
pub static VERSIONS: &[&Abi] = &[&r570_144::ABI, &r535_113::ABI, &r550_163::ABI, &r535_261::ABI];

/// The version that is taken until a driver says which it speaks.
pub fn usual() -> &'static Abi {
    &r570_144::ABI
}

/// The version of that name.
pub fn by_version(version: &str) -> Option<&'static Abi> {
    VERSIONS.iter().copied().find(|abi| abi.version == version)
}

/// The version whose drivers tell of the host in that many bytes.
pub fn of_system_info(size: usize) -> Option<&'static Abi> {
    VERSIONS.iter().copied().find(|abi| abi.system_info == size)
}
