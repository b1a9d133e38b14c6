//! The project's compute kernels decode, print and encode again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use gpuvmk_isa::print::At;
use gpuvmk_isa::{Arch, Word, decode};

const KERNELS: [&[u8]; 4] = [
    include_bytes!("../../../../tests/kernels/sass/sm90/matrix_product.bin"),
    include_bytes!("../../../../tests/kernels/sass/sm90/reduce_sum.bin"),
    include_bytes!("../../../../tests/kernels/sass/sm90/spin.bin"),
    include_bytes!("../../../../tests/kernels/sass/sm90/vector_add.bin"),
];

#[test]
fn every_word_of_the_kernels_decodes_and_encodes_again() {
    for code in KERNELS {
        for (at, bytes) in code.chunks_exact(Word::SIZE).enumerate() {
            let word = Word::from_bytes(bytes.try_into().unwrap());
            let instruction = decode(Arch::Sm90, word).unwrap_or_else(|why| panic!("word {at}: {why}"));
            assert_eq!(instruction.encode(), Some(word), "word {at}: {instruction}");
        }
    }
}

#[test]
fn a_reduction_reads_as_the_disassembler_writes_it() {
    let lines = [
        (0, "LDC R1, c[0x0][0x28]"),
        (6, "BSSY B0, 0x200"),
        (9, "ISETP.NE.AND P1, PT, R2, RZ, PT"),
        (25, "LDG.E R2, desc[UR6][R2.64]"),
        (28, "IADD3 R9, P2, R2, R9, RZ"),
        (29, "IADD3.X R11, RZ, R11, RZ, P2, !PT"),
        (40, "ATOMS.CAST.SPIN.64 R6, [R3], R4, R6"),
        (42, "ISETP.EQ.U32.AND.EX P0, PT, R7, RZ, PT, P0"),
        (43, "@!P0 BRA 0x240"),
        (49, "REDG.E.ADD.64.STRONG.GPU desc[UR6][R4.64], R2"),
    ];
    for (at, text) in lines {
        let bytes = KERNELS[1].chunks_exact(Word::SIZE).nth(at).unwrap();
        let instruction = decode(Arch::Sm90, Word::from_bytes(bytes.try_into().unwrap())).unwrap();
        assert_eq!(At(&instruction, at as u64 * 16).to_string(), text);
    }
}
