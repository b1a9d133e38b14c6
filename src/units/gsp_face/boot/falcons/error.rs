//! What falcons and their firmware refuse.

use std::fmt;

/// A unit whose falcon a driver starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// GSP. Its falcon runs FWSEC; afterwards its RISC-V core runs GSP's firmware.
    Gsp,
    /// SEC2. Its falcon runs the booter.
    Sec2,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gsp => "GSP",
            Self::Sec2 => "SEC2",
        })
    }
}

/// Why something is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FalconError {
    /// A transfer of a falcon's DMA cannot be done.
    #[error("the transfer {command:#x} to {unit}'s falcon {why}")]
    Transfer {
        /// The unit that the falcon belongs to.
        unit: Unit,
        /// The command.
        command: u32,
        /// What is wrong.
        why: &'static str,
    },
    /// A bus address is not the guest's memory.
    #[error("{what} is not all in the guest's memory, at {address:#x}")]
    NoMemory {
        /// What should be there, as the error says it.
        what: &'static str,
        /// The address.
        address: u64,
    },
    /// A falcon was started without firmware in its memory.
    #[error("{0}'s falcon was started with nothing in its instruction memory")]
    NothingLoaded(Unit),
    /// GSP's falcon was started while its other core runs.
    #[error("GSP's falcon was started while its firmware runs")]
    GspRuns,
    /// What the falcon has as data is not FWSEC's.
    #[error("GSP's falcon was started with data that is not FWSEC's: {0}")]
    NotFwsec(&'static str),
    /// FWSEC has no such command.
    #[error("FWSEC has no command {0:#x}")]
    Command(u32),
    /// The region exists already.
    #[error("FWSEC was to set up the protected region once more")]
    RegionExists,
    /// The region cannot be where it is to be.
    #[error("FWSEC was to set up a protected region of {pages:#x} pages of type {kind} at page {page:#x}")]
    Region {
        /// First page.
        page: u32,
        /// Pages.
        pages: u32,
        /// Type of memory.
        kind: u32,
    },
    /// There is no region.
    #[error("{0} was started, and there is no protected region")]
    NoRegion(&'static str),
    /// What the booter's mailboxes name is no description of GSP's image.
    #[error("the booter's mailboxes name {address:#x}, where there is {why}")]
    Description {
        /// Bus address.
        address: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// GSP did not take its arguments.
    #[error(transparent)]
    Gsp(#[from] gpuvmk_gsp::BootError),
}

impl FalconError {
    /// The error code for the driver, of 16 bits. Drivers look for 0 only, and NVIDIA has published no codes
    /// of these firmwares: these are our own, one for each cause.
    pub const fn code(self) -> u16 {
        match self {
            Self::Transfer { .. } => 1,
            Self::NoMemory { .. } => 2,
            Self::NothingLoaded(_) => 3,
            Self::GspRuns => 4,
            Self::NotFwsec(_) => 5,
            Self::Command(_) => 6,
            Self::RegionExists => 7,
            Self::Region { .. } => 8,
            Self::NoRegion(_) => 9,
            Self::Description { .. } => 0xa,
            Self::Gsp(_) => 0xb,
        }
    }
}
