//! Ada.

use super::turing::TURING;
use super::{GspHal, chips};

chips!(TURING: AD102 AD103 AD104 AD106 AD107);
