//! FWSEC, played here: its data as a driver has filled it in, and what it does.

use gpuvmk_chip::gsp::falcon::MEMORY_SIZE;
use gpuvmk_chip::gsp::fwsec::{
    CMD_FRTS, CMD_SB, Command, DmemMapper, INTERFACE_DMEM_MAPPER, Interface, InterfaceHeader, LoaderDesc,
    MAPPER_SIGNATURE, REGION_FB,
};
use gpuvmk_chip::gsp::regs::falcon_boot::{NV_PFB_PRI_MMU_WPR2_ADDR_HI, NV_PFB_PRI_MMU_WPR2_ADDR_LO};
use gpuvmk_chip::{Aperture, PhysicalAddress};
use zerocopy::FromBytes;

use super::super::vbios::INTERFACES;
use super::error::FalconError;
use super::falcon::Falcon;

/// log2 of the bytes of the pages that regions are counted in.
const PAGE_SHIFT: u32 = 12;

/// Data of the firmware, in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Where it is.
    pub source: PhysicalAddress,
    /// Its bytes.
    pub size: usize,
}

/// The protected region, as its two registers show it. Both are 0 while there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Wpr2 {
    /// NV_PFB_PRI_MMU_WPR2_ADDR_LO.
    pub low: u32,
    /// NV_PFB_PRI_MMU_WPR2_ADDR_HI.
    pub high: u32,
}

impl Wpr2 {
    /// Whether there is a region.
    pub const fn is_set(self) -> bool {
        self.high != 0
    }

    /// Whether hardware could be in this state.
    pub const fn is_sound(self) -> bool {
        let bits = NV_PFB_PRI_MMU_WPR2_ADDR_LO::VAL.mask();
        (self.low | self.high) & !bits == 0 && (self.low < self.high || self.low | self.high == 0)
    }
}

/// What FWSEC was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Set up the region.
    Frts(Wpr2),
    /// Secure boot.
    SecureBoot,
}

/// Where the bootloader in a falcon's instruction memory takes FWSEC's data from, by what it finds at the
/// start of the falcon's data memory.
///
/// # Errors
/// It is not there, or of another memory.
pub fn loaded_by_bootloader(falcon: &Falcon) -> Result<Data, FalconError> {
    let dmem = falcon.dmem.contents();
    let (desc, _) = LoaderDesc::read_from_prefix(&dmem)
        .map_err(|_| FalconError::NotFwsec("its bootloader finds no description"))?;
    let size = usize::try_from(desc.data_size.get()).unwrap_or(usize::MAX);
    if size > MEMORY_SIZE {
        return Err(FalconError::NotFwsec("it is larger than data memory"));
    }
    let aperture = falcon
        .aperture(desc.ctx_dma.get())
        .filter(|aperture| *aperture != Aperture::Vram)
        .ok_or(FalconError::NotFwsec("its bootloader cannot read system memory"))?;
    let address = desc.data_dma_base.get();
    Ok(Data { source: PhysicalAddress { aperture, address }, size })
}

/// What FWSEC with this data is asked for, where VRAM has that many bytes.
///
/// # Errors
/// The data is not FWSEC's, or the command is not one of those that are known.
pub fn asked(data: &[u8], vram: u64) -> Result<Asked, FalconError> {
    let list = data.get(INTERFACES..).unwrap_or_default();
    let mapper = mapper(data, list).ok_or(FalconError::NotFwsec("it has no interface for commands"))?;
    match mapper.init_cmd.get() {
        CMD_FRTS => {
            let command: Command = at(data, mapper.cmd_in_buffer_offset.get())
                .ok_or(FalconError::NotFwsec("its command is outside of it"))?;
            region(&command, vram).map(Asked::Frts)
        }
        CMD_SB => Ok(Asked::SecureBoot),
        other => Err(FalconError::Command(other)),
    }
}

/// The mapper in the list of interfaces. A list has at most 255 entries.
fn mapper(data: &[u8], list: &[u8]) -> Option<DmemMapper> {
    let header: InterfaceHeader = at(list, 0)?;
    let entry = |index: u8| -> Option<Interface> {
        let place = u32::from(header.header_size) + u32::from(index) * u32::from(header.entry_size);
        at(list, place)
    };
    let interface = (0..header.entries).filter_map(entry).find(|entry| entry.id == INTERFACE_DMEM_MAPPER)?;
    let mapper: DmemMapper = at(data, interface.dmem_base.get())?;
    (header.version == 1 && mapper.signature == MAPPER_SIGNATURE).then_some(mapper)
}

/// The region of a command.
fn region(command: &Command, vram: u64) -> Result<Wpr2, FalconError> {
    let (page, pages, kind) =
        (command.region_page.get(), command.region_pages.get(), command.region_type.get());
    let end = u64::from(page) + u64::from(pages);
    let fits = kind == REGION_FB && pages != 0 && end <= vram >> PAGE_SHIFT;
    // The end fits into the register's field: VRAM beyond that cannot be protected.
    let (low, high) = (NV_PFB_PRI_MMU_WPR2_ADDR_LO::VAL, NV_PFB_PRI_MMU_WPR2_ADDR_HI::VAL);
    let register = u32::try_from(end).ok().map(|end| (end, high.of(end))).filter(|_| fits);
    match register {
        Some((end, register)) if high.get(register) == end => Ok(Wpr2 { low: low.of(page), high: register }),
        _ => Err(FalconError::Region { page, pages, kind }),
    }
}

/// A structure at a place in data.
fn at<T: FromBytes>(data: &[u8], place: u32) -> Option<T> {
    let rest = data.get(usize::try_from(place).ok()?..)?;
    T::read_from_prefix(rest).ok().map(|(value, _)| value)
}
