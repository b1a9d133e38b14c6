use super::rig::*;
use gpuvmk_chip::channel_event::{ChannelStop, StopCause};
use gpuvmk_chip::gh100::methods::copy;
use gpuvmk_chip::gh100::methods::host;
use gpuvmk_chip::stream::GP_ENTRY1::OPCODE;
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_gpu::{GpuDriver, GpuEvent};

const DST: u64 = 0x31_0000_0000;

/// What stops a channel of these engines that executes these words.
fn stopped(engines: EngineSet, words: &[u32]) -> GpuEvent {
    let mut rig = Rig::new();
    let space = rig.space();
    rig.buffer(space, DST, 0x1000);
    let mut channel = rig.channel(space, engines);
    rig.submit(&mut channel, words);
    rig.wait(|rig| !rig.errors().is_empty());
    // Nothing after it is executed.
    rig.submit(&mut channel, &semaphore(DST, 1, host::SEM_EXECUTE::OPERATION::RELEASE));
    rig.settle();
    assert_eq!(rig.errors().len(), 1);
    assert!(!rig.done(&channel));
    rig.errors()[&channel.id]
}

#[test]
fn host_unit_refuses_what_it_does_not_have() {
    let mem_op = |operation: u32| inc(0, host::MEM_OP_A, &[0, 0, 0, operation << 27]);
    let reduction = |bits: u32| semaphore(DST, 1, host::SEM_EXECUTE::OPERATION::REDUCTION | bits);
    let cases = [
        (immediate(0, host::ILLEGAL, 0), host::NV_PPBDMA_INTR_0::METHOD.mask()),
        (immediate(0, 0x0c, 0), host::NV_PPBDMA_INTR_0::METHOD.mask()),
        (immediate(0, 0xfc, 0), host::NV_PPBDMA_INTR_0::METHOD.mask()),
        (immediate(0, host::YIELD, 1), host::NV_PPBDMA_INTR_0::METHOD.mask()),
        (inc(0, host::CLEAR_FAULTED, &[1 << 31 | 1]), host::NV_PPBDMA_INTR_0::METHOD.mask()),
        // TLB invalidation and access counters are for privileged channels.
        (mem_op(0x09), host::NV_PPBDMA_INTR_0::METHOD.mask()),
        (mem_op(0x0a), host::NV_PPBDMA_INTR_0::METHOD.mask()),
        (mem_op(0x0b), host::NV_PPBDMA_INTR_0::METHOD.mask()),
        (mem_op(0x16), host::NV_PPBDMA_INTR_0::METHOD.mask()),
        (mem_op(0x00), host::NV_PPBDMA_INTR_0::METHOD.mask()),
        (immediate(0, host::CRC_CHECK, 1), host::NV_PPBDMA_INTR_0::METHODCRC.mask()),
        (semaphore(DST, 1, 7), host::NV_PPBDMA_INTR_0::SEMAPHORE.mask()),
        (
            semaphore(
                DST + 4,
                1,
                host::SEM_EXECUTE::OPERATION::RELEASE | host::SEM_EXECUTE::PAYLOAD_SIZE.mask(),
            ),
            host::NV_PPBDMA_INTR_0::SEMAPHORE.mask(),
        ),
        (
            semaphore(
                DST + 8,
                1,
                host::SEM_EXECUTE::OPERATION::RELEASE | host::SEM_EXECUTE::RELEASE_TIMESTAMP.mask(),
            ),
            host::NV_PPBDMA_INTR_0::SEMAPHORE.mask(),
        ),
        (reduction(host::SEM_EXECUTE::REDUCTION.of(8)), host::NV_PPBDMA_INTR_0::SEMAPHORE.mask()),
        (reduction(host::SEM_EXECUTE::REDUCTION.of(6)), host::NV_PPBDMA_INTR_0::SEMAPHORE.mask()),
        (
            reduction(host::SEM_EXECUTE::REDUCTION.of(5) | host::SEM_EXECUTE::PAYLOAD_SIZE.mask()),
            host::NV_PPBDMA_INTR_0::SEMAPHORE.mask(),
        ),
        // Software's subchannels.
        (immediate(6, 0x200, 0), 1 << 23),
        // A header of no known form.
        (vec![6 << 29 | 1 << 16], 1 << 18),
    ];
    for (words, status) in cases {
        let event = stopped(EngineSet::COPY1, &words);
        let GpuEvent::Stopped(ChannelStop { cause: StopCause::Host(error), .. }) = event else {
            panic!("{words:x?}: {event:?}")
        };
        assert_eq!(error.status, status, "{words:x?}: {error:x?}");
    }
}

