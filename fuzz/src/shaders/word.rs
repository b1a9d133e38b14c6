//! Instruction words: any bits, operations of the table with operands, words of our own kernels with changes.

use gpuvmk_isa::{Arch, Bits, Word, codes};
use gpuvmk_kernels::SM90;

use crate::input::Input;

/// Versions of machine code.
pub(crate) const ARCHES: [Arch; 7] =
    [Arch::Sm75, Arch::Sm80, Arch::Sm86, Arch::Sm89, Arch::Sm90, Arch::Sm100, Arch::Sm120];

/// Fields that most instructions have: a destination, three operands, and the guard.
const REGISTERS: [Bits; 4] = [Bits::new(16, 8), Bits::new(24, 8), Bits::new(32, 8), Bits::new(64, 8)];
const GUARD: Bits = Bits::new(12, 4);

/// The guard that is always true.
const ALWAYS: u64 = 7;

/// A word.
pub(crate) fn word(input: &mut Input<'_>, arch: Arch) -> Word {
    let word = match input.below(8) {
        0 => return any(input),
        1..=3 => of_table(input, arch),
        _ => of_kernels(input),
    };
    // Some bytes of it are others.
    (0..input.below(3)).fold(word, |word, _| {
        let at = input.below(16);
        word.with(Bits::new(at * 8, 8), input.u8().into())
    })
}

fn any(input: &mut Input<'_>) -> Word {
    Word(u128::from(input.u64()) | u128::from(input.u64()) << 64)
}

/// An operation of the table, with low registers.
fn of_table(input: &mut Input<'_>, arch: Arch) -> Word {
    let known = codes(arch);
    let at = usize::from(input.u16()).checked_rem(known.len());
    let Some(code) = at.and_then(|at| known.get(at)) else { return any(input) };
    let word = Word::default().with_code(*code).with(GUARD, ALWAYS);
    REGISTERS.into_iter().fold(word, |word, bits| {
        let register = input.pick(&[255, 0, 1, 2, 3, 4, 6, 8, 12, 63]);
        word.with(bits, register)
    })
}

fn of_kernels(input: &mut Input<'_>) -> Word {
    let kernel = input.pick(&[&SM90.matrix_product, &SM90.reduce_sum, &SM90.spin, &SM90.vector_add]);
    let (words, _) = kernel.code.as_chunks::<{ Word::SIZE }>();
    let at = usize::from(input.u8()).checked_rem(words.len());
    at.and_then(|at| words.get(at)).map_or_else(|| any(input), |bytes| Word::from_bytes(*bytes))
}
