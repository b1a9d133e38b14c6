//! Launches that mean harm: each ends, is stopped, or is taken away, and another channel goes on meanwhile.

use gpuvmk_chip::qmd::Qmd;
use gpuvmk_isa::{Arch, Instruction, Opcode, Operand, Role, Word, decode};

use super::*;
use crate::executor::tests::workers::MANY;

/// The first instruction of a kernel with an opcode.
fn instruction(kernel: &Kernel, opcode: Opcode) -> Instruction {
    let (words, _) = kernel.code.as_chunks::<{ Word::SIZE }>();
    let decoded = words.iter().filter_map(|bytes| decode(Arch::Sm90, Word::from_bytes(*bytes)).ok());
    decoded.into_iter().find(|instruction| instruction.opcode() == opcode).unwrap()
}

fn code(instructions: &[Instruction]) -> Vec<u8> {
    instructions.iter().flat_map(|instruction| instruction.encode().unwrap().0.to_le_bytes()).collect()
}

/// A branch of all lanes to itself.
fn endless() -> Vec<u8> {
    let mut branch = instruction(&SPIN, Opcode::Bra);
    branch.guard.pred.0 = 7;
    branch.guard.not = false;
    code(&[branch.with_operand(Role::Target, Operand::Target(-16))])
}

impl Fixture {
    /// A launch of code that is no kernel of ours.
    fn launch_of(&self, grid: Size3, block: Size3) -> Launch {
        let parameters = Parameters::default().pointer(BASE + DATA).word(10).word(5);
        self.launch(&SPIN, grid, block, &parameters)
    }

    /// Submits what is launched and has a neighbour work beside it. Then what was launched is taken away.
    fn beside_a_neighbour(mut self, commands: &[u32]) {
        self.rig.submit(&mut self.channel, commands);
        let space = self.rig.space();
        let memory = self.rig.buffer(space, BASE, SIZE);
        let mut other = self.rig.channel(space, graphics());
        let theirs = self.launch(
            &SPIN,
            Size3(1, 1, 1),
            Size3(32, 1, 1),
            &Parameters::default().pointer(BASE + DATA).word(100).word(7),
        );
        self.memory = memory;
        let mut work = inc(1, host::SET_OBJECT, &[u32::from(CLASS_COMPUTE)]);
        work.extend(words(&launch::set_up()));
        work.extend(self.place(SPIN.code, &theirs));
        self.rig.run(&mut other, &work);
        assert_eq!(self.words(DATA, 1), [spin::result(7, 100)]);
        self.rig.destroy(&self.channel);
    }
}

#[test]
fn millions_of_blocks_without_an_end_hold_nobody_up() {
    for workers in [Workers::ONE, MANY] {
        let mut fixture = Fixture::of(CLASS_COMPUTE, workers);
        let launch = fixture.launch_of(Size3(1 << 20, 1, 1), Size3(1024, 1, 1));
        let commands = fixture.place(&endless(), &launch);
        fixture.beside_a_neighbour(&commands);
    }
}

#[test]
fn blocks_that_wait_for_threads_that_never_come_hold_nobody_up() {
    let mut fixture = Fixture::of(CLASS_COMPUTE, MANY);
    // More threads than the block has.
    let bar = instruction(&SM90.matrix_product, Opcode::Bar).with_operand(Role::B, Operand::Number(992));
    let launch = fixture.launch_of(Size3(128, 1, 1), Size3(64, 1, 1));
    let launch = Launch { qmd: launch.qmd.clone().with(V4_0.barriers, 1), ..launch };
    let commands = fixture.place(&code(&[bar, instruction(&SPIN, Opcode::Exit)]), &launch);
    fixture.rig.submit(&mut fixture.channel, &commands);
    fixture.rig.settle();
    assert!(!fixture.rig.done(&fixture.channel) && fixture.rig.errors().is_empty(), "it waits");
    fixture.beside_a_neighbour(&[]);
}

