//! Macros that are wrong, or do not end.

use super::*;

#[test]
fn hostile_macros_stop_their_channel() {
    let nothing = Group::new();
    let alu = |operation: O, a, b| nothing.alu(0, operation, Register::Zero, a, b);
    let (zero, immediate) = (Register::Zero, Register::Immediate);
    let cases = [
        ("a call of a macro", vec![to(m::CALL_MME), send_value(0)]),
        ("code of its own", vec![to(m::LOAD_MME_INSTRUCTION_RAM), send_value(0)]),
        ("a method of the host", vec![to(0x10), send_value(0)]),
        ("data RAM", vec![alu(O::DRead, immediate, zero).immediate(0, 0xc00)]),
        ("data RAM, negative", vec![alu(O::DWrite, immediate, zero).immediate(0, 0xffff)]),
        ("code that is not there", vec![alu(O::Jal, zero, zero).immediate(0, 1 << 15 | 0x7000)]),
        ("a transfer of all addresses", vec![to(m::MME_DMA_WRITE), send_value(u32::MAX)]),
        ("a transfer beyond data RAM", vec![to(m::MME_DMA_READ), send_value(0xc01)]),
        ("more than the FIFO holds", vec![to(m::MME_DMA_READ_FIFOED), send_value(0x401)]),
        ("a FIFO of no size", vec![to(m::SET_MME_DATA_FIFO_CONFIG), send_value(5)]),
        ("a carry of nothing", vec![alu(O::AddC, zero, zero)]),
        ("an extension", vec![alu(O::Extended, immediate, zero).immediate(0, 0x2000)]),
        ("a reduction", vec![to(m::MME_DMA_REDUCTION), send_value(0)]),
        ("state twice", vec![alu(O::State, zero, zero).alu(1, O::State, zero, zero, zero)]),
        ("a loop of nothing", vec![alu(O::Loop, zero, zero).immediate(0, 1)]),
        ("no more data in the FIFO", {
            let source = alu(O::Extended, immediate, Register::ImmediatePair);
            vec![source.immediate(0, 0x1000).immediate(1, 1), load(0)]
        }),
    ];
    for (what, groups) in cases {
        assert_eq!(stop_of(&groups, &[0]), GR_EXCEPTION, "{what}");
    }
    let outside = [to(m::SET_MME_MEM_ADDRESS_A), send_value(0x77), send_value(0)];
    let read = [to(m::MME_DMA_READ_FIFOED), send_value(1)];
    let StopCause::Fault(fault) = stop_of(&[&outside[..], &read].concat(), &[0]) else { panic!("a fault") };
    assert_eq!(fault.address.0, 0x77_0000_0000);
}

#[test]
fn command_streams_that_leave_macros_in_the_lurch_are_stopped() {
    let waiting = [load_macro(0, 3, 30, &words(&[load(0), load(1)])), call(0, 3, &[1])].concat();
    let after = |more: Vec<u32>| [waiting.clone(), more].concat();
    let cases = [
        ("another method", after(inc(0, 0x1c00, &[0]))),
        ("another subchannel's data", after(inc(1, m::CALL_MME + 8 * 3 + 4, &[0]))),
        ("another call", after(call(0, 4, &[0]))),
        ("a class without macros", after(inc(2, 0x180, &[0]))),
        ("another class", after(inc(3, host::SET_OBJECT, &[u32::from(CLASS_2D)]))),
        ("data for no macro", inc(0, m::CALL_MME + 4, &[0])),
        ("more data than it loads", after(fixed(0, m::CALL_MME + 28, &[2, 0]))),
        ("a macro that was not loaded", call(0, 200, &[0])),
        ("code beyond its RAM", inc(0, m::LOAD_MME_INSTRUCTION_RAM_POINTER, &[0x3000, 0])),
        ("a start beyond its RAM", inc(0, m::LOAD_MME_START_ADDRESS_RAM_POINTER, &[256, 0])),
        ("the FIFO by the stream", immediate(0, m::MME_DMA_READ_FIFOED, 1)),
    ];
    for (what, commands) in cases {
        assert_eq!(Fixture::new().stopped(&commands), GR_EXCEPTION, "{what}");
    }
}

