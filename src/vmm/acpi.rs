//! The tables by which the guest learns what the machine has: the hardware-reduced kind of ACPI 6, without
//! fixed hardware.

use acpi_tables::aml::{
    AddressSpace, AddressSpaceCacheable, Arg, Device, EISAName, IO, Interrupt, Memory32Fixed, Method, Name,
    Package, Path, ResourceTemplate, Return, ZERO,
};
use acpi_tables::fadt::{FADTBuilder, Flags};
use acpi_tables::gas::{AccessSize, AddressSpace as RegisterSpace, GAS};
use acpi_tables::madt::{EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic};
use acpi_tables::mcfg::MCFG;
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::Sdt;
use acpi_tables::xsdt::XSDT;
use acpi_tables::{Aml, AmlSink};

use super::layout::{
    ACPI, CONFIG_PORTS, ECAM, IO_APIC, LOCAL_APIC, MMIO32, MMIO64, PORTS, POWER, RESET, SERIAL, SERIAL_LINE,
    slot_pin,
};
use super::power::{RESET_VALUE, SLEEP_TYPE_OFF};

const OEM: [u8; 6] = *b"GPUVMK";
const TABLE: [u8; 8] = *b"GPUVMKVM";
const REVISION: u32 = 1;
/// There is no real-time clock of a PC: kernels wait for one that does not answer (FADT's IA-PC boot
/// architecture flags).
const NO_CLOCK: u16 = 1 << 5;
/// Slots of the PCI bus that have an interrupt route.
const SLOTS: u8 = 32;

/// Tables as they lie in memory from [`ACPI`]'s first address on; the first one is the RSDP.
pub(super) fn tables(processors: u8) -> Vec<u8> {
    let mut memory = Placed::new();
    let rsdp_at = memory.reserve(Rsdp::len());
    let dsdt = memory.put(&dsdt());
    let fadt = memory.put(&fadt(dsdt).finalize());
    let madt = memory.put(&madt(processors));
    let mcfg = memory.put(&mcfg());
    let mut xsdt = XSDT::new(OEM, TABLE, REVISION);
    [fadt, madt, mcfg].into_iter().for_each(|table| xsdt.add_entry(table));
    let xsdt = memory.put(&xsdt);
    let mut rsdp = Vec::new();
    Rsdp::new(OEM, xsdt).to_aml_bytes(&mut rsdp);
    memory.fill(rsdp_at, &rsdp);
    memory.bytes
}

/// Tables one behind the other.
struct Placed {
    bytes: Vec<u8>,
}

impl Placed {
    const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    fn reserve(&mut self, size: usize) -> usize {
        let at = self.bytes.len().next_multiple_of(16);
        self.bytes.resize(at + size, 0);
        at
    }

    fn fill(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Adds a table; its address.
    fn put(&mut self, table: &dyn Aml) -> u64 {
        let mut bytes = Vec::new();
        table.to_aml_bytes(&mut bytes);
        let at = self.reserve(bytes.len());
        self.fill(at, &bytes);
        ACPI.start + at as u64
    }
}

/// A table that is its bytes.
struct Raw(Sdt);

impl Aml for Raw {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        sink.vec(self.0.as_slice());
    }
}

fn port(at: u16) -> GAS {
    GAS::new(RegisterSpace::SystemIo, 8, 0, AccessSize::ByteAccess, u64::from(at))
}

fn fadt(dsdt: u64) -> FADTBuilder {
    let mut fadt = FADTBuilder::new(OEM, TABLE, REVISION)
        .dsdt_64(dsdt)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::ResetRegSup)
        .flag(Flags::Headless);
    fadt.sleep_control_reg = port(POWER.start);
    fadt.sleep_status_reg = port(POWER.start + 1);
    fadt.reset_reg = port(RESET);
    fadt.reset_value = RESET_VALUE;
    fadt.iapc_boot_arch = NO_CLOCK.into();
    fadt
}

fn madt(processors: u8) -> MADT {
    let mut madt = MADT::new(OEM, TABLE, REVISION, LocalInterruptController::Address(LOCAL_APIC));
    (0..processors)
        .for_each(|id| madt.add_structure(ProcessorLocalApic::new(id, id, EnabledStatus::Enabled)));
    // Its id is none of the processors'.
    madt.add_structure(IoApic::new(processors, IO_APIC, 0));
    madt
}

fn mcfg() -> MCFG {
    let mut mcfg = MCFG::new(OEM, TABLE, REVISION);
    mcfg.add_ecam(ECAM.start, 0, 0, 0);
    mcfg
}

