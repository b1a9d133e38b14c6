//! FECS and GPCCS, PGRAPH's context-switch controllers, as a driver with its own (built-in) firmware uses
//! them.
//!
//! The firmware is not interpreted. Started FECS firmware starts GPCCS, reports success in mailbox 0 and the
//! size of a context image in mailbox 1. A driver makes a context current by a command, and saves it by
//! clearing the "next context valid" bit and faking a context-switch interrupt.
//!
//! Not modelled: the commands of NVIDIA's signed firmware, and the watchdog.

use super::effect::Effect;
use super::falcon::{Falcon, FalconEvent, FalconState};
use super::pbus::target_and_page;
use gpuvmk_chip::gf100::GRAPHICS_CONTEXT_SIZE;
use gpuvmk_chip::gf100::regs::fecs::NV_PGRAPH_PRI_FECS_METHOD_PUSH::ADR;
use gpuvmk_chip::gf100::regs::{fecs::*, gpccs};
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::StateError;
use serde::{Deserialize, Serialize};

const FECS_BASE: u32 = NV_PGRAPH_PRI_FECS_INTR_SET.0;
const GPCCS_BASE: u32 = gpccs::NV_PGRAPH_PRI_GPCCS_INTR_SET.0;

/// Mailbox 0: the firmware is up, or a command is over.
const DONE: u32 = NV_PGRAPH_PRI_FECS_CC_SCRATCH::DONE.mask();
/// Context registers: a context is named.
const VALID: u32 = NV_PGRAPH_PRI_FECS_CURRENT_CTX::VALID.mask();
/// Falcon interrupt of a context-switch request.
const CONTEXT_SWITCH: u32 = NV_PGRAPH_PRI_FECS_INTR_SET::CHSW.mask();

/// State of both controllers.
#[derive(Clone, Debug)]
pub struct ContextSwitch {
    fecs: Falcon,
    gpccs: Falcon,
    mailbox: [u32; 8],
    argument: u32,
    current: u32,
    next: u32,
    host_interrupts: u32,
}

impl ContextSwitch {
    /// Controllers with the falcons of the register tables.
    pub fn new(fecs_config: u32, gpccs_config: u32) -> Self {
        Self {
            fecs: Falcon::new(fecs_config),
            gpccs: Falcon::new(gpccs_config),
            mailbox: [0; 8],
            argument: 0,
            current: 0,
            next: 0,
            host_interrupts: 0,
        }
    }

    /// Back to the state after reset.
    pub fn reset(&mut self) {
        self.fecs.reset();
        self.gpccs.reset();
        self.mailbox = [0; 8];
        self.argument = 0;
        self.current = 0;
        self.next = 0;
        self.host_interrupts = 0;
    }

    /// True when the firmware runs: the engine can take channels.
    pub const fn running(&self) -> bool {
        self.fecs.running() && self.gpccs.running()
    }

    /// Notes the context that a channel's error belongs to, for the driver's report.
    pub const fn set_current(&mut self, instance_page: u32) {
        self.current = VALID | instance_page;
    }

    /// Reads a register of either controller.
    pub fn read(&mut self, reg: Reg) -> u32 {
        let mailbox = [
            NV_PGRAPH_PRI_FECS_CC_SCRATCH,
            NV_PGRAPH_PRI_FECS_CC_SCRATCH_SET,
            NV_PGRAPH_PRI_FECS_CC_SCRATCH_CLEAR,
        ];
        if let Some(number) = mailbox.iter().find_map(|family| family.index_of(reg)) {
            return self.mailbox.get(number as usize).copied().unwrap_or(0);
        }
        match reg {
            NV_PGRAPH_PRI_FECS_METHOD_DATA => self.argument,
            NV_PGRAPH_PRI_FECS_CURRENT_CTX => self.current,
            NV_PGRAPH_PRI_FECS_NEXT_CTX => self.next,
            NV_PGRAPH_PRI_FECS_HOST_INTR => self.host_interrupts,
            Reg(offset) if offset >= GPCCS_BASE => self.gpccs.read(offset.wrapping_sub(GPCCS_BASE)),
            Reg(offset) => self.fecs.read(offset.wrapping_sub(FECS_BASE)),
        }
    }

