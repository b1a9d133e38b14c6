//! The saved state of the function.

use std::sync::Arc;

use gpuvmk_mmio_trap::aperture::Window;
use gpuvmk_mmio_trap::aperture::fermi::{FermiTables, FermiTablesState};
use gpuvmk_saved_state::{StateError, Version};
use serde::{Deserialize, Serialize};

use super::super::effect::{Effect, WindowId};
use super::super::face::Face;
use super::super::registers::{Registers, RegistersState};
use super::config::{self, Gf100Config};
use super::{Gf100Function, locked};
use crate::RestoreError;
use gpuvmk_backend::EngineBackend;

/// State of a [`Gf100Function`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gf100State {
    /// Version of all of it.
    pub version: Version<1, 1>,
    /// The register units.
    pub registers: RegistersState,
    /// Where BAR1 finds memory.
    pub bar1: FermiTablesState,
    /// Where BAR3 finds memory.
    pub bar3: FermiTablesState,
    /// The back was gone: reads give ones until the function is reset.
    pub lost: bool,
    /// Register writes by FECS whose consequences were dropped.
    pub dropped_patches: u64,
    /// CPU accesses through BAR1 and BAR3 that had no translation.
    pub window_faults: u64,
}

impl<B: EngineBackend + ?Sized> Gf100Function<B> {
    /// The state to save, taken at one point between events of the back. Notifications that the back has held
    /// back are delivered first, and are in it. The caller makes sure that no access is under way: the
    /// guest's processors stand still, and the front end has finished their accesses.
    pub fn state(&self) -> Gf100State {
        let order = locked(&self.order);
        self.interest_tracker.deliver(&*self.backend);
        let activity = self.activity();
        let (bar1, bar3) = (locked(&self.bar1), locked(&self.bar3));
        let units = self.face.peek();
        let state = Gf100State {
            version: Version::default(),
            registers: units.state(&activity),
            bar1: bar1.tables().state(),
            bar3: bar3.tables().state(),
            lost: self.face.is_lost(),
            dropped_patches: self.face.dropped_patches(),
            window_faults: self.face.window_faults(),
        };
        drop((units, bar3, bar1, order));
        state
    }

    /// A GF100 in a saved state, connected to `backend`'s events. `config` is that of the function that was
    /// saved, with any clock: time goes on from where it was.
    ///
    /// The back gets the positions of PRAMIN and BAR3 and the driver's interest in notifications. All other
    /// state that a driver's accesses gave it must be in it already, from its own saved state or by calls of
    /// the caller: memory and its DMA mappings, the units that may execute
    /// ([`EngineBackend::set_fifo_state`]), channels' instance blocks and start bits, the runlist and whether
    /// it is blocked, the graphics context. The saved registers have these values.
    ///
    /// No sink is connected to its interrupts, and no watcher to its windows. A sink that is connected gets
    /// the line's level. A message that was sent is not sent again.
    ///
    /// # Errors
    /// See [`RestoreError`]. The back was not called then.
    pub fn from_state(
        backend: Arc<B>,
        config: Gf100Config,
        state: &Gf100State,
    ) -> Result<Self, RestoreError> {
        let space = config::space(&config)?;
        let inside = |error: StateError| error.within("GF100");
        let bar = |error: StateError, bar: &str| error.within(bar).within("GF100");
        let tables = [
            FermiTables::from_state(&state.bar1).map_err(|error| bar(error, "BAR1"))?,
            FermiTables::from_state(&state.bar3).map_err(|error| bar(error, "BAR3"))?,
        ];
        let activity = Self::activity_of(&backend, &*config.clock);
        let registers = Registers::from_state(&state.registers, space, backend.vram_size(), &activity);
        let face = Face::restored(
            registers.map_err(inside)?,
            config.clock.clone(),
            state.lost,
            state.dropped_patches,
            state.window_faults,
        );
        let function = Self::connected(backend, config, face, tables.map(Window::new));
        function.tell_changed(WindowId::Bar3);
        let order = locked(&function.order);
        function.perform(Effect::UpdateInterest, &order);
        function.perform(Effect::AlarmChanged, &order);
        drop(order);
        Ok(function)
    }
}
