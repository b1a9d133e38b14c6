//! What a GH100 has beyond a GF100: objects, wide addresses, large pages, engines that share a runlist, and
//! errors that a GPU's own manager reports.

use super::*;
use crate::fake_gpu::{CLASS_COMPUTE, CLASS_COPY};
use gpuvmk_chip::TextureClusters;
use gpuvmk_chip::addr::{GuestChannel, HostChannel};
use gpuvmk_chip::channel_event::{ChannelStop, StopCause};

const GR: EngineSet = EngineSet::GRAPHICS.union(EngineSet::COPY0);

/// Two tenants with 16 MiB of memory each at 0, address space 0, and a channel 0: the first on the graphics
/// engine, the second on a copy engine.
fn hopper() -> (Machine, Fake, TenantId, TenantId) {
    let (gpu, fake) = FakeGpu::hopper();
    let ledger: Arc<dyn OwnershipLedger> = Arc::new(fake.clone());
    let mut machine =
        Machine::new(Box::new(gpu), Some(ledger), Scheduler::new(PolicyKind::Fifo, Settings::default()));
    let [a, b] = ["a", "b"].map(|name| {
        let wish = Hello { chip: Chip::GH100.into(), ..hello(name) };
        machine.admit(&wish, T0).unwrap().tenant
    });
    for (tenant, engines) in [(a, GR), (b, EngineSet::COPY1)] {
        dma_map(&mut machine, tenant, 0, 16 * MIB);
        done(&mut machine, tenant, Request::CreateSpace(SpaceId(0)));
        done(&mut machine, tenant, channel(0, 0x200, 0x1_1000, engines));
    }
    (machine, fake, a, b)
}

fn channel(id: u16, userd: u64, gpfifo: u64, engines: EngineSet) -> Request {
    Request::CreateChannel {
        context_of: None,
        channel: GuestChannel(id),
        space: SpaceId(0),
        gpfifo: GpuVa(gpfifo),
        gpfifo_entries_log2: 10,
        userd: GuestVram(userd),
        engines,
    }
}

fn object(class: u32, engine: Engine) -> Request {
    Request::CreateObject { channel: GuestChannel(0), class, engine }
}

fn run(va: u64, pages: u32, page_shift: u8, target: GuestTarget) -> Request {
    let map = GuestMapping { va: GpuVa(va), pages, page_shift, target, read_only: false, kind: 6 };
    Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map: vec![map] }
}

#[test]
fn grant_says_what_the_gpu_can_address() {
    let (gpu, _fake) = FakeGpu::hopper();
    let mut machine =
        Machine::new(Box::new(gpu), None, Scheduler::new(PolicyKind::Fifo, Settings::default()));
    assert_eq!(machine.admit(&hello("old"), T0).unwrap_err().kind, RefusalKind::Chip);

    let welcome = machine.admit(&Hello { chip: Chip::GH100.into(), ..hello("x") }, T0).unwrap().welcome;

    assert_eq!((welcome.va_bits, welcome.page_shifts), (57, vec![12, 16, 21, 29]));
    assert!(welcome.slow_vram_reads);
    assert_eq!(welcome.texture_clusters, Some(TextureClusters::of(&[9, 9, 8])), "the card's, not the chip's");
    assert_eq!(welcome.engines, GR | EngineSet::COPY1 | EngineSet::COPY2);
}

#[test]
fn objects_are_made_on_the_senders_own_channels() {
    let (mut machine, fake, a, b) = hopper();
    let (host_a, host_b) = (host_of(&fake, 64 * MIB + 0x200), host_of(&fake, 128 * MIB + 0x200));

    done(&mut machine, a, object(CLASS_COMPUTE, Engine::Graphics));
    done(&mut machine, a, object(CLASS_COPY, Engine::COPY0));
    done(&mut machine, b, object(CLASS_COPY, Engine::COPY1));

    let made = [
        (host_a, CLASS_COMPUTE, Engine::Graphics),
        (host_a, CLASS_COPY, Engine::COPY0),
        (host_b, CLASS_COPY, Engine::COPY1),
    ];
    assert_eq!(fake.state().objects, made);
}

