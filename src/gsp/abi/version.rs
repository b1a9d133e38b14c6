//! What makes a version of the firmware ABI.

use std::fmt;

use super::common::classes::MEMORY_LISTS;
use super::table::{Class, Control, Function, Source, Type};
use super::values::{ErrorLog, Host, RcTriggered, StaticInfo};
use gpuvmk_chip::catalogue::ChipClasses;

/// A version of the firmware ABI.
pub struct Abi {
    /// The version as file names have it.
    pub version: &'static str,
    /// Bytes of what a driver tells of the host first (SET_SYSTEM_INFO). Each version has its own, so it
    /// says which one a driver speaks.
    pub system_info: usize,
    /// Bytes of what a client is allocated with.
    pub client_parameters: usize,
    /// Handle of the client that firmware makes for itself.
    pub internal_client: u32,
    /// Tables of every function that is known.
    pub functions: &'static [&'static [Function]],
    /// Where they are known from.
    pub functions_source: Source,
    /// Tables of every class that is known, but `NV01_ROOT`.
    pub classes: &'static [&'static [Class]],
    /// Where they are known from.
    pub classes_source: Source,
    /// Tables of every control that is known.
    pub controls: &'static [&'static [Control]],
    /// Tables of controls of a display engine, which chips without one do not know.
    pub display: &'static [&'static [Control]],
    /// Controls that have another name in this version than in the list of [`super::names`], a line each:
    /// number and name, or the number alone where this version has no such control.
    pub renamed: &'static str,
    /// What of the host a driver says.
    pub host: fn(&[u8]) -> Host,
    /// Static info as a driver reads it.
    pub static_info: fn(&StaticInfo<'_>) -> Vec<u8>,
    /// The event that tells of a stopped channel.
    pub rc_triggered: fn(RcTriggered) -> Vec<u8>,
    /// The event that has a driver's log tell of an error, where its driver is told so.
    pub error_log: Option<fn(&ErrorLog) -> Vec<u8>>,
    /// Channels run again when GSP goes on after a suspension. Otherwise a control lets them, when the driver
    /// has put VRAM back.
    pub resume_runs_channels: bool,
    /// A driver can suspend GSP and come back.
    pub suspends: bool,
    /// The parameters of an allocation lie behind the length that its message says, in the same elements.
    pub parameters_follow: bool,
    /// A driver looks at a message's result to see whether an allocation was refused, and not at the status
    /// in its body.
    pub result_is_status: bool,
}

impl fmt::Debug for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Abi").field(&self.version).finish()
    }
}

impl Abi {
    /// A function.
    pub fn function(&self, number: u32) -> Option<&'static Function> {
        self.functions().find(|function| function.number == number)
    }

    /// The functions, table by table.
    pub fn functions(&self) -> impl Iterator<Item = &'static Function> + use<> {
        self.functions.iter().copied().flatten()
    }

    /// The classes, table by table.
    pub fn classes(&self) -> impl Iterator<Item = &'static Class> + use<> {
        self.classes.iter().copied().flatten()
    }

    /// A class of a chip.
    pub fn class(&self, chip: &ChipClasses, number: u32) -> Option<&'static Class> {
        self.classes().find(|class| class.number.says(number, chip))
    }

    /// The controls, table by table, those of a display engine last.
    pub fn controls(&self) -> impl Iterator<Item = &'static Control> + use<> {
        self.controls.iter().chain(self.display).copied().flatten()
    }

    /// A control.
    pub fn control(&self, number: u32) -> Option<&'static Control> {
        self.controls().find(|control| control.number == number)
    }

    /// A control of a GPU without a display engine.
    pub fn displayless_control(&self, number: u32) -> Option<&'static Control> {
        self.controls.iter().copied().flatten().find(|control| control.number == number)
    }

    /// What an object of a chip's class is, and what it can be below.
    pub fn place_of(&self, chip: &ChipClasses, class: u32) -> Option<(Type, &'static [Type])> {
        if MEMORY_LISTS.contains(&class) {
            return Some((Type::Memory, &[Type::Device]));
        }
        self.class(chip, class).map(|class| (class.object(), class.parents))
    }
}
