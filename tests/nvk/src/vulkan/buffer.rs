//! Storage buffers, in the GPU's memory or in the host's.
#![allow(unsafe_code, reason = "Vulkan's functions are unsafe to call, and mapped memory is a raw pointer")]

use std::ptr;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use ash::vk;

use super::Device;

/// Where a buffer's memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The GPU's own memory; commands alone reach it.
    Gpu,
    /// The guest's memory; the processor reads and writes it.
    Host,
}

/// A buffer of 32-bit words.
pub struct Buffer {
    device: Rc<Device>,
    pub(super) raw: vk::Buffer,
    memory: vk::DeviceMemory,
    words: usize,
    mapped: *mut u32,
}

impl Buffer {
    /// A buffer of `words` words, whatever is in them.
    pub fn new(device: &Rc<Device>, place: Place, words: usize) -> Result<Self> {
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::INDIRECT_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let bytes = words as u64 * 4;
        let info = vk::BufferCreateInfo::default().size(bytes).usage(usage);
        // SAFETY: the structure lives through the call.
        let raw = unsafe { device.raw.create_buffer(&info, None) }.context("vkCreateBuffer")?;
        let mut buffer = Self {
            device: Rc::clone(device),
            raw,
            memory: vk::DeviceMemory::null(),
            words,
            mapped: ptr::null_mut(),
        };
        buffer.allocate(place)?;
        Ok(buffer)
    }

    /// A buffer in the host's memory that holds `words`.
    pub fn of(device: &Rc<Device>, words: &[u32]) -> Result<Self> {
        let mut buffer = Self::new(device, Place::Host, words.len())?;
        buffer.write(words)?;
        Ok(buffer)
    }

    /// How many words it holds.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.words as u64 * 4
    }

    /// Puts `words` into it. It must be in the host's memory.
    pub fn write(&mut self, words: &[u32]) -> Result<()> {
        ensure!(!self.mapped.is_null() && words.len() == self.words, "The buffer cannot take these words");
        // SAFETY: the mapping has `self.words` words and no reference into it exists; submissions were waited
        // for.
        unsafe { ptr::copy_nonoverlapping(words.as_ptr(), self.mapped, words.len()) };
        Ok(())
    }

    /// What is in it. It must be in the host's memory.
    pub fn read(&self) -> Result<Vec<u32>> {
        ensure!(!self.mapped.is_null(), "The buffer is not in the host's memory");
        let mut words = vec![0; self.words];
        // SAFETY: the mapping has `self.words` words; submissions were waited for, so nobody writes it.
        unsafe { ptr::copy_nonoverlapping(self.mapped, words.as_mut_ptr(), self.words) };
        Ok(words)
    }

    fn allocate(&mut self, place: Place) -> Result<()> {
        let device = &self.device;
        // SAFETY: the buffer is of this device.
        let needs = unsafe { device.raw.get_buffer_memory_requirements(self.raw) };
        let (wanted, better) = match place {
            Place::Gpu => (vk::MemoryPropertyFlags::DEVICE_LOCAL, vk::MemoryPropertyFlags::empty()),
            Place::Host => (
                vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT,
                vk::MemoryPropertyFlags::HOST_CACHED,
            ),
        };
        let kind = device
            .memory_type(needs.memory_type_bits, wanted, better)
            .with_context(|| format!("The device has no memory type for {place:?}"))?;
        let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(kind);
        // SAFETY: the structure lives through the call.
        self.memory = unsafe { device.raw.allocate_memory(&info, None) }
            .with_context(|| format!("vkAllocateMemory of {} bytes", needs.size))?;
        // SAFETY: buffer and memory are fresh, and the memory has the size and the type that the buffer
        // needs.
        unsafe { device.raw.bind_buffer_memory(self.raw, self.memory, 0) }.context("vkBindBufferMemory")?;
        if place == Place::Host {
            let flags = vk::MemoryMapFlags::empty();
            // SAFETY: the memory is host-visible and not mapped yet.
            let address = unsafe { device.raw.map_memory(self.memory, 0, vk::WHOLE_SIZE, flags) }
                .context("vkMapMemory")?;
            self.mapped = address.cast();
        }
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: every submission that used the buffer was waited for.
        unsafe { self.device.raw.destroy_buffer(self.raw, None) };
        // SAFETY: the memory (null if none was allocated) belonged to this buffer alone; freeing unmaps it.
        unsafe { self.device.raw.free_memory(self.memory, None) };
    }
}
