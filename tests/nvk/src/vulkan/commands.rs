//! One command buffer: recorded, submitted, waited for, with GPU timestamps around what is in it.
#![allow(unsafe_code, reason = "Vulkan's functions are unsafe to call")]

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ash::vk;

use super::{Buffer, Device, Kernel};

/// How long a submission may take. nouveau gives a channel up after 10 s without progress.
const LIMIT: Duration = Duration::from_secs(60);

/// How long a submission took.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Between the two timestamps, by the GPU's clock.
    pub gpu_us: f64,
    /// In vkQueueSubmit.
    pub submit_us: f64,
    /// In vkWaitForFences.
    pub wait_us: f64,
    /// What the process's threads had of processors meanwhile: a driver for processors computes in them.
    pub cpu_us: f64,
}

/// A command buffer under construction.
pub struct Commands {
    device: Rc<Device>,
    pool: vk::CommandPool,
    queries: vk::QueryPool,
    fence: vk::Fence,
    raw: vk::CommandBuffer,
    /// Whether the GPU may still use it: submitted, and not known to have ended.
    busy: bool,
}

impl Commands {
    /// Begins to record; the first command takes the first timestamp.
    pub fn begin(device: &Rc<Device>) -> Result<Self> {
        let mut commands = Self {
            device: Rc::clone(device),
            pool: vk::CommandPool::null(),
            queries: vk::QueryPool::null(),
            fence: vk::Fence::null(),
            raw: vk::CommandBuffer::null(),
            busy: false,
        };
        commands.make()?;
        let device = &commands.device.raw;
        let info = vk::CommandBufferBeginInfo::default();
        // SAFETY: the command buffer is fresh.
        unsafe { device.begin_command_buffer(commands.raw, &info) }.context("vkBeginCommandBuffer")?;
        // SAFETY: recording has begun, and the pool has two queries.
        unsafe { device.cmd_reset_query_pool(commands.raw, commands.queries, 0, 2) };
        commands.timestamp(0);
        Ok(commands)
    }

    fn make(&mut self) -> Result<()> {
        let device = &self.device.raw;
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(self.device.family);
        // SAFETY: the family is the one that the device was opened with.
        self.pool = unsafe { device.create_command_pool(&info, None) }.context("vkCreateCommandPool")?;
        let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
        // SAFETY: the pool was made just above.
        let buffers =
            unsafe { device.allocate_command_buffers(&info) }.context("vkAllocateCommandBuffers")?;
        self.raw = buffers.first().copied().context("vkAllocateCommandBuffers made none")?;
        let info = vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(2);
        // SAFETY: the structure lives through the call.
        self.queries = unsafe { device.create_query_pool(&info, None) }.context("vkCreateQueryPool")?;
        // SAFETY: the structure lives through the call.
        self.fence =
            unsafe { device.create_fence(&vk::FenceCreateInfo::default(), None) }.context("vkCreateFence")?;
        Ok(())
    }

    /// Fills a buffer with a word.
    pub fn fill(&mut self, buffer: &Buffer, word: u32) {
        // SAFETY: recording; the buffer is of this device and was made for transfers.
        unsafe { self.device.raw.cmd_fill_buffer(self.raw, buffer.raw, 0, vk::WHOLE_SIZE, word) };
        self.barrier();
    }

    /// Copies all of a buffer to another at least as large.
    pub fn copy(&mut self, from: &Buffer, to: &Buffer) {
        let region = [vk::BufferCopy::default().size(from.bytes().min(to.bytes()))];
        // SAFETY: recording; both buffers are of this device, made for transfers, and hold the region.
        unsafe { self.device.raw.cmd_copy_buffer(self.raw, from.raw, to.raw, &region) };
        self.barrier();
    }

    /// Copies the end of a buffer to a smaller one.
    pub fn copy_end(&mut self, from: &Buffer, to: &Buffer) {
        let size = from.bytes().min(to.bytes());
        let region = [vk::BufferCopy::default().src_offset(from.bytes() - size).size(size)];
        // SAFETY: recording; both buffers are of this device, made for transfers, and hold the region.
        unsafe { self.device.raw.cmd_copy_buffer(self.raw, from.raw, to.raw, &region) };
        self.barrier();
    }

    /// Launches a kernel on a grid of groups.
    pub fn dispatch(&mut self, kernel: &Kernel, groups: [u32; 3]) {
        self.bind(kernel);
        // SAFETY: recording; all that the kernel reads and writes is bound, and it keeps within its buffers.
        unsafe { self.device.raw.cmd_dispatch(self.raw, groups[0], groups[1], groups[2]) };
        self.barrier();
    }

