//! Grids that wait for others: as CUDA launches a kernel behind another, and graphs of many.

use gpuvmk_chip::gh100::methods::compute::SEND_SIGNALING_PCAS2_B;
use gpuvmk_chip::gh100::methods::compute::SEND_SIGNALING_PCAS2_B::PCAS_ACTION;
use gpuvmk_chip::qmd::Qmd;
use gpuvmk_chip::qmd::layout::{DependentFields, TurnFields};

use super::*;

/// Values that each grid adds to.
const COUNT: usize = 32;
/// Where the constant bank and the QMD of the first grid are, and how far those of the next.
const GRIDS: u64 = 0x2_0000;
const STRIDE: u64 = 0x800;
/// What each grid adds.
const STEP: u64 = 2 * DATA;

const ANNOUNCE: u32 = PCAS_ACTION::INVALIDATE_PREFETCH_COPY_SCHEDULE;
const COUNT_DOWN: u32 = PCAS_ACTION::DECREMENT_DEPENDENCE;
/// DEPENDENT_QMD_ACTION.
const SCHEDULE: u64 = 1;
const DECREMENT: u64 = 4;

fn turn() -> TurnFields {
    V4_0.turn.unwrap()
}

fn at(index: u64) -> u64 {
    GRIDS + index * STRIDE + 0x400
}

fn act(index: u64, action: u32) -> Vec<u32> {
    let [_, name] = [0, (BASE + at(index)) >> 8].map(|word| u32::try_from(word).unwrap());
    words(&[(SEND_PCAS_A, name), (SEND_SIGNALING_PCAS2_B, action)])
}

fn then(qmd: Qmd, (next, action): (u64, u64)) -> Qmd {
    let [DependentFields { enable, action: field, pointer }, _] = V4_0.dependents else { panic!("two") };
    qmd.with(*enable, 1).with(field.unwrap(), action).with(*pointer, (BASE + at(next)) >> 8)
}

/// A row of grids. Each adds a step to what the one before has stored, and stores it elsewhere.
struct Row(Fixture);

impl Row {
    fn new() -> Self {
        let fixture = Fixture::for_kernels(&SM90);
        fixture.rig.write(fixture.memory, SM90.vector_add.code);
        Self(fixture)
    }

    /// A grid of the row, without anything that keeps it or comes behind it.
    fn grid(&mut self, index: u64) -> Qmd {
        let fixture = &mut self.0;
        let place = Place { code: BASE, constants: BASE + GRIDS + index * STRIDE, qmd: BASE + at(index) };
        let result = |index: u64| BASE + DATA + index * (COUNT as u64) * 4;
        let parameters = [result(index), BASE + STEP, result(index + 1)];
        let parameters = parameters.into_iter().fold(Parameters::default(), Parameters::pointer);
        let bytes = parameters.word(u32::try_from(COUNT).unwrap());
        let one = Size3(1, 1, 1);
        let launch = launch::launch(&SM90.vector_add, place, one, Size3(32, 1, 1), bytes.bytes()).unwrap();
        fixture.rig.write(fixture.memory + GRIDS + index * STRIDE, &launch.constants);
        launch.qmd
    }

    fn place(&mut self, index: u64, qmd: &Qmd) {
        self.0.write_words(at(index), qmd.words().iter().copied());
    }

    fn run(&mut self, commands: &[u32]) {
        self.0.rig.run(&mut self.0.channel, commands);
        assert!(self.0.rig.errors().is_empty(), "{:?}", self.0.rig.events);
    }

    /// Forgets all results; the first grid begins with this value.
    fn begin(&mut self, grids: u64, value: f32) {
        self.0.write_words(DATA, std::iter::repeat_n(0, (usize::try_from(grids).unwrap() + 1) * COUNT));
        self.0.write_words(DATA, std::iter::repeat_n(value.to_bits(), COUNT));
        self.0.write_words(STEP, std::iter::repeat_n(1_f32.to_bits(), COUNT));
    }

    /// What a grid has stored.
    fn result(&self, index: u64) -> f32 {
        let words = self.0.words(DATA + (index + 1) * (COUNT as u64) * 4, COUNT);
        assert!(words.iter().all(|word| *word == words[0]), "{words:?}");
        f32::from_bits(words[0])
    }
}

