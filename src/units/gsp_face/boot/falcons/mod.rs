//! The boot of Turing to Ada: a driver starts firmware on two falcons itself.
//!
//! It takes FWSEC from the VBIOS, has GSP's falcon run it (command FRTS), which sets up a protected region of
//! VRAM (WPR2), and resets GSP. Then it leaves the address of GSP's arguments in GSP's mailboxes and has
//! SEC2's falcon run the booter, whose mailboxes name the description of GSP's image, or where GSP was
//! suspended. GSP runs from then on. When the driver goes, GSP unloads itself; the driver resets it, runs
//! FWSEC again (command SB), and the booter takes the region away. After a suspension it restores it.
//!
//! Nothing of what is loaded is executed, and no signature is checked. Each firmware does what it would do,
//! when its falcon is started, and the falcon has halted when the write returns. What is done out of order
//! gets an error where a driver looks for it.
//!
//! Which firmware a start of SEC2 means follows from the state: the one that unloads when GSP was loaded.

mod booter;
mod error;
mod falcon;
mod fwsec;
mod memory;
mod state;

pub use booter::{Description, read_region, write_region};
pub use error::{FalconError, Unit};
pub use falcon::{FalconState, Transfer};
pub use fwsec::{Data, Wpr2};
pub use state::FalconsState;

use gpuvmk_chip::gsp::falcon::{GSP_BASE, SEC2_BASE};
use gpuvmk_chip::gsp::regs::falcon_boot::prom::NV_PROM_DATA;
use gpuvmk_chip::gsp::regs::falcon_boot::{
    NV_PBUS_SW_SCRATCH, NV_PFB_PRI_MMU_WPR2_ADDR_HI, NV_PFB_PRI_MMU_WPR2_ADDR_LO,
};
use gpuvmk_chip::gsp::regs::pfalcon::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;

use super::super::falcon::GspFalcon;
use super::super::hal::{Descriptor, FalconBoot};
use super::vbios;
use falcon::Falcon;
use fwsec::Asked;

/// Number of the scratch register with the error of FRTS.
const FRTS_SCRATCH: u32 = 0x0e;
/// Number of that with the error of SB.
const SB_SCRATCH: u32 = 0x15;
/// What the mailboxes of the booter hold when it unloads a GSP that was not suspended.
const NOT_SUSPENDED: [u32; 2] = [0xff, 0xff];
/// Bytes of a unit's registers.
const UNIT_SIZE: u32 = 0x2000;

/// What a driver asks for by a register write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Firmware is to be read into a falcon's memory.
    Load(Transfer),
    /// FWSEC runs, whose data has to be read first.
    Fwsec(Data),
    /// The booter loads GSP.
    Boot {
        /// Bus address of GSP's arguments; 0 or anything when it resumes.
        arguments: u64,
        /// Bus address of the description of its image, or of where it was suspended.
        description: u64,
        /// The protected region.
        region: Wpr2,
    },
    /// The booter unloads a GSP that was suspended.
    Unload {
        /// Bus address of what says where it was suspended.
        description: u64,
        /// The protected region.
        region: Wpr2,
    },
    /// GSP's firmware ends with a reset of its unit.
    Stop,
}

/// Both falcons, and what firmware on them has set up.
#[derive(Clone, Debug)]
pub struct Falcons {
    descriptor: Descriptor,
    vbios: Vec<u8>,
    gsp: Falcon,
    sec2: Falcon,
    /// Those of SEC2. GSP's are the processor's.
    mailboxes: [u32; 2],
    wpr2: Wpr2,
    /// The booter has loaded GSP, and not unloaded it.
    loaded: bool,
    frts_error: u16,
    sb_error: u16,
}

impl Falcons {
    /// Both in their reset state, and the VBIOS of a card with this PCI device id.
    pub fn new(boot: FalconBoot, device_id: u16) -> Self {
        Self {
            descriptor: boot.fwsec,
            vbios: vbios::build(device_id, boot.fwsec),
            gsp: Falcon::new(Unit::Gsp),
            sec2: Falcon::new(Unit::Sec2),
            mailboxes: [0; 2],
            wpr2: Wpr2::default(),
            loaded: false,
            frts_error: 0,
            sb_error: 0,
        }
    }

