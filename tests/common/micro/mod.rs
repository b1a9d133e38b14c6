//! Micro guests: real KVM guests of some hundred bytes, whose processor carries out scripts of loads and
//! stores at privilege level 3, where every host's KVM runs them natively (one without hardware
//! virtualisation too).
//!
//! Guest-physical addresses are virtual ones, up to 4 GiB. Memory begins at 0: page tables, code, script,
//! results, then data. There is no interrupt table: messages stay pending in the local APIC, where the test
//! looks for them.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "helpers of tests may fail as tests do"
)]

mod code;
pub mod gpus;
pub mod hand;
mod script;

use std::sync::Arc;

use gpuvmk::frontend::kvm::{Attached, Machine, Placement, Processor};
use gpuvmk::pci::{PciFunction, RegionKind};
use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_segment};
use kvm_ioctls::VcpuExit;
pub use script::Operation;

/// Main memory.
pub const RAM: u64 = 32 << 20;
const PAGE_TABLES: u64 = 0x1000;
const CODE: u64 = 0x8000;
const RESULTS: u64 = 0x1_0000;
const SCRIPT: u64 = 0x10_0000;
/// Memory for the test.
pub const DATA: u64 = 0x80_0000;
/// A store here ends a script.
const DONE: u64 = 0xf000_0000;
/// An address at which nothing is.
pub const NOTHING: u64 = 0xf100_0000;
/// Where BARs are put.
const BARS: std::ops::Range<u64> = 0x4000_0000..0xe000_0000;
/// The function's message: the first local APIC, this vector.
pub const VECTOR: u8 = 0x41;
const MESSAGE_ADDRESS: u32 = 0xfee0_0000;

/// True when this host has KVM; tests of it have nothing to say where it has not.
pub fn host_has_kvm() -> bool {
    let has = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    if !has {
        eprintln!("skipped: this host has no /dev/kvm that may be opened");
    }
    has
}

/// A micro guest with one function.
pub struct MicroGuest {
    pub machine: Machine,
    pub attached: Arc<Attached>,
    processor: Processor,
    bars: [u64; 6],
}

impl MicroGuest {
    /// A guest whose function is where firmware would have put it. `direct`: what windows show is mapped.
    pub fn new(function: Arc<dyn PciFunction>, direct: bool) -> Self {
        let machine = Machine::new(&Machine::open_kvm().unwrap(), &[(0, RAM)]).unwrap();
        let memory = machine.ram().memory();
        memory.write(CODE, code::interpreter()).unwrap();
        write_page_tables(|at, entry| memory.write_u64(at, entry).unwrap());
        let mut processor = machine.processor(0).unwrap();
        set_up(&machine, &mut processor);
        let placement = Placement { memory: vec![BARS], pin: None, direct };
        let attached = machine.attach(function, placement).unwrap();
        let mut guest = Self { machine, attached, processor, bars: [0; 6] };
        guest.place_bars();
        guest
    }

    /// Gives the BARs their places, as firmware does after each reset.
    pub fn place_bars(&mut self) {
        let mut next = BARS.start;
        for (bar, info) in self.attached.function().regions().iter().take(6).enumerate() {
            let register = 0x10 + 4 * bar as u64;
            let place = next.next_multiple_of(info.size.max(1));
            match info.kind {
                RegionKind::Memory32 => self.write_config(register, place as u32),
                RegionKind::Memory64Prefetch => {
                    self.write_config(register, place as u32);
                    self.write_config(register + 4, (place >> 32) as u32);
                }
                _ => continue,
            }
            self.bars[bar] = place;
            next = place + info.size;
        }
        assert!(next <= BARS.end, "the BARs have no room");
        let mut command = [0; 2];
        self.attached.read_config(4, &mut command);
        self.write_config(4, u32::from(u16::from_le_bytes(command) | 6));
        let message = gpuvmk::pci::header::capability(&**self.attached.function(), gpuvmk::pci::header::MSI);
        if let Some(at) = message {
            self.write_config(at + 4, MESSAGE_ADDRESS);
            self.write_config(at + 8, 0);
            self.write_config(at + 12, VECTOR.into());
        }
    }

    fn write_config(&self, offset: u64, value: u32) {
        self.attached.write_config(offset, &value.to_le_bytes());
    }

    /// Where a BAR is.
    pub fn bar(&self, bar: u8) -> u64 {
        self.bars[usize::from(bar)]
    }

    /// Accesses for which the processor was stopped.
    pub fn exits(&self) -> u64 {
        self.processor.accesses()
    }

