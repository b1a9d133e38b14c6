//! A context as a GPU for the programs of the papers' table, and work that is timed by the GPU's own clock.
//!
//! A guest whose processors are translated takes longer to launch a kernel than many a kernel runs. So that
//! this is not taken for the GPU's time, work waits behind a kernel until all of it is in the queue.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use gpuvmk_papers::{Area, CUBIN, Direction, Gpu, Launch};

use crate::driver::{Context, DeviceMemory, Event, Module, PinnedMemory, Shape, Stream};

/// The longest that work waits for more of it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Kernels of a graph: libcuda launches larger ones in a way that the software GPU does not follow.
pub const MOST_NODES: usize = 16;

/// Whether work waits until all of it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// It does: times are the GPU's.
    Gpu,
    /// It does not: nobody asks for times.
    None,
}

/// A context with the programs' machine code, memory, and a stream.
#[derive(Debug)]
pub struct CudaGpu {
    context: Rc<Context>,
    module: Module,
    pub stream: Stream,
    gate: PinnedMemory,
    events: [Event; 2],
    memory: BTreeMap<u64, DeviceMemory>,
    pinned: Option<PinnedMemory>,
    clock: Clock,
}

impl CudaGpu {
    /// Loads the code.
    pub fn new(context: &Rc<Context>, clock: Clock) -> Result<Self> {
        Ok(Self {
            context: Rc::clone(context),
            module: Module::load_code(context, CUBIN)?,
            stream: Stream::create(context)?,
            gate: PinnedMemory::allocate(context, 4096)?,
            events: [Event::create(context, false)?, Event::create(context, false)?],
            memory: BTreeMap::new(),
            pinned: None,
            clock,
        })
    }

    /// Puts kernels into a stream.
    pub fn launch(&self, launches: &[Launch], stream: &Stream) -> Result<()> {
        for Launch { kernel, grid, block, arguments } in launches {
            let shape = Shape { blocks: *grid, threads: *block };
            let kernel = self.module.kernel(&CString::new(*kernel)?)?;
            kernel.launch_in(stream, shape, arguments)?;
        }
        Ok(())
    }

    /// How long the GPU takes for what this puts into the stream, none of which begins before all is there;
    /// and how long it is by our clock until all has ended.
    pub fn timed(&self, put: impl FnOnce(&Stream) -> Result<()>) -> Result<(Duration, Duration)> {
        self.gate.first().store(0, Ordering::SeqCst);
        let patience = u32::try_from(PATIENCE.as_nanos())?;
        let gate = Launch {
            kernel: "gate",
            grid: [1; 3],
            block: [1; 3],
            arguments: vec![self.gate.address(), patience.into()],
        };
        let start = Instant::now();
        let [before, after] = &self.events;
        let queued = self.launch(&[gate], &self.stream).and_then(|()| {
            before.record(&self.stream)?;
            put(&self.stream)?;
            after.record(&self.stream)
        });
        let took = start.elapsed();
        self.gate.first().store(1, Ordering::SeqCst);
        let start = Instant::now();
        self.stream.synchronize()?;
        queued?;
        ensure!(took < PATIENCE, "work began before all of it was there, after {} ms", took.as_millis());
        let time = f64::from(after.since(before)?) / 1e3;
        Ok((Duration::from_secs_f64(time.max(0.0)), start.elapsed()))
    }

    fn memory(&self, area: Area) -> Result<(&DeviceMemory, usize)> {
        let found = self.memory.range(..=area.address).next_back();
        let (start, memory) = found.context("no memory of ours")?;
        Ok((memory, usize::try_from(area.address - start)?))
    }

    /// Memory that is kept until [`Gpu::release`].
    pub fn keep(&mut self, bytes: usize) -> Result<Area> {
        let memory = DeviceMemory::allocate(&self.context, bytes)?;
        let area = Area { address: memory.address(), bytes };
        self.memory.insert(area.address, memory);
        Ok(area)
    }
}

impl Gpu for CudaGpu {
    fn allocate(&mut self, bytes: usize) -> Result<Area> {
        self.keep(bytes)
    }

    fn write(&mut self, to: Area, bytes: &[u8]) -> Result<()> {
        let (memory, at) = self.memory(to)?;
        ensure!(at == 0, "bytes are written from the start of memory only");
        memory.write(bytes)
    }

    fn read(&mut self, from: Area) -> Result<Vec<u8>> {
        let (memory, at) = self.memory(from)?;
        memory.read_part(at, from.bytes)
    }

    fn run(&mut self, launches: &[Launch]) -> Result<(Duration, Duration)> {
        let start = Instant::now();
        self.launch(launches, &self.stream)?;
        self.stream.synchronize()?;
        let wall = start.elapsed();
        if self.clock == Clock::None {
            return Ok((Duration::ZERO, wall));
        }
        let (gpu, _) = self.timed(|stream| self.launch(launches, stream))?;
        Ok((gpu, wall))
    }

    fn transfer(&mut self, area: Area, direction: Direction) -> Result<(Duration, Duration)> {
        let pinned = match self.pinned.take().filter(|pinned| pinned.size() == area.bytes) {
            Some(pinned) => pinned,
            None => PinnedMemory::allocate(&self.context, area.bytes)?,
        };
        // What is there comes back first, so that what is sent is what was there.
        let (memory, _) = self.memory(area)?;
        let copy = |direction| match direction {
            Direction::ToDevice => memory.write_later(&pinned, &self.stream),
            Direction::FromDevice => memory.read_later(&pinned, &self.stream),
        };
        if direction == Direction::ToDevice {
            copy(Direction::FromDevice)?;
            self.stream.synchronize()?;
        }
        let start = Instant::now();
        copy(direction)?;
        self.stream.synchronize()?;
        let wall = start.elapsed();
        let gpu = match self.clock {
            Clock::None => Duration::ZERO,
            Clock::Gpu => self.timed(|_| copy(direction))?.0,
        };
        self.pinned = Some(pinned);
        Ok((gpu, wall))
    }

    fn release(&mut self) -> Result<()> {
        std::mem::take(&mut self.memory).into_values().try_for_each(DeviceMemory::free)
    }
}
