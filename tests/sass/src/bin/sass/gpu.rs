//! Programs on a GPU, through the NVIDIA driver that is loaded: memory and a channel of our own.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use gpuvmk_chip::Chip;
use gpuvmk_gpu::rm::HostPaths;
use gpuvmk_gpu::rm::abi::Handle;
use gpuvmk_gpu::rm::abi::classes::NV01_MEMORY_LOCAL_USER;
use gpuvmk_gpu::rm::abi::flags::{attr, map};
use gpuvmk_gpu::rm::raw::{
    Commands, Device, Doorbell, GRANULE, STAGING, VIDEO_VA, Work, Worker, open_device, open_kernel,
    vram_params,
};
use gpuvmk_kernels::launch::{self, Place, Size3};
use gpuvmk_kernels::{Kernel, SM90};
use gpuvmk_sass::compiled::{STACK, VARIABLES as VARIABLES_ROOM};
use gpuvmk_sass::record::{Gpu, Stopped};
use gpuvmk_sass::task::Launched;
use gpuvmk_sass::windows::{LOCAL_SIZE as LOCAL_OF_WINDOWS, Places, SIZE};

const MIB: u64 = 1 << 20;

/// Layout of the worker's data.
const CONSTANTS: u64 = STAGING;
const QMD: u64 = STAGING + 0x1_0000;
const CODE: u64 = STAGING + 0x2_0000;
const INPUTS: u64 = STAGING + 4 * MIB;
const VARIABLES: u64 = STAGING + 6 * MIB;
const OUTPUTS: u64 = STAGING + 8 * MIB;
const DATA: u64 = 104 * MIB;

/// Video memory: threads' windows, then local memory of all that can be resident on all SMs that there can
/// be.
const VIDEO: u64 = WINDOWS_ROOM + LOCAL_ROOM;
const WINDOWS_ROOM: u64 = 2 * MIB;
const WINDOWS: u64 = VIDEO_VA + 0x1_0000;
const LOCAL: u64 = VIDEO_VA + WINDOWS_ROOM;
/// Bytes of local memory of a TPC: 64 warps on each of two SMs.
const LOCAL_OF_TPC: u64 = LOCAL_SIZE as u64 * 32 * 64 * 2;
/// Bytes of a thread's: random programs have less.
const LOCAL_SIZE: u32 = STACK;
const _: () = assert!(LOCAL_OF_WINDOWS <= LOCAL_SIZE);
const _: () = assert!(VARIABLES_ROOM as u64 <= OUTPUTS - VARIABLES);
const LOCAL_ROOM: u64 = 128 * LOCAL_OF_TPC;

/// NVCBC0_INVALIDATE_SHADER_CACHES: instructions, data, constants.
const CACHES: u32 = 1 | 1 << 4 | 1 << 12;

/// NVC7C0_SET_SHADER_LOCAL_MEMORY_A and _B, _NON_THROTTLED_A, _B and _C.
const SET_SHADER_LOCAL_MEMORY_A: u16 = 0x0790;
const SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A: u16 = 0x02e4;

/// A channel on a GPU.
pub(crate) struct Hardware {
    device: Device,
    worker: Worker,
    video: Handle,
    is_set_up: bool,
    /// Name and driver.
    pub(crate) name: String,
    pub(crate) driver: String,
}

impl Hardware {
    /// Opens the GPU as an unprivileged client of its driver.
    pub(crate) fn open(gpu: Option<&str>, uid: Option<u32>) -> Result<Self> {
        let paths = HostPaths::of_host();
        let opened = open_kernel(&paths, uid)?;
        let (mut device, facts, _, chip): (_, _, _, Chip) = open_device(&opened.kernel, &paths, gpu)?;
        let _ = opened.for_good()?;
        let doorbell: Arc<Doorbell> = Arc::new(device.doorbell(chip)?);
        let mut params = vram_params(VIDEO, attr::PAGE_HUGE, GRANULE);
        let video = device
            .client
            .alloc(device.device, NV01_MEMORY_LOCAL_USER, &mut params)
            .context("Cannot get video memory")?;
        let worker = Worker::new(&mut device, chip, doorbell, Work::Compute, DATA)?;
        worker.map_video(&device, video, 0, VIDEO, map::PAGE_2M).context("Cannot map video memory")?;
        let driver = paths.driver().version().unwrap_or_default().to_owned();
        Ok(Self { device, worker, video, is_set_up: false, name: facts.name, driver })
    }

