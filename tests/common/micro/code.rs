//! What a micro guest executes: an interpreter of scripts, some hundred bytes of position-independent code.

#![allow(unsafe_code, reason = "the code between two symbols of this program is read as bytes")]

use std::arch::global_asm;

// Registers: r13 script, r14 results, r15 where the end of a script is told. An operation has 32 bytes: its
// number and a count of 32 bits each, then three words of 64 bits (rbx, rdx, r8).
global_asm!(
    ".pushsection .rodata.gpuvmk_micro, \"a\"",
    ".global gpuvmk_micro_begin",
    ".global gpuvmk_micro_end",
    "gpuvmk_micro_begin:",
    "10: mov rsi, r13",
    "    mov rdi, r14",
    "11: mov eax, [rsi]",
    "    mov ecx, [rsi + 4]",
    "    mov rbx, [rsi + 8]",
    "    mov rdx, [rsi + 16]",
    "    mov r8, [rsi + 24]",
    "    add rsi, 32",
    "    lea r9, [rip + 90f]",
    "    movsxd rax, dword ptr [r9 + rax * 4]",
    "    add rax, r9",
    "    jmp rax",
    // End.
    "20: mov [r15], eax",
    "    jmp 10b",
    // Reads of 1, 2, 4 and 8 bytes.
    "21: movzx eax, byte ptr [rbx]",
    "    jmp 80f",
    "22: movzx eax, word ptr [rbx]",
    "    jmp 80f",
    "23: mov eax, [rbx]",
    "    jmp 80f",
    "24: mov rax, [rbx]",
    "    jmp 80f",
    // Writes of 1, 2, 4 and 8 bytes.
    "25: mov [rbx], dl",
    "    jmp 11b",
    "26: mov [rbx], dx",
    "    jmp 11b",
    "27: mov [rbx], edx",
    "    jmp 11b",
    "28: mov [rbx], rdx",
    "    jmp 11b",
    // Until (word & r8) == rdx, at most rcx times; the last word is the result.
    "29: mov eax, [rbx]",
    "    mov r10d, eax",
    "    and r10d, r8d",
    "    cmp r10d, edx",
    "    je 80f",
    "    dec ecx",
    "    jnz 29b",
    "    jmp 80f",
    // Copies r8 bytes from rbx to rdx.
    "30: mov r10, rsi",
    "    mov r11, rdi",
    "    mov rsi, rbx",
    "    mov rdi, rdx",
    "    mov rcx, r8",
    "    shr rcx, 3",
    "    rep movsq",
    "    mov rsi, r10",
    "    mov rdi, r11",
    "    jmp 11b",
    // Reads a word r8 times.
    "31: mov eax, [rbx]",
    "    dec r8",
    "    jnz 31b",
    "    jmp 80f",
    // Writes a word r8 times.
    "32: mov [rbx], edx",
    "    dec r8",
    "    jnz 32b",
    "    jmp 11b",
    // The processor's clock.
    "33: rdtsc",
    "    shl rdx, 32",
    "    or rax, rdx",
    "    jmp 80f",
    // Reads a word of each page of r8 pages from rbx on; their sum is the result.
    "34: xor eax, eax",
    "35: add eax, [rbx]",
    "    add rbx, 4096",
    "    dec r8",
    "    jnz 35b",
    "    jmp 80f",
    // A result.
    "80: mov [rdi], rax",
    "    add rdi, 8",
    "    jmp 11b",
    ".balign 4",
    "90: .long 20b - 90b, 21b - 90b, 22b - 90b, 23b - 90b, 24b - 90b, 25b - 90b, 26b - 90b, 27b - 90b",
    "    .long 28b - 90b, 29b - 90b, 30b - 90b, 31b - 90b, 32b - 90b, 33b - 90b, 34b - 90b",
    "gpuvmk_micro_end:",
    ".popsection",
);

unsafe extern "C" {
    static gpuvmk_micro_begin: u8;
    static gpuvmk_micro_end: u8;
}

/// The interpreter's code.
pub fn interpreter() -> &'static [u8] {
    let (begin, end) = (&raw const gpuvmk_micro_begin, &raw const gpuvmk_micro_end);
    let size = end.addr() - begin.addr();
    // SAFETY: both symbols are defined above, in this order in one section, with the code between them.
    unsafe { std::slice::from_raw_parts(begin, size) }
}
