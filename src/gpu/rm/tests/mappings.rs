//! Mappings: calls, page sizes, pieces of memory, cuts, refusals.

use super::*;

#[test]
fn mappings_that_go_on_and_one_call() {
    let (mut rig, space) = Rig::with_tenant();
    let maps: Vec<_> = (0..8).map(|n| vram(0x20_0000 + n * 0x1000, 1, 12, n * 0x1000)).collect();
    rig.map(space, &maps).unwrap();
    assert_eq!(rig.mock.state().maps, 1);
    let (_, offset, _) = rig.mock.state().translate(0x20_5000).unwrap();
    assert_eq!(offset, 0x5000);
}

#[test]
fn page_sizes_of_vram_and_pages_of_system_memory() {
    let (mut rig, space) = Rig::with_tenant();
    let maps = [vram(0x400_0000, 2, 21, 0), vram(0x500_0000, 2, 16, 0), system(0x600_0000, 16, 1 << 32)];
    rig.map(space, &maps).unwrap();
    let state = rig.mock.state();
    let page = |va| state.translate(va).unwrap().2 & 0xf00;
    assert_eq!(page(0x400_0000), flags::map::PAGE_2M);
    assert_eq!(page(0x500_0000), flags::map::PAGE_64K);
    assert_eq!(page(0x600_0000), flags::map::PAGE_4K);
}

#[test]
fn read_only_mapping_and_its_flag() {
    let (mut rig, space) = Rig::with_tenant();
    let map = HostMapping { read_only: true, ..system(0x20_0000, 1, 1 << 32) };
    rig.map(space, &[map]).unwrap();
    let (_, _, found) = rig.mock.state().translate(0x20_0000).unwrap();
    assert_eq!(found & flags::map::READ_ONLY, flags::map::READ_ONLY);
}

#[test]
fn addresses_that_are_the_drivers_and_a_refusal_that_leaves_the_rest_mapped() {
    let (mut rig, space) = Rig::with_tenant();
    for taken in [0x0, 0x1_0000_0000, 0xc0_0000_0000, 0xff_ffff_f000] {
        let error = rig.map(space, &[vram(taken, 1, 12, 0), vram(0x20_0000, 1, 12, 0)]).unwrap_err();
        assert!(error.to_string().contains("the NVIDIA driver's"), "{error}");
        assert!(rig.mock.state().translate(0x20_0000).is_some());
        assert!(rig.mock.state().translate(taken).is_none());
    }
    rig.map(space, &[vram(1 << 40, 1, 12, 0), vram(0xbf_ffff_f000, 1, 12, 0)]).unwrap();
}

#[test]
fn mapping_across_pieces_of_memory_and_each_its_object() {
    let (mut rig, space) = Rig::with_tenant();
    let pages = u32::try_from((2 * crate::rm::pinner::PIECE) >> 12).unwrap();
    rig.map(space, &[system(0x1000_0000, pages, (1 << 32) + 0x1000)]).unwrap();
    assert_eq!(rig.mock.state().count(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR), 3);
    let (first, offset, _) = rig.mock.state().translate(0x1000_0000).unwrap();
    let (second, start, _) =
        rig.mock.state().translate(0x1000_0000 + crate::rm::pinner::PIECE - 0x1000).unwrap();
    assert_eq!((offset, start), (0x1000, 0));
    assert_ne!(first, second);
}

#[test]
fn hole_in_a_large_page_and_its_remains_as_small_pages() {
    let (mut rig, space) = Rig::with_tenant();
    rig.map(space, &[vram(0x400_0000, 2, 21, 0)]).unwrap();
    rig.unmap(space, 0x400_5000, 1, 12).unwrap();
    let state = rig.mock.state();
    assert!(state.translate(0x400_5000).is_none());
    for (va, page) in [
        (0x400_4000, flags::map::PAGE_4K),
        (0x400_6000, flags::map::PAGE_4K),
        (0x420_0000, flags::map::PAGE_2M),
    ] {
        let (_, offset, found) = state.translate(va).unwrap();
        assert_eq!((offset, found & 0xf00), (va - 0x400_0000, page), "{va:#x}");
    }
}

