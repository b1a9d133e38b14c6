//! All registers of the function: which unit answers for an offset, and how pending interrupts become the
//! output.

mod state;

use super::effect::{Effect, Token};
use super::falcon::{GspFalcon, Signal};
use super::fsp::{Fsp, FspError};
use super::invalidate::MmuInvalidate;
use super::vfn::{Rearm, Vfn};
use crate::interrupt::InterruptOutput;
use crate::ptimer::Ptimer;
use gpuvmk_backend::InterruptInterest;
use gpuvmk_chip::gh100::regs::{self, host, timer, vfn};
use gpuvmk_chip::registers::Reg;
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_gsp::vector;
use gpuvmk_host::clock::Clock;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_mmio_trap::register_file::{Counters, Outcome, RegisterFile};
use gpuvmk_pci::AccessError;
use gpuvmk_pci::config_space::{ConfigSpace, Control};
pub use state::RegistersState;

/// log2 of the bytes of a MiB.
const MIB_SHIFT: u32 = 20;
/// log2 of the steps in which PRAMIN moves.
const PRAMIN_STEP_SHIFT: u32 = 16;

/// The unit that a register with behaviour belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Host,
    Ptimer,
    Gsp,
    Fsp,
    Vfn,
    Invalidate,
    UserMode,
    /// None.
    Other,
}

const fn unit(reg: Reg) -> Unit {
    match reg.0 {
        0x00_9000..=0x00_9fff => Unit::Ptimer,
        0x10_f000..=0x10_ffff | 0x11_8000..=0x11_8fff => Unit::Host,
        0x11_0000..=0x11_3fff => Unit::Gsp,
        0x8f_0000..=0x8f_3fff => Unit::Fsp,
        0xb8_1000..=0xb8_1fff => Unit::Vfn,
        0xb8_3000..=0xb8_3fff => Unit::Invalidate,
        0xbb_0000..=0xbb_ffff => Unit::UserMode,
        _ => Unit::Other,
    }
}

/// All units of a function.
#[derive(Debug)]
pub struct Registers {
    file: RegisterFile,
    ptimer: Ptimer,
    gsp: GspFalcon,
    fsp: Fsp,
    vfn: Vfn,
    invalidate: MmuInvalidate,
    /// NV_XAL_EP_BAR0_WINDOW.
    window: u32,
    config: ConfigSpace,
    control: Control,
    output: InterruptOutput,
    vram: u64,
    fsp_errors: u64,
}

impl Registers {
    /// Units in their reset state, with that configuration space and size of VRAM.
    pub fn new(config: ConfigSpace, vram: u64) -> Self {
        let control = config.control();
        Self {
            file: RegisterFile::new(regs::index()),
            ptimer: Ptimer::default(),
            gsp: GspFalcon::default(),
            fsp: Fsp::default(),
            vfn: Vfn::default(),
            invalidate: MmuInvalidate::default(),
            window: 0,
            config,
            control,
            output: InterruptOutput::default(),
            vram,
            fsp_errors: 0,
        }
    }