    /// Writes a register of either controller.
    pub fn write(&mut self, reg: Reg, word: Word, effects: &mut Vec<Effect>) {
        if let Some(number) = NV_PGRAPH_PRI_FECS_CC_SCRATCH.index_of(reg) {
            self.change_mailbox(number, |old| word.merge(old));
        } else if let Some(number) = NV_PGRAPH_PRI_FECS_CC_SCRATCH_SET.index_of(reg) {
            self.change_mailbox(number, |old| old | word.bits());
        } else if let Some(number) = NV_PGRAPH_PRI_FECS_CC_SCRATCH_CLEAR.index_of(reg) {
            self.change_mailbox(number, |old| old & !word.bits());
        } else {
            match reg {
                NV_PGRAPH_PRI_FECS_METHOD_DATA => self.argument = word.merge(self.argument),
                NV_PGRAPH_PRI_FECS_METHOD_PUSH => self.command(word.bits(), effects),
                NV_PGRAPH_PRI_FECS_CURRENT_CTX => self.current = word.merge(self.current),
                NV_PGRAPH_PRI_FECS_NEXT_CTX => self.next = word.merge(self.next),
                NV_PGRAPH_PRI_FECS_HOST_INTR_CLEAR => self.host_interrupts &= !word.bits(),
                NV_PGRAPH_PRI_FECS_HOST_INTR => {}
                Reg(offset) if offset >= GPCCS_BASE => {
                    self.gpccs.write(offset.wrapping_sub(GPCCS_BASE), word);
                }
                Reg(offset) => {
                    if let Some(event) = self.fecs.write(offset.wrapping_sub(FECS_BASE), word) {
                        self.falcon_event(event, effects);
                    }
                }
            }
        }
    }

    fn change_mailbox(&mut self, number: u32, change: impl Fn(u32) -> u32) {
        if let Some(mailbox) = self.mailbox.get_mut(number as usize) {
            *mailbox = change(*mailbox);
        }
    }

    fn answer(&mut self, value: u32) {
        let [done, data, ..] = &mut self.mailbox;
        *done |= DONE;
        *data = value;
    }

    fn falcon_event(&mut self, event: FalconEvent, effects: &mut Vec<Effect>) {
        match event {
            FalconEvent::Started => {
                self.gpccs.start();
                // Without GPCCS firmware the start hangs, as it does in hardware.
                if self.gpccs.running() {
                    self.answer(GRAPHICS_CONTEXT_SIZE);
                }
            }
            FalconEvent::Interrupt(bits) => {
                if bits & CONTEXT_SWITCH != 0 && self.running() {
                    self.fecs.acknowledge(CONTEXT_SWITCH);
                    self.switch(effects);
                }
            }
        }
    }

    fn command(&mut self, command: u32, effects: &mut Vec<Effect>) {
        if !self.running() {
            return;
        }
        match command {
            ADR::SET_CHAN => {
                self.next = self.argument;
                self.switch(effects);
                let [done, ..] = &mut self.mailbox;
                *done |= DONE;
            }
            ADR::STOP_CTXSW | ADR::START_CTXSW => self.answer(1),
            _ => {}
        }
    }

    /// Saves the current context where there is one, and loads the next one where there is one.
    fn switch(&mut self, effects: &mut Vec<Effect>) {
        if self.current & VALID != 0 && self.current != self.next {
            effects.push(Effect::SaveGraphics(target_and_page(self.current & !VALID)));
        }
        if self.current != self.next {
            let next = (self.next & VALID != 0).then(|| target_and_page(self.next & !VALID));
            effects.push(Effect::BindGraphics(next));
        }
        self.current = self.next;
    }
}

/// State of [`ContextSwitch`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextSwitchState {
    /// The falcon of FECS.
    pub fecs: FalconState,
    /// The falcon of GPCCS.
    pub gpccs: FalconState,
    /// NV_PGRAPH_PRI_FECS_CC_SCRATCH.
    pub cc_scratch: [u32; 8],
    /// NV_PGRAPH_PRI_FECS_METHOD_DATA.
    pub method_data: u32,
    /// NV_PGRAPH_PRI_FECS_CURRENT_CTX.
    pub current_ctx: u32,
    /// NV_PGRAPH_PRI_FECS_NEXT_CTX.
    pub next_ctx: u32,
}

impl ContextSwitch {
    /// The state to save.
    pub fn state(&self) -> ContextSwitchState {
        // Nothing raises an interrupt of the host here.
        let Self { fecs, gpccs, mailbox, argument, current, next, host_interrupts: _ } = self;
        ContextSwitchState {
            fecs: fecs.state(),
            gpccs: gpccs.state(),
            cc_scratch: *mailbox,
            method_data: *argument,
            current_ctx: *current,
            next_ctx: *next,
        }
    }