    /// The same, on the grid that the first three words of `groups` are when the launch's turn comes.
    pub fn dispatch_indirect(&mut self, kernel: &Kernel, groups: &Buffer) {
        self.bind(kernel);
        // SAFETY: as above; the buffer is of this device, was made for this use, and holds three words.
        unsafe { self.device.raw.cmd_dispatch_indirect(self.raw, groups.raw, 0) };
        self.barrier();
    }

    fn bind(&mut self, kernel: &Kernel) {
        let device = &self.device.raw;
        let point = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: recording; the pipeline is of this device.
        unsafe { device.cmd_bind_pipeline(self.raw, point, kernel.pipeline) };
        // SAFETY: recording; the set fits the layout that it was made for.
        unsafe { device.cmd_bind_descriptor_sets(self.raw, point, kernel.layout, 0, &[kernel.set], &[]) };
        if !kernel.constants.is_empty() {
            let stage = vk::ShaderStageFlags::COMPUTE;
            // SAFETY: recording; the layout has a range of just this size.
            unsafe { device.cmd_push_constants(self.raw, kernel.layout, stage, 0, &kernel.constants) };
        }
    }

    /// Submits what was recorded and waits for it.
    pub fn run(mut self) -> Result<Timing> {
        self.timestamp(1);
        let device = Rc::clone(&self.device);
        // SAFETY: recording.
        unsafe { device.raw.end_command_buffer(self.raw) }.context("vkEndCommandBuffer")?;
        let buffers = [self.raw];
        let submissions = [vk::SubmitInfo::default().command_buffers(&buffers)];
        let (start, busy) = (Instant::now(), processor_time());
        self.busy = true;
        // SAFETY: the command buffer is complete, the fence unused, and the queue used by this thread alone.
        unsafe { device.raw.queue_submit(device.queue, &submissions, self.fence) }
            .context("vkQueueSubmit")?;
        let submitted = start.elapsed();
        let limit = u64::try_from(LIMIT.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: the fence is of this device.
        unsafe { device.raw.wait_for_fences(&[self.fence], true, limit) }.context("vkWaitForFences")?;
        self.busy = false;
        let waited = start.elapsed() - submitted;
        let cpu_us = us(processor_time().saturating_sub(busy));
        Ok(Timing { gpu_us: self.gpu_us()?, submit_us: us(submitted), wait_us: us(waited), cpu_us })
    }

    fn gpu_us(&self) -> Result<f64> {
        let mut ticks = [0u64; 2];
        let flags = vk::QueryResultFlags::TYPE_64;
        // SAFETY: the pool has two queries, both were written by the submission that has ended.
        unsafe { self.device.raw.get_query_pool_results(self.queries, 0, &mut ticks, flags) }
            .context("vkGetQueryPoolResults")?;
        let [first, second] = ticks;
        let passed = second
            .checked_sub(first)
            .with_context(|| format!("The GPU's timestamps go backwards: {first} before, {second} after"))?;
        // CAST: times of this program fit a double.
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a test fit 53 bits")]
        let passed = passed as f64;
        Ok(passed * self.device.timestamp_ns / 1e3)
    }

    fn timestamp(&self, index: u32) {
        let stage = vk::PipelineStageFlags::ALL_COMMANDS;
        // SAFETY: recording; the pool has two queries, and both were reset.
        unsafe { self.device.raw.cmd_write_timestamp(self.raw, stage, self.queries, index) };
    }

    /// What comes later, the host included, sees what came before.
    fn barrier(&self) {
        let stages = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let readers = vk::PipelineStageFlags::HOST | vk::PipelineStageFlags::DRAW_INDIRECT;
        let access = vk::AccessFlags::SHADER_READ
            | vk::AccessFlags::SHADER_WRITE
            | vk::AccessFlags::TRANSFER_READ
            | vk::AccessFlags::TRANSFER_WRITE;
        let memory = [vk::MemoryBarrier::default()
            .src_access_mask(access)
            .dst_access_mask(access | vk::AccessFlags::HOST_READ | vk::AccessFlags::INDIRECT_COMMAND_READ)];
        let (after, none) = (stages | readers, vk::DependencyFlags::empty());
        // SAFETY: recording; the barrier names no resource.
        unsafe { self.device.raw.cmd_pipeline_barrier(self.raw, stages, after, none, &memory, &[], &[]) };
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        let device = &self.device.raw;
        if self.busy {
            // SAFETY: the queue is used by this thread alone. After a lost device it returns at once.
            let _ = unsafe { device.device_wait_idle() };
        }
        // SAFETY: nothing of it is in use any more; null handles are ignored, here and below.
        unsafe { device.destroy_fence(self.fence, None) };
        // SAFETY: as above.
        unsafe { device.destroy_query_pool(self.queries, None) };
        // SAFETY: as above; the command buffer goes with its pool.
        unsafe { device.destroy_command_pool(self.pool, None) };
    }
}

/// Time that processors spent for this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
