//! Memory of the device, and pages of ours that it reaches.
#![allow(unsafe_code, reason = "libcuda's functions are unsafe to call")]

use std::ffi::c_void;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;

use anyhow::{Result, ensure};

use super::{Address, Context, Stream};

/// Memory of the device.
#[derive(Debug)]
pub struct DeviceMemory {
    context: Rc<Context>,
    address: Address,
    size: usize,
}

/// Memory of this process that the device reaches by itself.
#[derive(Debug)]
pub struct PinnedMemory {
    context: Rc<Context>,
    start: *mut c_void,
    size: usize,
}

impl DeviceMemory {
    /// So many bytes, which hold anything.
    pub fn allocate(context: &Rc<Context>, size: usize) -> Result<Self> {
        let mut address = 0;
        // SAFETY: the place for the answer is borrowed over the call.
        let status = unsafe { (context.driver.functions.mem_alloc)(&raw mut address, size) };
        context.driver.check("cuMemAlloc", status)?;
        Ok(Self { context: Rc::clone(context), address, size })
    }

    /// Where it lies, for the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes it has.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Copies bytes there, from its start on.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        ensure!(bytes.len() <= self.size, "{} bytes are more than {}", bytes.len(), self.size);
        let functions = &self.context.driver.functions;
        // SAFETY: as many bytes are read as there are, and as many written as the memory has room for.
        let status =
            unsafe { (functions.memcpy_to_device)(self.address, bytes.as_ptr().cast(), bytes.len()) };
        self.context.driver.check("cuMemcpyHtoD", status)
    }

    /// All of it.
    pub fn read(&self) -> Result<Vec<u8>> {
        self.read_part(0, self.size)
    }

    /// So many bytes of it.
    pub fn read_part(&self, at: usize, count: usize) -> Result<Vec<u8>> {
        let end = at.checked_add(count);
        ensure!(end.is_some_and(|end| end <= self.size), "{count} bytes at {at} are not in {}", self.size);
        let mut bytes = vec![0; count];
        let functions = &self.context.driver.functions;
        let address = self.address.saturating_add(u64::try_from(at)?);
        // SAFETY: as many bytes are written as there is room for, and read as there are behind that place.
        let status = unsafe { (functions.memcpy_to_host)(bytes.as_mut_ptr().cast(), address, count) };
        self.context.driver.check("cuMemcpyDtoH", status)?;
        Ok(bytes)
    }

    /// Copies all of another's bytes there.
    pub fn copy_from(&self, other: &Self) -> Result<()> {
        ensure!(other.size <= self.size, "{} bytes are more than {}", other.size, self.size);
        let functions = &self.context.driver.functions;
        // SAFETY: both lie in memory of the device, and are as large as is said.
        let status = unsafe { (functions.memcpy_on_device)(self.address, other.address, other.size) };
        self.context.driver.check("cuMemcpyDtoD", status)
    }

    /// Fills it with a word.
    pub fn fill_words(&self, word: u32) -> Result<()> {
        let functions = &self.context.driver.functions;
        // SAFETY: as many words are written as the memory has room for.
        let status = unsafe { (functions.memset_words)(self.address, word, self.size / 4) };
        self.context.driver.check("cuMemsetD32", status)
    }

    /// Fills the first bytes with one.
    pub fn fill_bytes(&self, byte: u8, count: usize) -> Result<()> {
        ensure!(count <= self.size, "{count} bytes are more than {}", self.size);
        let functions = &self.context.driver.functions;
        // SAFETY: as many bytes are written as the memory has room for.
        let status = unsafe { (functions.memset_bytes)(self.address, byte, count) };
        self.context.driver.check("cuMemsetD8", status)
    }

    /// Has pinned memory of the same size copied there, some time.
    pub fn write_later(&self, from: &PinnedMemory, stream: &Stream) -> Result<()> {
        ensure!(from.size == self.size, "{} bytes are not {}", from.size, self.size);
        let functions = &self.context.driver.functions;
        // SAFETY: both are as large as is said, and outlive the stream's work, for which the caller waits.
        let status = unsafe {
            (functions.memcpy_to_device_async)(self.address, from.start, self.size, stream.handle())
        };
        self.context.driver.check("cuMemcpyHtoDAsync", status)
    }

    /// Has it copied to pinned memory of the same size, some time.
    pub fn read_later(&self, to: &PinnedMemory, stream: &Stream) -> Result<()> {
        ensure!(to.size == self.size, "{} bytes are not {}", to.size, self.size);
        let functions = &self.context.driver.functions;
        // SAFETY: both are as large as is said, and outlive the stream's work, for which the caller waits.
        let status =
            unsafe { (functions.memcpy_to_host_async)(to.start, self.address, self.size, stream.handle()) };
        self.context.driver.check("cuMemcpyDtoHAsync", status)
    }

    /// Has all of another's bytes copied there, some time.
    pub fn copy_later(&self, other: &Self, stream: &Stream) -> Result<()> {
        ensure!(other.size <= self.size, "{} bytes are more than {}", other.size, self.size);
        let functions = &self.context.driver.functions;
        let (to, from, size) = (self.address, other.address, other.size);
        // SAFETY: both are as large as is said, and outlive the stream's work, for which the caller waits.
        let status = unsafe { (functions.memcpy_on_device_async)(to, from, size, stream.handle()) };
        self.context.driver.check("cuMemcpyDtoDAsync", status)
    }

    /// Gives it back, and says whether that went well.
    pub fn free(self) -> Result<()> {
        let memory = std::mem::ManuallyDrop::new(self);
        // SAFETY: what is taken out is not dropped by `memory`, and not used by it afterwards.
        let context = unsafe { std::ptr::read(&raw const memory.context) };
        // SAFETY: the address is an allocation's, and is not used afterwards.
        let status = unsafe { (context.driver.functions.mem_free)(memory.address) };
        context.driver.check("cuMemFree", status)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: the address is an allocation's, and is not used afterwards.
        let _ = unsafe { (self.context.driver.functions.mem_free)(self.address) };
    }
}

