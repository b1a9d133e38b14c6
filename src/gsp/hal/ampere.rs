//! Ampere (GA10x).

use super::turing::TURING;
use super::{GspHal, chips};

chips!(TURING: GA102 GA103 GA104 GA106 GA107);
