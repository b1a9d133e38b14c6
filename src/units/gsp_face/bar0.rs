//! Accesses to BAR0, and what follows from a register write.

use std::sync::atomic::Ordering;

use super::effect::Effect;
use super::function::GspFunction;
use super::hal::{Role, Token};
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::gsp::userd::USERD_GP_PUT;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_mmio_trap::access::lanes;

impl<B: GspBackend> GspFunction<B> {
    pub(super) fn read_bar0(&self, offset: u64, data: &mut [u8]) {
        if self.hal().pramin.range().contains(&offset) {
            self.read_pramin(offset, data);
            return;
        }
        if self.core.identity.read(offset, data) {
            return;
        }
        let mut rest = data;
        for lane in lanes(offset, rest.len()) {
            let (part, later) = rest.split_at_mut(lane.len().min(rest.len()));
            if matches!(self.core.roles.of(lane.reg), Role::Interrupt(register) if register.shows_pending()) {
                self.core.interest_tracker.deliver(&*self.backend);
            }
            let of_head = self.core.read_head(lane.reg);
            lane.store(of_head.unwrap_or_else(|| self.core.face.read(lane.reg)), part);
            rest = later;
        }
    }

    pub(super) fn write_bar0(&self, offset: u64, data: &[u8]) {
        if self.hal().pramin.range().contains(&offset) {
            self.write_pramin(offset, data);
            return;
        }
        if self.core.identity.write(offset, data) {
            return;
        }
        let mut effects = Vec::new();
        let mut rest = data;
        for lane in lanes(offset, data.len()) {
            let (part, later) = rest.split_at(lane.len().min(rest.len()));
            // A driver that clears vectors also clears those of notifications that are still held back.
            if matches!(self.core.roles.of(lane.reg), Role::Interrupt(_)) {
                self.core.interest_tracker.deliver(&*self.backend);
            }
            rest = later;
            if self.write_head(lane.reg, lane.word(part)) {
                continue;
            }
            self.core.face.write(lane.reg, lane.word(part), &mut effects);
            for effect in effects.drain(..) {
                self.perform(effect);
            }
        }
    }

    /// Carries out what follows from a register write.
    pub(super) fn perform(&self, effect: Effect) {
        match effect {
            Effect::Boot(request) => self.core.boot(&self.backend, request),
            Effect::BootRefused(refusal) => {
                self.core.face.counters_changed.note();
                self.core.boot_log.refused(self.core.face.now(), &refusal);
            }
            Effect::GspCommands => self.commands(),
            Effect::Flush(asked) => {
                self.core.invalidate_windows(&self.backend, asked.page_directory);
                if !self.core.is_bar_root(asked.page_directory) {
                    self.backend.flush_tlb(asked);
                }
            }
            Effect::Doorbell(token) => self.doorbell(token),
            Effect::TellInterest => {
                self.core.interest_tracker.update(&*self.backend, || self.core.face.lock().interest());
            }
            Effect::MovePramin => self.core.watcher.changed(0),
            Effect::FunctionReset => self.core.reset(&self.backend),
        }
    }

    /// A driver rings. Of channels that the back does not have, GSP carries out what it can.
    fn doorbell(&self, token: Option<Token>) {
        let Some(token) = token else { return self.bad_doorbell() };
        match self.core.doorbell_target(token) {
            Some(target) => self.ring(target.channel, target.userd),
            None if self.core.kernel_doorbell(&self.backend, token) => {}
            None => self.bad_doorbell(),
        }
    }

    fn ring(&self, channel: GuestChannel, userd: u64) {
        let mut gp_put = [0; 4];
        let read = userd.checked_add(USERD_GP_PUT).is_some_and(|address| {
            let address = PhysicalAddress { aperture: Aperture::Vram, address };
            self.backend.read_memory(address, &mut gp_put).is_ok()
        });
        if read {
            self.backend.doorbell(channel, u32::from_le_bytes(gp_put));
        } else {
            self.bad_doorbell();
        }
    }

    fn bad_doorbell(&self) {
        self.core.bad_doorbells.fetch_add(1, Ordering::Relaxed);
        self.core.face.counters_changed.note();
    }
}
