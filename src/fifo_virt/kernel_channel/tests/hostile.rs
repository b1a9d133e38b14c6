//! Whatever a guest submits: no panic, and no more work than the budget has.

use super::*;
use proptest::prelude::*;

/// Words near those that mean something.
fn word() -> impl Strategy<Value = u32> {
    let method = prop_oneof![
        Just(copy::LAUNCH_DMA),
        Just(copy::OFFSET_IN_UPPER),
        Just(copy::LINE_LENGTH_IN),
        Just(copy::SET_REMAP_CONST_A),
        Just(copy::SET_SEMAPHORE_A),
        Just(host::SET_OBJECT),
        Just(host::MEM_OP_A),
        Just(host::SEM_ADDR_LO),
        Just(host::SEMAPHORE_A),
        (0_u16..0x200).prop_map(|number| 4 * number),
    ];
    let operation = prop_oneof![4 => Just(SEC_OP::INC_METHOD), 1 => 0_u32..8];
    let announced = (operation, 0_u8..8, method, 0_u16..6)
        .prop_map(|(operation, subchannel, method, count)| header(operation, subchannel, method, count));
    let data = prop_oneof![
        Just(u32::from(CLASS_COPY)),
        Just(u32::from(CLASS_2D)),
        Just(halves(DATA)[0]),
        Just(0x2182),
        Just(0x318e),
        0_u32..0x2_0000,
        any::<u32>(),
    ];
    prop_oneof![announced, data]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]
    #[test]
    fn any_words_end_within_the_budget(
        words in proptest::collection::vec(word(), 1..200),
        (put, steps, bytes) in (0_u32..20, 0_u32..500, 0_u64..0x8000),
    ) {
        let mut machine = Machine::new();
        let (first, second) = words.split_at(words.len() / 2);
        machine.submit(0, first);
        machine.submit(1, second);
        let mut channel = channel();
        for _ in 0..8 {
            machine.accesses = 0;
            let outcome = channel.run(put, &mut machine, &mut Budget { steps, bytes });
            // A semaphore is an access or a few; a piece of a copy reads and writes, page by page.
            let most = u64::from(steps) * 8 + (bytes / 256 + 1) * 16;
            prop_assert!(machine.accesses <= most + 16, "{} accesses", machine.accesses);
            if outcome.is_err() {
                break;
            }
        }
    }

    #[test]
    fn any_ring_ends_within_the_budget(entries in proptest::collection::vec(any::<[u32; 2]>(), 16)) {
        let mut machine = Machine::new();
        machine.put(RING_VRAM, entries.as_flattened());
        let outcome = channel().run(15, &mut machine, &mut Budget { steps: 200, bytes: 0x1000 });
        prop_assert!(outcome.is_err() || outcome == Ok(Outcome::More) || outcome == Ok(Outcome::Idle));
    }
}

#[test]
fn put_behind_the_ring_and_rings_at_the_end_of_addresses_are_refused() {
    let mut machine = Machine::new();
    let run = |channel: &mut KernelChannel, put, machine: &mut Machine| {
        channel.run(put, machine, &mut PLENTY.clone()).unwrap_err()
    };
    let refusal = Refusal::Put { gp_put: 16, entries: 16 };
    assert_eq!(run(&mut channel(), 16, &mut machine), refusal);
    let mut far = KernelChannel::new(GpuVa(u64::MAX - 4), u8::MAX);
    assert!(matches!(run(&mut far, 1, &mut machine), Refusal::Virtual { .. } | Refusal::Address(_)));
    assert!(matches!(run(&mut far, 1 << 19, &mut machine), Refusal::Put { entries: 0x8_0000, .. }));
    machine.pages.clear();
    let kind = AccessKind::Read;
    assert_eq!(run(&mut channel(), 1, &mut machine), Refusal::Virtual { va: GpuVa(RING), kind });
}

/// A segment that is as long as one can be, of methods without effect.
#[test]
fn endless_segment_is_read_in_parts() {
    let (mut machine, mut channel) = (Machine::new(), channel());
    let entry = RingEntry::segment(COMMANDS, 0x1f_ffff);
    machine.put(RING_VRAM, &[entry as u32, (entry >> 32) as u32]);
    let mut calls = 0;
    let end = loop {
        calls += 1;
        match channel.run(1, &mut machine, &mut Budget { steps: 1_000, bytes: 1 }) {
            Ok(outcome) => assert_eq!(outcome, Outcome::More),
            Err(refusal) => break refusal,
        }
    };
    // Sixteen pages of commands, and then nothing.
    assert_eq!(end, Refusal::Virtual { va: GpuVa(COMMANDS + 16 * PAGE), kind: AccessKind::Read });
    assert!(calls > 16, "{calls} calls");
}