    /// Reads a register; 0 for those of others.
    pub fn read(&mut self, reg: Reg, gsp: &GspFalcon) -> u32 {
        if let Some(index) = NV_PROM_DATA.index_of(reg) {
            return self.prom(index);
        }
        if let Some(number) = NV_PBUS_SW_SCRATCH.index_of(reg) {
            return match number {
                FRTS_SCRATCH => NV_PBUS_SW_SCRATCH::FRTS_ERR_CODE.of(self.frts_error.into()),
                SB_SCRATCH => NV_PBUS_SW_SCRATCH::SB_ERR_CODE.of(self.sb_error.into()),
                _ => 0,
            };
        }
        match reg {
            NV_PFB_PRI_MMU_WPR2_ADDR_LO => self.wpr2.low,
            NV_PFB_PRI_MMU_WPR2_ADDR_HI => self.wpr2.high,
            _ => match place(reg) {
                Some((Unit::Gsp, NV_PFALCON_FALCON_CPUCTL)) if gsp.is_running() => 0,
                Some((_, NV_PFALCON_FALCON_CPUCTL)) => NV_PFALCON_FALCON_CPUCTL::HALTED.mask(),
                Some((Unit::Sec2, NV_PFALCON_FALCON_MAILBOX0)) => self.mailboxes[0],
                Some((Unit::Sec2, NV_PFALCON_FALCON_MAILBOX1)) => self.mailboxes[1],
                Some((unit, reg)) => self.falcon(unit).read(reg),
                None => 0,
            },
        }
    }

    /// Writes a register. Those of others do nothing. VRAM has that many bytes.
    ///
    /// # Errors
    /// What the driver asks for is refused. It finds an error where it looks for one.
    pub fn write(
        &mut self,
        reg: Reg,
        word: Word,
        gsp: &mut GspFalcon,
        vram: u64,
    ) -> Result<Option<Request>, FalconError> {
        let Some((unit, reg)) = place(reg) else { return Ok(None) };
        match (unit, reg) {
            (_, NV_PFALCON_FALCON_CPUCTL) => {
                if !NV_PFALCON_FALCON_CPUCTL::STARTCPU.is_set(word.bits()) {
                    return Ok(None);
                }
                match unit {
                    Unit::Gsp => self.start_gsp(gsp, vram),
                    Unit::Sec2 => self.start_sec2(gsp),
                }
            }
            (_, NV_PFALCON_FALCON_ENGINE) => {
                let resets = NV_PFALCON_FALCON_ENGINE::RESET.is_set(word.bits());
                Ok(if resets { self.reset_unit(unit, gsp) } else { None })
            }
            (Unit::Sec2, NV_PFALCON_FALCON_MAILBOX0) => {
                self.mailboxes[0] = word.merge(self.mailboxes[0]);
                Ok(None)
            }
            (Unit::Sec2, NV_PFALCON_FALCON_MAILBOX1) => {
                self.mailboxes[1] = word.merge(self.mailboxes[1]);
                Ok(None)
            }
            _ => self.falcon(unit).write(reg, word).transpose().map(|transfer| transfer.map(Request::Load)),
        }
    }

    /// What a transfer has read goes into the falcon's memory.
    pub fn load(&mut self, transfer: &Transfer, data: &[u8]) {
        let falcon = self.falcon(transfer.unit);
        let memory = if transfer.imem { &mut falcon.imem } else { &mut falcon.dmem };
        memory.load(transfer.at, data);
    }

    /// FWSEC runs with this data, or finds that it has none.
    ///
    /// # Errors
    /// It did not do what it was asked for. The driver finds an error.
    pub fn fwsec(
        &mut self,
        data: Result<&[u8], FalconError>,
        gsp: &mut GspFalcon,
        vram: u64,
    ) -> Result<(), FalconError> {
        let asked = match data.and_then(|data| fwsec::asked(data, vram)) {
            Ok(asked) => asked,
            Err(error) => {
                // Which command it was is not known, or does not matter.
                (self.frts_error, self.sb_error) = (error.code(), error.code());
                return Err(error);
            }
        };
        let (result, place) = match asked {
            Asked::Frts(_) if self.wpr2.is_set() => (Err(FalconError::RegionExists), &mut self.frts_error),
            Asked::Frts(region) => {
                self.wpr2 = region;
                (Ok(()), &mut self.frts_error)
            }
            Asked::SecureBoot if self.wpr2.is_set() => (Ok(()), &mut self.sb_error),
            Asked::SecureBoot => (Err(FalconError::NoRegion("FWSEC's command SB")), &mut self.sb_error),
        };
        *place = code(result);
        gsp.set_mailbox(0);
        result
    }

