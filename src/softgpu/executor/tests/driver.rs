//! The driver's trait where no command stream is involved.

use std::os::fd::AsFd;

use super::rig::*;
use crate::executor::{Executor, ExecutorConfig, ExecutorError};
use gpuvmk_chip::addr::{GpuVa, HostChannel, HostVram, Iova};
use gpuvmk_chip::{Chip, Engine, EngineSet};
use gpuvmk_gpu::*;
use gpuvmk_pci::mapping::{Access, Mapping};

#[test]
fn info_describes_a_gh100() {
    let rig = Rig::new();
    let info = rig.gpu.info();
    assert_eq!((info.chip, info.va_bits, info.userd_granule), (Chip::GH100, 57, 512));
    assert_eq!(info.page_shifts, [12, 16, 21, 29]);
    assert_eq!(info.tenant_vram, HostVram(16 << 20));
    assert_eq!(info.tenant_vram_size, 64 << 20);
    assert_eq!(info.engines, EngineSet::GRAPHICS | EngineSet::COPY0 | EngineSet::COPY1 | EngineSet::COPY2);
}

#[test]
fn sizes_that_leave_nothing_are_refused() {
    for vram in [0, 16 << 20, (16 << 20) + 4096] {
        let refused = Executor::new(ExecutorConfig { vram, ..ExecutorConfig::default() });
        assert!(matches!(refused, Err(ExecutorError::TooSmall { .. })), "{vram:#x}: {refused:?}");
    }
    let odd = Executor::new(ExecutorConfig { vram: (32 << 20) + 4096, ..ExecutorConfig::default() });
    assert!(matches!(odd, Err(ExecutorError::Core { .. })), "{odd:?}");
}

#[test]
fn host_memory_is_neither_shared_nor_scrubbed() {
    let mut rig = Rig::new();
    for (start, size) in [(0, 16 << 20), (0, 80 << 20), (16 << 20, 65 << 20), (u64::MAX, 2), (16 << 20, 0)] {
        assert!(rig.gpu.share_vram(HostVram(start), size).is_err(), "{start:#x}+{size:#x}");
        assert!(rig.gpu.scrub_vram(HostVram(start), size).is_err(), "{start:#x}+{size:#x}");
    }
}

#[test]
fn scrubbed_memory_is_zero_for_everybody() {
    let mut rig = Rig::new();
    let start = HostVram(32 << 20);
    let shared = rig.gpu.share_vram(start, 16 << 20).unwrap();
    let other = Mapping::of_file(shared[0].fd.as_fd(), 0, 16 << 20, Access::ReadWrite).unwrap();
    other.fill(0, 16 << 20, 0x5a).unwrap();
    rig.write((48 << 20) - 16, &[1; 32]);

    rig.gpu.scrub_vram(start, 16 << 20).unwrap();

    let mut bytes = vec![1; 16 << 20];
    other.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 0));
    assert_eq!(rig.read(48 << 20, 16), [1; 16]);
}

fn spec(space: SpaceHandle) -> ChannelSpec {
    ChannelSpec {
        context_of: None,
        space,
        gpfifo: GpuVa(0x1000),
        gpfifo_entries_log2: 6,
        userd: HostVram(16 << 20),
        engines: EngineSet::COPY1,
    }
}

#[test]
fn channels_that_cannot_be_are_refused() {
    let mut rig = Rig::new();
    let space = rig.space();
    let good = spec(space);
    let wrong = [
        ChannelSpec { gpfifo: GpuVa(4), ..good },
        ChannelSpec { gpfifo: GpuVa(1 << 40), ..good },
        ChannelSpec { gpfifo_entries_log2: 64, ..good },
        ChannelSpec { userd: HostVram((16 << 20) + 256), ..good },
        ChannelSpec { userd: HostVram(0x2000), ..good },
        ChannelSpec { userd: HostVram(80 << 20), ..good },
        ChannelSpec { userd: HostVram(u64::MAX << 9), ..good },
        ChannelSpec { engines: EngineSet::empty(), ..good },
        ChannelSpec { engines: EngineSet::COPY1 | EngineSet::COPY2, ..good },
        ChannelSpec { engines: EngineSet::GRAPHICS | EngineSet::COPY1, ..good },
        ChannelSpec { engines: EngineSet::COPY3, ..good },
        ChannelSpec { engines: EngineSet::all(), ..good },
    ];
    for spec in wrong {
        let refused = rig.gpu.create_channel(spec);
        assert!(matches!(refused, Err(GpuError::Invalid(_))), "{spec:?}: {refused:?}");
    }
    let nowhere = rig.gpu.create_channel(ChannelSpec { space: SpaceHandle(77), ..good });
    assert!(matches!(nowhere, Err(GpuError::NoSuch { .. })));
    assert!(rig.gpu.create_channel(good).is_ok());
}

