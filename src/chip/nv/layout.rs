//! Checks that structures have the layout that hardware or firmware expects.

/// Asserts at build time that a structure has the size and the offsets that the other side expects:
/// `layout!(Name, 16, field @ 8)`.
#[macro_export]
macro_rules! layout {
    ($name:ident, $size:expr $(, $field:ident @ $offset:expr)* $(,)?) => {
        const _: () = {
            assert!(::core::mem::size_of::<$name>() == $size);
            $(assert!(::core::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}
