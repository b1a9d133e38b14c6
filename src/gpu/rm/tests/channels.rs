//! Channels: when they run, their classes and engines, preemption.

use super::*;

#[test]
fn channel_that_runs_and_is_held_back_and_runs_again() {
    let (mut rig, space) = Rig::with_tenant();
    let channel = rig.channel(space, EngineSet::COPY1).unwrap();
    rig.driver.enable_channel(channel, true).unwrap();
    assert_eq!(rig.mock.state().scheduled.len(), 0);
    rig.driver.commit_runlist(&[channel]).unwrap();
    assert_eq!(rig.mock.state().scheduled.len(), 1);
    rig.driver.doorbell(channel).unwrap();
    rig.driver.commit_runlist(&[]).unwrap();
    assert_eq!(rig.mock.state().disabled.len(), 1);
    rig.driver.enable_channel(channel, false).unwrap();
    rig.driver.commit_runlist(&[channel]).unwrap();
    assert_eq!(rig.mock.state().disabled.len(), 1);
    rig.driver.enable_channel(channel, true).unwrap();
    assert_eq!(rig.mock.state().disabled.len(), 0);
    assert_eq!(rig.mock.state().scheduled.len(), 1);
}

#[test]
fn classes_that_tenants_may_have_and_no_others() {
    let (mut rig, space) = Rig::with_tenant();
    let graphics = rig.channel(space, EngineSet::GRAPHICS | EngineSet::COPY0).unwrap();
    rig.driver.create_object(graphics, HOPPER_COMPUTE_A.number, Engine::Graphics).unwrap();
    rig.driver.create_object(graphics, HOPPER_COMPUTE_A.number, Engine::Graphics).unwrap();
    rig.driver.create_object(graphics, HOPPER_DMA_COPY_A.number, Engine::COPY0).unwrap();
    assert_eq!(rig.mock.state().count(HOPPER_COMPUTE_A), 1);
    for (class, engine) in [
        (0xc661, Engine::Graphics),
        (HOPPER_COMPUTE_A.number, Engine::COPY0),
        (HOPPER_DMA_COPY_A.number, Engine::COPY1),
        (HOPPER_DMA_COPY_A.number, Engine::Graphics),
    ] {
        let error = rig.driver.create_object(graphics, class, engine).unwrap_err();
        assert!(matches!(error, GpuError::NoClass { .. }), "{class:#x} {engine:?}: {error}");
    }
}

#[test]
fn engines_that_no_channel_has_together_and_a_refusal() {
    let (mut rig, space) = Rig::with_tenant();
    for engines in
        [EngineSet::empty(), EngineSet::COPY1 | EngineSet::COPY2, EngineSet::GRAPHICS | EngineSet::COPY1]
    {
        assert!(rig.channel(space, engines).is_err(), "{engines:?}");
    }
    assert_eq!(rig.mock.state().count(KEPLER_CHANNEL_GROUP_A), 0);
}

#[test]
fn channel_that_the_driver_refuses_and_nothing_left_of_it() {
    let (mut rig, space) = Rig::with_tenant();
    let before = rig.mock.state().objects.len();
    rig.mock.state().refuse_class = Some((HOPPER_CHANNEL_GPFIFO_A.number, RmStatus::ERR_NO_FREE_FIFOS));
    let error = rig.channel(space, EngineSet::COPY1).unwrap_err();
    assert!(matches!(&error, GpuError::Rm(error) if error.is_shortage()), "{error}");
    assert_eq!(rig.mock.state().objects.len(), before);
}

#[test]
fn notifications_and_each_engine_once() {
    let mut rig = Rig::new();
    let objects: BTreeMap<u32, Handle> = rig
        .driver
        .device()
        .client
        .objects()
        .filter(|(_, object)| object.class.number == 0x79)
        .zip(0..)
        .map(|((handle, _), index)| (index, handle))
        .collect();
    for index in [0, 2, 0] {
        let object = objects[&index];
        let event = crate::rm::abi::calls::EventData { object, ..Default::default() };
        rig.mock.state().events.push_back(event);
    }
    let mut events = Vec::new();
    rig.driver.take_events(&mut events);
    assert_eq!(events, [GpuEvent::NonStall(Engine::Graphics), GpuEvent::NonStall(Engine::COPY1)]);
}

#[test]
fn preemption_and_its_event() {
    let (mut rig, space) = Rig::with_tenant();
    let channel = rig.channel(space, EngineSet::COPY2).unwrap();
    rig.driver.preempt_channel(channel).unwrap();
    let mut events = Vec::new();
    rig.driver.take_events(&mut events);
    assert_eq!(events, [GpuEvent::Preempted(channel)]);
}

