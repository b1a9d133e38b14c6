//! Partitions: their objects, dirt, renewal, and those in system memory.

use super::*;

#[test]
fn new_partition_and_one_object_that_is_dirty_until_it_was_cleared_whole() {
    let mut rig = Rig::new();
    let pieces = rig.driver.share_vram(HostVram(0), 64 * MIB).unwrap();
    assert_eq!(pieces.iter().map(|piece| piece.size).sum::<u64>(), 64 * MIB);
    assert_eq!(rig.mock.state().count(NV01_MEMORY_LOCAL_USER), 1);
    assert!(rig.driver.is_vram_dirty(HostVram(0), 64 * MIB));
    for at in 0..4 {
        assert!(rig.driver.is_vram_dirty(HostVram(0), 64 * MIB));
        rig.driver.scrub_vram(HostVram(at * 16 * MIB), 16 * MIB).unwrap();
    }
    assert!(!rig.driver.is_vram_dirty(HostVram(0), 64 * MIB));
    let wiped = rig.wiped.lock().unwrap().iter().map(|(_, at, size)| (*at, *size)).collect::<Vec<_>>();
    let pieces: Vec<(u64, u64)> = (0..16).map(|at| (at * 4 * MIB, 4 * MIB)).collect();
    assert_eq!(wiped, pieces);
}

#[test]
fn partition_shared_again_and_the_same_object() {
    let mut rig = Rig::new();
    rig.driver.share_vram(HostVram(0), 64 * MIB).unwrap();
    rig.driver.share_vram(HostVram(0), 64 * MIB).unwrap();
    assert_eq!(rig.mock.state().count(NV01_MEMORY_LOCAL_USER), 1);
}

#[test]
fn partition_in_another_shape_and_a_new_object_unless_the_old_is_in_use() {
    let (mut rig, space) = Rig::with_tenant();
    rig.map(space, &[vram(0x20_0000, 1, 12, 0)]).unwrap();
    assert!(rig.driver.share_vram(HostVram(0), 128 * MIB).is_err());
    rig.driver.clear_space(space).unwrap();
    rig.driver.share_vram(HostVram(0), 128 * MIB).unwrap();
    assert_eq!(rig.mock.state().count(NV01_MEMORY_LOCAL_USER), 1);
}

/// Memory of a partition is freed only when no process has its file any more, and the next owner gets other
/// memory.
#[test]
fn partition_that_somebody_has_kept_and_is_not_freed() {
    let mut rig = Rig::new();
    let renew = |rig: &mut Rig| rig.driver.renew_vram(HostVram(0), 4 * MIB).unwrap();
    let object = |rig: &Rig| rig.mock.state().handles(NV01_MEMORY_LOCAL_USER);
    let window = rig.driver.share_vram(HostVram(0), 64 * MIB).unwrap();
    let old = object(&rig);
    assert_eq!(renew(&mut rig), Renewal::Held);
    let [piece] = window.as_slice() else { panic!("{window:?}") };
    let mapped = Mapping::of_file(piece.fd.as_fd(), 0, 64 * MIB, Access::ReadWrite).unwrap();
    drop(window);
    assert_eq!(renew(&mut rig), Renewal::Held, "a mapping keeps it");
    // Nor can it become a partition of another size.
    assert!(rig.driver.share_vram(HostVram(0), 128 * MIB).is_err());
    assert!(rig.driver.share_vram(HostVram(0), 64 * MIB).is_err());
    assert_eq!(object(&rig), old);

    drop(mapped);
    for piece in 0..16 {
        assert_eq!(rig.driver.renew_vram(HostVram(piece * 4 * MIB), 4 * MIB).unwrap(), Renewal::Done);
    }

    assert_eq!(object(&rig), []);
    rig.driver.share_vram(HostVram(0), 64 * MIB).unwrap();
    assert!(rig.driver.is_vram_dirty(HostVram(0), 64 * MIB));
    assert_ne!(object(&rig), old);
}

/// A rig without room in BAR1, and with a partition of 128 MiB at 0.
fn with_host_partition() -> (Rig, Mapping) {
    let mut rig = Rig::new();
    rig.mock.state().vram_free = 0;
    let mapping = host_window(&mut rig);
    (rig, mapping)
}