    /// Gives everything back.
    pub(crate) fn close(mut self) -> Result<()> {
        self.worker.unmap_video(&self.device, 0, VIDEO)?;
        self.worker.destroy(&mut self.device)?;
        Ok(self.device.client.free(self.video)?)
    }

    fn launch(&mut self, program: &dyn Launched) -> Result<Vec<u32>> {
        let at = |offset| self.worker.system_va(offset);
        let place = Place { code: at(CODE), constants: at(CONSTANTS), qmd: at(QMD) };
        let places = Places {
            code: place.code,
            inputs: at(INPUTS),
            outputs: at(OUTPUTS),
            windows: WINDOWS,
            variables: at(VARIABLES),
            shared_window: launch::SHARED_WINDOW,
            local_window: launch::LOCAL_WINDOW,
        };
        let task = program.task(&places);
        let stored = u64::try_from(task.stored)? * 4;
        let inputs: Vec<u8> = task.inputs.iter().flat_map(|word| word.to_le_bytes()).collect();
        ensure!(task.code.len() as u64 <= INPUTS - CODE, "{} bytes of code are too many", task.code.len());
        ensure!(inputs.len() as u64 <= VARIABLES - INPUTS, "{} bytes of inputs are too many", inputs.len());
        let variables = task.variables.len();
        ensure!(variables <= VARIABLES_ROOM, "{variables} bytes of variables are too many");
        ensure!(OUTPUTS + stored <= STAGING + DATA, "{stored} bytes of results are too many");
        ensure!(u64::from(task.grid * task.block * SIZE) <= WINDOWS_ROOM / 2, "too many threads");
        let local = task.local + task.local_high;
        ensure!(local <= LOCAL_SIZE, "{local} bytes of local memory are too many");
        let kernel = Kernel {
            target: SM90.spin.target,
            name: "random",
            code: &[],
            registers: task.registers,
            shared: task.shared,
            barriers: task.barriers,
            constants: 0,
        };
        let (grid, block) = (Size3(task.grid, 1, 1), Size3(task.block, 1, 1));
        let mut launch = launch::launch(&kernel, place, grid, block, &[])
            .map_err(|error| anyhow::anyhow!("The program cannot be launched: {error:?}"))?;
        let layout = kernel.target.layout;
        for (field, size) in layout.local.into_iter().zip([task.local, task.local_high]) {
            launch.qmd = launch.qmd.with_number(field, size.into());
        }
        let mut pieces = vec![(CODE, task.code), (INPUTS, inputs), (VARIABLES, task.variables)];
        let mut next = CONSTANTS;
        for (number, bytes) in task.banks {
            let size = (bytes.len() as u64).next_multiple_of(64);
            ensure!(next + size <= QMD, "{size} bytes of constants are too many");
            let address = self.worker.system_va(next);
            launch.qmd = launch::with_bank(launch.qmd, layout, number, address, size);
            pieces.push((next, bytes));
            next += size;
        }
        pieces.push((QMD, launch.qmd.words().iter().flat_map(|word| word.to_le_bytes()).collect()));
        let memory = self.worker.system();
        for (at, bytes) in &pieces {
            memory.write(*at, bytes).map_err(|error| anyhow::anyhow!("{error}"))?;
        }
        memory.fill(OUTPUTS, stored, task.filled).map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut commands = Commands::default();
        if !self.is_set_up {
            commands.compute(&launch::set_up());
            commands.compute(&local_memory());
            self.is_set_up = true;
        }
        commands.compute(&[(launch::INVALIDATE_SHADER_CACHES, CACHES)]);
        commands.compute(&launch.methods);
        self.worker.run(&mut commands)?;
        let mut bytes = vec![0; usize::try_from(stored)?];
        self.worker.system().read(OUTPUTS, &mut bytes).map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }
}

/// Where local memory is.
fn local_memory() -> Vec<(u16, u32)> {
    let halves = |method: u16, number: u64| {
        let half = |half: u64| u32::try_from(half & u64::from(u32::MAX)).unwrap_or(0);
        let [low, high] = [number, number >> 32].map(half);
        [(method, high), (method + 4, low)]
    };
    let mut methods = halves(SET_SHADER_LOCAL_MEMORY_A, LOCAL).to_vec();
    methods.extend(halves(SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, LOCAL_OF_TPC));
    methods.push((SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A + 8, 0xff));
    methods
}

impl Gpu for Hardware {
    fn run(&mut self, program: &dyn Launched) -> Result<Vec<u32>, Stopped> {
        self.launch(program).map_err(|error| Stopped(format!("{error:#}")))
    }
}