#[test]
fn host_error_names_the_method() {
    let event = stopped(EngineSet::COPY1, &inc(3, host::CLEAR_FAULTED, &[0x8000_0001]));
    let GpuEvent::Stopped(ChannelStop { cause: StopCause::Host(error), .. }) = event else {
        panic!("{event:?}")
    };
    assert_eq!((error.method, error.data), (3 << 16 | 0x84, 0x8000_0001));
}

#[test]
fn ring_entries_that_mean_nothing_stop_the_channel() {
    for entry in [1 << 32, 2 << 32, 9 << 32 | 0x1234] {
        let mut rig = Rig::new();
        let space = rig.space();
        let mut channel = rig.channel(space, EngineSet::COPY1);
        rig.prepare_entry(&mut channel, entry);
        rig.ring_doorbell(&channel);
        let status = |event: &GpuEvent| match event {
            GpuEvent::Stopped(ChannelStop { cause: StopCause::Host(error), .. }) => Some(error.status),
            _ => None,
        };
        assert_eq!(rig.wait_event(status), host::NV_PPBDMA_INTR_0::GPENTRY.mask(), "{entry:#x}");
    }
    assert_eq!(OPCODE::NOP, 0);
}

#[test]
fn put_outside_the_ring_stops_the_channel() {
    let mut rig = Rig::new();
    let space = rig.space();
    let mut channel = rig.channel(space, EngineSet::COPY1);
    channel.put = 1 << RING_ENTRIES_LOG2;
    rig.ring_doorbell(&channel);
    let status = |event: &GpuEvent| {
        if let GpuEvent::Stopped(ChannelStop { cause: StopCause::Host(error), .. }) = event {
            Some(error.status)
        } else {
            None
        }
    };
    assert_eq!(rig.wait_event(status), 1 << 14);
}

#[test]
fn copy_engines_refuse_what_they_were_not_set_up_for() {
    let launch = |bits: u32| inc(4, copy::LAUNCH_DMA, &[0x386 | bits]);
    let cases = [
        launch(copy::LAUNCH_DMA::SRC_TYPE.mask()),
        launch(copy::LAUNCH_DMA::DST_TYPE.mask()),
        launch(1 << 20),
        launch(copy::LAUNCH_DMA::VPRMODE.mask()),
        launch(copy::LAUNCH_DMA::MEMORY_SCRUB_ENABLE.mask()),
        launch(1),
        launch(1 << 31),
        launch(copy::LAUNCH_DMA::SEMAPHORE_TYPE.of(3)),
        launch(
            copy::LAUNCH_DMA::SEMAPHORE_TYPE.of(1)
                | copy::LAUNCH_DMA::SEMAPHORE_REDUCTION_ENABLE.mask()
                | copy::LAUNCH_DMA::SEMAPHORE_REDUCTION.of(0xa),
        ),
        [inc(4, copy::SET_RENDER_ENABLE_C, &[2]), launch(0)].concat(),
        [inc(4, copy::SET_REMAP_COMPONENTS, &[7]), launch(copy::LAUNCH_DMA::REMAP_ENABLE.mask())].concat(),
        // The second of one component.
        [inc(4, copy::SET_REMAP_COMPONENTS, &[1]), launch(copy::LAUNCH_DMA::REMAP_ENABLE.mask())].concat(),
        [inc(4, copy::SET_DST_BLOCK_SIZE, &[1]), inc(4, copy::LAUNCH_DMA, &[0x286])].concat(),
        [inc(4, copy::SET_DST_BLOCK_SIZE, &[6 << 4]), inc(4, copy::LAUNCH_DMA, &[0x286])].concat(),
        inc(4, copy::OFFSET_IN_UPPER, &[1 << 25]),
        inc(4, 0x304, &[0]),
        inc(4, host::SET_OBJECT, &[0xc6b5]),
    ];
    for words in cases {
        let event = stopped(EngineSet::COPY2, &words);
        let GpuEvent::Stopped(ChannelStop { cause: StopCause::Manager(code), .. }) = event else {
            panic!("{words:x?}: {event:?}")
        };
        assert_eq!(code, 41, "{words:x?}");
    }
}

