//! All registers of the function: which unit answers for an offset, what a unit in reset answers, and how the
//! units' states add up to the interrupt level and to what may execute.

mod config_mirror;
mod state;

use super::effect::{Effect, ReadResult};
use super::falcon_config;
use super::fecs::ContextSwitch;
use super::idle::{Activity, CounterChange};
use super::pbus::Pbus;
use super::pce::Pce;
use super::pfb::Pfb;
use super::pfifo::Pfifo;
use super::pgraph::Pgraph;
use super::pmc::{self, Pmc};
use super::pmu::Pmu;
use crate::interrupt::InterruptOutput;
use crate::ptimer::Ptimer;
use gpuvmk_backend::FifoState;
use gpuvmk_backend::InterruptInterest;
use gpuvmk_chip::EngineSet;
use gpuvmk_chip::gf100::regs::{self, fecs, gpccs, pce0, pce1, pmu};
use gpuvmk_chip::registers::Reg;
use gpuvmk_host::clock::Clock;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_mmio_trap::register_file::{Counters, Outcome, RegisterFile};
use gpuvmk_pci::config_space::{ConfigSpace, Control};
pub use state::RegistersState;

/// The value that a read of a unit in reset gives. Drivers test the upper half only; the ring's own error
/// codes differ by cause.
pub const IN_RESET: u32 = 0xbadf_1100;

/// True for interrupt registers, which read 0 in reset, as nothing is pending there. A driver's handler that
/// runs on one CPU while another CPU resets the unit would take the error pattern for interrupts. On real
/// hardware, with accesses some hundred times faster, the two hardly ever meet.
const fn tells_interrupts(reg: Reg) -> bool {
    matches!(
        reg,
        regs::pfifo::NV_PFIFO_INTR_0 | regs::pfifo::NV_PFIFO_INTR_EN_0 | regs::pgraph::NV_PGRAPH_INTR
    )
}

/// The unit that a register belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Pmc,
    Pbus,
    Pfifo,
    Ptimer,
    Pci,
    Pfb,
    Pce(usize),
    Pmu,
    Pgraph,
    /// None: registers without behaviour.
    Other,
}

const fn unit(reg: Reg) -> Unit {
    match reg.0 {
        0x00_0000..=0x00_0fff => Unit::Pmc,
        0x00_1000..=0x00_1fff | 0x07_0000..=0x07_0fff => Unit::Pbus,
        0x00_2000..=0x00_3fff | 0x04_0000..=0x05_ffff => Unit::Pfifo,
        0x00_9000..=0x00_9fff => Unit::Ptimer,
        0x08_8000..=0x08_8fff => Unit::Pci,
        0x10_0000..=0x10_0fff | 0x11_0000..=0x11_ffff | 0x17_e000..=0x17_efff => Unit::Pfb,
        0x10_4000..=0x10_4fff => Unit::Pce(0),
        0x10_5000..=0x10_5fff => Unit::Pce(1),
        0x10_a000..=0x10_afff => Unit::Pmu,
        0x40_0000..=0x5f_ffff => Unit::Pgraph,
        _ => Unit::Other,
    }
}

/// NV_PMC_ENABLE bits that a unit needs.
fn enable_bits(unit: Unit) -> u32 {
    match unit {
        Unit::Pfifo => pmc::PFIFO,
        Unit::Pgraph => pmc::PGRAPH,
        Unit::Pmu => pmc::PMU_ENABLE,
        Unit::Pce(number) => pmc::PCE_ENABLE.get(number).copied().unwrap_or(0),
        Unit::Pmc | Unit::Pbus | Unit::Ptimer | Unit::Pci | Unit::Pfb | Unit::Other => 0,
    }
}

/// All units of a function.
#[derive(Debug)]
pub struct Registers {
    file: RegisterFile,
    pmc: Pmc,
    pbus: Pbus,
    ptimer: Ptimer,
    pfb: Pfb,
    pfifo: Pfifo,
    pgraph: Pgraph,
    pmu: Pmu,
    pce: [Pce; 2],
    config: ConfigSpace,
    control: Control,
    output: InterruptOutput,
    vram: u64,
    told: FifoState,
}

impl Registers {
    /// Units in their reset state, with that configuration space and size of VRAM.
    pub fn new(config: ConfigSpace, vram: u64) -> Self {
        let control = config.control();
        let controllers = ContextSwitch::new(
            falcon_config(fecs::NV_PGRAPH_PRI_FECS_HW_CONFIG),
            falcon_config(gpccs::NV_PGRAPH_PRI_GPCCS_HW_CONFIG),
        );
        Self {
            file: RegisterFile::new(regs::index()),
            pmc: Pmc::default(),
            pbus: Pbus::default(),
            ptimer: Ptimer::default(),
            pfb: Pfb::default(),
            pfifo: Pfifo::default(),
            pgraph: Pgraph::new(controllers),
            pmu: Pmu::new(falcon_config(pmu::NV_PPMU_HW_CONFIG)),
            pce: [
                Pce::new(pce0::NV_PCE0_INTR_SET.0, falcon_config(pce0::NV_PCE0_HW_CONFIG)),
                Pce::new(pce1::NV_PCE1_INTR_SET.0, falcon_config(pce1::NV_PCE1_HW_CONFIG)),
            ],
            config,
            control,
            output: InterruptOutput::default(),
            vram,
            told: FifoState::default(),
        }
    }

