//! Who becomes a tenant.

use super::*;
use gpuvmk_scheduler::share::Share;

#[test]
fn admission_is_refused_with_the_reason() {
    let (mut machine, _fake) = machine();
    let cases = [
        (Hello { version: 99, ..hello("x") }, RefusalKind::Version),
        (hello(""), RefusalKind::Name),
        (hello("../etc"), RefusalKind::Name),
        (hello("two\nlines"), RefusalKind::Name),
        (Hello { chip: Chip::GH100.into(), ..hello("x") }, RefusalKind::Chip),
        (Hello { vram: 0, ..hello("x") }, RefusalKind::Protocol),
        (Hello { vram: 257 * MIB, ..hello("x") }, RefusalKind::Exhausted),
        (Hello { vram: u64::MAX, ..hello("x") }, RefusalKind::Exhausted),
        (Hello { channels: 0, ..hello("x") }, RefusalKind::Exhausted),
        (Hello { channels: 17, ..hello("x") }, RefusalKind::Exhausted),
        (Hello { share: Share { weight: 0, ..Share::default() }, ..hello("x") }, RefusalKind::Protocol),
    ];

    for (wish, kind) in cases {
        assert_eq!(machine.admit(&wish, T0).unwrap_err().kind, kind, "{wish:?}");
    }
    for name in ["", ".", "..", ".x", "-x", "--all", "a b", "a/b", "$x", "x\n"] {
        assert_eq!(machine.admit(&hello(name), T0).unwrap_err().kind, RefusalKind::Name, "{name:?}");
    }
    machine.admit(&hello("x"), T0).unwrap();
    assert_eq!(machine.admit(&hello("x"), T0).unwrap_err().kind, RefusalKind::Name);
}

#[test]
fn only_wishes_that_can_come_true_are_worth_waiting() {
    let (mut machine, _fake) = machine();
    machine.admit(&hello("a"), T0).unwrap();
    let cases = [
        (hello("a"), Wait::Briefly),
        (Hello { vram: 256 * MIB, ..hello("b") }, Wait::Briefly),
        (Hello { vram: 257 * MIB, ..hello("b") }, Wait::No),
        (Hello { channels: 17, ..hello("b") }, Wait::No),
        (hello("no/name"), Wait::No),
        (Hello { version: PROTOCOL_VERSION + 1, ..hello("b") }, Wait::No),
    ];

    for (wish, wait) in cases {
        let refusal = machine.admit(&wish, T0).unwrap_err();
        assert_eq!(machine.worth_waiting(&wish, &refusal, T0), wait, "{wish:?}");
    }
}

#[test]
fn channels_granted_never_exceed_those_of_the_gpu() {
    let (mut machine, _fake) = machine();
    let wish = |name| Hello { channels: 10, vram: 16 * MIB, ..hello(name) };

    machine.admit(&wish("a"), T0).unwrap();

    assert_eq!(machine.admit(&wish("b"), T0).unwrap_err().kind, RefusalKind::Exhausted);
}
