//! What a core is put together from, new or from a saved state.

use super::super::config::HeadConfig;
use super::super::face::Face;
use super::super::identity_page::IdentityPage;
use super::super::unreported_stops::UnreportedStops;
use crate::display::Display;
use gpuvmk_gsp::Gsp;
use gpuvmk_mmio_trap::aperture::Window;
use gpuvmk_mmio_trap::aperture::gmmu::{Gmmu, GmmuTables};

/// The parts of a `Core`.
#[derive(Debug)]
pub struct Parts {
    /// GSP.
    pub gsp: Gsp,
    /// The register units.
    pub face: Face,
    /// The first page of BAR0.
    pub identity: IdentityPage,
    /// BAR1.
    pub bar1: Window<GmmuTables<Gmmu>>,
    /// BAR2.
    pub bar2: Window<GmmuTables<Gmmu>>,
    /// Stopped channels that are not delivered yet.
    pub stops: UnreportedStops,
    /// CPU accesses through BAR1 and BAR2 that had no translation.
    pub window_faults: u64,
    /// Doorbells that named no channel.
    pub bad_doorbells: u64,
    /// The display engine, where the function has a head, and how that was configured.
    pub display: Option<(HeadConfig, Display)>,
}
