//! The classes of a chip, by what they are for.

use crate::display::ChannelKind;
use crate::nv::classes::{Class, Role};

/// The classes that drivers of a chip use.
#[derive(Clone, Copy, Debug)]
pub struct ChipClasses {
    /// Channels.
    pub channel: Class,
    /// Copy engines. A chip may have one class for each engine.
    pub copy: &'static [Class],
    /// 3D.
    pub three_d: Class,
    /// Compute.
    pub compute: Class,
    /// 2D.
    pub two_d: Class,
    /// Data from the command stream, or from memory, to memory.
    pub to_memory: Class,
    /// The page with the doorbell, where the chip has one.
    pub usermode: Option<Class>,
    /// The display engine, where its driver cannot be told that there is none.
    pub display: Option<Class>,
    /// What a display engine with a head has, where there can be one: where a guest's picture was seen.
    pub heads: Option<DisplayClasses>,
}

/// The classes of a display engine and of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisplayClasses {
    /// The engine.
    pub root: Class,
    /// The core channel.
    pub core: Class,
    /// Windows.
    pub window: Class,
    /// Places of windows.
    pub immediate: Class,
    /// Cursors.
    pub cursor: Class,
}

impl DisplayClasses {
    /// What a channel of that class drives.
    pub fn channel(&self, class: u32) -> Option<ChannelKind> {
        let kinds = [
            (self.core, ChannelKind::Core),
            (self.window, ChannelKind::Window),
            (self.immediate, ChannelKind::Immediate),
            (self.cursor, ChannelKind::Cursor),
        ];
        kinds.into_iter().find(|(known, _)| known.number == class).map(|(_, kind)| kind)
    }
}

impl ChipClasses {
    /// The classes that a channel of a tenant may name, its own first. A physical GPU must have all of them.
    pub fn for_tenants(&self) -> Vec<Class> {
        let mut all = vec![self.channel];
        all.extend(self.copy);
        all.extend([self.three_d, self.compute, self.two_d, self.to_memory]);
        all
    }

    /// The class for this.
    pub fn of(&self, role: Role) -> Option<Class> {
        self.for_tenants().into_iter().chain(self.usermode).find(|class| class.role == role)
    }

    /// The first class that a physical GPU lacks.
    pub fn missing(&self, offered: &[Class]) -> Option<Class> {
        self.for_tenants().into_iter().find(|class| !offered.contains(class))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Chip;

    #[test]
    fn each_class_is_what_its_place_says() {
        for chip in Chip::ALL {
            let classes = chip.classes;
            for class in classes.for_tenants() {
                assert!(classes.of(class.role).is_some(), "{chip}: {}", class.name);
            }
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for chip in Chip::ALL {
            let mut offered = chip.classes.for_tenants();
            assert_eq!(chip.classes.missing(&offered), None);
            while let Some(gone) = offered.pop() {
                assert_eq!(chip.classes.missing(&offered), Some(gone));
            }
        }
    }
}
