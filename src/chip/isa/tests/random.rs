//! Any word decodes to an instruction that encodes to that word, or is refused; none makes a panic.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use fastrand::Rng;
use gpuvmk_isa::{Arch, Illegal, Word, codes, decode};

const WORDS: usize = 20_000;

/// Decodes, and checks what comes of it.
fn try_word(arch: Arch, word: Word) -> bool {
    let Ok(instruction) = decode(arch, word) else { return false };
    assert_eq!(instruction.encode(), Some(word), "{arch} {:#034x}: {instruction}", word.0);
    assert!(!instruction.to_string().is_empty());
    true
}

#[test]
fn random_words_are_refused_or_come_back() {
    let mut random = Rng::with_seed(39);
    for arch in Arch::ALL {
        for _ in 0..WORDS {
            try_word(arch, Word(random.u128(..)));
        }
    }
}

#[test]
fn words_of_known_operations_are_refused_or_come_back() {
    let mut random = Rng::with_seed(40);
    for arch in Arch::ALL {
        let mut decoded = 0;
        for code in codes(arch) {
            for _ in 0..60 {
                // Few bits, so that many words are legal.
                let sparse = random.u128(..) & random.u128(..) & random.u128(..) & random.u128(..);
                decoded += usize::from(try_word(arch, Word(sparse).with_code(code)));
            }
        }
        assert!(decoded > 100, "{arch}: {decoded} words decode");
    }
}

#[test]
fn every_bit_of_a_word_counts() {
    // A word of MOV with each of its bits flipped is another instruction, another one's word, or illegal.
    let word = Word(0x000f_e200_0000_0f00_0000_0002_0005_7202);
    let legal = decode(Arch::Sm90, word).unwrap();
    for bit in 0..128 {
        let other = Word(word.0 ^ (1 << bit));
        match decode(Arch::Sm90, other) {
            Ok(instruction) => {
                assert_eq!(instruction.encode(), Some(other), "bit {bit}");
                assert_ne!(instruction.encode(), legal.encode(), "bit {bit}");
            }
            // Another operation may lack bits that MOV has.
            Err(_) if bit < 12 || bit == 91 => {}
            Err(Illegal::Bit { bit: told, .. }) => assert_eq!(told, bit),
            Err(why) => panic!("bit {bit}: {why}"),
        }
    }
}
