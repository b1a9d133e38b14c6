//! What a panic of a model leaves.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::*;
use crate::Preemption;
use crate::engine::control::Place;
use crate::mmu::Mmu;
use crate::mmu::fermi::FermiTables;
use gpuvmk_chip::Aperture;
use gpuvmk_chip::gf100::ramin::COPY0_CONTEXT_LO;

const INSTANCE: u64 = 0x1000;
const CHANNEL: HostChannel = HostChannel(3);

/// Panics where it is told to: in a method, or while it is saved.
#[derive(Debug, Default)]
struct Mistaken {
    in_save: bool,
}

impl Model for Mistaken {
    fn method(&mut self, _: &Run<'_>, method: Method, _: &mut Effects) -> Result<Progress, Refusal> {
        assert_ne!(method.method, 0x100, "as a mistake would");
        self.in_save = method.method == 0x200;
        Ok(Progress::Done)
    }

    fn resume(&mut self, _: &Run<'_>, _: &mut Effects) -> Result<Progress, Refusal> {
        panic!("as a mistake would");
    }

    fn save(&self) -> Vec<u8> {
        assert!(!self.in_save, "as a mistake would");
        Vec::new()
    }

    fn load(&mut self, _: &[u8]) {}

    fn image_size(&self) -> usize {
        0
    }

    fn image_offset(&self) -> u64 {
        0
    }

    fn reset(&mut self) {
        self.in_save = false;
    }
}

#[test]
fn work_that_panics_leaves_an_engine_that_is_idle_and_empty() {
    let mmu = Mmu::new(Arc::new(FermiTables::default()), u64::MAX, &[12]);
    let system = MemorySystem::new(1 << 20, mmu, 8).unwrap();
    let at = |address| PhysicalAddress { aperture: Aperture::Vram, address };
    system.memory.write(at(INSTANCE + COPY0_CONTEXT_LO), &0x2000_u64.to_le_bytes()).unwrap();
    let block = read_instance(&system.memory, at(INSTANCE)).unwrap();
    let space = system.mmu.address_space(&block);
    let owner = Owner { channel: Some(CHANNEL), generation: 1, instance: at(INSTANCE) };
    let unit = Unit::new(Engine::COPY0, || Box::<Mistaken>::default(), &Arc::default());
    let attention = AtomicBool::new(false);
    let execute = |operation| {
        let slice_end = Instant::now() + Duration::from_secs(3600);
        let preemption = Preemption::Anywhere;
        let place = Place::Engine;
        let control = Control { attention: &attention, abort: unit.abort(), slice_end, preemption, place };
        unit.execute(&system, owner, &space, control, operation)
    };
    let method = |method| Operation::Method(Method { subchannel: 0, method, data: 0 });

    for mistake in [method(0x100), Operation::Resume, method(0x200)] {
        assert!(matches!(execute(method(0x104)), Ok(Executed::Switched(_))));
        assert!(matches!(execute(method(0x104)), Ok(Executed::Ran(Progress::Done, _))));
        assert_eq!(unit.status().channel, Some(GuestChannel(CHANNEL.0)));
        // The last one panics only when its context is saved.
        let work = AssertUnwindSafe(|| {
            execute(mistake).unwrap();
            unit.evict(&system, CHANNEL, true)
        });
        assert!(catch_unwind(work).is_err(), "{mistake:?}");
        assert_eq!(unit.status(), EngineStatus::default(), "{mistake:?}");
        // The caller has nobody to wait for.
        unit.evict(&system, CHANNEL, true);
        unit.reset();
    }
}