impl PinnedMemory {
    /// So many bytes, all zero.
    pub fn allocate(context: &Rc<Context>, size: usize) -> Result<Self> {
        let mut start = std::ptr::null_mut();
        // SAFETY: the place for the answer is borrowed over the call.
        let status = unsafe { (context.driver.functions.mem_alloc_host)(&raw mut start, size) };
        context.driver.check("cuMemAllocHost", status)?;
        // SAFETY: the allocation has that many bytes, and nobody else uses them yet.
        unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, size) };
        Ok(Self { context: Rc::clone(context), start, size })
    }

    /// Where it lies, for the device as for this process.
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    /// How many bytes it has.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Its first word, which the device may write meanwhile.
    pub fn first(&self) -> &AtomicU32 {
        assert!(self.size >= 4, "no word");
        // SAFETY: the allocation begins a page, has a word, and lives as long as is borrowed; both sides use
        // it as a whole.
        unsafe { AtomicU32::from_ptr(self.start.cast()) }
    }

    /// Its bytes. The device must not use them meanwhile.
    pub fn read(&self) -> Vec<u8> {
        // SAFETY: the allocation has that many bytes, which were initialised; the device writes none of them
        // while checks look at them, after they have waited for it.
        unsafe { std::slice::from_raw_parts(self.start.cast::<u8>(), self.size) }.to_vec()
    }

    /// Puts bytes there. The device must not use them meanwhile.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        ensure!(bytes.len() <= self.size, "{} bytes are more than {}", bytes.len(), self.size);
        // SAFETY: the allocation has room for that many bytes, and is no part of `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.cast::<u8>(), bytes.len()) };
        Ok(())
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: the start is an allocation's, and is not used afterwards.
        let _ = unsafe { (self.context.driver.functions.mem_free_host)(self.start) };
    }
}
