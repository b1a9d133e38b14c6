//! What tests and fuzzers of register faces and of the virtual GSP need: a back without a GPU.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod deferred_completions;
mod fake_gsp_back;
mod fake_memory;

pub use deferred_completions::DeferredCompletions;
pub use fake_gsp_back::{BackCall, FakeGspBack, FakeGspBackConfig};