/// Hardware would take up its next work between two looks.
#[test]
fn preempted_channel_that_does_not_run_before_it_has_left() {
    let (mut rig, _, channel) = Rig::with_clinging_channel();
    rig.driver.preempt_channel(channel).unwrap();
    let mut budget = Budget::unlimited();
    assert!(rig.driver.advance_pending(&mut budget), "it is there");
    // Neither a new list nor another preemption lets it run.
    rig.driver.commit_runlist(&[channel]).unwrap();
    rig.driver.preempt_channel(channel).unwrap();
    assert_eq!(rig.mock.state().disabled.len(), 1);

    rig.mock.state().clings = false;
    let mut events = Vec::new();
    rig.clock.advance(100_000_000);
    assert!(!rig.driver.advance_pending(&mut budget), "it has left");
    rig.driver.take_events(&mut events);

    assert_eq!(events, [GpuEvent::Preempted(channel)]);
    assert!(rig.mock.state().disabled.is_empty(), "it runs again");
}

/// The driver's own time for a preemption is short; who asked has a longer one, and then takes the channel
/// away: it is disabled first, and freed by the driver, which resets what must be.
#[test]
fn channel_that_does_not_yield_is_held_back_and_taken_away() {
    let (mut rig, space, channel) = Rig::with_clinging_channel();

    rig.driver.preempt_channel(channel).unwrap();
    let mut events = Vec::new();
    rig.driver.take_events(&mut events);
    assert_eq!(events, [], "it has not left");
    rig.driver.commit_runlist(&[]).unwrap();
    assert_eq!(rig.mock.state().disabled.len(), 1);
    rig.driver.destroy_channel(channel).unwrap();

    assert_eq!(rig.mock.state().count(KEPLER_CHANNEL_GROUP_A), 0);
    rig.channel(space, EngineSet::COPY2).unwrap();
}

/// As NVIDIA's own driver has them for a program: a graphics context of several channels.
#[test]
fn channels_that_share_a_graphics_context_are_of_one_group() {
    let (mut rig, space) = Rig::with_tenant();
    let first = rig.channel(space, EngineSet::GRAPHICS).unwrap();
    let second = rig.channel_with(space, EngineSet::GRAPHICS, Some(first)).unwrap();
    assert_eq!(rig.mock.state().count(KEPLER_CHANNEL_GROUP_A), 1);
    assert_eq!(rig.mock.state().count(HOPPER_CHANNEL_GPFIFO_A), 2);

    // One that is held stays held when another of its group begins to run.
    rig.driver.enable_channel(first, true).unwrap();
    rig.driver.commit_runlist(&[first]).unwrap();
    rig.driver.commit_runlist(&[]).unwrap();
    assert_eq!(rig.mock.state().disabled.len(), 1);
    rig.driver.enable_channel(second, true).unwrap();
    rig.driver.commit_runlist(&[second]).unwrap();
    assert_eq!(
        rig.mock.state().disabled.len(),
        1,
        "the group was scheduled, and the first is held all the same"
    );
    rig.driver.doorbell(second).unwrap();

    // The group lives as long as one of them.
    rig.driver.destroy_channel(first).unwrap();
    assert_eq!(rig.mock.state().count(KEPLER_CHANNEL_GROUP_A), 1);
    rig.driver.destroy_channel(second).unwrap();
    assert_eq!(rig.mock.state().count(KEPLER_CHANNEL_GROUP_A), 0);
}

#[test]
fn graphics_context_that_cannot_be_shared() {
    let (mut rig, space) = Rig::with_tenant();
    let copies = rig.channel(space, EngineSet::COPY1).unwrap();
    let graphics = rig.channel(space, EngineSet::GRAPHICS).unwrap();
    let before = rig.mock.state().objects.len();
    for (engines, with) in
        [(EngineSet::GRAPHICS, copies), (EngineSet::COPY1, graphics), (EngineSet::COPY1, copies)]
    {
        assert!(rig.channel_with(space, engines, Some(with)).is_err(), "{engines:?} with {with:?}");
    }
    assert!(rig.channel_with(space, EngineSet::GRAPHICS, Some(HostChannel(77))).is_err());
    let other = rig.driver.create_space().unwrap();
    assert!(rig.channel_with(other, EngineSet::GRAPHICS, Some(graphics)).is_err(), "another address space");
    assert_eq!(rig.mock.state().objects.len(), before + 4, "a space, with what reserves addresses");
}

/// A vGPU says how many multiprocessors there are, and a kernel may wait for a block on each.
#[test]
fn clusters_are_those_that_the_card_has() {
    let rig = Rig::new();
    assert_eq!(rig.driver.info().texture_clusters, Some(TextureClusters::of(&[9, 7])));
}