#[test]
fn render_enable_switches_launches_off() {
    let mut rig = Rig::new();
    let space = rig.space();
    let memory = rig.buffer(space, DST, 0x1000);
    rig.write(memory, &pattern(1, 64));
    let mut channel = rig.channel(space, EngineSet::COPY1);
    let off = inc(4, copy::SET_RENDER_ENABLE_C, &[0]);
    let on = inc(4, copy::SET_RENDER_ENABLE_C, &[1]);
    let copy = |to: u64| copy_lines(DST, DST + to, 0, 64, 1, 0);
    rig.run(&mut channel, &[off, copy(0x100), on, copy(0x200)].concat());
    assert_eq!(rig.read(memory + 0x100, 64), vec![0; 64]);
    assert_eq!(rig.read(memory + 0x200, 64), pattern(1, 64));
}

#[test]
fn engines_of_a_lone_copy_channel_are_its_own() {
    // Subchannel 0 of a copy channel is the copy engine too.
    let words = inc(0, host::SET_OBJECT, &[0xcbc0]);
    let event = stopped(EngineSet::COPY1, &words);
    let GpuEvent::Stopped(ChannelStop { cause: StopCause::Manager(code), .. }) = event else {
        panic!("{event:?}")
    };
    assert_eq!(code, 40);
    // On the graphics runlist the copy engine is engine 0.
    let event = stopped(graphics(), &inc(4, host::SET_OBJECT, &[0xcbc0]));
    let GpuEvent::Stopped(ChannelStop { cause: StopCause::Manager(code), .. }) = event else {
        panic!("{event:?}")
    };
    assert_eq!(code, 39);
    assert_eq!(Engine::ALL[1], Engine::COPY0);
}

/// Waits until the driver has something to tell, without asking what.
fn wait_told(rig: &Rig) {
    let fd = rustix::event::PollFd::from_borrowed_fd(rig.gpu.event_fd(), rustix::event::PollFlags::IN);
    let most = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut [fd], Some(&most)), Ok(1), "nothing was told");
}

/// Work that stops a channel, and one that nobody stopped: what was told of both when the first is destroyed
/// and its number given to a third.
#[test]
fn what_stopped_a_channel_is_not_told_of_the_next_with_its_number() {
    let mut rig = Rig::new();
    let space = rig.space();
    let mut other = rig.channel(space, EngineSet::COPY2);
    rig.submit(&mut other, &inc(3, host::CLEAR_FAULTED, &[0x8000_0001]));
    wait_told(&rig);
    let mut first = rig.channel(space, EngineSet::COPY1);
    rig.submit(&mut first, &inc(3, host::CLEAR_FAULTED, &[0x8000_0001]));
    // Told, or about to be: no event was taken so far.
    std::thread::sleep(std::time::Duration::from_millis(20));

    rig.destroy(&first);
    let second = rig.channel(space, EngineSet::COPY1);

    assert_eq!(second.id, first.id);
    rig.settle();
    assert_eq!(rig.errors().keys().copied().collect::<Vec<_>>(), [other.id]);
}

/// The same at every moment of being told: a channel that is destroyed while it stops leaves nothing behind.
#[test]
fn channel_that_is_destroyed_while_it_stops_leaves_no_event() {
    let mut rig = Rig::new();
    let space = rig.space();
    for round in 0..300_u64 {
        let mut channel = rig.channel(space, EngineSet::COPY1);
        rig.submit(&mut channel, &inc(3, host::CLEAR_FAULTED, &[0x8000_0001]));
        std::thread::sleep(std::time::Duration::from_micros(round % 30 * 4));
        rig.destroy(&channel);
        rig.gpu.take_events(&mut rig.events);
        assert_eq!(rig.errors(), std::collections::BTreeMap::new(), "in round {round}");
    }
}
