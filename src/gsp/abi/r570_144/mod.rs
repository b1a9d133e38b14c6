//! Firmware 570.144: layouts and numbers, with NVIDIA's names.

#![allow(
    non_camel_case_types,
    non_snake_case,
    missing_docs,
    reason = "structs, fields and constants keep the names of NVIDIA's headers, which are their documentation"
)]

pub mod boot;
pub mod control;
pub mod object;
pub mod queue;
pub mod rpc;
pub mod static_info;
pub mod suspend;