    fn write_script(&self, script: &[Operation]) {
        let bytes: Vec<u8> =
            script.iter().flat_map(Operation::encode).chain([0; script::OPERATION]).collect();
        assert!((bytes.len() as u64) < DATA - SCRIPT, "a script of {} operations", script.len());
        self.machine.ram().memory().write(SCRIPT, &bytes).unwrap();
    }

    /// Carries a script out; what its operations gave.
    pub fn run(&mut self, script: &[Operation]) -> Vec<u64> {
        self.write_script(script);
        let exit = self.processor.run_until(|address| address == DONE).unwrap();
        if let Some(exit) = exit {
            let registers = self.processor.fd().get_regs().unwrap();
            panic!("the guest stopped: {exit:?}, {registers:#x?}");
        }
        let memory = self.machine.ram().memory();
        let given = script.iter().filter(|operation| operation.gives()).count() as u64;
        (0..given).map(|index| memory.read_u64(RESULTS + 8 * index).unwrap()).collect()
    }

    /// Carries out a script that gives nothing, with nobody who answers its reads: what KVM costs by itself.
    pub fn run_bare(&mut self, script: &[Operation]) {
        self.write_script(script);
        loop {
            match self.processor.fd().run().unwrap() {
                VcpuExit::MmioRead(_, data) => data.fill(0),
                VcpuExit::MmioWrite(DONE, _) => return,
                exit => panic!("the guest stopped: {exit:?}"),
            }
        }
    }

    /// Takes the function's message out of the local APIC, if one is pending there.
    pub fn take_message(&mut self) -> bool {
        /// Interrupt request register: 32 vectors in each 16 bytes.
        const IRR: usize = 0x200;
        let mut apic = self.processor.fd().get_lapic().unwrap();
        let (word, bit) = (IRR + usize::from(VECTOR / 32) * 16 + usize::from(VECTOR % 32 / 8), VECTOR % 8);
        let byte = apic.regs[word].cast_unsigned();
        let pending = byte >> bit & 1 != 0;
        if pending {
            apic.regs[word] = (byte & !(1 << bit)).cast_signed();
            self.processor.fd().set_lapic(&apic).unwrap();
        }
        pending
    }
}

/// Identity for 4 GiB, in pages of 2 MiB that privilege level 3 may use.
fn write_page_tables(mut write: impl FnMut(u64, u64)) {
    const PRESENT_WRITABLE_USER: u64 = 0x7;
    const LARGE: u64 = 1 << 7;
    let (top, pointers, directories) = (PAGE_TABLES, PAGE_TABLES + 0x1000, PAGE_TABLES + 0x2000);
    write(top, pointers | PRESENT_WRITABLE_USER);
    for table in 0..4 {
        write(pointers + 8 * table, (directories + 0x1000 * table) | PRESENT_WRITABLE_USER);
    }
    for page in 0..4 * 512 {
        write(directories + 8 * page, page << 21 | LARGE | PRESENT_WRITABLE_USER);
    }
}

/// Long mode at privilege level 3, at the interpreter's first instruction.
fn set_up(machine: &Machine, processor: &mut Processor) {
    let cpuid = machine.kvm().get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).unwrap();
    let fd = processor.fd();
    fd.set_cpuid2(&cpuid).unwrap();
    let mut special = fd.get_sregs().unwrap();
    let segment = |selector, type_, l| kvm_segment {
        base: 0,
        limit: u32::MAX,
        selector,
        type_,
        present: 1,
        dpl: 3,
        db: 1 - l,
        s: 1,
        l,
        g: 1,
        ..Default::default()
    };
    special.cs = segment(0x33, 11, 1);
    let data = segment(0x2b, 3, 0);
    (special.ds, special.es, special.fs, special.gs, special.ss) = (data, data, data, data, data);
    special.cr3 = PAGE_TABLES;
    special.cr4 = 1 << 5;
    special.cr0 = 0x8005_0033;
    special.efer = 0xd00;
    // No interrupt is delivered: what comes stays pending.
    special.cr8 = 15;
    fd.set_sregs(&special).unwrap();
    let mut registers = fd.get_regs().unwrap();
    registers.rip = CODE;
    registers.rflags = 2;
    (registers.r13, registers.r14, registers.r15) = (SCRIPT, RESULTS, DONE);
    fd.set_regs(&registers).unwrap();
    // The local APIC is enabled by its spurious-interrupt register.
    const SPURIOUS: usize = 0xf0;
    let mut apic = fd.get_lapic().unwrap();
    apic.regs[SPURIOUS] = 0xff_u8.cast_signed();
    apic.regs[SPURIOUS + 1] = 1;
    fd.set_lapic(&apic).unwrap();
}
