//! Machine code in what a driver keeps of a pipeline, and where its branches lead.

use anyhow::{Context, Result, bail, ensure};
use gpuvmk_isa::{Arch, Operand, Role, Word, decode};

/// Bytes of an instruction.
const LENGTH: usize = 16;
/// `BRA`, with an ordinary predicate and with one of a whole warp.
const BRANCHES: [u128; 2] = [0x947, 0x547];
const EXIT: u128 = 0x94d;

/// The one piece of machine code in what a driver keeps of a pipeline. Mesa writes the sizes of the code and
/// of the constants behind it, in 32 bits each, and then both.
pub fn find(kept: &[u8]) -> Result<&[u8]> {
    let mut pieces = (0..kept.len()).step_by(4).filter_map(|place| piece(kept.get(place..)?));
    let code = pieces.next().context("What the driver keeps of the pipeline has no machine code")?;
    ensure!(pieces.next().is_none(), "What the driver keeps of the pipeline has more than one piece of code");
    Ok(code)
}

/// The code that `bytes` begin with, if sizes, code and constants are there.
fn piece(bytes: &[u8]) -> Option<&[u8]> {
    let (sizes, bytes) = bytes.split_at_checked(8)?;
    let (code, constants) = sizes.split_at_checked(4)?;
    let size = |word: &[u8]| usize::try_from(u32::from_le_bytes(word.try_into().ok()?)).ok();
    let (code, behind) = bytes.split_at_checked(size(code)?)?;
    let ends = instructions(code).last().is_some_and(|last| opcode(last) == EXIT || is_branch(last));
    // The two highest bits of an instruction are never set.
    let whole = code.len().is_multiple_of(LENGTH) && instructions(code).all(|word| word >> 126 == 0);
    (ends && whole && size(constants)? <= behind.len()).then_some(code)
}

/// How many branches the code of that version has; each leads to an instruction of it. A word that is no
/// instruction is refused as well.
pub fn branches(code: &[u8], arch: Arch) -> Result<usize> {
    let mut count = 0;
    for (place, word) in (0..).step_by(LENGTH).zip(instructions(code)) {
        let instruction =
            decode(arch, Word(word)).with_context(|| format!("at {place:#x} stands {word:#034x}"))?;
        let Some(Operand::Target(distance)) = instruction.operand(Role::Target) else { continue };
        let target = place + 16 + distance;
        let inside = usize::try_from(target).is_ok_and(|target| target < code.len());
        if !inside || target % 16 != 0 {
            bail!(
                "the branch at {place:#x} leads to {}{:#x}, which is no instruction of the {:#x} bytes",
                if target < 0 { "-" } else { "" },
                target.unsigned_abs(),
                code.len()
            );
        }
        count += 1;
    }
    Ok(count)
}

fn instructions(code: &[u8]) -> impl Iterator<Item = u128> + '_ {
    code.as_chunks::<LENGTH>().0.iter().map(|bytes| u128::from_le_bytes(*bytes))
}

fn opcode(word: u128) -> u128 {
    word & 0xfff
}

fn is_branch(word: u128) -> bool {
    BRANCHES.contains(&opcode(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branches(code: &[u8]) -> Result<usize> {
        super::branches(code, Arch::Sm90)
    }

    /// Instructions as NVIDIA's compiler makes them for SM 9.0.
    const SELF: u128 = 0x000fc000_0383ffff_fffffffc_00fc7947;
    const EXIT: u128 = 0x000fea00_03800000_00000000_0000794d;
    const NOP: u128 = 0x000fc000_00000000_00000000_00007918;

    fn code(words: &[u128]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn branches_of_nvidias_compiler_lead_where_they_should() {
        assert_eq!(branches(&code(&[EXIT, SELF, NOP])).unwrap(), 1);
        // `@P0 BRA` nine instructions back, the loop of a kernel.
        let back = 0x000fea00_0383ffff_fffffffc_00d80947;
        assert_eq!(branches(&code(&[[NOP; 9].as_slice(), &[back]].concat())).unwrap(), 1);
        assert!(branches(&code(&[[NOP; 8].as_slice(), &[back]].concat())).is_err());
    }

    #[test]
    fn branch_of_older_generations_leads_out_of_the_code() {
        // `BRA.U !UP0` over six instructions, as Mesa encodes it for Ada.
        let ahead = 0x000fc200_0b800000_00000061_08007547;
        let error = branches(&code(&[[ahead].as_slice(), &[NOP; 20]].concat())).unwrap_err().to_string();
        assert!(error.contains("0x0 leads to 0x6010"), "{error}");
        // `BRA` back.
        let back = 0x000fc200_0383ffff_fffffbd0_00007947;
        let error = branches(&code(&[[NOP; 88].as_slice(), &[back]].concat())).unwrap_err().to_string();
        assert!(error.contains("0x580 leads to -0x42a70"), "{error}");
        // They are right in code of their own version.
        let ada = |words: &[u128]| super::branches(&code(words), Arch::Sm89).unwrap();
        assert_eq!(ada(&[[ahead].as_slice(), &[NOP; 20]].concat()), 1);
        assert_eq!(ada(&[[NOP; 88].as_slice(), &[back]].concat()), 1);
    }

    #[test]
    fn word_that_is_no_instruction_is_named_with_its_place() {
        let error = format!("{:#}", branches(&code(&[NOP, 0x1ff, EXIT])).unwrap_err());
        assert!(error.contains("at 0x10 stands") && error.contains("SM90 has no operation"), "{error}");
    }

    #[test]
    fn place_where_threads_meet_is_looked_at_as_well() {
        let meeting = 0x000fc200_03800000_00000010_00007945;
        assert_eq!(branches(&code(&[meeting, NOP, NOP])).unwrap(), 1);
        assert!(branches(&code(&[meeting, NOP])).is_err());
    }

    #[test]
    fn code_is_found_between_other_things_by_the_sizes_before_it() {
        let code = code(&[NOP, EXIT, SELF]);
        let kept = [&[7; 20][..], &[48, 0, 0, 0], &[4, 0, 0, 0], &code, &[1, 2, 3, 4], &[9; 40]].concat();
        assert_eq!(find(&kept).unwrap(), code);
        assert!(find(&[7; 400]).is_err());
        assert!(find(&[kept.clone(), kept].concat()).unwrap_err().to_string().contains("more than one"));
    }
}