#[test]
fn channels_and_spaces_run_out_and_come_back() {
    let mut rig = Rig::new();
    let space = rig.space();
    let channels: Vec<_> =
        (0..rig.gpu.info().channels).map(|_| rig.gpu.create_channel(spec(space)).unwrap()).collect();
    let none = rig.gpu.create_channel(spec(space));
    assert!(matches!(none, Err(GpuError::Exhausted { limit: 511, .. })), "{none:?}");
    assert!(rig.gpu.destroy_space(space).is_err(), "channels use it");
    for channel in channels {
        rig.gpu.destroy_channel(channel).unwrap();
    }
    rig.gpu.destroy_space(space).unwrap();

    let spaces: Vec<_> = (0..1024).map(|_| rig.gpu.create_space().unwrap()).collect();
    assert!(matches!(rig.gpu.create_space(), Err(GpuError::Exhausted { .. })));
    rig.gpu.destroy_space(spaces[5]).unwrap();
    let again = rig.gpu.create_space().unwrap();
    assert!(!spaces.contains(&again), "numbers are not used again at once");
}

#[test]
fn userd_of_a_new_channel_is_clear() {
    let mut rig = Rig::new();
    let space = rig.space();
    rig.write(16 << 20, &[0xff; 0x400]);
    rig.gpu.create_channel(spec(space)).unwrap();
    assert_eq!(rig.read(16 << 20, 0x200), [0; 0x200]);
    assert_eq!(rig.read((16 << 20) + 0x200, 0x200), [0xff; 0x200]);
}

#[test]
fn objects_are_those_of_the_channels_engines() {
    let mut rig = Rig::new();
    let space = rig.space();
    let copies = rig.idle_channel(space, EngineSet::COPY1).id;
    let both = rig.idle_channel(space, graphics()).id;
    for class in [0xcbc0, 0xcb97, 0x902d, 0xa140] {
        rig.gpu.create_object(both, class, Engine::Graphics).unwrap();
        rig.gpu.create_object(both, class, Engine::Graphics).unwrap();
        assert!(rig.gpu.create_object(copies, class, Engine::Graphics).is_err());
        assert!(rig.gpu.create_object(both, class, Engine::COPY0).is_err());
    }
    rig.gpu.create_object(both, 0xc8b5, Engine::COPY0).unwrap();
    rig.gpu.create_object(copies, 0xc8b5, Engine::COPY1).unwrap();
    for (channel, class, engine) in [
        (copies, 0xc8b5, Engine::COPY2),
        (copies, 0xc6b5, Engine::COPY1),
        (both, 0xc86f, Engine::Graphics),
        (both, 0xc8b5, Engine::Graphics),
        (both, 0x1_cbc0, Engine::Graphics),
    ] {
        let refused = rig.gpu.create_object(channel, class, engine);
        assert!(matches!(refused, Err(GpuError::NoClass { .. })), "{class:#x}: {refused:?}");
    }
    assert!(matches!(
        rig.gpu.create_object(HostChannel(400), 0xc8b5, Engine::COPY1),
        Err(GpuError::NoSuch { .. })
    ));
}

#[test]
fn engines_of_a_disabled_channel_change() {
    let mut rig = Rig::new();
    let space = rig.space();
    let memory = rig.buffer(space, 0x31_0000_0000, 0x1000);
    rig.write(memory, &pattern(1, 64));
    let mut channel = rig.channel(space, EngineSet::COPY1);
    assert!(rig.gpu.set_channel_engines(channel.id, EngineSet::COPY2).is_err(), "it is enabled");

    rig.gpu.enable_channel(channel.id, false).unwrap();
    rig.gpu.set_channel_engines(channel.id, EngineSet::COPY2).unwrap();
    rig.gpu.enable_channel(channel.id, true).unwrap();
    rig.run(&mut channel, &copy_lines(0x31_0000_0000, 0x31_0000_0100, 0, 64, 1, 2 << 5));

    assert_eq!(rig.read(memory + 0x100, 64), pattern(1, 64));
    rig.wait_event(|event| (*event == GpuEvent::NonStall(Engine::COPY2)).then_some(()));
}

#[test]
fn budget_of_a_space_is_kept() {
    let mut rig = Rig::new();
    let space = rig.space();
    let maps: Vec<_> = (0..20).map(|page| mapping(page << 16, 0x1000, 12, vram(16 << 20))).collect();
    let refused = rig.gpu.update_space(space, &[], &maps, 1024);
    assert!(matches!(refused, Err(GpuError::Exhausted { limit: 1024, .. })), "{refused:?}");
    let usage = rig.gpu.space_usage(space).unwrap();
    assert!(0 < usage.table_bytes && usage.table_bytes <= 1024, "{usage:?}");
    assert!(usage.pages > 0, "what was done stays done");
}

#[test]
fn things_that_are_not_there_have_no_state() {
    let mut rig = Rig::new();
    let (space, channel) = (SpaceHandle(9), HostChannel(9));
    assert!(rig.gpu.update_space(space, &[], &[], 0).is_err());
    assert!(rig.gpu.space_usage(space).is_err());
    assert!(rig.gpu.clear_space(space).is_err());
    assert!(rig.gpu.revoke_system(space, Iova(0), 1).is_err());
    assert!(rig.gpu.destroy_space(space).is_err());
    assert!(rig.gpu.enable_channel(channel, true).is_err());
    assert!(rig.gpu.commit_runlist(&[channel]).is_err());
    assert!(rig.gpu.preempt_channel(channel).is_err());
    assert!(rig.gpu.doorbell(channel).is_err());
    assert!(rig.gpu.channel_progress(channel).is_err());
    assert!(rig.gpu.destroy_channel(channel).is_err());
    assert!(rig.gpu.set_channel_engines(channel, EngineSet::COPY1).is_err());
}
