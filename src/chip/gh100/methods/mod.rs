//! Classes that GH100's drivers use and their methods: what a command stream can say, as data.
//!
//! Methods below 0x100 belong to the host unit (PBDMA), whatever the subchannel is. The subchannel alone
//! decides which engine gets the others: on the graphics runlist 0 to 3 go to graphics and compute and 4 to
//! the copy engine that sits there; elsewhere 0 to 4 go to the runlist's engine; 5 to 7 are for software.
//! Names follow NVIDIA's class headers (open-gpu-doc `classes/`), semantics `manuals/volta/gv100` dev_pbdma
//! and dev_ram.
//!
//! Not listed: the state of the 3D, 2D and compute classes, which nothing here interprets.

pub mod compute;
pub mod copy;
pub mod graphics;
pub mod host;
pub mod inline;
pub mod macros;
pub mod report;

use crate::EngineSet;
use crate::catalogue::{Chip, Face};
pub use crate::methods::{ClassDef, MethodDef};
use crate::methods::{find, masked, method, run};
use crate::nv::classes::{self, Class, Role};
use std::sync::LazyLock;

/// HOPPER_CHANNEL_GPFIFO_A: the channel itself.
pub const CLASS_HOST: u16 = classes::HOPPER_CHANNEL_GPFIFO_A.method_class();
/// HOPPER_DMA_COPY_A.
pub const CLASS_COPY: u16 = classes::HOPPER_DMA_COPY_A.method_class();
/// HOPPER_COMPUTE_A.
pub const CLASS_COMPUTE: u16 = classes::HOPPER_COMPUTE_A.method_class();
/// HOPPER_A: three-dimensional drawing.
pub const CLASS_3D: u16 = classes::HOPPER_A.method_class();
/// FERMI_TWOD_A: two-dimensional drawing.
pub const CLASS_2D: u16 = classes::FERMI_TWOD_A.method_class();
/// KEPLER_INLINE_TO_MEMORY_B.
pub const CLASS_INLINE: u16 = classes::KEPLER_INLINE_TO_MEMORY_B.method_class();

/// Subchannel of the copy engine on the graphics runlist.
pub const SUBCHANNEL_COPY: u8 = 4;
/// The first subchannel whose methods the driver executes in software.
pub const SUBCHANNEL_SOFTWARE: u8 = 5;

/// Classes of subchannels 0 to 3 of the graphics runlist, unless SET_OBJECT says otherwise.
pub const GRAPHICS_SUBCHANNELS: [u16; 4] = [CLASS_3D, CLASS_COMPUTE, CLASS_INLINE, CLASS_2D];

/// The classes that GH100's drivers use, in ascending order.
pub const CLASSES: &[ClassDef] = &[
    ClassDef { class: CLASS_2D, name: classes::FERMI_TWOD_A.name, methods: graphics::TWOD_METHODS },
    ClassDef { class: CLASS_INLINE, name: classes::KEPLER_INLINE_TO_MEMORY_B.name, methods: inline::METHODS },
    ClassDef { class: CLASS_HOST, name: classes::HOPPER_CHANNEL_GPFIFO_A.name, methods: host::METHODS },
    ClassDef { class: CLASS_COPY, name: classes::HOPPER_DMA_COPY_A.name, methods: copy::METHODS },
    ClassDef { class: CLASS_3D, name: classes::HOPPER_A.name, methods: graphics::THREED_METHODS },
    ClassDef { class: CLASS_COMPUTE, name: classes::HOPPER_COMPUTE_A.name, methods: compute::METHODS },
];

/// The classes of all chips whose drivers ask GSP, in ascending order. Those of one role have the same
/// methods, as far as they are known here.
pub static GSP_CLASSES: LazyLock<Vec<Class>> = LazyLock::new(|| {
    let mut all: Vec<Class> =
        Chip::with_face(Face::Gsp).flat_map(|chip| chip.classes.for_tenants()).collect();
    all.sort_by_key(|class| class.number);
    all.dedup();
    all
});

/// What objects of a class do, if it is one of [`GSP_CLASSES`].
pub fn role(class: u32) -> Option<Role> {
    let found = GSP_CLASSES.binary_search_by_key(&class, |known| known.number).ok()?;
    GSP_CLASSES.get(found).map(|class| class.role)
}

/// The engines that have objects of a class.
pub fn class_engines(class: u32) -> EngineSet {
    match role(class) {
        Some(Role::Copy) => EngineSet::COPIES,
        Some(Role::Compute | Role::ThreeD | Role::TwoD | Role::InlineToMemory) => EngineSet::GRAPHICS,
        _ => EngineSet::empty(),
    }
}

/// What a method of an object of class `number` is, by the tables.
pub fn lookup(number: u16, address: u16) -> Option<&'static MethodDef> {
    if address < host::ENGINE_METHODS {
        return find(host::METHODS, address);
    }
    let role = role(number.into())?;
    let tables: &[&'static [MethodDef]] = match role {
        Role::Copy => &[copy::METHODS],
        Role::TwoD => &[graphics::TWOD_METHODS, graphics::METHODS, macros::METHODS],
        Role::InlineToMemory => &[inline::METHODS, graphics::METHODS],
        Role::ThreeD => {
            &[graphics::THREED_METHODS, graphics::METHODS, inline::METHODS, report::METHODS, macros::METHODS]
        }
        Role::Compute => {
            &[compute::METHODS, graphics::METHODS, inline::METHODS, report::METHODS, macros::METHODS]
        }
        _ => &[],
    };
    tables.iter().find_map(|methods| find(methods, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_do_not_overlap() {
        let own = CLASSES.iter().map(|class| class.methods);
        for table in own.chain([graphics::METHODS, report::METHODS, macros::METHODS]) {
            for pair in table.windows(2) {
                assert!(pair[0].method + 4 * pair[0].count <= pair[1].method, "{pair:?}");
            }
        }
        assert!(CLASSES.is_sorted_by_key(|class| class.class));
    }

    #[test]
    fn methods_are_found_by_class() {
        let name = |class, address| lookup(class, address).map(|def| def.name);
        assert_eq!(name(CLASS_COPY, 0x300), Some("LAUNCH_DMA"));
        assert_eq!(name(CLASS_COPY, 0x6c), Some("SEM_EXECUTE"));
        assert_eq!(name(CLASS_COMPUTE, 0x2c0), Some("SEND_SIGNALING_PCAS2_B"));
        assert_eq!(name(CLASS_COMPUTE, 0x1b4), Some("LOAD_INLINE_DATA"));
        assert_eq!(name(CLASS_3D, 0x1b0c), Some("SET_REPORT_SEMAPHORE_D"));
        assert_eq!(name(CLASS_2D, 0x10c), Some("NOTIFY"));
        assert_eq!(name(CLASS_3D, 0x3804), Some("CALL_MME"));
        assert_eq!(name(CLASS_INLINE, 0x3804), None);
        assert_eq!(name(CLASS_COPY, 0x10c), None);
        assert_eq!(name(0x1234, 0x300), None);
    }

    #[test]
    fn classes_belong_to_engines() {
        assert_eq!(class_engines(0xc8b5) & EngineSet::GRAPHICS, EngineSet::empty());
        assert!(class_engines(0xc8b5).contains(EngineSet::COPY2));
        assert_eq!(class_engines(0xcbc0), EngineSet::GRAPHICS);
        for class in [0xc86f, 0xc6b5, 0x1_c8b5, 0] {
            assert_eq!(class_engines(class), EngineSet::empty(), "{class:#x}");
        }
    }
}
