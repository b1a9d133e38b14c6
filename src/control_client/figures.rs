//! Types that several parts of the status share.

use serde::{Deserialize, Serialize};

/// A word out of a fixed list, as the aggregator knows it, or as a client has read it.
pub type Word = std::borrow::Cow<'static, str>;

/// Times at a glance, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// How many were measured.
    pub count: u64,
    /// Half of them took at most this.
    pub p50: u64,
    /// 99 of 100 took at most this.
    pub p99: u64,
}
