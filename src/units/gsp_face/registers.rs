//! All registers of the function: which unit answers for an offset, and how pending interrupts become the
//! output.

mod state;

use std::sync::Arc;

use super::boot::BootUnit;
use super::boot::falcons::{FalconError, Falcons};
use super::boot::fsp::FspError;
use super::effect::Effect;
use super::falcon::{GspFalcon, Signal};
use super::hal::{Hal, Role, Roles, TimeWord};
use super::invalidate::MmuInvalidate;
use super::vfn::{Rearm, Vfn};
use crate::interrupt::InterruptOutput;
use crate::ptimer::Ptimer;
use gpuvmk_backend::InterruptInterest;
use gpuvmk_chip::gf100::regs::ptimer::{NV_PTIMER_TIME_0, NV_PTIMER_TIME_1};
use gpuvmk_chip::registers::Reg;
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_host::clock::Clock;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_mmio_trap::register_file::{Counters, Outcome, RegisterFile};
use gpuvmk_pci::AccessError;
use gpuvmk_pci::config_space::{ConfigSpace, Control};
pub use state::RegistersState;

/// All units of a function.
#[derive(Debug)]
pub struct Registers {
    hal: &'static Hal,
    roles: Arc<Roles>,
    file: RegisterFile,
    ptimer: Ptimer,
    gsp: GspFalcon,
    boot: BootUnit,
    vfn: Vfn,
    invalidate: MmuInvalidate,
    /// Where PRAMIN looks.
    window: u32,
    config: ConfigSpace,
    control: Control,
    output: InterruptOutput,
    vram: u64,
    /// Those that the driver is told of.
    engines: EngineSet,
    boot_errors: u64,
}

impl Registers {
    /// Units in their reset state, with that configuration space and size of VRAM.
    pub fn new(hal: &'static Hal, config: ConfigSpace, vram: u64, engines: EngineSet) -> Self {
        let control = config.control();
        Self {
            hal,
            roles: Arc::new(Roles::new(hal)),
            file: RegisterFile::new((hal.registers)()),
            ptimer: Ptimer::default(),
            gsp: GspFalcon::new(&hal.processor),
            boot: BootUnit::new(hal),
            vfn: Vfn::new(&hal.interrupts),
            invalidate: MmuInvalidate::new(&hal.invalidation),
            window: 0,
            config,
            control,
            output: InterruptOutput::default(),
            vram,
            engines,
            boot_errors: 0,
        }
    }

    /// What each register is.
    pub const fn roles(&self) -> &Arc<Roles> {
        &self.roles
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
        self.gsp = GspFalcon::new(&self.hal.processor);
        self.boot = BootUnit::new(self.hal);
        self.vfn = Vfn::new(&self.hal.interrupts);
        self.invalidate = MmuInvalidate::new(&self.hal.invalidation);
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
        match self.roles.of(reg) {
            Role::Interrupt(of_tree) => self.vfn.read(of_tree),
            Role::Invalidation(of_mmu) => self.invalidate.read(of_mmu),
            Role::Processor(of_gsp) => self.gsp.read(of_gsp),
            Role::Pramin => self.window,
            Role::VramSize => (self.hal.vram.value)(self.vram),
            Role::Time(word) | Role::UserTime(word) => self.ptimer.read(time(word), clock.now()),
            Role::Doorbell => 0,
            Role::Other => self.boot.read(reg, &self.gsp),
        }
    }

    /// Writes a register and collects what follows from it.
    pub fn write(&mut self, reg: Reg, word: Word, clock: &dyn Clock, effects: &mut Vec<Effect>) {
        if self.file.write(reg, word) != Outcome::Handler {
            return;
        }
        match self.roles.of(reg) {
            Role::Doorbell => effects.push(Effect::Doorbell(self.hal.doorbell.token(word.bits()))),
            Role::Interrupt(of_tree) => {
                if self.vfn.write(of_tree, word) == Rearm::Yes {
                    self.output.rearm();
                }
                self.update_interrupts();
                effects.push(Effect::TellInterest);
            }
            Role::Invalidation(of_mmu) => {
                effects.extend(self.invalidate.write(of_mmu, word).map(Effect::Flush));
            }
            Role::Processor(of_gsp) => match self.gsp.write(of_gsp, word) {
                Signal::None => {}
                Signal::Interrupt => self.raise(self.hal.gsp.vectors.gsp_stall),
                Signal::Quiet => {
                    self.vfn.lower(self.hal.gsp.vectors.gsp_stall);
                    self.update_interrupts();
                    effects.push(Effect::TellInterest);
                }
                Signal::Commands => effects.push(Effect::GspCommands),
            },
            Role::Pramin => {
                let before = self.window;
                self.window = word.merge(before);
                if self.window != before {
                    effects.push(Effect::MovePramin);
                }
            }
            Role::Time(half) => {
                // The alarm is not the driver's here: when it would go off does not matter.
                let _ = self.ptimer.write(time(half), word, clock.now());
            }
            Role::VramSize | Role::UserTime(_) => {}
            Role::Other => match self.boot.write(reg, word, &mut self.gsp, self.vram) {
                Ok(request) => effects.extend(request.map(Effect::Boot)),
                Err(refusal) => {
                    self.count_boot_error();
                    effects.push(Effect::BootRefused(refusal));
                }
            },
        }
    }