#[test]
fn small_page_over_a_large_one_and_the_rest_of_it_as_small_pages() {
    let (mut rig, space) = Rig::with_tenant();
    rig.map(space, &[vram(0x400_0000, 1, 21, 0)]).unwrap();
    rig.map(space, &[vram(0x400_0000, 1, 12, 0x10_0000)]).unwrap();
    let state = rig.mock.state();
    let offset = |va| state.translate(va).map(|(_, offset, _)| offset);
    assert_eq!(offset(0x400_0000), Some(0x10_0000));
    assert_eq!(offset(0x400_1000), Some(0x1000));
    assert_eq!(offset(0x41f_f000), Some(0x1f_f000));
}

#[test]
fn map_call_that_fails_and_books_that_say_what_is_there() {
    let (mut rig, space) = Rig::with_tenant();
    rig.mock.state().refuse_map_after = Some(1);
    let maps = [vram(0x20_0000, 1, 12, 0), vram(0x40_0000, 1, 12, 0), vram(0x60_0000, 1, 12, 0)];
    let error = rig.map(space, &maps).unwrap_err();
    assert!(matches!(&error, GpuError::Unmappable(why) if why.contains("ERR_NO_MEMORY")), "{error}");
    assert_eq!(rig.driver.space_usage(space).unwrap().pages, 2);
    assert!(rig.mock.state().translate(0x40_0000).is_none());
    assert!(rig.mock.state().translate(0x60_0000).is_some());
}

#[test]
fn revoked_memory_and_no_mapping_of_it() {
    let (mut rig, space) = Rig::with_tenant();
    rig.map(space, &[system(0x20_0000, 4, 1 << 32), vram(0x40_0000, 1, 12, 0)]).unwrap();
    assert!(rig.driver.dma_unmap(Iova(1 << 32), 256 * MIB).is_err());
    assert_eq!(rig.driver.revoke_system(space, Iova(1 << 32), 256 * MIB).unwrap(), 4);
    rig.driver.dma_unmap(Iova(1 << 32), 256 * MIB).unwrap();
    assert!(rig.mock.state().translate(0x20_0000).is_none());
    assert!(rig.mock.state().translate(0x40_0000).is_some());
    assert_eq!(rig.mock.state().count(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR), 0);
}

#[test]
fn memory_announced_in_pieces_and_registered_once() {
    let mut rig = Rig::new();
    let space = rig.driver.create_space().unwrap();
    let file = create_memory_file(c"ram", 64 * MIB).unwrap();
    for (iova, offset, size) in [(1 << 32, 0, MIB), ((1 << 32) + MIB, MIB, 63 * MIB)] {
        let backing = Some(DmaBacking { fd: file.try_clone().unwrap(), offset });
        rig.driver.dma_map(DmaMapping { iova, size, writable: true, backing, owner: None }).unwrap();
    }
    rig.map(space, &[system(0x20_0000, 512, 1 << 32)]).unwrap();
    assert_eq!(rig.mock.state().count(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR), 1);
    assert_eq!(rig.driver.system().registered(), 1);
}

#[test]
fn memory_without_a_file_or_for_reading_only_and_no_mapping() {
    let mut rig = Rig::new();
    let space = rig.driver.create_space().unwrap();
    rig.driver
        .dma_map(DmaMapping { iova: 1 << 33, size: MIB, writable: true, backing: None, owner: None })
        .unwrap();
    let fd = create_memory_file(c"rom", MIB).unwrap();
    let backing = Some(DmaBacking { fd, offset: 0 });
    rig.driver
        .dma_map(DmaMapping { iova: 1 << 34, size: MIB, writable: false, backing, owner: None })
        .unwrap();
    assert!(rig.map(space, &[system(0x20_0000, 1, 1 << 33)]).is_err());
    assert!(rig.map(space, &[system(0x20_0000, 1, 1 << 34)]).is_err());
    assert_eq!(rig.mock.state().maps, 0);
}
