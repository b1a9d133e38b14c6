//! A streaming multiprocessor in software: machine code of SM70 to SM90, executed warp by warp.

pub mod numerics;