    /// Function reset. The interrupt connection and the counters stay.
    pub fn reset(&mut self) {
        self.file.reset_all();
        self.pmc = Pmc::default();
        self.pbus = Pbus::default();
        self.ptimer = Ptimer::default();
        self.pfb = Pfb::default();
        // The back is reset as a whole: single consequences do not matter.
        self.pfifo.reset(&mut Vec::new());
        self.pgraph.reset();
        self.pmu.reset();
        for engine in &mut self.pce {
            engine.reset();
        }
        self.config.reset();
        self.control = self.config.control();
        self.output.reset();
        self.told = FifoState::default();
    }

    /// All that decides about messages.
    #[cfg(any(test, feature = "testing"))]
    pub fn interrupt_state(&self) -> impl std::fmt::Debug + '_ {
        (&self.pmc, self.pfifo.interrupt_state(), &self.output)
    }

    /// Reads a register.
    pub fn read(&mut self, reg: Reg, clock: &dyn Clock) -> ReadResult {
        let unit = unit(reg);
        if !self.pmc.enabled(enable_bits(unit)) {
            return ReadResult::Value(if tells_interrupts(reg) { 0 } else { IN_RESET });
        }
        if let Outcome::Done(value) = self.file.read(reg) {
            return ReadResult::Value(value);
        }
        ReadResult::Value(match unit {
            Unit::Pfifo => return self.pfifo.read(reg),
            Unit::Pgraph => return self.pgraph.read(reg),
            Unit::Pmc => {
                let pending = self.pending(clock);
                self.pmc.read(reg, pending)
            }
            Unit::Pbus => self.pbus.read(reg),
            Unit::Ptimer => {
                let now = clock.now();
                self.ptimer.tick(now);
                self.ptimer.read(reg, now)
            }
            Unit::Pci => self.read_mirror(reg),
            Unit::Pfb => self.pfb.read(reg, self.vram),
            Unit::Pce(number) => self.pce.get_mut(number).map_or(0, |engine| engine.read(reg)),
            Unit::Pmu => return self.pmu.read(reg),
            Unit::Other => 0,
        })
    }

    /// Writes a register and collects what follows from it.
    pub fn write(&mut self, reg: Reg, word: Word, clock: &dyn Clock, effects: &mut Vec<Effect>) {
        let unit = unit(reg);
        if !self.pmc.enabled(enable_bits(unit)) {
            return;
        }
        if self.file.write(reg, word) != Outcome::Handler {
            return;
        }
        match unit {
            Unit::Pfifo => self.pfifo.write(reg, word, effects),
            Unit::Pgraph => self.pgraph.write(reg, word, effects),
            Unit::Pmc => self.write_pmc(reg, word, effects),
            Unit::Pbus => self.pbus.write(reg, word, effects),
            Unit::Ptimer => {
                if self.ptimer.write(reg, word, clock.now()) {
                    effects.push(Effect::AlarmChanged);
                }
            }
            Unit::Pci => self.write_mirror(reg, word, effects),
            Unit::Pfb => self.pfb.write(reg, word, effects),
            Unit::Pce(number) => {
                if let Some(engine) = self.pce.get_mut(number) {
                    engine.write(reg, word);
                }
            }
            Unit::Pmu => self.pmu.write(reg, word, effects),
            Unit::Other => {}
        }
        self.tell_fifo_state(effects);
        self.update_interrupts(clock);
    }

    /// The value of one of the PMU's idle counters.
    pub fn idle_count(&self, counter: u32, activity: &Activity) -> u32 {
        self.pmu.idle.count(counter, activity)
    }

    /// Makes an idle counter count something else, or anew.
    pub fn change_idle_counter(&mut self, counter: u32, change: CounterChange, activity: &Activity) {
        self.pmu.idle.change(counter, change, activity);
    }

    /// Something inside a unit changed (an event, the alarm's time): the interrupt output follows.
    pub fn update_interrupts(&mut self, clock: &dyn Clock) {
        let level = self.level(clock);
        self.config.set_interrupt_status(level && !self.control.msi.enabled);
        self.output.update(level, &self.control);
    }

    /// True if a register shows that a method asked for an interrupt.
    pub fn shows_non_stall(reg: Reg) -> bool {
        reg == regs::pmc::NV_PMC_INTR || Pfifo::shows_non_stall(reg)
    }

    /// True if a write to a register may change what [`Self::interest`] says, or which interrupts are
    /// pending.
    pub fn steers_interrupts(reg: Reg) -> bool {
        use regs::pmc::{NV_PMC_ENABLE, NV_PMC_INTR_EN_0, NV_PMC_INTR_MSK_0};
        matches!(reg, NV_PMC_ENABLE | NV_PMC_INTR_EN_0 | NV_PMC_INTR_MSK_0)
            || unit(reg) == Unit::Pci
            || Pfifo::masks_non_stall(reg)
            || Pfifo::shows_non_stall(reg)
    }

    /// The driver's interest in the interrupt of a method that asks for one.
    pub fn interest(&self) -> InterruptInterest {
        match self.pfifo.tells_non_stall() {
            false => InterruptInterest::Masked,
            true if !self.pmc.line(pmc::PFIFO) => InterruptInterest::Wake,
            true => self.output.interest(EngineSet::all(), &self.control),
        }
    }

    fn level(&mut self, clock: &dyn Clock) -> bool {
        let pending = self.pending(clock);
        self.pmc.line(pending)
    }

    fn pending(&mut self, clock: &dyn Clock) -> u32 {
        if self.ptimer.is_armed() {
            self.ptimer.tick(clock.now());
        }
        let mut pending = 0;
        for (asks, bit) in [
            (self.pfifo.pending(), pmc::PFIFO),
            (self.pgraph.pending(), pmc::PGRAPH),
            (self.ptimer.pending(), pmc::PTIMER_INTR),
            (self.pbus.pending(), pmc::PBUS_INTR),
        ] {
            if asks {
                pending |= bit;
            }
        }
        pending
    }

    fn write_pmc(&mut self, reg: Reg, word: Word, effects: &mut Vec<Effect>) {
        let change = self.pmc.write(reg, word);
        effects.push(Effect::UpdateInterest);
        if change.cleared == 0 {
            return;
        }
        // First stop what executes, then drop state.
        self.tell_fifo_state(effects);
        let mut engines = EngineSet::empty();
        if change.cleared & pmc::PFIFO != 0 {
            self.pfifo.reset(effects);
            self.file.reset(0x00_2000..0x00_4000);
            self.file.reset(0x04_0000..0x06_0000);
        }
        if change.cleared & pmc::PGRAPH != 0 {
            self.pgraph.reset();
            self.file.reset(0x40_0000..0x60_0000);
            engines |= EngineSet::GRAPHICS;
        }
        if change.cleared & pmc::PMU_ENABLE != 0 {
            self.pmu.reset();
            self.file.reset(0x10_a000..0x10_b000);
        }
        let copies = [EngineSet::COPY0, EngineSet::COPY1];
        for (((engine, bit), set), page) in
            self.pce.iter_mut().zip(pmc::PCE_ENABLE).zip(copies).zip([0x10_4000, 0x10_5000])
        {
            if change.cleared & bit != 0 {
                engine.reset();
                self.file.reset(page..page + 0x1000);
                engines |= set;
            }
        }
        if !engines.is_empty() {
            effects.push(Effect::ResetEngines(engines));
        }
    }

    fn tell_fifo_state(&mut self, effects: &mut Vec<Effect>) {
        let state = self.fifo_state();
        if state != self.told {
            self.told = state;
            effects.push(Effect::FifoState(state));
        }
    }

    /// The units that may execute.
    pub fn fifo_state(&self) -> FifoState {
        let mut ready = EngineSet::empty();
        if self.pmc.enabled(pmc::PGRAPH) && self.pgraph.controllers.running() {
            ready |= EngineSet::GRAPHICS;
        }
        for ((engine, bit), set) in
            self.pce.iter().zip(pmc::PCE_ENABLE).zip([EngineSet::COPY0, EngineSet::COPY1])
        {
            if self.pmc.enabled(bit) && engine.ready() {
                ready |= set;
            }
        }
        FifoState {
            enabled: self.pmc.enabled(pmc::PFIFO) && self.pfifo.enabled(),
            pbdma_mask: self.pmc.pbdma_mask(),
            ready,
            large_pages_64k: self.pfb.large_pages_64k(),
        }
    }

    /// Offset in BAR1 of the USERD poll area, while doorbells work.
    pub fn doorbell_area(&self) -> Option<u64> {
        if self.fifo_state().enabled { self.pfifo.poll_area() } else { None }
    }

    /// Value of NV_PBUS_BAR0_WINDOW.
    pub const fn bar0_window(&self) -> u32 {
        self.pbus.window()
    }

    /// Nanoseconds until the timer's alarm, where one is set.
    pub fn alarm_in(&self, clock: &dyn Clock) -> Option<u64> {
        self.ptimer.alarm_in(clock.now())
    }

    /// PBUS, for fault reports.
    pub const fn pbus(&self) -> &Pbus {
        &self.pbus
    }

    /// PFIFO, for events.
    pub const fn pfifo(&mut self) -> &mut Pfifo {
        &mut self.pfifo
    }

    /// PGRAPH, for events.
    pub const fn pgraph(&mut self) -> &mut Pgraph {
        &mut self.pgraph
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
}
