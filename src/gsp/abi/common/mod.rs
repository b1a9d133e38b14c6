//! The parts of the interface between driver and firmware that are the same in all known versions: queues,
//! headers of RPCs, functions and classes, and most controls.
//!
//! Compared in the headers of 535.113.01, 550.163.01, 570.144 and 580.142.

#![allow(
    non_camel_case_types,
    non_snake_case,
    missing_docs,
    reason = "structs, fields and constants keep the names of NVIDIA's headers, which are their documentation"
)]

pub mod boot;
pub mod calls;
pub mod classes;
pub mod control;
pub mod controls;
pub mod functions;
pub mod numbering;
pub mod object;
pub mod objects;
pub mod queue;
pub mod rpc;
pub mod static_info;
pub mod suspend;
