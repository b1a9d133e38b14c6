//! The names of policies.

/// How VMs share the GPU: see [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PolicyKind {
    /// Everything that is ready runs; hardware's own time slices share among channels.
    Fifo,
    /// VMs with work take turns of equal length.
    BestEffort,
    /// Each VM has its part of every period as credit, and runs until it is gone.
    Credit,
    /// Credit, and what each VM really had of late.
    Band,
    /// As many equal parts as there are VMs, used or not.
    EqualShare,
    /// Parts in percent, used or not.
    FixedShare,
    /// By weight among those who want something, with caps.
    Weighted,
    /// Budgets in periods, and the rest shared.
    Deadline,
}

impl PolicyKind {
    /// All, with their names.
    pub const ALL: [(&'static str, Self); 8] = [
        ("fifo", Self::Fifo),
        ("best-effort", Self::BestEffort),
        ("credit", Self::Credit),
        ("band", Self::Band),
        ("equal-share", Self::EqualShare),
        ("fixed-share", Self::FixedShare),
        ("weighted", Self::Weighted),
        ("deadline", Self::Deadline),
    ];

    /// Its name in configuration files.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("?", |(name, _)| name)
    }

    /// The names, for messages.
    pub fn allowed() -> String {
        let names: Vec<_> = Self::ALL.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        names.join(", ")
    }
}
