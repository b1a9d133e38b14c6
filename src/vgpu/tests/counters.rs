//! What operators are told of a driver.

use super::*;
use crate::{Vgpu, VgpuConfig};
use gpuvmk_chip::Chip;
use gpuvmk_pci::{PciFunction, Region};

/// A register that no table of any chip lists.
const UNLISTED: u64 = 0x0f_0ff0;

#[test]
fn accesses_of_note_are_reported_at_once_and_others_are_not() {
    for chip in [Chip::GF100, Chip::GH100] {
        let link = Arc::new(FakeLink::default());
        let vgpu = Vgpu::new(link.clone(), grant(), VgpuConfig::of(chip).unwrap()).unwrap();
        let told = || std::mem::take(&mut *link.driver.lock().unwrap());
        let read = |offset| vgpu.read(Region::Bar(0), offset, &mut [0; 4]).unwrap();
        read(0);
        told();

        read(UNLISTED);
        assert_eq!(told().face.unlisted_reads, 1);
        read(0);
        assert_eq!(told(), DriverCounters::default(), "nothing new");
        vgpu.write(Region::Bar(0), UNLISTED, &[0; 4]).unwrap();
        assert_eq!(told(), vgpu.driver_counters());
        assert_eq!(vgpu.driver_counters().face.unlisted_writes, 1);
    }
}
