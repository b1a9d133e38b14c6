//! Formats of results.

use gpuvmk_isa::modifier::ResultType;

use crate::numerics::format::Format;

pub(super) const fn result_format(number: ResultType) -> Option<Format> {
    Some(match number {
        ResultType::F16 => Format::HALF,
        ResultType::Bf16 => Format::BFLOAT,
        ResultType::F64 => Format::DOUBLE,
        ResultType::F32 | ResultType::None => Format::SINGLE,
        _ => return None,
    })
}
