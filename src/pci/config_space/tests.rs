//! Tests of the configuration space: what a firmware and a driver do to it.

use super::*;
use crate::{RegionInfo, RegionTable};
use proptest::prelude::*;

const IDENTITY: Identity = Identity {
    vendor: 0x10de,
    device: 0x06c0,
    revision: 0xa3,
    class: 0x03_02_00,
    subsystem_vendor: 0x10de,
    subsystem: 0x075f,
};

/// The regions and capabilities of a GF100 card.
fn regions() -> RegionTable {
    let mut table = [RegionInfo::ABSENT; 8];
    table[0] = RegionInfo { kind: RegionKind::Memory32, size: 16 << 20 };
    table[1] = RegionInfo { kind: RegionKind::Memory64Prefetch, size: 128 << 20 };
    table[3] = RegionInfo { kind: RegionKind::Memory64Prefetch, size: 64 << 20 };
    table[5] = RegionInfo { kind: RegionKind::Io, size: 128 };
    table[6] = RegionInfo { kind: RegionKind::Rom, size: 64 << 10 };
    table[7] = RegionInfo { kind: RegionKind::Config, size: 4096 };
    table
}

fn builder() -> ConfigSpaceBuilder {
    let pcie = Capability::PcieEndpoint { link_speed: 2, link_width: 16, function_level_reset: true };
    ConfigSpaceBuilder::new(IDENTITY, regions())
        .capability(0x60, Capability::PowerManagement)
        .capability(0x68, Capability::Msi)
        .capability(0x78, pcie)
}

fn space() -> ConfigSpace {
    builder().build().unwrap()
}

fn read32(space: &ConfigSpace, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    space.read(offset, &mut bytes).unwrap();
    u32::from_le_bytes(bytes)
}

fn write32(space: &mut ConfigSpace, offset: u64, value: u32) -> ConfigChange {
    space.write(offset, &value.to_le_bytes()).unwrap()
}

#[test]
fn msix_capability_names_its_table_and_takes_two_bits() {
    let capability = Capability::MsiX { vectors: 3, bar: 1, table: 0x4000, pending: 0x5000 };
    let mut space =
        ConfigSpaceBuilder::new(IDENTITY, regions()).capability(0x40, capability).build().unwrap();
    assert_eq!((read32(&space, 0x44), read32(&space, 0x48)), (0x4001, 0x5001));
    assert_eq!((read32(&space, 0x40), space.msix_enabled()), (0x0002_0011, false));
    for offset in [0x40, 0x44, 0x48] {
        space.write(offset, &[0xff; 4]).unwrap();
    }
    assert_eq!((read32(&space, 0x40), space.msix_enabled()), (0xc002_0011, true));
    assert_eq!((read32(&space, 0x44), read32(&space, 0x48)), (0x4001, 0x5001));
    space.reset();
    assert!(!space.msix_enabled());
}

#[test]
fn identity_is_where_the_specification_puts_it() {
    let space = space();

    assert_eq!(read32(&space, 0x00), 0x06c0_10de);
    assert_eq!(read32(&space, 0x08), 0x0302_00a3);
    assert_eq!(read32(&space, 0x2c), 0x075f_10de);
    assert_eq!(read32(&space, 0x3c) >> 8 & 0xff, 1, "interrupt pin A");
}

#[test]
fn capability_chain_is_walkable_and_ends() {
    let space = space();
    let mut found = Vec::new();
    let mut at = read32(&space, 0x34) & 0xff;

    while at != 0 {
        let header = read32(&space, u64::from(at));
        found.push((at, header & 0xff));
        at = header >> 8 & 0xff;
    }

    assert_eq!(found, [(0x60, 0x01), (0x68, 0x05), (0x78, 0x10)]);
    assert_eq!(read32(&space, 0x04) >> 20 & 1, 1, "status: capabilities list");
}