/// What a process that has the partition's window sees.
fn host_window(rig: &mut Rig) -> Mapping {
    let window = rig.driver.share_vram(HostVram(0), 128 * MIB).unwrap();
    Mapping::of_file(window[0].fd.as_fd(), 0, 128 * MIB, Access::ReadWrite).unwrap()
}

fn held(rig: &Rig) -> usize {
    rig.mock.state().count(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR)
}

fn renew_all(rig: &mut Rig) {
    for piece in 0..32 {
        let start = HostVram(piece * 4 * MIB);
        let again = (0..10).find(|_| rig.driver.renew_vram(start, 4 * MIB).unwrap() == Renewal::Done);
        assert!(again.is_some(), "piece {piece} does not come back");
    }
}

/// Where partitions are system memory, the next one is another file, even if a process has the old one.
#[test]
fn partition_in_system_memory_and_another_file_for_the_next_owner() {
    let (mut rig, kept) = with_host_partition();
    let space = rig.driver.create_space().unwrap();
    assert!(!rig.driver.is_vram_dirty(HostVram(0), 128 * MIB), "a new file is zeros");
    kept.fill(0, 128 * MIB, 0x5a).unwrap();
    rig.map(space, &[vram(0x20_0000, 1024, 12, 63 * MIB)]).unwrap();
    assert!(rig.driver.renew_vram(HostVram(0), 4 * MIB).is_err(), "it is mapped");
    rig.driver.destroy_space(space).unwrap();

    renew_all(&mut rig);

    assert_eq!(held(&rig), 0);
    assert_eq!(rig.driver.left_behind().unwrap(), Vec::<String>::new());
    let next = host_window(&mut rig);
    assert_eq!((next.read_u32(0x1000), kept.read_u32(0x1000)), (Ok(0), Ok(0)));
    kept.fill(0, 128 * MIB, 0x22).unwrap();
    assert_eq!(next.read_u32(0x1000), Ok(0));
}

/// What the GPU is shown of it, and no more.
#[test]
fn partition_in_system_memory_is_held_where_it_is_named() {
    let (mut rig, window) = with_host_partition();
    let space = rig.driver.create_space().unwrap();
    assert_eq!(held(&rig), 0);

    rig.map(space, &[vram(0x20_0000, 1024, 12, 63 * MIB)]).unwrap();

    assert_eq!(held(&rig), 3, "it begins and ends within pieces");
    let (object, offset, _) = rig.mock.state().translate(0x20_0000 + MIB).unwrap();
    assert_eq!(offset, 0, "a piece begins there");
    assert!(rig.mock.state().handles(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR).contains(&object));
    let channel = rig.channel(space, EngineSet::COPY1).unwrap();
    assert_eq!(held(&rig), 4, "the USERD's");
    assert_eq!(rig.driver.left_behind().unwrap(), Vec::<String>::new());

    rig.driver.destroy_channel(channel).unwrap();
    rig.driver.destroy_space(space).unwrap();
    window.fill(0, 128 * MIB, 0x5a).unwrap();
    rig.driver.scrub_vram(HostVram(0), 128 * MIB).unwrap();
    assert_eq!(held(&rig), 0, "zeroed memory is given back");
    assert_eq!(window.read_u32(64 * MIB), Ok(0));
}

#[test]
fn scrub_of_a_range_and_the_parts_of_partitions_in_it() {
    let mut rig = Rig::new();
    rig.driver.share_vram(HostVram(0), 64 * MIB).unwrap();
    rig.driver.share_vram(HostVram(128 * MIB), 64 * MIB).unwrap();
    rig.wiped.lock().unwrap().clear();
    rig.driver.scrub_vram(HostVram(32 * MIB), 128 * MIB).unwrap();
    let wiped: Vec<(u64, u64)> = rig.wiped.lock().unwrap().iter().map(|(_, at, size)| (*at, *size)).collect();
    let pieces: Vec<(u64, u64)> = (8..16).chain(0..8).map(|at| (at * 4 * MIB, 4 * MIB)).collect();
    assert_eq!(wiped, pieces);
    assert!(rig.driver.scrub_vram(HostVram(1 << 30), MIB).is_err());
}
