//! Processors as the boot protocol wants them, and the threads that run them.

use std::thread::JoinHandle;
use std::time::Duration;

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES, Msrs, kvm_fpu, kvm_msr_entry, kvm_segment};
use kvm_ioctls::Cap;
use vmm_sys_util::signal::{Killable, SIGRTMIN, register_signal_handler, unblock_signal};

use super::boot::GDT;
use super::error::VmmError;
use super::layout::{DESCRIPTORS, PAGE_TABLES, ZERO_PAGE};
use super::power::{ExitReason, StopVmm};
use gpuvmk_frontend::kvm::{Exit, KvmError, Machine, Processor};
use gpuvmk_jail::{self as jail, Role};

/// The signal that brings processors back: the first one that is for programs to use.
fn kick() -> i32 {
    SIGRTMIN()
}

/// How long a kicked processor may take before it is kicked again: a kick that comes just before the guest is
/// entered is lost.
const AGAIN: Duration = Duration::from_millis(5);

/// CPUID leaves that differ from processor to processor.
const FEATURES: u32 = 1;
const TOPOLOGY: [u32; 2] = [0xb, 0x1f];
/// [`FEATURES`], `ecx`: the local APIC's timer can be set by the time stamp counter.
const TSC_DEADLINE: u32 = 1 << 24;
/// [`FEATURES`], `ecx`: there is a hypervisor.
const HYPERVISOR: u32 = 1 << 31;
/// `IA32_MISC_ENABLE`, and in it fast string operations.
const MISC_ENABLE: u32 = 0x1a0;
const FAST_STRINGS: u64 = 1;

/// Local APIC: LINT0, LINT1, and how they deliver.
const LINT0: usize = 0x350;
const LINT1: usize = 0x360;
const EXTERNAL: u32 = 0x700;
const NMI: u32 = 0x400;

/// Makes processor `id` of `count`. The first one enters the kernel at `entry`; the others wait for it to
/// start them.
pub(super) fn make(machine: &Machine, id: u8, count: u8, entry: u64) -> Result<Processor, VmmError> {
    let mut processor = machine.processor(id.into())?;
    set_features(machine, &mut processor, id, count)?;
    set_local_apic(&mut processor)?;
    if id == 0 {
        set_registers(&mut processor, entry)?;
    }
    Ok(processor)
}

fn call(step: &'static str) -> impl Fn(kvm_ioctls::Error) -> VmmError {
    move |error| VmmError::Kvm(KvmError::call(step)(error))
}

fn set_features(machine: &Machine, processor: &mut Processor, id: u8, count: u8) -> Result<(), VmmError> {
    let supported = machine.kvm().get_supported_cpuid(KVM_MAX_CPUID_ENTRIES);
    let mut features: CpuId = supported.map_err(call("Asking for the processor's features"))?;
    let deadline = machine.kvm().check_extension(Cap::TscDeadlineTimer);
    for entry in features.as_mut_slice() {
        match entry.function {
            FEATURES => {
                // APIC id, and how many there are.
                entry.ebx = entry.ebx & 0xffff | u32::from(id) << 24 | u32::from(count) << 16;
                entry.ecx |= HYPERVISOR | if deadline { TSC_DEADLINE } else { 0 };
            }
            leaf if TOPOLOGY.contains(&leaf) => entry.edx = id.into(),
            _ => {}
        }
    }
    processor.fd().set_cpuid2(&features).map_err(call("Setting the processor's features"))
}

fn set_local_apic(processor: &mut Processor) -> Result<(), VmmError> {
    let mut apic = processor.fd().get_lapic().map_err(call("Reading a local APIC"))?;
    for (at, mode) in [(LINT0, EXTERNAL), (LINT1, NMI)] {
        for (place, byte) in apic.regs.iter_mut().skip(at).zip(mode.to_le_bytes()) {
            *place = i8::from_ne_bytes([byte]);
        }
    }
    processor.fd().set_lapic(&apic).map_err(call("Setting a local APIC"))
}