    /// Controllers with the falcons of the register tables, in a saved state.
    ///
    /// # Errors
    /// See [`Falcon::from_state`].
    pub fn from_state(
        state: &ContextSwitchState,
        fecs_config: u32,
        gpccs_config: u32,
    ) -> Result<Self, StateError> {
        let ContextSwitchState { fecs, gpccs, cc_scratch, method_data, current_ctx, next_ctx } = state;
        Ok(Self {
            fecs: Falcon::from_state(fecs, fecs_config).map_err(|error| error.within("FECS"))?,
            gpccs: Falcon::from_state(gpccs, gpccs_config).map_err(|error| error.within("GPCCS"))?,
            mailbox: *cc_scratch,
            argument: *method_data,
            current: *current_ctx,
            next: *next_ctx,
            host_interrupts: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::{Aperture, PhysicalAddress};

    fn uploaded() -> ContextSwitch {
        let mut unit = ContextSwitch::new(0x1040, 0x1040);
        for base in [FECS_BASE, GPCCS_BASE] {
            unit.write(Reg(base + 0x180), Word::full(1 << 24), &mut Vec::new());
            unit.write(Reg(base + 0x184), Word::full(0xf8), &mut Vec::new());
        }
        unit
    }

    fn started() -> ContextSwitch {
        let mut unit = uploaded();
        unit.write(NV_PGRAPH_PRI_FECS_CPU_CONTROL, Word::full(2), &mut Vec::new());
        unit
    }

    const INSTANCE: PhysicalAddress = PhysicalAddress { aperture: Aperture::Vram, address: 0x1fce_6000 };

    #[test]
    fn start_reports_success_and_context_size() {
        let mut unit = started();
        assert_eq!(unit.read(NV_PGRAPH_PRI_FECS_CC_SCRATCH.at(0)), DONE);
        assert_eq!(unit.read(NV_PGRAPH_PRI_FECS_CC_SCRATCH.at(1)), GRAPHICS_CONTEXT_SIZE);
        assert!(unit.running());
    }

    #[test]
    fn start_without_gpccs_firmware_reports_nothing() {
        let mut unit = ContextSwitch::new(0x1040, 0x1040);
        unit.write(Reg(FECS_BASE + 0x184), Word::full(0xf8), &mut Vec::new());
        unit.write(NV_PGRAPH_PRI_FECS_CPU_CONTROL, Word::full(2), &mut Vec::new());
        assert_eq!(unit.read(NV_PGRAPH_PRI_FECS_CC_SCRATCH.at(0)), 0);
        assert!(!unit.running());
    }

    #[test]
    fn bind_command_and_unload_follow_the_golden_context_sequence() {
        let mut unit = started();
        let mut effects = Vec::new();
        unit.write(NV_PGRAPH_PRI_FECS_CC_SCRATCH_CLEAR.at(0), Word::full(DONE), &mut effects);
        unit.write(NV_PGRAPH_PRI_FECS_METHOD_DATA, Word::full(0x8001_fce6), &mut effects);
        unit.write(NV_PGRAPH_PRI_FECS_METHOD_PUSH, Word::full(1), &mut effects);
        assert_eq!(effects, [Effect::BindGraphics(Some(INSTANCE))]);
        assert_eq!(unit.read(NV_PGRAPH_PRI_FECS_CC_SCRATCH.at(0)), DONE);
        assert_eq!(unit.read(NV_PGRAPH_PRI_FECS_CURRENT_CTX), 0x8001_fce6);
        effects.clear();
        let next = unit.read(NV_PGRAPH_PRI_FECS_NEXT_CTX);
        unit.write(NV_PGRAPH_PRI_FECS_NEXT_CTX, Word::full(next & !VALID), &mut effects);
        unit.write(NV_PGRAPH_PRI_FECS_INTR_SET, Word::full(0x100), &mut effects);
        assert_eq!(effects, [Effect::SaveGraphics(INSTANCE), Effect::BindGraphics(None)]);
        assert_eq!(unit.read(NV_PGRAPH_PRI_FECS_CURRENT_CTX) & VALID, 0);
    }

    #[test]
    fn commands_to_halted_firmware_are_lost() {
        let mut unit = uploaded();
        let mut effects = Vec::new();
        unit.write(NV_PGRAPH_PRI_FECS_METHOD_DATA, Word::full(0x8001_fce6), &mut effects);
        unit.write(NV_PGRAPH_PRI_FECS_METHOD_PUSH, Word::full(1), &mut effects);
        assert_eq!((effects.len(), unit.read(NV_PGRAPH_PRI_FECS_CURRENT_CTX)), (0, 0));
    }
}
