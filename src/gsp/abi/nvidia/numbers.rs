//! The form in which controls are numbered.

/// Declares controls: numbers by name, and bytes of their parameters.
macro_rules! numbers {
    ($($name:ident = $number:literal, $size:literal;)+) => {
        $( pub const $name: u32 = $number; )+
        /// Bytes of their parameters.
        #[allow(dead_code, reason = "where parameters have a structure, that says it")]
        mod size {
            $( pub const $name: usize = $size; )+
        }
    };
}
pub(in crate::abi) use numbers;
