//! Words that Mesa's compiler makes and NVIDIA's does not: they decode, print and encode again.
//!
//! Seen in guests with Mesa 25.0.7 (SM 7.5 to 8.9) and 26.1.6 (SM 9.0).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use gpuvmk_isa::print::At;
use gpuvmk_isa::{Arch, Word, decode};

const WORDS: &[(Arch, u128, &str)] = &[
    // A uniform predicate becomes one of each lane.
    (Arch::Sm75, 0x000f_da00_03f0_f50a_0000_0000_0000_781c, "PLOP3.LUT P0, PT, PT, PT, UP0, 0xaa, 0x0"),
    (Arch::Sm90, 0x000f_da00_03f0_f50a_0000_0000_0000_781c, "PLOP3.LUT P0, PT, PT, PT, UP0, 0xaa, 0x0"),
    // RZ where a third source would be.
    (Arch::Sm89, 0x001f_c200_0001_00ff_3f80_0000_0102_7421, "FADD.FTZ R2, R1, 1"),
    // RZ and PT where an atomic's result would be.
    (Arch::Sm75, 0x0001_c200_009f_6100_0000_0401_04ff_798e, "RED.E.MIN.STRONG.SYS [R4+0x4], R1"),
    (Arch::Sm89, 0x0001_c200_009f_4100_0000_0401_04ff_798e, "RED.E.MIN.STRONG.SYS [R4+0x4], R1"),
    (Arch::Sm90, 0x0003_c800_0090_e100_0000_0401_02ff_798e, "REDG.E.MIN.STRONG.GPU [R2+0x4], R1"),
    // Atomics of Hopper without a uniform register, and what Hopper has VIMNMX for.
    (Arch::Sm90, 0x000f_c200_0380_0000_0000_1003_0200_738c, "ATOMS.XOR R0, [R2+0x10], R3"),
    (
        Arch::Sm90,
        0x000f_c200_001e_f300_0000_1003_0200_73a3,
        "ATOMG.E.ADD.F32.FTZ.RN.STRONG.GPU PT, R0, [R2+0x10], R3",
    ),
    (Arch::Sm90, 0x000f_c200_001e_f300_0000_1003_02ff_79a6, "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU [R2+0x10], R3"),
    (Arch::Sm90, 0x000f_c200_0010_f300_0000_1003_02ff_79a6, "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU [R2+0x10], R3"),
    (Arch::Sm90, 0x000f_c200_0380_0000_0000_0003_0200_7217, "IMNMX.U32 R0, R2, R3, PT"),
    (Arch::Sm90, 0x000f_c200_0780_0200_0000_0003_0200_7817, "IMNMX R0, R2, 0x3, !PT"),
    // The upper half of a register.
    (Arch::Sm89, 0x0000_4400_0010_1000_1000_0002_0003_7304, "F2F.F32.F16 R3, R2.H1"),
    // A branch of the whole warp, whose distance Hopper reads in two parts.
    (Arch::Sm89, 0x000f_c200_0b80_0000_0000_0061_0800_7547, "BRA.U !UP0, 0x70"),
];

#[test]
fn words_of_mesas_compiler_print_and_encode_again() {
    for (arch, word, text) in WORDS {
        let instruction = decode(*arch, Word(*word)).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(At(&instruction, 0).to_string(), *text);
        assert_eq!(instruction.encode(), Some(Word(*word)), "{text}");
    }
}