#[test]
fn vendor_capabilities_may_be_several_and_have_bits_to_write() {
    let fixed = Capability::Vendor { content: &[6, 1, 2, 3], writable: &[] };
    let open = Capability::Vendor { content: &[8, 0, 0x55, 0x66], writable: &[0, 0, 0xf0] };
    let mut space = builder().capability(0xc0, fixed).capability(0xc8, open).build().unwrap();

    assert_eq!(read32(&space, 0xc0), 0x0106_c809);
    assert_eq!((read32(&space, 0xc4), read32(&space, 0xc8)), (0x0302, 0x0008_0009));
    write32(&mut space, 0xc4, !0);
    write32(&mut space, 0xcc, 0xffff_ffa1);
    assert_eq!((read32(&space, 0xc4), read32(&space, 0xcc)), (0x0302, 0x66a5));
    let overlap = builder().capability(0xc0, fixed).capability(0xc4, open).build();
    assert!(matches!(overlap, Err(BuildError::CapabilityPlace { id: 9, at: 0xc4, .. })));
}

#[test]
fn bar_sizing_returns_size_masks_with_type_bits() {
    let mut space = space();
    let mut size = |offset| {
        write32(&mut space, offset, !0);
        read32(&space, offset)
    };

    assert_eq!(size(0x10), 0xff00_0000);
    assert_eq!((size(0x14), size(0x18)), (0xf800_000c, 0xffff_ffff));
    assert_eq!((size(0x1c), size(0x20)), (0xfc00_000c, 0xffff_ffff));
    assert_eq!(size(0x24), 0xffff_ff81);
    assert_eq!(size(0x30), 0xffff_0001);
}

#[test]
fn bar_base_is_what_was_assigned() {
    let mut space = space();

    let moved = write32(&mut space, 0x14, 0xe000_0000).bars_moved;
    write32(&mut space, 0x18, 0x38);
    write32(&mut space, 0x24, 0xe000);

    assert!(moved);
    assert_eq!(space.bar_base(1), Some(0x38_e000_0000));
    assert_eq!(space.bar_base(5), Some(0xe000));
    assert_eq!(space.bar_base(2), None, "upper half of BAR 1");
    assert_eq!(space.bar_base(9), None);
}

#[test]
fn command_register_write_changes_control_and_nothing_else() {
    let mut space = space();

    let change = space.write(4, &[0xff, 0xff]).unwrap();

    assert!(change.control_changed() && !change.bars_moved && !change.reset_requested);
    assert!(!change.before.bus_master && change.after.bus_master);
    assert!(change.after.memory && change.after.io && change.after.intx_disabled);
    assert_eq!(read32(&space, 4) & 0xffff, 0x0547);
}

#[test]
fn msi_registers_are_stored_and_reported() {
    let mut space = space();

    write32(&mut space, 0x6c, 0xfee0_1007);
    write32(&mut space, 0x70, 1);
    space.write(0x74, &0x4021u16.to_le_bytes()).unwrap();
    let change = space.write(0x6a, &[0xff, 0xff]).unwrap();

    let expected = MsiState { enabled: true, address: 0x1_fee0_1004, data: 0x4021 };
    assert_eq!(change.after.msi, expected);
    assert!(space.msi_enabled());
    assert_eq!(read32(&space, 0x68) >> 16, 0x81, "one vector, 64-bit, enabled");
}

#[test]
fn power_state_is_stored() {
    let mut space = space();

    let change = write32(&mut space, 0x64, 3);

    assert_eq!(change.after.power, PowerState::D3Hot);
    assert_eq!(read32(&space, 0x64), 0xb, "no soft reset");
}

#[test]
fn status_errors_clear_by_writing_one_and_interrupt_status_does_not() {
    let mut space = space();
    space.value[7] = 0xf9;
    space.set_interrupt_status(true);

    write32(&mut space, 4, 0x4008_0000);

    assert_eq!(read32(&space, 4) >> 16, 0xb918);
    space.set_interrupt_status(false);
    assert_eq!(read32(&space, 4) >> 16, 0xb910);
}

#[test]
fn flr_bit_requests_a_reset_and_reads_zero() {
    let mut space = space();

    let whole = write32(&mut space, 0x80, 0x8000);
    let high_byte_alone = space.write(0x81, &[0x80]).unwrap();
    let neighbour = space.write(0x82, &[0xff]).unwrap();

    assert!(whole.reset_requested && high_byte_alone.reset_requested);
    assert!(!neighbour.reset_requested);
    assert_eq!(read32(&space, 0x80) & 0x8000, 0);
}