#[test]
fn object_of_an_unknown_class_foreign_engine_or_absent_channel_is_refused() {
    let (mut machine, fake, a, b) = hopper();

    assert_eq!(refused(&mut machine, a, object(0x9039, Engine::Graphics)), RefusalKind::Class);
    assert_eq!(refused(&mut machine, a, object(u32::MAX, Engine::COPY0)), RefusalKind::Class);
    // The copy channel has no context on the graphics engine, whatever its neighbour has.
    assert_eq!(refused(&mut machine, b, object(CLASS_COMPUTE, Engine::Graphics)), RefusalKind::Class);
    assert_eq!(refused(&mut machine, b, object(CLASS_COPY, Engine::COPY0)), RefusalKind::Class);
    for id in [1, 3, 4, u16::MAX] {
        let request =
            Request::CreateObject { channel: GuestChannel(id), class: CLASS_COPY, engine: Engine::COPY0 };
        assert_eq!(refused(&mut machine, a, request), RefusalKind::BadId);
    }

    assert_eq!(fake.state().objects, []);
}

#[test]
fn object_on_a_stopped_channel_reaches_no_hardware() {
    let (mut machine, fake, a, _) = hopper();
    let host = host_of(&fake, 64 * MIB + 0x200);
    fake.report(GpuEvent::Stopped(ChannelStop::new(host, StopCause::Manager(31))));
    machine.gpu_events(T0);

    done(&mut machine, a, object(CLASS_COMPUTE, Engine::Graphics));

    assert_eq!(fake.state().objects, []);
}

#[test]
fn channel_error_goes_to_its_tenant_in_its_own_numbers_and_others_go_on() {
    let (mut machine, fake, a, b) = hopper();
    for tenant in [a, b] {
        done(&mut machine, tenant, Request::EnableChannel { channel: GuestChannel(0), enabled: true });
        done(&mut machine, tenant, Request::SetRunlist(vec![GuestChannel(0)]));
    }
    let (host_a, host_b) = (host_of(&fake, 64 * MIB + 0x200), host_of(&fake, 128 * MIB + 0x200));

    fake.report(GpuEvent::Stopped(ChannelStop::new(host_b, StopCause::Manager(13))));
    machine.gpu_events(T0);

    let told = ChannelStop::new(GuestChannel(0), StopCause::Manager(13));
    assert_eq!(outputs(&mut machine), [Output::Event(b, Event::Stopped(told))]);
    assert_eq!(fake.state().runlist, [host_a]);
    assert!(!fake.state().enabled[&host_b]);
}

#[test]
fn notification_of_the_copy_engine_on_the_graphics_runlist_reaches_graphics_channels() {
    let (mut machine, fake, a, b) = hopper();
    for tenant in [a, b] {
        machine.doorbell(tenant, Doorbell { channel: GuestChannel(0), gp_put: 1 }, 0, T0);
    }

    for engine in [Engine::COPY0, Engine::Graphics, Engine::COPY1, Engine::COPY2] {
        fake.report(GpuEvent::NonStall(engine));
    }
    machine.gpu_events(T0);

    let told = |tenant, engine| Output::Event(tenant, Event::NonStall(engine));
    let expected = [told(a, Engine::COPY0), told(a, Engine::Graphics), told(b, Engine::COPY1)];
    assert_eq!(outputs(&mut machine), expected);
}

#[test]
fn small_userds_and_wide_addresses_are_taken_up_to_their_bounds() {
    let (mut machine, fake, a, _) = hopper();

    done(&mut machine, a, channel(1, 64 * MIB - 512, (1 << 57) - 8, GR));
    assert_eq!(refused(&mut machine, a, channel(2, 64 * MIB - 256, 0, GR)), RefusalKind::OutsidePartition);
    assert_eq!(refused(&mut machine, a, channel(2, 64 * MIB, 0, GR)), RefusalKind::OutsidePartition);
    assert_eq!(refused(&mut machine, a, channel(2, 0x100, 0, GR)), RefusalKind::OutsidePartition);
    assert_eq!(refused(&mut machine, a, channel(2, 0, 1 << 57, GR)), RefusalKind::Protocol);
    assert_eq!(refused(&mut machine, a, channel(2, 0, 0, EngineSet::COPY3)), RefusalKind::Protocol);

    assert_eq!(host_of(&fake, 128 * MIB - 512), HostChannel(3));
}

