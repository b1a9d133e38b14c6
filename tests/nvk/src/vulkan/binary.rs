//! What the driver makes of a shader, as a pipeline cache keeps it.
#![allow(unsafe_code, reason = "Vulkan's functions are unsafe to call")]

use std::rc::Rc;

use anyhow::{Context, Result};
use ash::vk;

use super::{Buffer, Device, Kernel};

/// A pipeline cache for one pipeline.
pub(super) struct Cache {
    device: Rc<Device>,
    pub(super) raw: vk::PipelineCache,
}

impl Cache {
    fn new(device: &Rc<Device>) -> Result<Self> {
        let info = vk::PipelineCacheCreateInfo::default();
        // SAFETY: the structure lives through the call.
        let raw =
            unsafe { device.raw.create_pipeline_cache(&info, None) }.context("vkCreatePipelineCache")?;
        Ok(Self { device: Rc::clone(device), raw })
    }

    fn data(&self) -> Result<Vec<u8>> {
        // SAFETY: the cache is of this device.
        unsafe { self.device.raw.get_pipeline_cache_data(self.raw) }.context("vkGetPipelineCacheData")
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // SAFETY: pipelines do not need the cache that they were made with.
        unsafe { self.device.raw.destroy_pipeline_cache(self.raw, None) };
    }
}

/// What the driver keeps of the pipeline for the shader `spirv`, in a form of its own. Nothing is launched.
pub fn kept(device: &Rc<Device>, spirv: &[u8], buffers: &[&Buffer], constants: &[u8]) -> Result<Vec<u8>> {
    let cache = Cache::new(device)?;
    Kernel::kept_in(&cache, device, spirv, buffers, constants)?;
    cache.data()
}
