//! Machine code as text.

use std::fmt::Write as _;

use gpuvmk_isa::print::At;
use gpuvmk_isa::{Arch, Word, decode};

use gpuvmk_shader::cubin::Cubin;

/// The instructions of a piece of code, a line each: address, text, word.
pub fn text(arch: Arch, code: &[u8]) -> String {
    let mut text = String::new();
    let (words, rest) = code.as_chunks::<{ Word::SIZE }>();
    for (bytes, address) in words.iter().zip((0_u64..).step_by(Word::SIZE)) {
        let word = Word::from_bytes(*bytes);
        let line = match decode(arch, word) {
            Ok(instruction) => At(&instruction, address).to_string(),
            Err(illegal) => format!("?? {illegal}"),
        };
        let _ = writeln!(text, "        /*{address:04x}*/  {line:<72} /* {:#034x} */", word.0);
    }
    if !rest.is_empty() {
        let _ = writeln!(text, "        {} bytes more, which are no instruction", rest.len());
    }
    text
}

/// All kernels of a cubin, or one.
pub fn cubin(cubin: &Cubin, only: Option<&str>) -> String {
    let mut whole = String::new();
    for kernel in cubin.kernels.iter().filter(|kernel| only.is_none_or(|name| kernel.name == name)) {
        let _ = writeln!(
            whole,
            "{}: SM {}, {} registers, {} bytes of shared memory, {} of stack, {} parameters",
            kernel.name,
            cubin.arch.number(),
            kernel.registers,
            kernel.shared,
            kernel.stack,
            kernel.parameters.len()
        );
        whole.push_str(&text(cubin.arch, &kernel.code));
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_printed_with_absolute_targets() {
        let file = Cubin::read(include_bytes!("../tests/kernels.cubin")).unwrap();
        let text = cubin(&file, Some("mixed"));
        for part in [
            "mixed: SM 90, 13 registers, 0 bytes of shared memory, 0 of stack, 3 parameters",
            "/*0190*/  FFMA R6, R6, 0.99000000953674316406, R7",
            "/*0330*/  @P1 BRA 0x180",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("??"), "{text}");
        assert!(!text.contains("product"));
    }

    #[test]
    fn words_that_are_no_instructions_are_said_to_be_none() {
        let text = text(Arch::Sm90, &[0xff; 20]);
        assert!(text.contains("??") && text.contains("4 bytes more"), "{text}");
    }
}