    /// All that decides about messages.
    #[cfg(any(test, feature = "testing"))]
    pub fn interrupt_state(&self) -> impl std::fmt::Debug + '_ {
        (&self.vfn, &self.output)
    }

    /// Function reset. The interrupt connection and the counters stay.
    pub fn reset(&mut self) {
        self.file.reset_all();
        self.ptimer = Ptimer::default();
        self.gsp = GspFalcon::default();
        self.fsp = Fsp::default();
        self.vfn = Vfn::default();
        self.invalidate = MmuInvalidate::default();
        self.window = 0;
        self.config.reset();
        self.control = self.config.control();
        self.output.reset();
    }

    /// Reads a register.
    pub fn read(&mut self, reg: Reg, clock: &dyn Clock) -> u32 {
        if let Outcome::Done(value) = self.file.read(reg) {
            return value;
        }
        match unit(reg) {
            Unit::Host => match reg {
                host::NV_XAL_EP_BAR0_WINDOW => self.window,
                host::NV_PGC6_AON_SECURE_SCRATCH_GROUP_42 => {
                    u32::try_from(self.vram >> MIB_SHIFT).unwrap_or(u32::MAX)
                }
                _ => 0,
            },
            Unit::Ptimer => self.ptimer.read(reg, clock.now()),
            Unit::UserMode => match reg {
                vfn::NV_VIRTUAL_FUNCTION_TIME_0 => self.ptimer.read(timer::NV_PTIMER_TIME_0, clock.now()),
                vfn::NV_VIRTUAL_FUNCTION_TIME_1 => self.ptimer.read(timer::NV_PTIMER_TIME_1, clock.now()),
                _ => 0,
            },
            Unit::Gsp => self.gsp.read(reg),
            Unit::Fsp => self.fsp.read(reg),
            Unit::Vfn => self.vfn.read(reg).unwrap_or(0),
            Unit::Invalidate => self.invalidate.read(reg),
            Unit::Other => 0,
        }
    }

    /// Writes a register and collects what follows from it.
    pub fn write(&mut self, reg: Reg, word: Word, clock: &dyn Clock, effects: &mut Vec<Effect>) {
        if self.file.write(reg, word) != Outcome::Handler {
            return;
        }
        match unit(reg) {
            Unit::Host => {
                if reg == host::NV_XAL_EP_BAR0_WINDOW {
                    let before = self.window;
                    self.window = word.merge(before);
                    if self.window != before {
                        effects.push(Effect::MovePramin);
                    }
                }
            }
            Unit::Ptimer => {
                // The alarm is not the driver's here: when it would go off does not matter.
                let _ = self.ptimer.write(reg, word, clock.now());
            }
            Unit::UserMode => {
                if reg == vfn::NV_VIRTUAL_FUNCTION_DOORBELL {
                    effects.push(Effect::Doorbell(Token::from(word.bits())));
                }
            }
            Unit::Gsp => match self.gsp.write(reg, word) {
                Signal::None => {}
                Signal::Interrupt => self.raise(vector::GSP_STALL),
                Signal::Quiet => {
                    self.vfn.lower(vector::GSP_STALL);
                    self.update_interrupts();
                    effects.push(Effect::TellInterest);
                }
                Signal::Commands => effects.push(Effect::GspCommands),
            },
            Unit::Fsp => {
                self.fsp.write(reg, word, effects);
                if matches!(effects.last(), Some(Effect::FspRefused(_))) {
                    self.fsp_errors = self.fsp_errors.saturating_add(1);
                }
            }
            Unit::Vfn => {
                if self.vfn.write(reg, word) == Some(Rearm::Yes) {
                    self.output.rearm();
                }
                self.update_interrupts();
                effects.push(Effect::TellInterest);
            }
            Unit::Invalidate => effects.extend(self.invalidate.write(reg, word).map(Effect::Flush)),
            Unit::Other => {}
        }
    }

    /// The driver's interest in notifications of finished work.
    pub fn interest(&self) -> InterruptInterest {
        let of = |engine: &Engine| self.vfn.is_enabled(vector::non_stall(*engine));
        let enabled: EngineSet = Engine::ALL.into_iter().filter(of).map(EngineSet::from).collect();
        if enabled.is_empty() {
            InterruptInterest::Masked
        } else if enabled.engines().all(|engine| self.vfn.comes_through(vector::non_stall(engine))) {
            self.output.interest(enabled, &self.control)
        } else {
            InterruptInterest::Wake
        }
    }

    /// Work on these engines asked for a notification, and the message that follows was sent.
    pub fn message_delivered(&mut self, engines: EngineSet) {
        self.output.message_sent();
        engines.engines().for_each(|engine| self.vfn.raise(vector::non_stall(engine)));
        self.update_interrupts();
    }

    /// Work on an engine asked for a notification.
    pub fn non_stall(&mut self, engine: Engine) {
        self.raise(vector::non_stall(engine));
    }

    /// An event waits in GSP's message queue.
    pub fn gsp_event(&mut self) {
        self.gsp.event();
        self.raise(vector::GSP_STALL);
    }

    /// GSP's firmware is up.
    pub fn gsp_running(&mut self) {
        self.gsp.running();
    }

    /// GSP's firmware was unloaded.
    pub fn gsp_halted(&mut self) {
        self.gsp.halted();
    }

    /// FSP answers the boot message.
    pub fn fsp_answer(&mut self, result: Result<(), FspError>) {
        if result.is_err() {
            self.fsp_errors = self.fsp_errors.saturating_add(1);
        }
        self.fsp.booted(result);
    }

    fn raise(&mut self, vector: u32) {
        self.vfn.raise(vector);
        self.update_interrupts();
    }

    fn update_interrupts(&mut self) {
        let level = self.vfn.level();
        if !level {
            // The next rise is a new message.
            self.output.rearm();
        }
        self.config.set_interrupt_status(level && !self.control.msi.enabled);
        self.output.update(level, &self.control);
    }

    /// A message was not sent that was said to be.
    pub fn send_again(&self) {
        self.output.send_again(&self.control);
    }

    /// Configuration space as the bus reads it.
    pub fn read_config_space(&self, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        self.config.read(offset, data)
    }

    /// Configuration space as the bus writes it.
    pub fn write_config_space(
        &mut self,
        offset: u64,
        data: &[u8],
        effects: &mut Vec<Effect>,
    ) -> Result<(), AccessError> {
        let change = self.config.write(offset, data)?;
        if change.after.msi.enabled && !change.before.msi.enabled {
            self.output.rearm();
        }
        self.control = change.after;
        effects.push(Effect::TellInterest);
        if change.reset_requested {
            effects.push(Effect::FunctionReset);
        }
        self.update_interrupts();
        Ok(())
    }

    /// First VRAM address that PRAMIN shows.
    pub const fn pramin_start(&self) -> u64 {
        (host::NV_XAL_EP_BAR0_WINDOW::BASE.get(self.window) as u64) << PRAMIN_STEP_SHIFT
    }

    /// The interrupt output, for connecting it.
    pub const fn output(&mut self) -> &mut InterruptOutput {
        &mut self.output
    }

    /// The first register that was accessed and that no table lists; told once.
    pub fn take_notice(&mut self) -> Option<Reg> {
        self.file.take_notice()
    }

    /// Accesses of note.
    pub fn counters(&self) -> Counters {
        self.file.counters()
    }

    /// Messages to FSP that were answered with an error.
    pub const fn fsp_errors(&self) -> u64 {
        self.fsp_errors
    }
}
