//! Groups of instructions in words.

use super::*;

#[test]
fn fields_fill_the_group_without_overlap() {
    let [[a, b], [c, d]] = fields::SOURCES;
    let all = [fields::END_NEXT, fields::PREDICATE_MODE, fields::PREDICATE, a, b, c, d];
    let pairs = [
        fields::OPERATION,
        fields::DESTINATION,
        fields::IMMEDIATE,
        fields::OUTPUT_METHOD,
        fields::OUTPUT_EMIT,
    ];
    let mut seen = 0_u128;
    for bits in all.into_iter().chain(pairs.into_iter().flatten()) {
        assert_eq!(seen & bits.mask(), 0, "{bits:?}");
        seen |= bits.mask();
    }
    assert_eq!(seen, (1 << 96) - 1);
}

#[test]
fn highest_bits_come_first() {
    let group = Encoded::default().with(fields::END_NEXT, 1).with(fields::OUTPUT_EMIT[1], 10);
    assert_eq!(group.words(), [10 << 28, 0, 1]);
    assert_eq!(Encoded::from(group.words()), group);
}

#[test]
fn reserved_numbers_do_not_decode() {
    let zero = u16::from(Register::Zero.number());
    let nothing = [fields::PREDICATE, fields::DESTINATION[0], fields::DESTINATION[1]];
    let sources = fields::SOURCES.into_iter().flatten();
    let nothing =
        nothing.into_iter().chain(sources).fold(Encoded::default(), |all, bits| all.with(bits, zero));
    assert_eq!(nothing.decode().map(|group| group.loads()), Ok(0));
    assert_eq!(nothing.with(fields::SOURCES[1][0], 30).decode(), Err(Illegal));
    assert_eq!(nothing.with(fields::DESTINATION[0], 25).decode(), Err(Illegal));
    assert_eq!(nothing.with(fields::OUTPUT_METHOD[0], 7).decode(), Err(Illegal));
    assert_eq!(nothing.with(fields::OUTPUT_EMIT[0], 11).decode(), Err(Illegal));
    let loading = nothing.with(fields::OUTPUT_EMIT[1], 4);
    assert_eq!(loading.decode().map(|group| group.loads()), Ok(2));
}

#[test]
fn branches_go_both_ways() {
    assert_eq!([0x8006, 0x9ff8, 0x1000].map(branch_distance), [6, -8, -4096]);
}

#[test]
fn predicates_switch_parts_off() {
    // TFUU: the first ALU works where the predicate is zero, the second one where it is not.
    let zero = u16::from(Register::Zero.number());
    let group = Encoded::default().with(fields::PREDICATE_MODE, 5).with(fields::PREDICATE, zero);
    let group = group.decode().unwrap();
    let parts = |predicate| [0, 1, 2, 3].map(|part| group.is_on(predicate, part));
    assert_eq!((parts(0), parts(7)), ([true, false, true, true], [false, true, true, true]));
}
