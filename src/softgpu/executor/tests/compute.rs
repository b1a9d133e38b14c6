//! Compute grids: machine code of our own kernels, launched as drivers do.

mod graphs;
mod groups;
mod hostile;

use super::rig::*;
use crate::Workers;
use gpuvmk_chip::channel_event::{ChannelStop, StopCause};
use gpuvmk_chip::compute;
use gpuvmk_chip::gh100::methods::compute::SEND_PCAS_A;
use gpuvmk_chip::gh100::methods::{CLASS_COMPUTE, host};
use gpuvmk_chip::qmd::layout::V4_0;
use gpuvmk_gpu::{GpuDriver as _, GpuEvent};
use gpuvmk_kernels::launch::{self, Launch, Parameters, Place, Size3};
use gpuvmk_kernels::{ALL, Kernel, Kernels, SM90, spin};

/// Where it does not matter which.
const SPIN: Kernel = SM90.spin;

pub(super) const BASE: u64 = 0x31_0000_0000;
const CONSTANTS: u64 = 0x1_0000;
const QMD: u64 = 0x1_1000;
pub(super) const DATA: u64 = 0x10_0000;
const SIZE: u64 = 0x40_0000;

/// `ROBUST_CHANNEL_GR_EXCEPTION` and `ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT`.
const GR_EXCEPTION: u32 = 13;

pub(super) struct Fixture {
    pub(super) rig: Rig,
    pub(super) channel: Channel,
    pub(super) memory: u64,
}

fn words(methods: &[(u16, u32)]) -> Vec<u32> {
    methods.iter().flat_map(|(method, data)| inc(1, *method, &[*data])).collect()
}

impl Fixture {
    fn new() -> Self {
        Self::of(CLASS_COMPUTE, Workers::ONE)
    }

    /// With the class that runs these kernels.
    fn for_kernels(kernels: &Kernels) -> Self {
        Self::with(kernels, Workers::ONE)
    }

    /// The same, with so many threads.
    pub(super) fn with(kernels: &Kernels, workers: Workers) -> Self {
        let class = compute::ALL.iter().find(|row| row.sm == kernels.spin.target.sm).unwrap();
        Self::of(class.class.method_class(), workers)
    }

    fn of(class: u16, workers: Workers) -> Self {
        let mut rig = Rig::with(workers);
        let space = rig.space();
        let mut channel = rig.channel(space, graphics());
        let memory = rig.buffer(space, BASE, SIZE);
        let mut start = inc(1, host::SET_OBJECT, &[u32::from(class)]);
        start.extend(words(&launch::set_up()));
        rig.run(&mut channel, &start);
        Self { rig, channel, memory }
    }

    pub(super) fn launch(
        &self,
        kernel: &Kernel,
        grid: Size3,
        block: Size3,
        parameters: &Parameters,
    ) -> Launch {
        let place = Place { code: BASE, constants: BASE + CONSTANTS, qmd: BASE + QMD };
        launch::launch(kernel, place, grid, block, parameters.bytes()).unwrap()
    }

    /// Puts a launch into memory. Returns the commands that make it.
    pub(super) fn place(&mut self, code: &[u8], launch: &Launch) -> Vec<u32> {
        let qmd: Vec<u8> = launch.qmd.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        for (at, bytes) in [(0, code), (CONSTANTS, &launch.constants), (QMD, &qmd)] {
            self.rig.write(self.memory + at, bytes);
        }
        words(&launch.methods)
    }

    pub(super) fn run(&mut self, kernel: &Kernel, grid: Size3, block: Size3, parameters: &Parameters) {
        let launch = self.launch(kernel, grid, block, parameters);
        let commands = self.place(kernel.code, &launch);
        self.rig.run(&mut self.channel, &commands);
        assert!(self.rig.errors().is_empty(), "{:?}", self.rig.events);
    }

    pub(super) fn write_words(&mut self, at: u64, values: impl Iterator<Item = u32>) {
        let bytes: Vec<u8> = values.flat_map(u32::to_le_bytes).collect();
        self.rig.write(self.memory + at, &bytes);
    }

    pub(super) fn words(&self, at: u64, count: usize) -> Vec<u32> {
        let bytes = self.rig.read(self.memory + at, count * 4);
        bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
    }

    /// Why the channel was stopped.
    fn stopped(&mut self, commands: &[u32]) -> StopCause {
        self.rig.submit(&mut self.channel, commands);
        self.rig.wait_event(|event| match event {
            GpuEvent::Stopped(ChannelStop { cause, .. }) => Some(*cause),
            _ => None,
        })
    }
}

#[test]
fn vectors_are_added() {
    ALL.into_iter().for_each(vectors);
}