/// As CUDA launches: first what comes behind the grid, which waits, then the grid, which counts it down.
#[test]
fn a_grid_with_a_counter_waits_until_it_is_counted_down_each_time() {
    let mut row = Row::new();
    let waits = row.grid(0).with(turn().counter, 2);
    row.place(0, &waits);
    let nothing = then(row.grid(1).with(V4_0.kind.bits(), 1), (0, DECREMENT));
    row.place(1, &nothing);
    for value in [3.0, 4.0, 5.0] {
        row.begin(2, value);
        row.run(&act(0, ANNOUNCE));
        assert_eq!(row.result(0), 0.0, "it counts 2");
        row.run(&act(1, ANNOUNCE));
        assert_eq!(row.result(0), 0.0, "it counts 1");
        row.run(&act(1, ANNOUNCE));
        assert_eq!(row.result(0), value + 1.0);
    }
}

#[test]
fn a_count_up_is_one_more_that_is_waited_for() {
    let mut row = Row::new();
    let waits = row.grid(0).with(turn().counter, 1);
    row.place(0, &waits);
    row.begin(1, 3.0);
    row.run(&[act(0, ANNOUNCE), act(0, PCAS_ACTION::INCREMENT_DEPENDENCE), act(0, COUNT_DOWN)].concat());
    assert_eq!(row.result(0), 0.0);
    row.run(&act(0, COUNT_DOWN));
    assert_eq!(row.result(0), 4.0);
}

#[test]
fn a_grid_that_is_held_runs_once_it_is_scheduled() {
    let mut row = Row::new();
    let held = row.grid(0).with(turn().held, 1);
    row.place(0, &held);
    row.begin(1, 3.0);
    row.run(&act(0, ANNOUNCE));
    assert_eq!(row.result(0), 0.0);
    row.run(&act(0, PCAS_ACTION::SCHEDULE));
    assert_eq!(row.result(0), 4.0);
    row.begin(1, 7.0);
    row.run(&act(0, PCAS_ACTION::SCHEDULE));
    assert_eq!(row.result(0), 8.0, "it is held no longer");
}

/// A grid that begins anew need not be copied for its next time.
#[test]
fn what_keeps_a_grid_begins_anew_when_it_has_ended_if_it_says_so() {
    let mut row = Row::new();
    let waits = row.grid(0).with(turn().counter, 2);
    for (anew, times) in [(1, 2), (0, 1)] {
        row.place(0, &waits.clone().with(turn().begins_anew, anew));
        row.begin(1, 3.0);
        row.run(&[act(0, ANNOUNCE), act(0, COUNT_DOWN), act(0, COUNT_DOWN)].concat());
        assert_eq!(row.result(0), 4.0);
        for time in 1..=times {
            row.begin(1, 5.0);
            row.run(&act(0, COUNT_DOWN));
            assert_eq!(row.result(0) == 6.0, time == times, "{time} of {times}");
        }
    }
}

/// As CUDA launches graphs of many kernels: the kernels of a group are announced, the last one first and all
/// of them held; the first of a group waits for the end of the group before, and to be released.
#[test]
fn a_graph_of_groups_gives_the_same_each_time_that_it_is_launched() {
    const OF_GROUP: u64 = 9;
    const GROUPS: u64 = 4;
    const ALL: u64 = OF_GROUP * GROUPS;
    let mut row = Row::new();
    for index in 0..ALL {
        let mut qmd = row.grid(index).with(turn().begins_anew, 1);
        let leads = index % OF_GROUP == 0;
        if index > 0 {
            qmd = qmd.with(turn().held, 1).with(turn().counter, if leads { 2 } else { 0 });
        }
        let next = index + 1;
        if next < ALL {
            qmd = then(qmd, (next, if next % OF_GROUP == 0 { DECREMENT } else { SCHEDULE }));
        }
        row.place(index, &qmd);
    }
    let written: Vec<_> = (0..ALL).map(|index| row.0.words(at(index), 5)).collect();
    let mut commands = Vec::new();
    for group in 0..GROUPS {
        let first = group * OF_GROUP;
        if group + 1 < GROUPS {
            commands.extend(act(first + OF_GROUP, ANNOUNCE));
        }
        commands.extend((first + 1..first + OF_GROUP).rev().flat_map(|index| act(index, ANNOUNCE)));
        commands.extend(act(first, if group == 0 { ANNOUNCE } else { COUNT_DOWN }));
    }
    for value in [3.0, 100.0, 2000.0] {
        row.begin(ALL, value);
        row.run(&commands);
        for index in 0..ALL {
            assert_eq!(row.result(index), value + index as f32 + 1.0, "grid {index}");
        }
    }
    let now: Vec<_> = (0..ALL).map(|index| row.0.words(at(index), 5)).collect();
    assert_eq!(now, written, "what the driver wrote is as it was");
}
