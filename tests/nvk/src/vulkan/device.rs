//! A logical device with one queue for compute and transfers.
#![allow(unsafe_code, reason = "Vulkan's functions are unsafe to call")]

use std::rc::Rc;

use anyhow::{Context, Result};
use ash::vk;

use super::{Gpu, Instance};

/// A device; its resources hold a reference to it.
pub struct Device {
    pub(super) raw: ash::Device,
    pub(super) queue: vk::Queue,
    pub(super) family: u32,
    pub(super) memory: vk::PhysicalDeviceMemoryProperties,
    pub(super) timestamp_ns: f64,
    /// Whether shaders may use double precision.
    pub doubles: bool,
    // After `raw`: the instance must outlive the device.
    _instance: Rc<Instance>,
}

impl Device {
    /// Opens `gpu`.
    pub fn open(instance: &Rc<Instance>, gpu: &Gpu) -> Result<Rc<Self>> {
        // SAFETY: the handle is of this instance.
        let families = unsafe { instance.raw.get_physical_device_queue_family_properties(gpu.handle) };
        let family = families
            .iter()
            .position(|family| family.queue_flags.contains(vk::QueueFlags::COMPUTE))
            .context("The device has no queue for compute")?;
        let family = u32::try_from(family)?;
        // SAFETY: the handle is of this instance.
        let offered = unsafe { instance.raw.get_physical_device_features(gpu.handle) };
        let features = vk::PhysicalDeviceFeatures::default().shader_float64(offered.shader_float64 != 0);
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_features(&features);
        // SAFETY: the structures live through the call; the device is destroyed before the instance.
        let raw = unsafe { instance.raw.create_device(gpu.handle, &info, None) }.context("vkCreateDevice")?;
        // SAFETY: the queue was asked for just above.
        let queue = unsafe { raw.get_device_queue(family, 0) };
        // SAFETY: the handle is of this instance.
        let memory = unsafe { instance.raw.get_physical_device_memory_properties(gpu.handle) };
        Ok(Rc::new(Self {
            raw,
            queue,
            family,
            memory,
            timestamp_ns: f64::from(gpu.timestamp_ns),
            doubles: features.shader_float64 != 0,
            _instance: Rc::clone(instance),
        }))
    }

    /// The memory type that has `wanted`, and `better` as well if one has; among `allowed`.
    pub(super) fn memory_type(
        &self,
        allowed: u32,
        wanted: vk::MemoryPropertyFlags,
        better: vk::MemoryPropertyFlags,
    ) -> Option<u32> {
        let having = |flags: vk::MemoryPropertyFlags| {
            let types = self.memory.memory_types_as_slice();
            let found = (0u32..)
                .zip(types)
                .find(|(index, kind)| allowed >> index & 1 != 0 && kind.property_flags.contains(flags));
            found.map(|(index, _)| index)
        };
        having(wanted | better).or_else(|| having(wanted))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: every submission was waited for, and resources hold a reference to the device, so none is
        // left.
        unsafe { self.raw.destroy_device(None) };
    }
}
