//! A processor: runs the guest, and carries out the accesses for which KVM stops it.

use super::KvmError;
use super::bus::Buses;
use kvm_ioctls::{VcpuExit, VcpuFd};
use std::sync::Arc;

/// Why a processor came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It halted, and nothing can wake it (there are no interrupt controllers).
    Halted,
    /// A triple fault, or the guest asked for it.
    Shutdown,
    /// A system event such as a reset, by its number (`KVM_SYSTEM_EVENT_*`).
    Event(u32),
    /// A signal came for the thread.
    Interrupted,
    /// KVM reports an error.
    Failed(String),
}

/// One processor. Belongs to the thread that runs it.
#[derive(Debug)]
pub struct Processor {
    fd: VcpuFd,
    buses: Arc<Buses>,
    accesses: u64,
}

impl Processor {
    pub(super) fn new(fd: VcpuFd, buses: Arc<Buses>) -> Self {
        Self { fd, buses, accesses: 0 }
    }

    /// KVM's descriptor of the processor, for its registers.
    pub fn fd(&mut self) -> &mut VcpuFd {
        &mut self.fd
    }

    /// Accesses that this processor was stopped for.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Runs until an exit that is no access, or until `done` returns true for the address of a write to
    /// memory.
    ///
    /// # Errors
    /// KVM refuses to run it.
    pub fn run_until(&mut self, mut done: impl FnMut(u64) -> bool) -> Result<Option<Exit>, KvmError> {
        loop {
            let exit = match self.fd.run() {
                Ok(exit) => exit,
                Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => {
                    return Ok(Some(Exit::Interrupted));
                }
                Err(error) => return Err(KvmError::call("Running a processor")(error)),
            };
            match exit {
                VcpuExit::MmioRead(address, data) => self.buses.read_memory(address, data),
                VcpuExit::MmioWrite(address, data) => {
                    self.buses.write_memory(address, data);
                    if done(address) {
                        self.accesses += 1;
                        return Ok(None);
                    }
                }
                VcpuExit::IoIn(port, data) => self.buses.read_ports(port, data),
                VcpuExit::IoOut(port, data) => self.buses.write_ports(port, data),
                VcpuExit::Hlt => return Ok(Some(Exit::Halted)),
                VcpuExit::Shutdown => return Ok(Some(Exit::Shutdown)),
                VcpuExit::SystemEvent(kind, _) => return Ok(Some(Exit::Event(kind))),
                VcpuExit::Intr => return Ok(Some(Exit::Interrupted)),
                other => return Ok(Some(Exit::Failed(format!("{other:?}")))),
            }
            self.accesses += 1;
        }
    }

    /// Runs until something comes that is no access.
    ///
    /// # Errors
    /// KVM refuses to run it.
    pub fn run(&mut self) -> Result<Exit, KvmError> {
        Ok(self.run_until(|_| false)?.unwrap_or(Exit::Interrupted))
    }
}