    /// The booter has loaded GSP in that region, or not.
    pub fn booted(&mut self, result: Result<Wpr2, FalconError>) {
        if let Ok(region) = result {
            (self.wpr2, self.loaded) = (region, true);
        }
        self.mailboxes = [code(result).into(), 0];
    }

    /// The booter has unloaded GSP, or not.
    pub fn unloaded(&mut self, result: Result<(), FalconError>) {
        if result.is_ok() {
            self.loaded = false;
            self.wpr2 = Wpr2::default();
        }
        self.mailboxes = [code(result).into(), 0];
    }

    fn start_gsp(&mut self, gsp: &mut GspFalcon, vram: u64) -> Result<Option<Request>, FalconError> {
        let data = if gsp.is_running() || self.gsp.is_riscv_selected() {
            Err(FalconError::GspRuns)
        } else if self.gsp.imem.is_empty() {
            Err(FalconError::NothingLoaded(Unit::Gsp))
        } else {
            match self.descriptor {
                Descriptor::V2 => match fwsec::loaded_by_bootloader(&self.gsp) {
                    Ok(data) => return Ok(Some(Request::Fwsec(data))),
                    Err(error) => Err(error),
                },
                Descriptor::V3 => Ok(self.gsp.dmem.contents()),
            }
        };
        self.fwsec(data.as_deref().map_err(|error| *error), gsp, vram).map(|()| None)
    }

    fn start_sec2(&mut self, gsp: &GspFalcon) -> Result<Option<Request>, FalconError> {
        let mailboxes = self.mailboxes;
        let result = if self.sec2.imem.is_empty() {
            Err(FalconError::NothingLoaded(Unit::Sec2))
        } else if gsp.is_running() {
            Err(FalconError::GspRuns)
        } else if !self.loaded {
            let arguments = address(gsp.mailboxes());
            let description = address(mailboxes);
            Ok(Some(Request::Boot { arguments, description, region: self.wpr2 }))
        } else if mailboxes == NOT_SUSPENDED {
            self.unloaded(Ok(()));
            Ok(None)
        } else {
            Ok(Some(Request::Unload { description: address(mailboxes), region: self.wpr2 }))
        };
        if let Err(error) = result {
            self.mailboxes = [error.code().into(), 0];
        }
        result
    }

    /// Resets a unit: its falcon is as after power-on, and its firmware ends.
    fn reset_unit(&mut self, unit: Unit, gsp: &mut GspFalcon) -> Option<Request> {
        *self.falcon(unit) = Falcon::new(unit);
        match unit {
            Unit::Sec2 => {
                self.mailboxes = [0; 2];
                None
            }
            Unit::Gsp => {
                let ran = gsp.is_running();
                gsp.reset();
                ran.then_some(Request::Stop)
            }
        }
    }

    const fn falcon(&mut self, unit: Unit) -> &mut Falcon {
        match unit {
            Unit::Gsp => &mut self.gsp,
            Unit::Sec2 => &mut self.sec2,
        }
    }

    /// A word of the ROM: ones behind its end.
    fn prom(&self, index: u32) -> u32 {
        let words = self.vbios.as_chunks::<4>().0;
        let word = usize::try_from(index).ok().and_then(|index| words.get(index));
        word.map_or(u32::MAX, |word| u32::from_le_bytes(*word))
    }
}

/// The unit of a register, and the register's distance from the unit's base.
const fn place(reg: Reg) -> Option<(Unit, Reg)> {
    if reg.0 >= GSP_BASE && reg.0 < GSP_BASE + UNIT_SIZE {
        Some((Unit::Gsp, Reg(reg.0 - GSP_BASE)))
    } else if reg.0 >= SEC2_BASE && reg.0 < SEC2_BASE + UNIT_SIZE {
        Some((Unit::Sec2, Reg(reg.0 - SEC2_BASE)))
    } else {
        None
    }
}

/// The address in two mailboxes.
fn address([low, high]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The error code for the driver; 0 where all is well.
fn code<T>(result: Result<T, FalconError>) -> u16 {
    result.err().map_or(0, FalconError::code)
}
