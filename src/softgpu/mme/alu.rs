//! Arithmetic of macros: what depends on operands alone.

use gpuvmk_chip::mme::{MERGE, Operation as O};

/// What the second ALU has of the first one, which works before it: the carry of a sum, the borrow of a
/// difference, the upper half of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    operation: O,
    value: u32,
}

/// Half a product, and the other half.
fn halves(product: u64) -> (u32, u32) {
    let [low, high] = crate::words::halves(product);
    (low, high)
}

/// The result of a comparison.
const fn all_ones(holds: bool) -> u32 {
    if holds { u32::MAX } else { 0 }
}

/// Whether the condition of a comparison or a branch holds. `None` for other operations.
pub(super) fn holds(operation: O, x: u32, y: u32) -> Option<bool> {
    let (signed_x, signed_y) = (x.cast_signed(), y.cast_signed());
    Some(match operation {
        O::Slt | O::Blt => signed_x < signed_y,
        O::SltU | O::BltU => x < y,
        O::Sle | O::Ble => signed_x <= signed_y,
        O::SleU | O::BleU => x <= y,
        O::Seq | O::Beq => x == y,
        _ => return None,
    })
}

/// Bits of `y` among those of `x`, as the immediate says.
fn merge(x: u32, y: u32, immediate: u16) -> u32 {
    let control = immediate.into();
    let (to, from) = (MERGE::TO.get(control), MERGE::FROM.get(control));
    let bits = 1_u32.checked_shl(MERGE::COUNT.get(control)).unwrap_or(0).wrapping_sub(1);
    let place = |bits: u32| bits.checked_shl(to).unwrap_or(0);
    x & !place(bits) | place(y >> from & bits)
}

/// Computes an operation of two operands, and what it leaves for the second ALU.
///
/// `None` where it is none of those, or needs what the first ALU did not leave.
pub(super) fn compute(
    operation: O,
    [x, y]: [u32; 2],
    immediate: u16,
    chain: Option<Chain>,
) -> Option<(u32, Option<Chain>)> {
    let of = |wanted: &[O]| chain.filter(|chain| wanted.contains(&chain.operation)).map(|chain| chain.value);
    let plain = |value| Some((value, None));
    let chained = |value, left| Some((value, Some(Chain { operation, value: left })));
    match operation {
        O::Add => {
            let (sum, carry) = x.overflowing_add(y);
            chained(sum, carry.into())
        }
        O::AddC => plain(x.wrapping_add(y).wrapping_add(of(&[O::Add])?)),
        O::Sub => {
            let (difference, borrow) = x.overflowing_sub(y);
            chained(difference, borrow.into())
        }
        O::SubB => plain(x.wrapping_sub(y).wrapping_sub(of(&[O::Sub])?)),
        O::Mul => {
            let product = i64::from(x.cast_signed()).wrapping_mul(i64::from(y.cast_signed()));
            let (low, high) = halves(product.cast_unsigned());
            chained(low, high)
        }
        O::MulU => {
            let (low, high) = halves(u64::from(x).wrapping_mul(y.into()));
            chained(low, high)
        }
        O::MulH => plain(of(&[O::Mul, O::MulU])?),
        O::Clz => plain(x.leading_zeros()),
        O::Sll => plain(x.wrapping_shl(y)),
        O::Srl => plain(x.wrapping_shr(y)),
        O::Sra => plain(x.cast_signed().wrapping_shr(y).cast_unsigned()),
        O::And => plain(x & y),
        O::Nand => plain(!(x & y)),
        O::Or => plain(x | y),
        O::Xor => plain(x ^ y),
        O::Merge => plain(merge(x, y, immediate)),
        O::Slt | O::SltU | O::Sle | O::SleU | O::Seq => plain(all_ones(holds(operation, x, y)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(operation: O, x: u32, y: u32) -> u32 {
        compute(operation, [x, y], 0, None).unwrap().0
    }

    #[test]
    fn operations_of_two_operands() {
        let minus = |value: i32| value.cast_unsigned();
        let cases = [
            (O::Add, u32::MAX, 2, 1),
            (O::Sub, 1, 2, u32::MAX),
            (O::Mul, minus(-3), 5, minus(-15)),
            (O::MulU, 0x8000_0001, 2, 2),
            (O::Clz, 0x0001_0000, 0, 15),
            (O::Clz, 0, 0, 32),
            // Counts of shifts have five bits.
            (O::Sll, 1, 33, 2),
            (O::Srl, 0x8000_0000, 31, 1),
            (O::Sra, 0x8000_0000, 31, u32::MAX),
            (O::Nand, 0xf0, 0x3c, !0x30),
            (O::Xor, 0xf0, 0x3c, 0xcc),
            (O::Slt, minus(-1), 0, u32::MAX),
            (O::SltU, minus(-1), 0, 0),
            (O::Sle, 4, 4, u32::MAX),
            (O::SleU, 5, 4, 0),
            (O::Seq, 4, 4, u32::MAX),
        ];
        for (operation, x, y, wanted) in cases {
            assert_eq!(value(operation, x, y), wanted, "{operation:?} {x:#x} {y:#x}");
        }
    }

    #[test]
    fn second_alu_goes_on_with_what_the_first_one_left() {
        let second = |first, x, y, second| {
            let (_, chain) = compute(first, [x, y], 0, None).unwrap();
            compute(second, [10, 3], 0, chain).map(|(value, _)| value)
        };
        assert_eq!(second(O::Add, u32::MAX, 1, O::AddC), Some(14));
        assert_eq!(second(O::Add, 1, 1, O::AddC), Some(13));
        assert_eq!(second(O::Sub, 0, 1, O::SubB), Some(6));
        assert_eq!(second(O::Mul, u32::MAX, 7, O::MulH), Some(u32::MAX));
        assert_eq!(second(O::MulU, u32::MAX, 7, O::MulH), Some(6));
        assert_eq!(second(O::Sub, 0, 1, O::AddC), None, "nothing was added");
        assert_eq!(second(O::Or, 0, 1, O::MulH), None);
    }

    #[test]
    fn merge_puts_bits_among_others() {
        let control = |to: u16, count: u16, from: u16| to << 10 | count << 5 | from;
        assert_eq!(merge(0xaaaa_bbbb, 0x1234_5678, control(16, 16, 0)), 0x5678_bbbb);
        assert_eq!(merge(0, 0x1234_5678, control(4, 8, 24)), 0x120);
        assert_eq!(merge(7, u32::MAX, control(63, 31, 0)), 7, "beyond the word");
        assert_eq!(merge(7, u32::MAX, control(0, 0, 0)), 7);
    }
}
