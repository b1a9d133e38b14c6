//! How many threads execute a grid.

/// Threads that execute a grid: the engine's own, and those that help it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Workers(u8);

impl Workers {
    /// The engine's thread alone: a grid runs the same way each time.
    pub const ONE: Self = Self(1);

    /// The most that there are.
    pub const MOST: u8 = 32;

    /// Most that [`Workers::of_machine`] gives.
    const USUAL: usize = 4;

    /// So many, if there may be so many.
    #[must_use]
    pub const fn new(count: u8) -> Option<Self> {
        if count == 0 || count > Self::MOST { None } else { Some(Self(count)) }
    }

    /// One for each processor of this machine, four at most.
    #[must_use]
    pub fn of_machine() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        u8::try_from(processors.min(Self::USUAL)).ok().and_then(Self::new).unwrap_or(Self::ONE)
    }

    /// The number.
    #[must_use]
    pub const fn count(self) -> u8 {
        self.0
    }
}

impl Default for Workers {
    /// One.
    fn default() -> Self {
        Self::ONE
    }
}