    /// The driver's interest in notifications of finished work.
    pub fn interest(&self) -> InterruptInterest {
        let of = |engine: &Engine| self.vfn.is_enabled(self.non_stall_vector(*engine));
        let enabled: EngineSet = self.engines.engines().filter(of).map(EngineSet::from).collect();
        if enabled.is_empty() {
            InterruptInterest::Masked
        } else if enabled.engines().all(|engine| self.vfn.comes_through(self.non_stall_vector(engine))) {
            self.output.interest(enabled, &self.control)
        } else {
            InterruptInterest::Wake
        }
    }

    /// Work on these engines asked for a notification, and the message that follows was sent.
    pub fn message_delivered(&mut self, engines: EngineSet) {
        self.output.message_sent();
        for engine in engines.engines() {
            self.vfn.raise(self.non_stall_vector(engine));
        }
        self.update_interrupts();
    }

    /// Work on an engine asked for a notification.
    pub fn non_stall(&mut self, engine: Engine) {
        self.raise(self.non_stall_vector(engine));
    }

    /// An event waits in GSP's message queue.
    pub fn gsp_event(&mut self) {
        self.gsp.event();
        self.raise(self.hal.gsp.vectors.gsp_stall);
    }

    /// A head's frame has begun, and the driver wants to hear of it.
    pub fn display_event(&mut self) {
        self.raise(self.hal.gsp.display_vectors.stall);
    }

    /// GSP's firmware is up.
    pub fn gsp_running(&mut self) {
        self.gsp.running();
    }

    /// GSP's firmware was unloaded.
    pub fn gsp_halted(&mut self) {
        self.gsp.halted();
    }

    /// FSP's boot of GSP is over.
    pub fn fsp_booted(&mut self, result: Result<(), FspError>) {
        if result.is_err() {
            self.count_boot_error();
        }
        if let Some(fsp) = self.boot.fsp() {
            fsp.booted(result);
        }
    }

    /// Goes on with what falcons were asked for, after memory was read.
    ///
    /// # Errors
    /// That of `step`.
    pub fn falcons(
        &mut self,
        step: impl FnOnce(&mut Falcons, &mut GspFalcon, u64) -> Result<(), FalconError>,
    ) -> Result<(), FalconError> {
        let Some(falcons) = self.boot.falcons() else { return Ok(()) };
        let result = step(falcons, &mut self.gsp, self.vram);
        if result.is_err() {
            self.count_boot_error();
        }
        result
    }

    const fn count_boot_error(&mut self) {
        self.boot_errors = self.boot_errors.saturating_add(1);
    }

    fn non_stall_vector(&self, engine: Engine) -> u32 {
        (self.hal.gsp.vectors.non_stall)(engine)
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

    /// A message that was reported as sent was not sent.
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
        self.hal.pramin.start(self.window)
    }

    /// The interrupt output, for connecting it.
    pub const fn output(&mut self) -> &mut InterruptOutput {
        &mut self.output
    }

    /// True if a counter of the file has changed since the last call of this.
    pub const fn take_counters_changed(&mut self) -> bool {
        self.file.take_counters_changed()
    }

    /// The first register that was accessed and that no table lists; returned once.
    pub fn take_notice(&mut self) -> Option<Reg> {
        self.file.take_notice()
    }

    /// Accesses of note.
    pub fn counters(&self) -> Counters {
        self.file.counters()
    }

    /// Steps of the boot that were refused: messages to FSP, transfers to falcons, firmware on them.
    pub const fn boot_errors(&self) -> u64 {
        self.boot_errors
    }
}

/// The timer's own name of a half of its time.
const fn time(word: TimeWord) -> Reg {
    match word {
        TimeWord::Low => NV_PTIMER_TIME_0,
        TimeWord::High => NV_PTIMER_TIME_1,
    }
}
