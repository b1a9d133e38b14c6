//! A compute shader with the buffers it works on.
#![allow(unsafe_code, reason = "Vulkan's functions are unsafe to call")]

use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use ash::vk;

use super::binary::Cache;
use super::{Buffer, Device};

/// A compute pipeline, its one set of storage buffers, and its push constants.
pub struct Kernel {
    device: Rc<Device>,
    module: vk::ShaderModule,
    set_layout: vk::DescriptorSetLayout,
    pool: vk::DescriptorPool,
    pub(super) layout: vk::PipelineLayout,
    pub(super) pipeline: vk::Pipeline,
    pub(super) set: vk::DescriptorSet,
    pub(super) constants: Vec<u8>,
}

impl Kernel {
    /// The shader `spirv` with `buffers` at bindings 0, 1 and so on, and `constants` as its push constants.
    pub fn new(device: &Rc<Device>, spirv: &[u8], buffers: &[&Buffer], constants: &[u8]) -> Result<Self> {
        Self::made(vk::PipelineCache::null(), device, spirv, buffers, constants)
    }

    /// The same, kept in `cache` as well.
    pub(super) fn kept_in(
        cache: &Cache,
        device: &Rc<Device>,
        spirv: &[u8],
        buffers: &[&Buffer],
        constants: &[u8],
    ) -> Result<Self> {
        Self::made(cache.raw, device, spirv, buffers, constants)
    }

    fn made(
        cache: vk::PipelineCache,
        device: &Rc<Device>,
        spirv: &[u8],
        buffers: &[&Buffer],
        constants: &[u8],
    ) -> Result<Self> {
        let mut kernel = Self {
            device: Rc::clone(device),
            module: vk::ShaderModule::null(),
            set_layout: vk::DescriptorSetLayout::null(),
            pool: vk::DescriptorPool::null(),
            layout: vk::PipelineLayout::null(),
            pipeline: vk::Pipeline::null(),
            set: vk::DescriptorSet::null(),
            constants: constants.to_vec(),
        };
        kernel.make_layouts(buffers.len())?;
        kernel.make_pipeline(spirv, cache)?;
        kernel.bind(buffers)?;
        Ok(kernel)
    }

    fn make_layouts(&mut self, buffers: usize) -> Result<()> {
        let device = &self.device.raw;
        let bindings: Vec<_> = (0..u32::try_from(buffers)?)
            .map(|binding| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: the structures live through the call.
        self.set_layout = unsafe { device.create_descriptor_set_layout(&info, None) }
            .context("vkCreateDescriptorSetLayout")?;
        let layouts = [self.set_layout];
        let ranges = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(u32::try_from(self.constants.len())?)];
        let ranges = if self.constants.is_empty() { &[][..] } else { &ranges[..] };
        let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts).push_constant_ranges(ranges);
        // SAFETY: the structures live through the call.
        self.layout =
            unsafe { device.create_pipeline_layout(&info, None) }.context("vkCreatePipelineLayout")?;
        Ok(())
    }

    fn make_pipeline(&mut self, spirv: &[u8], cache: vk::PipelineCache) -> Result<()> {
        ensure!(spirv.len().is_multiple_of(4), "SPIR-V is whole words");
        let words: Vec<u32> =
            spirv.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let device = &self.device.raw;
        let info = vk::ShaderModuleCreateInfo::default().code(&words);
        // SAFETY: the words are SPIR-V that glslang made.
        self.module = unsafe { device.create_shader_module(&info, None) }.context("vkCreateShaderModule")?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(self.module)
            .name(c"main");
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.layout)];
        // SAFETY: module, layout and cache (which may be null) are of this device, and module and layout
        // agree: both were made for the same shader.
        let made = unsafe { device.create_compute_pipelines(cache, &info, None) };
        let pipelines = made.map_err(|(_, error)| error).context("vkCreateComputePipelines")?;
        self.pipeline = pipelines.first().copied().context("vkCreateComputePipelines made none")?;
        Ok(())
    }

    fn bind(&mut self, buffers: &[&Buffer]) -> Result<()> {
        let device = &self.device.raw;
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(u32::try_from(buffers.len())?)];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&sizes);
        // SAFETY: the structures live through the call.
        self.pool =
            unsafe { device.create_descriptor_pool(&info, None) }.context("vkCreateDescriptorPool")?;
        let layouts = [self.set_layout];
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.pool).set_layouts(&layouts);
        // SAFETY: pool and layout are of this device; the pool has room for the one set.
        let sets = unsafe { device.allocate_descriptor_sets(&info) }.context("vkAllocateDescriptorSets")?;
        self.set = sets.first().copied().context("vkAllocateDescriptorSets made none")?;
        let infos: Vec<_> = buffers
            .iter()
            .map(|buffer| [vk::DescriptorBufferInfo::default().buffer(buffer.raw).range(vk::WHOLE_SIZE)])
            .collect();
        let writes: Vec<_> = (0..)
            .zip(&infos)
            .map(|(binding, info)| {
                vk::WriteDescriptorSet::default()
                    .dst_set(self.set)
                    .dst_binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(info)
            })
            .collect();
        // SAFETY: the set is not in use; buffers are of this device and fit its bindings.
        unsafe { device.update_descriptor_sets(&writes, &[]) };
        Ok(())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let device = &self.device.raw;
        // SAFETY: every submission that used it was waited for; null handles are ignored, here and below.
        unsafe { device.destroy_pipeline(self.pipeline, None) };
        // SAFETY: as above; the set goes with its pool.
        unsafe { device.destroy_descriptor_pool(self.pool, None) };
        // SAFETY: as above.
        unsafe { device.destroy_pipeline_layout(self.layout, None) };
        // SAFETY: as above.
        unsafe { device.destroy_descriptor_set_layout(self.set_layout, None) };
        // SAFETY: as above.
        unsafe { device.destroy_shader_module(self.module, None) };
    }
}