#[test]
fn pages_of_every_size_are_mapped_up_to_the_last_address() {
    let (mut machine, fake, a, _) = hopper();
    let vram = |offset| GuestTarget::Vram(GuestVram(offset));
    let last = 1_u64 << 57;

    done(&mut machine, a, run(last - 0x1000, 1, 12, vram(0)));
    done(&mut machine, a, run(last - 0x2_0000, 1, 16, vram(0x1_0000)));
    done(&mut machine, a, run(last - 0x40_0000, 1, 21, vram(0x20_0000)));
    let beyond = [
        run(last, 1, 12, vram(0)),
        run(last - 0x20_0000, 2, 21, vram(0)),
        run(0, u32::MAX, 29, vram(0)),
        run(u64::MAX - 0xfff, 1, 12, vram(0)),
        run(0x1000, 1, 16, vram(0)),
        run(0, 1, 17, vram(0)),
        run(0, 1, 63, vram(0)),
    ];
    for request in beyond {
        assert_eq!(refused(&mut machine, a, request), RefusalKind::Protocol);
    }
    // No partition of this GPU holds a page of 512 MiB.
    assert_eq!(refused(&mut machine, a, run(0, 1, 29, vram(0))), RefusalKind::OutsidePartition);

    assert_eq!(fake.pages().len(), 3);
}

#[test]
fn pages_that_are_registers_are_left_out_and_are_no_mistake() {
    let (mut machine, fake, a, _) = hopper();
    let mapped = || fake.state().spaces.values().map(|space| space.len()).sum::<usize>();
    let before = mapped();
    let mapping = |kind| {
        let Request::UpdateSpace { space, unmap, mut map } =
            run(0x40_0000, 1, 12, GuestTarget::Vram(GuestVram(0)))
        else {
            panic!("an update")
        };
        map[0].kind = kind;
        Request::UpdateSpace { space, unmap, map }
    };
    done(&mut machine, a, mapping(gpuvmk_chip::gsp::SMSKED_MESSAGE));
    assert_eq!(mapped(), before);
    assert_eq!(refused(&mut machine, a, mapping(7)), RefusalKind::OutsidePartition);
    done(&mut machine, a, mapping(6));
    assert_eq!(mapped(), before + 1);
    // What was memory is none any more.
    done(&mut machine, a, mapping(gpuvmk_chip::gsp::SMSKED_MESSAGE));
    assert_eq!(mapped(), before);
}

#[test]
fn memory_far_up_is_reached_and_large_pages_of_it_stay_large() {
    let (mut machine, fake, a, _) = hopper();
    // A quarter of the bus address space, and neither is a multiple of the largest page.
    let gpa = (1_u64 << 40) + (1 << 29) + 0x20_0000;
    dma_map(&mut machine, a, gpa, 2 << 30);
    let start = gpa.next_multiple_of(1 << 29);

    done(&mut machine, a, run(1 << 29, 2, 29, system(start)));

    let pages = fake.pages();
    assert_eq!(pages.len(), 2);
    for (va, target) in pages {
        let HostTarget::System { iova, .. } = target else { panic!("{target:?}") };
        assert!(iova.is_aligned(1 << 29), "{va:#x} to {iova}");
    }
    assert_eq!(
        refused(&mut machine, a, run(0, 1, 29, system(start + (3 << 29)))),
        RefusalKind::OutsidePartition
    );
}

#[test]
fn channels_of_a_tenant_that_goes_go_with_it() {
    let (mut machine, fake, a, b) = hopper();
    for id in 1..4 {
        done(&mut machine, a, channel(id, u64::from(id) * 0x400, 0x2_0000, GR));
        done(&mut machine, a, Request::EnableChannel { channel: GuestChannel(id), enabled: true });
    }
    done(&mut machine, a, Request::SetRunlist((1..4).map(GuestChannel).collect()));
    done(&mut machine, b, Request::EnableChannel { channel: GuestChannel(0), enabled: true });
    done(&mut machine, b, Request::SetRunlist(vec![GuestChannel(0)]));

    machine.leave(a, false, T0);
    settle(&mut machine, T0);

    assert_eq!(outputs(&mut machine), [Output::Gone(a)]);
    let state = fake.state();
    assert_eq!((state.channels.len(), state.spaces.len(), state.runlist.len()), (1, 1, 1));
}
