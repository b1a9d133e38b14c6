//! The dialogues with the virtual GSP in them.

use super::dialogue::{RECORDINGS, Recording, Step};
use crate::model::tests::config;
use crate::model::tests::driver::{
    ALLOC, CONTROL, DUPLICATE, Driver, FREE, LIBOS, REGISTRY, SPEAKS, STATIC_INFO, SYSTEM_INFO, UNLOADING,
    words,
};
use crate::model::{Effect, GspConfig};
use gpuvmk_chip::EngineSet;

/// Where in static info the firmware's own objects are named: from its end, in all versions.
const INTERNAL: usize = 16;
/// NV_ERR_NOT_SUPPORTED.
const NOT_SUPPORTED: u32 = 0x56;
/// INIT_DONE.
const INIT_DONE: u32 = 0x1001;

/// An answer: the RPC's result, the call's own status where it has one, and the rest.
#[derive(Debug)]
pub struct Answer {
    pub result: u32,
    pub status: u32,
    pub rest: Vec<u8>,
}

impl Answer {
    /// The RPC's result, and the call's own.
    pub fn says(&self) -> (u32, u32) {
        (self.result, self.status)
    }

    /// The call was carried out.
    pub fn is_ok(&self) -> bool {
        self.says() == (0, 0)
    }

    pub fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.rest[at..at + 4].try_into().unwrap())
    }

    pub fn long(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.rest[at..at + 8].try_into().unwrap())
    }
}

/// The driver, at some point of the dialogue.
pub struct Talk {
    pub driver: Driver,
    /// Client, device and subdevice of the firmware's own.
    internal: [u32; 3],
}

/// A GH100 as that of the recording: 1 GiB.
pub fn recorded() -> GspConfig {
    let engines = EngineSet::GRAPHICS | EngineSet::COPY0 | EngineSet::COPY1 | EngineSet::COPY2;
    GspConfig { vram: 1 << 30, engines, channels: 32, ..config() }
}

impl Talk {
    /// That of 550.163.01.
    pub fn new() -> Self {
        Self::of(Recording::of_550())
    }

    /// That of a recording.
    pub fn of(recording: &Recording) -> Self {
        SPEAKS.set(recording.version);
        Self { driver: Driver::bare(recorded()), internal: [0; 3] }
    }

    /// Does it; the answer, where the driver waits for one.
    pub fn step(&mut self, step: &Step) -> Option<Answer> {
        match step {
            Step::Boot => {
                self.driver.restart();
                None
            }
            Step::Rpc { function: SYSTEM_INFO, body } => {
                self.driver.send(SYSTEM_INFO, body, 0);
                None
            }
            Step::Rpc { function: REGISTRY, body } => {
                self.driver.send(REGISTRY, body, 0);
                self.boot();
                None
            }
            Step::Rpc { function, body } => {
                let answer = self.call(*function, body, 0, None);
                if *function == STATIC_INFO {
                    self.internal = [0, 4, 8].map(|at| answer.word(answer.rest.len() - INTERNAL + at));
                }
                Some(answer)
            }
            Step::Control { to, number, parameters } => {
                let [client, _, subdevice] = self.internal;
                let [client, object] = to.unwrap_or([client, subdevice]);
                let mut body = words(&[client, object, *number, 0, parameters.len() as u32, 0]);
                body.extend(parameters);
                Some(self.call(CONTROL, &body, 24, Some(12)))
            }
            Step::Alloc { names: [client, parent, object], class, parameters } => {
                let mut body = words(&[*client, *parent, *object, *class, 0, parameters.len() as u32, 0, 0]);
                body.extend(parameters);
                Some(self.call(ALLOC, &body, 32, Some(16)))
            }
            Step::Duplicate { names: [client, parent, object], source: [source_client, source] } => {
                let body = words(&[*client, *parent, *object, *source_client, *source, 0, 0]);
                Some(self.call(DUPLICATE, &body, 0, Some(24)))
            }
            Step::Free([client, object]) => {
                Some(self.call(FREE, &words(&[*client, 0, *object, 0]), 0, Some(12)))
            }
        }
    }