#[test]
fn flr_bit_means_nothing_to_a_function_without_it() {
    let pcie = Capability::PcieEndpoint { link_speed: 1, link_width: 1, function_level_reset: false };
    let mut space = ConfigSpaceBuilder::new(IDENTITY, regions()).capability(0x78, pcie).build().unwrap();

    assert!(!write32(&mut space, 0x80, 0x8000).reset_requested);
    assert_eq!(read32(&space, 0x7c) >> 28 & 1, 0);
}

#[test]
fn reset_restores_power_on_values() {
    let mut space = space();
    let fresh = space.value.clone();
    for offset in 0..256 {
        space.write(offset, &[0xff]).unwrap();
    }
    assert_ne!(space.value, fresh);

    space.reset();

    assert_eq!(space.value, fresh);
}

#[test]
fn extended_space_reads_zero_and_ignores_writes() {
    let mut space = space();

    space.write(0x100, &[0xff; 64]).unwrap();
    let mut bytes = [0xaa; 64];
    space.read(0x100, &mut bytes).unwrap();

    assert_eq!(bytes, [0; 64]);
}

#[test]
fn run_across_the_conventional_end_is_served() {
    let space = space();
    let mut all = vec![0xaa; CONFIG_SIZE];

    space.read(0, &mut all).unwrap();

    assert_eq!(all[..4], [0xde, 0x10, 0xc0, 0x06]);
    assert!(all[256..].iter().all(|&byte| byte == 0));
}

#[test]
fn access_beyond_the_end_is_refused_unchanged() {
    let mut space = space();
    let before = space.value.clone();

    for offset in [4093, 4096, u64::MAX] {
        assert!(matches!(space.read(offset, &mut [0; 4]), Err(AccessError::OutOfRange { .. })));
        assert!(matches!(space.write(offset, &[0xff; 4]), Err(AccessError::OutOfRange { .. })));
    }
    assert!(space.write(0, &[0xff; 4097]).is_err());
    assert_eq!(space.value, before);
}

#[test]
fn impossible_layouts_are_refused() {
    let with = |index: usize, kind, size| {
        let mut table = regions();
        table[index] = RegionInfo { kind, size };
        ConfigSpaceBuilder::new(IDENTITY, table).build().unwrap_err()
    };

    assert!(matches!(with(0, RegionKind::Memory32, 3 << 20), BuildError::BarSize { bar: 0, .. }));
    assert!(matches!(with(0, RegionKind::Memory32, 1 << 32), BuildError::BarSize { bar: 0, .. }));
    assert!(matches!(with(2, RegionKind::Memory32, 4096), BuildError::BarKind { bar: 2, .. }));
    assert!(matches!(with(5, RegionKind::Memory64Prefetch, 4096), BuildError::BarKind { bar: 5, .. }));
    assert!(matches!(with(5, RegionKind::Io, 512), BuildError::BarSize { bar: 5, .. }));
    assert!(matches!(with(6, RegionKind::Rom, 512), BuildError::BarSize { bar: 6, .. }));
    let overlap = builder().capability(0x6c, Capability::Msi).build().unwrap_err();
    assert!(matches!(overlap, BuildError::CapabilityPlace { at: 0x6c, .. }));
    let outside = builder().capability(0xfc, Capability::Msi).build().unwrap_err();
    assert!(matches!(outside, BuildError::CapabilityPlace { at: 0xfc, .. }));
}

proptest! {
    #[test]
    fn read_only_bits_survive_any_writes(writes in proptest::collection::vec((0u64..300, any::<[u8; 4]>(), 1usize..5), 0..64)) {
        let mut space = space();
        let fresh = space.clone();

        for (offset, bytes, size) in writes {
            space.write(offset, &bytes[..size]).unwrap();
        }

        for position in 0..CONVENTIONAL_SIZE {
            let fixed = !(fresh.writable[position] | fresh.write_1_to_clear[position]);
            prop_assert_eq!(space.value[position] & fixed, fresh.value[position] & fixed);
        }
    }
}
