//! Channels that share a graphics context: what launches need is set up by one of them.

use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::{GpuVa, HostChannel, HostVram};
use gpuvmk_chip::gh100::methods::compute as m;
use gpuvmk_chip::qmd::layout::V4_0;
use gpuvmk_gpu::{ChannelSpec, GpuDriverExt as _, GpuError};

use super::*;

/// Where local memory is, and its bytes for a TPC.
const LOCAL: u64 = BASE + 0x20_0000;
const OF_TPC: u32 = 0x1_0000;

fn bind() -> Vec<u32> {
    inc(1, host::SET_OBJECT, &[u32::from(CLASS_COMPUTE)])
}

impl Fixture {
    fn says_where_local_memory_is(&mut self) {
        let methods = words(&[
            (m::SET_SHADER_LOCAL_MEMORY_A, hi(LOCAL)),
            (m::SET_SHADER_LOCAL_MEMORY_B, lo(LOCAL)),
            (m::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B, OF_TPC),
            (m::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C, 2),
        ]);
        self.rig.run(&mut self.channel, &methods);
    }

    /// Commands that launch a kernel which wants local memory, and what it gives.
    fn wants_local_memory(&mut self, count: u32) -> (Vec<u32>, u32) {
        let parameters = Parameters::default().pointer(BASE + DATA).word(count).word(5);
        let mut launch = self.launch(&SPIN, Size3(1, 1, 1), Size3(32, 1, 1), &parameters);
        launch.qmd = launch.qmd.with_number(V4_0.local[0], 64);
        (self.place(SPIN.code, &launch), spin::result(5, count))
    }

    fn other(&mut self, context_of: Option<HostChannel>) -> Channel {
        let space = self.channel.space;
        let mut other = self.rig.idle_channel_with(space, graphics(), context_of);
        self.rig.start(&other);
        self.rig.run(&mut other, &bind());
        other
    }

    /// Whether the launch runs on a channel.
    fn runs_on(&mut self, channel: &mut Channel, count: u32) -> bool {
        let (commands, result) = self.wants_local_memory(count);
        self.rig.submit(channel, &commands);
        let id = channel.id;
        self.rig.wait(|rig| rig.done(channel) || rig.errors().contains_key(&id));
        !self.rig.errors().contains_key(&id) && self.words(DATA, 1) == [result]
    }
}

#[test]
fn channels_of_one_context_launch_with_what_any_of_them_set_up() {
    let mut fixture = Fixture::new();
    let first = fixture.channel.id;
    let [mut one, mut two] = [(); 2].map(|()| fixture.other(Some(first)));
    // Told while the others are there, and heard by them.
    fixture.says_where_local_memory_is();
    assert!(fixture.runs_on(&mut one, 100));
    assert!(fixture.runs_on(&mut two, 101));
    // By another's name it is the same context, and it outlives the channel that it began with.
    let mut three = fixture.other(Some(two.id));
    fixture.rig.destroy(&fixture.channel);
    assert!(fixture.runs_on(&mut three, 102));
    // A new channel gets a number that nobody's context has.
    let mut stranger = fixture.other(None);
    assert_ne!(stranger.id, first);
    assert!(!fixture.runs_on(&mut stranger, 103), "it was told of no local memory");
    assert!(fixture.runs_on(&mut one, 104));
    for channel in [one, two, three] {
        fixture.rig.destroy(&channel);
    }
    assert_eq!(fixture.other(None).id, first, "the number is free when the context is");
}

#[test]
fn a_context_that_is_not_there_is_not_shared() {
    let mut fixture = Fixture::new();
    let space = fixture.channel.space;
    let copy = fixture.rig.idle_channel(space, EngineSet::COPY1);
    let mut spec = ChannelSpec {
        context_of: Some(copy.id),
        space,
        gpfifo: GpuVa(0x1000),
        gpfifo_entries_log2: 6,
        userd: HostVram(16 << 20),
        engines: graphics(),
    };
    assert!(matches!(fixture.rig.gpu.create_channel(spec), Err(GpuError::Invalid(_))));
    spec.context_of = Some(HostChannel(77));
    assert!(matches!(fixture.rig.gpu.create_channel(spec), Err(GpuError::NoSuch { .. })));
    spec.context_of = Some(fixture.channel.id);
    spec.engines = EngineSet::COPY1;
    assert!(matches!(fixture.rig.gpu.create_channel(spec), Err(GpuError::Invalid(_))));
}