    fn boot(&mut self) {
        self.driver.effects.clear();
        self.driver.events.clear();
        self.driver.boot(LIBOS).unwrap();
        assert!(self.driver.poll().is_empty(), "an answer that nobody waits for");
        let events: Vec<_> = self.driver.events.iter().map(|event| event.function).collect();
        assert_eq!(events, [INIT_DONE]);
        assert_eq!(self.driver.effects, [Effect::Running]);
    }

    fn call(&mut self, function: u32, body: &[u8], fixed: usize, status: Option<usize>) -> Answer {
        let reply = self.driver.call(function, body);
        let (result, status) = (reply.result, status.map_or(0, |at| reply.word(at)));
        Answer { result, status, rest: reply.body[fixed..].to_vec() }
    }
}

/// The controls that the firmware does not know are the same ones each time; all else is carried out.
fn check(recording: &Recording, step: &Step, answer: &Answer) {
    let unknown = matches!(step, Step::Control { number, .. } if recording.unknown.contains(number));
    let wanted = if unknown { (0, NOT_SUPPORTED) } else { (0, 0) };
    assert_eq!(answer.says(), wanted, "{}: {step:x?}: {answer:x?}", recording.version.name);
}

/// A driver waits for each answer, and for nothing else: the right function, its own number, and nothing
/// unasked (asserted by the driver of these tests). Twice in a row, with an unload between.
fn replay(recording: &Recording) {
    let mut talk = Talk::of(recording);
    let (mut most, mut controls, mut unknown) = (0, 0, 0);
    for step in recording.steps() {
        if step == (Step::Rpc { function: UNLOADING, body: vec![0; 8] }) {
            assert_eq!(talk.driver.gsp.objects(), 3, "the driver frees all before it leaves");
        }
        if let Some(answer) = talk.step(&step) {
            check(recording, &step, &answer);
            unknown += u64::from(!answer.is_ok());
            controls += u64::from(matches!(step, Step::Control { .. }));
            let sent = match &step {
                Step::Rpc { body, .. } => body.len(),
                Step::Control { parameters, .. } | Step::Alloc { parameters, .. } => parameters.len(),
                Step::Duplicate { .. } => 28,
                Step::Boot | Step::Free(_) => 16,
            };
            assert_eq!(answer.rest.len(), sent, "{step:x?}");
            if matches!(step, Step::Alloc { .. }) {
                assert_eq!(Some(answer.rest), parameters_of(&step), "parameters come back");
            }
        }
        let live = talk.driver.back.live();
        most = most.max(live.len());
        let directories: Vec<_> = live.values().map(|channel| channel.page_directory.address).collect();
        assert!(directories.iter().all(|address| *address == 0x40_1000), "{step:x?}: {directories:x?}");
    }
    assert_eq!(most, 16, "the channels of a CUDA context");
    assert!(talk.driver.back.live().is_empty());
    let gsp = &talk.driver.gsp;
    assert_eq!(gsp.state().firmware, recording.version.name);
    let counters = gsp.counters();
    assert_eq!((counters.replies_dropped, counters.records_refused, counters.sequence_gaps), (0, 0, 0));
    assert_eq!((counters.refused, counters.rpcs_unknown, counters.controls_unknown), (unknown, 0, unknown));
    assert_eq!((counters.controls, counters.events), (controls, 2));
}

#[test]
fn all_that_550_said_is_answered_and_carried_out() {
    replay(Recording::of_550());
}

#[test]
fn all_that_535_said_is_answered_and_carried_out() {
    replay(Recording::of_535());
}

fn parameters_of(step: &Step) -> Option<Vec<u8>> {
    match step {
        Step::Alloc { parameters, .. } => Some(parameters.clone()),
        _ => None,
    }
}

/// The whole dialogues with another GSP in its place before each message, from the saved state.
#[test]
fn all_of_it_goes_on_from_saved_states() {
    for recording in &RECORDINGS {
        let mut talk = Talk::of(recording);
        for (number, step) in recording.steps().into_iter().enumerate() {
            if number % 7 == 0 {
                talk.driver.restore();
            }
            if let Some(answer) = talk.step(&step) {
                check(recording, &step, &answer);
            }
        }
    }
}
