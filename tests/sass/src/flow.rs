//! Random CUDA C whose control flow differs from lane to lane: branches, loops, switches, calls, and what
//! lanes do together. NVIDIA's compiler makes machine code of it.
//!
//! What a thread stores depends on its operands alone: loops are bounded, and lanes meet only where the
//! source says which ones.

use std::fmt::Write as _;

use crate::random::Random;

/// Variables of a thread, which it stores at the end.
const VARIABLES: u32 = 8;

/// Statements in statements.
const DEPTH: u32 = 3;

/// Functions that are called.
const FUNCTIONS: u32 = 6;

const HEAD: &str = "typedef unsigned u32;\n\
    #define ID (blockIdx.x * blockDim.x + threadIdx.x)\n";

struct Source<'a> {
    text: String,
    random: &'a mut Random,
    /// Loops so far: each has a variable of its own.
    loops: u32,
    /// Statements that may still be made.
    left: u32,
    /// Functions that may be called: the first ones.
    functions: u32,
}

impl Source<'_> {
    fn line(&mut self, depth: u32, text: &str) {
        for _ in 0..=depth {
            self.text.push_str("    ");
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn variable(&mut self) -> String {
        format!("x{}", self.random.below(VARIABLES))
    }

    fn condition(&mut self) -> String {
        let (a, b) = (self.variable(), self.variable());
        match self.random.below(5) {
            0 => format!("{a} < {b}"),
            1 => format!("(int){a} > (int){b}"),
            2 => format!("({a} & {}) == 0", 1 + self.random.below(7)),
            3 => format!("({a} ^ {b}) & {}", 1 << self.random.below(8)),
            _ => format!("__popc({a}) > {}", 8 + self.random.below(16)),
        }
    }

    fn value(&mut self) -> String {
        let (a, b, c) = (self.variable(), self.variable(), self.variable());
        match self.random.below(8) {
            0 => format!("{a} + {b} * 3u"),
            1 => format!("{a} * {b} + {c}"),
            2 => format!("({a} << ({b} & 31)) ^ {c}"),
            3 => format!("({a} >> ({b} & 15)) + {c}"),
            4 => format!("__brev({a}) - {b}"),
            5 => format!("{a} / (({b} & 1023) + 1) + {c}"),
            6 => format!("{a} ^ {b} ^ {}u", self.random.word()),
            _ => format!("max({a}, {b}) - min({b}, {c})"),
        }
    }

    fn assignment(&mut self, depth: u32) {
        let (to, value) = (self.variable(), self.value());
        self.line(depth, &format!("{to} = {value};"));
    }

    fn block(&mut self, depth: u32, in_loop: bool) {
        for _ in 0..=self.random.below(3) {
            self.statement(depth, in_loop);
        }
    }

    fn statement(&mut self, depth: u32, in_loop: bool) {
        self.left = self.left.saturating_sub(1);
        let simple = depth >= DEPTH || self.left == 0;
        match self.random.below(if simple { 3 } else { 12 }) {
            0 | 1 => self.assignment(depth),
            2 if in_loop => {
                let (condition, jump) =
                    (self.condition(), ["break", "continue"][self.random.once_in(2) as usize]);
                self.line(depth, &format!("if ({condition}) {jump};"));
            }
            2 => self.assignment(depth),
            3..=5 => {
                let condition = self.condition();
                self.line(depth, &format!("if ({condition}) {{"));
                self.block(depth + 1, in_loop);
                if self.random.once_in(2) {
                    self.line(depth, "} else {");
                    self.block(depth + 1, in_loop);
                }
                self.line(depth, "}");
            }
            6 | 7 => {
                let (bound, most) =
                    (self.variable(), self.random.one_of(if depth == 0 { &[3, 7, 15] } else { &[1, 2, 3] }));
                let count = format!("i{}", self.loops);
                self.loops += 1;
                let head = match self.random.below(3) {
                    0 => format!("for (u32 {count} = 0; {count} < {most}; {count}++) {{"),
                    1 => format!("for (u32 {count} = {bound} & {most}; {count}; {count}--) {{"),
                    _ => format!(
                        "#pragma unroll 1\n    for (u32 {count} = 0, e{count} = {bound} & {most}; {count} <= e{count}; {count}++) {{"
                    ),
                };
                self.line(depth, &head);
                self.block(depth + 1, true);
                self.line(depth, "}");
            }
            8 => {
                let (on, cases) = (self.variable(), self.random.one_of(&[4, 8, 16]));
                self.line(depth, &format!("switch ({on} & {}) {{", cases - 1));
                for case in 0..cases {
                    self.line(depth, &format!("case {case}:"));
                    self.assignment(depth + 1);
                    if self.random.once_in(4) {
                        self.assignment(depth + 1);
                    }
                    if !self.random.once_in(4) {
                        self.line(depth + 1, "break;");
                    }
                }
                self.line(depth, "}");
            }
            9 if self.functions > 0 => {
                let (to, function) = (self.variable(), self.random.below(self.functions));
                let (a, b) = (self.variable(), self.variable());
                self.line(depth, &format!("{to} = f{function}({a}, {b});"));
            }
            10 => {
                // Lanes that the source names meet, wherever the others are.
                let (to, from, way) = (self.variable(), self.variable(), self.random.below(4));
                let part = self.random.below(4);
                self.line(depth, &format!("if (threadIdx.x % 4 == {part}) {{"));
                if depth == 0 {
                    let mask = format!("{:#x}u", 0x1111_1111_u32 << part);
                    let text = match way {
                        0 => {
                            format!("{to} += __shfl_xor_sync({mask}, {from}, {});", 4 << self.random.below(3))
                        }
                        1 => format!("{to} ^= __ballot_sync({mask}, {from} & 1);"),
                        2 => format!("{to} += __match_any_sync({mask}, {from} & 3);"),
                        _ => format!("{to} += __reduce_add_sync({mask}, {from});"),
                    };
                    self.line(1, &text);
                } else {
                    self.assignment(depth + 1);
                }
                self.line(depth, "}");
            }
            9 => self.assignment(depth),
            _ => {
                let (to, from) = (self.variable(), self.variable());
                if depth == 0 {
                    let text = match self.random.below(3) {
                        0 => format!(
                            "__syncthreads(); s[threadIdx.x] = {from}; __syncthreads(); {to} += s[threadIdx.x ^ {}];",
                            1 + self.random.below(127)
                        ),
                        1 => format!("{to} += __syncthreads_count({from} & 1);"),
                        _ => format!("{to} += __shfl_sync(~0u, {from}, {from} >> 5);"),
                    };
                    self.line(0, &text);
                } else {
                    let condition = self.condition();
                    self.line(depth, &format!("while ({condition}) {{ {to} = ({to} >> 1) + 1; if ({from} == (({from} ^ {to}) & 7)) break; {from} >>= 1; if (!{from}) break; }}"));
                }
            }
        }
    }
}

/// Source of `count` kernels.
#[must_use]
pub fn source(count: u32, random: &mut Random) -> String {
    let mut text = HEAD.to_owned();
    for function in 0..FUNCTIONS {
        let mut source = Source { text: String::new(), random, loops: 0, left: 6, functions: function };
        for _ in 0..3 {
            source.statement(1, false);
        }
        let body = source.text;
        let _ = writeln!(text, "__device__ __noinline__ u32 f{function}(u32 x0, u32 x1) {{");
        text.push_str("    u32 x2 = x0 ^ x1, x3 = x0 + x1, x4 = x0 * 5, x5 = x1 * 7, x6 = ~x0, x7 = ~x1;\n");
        text.push_str(&body);
        text.push_str("    return x0 + x1 * 3 + x2 + x3 + x4 + x5 + x6 + x7;\n}\n");
    }
    for kernel in 0..count {
        let mut source = Source { text: String::new(), random, loops: 0, left: 40, functions: FUNCTIONS };
        for _ in 0..10 {
            source.statement(0, false);
        }
        let body = source.text;
        let _ =
            writeln!(text, "extern \"C\" __global__ void flow{kernel}(u32 *out, const u32 *in, u32 n) {{");
        text.push_str("    __shared__ u32 s[128];\n");
        let _ =
            writeln!(text, "    for (u32 id = ID; id < n / {VARIABLES}; id += gridDim.x * blockDim.x) {{");
        for variable in 0..VARIABLES {
            let _ = writeln!(text, "    u32 x{variable} = in[id * {VARIABLES} + {variable}];");
        }
        text.push_str(&body);
        for variable in 0..VARIABLES {
            let _ = writeln!(text, "    out[id * {VARIABLES} + {variable}] = x{variable};");
        }
        text.push_str("    }\n}\n");
    }
    text
}
