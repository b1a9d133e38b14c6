//! The identity of a tenant, over several connections.

use std::fmt;

/// Whose settings, penalties and accounts something is. It stays the same from one connection to the next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A VM of the GPU's file.
    Listed(String),
    /// A user, whatever he calls his VM.
    User(u32),
    /// A VM of the aggregator's own user.
    Own(String),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed(name) => write!(f, "{name} of the GPU's file"),
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Own(name) => write!(f, "{name} of the aggregator's user"),
        }
    }
}