fn vectors(kernels: &Kernels) {
    const COUNT: u32 = 10_000;
    let mut fixture = Fixture::for_kernels(kernels);
    let [a, b, sum] = [DATA, 2 * DATA, 3 * DATA];
    fixture.write_words(a, (0..COUNT).map(|i| (i as f32).to_bits()));
    fixture.write_words(b, (0..COUNT).map(|i| (i as f32 * 0.5).to_bits()));
    let parameters = [a, b, sum].into_iter().fold(Parameters::default(), |all, at| all.pointer(BASE + at));
    let grid = Size3(COUNT.div_ceil(256), 1, 1);
    fixture.run(&kernels.vector_add, grid, Size3(256, 1, 1), &parameters.word(COUNT));
    let wanted: Vec<u32> = (0..COUNT).map(|i| (i as f32 * 1.5).to_bits()).collect();
    assert_eq!(fixture.words(sum, COUNT as usize), wanted);
    assert_eq!(fixture.words(sum + u64::from(COUNT) * 4, 1), [0], "not one more");
}

#[test]
fn matrices_are_multiplied_through_shared_memory() {
    ALL.into_iter().for_each(matrices);
}

fn matrices(kernels: &Kernels) {
    const SIDE: u32 = 32;
    let mut fixture = Fixture::for_kernels(kernels);
    let [a, b, c] = [DATA, 2 * DATA, 3 * DATA];
    let (left, right) = (|i: u32| (i % 7) as f32, |i: u32| (i % 5) as f32 - 2.0);
    fixture.write_words(a, (0..SIDE * SIDE).map(|i| left(i).to_bits()));
    fixture.write_words(b, (0..SIDE * SIDE).map(|i| right(i).to_bits()));
    let parameters = [a, b, c].into_iter().fold(Parameters::default(), |all, at| all.pointer(BASE + at));
    fixture.run(&kernels.matrix_product, Size3(2, 2, 1), Size3(16, 16, 1), &parameters.word(SIDE));
    let product = |i: u32| -> f32 {
        let (row, column) = (i / SIDE, i % SIDE);
        (0..SIDE).map(|k| left(row * SIDE + k) * right(k * SIDE + column)).sum()
    };
    let wanted: Vec<u32> = (0..SIDE * SIDE).map(|i| product(i).to_bits()).collect();
    assert_eq!(fixture.words(c, (SIDE * SIDE) as usize), wanted);
}

#[test]
fn sums_are_reduced_by_atomics() {
    ALL.into_iter().for_each(sums);
}

fn sums(kernels: &Kernels) {
    const COUNT: u32 = 20_000;
    let mut fixture = Fixture::for_kernels(kernels);
    fixture.write_words(DATA, 0..COUNT);
    let parameters = Parameters::default().pointer(BASE + DATA).pointer(BASE + 2 * DATA).word(COUNT);
    fixture.run(&kernels.reduce_sum, Size3(8, 1, 1), Size3(256, 1, 1), &parameters);
    let wanted = u64::from(COUNT) * u64::from(COUNT - 1) / 2;
    assert_eq!(fixture.rig.read_u64(fixture.memory + 2 * DATA), wanted);
}

#[test]
fn a_semaphore_is_released_when_the_grid_has_ended() {
    let mut fixture = Fixture::new();
    let parameters = Parameters::default().pointer(BASE + DATA).word(1000).word(5);
    let mut launch = fixture.launch(&SPIN, Size3(2, 1, 1), Size3(64, 1, 1), &parameters);
    let [release, ..] = V4_0.releases else { panic!("it has one") };
    launch.qmd = launch
        .qmd
        .with(release.enable, 1)
        .with(release.structure_size, 1)
        .with_number(release.address, BASE + 2 * DATA)
        .with_number(release.payload, 77);
    let commands = fixture.place(SPIN.code, &launch);
    fixture.rig.run(&mut fixture.channel, &commands);
    assert_eq!(fixture.words(2 * DATA, 1), [77]);
    let wanted: Vec<u32> = (0..128).map(|thread| spin::result(5 + thread, 1000)).collect();
    assert_eq!(fixture.words(DATA, 128), wanted);
}

#[test]
fn a_dependent_grid_runs_behind() {
    let mut fixture = Fixture::new();
    let parameters = Parameters::default().pointer(BASE + DATA).word(10).word(5);
    let mut launch = fixture.launch(&SPIN, Size3(1, 1, 1), Size3(32, 1, 1), &parameters);
    let second: Vec<u8> = launch
        .qmd
        .clone()
        .with(V4_0.releases[0].enable, 1)
        .with(V4_0.releases[0].structure_size, 1)
        .with_number(V4_0.releases[0].address, BASE + 2 * DATA)
        .with_number(V4_0.releases[0].payload, 9)
        .words()
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    fixture.rig.write(fixture.memory + QMD + 0x400, &second);
    let [dependent, _] = V4_0.dependents else { panic!("it has two") };
    launch.qmd = launch
        .qmd
        .with(dependent.enable, 1)
        .with(dependent.action.unwrap(), 1)
        .with(dependent.pointer, (BASE + QMD + 0x400) >> 8);
    let commands = fixture.place(SPIN.code, &launch);
    fixture.rig.run(&mut fixture.channel, &commands);
    assert_eq!(fixture.words(2 * DATA, 1), [9]);
}

