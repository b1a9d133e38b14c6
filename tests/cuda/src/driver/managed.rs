//! Memory that is wherever it is used.
#![allow(unsafe_code, reason = "libcuda's functions are unsafe to call")]

use std::rc::Rc;

use anyhow::{Result, ensure};

use super::{Address, Context, Device};

/// `CU_MEM_ATTACH_GLOBAL`.
const GLOBAL: u32 = 1;
/// `CU_DEVICE_CPU`.
const PROCESSOR: Device = -1;

/// Memory with one address for the device and for this process.
#[derive(Debug)]
pub struct ManagedMemory {
    context: Rc<Context>,
    address: Address,
    size: usize,
}

impl ManagedMemory {
    /// So many bytes, all zero.
    pub fn allocate(context: &Rc<Context>, size: usize) -> Result<Self> {
        let mut address = 0;
        // SAFETY: the place for the answer is borrowed over the call.
        let status = unsafe { (context.driver.functions.mem_alloc_managed)(&raw mut address, size, GLOBAL) };
        context.driver.check("cuMemAllocManaged", status)?;
        let mut memory = Self { context: Rc::clone(context), address, size };
        memory.bytes().fill(0);
        Ok(memory)
    }

    /// Where it lies, for the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the address is an allocation's with that many bytes, which are zero at first; the device
        // uses none of them while checks look at them, after they have waited for it.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.size) }
    }

    /// Its bytes, which come here. The device must not use them meanwhile.
    pub fn read(&mut self) -> Vec<u8> {
        self.bytes().to_vec()
    }

    /// Puts bytes there. The device must not use them meanwhile.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        ensure!(bytes.len() <= self.size, "{} bytes are more than {}", bytes.len(), self.size);
        self.bytes().iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Ok(())
    }

    /// Has all of it brought to the device.
    pub fn to_device(&self) -> Result<()> {
        self.bring_to(self.context.device)
    }

    /// Has all of it brought to this process.
    pub fn to_processor(&self) -> Result<()> {
        self.bring_to(PROCESSOR)
    }

    fn bring_to(&self, device: Device) -> Result<()> {
        let functions = &self.context.driver.functions;
        // SAFETY: it is an allocation with that many bytes; null is the usual stream.
        let status =
            unsafe { (functions.mem_prefetch)(self.address, self.size, device, std::ptr::null_mut()) };
        self.context.driver.check("cuMemPrefetchAsync", status)
    }
}

impl Drop for ManagedMemory {
    fn drop(&mut self) {
        // SAFETY: the address is an allocation's, and is not used afterwards.
        let _ = unsafe { (self.context.driver.functions.mem_free)(self.address) };
    }
}
