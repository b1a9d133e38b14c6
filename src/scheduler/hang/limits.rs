//! How long a channel may hold up others, and what it costs its VM to do so again and again.

use std::time::Duration;

/// Limits of channels that make no progress, and penalties for VMs whose channels meet them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HangLimits {
    /// How long one channel may hold an engine for which other VMs wait, before it is asked to leave by
    /// itself. Only where the policy does not ask by itself.
    pub hold: Duration,
    /// How long a channel may take to leave its engine once it was asked.
    pub preempt: Duration,
    /// How long a channel may use an engine without finishing an entry of its ring; `None`: for ever.
    pub progress: Option<Duration>,
    /// How long a channel may wait for a semaphore; `None`: for ever.
    pub acquire: Option<Duration>,
    /// How long a VM waits after its second hang in a row. The first costs nothing, each further one twice
    /// the wait of the last; zero: nothing ever does.
    pub penalty: Duration,
    /// The longest wait.
    pub penalty_cap: Duration,
    /// Time without a hang after which a VM's next one counts as its first.
    pub forgive: Duration,
}

impl Default for HangLimits {
    fn default() -> Self {
        Self {
            hold: Duration::from_millis(100),
            preempt: Duration::from_millis(200),
            progress: Some(Duration::from_secs(10)),
            acquire: Some(Duration::from_secs(10)),
            penalty: Duration::from_millis(100),
            penalty_cap: Duration::from_secs(10),
            forgive: Duration::from_secs(60),
        }
    }
}

impl HangLimits {
    /// Those of a real GPU, which takes a shader off in the middle: a long kernel is no hang there.
    pub fn of_real_gpu() -> Self {
        Self { progress: None, ..Self::default() }
    }
}
