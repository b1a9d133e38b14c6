//! The display engine's registers, as the driver reads and writes them.

use gpuvmk_chip::display::push::{FREE, GET, NV_DISP_FREE, NV_DISP_GET, NV_DISP_PUT, PUT};
use gpuvmk_chip::display::{ChannelKind, ChannelName, core, cursor};
use gpuvmk_chip::gsp::regs::ampere::fuse::NV_FUSE_STATUS_OPT_DISPLAY;
use gpuvmk_chip::gsp::regs::display::*;
use gpuvmk_chip::registers::{Reg, RegArray};
use gpuvmk_mmio_trap::PhysicalMemory;
use gpuvmk_mmio_trap::access::Word;

use super::engine::{CORE, Display};

/// A register of a channel: the channel, and where among its own.
type OfChannel = (ChannelName, u32);

/// Bytes of the registers of a window's channel, or a cursor's.
const CHANNEL_BYTES: u32 = 0x1000;
/// Where the core channel shows methods that have taken effect.
const ARMED: u32 = 0x8000;
/// Room that a cursor's channel always has.
const FREE_ROOM: u32 = 8;

/// The register of a channel that it is.
fn of_channel(reg: Reg) -> Option<OfChannel> {
    let inside = |family: RegArray| family.index_of(reg).map(|index| index * 4);
    if let Some(offset) = inside(NV_UDISP_CORE) {
        return Some((CORE, offset));
    }
    let families = [
        (NV_UDISP_WINDOW, ChannelKind::Window),
        (NV_UDISP_WINDOW_IMM, ChannelKind::Immediate),
        (NV_UDISP_CURSOR, ChannelKind::Cursor),
    ];
    families.into_iter().find_map(|(family, kind)| {
        let offset = inside(family)?;
        Some((ChannelName::new(kind, offset / CHANNEL_BYTES)?, offset % CHANNEL_BYTES))
    })
}

impl Display {
    /// Reads a register at a time; none: it is not of the display engine.
    pub fn read(&self, reg: Reg, now: u64) -> Option<u32> {
        if reg == NV_FUSE_STATUS_OPT_DISPLAY {
            return Some(0);
        }
        if let Some((name, offset)) = of_channel(reg) {
            return Some(self.read_channel(name, offset));
        }
        let head = |family: RegArray| family.index_of(reg).map(|head| head == 0);
        let bit = |of_head: bool, value: bool, field: gpuvmk_chip::registers::Field| {
            field.of(u32::from(of_head && value))
        };
        if let Some(own) = head(NV_PDISP_FE_EVT_STAT_HEAD_TIMING) {
            return Some(bit(own, self.head.event, NV_PDISP_FE_EVT_STAT_HEAD_TIMING::VBLANK));
        }
        if let Some(own) = head(NV_PDISP_FE_RM_INTR_STAT_HEAD_TIMING) {
            return Some(bit(own, self.interrupts(), NV_PDISP_FE_RM_INTR_STAT_HEAD_TIMING::VBLANK));
        }
        if let Some(own) = head(NV_PDISP_FE_RM_INTR_EN_HEAD_TIMING) {
            return Some(bit(own, self.head.enabled, NV_PDISP_FE_RM_INTR_EN_HEAD_TIMING::VBLANK));
        }
        if reg == NV_PDISP_FE_RM_INTR_DISPATCH {
            return Some(bit(true, self.interrupts(), NV_PDISP_FE_RM_INTR_DISPATCH::HEAD_TIMING));
        }
        let (line, pixel) = self.position(now);
        if let Some(own) = head(NV_PDISP_RG_DPCA) {
            return Some(if own { NV_PDISP_RG_DPCA::LINE_CNT.of(line) } else { 0 });
        }
        head(NV_PDISP_RG_DPCB).map(|own| if own { NV_PDISP_RG_DPCB::PIXEL_CNT.of(pixel) } else { 0 })
    }

    /// Writes a register; none: it is not of the display engine. True: the driver is to be interrupted.
    pub fn write(&mut self, reg: Reg, word: Word, memory: &dyn PhysicalMemory, now: u64) -> Option<bool> {
        if reg == NV_FUSE_STATUS_OPT_DISPLAY {
            return Some(false);
        }
        if let Some((name, offset)) = of_channel(reg) {
            self.write_channel(name, offset, word, memory, now);
            return Some(false);
        }
        if reg == NV_PDISP_FE_EVT_STAT_HEAD_TIMING.at(0) {
            self.head.event &= !NV_PDISP_FE_EVT_STAT_HEAD_TIMING::VBLANK.is_set(word.bits());
            return Some(false);
        }
        if reg == NV_PDISP_FE_RM_INTR_EN_HEAD_TIMING.at(0) {
            let enabled = NV_PDISP_FE_RM_INTR_EN_HEAD_TIMING::VBLANK;
            if word.drives(enabled.mask()) {
                self.head.enabled = enabled.is_set(word.bits());
                self.schedule(now);
            }
            return Some(self.interrupts());
        }
        None
    }

    /// Whether the driver is to hear of a blanking.
    const fn interrupts(&self) -> bool {
        self.head.enabled && self.head.event
    }

    /// The line and the pixel that the head is at.
    fn position(&self, now: u64) -> (u32, u32) {
        let since = now.wrapping_sub(self.head.since);
        self.head.timing.map_or((0, 0), |timing| timing.position(since))
    }

    fn read_channel(&self, name: ChannelName, offset: u32) -> u32 {
        if name.kind == ChannelKind::Cursor {
            let Some(own) = self.cursor else { return 0 };
            return match offset {
                FREE => NV_DISP_FREE::COUNT.of(FREE_ROOM),
                cursor::SET_CURSOR_HOT_SPOT_POINT_OUT => own.assembly,
                _ => 0,
            };
        }
        let Some(channel) = self.channels.get(&name) else { return 0 };
        let words = |at: usize| u32::try_from(at).unwrap_or(0);
        match offset {
            PUT => NV_DISP_PUT::PTR.of(words(channel.put())),
            GET => NV_DISP_GET::PTR.of(words(channel.get())),
            _ if name == CORE && offset < core::BYTES => channel.methods.assembled(offset),
            _ if name == CORE && offset >= ARMED => channel.methods.armed(offset - ARMED),
            _ => 0,
        }
    }

    fn write_channel(
        &mut self,
        name: ChannelName,
        offset: u32,
        word: Word,
        memory: &dyn PhysicalMemory,
        now: u64,
    ) {
        if let (ChannelKind::Cursor, Some(own)) = (name.kind, &mut self.cursor) {
            match offset {
                cursor::SET_CURSOR_HOT_SPOT_POINT_OUT => own.assembly = word.merge(own.assembly),
                cursor::UPDATE => own.armed = own.assembly,
                _ => {}
            }
        } else if offset == PUT
            && let Some(channel) = self.channels.get(&name)
        {
            let old = NV_DISP_PUT::PTR.of(u32::try_from(channel.put()).unwrap_or(0));
            let put = usize::try_from(NV_DISP_PUT::PTR.get(word.merge(old))).unwrap_or(0);
            self.set_put(name, put, memory, now);
        }
    }
}
