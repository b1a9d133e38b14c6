//! The saved state of the function, all but what its config says.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_mmio_trap::aperture::Window;
use gpuvmk_mmio_trap::aperture::gmmu::{Gmmu, GmmuRoot, GmmuTables};
use gpuvmk_pci::config_space::ConfigSpace;
use gpuvmk_saved_state::{Check, StateError, Version, Words};
use serde::{Deserialize, Serialize};

use super::super::config::HeadConfig;
use super::super::face::Face;
use super::super::hal::{GH100, Hal};
use super::super::identity_page::IdentityPage;
use super::super::locked;
use super::super::registers::{Registers, RegistersState};
use super::super::unreported_stops::{UnreportedStops, UnreportedStopsState};
use super::parts::Parts;
use super::{Core, Processor, bar2_tables};
use crate::display::{Display, DisplayState};
use gpuvmk_backend::GspBackend;
use gpuvmk_gsp::{Gsp, GspConfig, GspState};
use gpuvmk_host::clock::Clock;

/// State of a [`super::super::GspFunction`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GspFaceState {
    /// Version of all of it.
    pub version: Version<1, 4>,
    /// The chip. Since version 2; there was one before.
    #[serde(default = "first_chip")]
    pub chip: String,
    /// The register units.
    pub registers: RegistersState,
    /// GSP, with its objects, channels and queues.
    pub gsp: GspState,
    /// The first page of BAR0; none where there is no memory for it.
    pub identity: Option<Words>,
    /// Where BAR1 finds memory.
    pub bar1: GmmuRoot,
    /// Where BAR2 finds memory, the bus's BAR3.
    pub bar2: GmmuRoot,
    /// Channels that the back stopped and that GSP has not reported to the driver.
    pub stops: UnreportedStopsState,
    /// The back was gone: reads give ones until the function is reset.
    pub lost: bool,
    /// CPU accesses through BAR1 and BAR2 that had no translation.
    pub window_faults: u64,
    /// Doorbells that named no channel.
    pub bad_doorbells: u64,
    /// The display engine, where the function has a head. Since version 3.
    #[serde(default)]
    pub display: Option<DisplayState>,
}

/// The only chip with GSP when the state had no name of one.
fn first_chip() -> String {
    GH100.name.to_owned()
}

/// Everything that events and accesses change, held at one point.
pub struct Frozen<'a, B> {
    processor: MutexGuard<'a, Processor<B>>,
    bar1: MutexGuard<'a, Window<GmmuTables<Gmmu>>>,
    bar2: MutexGuard<'a, Window<GmmuTables<Gmmu>>>,
    units: MutexGuard<'a, Registers>,
    stops: MutexGuard<'a, UnreportedStops>,
}

impl<B: GspBackend> Core<B> {
    /// Locks everything, so that neither an event nor an access changes the state. Notifications that the
    /// back has held back are delivered before.
    pub fn freeze(&self, back: &B) -> Frozen<'_, B> {
        let processor = locked(&self.processor);
        self.interest_tracker.deliver(back);
        let (bar1, bar2) = (locked(&self.bar1), locked(&self.bar2));
        Frozen { processor, bar1, bar2, units: self.face.lock(), stops: locked(&self.stops) }
    }

    /// The state to save. The cache of tokens is left out; it fills again.
    pub fn state(&self, back: &B) -> GspFaceState {
        let frozen = self.freeze(back);
        let state = GspFaceState {
            version: Version::default(),
            chip: self.hal.name.to_owned(),
            registers: frozen.units.state(self.face.now()),
            gsp: frozen.processor.gsp.state(),
            identity: self.identity.state(),
            bar1: frozen.bar1.tables().root,
            bar2: frozen.bar2.tables().root,
            stops: frozen.stops.state(),
            lost: self.face.is_lost(),
            window_faults: self.window_faults.load(Ordering::Relaxed),
            bad_doorbells: self.bad_doorbells.load(Ordering::Relaxed),
            // Its own lock is the last: events of the back do not reach it.
            display: self.head.as_ref().map(|head| head.state(self.face.now())),
        };
        drop(frozen);
        // A channel that was stopped meanwhile could not be delivered.
        self.deliver();
        state
    }
}

impl Parts {
    /// Parts in a saved state.
    ///
    /// # Errors
    /// A part refuses its state, or a window goes through tables that GSP does not give it.
    pub fn from_state(
        state: &GspFaceState,
        hal: &'static Hal,
        config: GspConfig,
        space: ConfigSpace,
        (clock, head): (Arc<dyn Clock>, Option<&HeadConfig>),
    ) -> Result<Self, StateError> {
        Check("function").that(state.chip == hal.name, || {
            format!("it is of a {}, and this is a {}", state.chip, hal.name)
        })?;
        Check("function").that(state.display.is_some() == head.is_some(), || {
            let has = |has: bool| if has { "has a head" } else { "has none" };
            format!("it {}, and this {}", has(state.display.is_some()), has(head.is_some()))
        })?;
        let gsp = Gsp::from_state(&state.gsp, config)?;
        let display = state.display.as_ref().zip(head);
        let display = display.map(|(display, head)| {
            let display = Display::from_state(display, head.edid(), clock.now())?;
            let problem = || "its channels are not those that GSP's objects name".to_owned();
            Check("display").that(display.channels().eq(gsp.display_channels()), problem)?;
            Ok((head.clone(), display))
        });
        let display = display.transpose()?;
        let windows = Check("windows");
        let root = PhysicalAddress { aperture: Aperture::Vram, address: gsp.bar1_root() };
        windows.that([GmmuRoot::Physical, GmmuRoot::Root(root)].contains(&state.bar1), || {
            format!("BAR1 goes through {:?}", state.bar1)
        })?;
        let bar2 = match state.bar2 {
            GmmuRoot::RootEntry(raw) => bar2_tables(hal.mmu, raw).root,
            GmmuRoot::Physical | GmmuRoot::Root(_) => GmmuRoot::Physical,
        };
        windows.that(bar2 == state.bar2, || format!("BAR2 goes through {:?}", state.bar2))?;
        let registers =
            Registers::from_state(&state.registers, hal, space, (config.vram, config.engines), clock.now())?;
        Ok(Self {
            gsp,
            face: Face::restored(registers, clock, state.lost),
            identity: IdentityPage::from_state(state.identity.as_ref(), (hal.registers)())?,
            bar1: Window::new(GmmuTables { format: hal.mmu, root: state.bar1 }),
            bar2: Window::new(GmmuTables { format: hal.mmu, root: state.bar2 }),
            stops: UnreportedStops::from_state(&state.stops)?,
            window_faults: state.window_faults,
            bad_doorbells: state.bad_doorbells,
            display,
        })
    }
}
