//! How driver and firmware say it: by version of the firmware.
//!
//! GSP's message ABI has no compatibility promise: a driver is built for one firmware version. [`common`] has
//! what is the same in every version known. What differs (boot arguments, static info, parameters, numbers of
//! controls, events) is one module a version, which fills in an [`Abi`]: tables of functions, classes and
//! controls, whose rows read a driver's bytes into [`values`] and write [`values`] for it. The model knows
//! nothing else, and nothing outside of this folder names a version.
//!
//! Sources: headers of open-gpu-kernel-modules, and `nvkm/subdev/gsp/rm` of Linux 7.2.

pub mod common;
pub(crate) mod engines;
pub mod names;
pub mod r570_144;
pub mod status;
pub mod table;
pub mod values;

use std::fmt;

use table::{Class, Control, Function, Source, Type};
use values::{RcTriggered, StaticInfo};

/// Asserts at build time that a struct has the size and the offsets that firmware expects.
macro_rules! layout {
    ($name:ident: $size:expr $(, $field:ident @ $offset:expr)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}
pub(crate) use layout;

// The layouts hold native integers.
const _: () = assert!(cfg!(target_endian = "little"));

/// A version of the firmware ABI.
pub struct Abi {
    /// The version as file names have it.
    pub version: &'static str,
    /// Bytes of what a driver tells of the host first (SET_SYSTEM_INFO). Each version has its own, so it
    /// says which one a driver speaks.
    pub system_info: usize,
    /// Bytes of the region RMARGS. It begins with where the queues are.
    pub rm_arguments: usize,
    /// Bytes of what a client is allocated with.
    pub client_parameters: usize,
    /// Every function that is known.
    pub functions: &'static [Function],
    /// Where they are known from.
    pub functions_source: Source,
    /// Every class that is known, but `NV01_ROOT`.
    pub classes: &'static [Class],
    /// Where they are known from.
    pub classes_source: Source,
    /// Tables of every control that is known.
    pub controls: &'static [&'static [Control]],
    /// Static info as a driver reads it.
    pub static_info: fn(&StaticInfo<'_>) -> Vec<u8>,
    /// The event that tells of a stopped channel.
    pub rc_triggered: fn(RcTriggered) -> Vec<u8>,
}

/// Every version that is spoken, the one first that is taken until a driver says which it speaks.
pub static VERSIONS: &[&Abi] = &[&r570_144::ABI];

impl fmt::Debug for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Abi").field(&self.version).finish()
    }
}

impl Abi {
    /// The version that is taken until a driver says which it speaks.
    pub fn usual() -> &'static Self {
        &r570_144::ABI
    }

    /// The version of that name.
    pub fn by_version(version: &str) -> Option<&'static Self> {
        VERSIONS.iter().copied().find(|abi| abi.version == version)
    }

    /// The version whose drivers tell of the host in that many bytes.
    pub fn of_system_info(size: usize) -> Option<&'static Self> {
        VERSIONS.iter().copied().find(|abi| abi.system_info == size)
    }

    /// A function.
    pub fn function(&self, number: u32) -> Option<&'static Function> {
        self.functions.iter().find(|function| function.number == number)
    }

    /// A class.
    pub fn class(&self, number: u32) -> Option<&'static Class> {
        self.classes.iter().find(|class| class.number == number)
    }

    /// The controls, table by table.
    pub fn controls(&self) -> impl Iterator<Item = &'static Control> + use<> {
        self.controls.iter().copied().flatten()
    }

    /// A control.
    pub fn control(&self, number: u32) -> Option<&'static Control> {
        self.controls().find(|control| control.number == number)
    }

    /// What an object of a class is, and what it can be below.
    pub fn place_of(&self, class: u32) -> Option<(Type, &'static [Type])> {
        if common::classes::MEMORY_LISTS.contains(&class) {
            return Some((Type::Memory, &[Type::Device]));
        }
        self.class(class).map(|class| (class.object(), class.parents))
    }
}