/// The devices that cannot be found otherwise.
fn dsdt() -> Raw {
    let mut body = Vec::new();
    host_bridge(&mut body);
    let config = Memory32Fixed::new(true, low(ECAM.start), low(ECAM.end - ECAM.start));
    let resources = ResourceTemplate::new(vec![&config]);
    // Kernels believe in ECAM only where it is reserved as a motherboard's resource.
    let reserved_id = Name::new(Path::new("_HID"), &EISAName::new("PNP0C02"));
    let reserved_uid = Name::new(Path::new("_UID"), &0u8);
    let reserved_resources = Name::new(Path::new("_CRS"), &resources);
    Device::new(Path::new("_SB_.MBRD"), vec![&reserved_id, &reserved_uid, &reserved_resources])
        .to_aml_bytes(&mut body);
    let ports = IO::new(SERIAL.start, SERIAL.start, 0, 8);
    let line = Interrupt::new(true, true, false, false, SERIAL_LINE);
    let resources = ResourceTemplate::new(vec![&ports, &line]);
    let id = Name::new(Path::new("_HID"), &EISAName::new("PNP0501"));
    let uid = Name::new(Path::new("_UID"), &0u8);
    let resources = Name::new(Path::new("_CRS"), &resources);
    Device::new(Path::new("_SB_.COM1"), vec![&id, &uid, &resources]).to_aml_bytes(&mut body);
    Name::new(Path::new("_S5_"), &Package::new(vec![&SLEEP_TYPE_OFF])).to_aml_bytes(&mut body);
    let mut table = Sdt::new(*b"DSDT", 36, 6, OEM, TABLE, REVISION);
    table.append_slice(&body);
    Raw(table)
}

fn host_bridge(body: &mut Vec<u8>) {
    let id = Name::new(Path::new("_HID"), &EISAName::new("PNP0A08"));
    let compatible = Name::new(Path::new("_CID"), &EISAName::new("PNP0A03"));
    let zeros: Vec<_> =
        ["_SEG", "_BBN", "_UID", "_ADR"].into_iter().map(|name| Name::new(Path::new(name), &ZERO)).collect();
    let buses = AddressSpace::new_bus_number(0u16, 0u16);
    let config = IO::new(CONFIG_PORTS.start, CONFIG_PORTS.start, 1, 8);
    let ports = AddressSpace::new_io(PORTS.start, PORTS.end - 1, None);
    let uncached = AddressSpaceCacheable::NotCacheable;
    let narrow = AddressSpace::new_memory(uncached, true, low(MMIO32.start), low(MMIO32.end - 1), None);
    let wide = AddressSpace::new_memory(uncached, true, MMIO64.start, MMIO64.end - 1, None);
    let resources = ResourceTemplate::new(vec![&buses, &config, &ports, &narrow, &wide]);
    let resources = Name::new(Path::new("_CRS"), &resources);
    // Each slot's INTA, by pin of the I/O APIC.
    let pins: Vec<_> = (1..SLOTS).map(|slot| (u32::from(slot) << 16 | 0xffff, slot_pin(slot))).collect();
    let routes: Vec<_> =
        pins.iter().map(|(address, pin)| Package::new(vec![address, &0u8, &0u8, pin])).collect();
    let routes =
        Name::new(Path::new("_PRT"), &Package::new(routes.iter().map(|route| route as &dyn Aml).collect()));
    // The kernel gets control of all that it asks for: no firmware uses any of it.
    let granted = Return::new(&Arg(3));
    let osc = Method::new(Path::new("_OSC"), 4, false, vec![&granted]);
    let mut children: Vec<&dyn Aml> = vec![&id, &compatible, &osc];
    children.extend(zeros.iter().map(|name| name as &dyn Aml));
    children.extend([&resources as &dyn Aml, &routes]);
    Device::new(Path::new("_SB_.PCI0"), children).to_aml_bytes(body);
}

/// An address of 32 bits.
const fn low(address: u64) -> u32 {
    assert!(address <= u32::MAX as u64);
    #[allow(clippy::cast_possible_truncation, reason = "checked in the line above, for constants")]
    let address = address as u32;
    address
}

#[cfg(test)]
mod tests {
    use super::super::layout::RESET_VECTOR;
    use super::*;

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    fn at<'a>(tables: &'a [u8], address: &[u8]) -> &'a [u8] {
        let start = u64::from_le_bytes(address.try_into().unwrap()) - ACPI.start;
        &tables[usize::try_from(start).unwrap()..]
    }

    #[test]
    fn tables_lead_to_each_other_and_have_their_sums() {
        let all = tables(3);
        assert!(all.len() as u64 <= RESET_VECTOR - ACPI.start);
        assert_eq!(&all[..8], b"RSD PTR ");
        assert_eq!((sum(&all[..20]), sum(&all[..36])), (0, 0));
        let xsdt = at(&all, &all[24..32]);
        let length = |table: &[u8]| u32::from_le_bytes(table[4..8].try_into().unwrap()) as usize;
        let mut names = vec![xsdt[..4].to_vec()];
        assert_eq!(sum(&xsdt[..length(xsdt)]), 0);
        for entry in xsdt[36..length(xsdt)].chunks(8) {
            let table = at(&all, entry);
            assert_eq!(sum(&table[..length(table)]), 0, "{:?}", std::str::from_utf8(&table[..4]));
            names.push(table[..4].to_vec());
            if &table[..4] == b"FACP" {
                let dsdt = at(&all, &table[140..148]);
                assert_eq!((&dsdt[..4], sum(&dsdt[..length(dsdt)])), (&b"DSDT"[..], 0));
            }
            if &table[..4] == b"APIC" {
                // Three processors of 8 bytes, one I/O APIC of 12.
                assert_eq!(length(table), 44 + 3 * 8 + 12);
            }
        }
        assert_eq!(names, [&b"XSDT"[..], b"FACP", b"APIC", b"MCFG"]);
    }
}