#[test]
fn a_queue_runs_nothing() {
    let mut fixture = Fixture::new();
    let parameters = Parameters::default().pointer(BASE + DATA).word(10).word(5);
    let mut launch = fixture.launch(&SPIN, Size3(1, 1, 1), Size3(32, 1, 1), &parameters);
    launch.qmd = launch.qmd.with(V4_0.kind.bits(), 0);
    let commands = fixture.place(SPIN.code, &launch);
    fixture.rig.run(&mut fixture.channel, &commands);
    assert_eq!(fixture.words(DATA, 32), [0; 32]);
}

#[test]
fn what_an_sm_does_not_have_is_refused() {
    let mut fixture = Fixture::new();
    let parameters = Parameters::default().pointer(BASE + DATA).word(10).word(5);
    let launch = fixture.launch(&SPIN, Size3(1, 1, 1), Size3(1024, 2, 1), &parameters);
    let commands = fixture.place(SPIN.code, &launch);
    assert_eq!(fixture.stopped(&commands), StopCause::Manager(GR_EXCEPTION));
}

#[test]
fn a_store_where_nothing_is_mapped_is_an_mmu_fault() {
    let mut fixture = Fixture::new();
    let nowhere = 0x77_0000_0000;
    let parameters = Parameters::default().pointer(nowhere).word(10).word(5);
    let launch = fixture.launch(&SPIN, Size3(1, 1, 1), Size3(32, 1, 1), &parameters);
    let commands = fixture.place(SPIN.code, &launch);
    let StopCause::Fault(fault) = fixture.stopped(&commands) else { panic!("an MMU fault") };
    assert_eq!((fault.address.0, fault.access), (nowhere, gpuvmk_chip::AccessKind::Write));
    assert_eq!(fixture.rig.gpu.launches_not_executed(), Some(0));
}

#[test]
fn words_that_are_no_instructions_stop_their_channel() {
    let mut fixture = Fixture::new();
    let parameters = Parameters::default().pointer(BASE + DATA).word(10).word(5);
    let launch = fixture.launch(&SPIN, Size3(1, 1, 1), Size3(32, 1, 1), &parameters);
    let commands = fixture.place(&[0xff; 64], &launch);
    assert_eq!(fixture.stopped(&commands), StopCause::Manager(GR_EXCEPTION));
    assert_eq!(fixture.rig.gpu.launches_not_executed(), Some(1), "it may be a gap of ours");
}

#[test]
fn machine_code_of_blackwell_is_said_not_to_be_executed() {
    let row = compute::ALL.iter().find(|row| row.sm == 120).unwrap();
    let mut fixture = Fixture::of(row.class.method_class(), Workers::ONE);
    let commands = words(&[(launch::SEND_PCAS_A, 1), SPIN.target.signal]);
    assert_eq!(fixture.stopped(&commands), StopCause::Manager(GR_EXCEPTION));
    assert_eq!(fixture.rig.gpu.launches_not_executed(), Some(1));
}

#[test]
fn a_grid_without_an_end_leaves_when_its_channel_has_to() {
    let mut fixture = Fixture::new();
    let parameters = Parameters::default().pointer(BASE + DATA).word(u32::MAX).word(5);
    let launch = fixture.launch(&SPIN, Size3(64, 1, 1), Size3(256, 1, 1), &parameters);
    let commands = fixture.place(SPIN.code, &launch);
    fixture.rig.submit(&mut fixture.channel, &commands);
    // Another channel has its turns meanwhile.
    let space = fixture.rig.space();
    let memory = fixture.rig.buffer(space, BASE, SIZE);
    let mut other = fixture.rig.channel(space, graphics());
    let parameters = Parameters::default().pointer(BASE + DATA).word(100).word(7);
    let launch = fixture.launch(&SPIN, Size3(1, 1, 1), Size3(32, 1, 1), &parameters);
    let first = std::mem::replace(&mut fixture.memory, memory);
    let mut commands = inc(1, host::SET_OBJECT, &[u32::from(CLASS_COMPUTE)]);
    commands.extend(words(&launch::set_up()));
    commands.extend(fixture.place(SPIN.code, &launch));
    fixture.rig.run(&mut other, &commands);
    assert_eq!(fixture.words(DATA, 1), [spin::result(7, 100)]);
    assert_eq!(fixture.rig.read_u32(first + DATA), 0, "the first one has no end");
}
