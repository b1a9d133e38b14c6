//! The description of the GPU's memory for drivers.
//!
//! The top of VRAM is not the driver's: page tables of the two BARs lie there. Two numbers look odd and are
//! so on purpose, because of what nouveau computes from them when it suspends:
//!
//! - The size of the memory in which GSP's state is saved is taken from the two offsets of the firmware's
//!   region, which real firmware chooses. Ours leave what the most objects take that a driver may have.
//! - The size of the memory for reserved VRAM is the heap's offset (0 where GSP lays VRAM out) minus the end
//!   of the last region that is not reserved, in 32 bits. A region behind the end of VRAM, up to what equals
//!   the offset in 32 bits, makes that 0. It is neither compressible nor for display, so nothing is allocated
//!   from it.

use crate::abi::values::{MemoryRegion, StaticInfo};
use crate::model::config::GspConfig;
use crate::model::rm::{INTERNAL_DEVICE, INTERNAL_SUBDEVICE, Rm};
use crate::model::saved;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// First byte of VRAM that drivers may use: real firmware keeps the first MiB.
const USABLE_START: u64 = MIB;
/// Bytes at the top that they may not use.
pub(super) const RESERVED_TOP: u64 = 4 * MIB;
/// Size of the firmware runtime services region, which drivers assume.
const FRTS_SIZE: u64 = MIB;

/// The two ranges that are reported to drivers.
fn regions(vram: u64, driver_heap: u64) -> [MemoryRegion; 2] {
    let usable_end = vram.saturating_sub(RESERVED_TOP);
    let round = vram.saturating_div(4 * GIB).saturating_add(1).saturating_mul(4 * GIB);
    let beyond = round.saturating_add(driver_heap % (4 * GIB));
    [
        MemoryRegion { base: USABLE_START, limit: usable_end.saturating_sub(1), usable: true },
        MemoryRegion { base: vram, limit: beyond.saturating_sub(1), usable: false },
    ]
}

/// Bytes of VRAM that a driver may use.
pub(super) fn usable(vram: u64) -> u64 {
    vram.saturating_sub(RESERVED_TOP).saturating_sub(USABLE_START)
}

/// What is asked for, for the driver of a resource manager.
pub(super) fn of(rm: &Rm) -> Vec<u8> {
    let about = About { client: rm.abi.internal_client, driver_heap: rm.non_wpr_heap };
    with_info(&rm.config, about, rm.abi.static_info)
}

/// What beside the configuration goes into static info.
#[derive(Clone, Copy, Default)]
struct About {
    /// Handle of firmware's own client.
    client: u32,
    /// Where the driver has put the heap outside of the protected region, 0 where GSP does that.
    driver_heap: u64,
}

/// Calls `with` with all of it.
fn with_info<T>(config: &GspConfig, about: About, with: impl FnOnce(&StaticInfo<'_>) -> T) -> T {
    let heap = config.vram.saturating_sub(RESERVED_TOP);
    let saved = config.hal.non_wpr_heap.saturating_sub(FRTS_SIZE).saturating_add(saved::room(config));
    with(&StaticInfo {
        name: config.hal.name,
        short_name: config.hal.short_name,
        vram: config.vram,
        regions: &regions(config.vram, about.driver_heap),
        gpc_mask: config.graphics().gpc_mask(),
        tpc_masks: config.graphics().tpc_masks(),
        bar1_root: config.bar1_root(),
        bar2_root: config.bar2_root(),
        internal: [about.client, INTERNAL_DEVICE, INTERNAL_SUBDEVICE],
        non_wpr_heap: heap,
        frts: heap.saturating_add(saved),
        identity: config.uuid,
        engines: config.engines,
        subsystem: [config.pci.subsystem_vendor, config.pci.subsystem],
        multiprocessor: config.hal.multiprocessor,
        memory: config.hal.memory,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::values::PciIdentity;
    use crate::hal::GH100;
    use crate::model::ObjectLimits;
    use gpuvmk_chip::EngineSet;

    /// The sizes that nouveau computes from static info before it suspends, in its own arithmetic.
    fn suspend_sizes(info: &StaticInfo<'_>) -> (u64, u64) {
        let saved = (info.frts + FRTS_SIZE) - (info.non_wpr_heap + GH100.non_wpr_heap);
        let last = info.regions.last().unwrap();
        (saved, last.limit.wrapping_add(1) % (4 * GIB))
    }

    #[test]
    fn suspend_needs_room_for_all_objects_and_no_reserved_memory_for_any_size_of_vram() {
        for mib in [64, 100, 256, 4095, 4096, 4097, 24 * 1024, 64 * 1024] {
            let config = GspConfig {
                hal: &GH100,
                vram: mib * MIB,
                engines: EngineSet::GRAPHICS,
                channels: 1,
                graphics: None,
                objects: ObjectLimits::default(),
                pci: PciIdentity::default(),
                uuid: [0; 16],
                has_head: false,
            };

            let sizes = with_info(&config, About::default(), suspend_sizes);

            assert_eq!(sizes, (0x10_1000, 0), "{mib} MiB: 64 bytes for each of 16384 objects");
        }
    }

    #[test]
    fn the_last_region_ends_where_the_drivers_heap_is_in_32_bits() {
        for (vram, heap) in [(64 * MIB, 0xffff_ffff_ffc0_0000), (12 * GIB, 0x2_f000_0000), (GIB, 0x3800_0000)]
        {
            let config = GspConfig {
                hal: &GH100,
                vram,
                engines: EngineSet::GRAPHICS,
                channels: 1,
                graphics: None,
                objects: ObjectLimits::default(),
                pci: PciIdentity::default(),
                uuid: [0; 16],
                has_head: false,
            };

            let last =
                with_info(&config, About { driver_heap: heap, ..About::default() }, |info| info.regions[1]);

            assert!(last.base == vram && last.limit > vram && !last.usable);
            assert_eq!((last.limit + 1) % (4 * GIB), heap % (4 * GIB));
        }
    }

    #[test]
    fn usable_memory_ends_below_the_page_tables_of_the_bars() {
        let config = GspConfig {
            hal: &GH100,
            vram: 64 * MIB,
            engines: EngineSet::GRAPHICS,
            channels: 1,
            graphics: None,
            objects: ObjectLimits::default(),
            pci: PciIdentity::default(),
            uuid: [0; 16],
            has_head: false,
        };

        with_info(&config, About::default(), |info| {
            assert!(info.regions[0].usable && !info.regions[1].usable);
            assert_eq!((info.regions[0].base, info.regions[0].limit), (MIB, 60 * MIB - 1));
            assert!(info.bar1_root > info.regions[0].limit && info.bar2_root > info.bar1_root);
            assert!(info.bar2_root + 0x1000 <= config.vram);
        });
    }
}