#[test]
fn code_that_overwrites_itself_harms_itself_alone() {
    let mut fixture = Fixture::of(CLASS_COMPUTE, MANY);
    // Results go over the code, by more blocks than run at once. Then what is there is launched.
    let parameters = Parameters::default().pointer(BASE).word(10).word(5);
    let launch = fixture.launch(&SPIN, Size3(256, 1, 1), Size3(64, 1, 1), &parameters);
    let commands = fixture.place(SPIN.code, &launch);
    let again = [commands.clone(), words(&launch.methods), words(&launch.methods)].concat();
    fixture.beside_a_neighbour(&again);
}

#[test]
fn descriptions_that_launch_themselves_hold_nobody_up() {
    let mut fixture = Fixture::new();
    let mut launch = fixture.launch_of(Size3(1, 1, 1), Size3(32, 1, 1));
    for fields in V4_0.dependents {
        let chained = launch.qmd.clone().with(fields.enable, 1).with(fields.action.unwrap(), 1);
        launch.qmd = chained.with(fields.pointer, (BASE + QMD) >> 8);
    }
    let commands = fixture.place(SPIN.code, &launch);
    // Each launches two: more wait than may.
    assert_eq!(fixture.stopped(&commands), StopCause::Manager(GR_EXCEPTION));

    let mut fixture = Fixture::new();
    let mut launch = fixture.launch_of(Size3(1, 1, 1), Size3(32, 1, 1));
    let [fields, _] = V4_0.dependents else { panic!("it has two") };
    let chained = launch.qmd.clone().with(fields.enable, 1).with(fields.action.unwrap(), 1);
    launch.qmd = chained.with(fields.pointer, (BASE + QMD) >> 8);
    let commands = fixture.place(SPIN.code, &launch);
    fixture.beside_a_neighbour(&commands);
}

#[test]
fn sizes_beyond_all_limits_are_refused() {
    let of = |change: &dyn Fn(Qmd) -> Qmd| {
        let mut fixture = Fixture::new();
        let launch = fixture.launch_of(Size3(1, 1, 1), Size3(32, 1, 1));
        let launch = Launch { qmd: change(launch.qmd.clone()), ..launch };
        let commands = fixture.place(SPIN.code, &launch);
        fixture.stopped(&commands)
    };
    let [low, high] = V4_0.local;
    let changes: [(&str, &dyn Fn(Qmd) -> Qmd); 8] = [
        ("shared memory", &|qmd| qmd.with_number(V4_0.shared, 0x3_ff80)),
        ("low local memory", &|qmd| qmd.with_number(low, 0xff_fff0)),
        ("high local memory", &|qmd| qmd.with_number(high, 0xff_fff0)),
        ("registers", &|qmd| qmd.with(V4_0.registers, 0x1ff)),
        ("barriers", &|qmd| qmd.with(V4_0.barriers, 31)),
        ("threads", &|qmd| qmd.with(V4_0.block[2], 65)),
        ("no threads", &|qmd| qmd.with(V4_0.block[0], 0)),
        ("a version", &|qmd| qmd.with(V4_0.version_fields[0], 9)),
    ];
    for (what, change) in changes {
        assert_eq!(of(change), StopCause::Manager(GR_EXCEPTION), "{what}");
    }
}

#[test]
fn what_is_not_mapped_is_a_fault_of_the_channel() {
    let nowhere = 0x77_0000_0000;
    let fault = |launch: Launch, methods: &[(u16, u32)]| {
        let mut fixture = Fixture::new();
        fixture.place(SPIN.code, &launch);
        let StopCause::Fault(fault) = fixture.stopped(&words(methods)) else { panic!("an MMU fault") };
        fault.address.0
    };
    let launch = Fixture::new().launch_of(Size3(1, 1, 1), Size3(32, 1, 1));
    let code = Launch { qmd: launch.qmd.clone().with_number(V4_0.program, nowhere), ..launch.clone() };
    assert_eq!(fault(code, &launch.methods), nowhere, "code");
    let released = launch.qmd.clone().with(V4_0.releases[0].enable, 1);
    let released = released.with_number(V4_0.releases[0].address, nowhere);
    let released = Launch { qmd: released, ..launch.clone() };
    assert_eq!(fault(released, &launch.methods) & !0xf, nowhere, "a semaphore");
    let mut methods = launch.methods.clone();
    methods[0].1 = (nowhere >> 8) as u32;
    assert_eq!(fault(launch, &methods), nowhere, "a QMD");
}
