//! The peer that sends a hello, as the kernel identifies it. Nothing that a back end claims about itself is
//! in here.

/// A process that wants to become a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Id of its user.
    pub uid: u32,
    /// Process id.
    pub pid: i32,
    /// It is this very process.
    pub inside: bool,
    /// The VM whose own socket it came by.
    pub door: Option<String>,
}

impl Claimant {
    /// This very process.
    pub fn this_process() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            pid: rustix::process::Pid::as_raw(Some(rustix::process::getpid())),
            inside: true,
            door: None,
        }
    }
}