#[test]
fn draws_of_macros_are_refused() {
    let StopCause::Graphics(GraphicsError { class, .. }) = stop_of(&[to(0x19d0), send_value(1)], &[0]) else {
        panic!("an error of the class")
    };
    assert_eq!(class, CLASS_3D);
}

#[test]
fn endless_macros_leave_when_their_channel_has_to() {
    let mut fixture = Fixture::new();
    let again = Group::new().alu(0, O::Beq, Register::Zero, Register::Zero, Register::Zero);
    // One that only turns, and one that sends methods.
    let sends = [to(report::SET_REPORT_SEMAPHORE_C), send_value(1)];
    for (groups, back) in [(vec![], 0), (sends.to_vec(), 0x1ffe)] {
        let groups = [groups, vec![again.immediate(0, 1 << 15 | back)]].concat();
        let mut endless = fixture.rig.channel(fixture.channel.space, graphics());
        fixture.rig.submit(&mut endless, &run_macro(&groups, &[0]));
        // Another channel has its turns meanwhile.
        for round in 1..4 {
            fixture.run(&run_macro(&[vec![load(0)], store_at(BASE, 0)].concat(), &[round]));
            assert_eq!(fixture.word(0), round);
        }
        fixture.rig.destroy(&endless);
    }
}

#[test]
fn classes_without_macros_have_none() {
    let mut fixture = Fixture::new();
    // Inline to memory, and Turing's compute class, which only has the scratch words.
    let bind = |subchannel, class: u16| inc(subchannel, host::SET_OBJECT, &[u32::from(class)]);
    fixture.run(&[bind(2, CLASS_INLINE), call(2, 3, &[1, 2, 3])].concat());
    fixture.run(&[bind(1, 0xc5c0), call(1, 3, &[1, 2, 3]), inc(1, compute::SEND_PCAS_A, &[0])].concat());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 24, ..Default::default() })]

    /// Whatever a macro is made of, it ends, waits, or is stopped or taken away, and others go on.
    #[test]
    fn random_macros_harm_nobody(words in proptest::collection::vec(proptest::num::u32::ANY, 3..60)) {
        let mut fixture = Fixture::new();
        let mut hostile = fixture.rig.channel(fixture.channel.space, graphics());
        // Registers and outputs that exist are likelier than chance has them.
        let tamed: Vec<u32> = words.chunks_exact(3).flat_map(|group| {
            let group = Encoded::from([group[0], group[1], group[2]]);
            let fields = gpuvmk_chip::mme::fields::DESTINATION.into_iter();
            let sources = gpuvmk_chip::mme::fields::SOURCES.into_iter().flatten();
            let outputs = gpuvmk_chip::mme::fields::OUTPUT_METHOD.into_iter();
            let outputs = outputs.chain(gpuvmk_chip::mme::fields::OUTPUT_EMIT);
            let group = fields.fold(group, |group, bits| group.with(bits, group.get(bits) % 25));
            let group = sources.fold(group, |group, bits| group.with(bits, group.get(bits) % 30));
            outputs.fold(group, |group, bits| group.with(bits, group.get(bits) % 7)).words()
        }).collect();
        let commands = [load_macro(0, 3, 0, &tamed), call(0, 3, &words[..3])].concat();
        fixture.rig.submit(&mut hostile, &commands);
        let own = run_macro(&[vec![load(0)], store_at(BASE, 0)].concat(), &[5]);
        fixture.rig.run(&mut fixture.channel, &own);
        proptest::prop_assert_eq!(fixture.word(0), 5);
        fixture.rig.destroy(&hostile);
    }
}
