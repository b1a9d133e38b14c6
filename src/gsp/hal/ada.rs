//! Ada.

use super::ampere::AMPERE;
use super::{GspHal, chips};

chips!(AMPERE: AD102 AD103 AD104 AD106 AD107);
