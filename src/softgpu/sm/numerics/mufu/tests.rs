//! MUFU near the exact functions, and at specials.

use super::super::quadratic::square;
use super::*;

fn by(function: Function, value: f32) -> f32 {
    f32::from_bits(function.of_word(value.to_bits()))
}

#[test]
fn squares_of_all_columns_are_squares() {
    for x in [0, 1, 2, 3, 0x1_ffff, 0x1_2345, 0xffff] {
        assert_eq!(square(x, 0), i64::from(x) * i64::from(x));
    }
    // Bits 0 and 1 of 3: columns 0, 2 and 2.
    assert_eq!(square(3, 1), 8);
    assert_eq!(square(3, 3), 0);
    assert_eq!(square(0x18, 8), (1 << 8) + (1 << 8));
}

#[test]
fn functions_are_near_the_exact_ones() {
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..100_000 {
        let value = f32::from_bits(random.u32(60 << 23..190 << 23));
        let exact = f64::from(value);
        let near = |function, exact: f64, units: f64| {
            let found = f64::from(by(function, value));
            let error = (found - exact).abs() / exact.abs().max(1e-30);
            assert!(
                error < units / f64::from(1 << 23),
                "{function:?} of {value:e}: {found:e}, not {exact:e}"
            );
        };
        near(Function::Reciprocal, exact.recip(), 1.0);
        near(Function::ReciprocalRoot, exact.sqrt().recip(), 1.0);
        near(Function::Root, exact.sqrt(), 1.0);
        if !(0.5..2.0).contains(&exact) {
            near(Function::Logarithm, exact.log2(), 2.0);
        }
        if exact < 100.0 {
            near(Function::Power, exact.exp2(), 2.0);
        }
        let turn = (random.f32() - 0.5) * 8.0;
        let angle = f64::from(turn) * std::f64::consts::TAU;
        assert!((f64::from(by(Function::Sine, turn)) - angle.sin()).abs() < 4e-7);
        assert!((f64::from(by(Function::Cosine, turn)) - angle.cos()).abs() < 4e-7);
    }
}

#[test]
fn specials() {
    let table = [
        (Function::Reciprocal, 0, INFINITY),
        (Function::Reciprocal, 0x8000_0001, INFINITY | SIGN),
        (Function::Reciprocal, INFINITY | SIGN, SIGN),
        (Function::Reciprocal, 0x7e80_0000, 0x0080_0000),
        (Function::Reciprocal, 0x7e80_0001, 0),
        (Function::Reciprocal, 0xffc0_0001, NAN),
        (Function::Reciprocal, ONE, ONE),
        (Function::ReciprocalRoot, ONE, ONE),
        (Function::ReciprocalRoot, 0x4080_0000, 0x3f00_0000),
        (Function::ReciprocalRoot, 0xbf80_0000, NAN),
        (Function::Root, SIGN, SIGN),
        (Function::Root, 0x4080_0000, 0x4000_0000),
        (Function::Root, 0xbf80_0000, NAN),
        (Function::Power, 0, ONE),
        (Function::Power, 0x4300_0000, INFINITY),
        (Function::Power, 0xc300_0000, 0),
        (Function::Power, INFINITY | SIGN, 0),
        (Function::Power, 0x3f80_0000, 0x4000_0000),
        (Function::Logarithm, 0, INFINITY | SIGN),
        (Function::Logarithm, 0x4080_0000, 0x4000_0000),
        (Function::Logarithm, 0xbf80_0000, NAN),
        (Function::Sine, 0, 0),
        (Function::Cosine, INFINITY, NAN),
        (Function::ReciprocalHigh, 0x3ff0_0000, 0x3ff0_0000),
        (Function::ReciprocalHigh, 0x4000_0000, 0x3fe0_0000),
        (Function::ReciprocalRootHigh, 0x4010_0000, 0x3fe0_0000),
    ];
    for (function, word, expected) in table {
        let found = function.of_word(word);
        assert_eq!(found, expected, "{function:?} of {word:08x}: {found:08x}");
    }
    assert_eq!(Function::of(10), None);
}

/// Sums of what an H200 gave for arguments at steps: name, arguments as words or as units of 2^-25, the
/// first one, the step, how many, and the sum (FNV-1a over words). Below 2^-3, TANH was recorded at 512
/// arguments or more of each binade; the others were recorded whole, and are looked at in steps here.
#[test]
fn an_h200_gave_the_same() {
    for line in include_str!("h200.tsv").lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[name, form, base, step, count, sum] = &fields[..] else { panic!("{line}") };
        let (name, half) = name.strip_suffix(".F16").map_or((name, false), |name| (name, true));
        let names = ["COS", "SIN", "EX2", "LG2", "RCP", "RSQ", "RCP64H", "RSQ64H", "SQRT", "TANH"];
        let index = names.iter().position(|one| *one == name).unwrap();
        let function = Function::of(u32::try_from(index).unwrap()).unwrap();
        let (base, step) = (u32::from_str_radix(base, 16).unwrap(), step.parse::<u32>().unwrap());
        let found = (0..count.parse::<u32>().unwrap()).fold(0xcbf2_9ce4_8422_2325_u64, |sum, index| {
            let at = base.wrapping_add(index.wrapping_mul(step));
            let argument = if form == "turns" { (at as f32 / (1 << 25) as f32).to_bits() } else { at };
            let result = if half { function.of_half(argument) } else { function.of_word(argument) };
            (sum ^ u64::from(result)).wrapping_mul(0x100_0000_01b3)
        });
        assert_eq!(format!("{found:016x}"), sum, "{line}");
    }
}
