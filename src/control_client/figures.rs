//! Types that several parts of the status share.

use gpuvmk_counters::counters;
use serde::{Deserialize, Serialize};

/// A word out of a fixed list, as the aggregator knows it, or as a client has read it.
pub type Word = std::borrow::Cow<'static, str>;

counters! {
    /// Times at a glance.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Times {
        /// How many were measured.
        pub count: u64 = (counter Number only "what is measured has a counter of its own"),
        /// Half of them took at most this.
        pub p50: u64 = (gauge Nanos "p50"),
        /// 99 of 100 took at most this.
        pub p99: u64 = (gauge Nanos "p99"),
    }
}
