//! Packed half precision.

use crate::dsl::*;

pub(crate) static ROWS: &[Row] = &[row(
    O::Hfma2Mma,
    0x035,
    (crate::Arch::Sm80, crate::Arch::Sm90),
    THREE,
    &[D, a(Half), b(Half), c(Half)],
    &[flag(K::Bf16V2, 85), flag(K::Ftz, 80), flag(K::Relu, 79), flag(K::Sat, 77)],
)
.number(Number::Halves)];
