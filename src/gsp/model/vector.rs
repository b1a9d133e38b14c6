//! Interrupt vectors of the VFN tree that the interrupt table gives the driver: leaf = vector / 32.

use gpuvmk_chip::Engine;

/// GSP's stall interrupt.
pub const GSP_STALL: u32 = 0x60;

/// Notifications of an engine.
pub const fn non_stall(engine: Engine) -> u32 {
    match engine {
        Engine::Graphics => 0x20,
        // CAST: widening.
        Engine::Copy(n) => 0x21 + n as u32,
    }
}