/// 64-bit mode as the boot protocol wants it.
fn set_registers(processor: &mut Processor, entry: u64) -> Result<(), VmmError> {
    let fd = processor.fd();
    let misc = kvm_msr_entry { index: MISC_ENABLE, data: FAST_STRINGS, ..Default::default() };
    let msrs =
        Msrs::from_entries(&[misc]).map_err(|_| VmmError::Kvm(KvmError::Missing("room for an MSR")))?;
    // A processor without it does without.
    let _ = fd.set_msrs(&msrs).map_err(call("Setting MSRs"))?;
    let fpu = kvm_fpu { fcw: 0x37f, mxcsr: 0x1f80, ..Default::default() };
    fd.set_fpu(&fpu).map_err(call("Setting the floating-point unit"))?;
    let mut special = fd.get_sregs().map_err(call("Reading registers"))?;
    let segment = |selector: u16, type_, l| kvm_segment {
        base: 0,
        limit: 0xf_ffff,
        selector,
        type_,
        present: 1,
        dpl: 0,
        db: u8::from(l == 0),
        s: u8::from(type_ != TASK),
        l,
        g: 1,
        ..Default::default()
    };
    /// A busy task of 64 bits.
    const TASK: u8 = 0xb;
    special.cs = kvm_segment { s: 1, ..segment(0x10, 0xb, 1) };
    let data = segment(0x18, 3, 0);
    (special.ds, special.es, special.fs, special.gs, special.ss) = (data, data, data, data, data);
    special.tr = kvm_segment { db: 0, ..segment(0x20, TASK, 0) };
    special.gdt.base = DESCRIPTORS;
    special.gdt.limit = u16::try_from(size_of_val(&GDT) - 1).unwrap_or(u16::MAX);
    special.idt.limit = 0;
    special.cr3 = PAGE_TABLES;
    special.cr4 |= 1 << 5;
    special.cr0 |= 1 << 31 | 1;
    special.efer |= 1 << 10 | 1 << 8;
    fd.set_sregs(&special).map_err(call("Setting registers"))?;
    let mut registers = fd.get_regs().map_err(call("Reading registers"))?;
    registers.rflags = 2;
    registers.rip = entry;
    registers.rsi = ZERO_PAGE;
    registers.rsp = ZERO_PAGE + 0xff0;
    fd.set_regs(&registers).map_err(call("Setting registers"))
}

/// Has the signal that brings processors back do nothing else.
pub(super) fn catch_kicks() -> Result<(), VmmError> {
    extern "C" fn come_back(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
    register_signal_handler(kick(), come_back).map_err(|error| {
        VmmError::System("Catching a signal", std::io::Error::from_raw_os_error(error.errno()))
    })
}

/// The threads of all processors.
pub(super) struct Running(Vec<JoinHandle<u64>>);

impl Running {
    /// Runs processors until the machine ends through `stop`.
    pub(super) fn start(processors: Vec<Processor>, stop: &StopVmm) -> Result<Self, VmmError> {
        let mut running = Self(Vec::new());
        for (id, mut processor) in processors.into_iter().enumerate() {
            let own = stop.clone();
            let thread = std::thread::Builder::new()
                .name(format!("processor {id}"))
                .spawn(move || {
                    jail::enter(Role::Processor);
                    // The jail leaves signals to the main thread, but this one is for here.
                    if let Err(error) = unblock_signal(kick()) {
                        log::error!("A processor cannot be brought back by a signal: {error}");
                    }
                    run(&mut processor, &own)
                })
                .inspect_err(|_| {
                    // Those that run already come back.
                    stop.end(ExitReason::Stopped);
                })
                .map_err(|source| VmmError::System("Starting a thread", source))?;
            running.0.push(thread);
        }
        Ok(running)
    }

    /// Waits for all processors. The caller has ended the machine before. Returns the number of their exits.
    pub(super) fn end(mut self) -> u64 {
        self.join()
    }

    fn join(&mut self) -> u64 {
        let mut exits = 0u64;
        for thread in self.0.drain(..) {
            while !thread.is_finished() {
                // A thread that has ended meanwhile takes no signal.
                let _ = thread.kill(kick());
                std::thread::sleep(AGAIN);
            }
            match thread.join() {
                Ok(own) => exits = exits.saturating_add(own),
                Err(_) => log::error!("A processor's thread ended by a panic"),
            }
        }
        exits
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.join();
    }
}

/// Runs a processor until the machine ends; how often it was stopped.
fn run(processor: &mut Processor, stop: &StopVmm) -> u64 {
    while !stop.has_ended() {
        match processor.run() {
            Ok(Exit::Interrupted) => {}
            Ok(Exit::Shutdown) => stop.end(ExitReason::Failed("a processor met a triple fault".to_owned())),
            Ok(Exit::Event(_)) => stop.end(ExitReason::Reset),
            Ok(other) => stop.end(ExitReason::Failed(format!("a processor stopped: {other:?}"))),
            Err(error) => stop.end(ExitReason::Failed(format!("{:#}", anyhow::Error::new(error)))),
        }
    }
    if let Ok(registers) = processor.fd().get_regs() {
        log::debug!("A processor ends at {:#x}, with flags {:#x}", registers.rip, registers.rflags);
    }
    processor.accesses()
}

/// Makes all processors, by their numbers.
pub(super) fn make_all(machine: &Machine, count: u8, entry: u64) -> Result<Vec<Processor>, VmmError> {
    (0..count).map(|id| make(machine, id, count, entry)).collect()
}
