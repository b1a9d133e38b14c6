//! A context as a GPU for the programs of the papers' table, and work that is timed by the GPU's own clock.
//!
//! A guest whose processors are translated takes longer to launch a kernel than many a kernel runs. So that
//! this is not taken for the GPU's time, work waits behind a kernel until all of it is in the queue.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use gpuvmk_papers::{Area, CUBIN, Clocks, Direction, Gpu, Launch, Took, YARD_BYTES, yard};

use crate::driver::{Context, DeviceMemory, Event, Module, PinnedMemory, Shape, Stream};

/// The longest that work waits for more of it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether work waits until all of it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// It does, behind work that gets a card's clocks up: times are the GPU's.
    Card,
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
    /// Before and after each of a yardstick, what is timed, and a yardstick.
    events: [Event; 4],
    /// What yardsticks write.
    yard: DeviceMemory,
    clocks: RefCell<Clocks>,
    memory: BTreeMap<u64, DeviceMemory>,
    pinned: Option<PinnedMemory>,
    clock: Clock,
}

impl CudaGpu {
    /// Loads the code.
    pub fn new(context: &Rc<Context>, clock: Clock) -> Result<Self> {
        let event = || Event::create(context, false);
        Ok(Self {
            context: Rc::clone(context),
            module: Module::load_code(context, CUBIN)?,
            stream: Stream::create(context)?,
            gate: PinnedMemory::allocate(context, 4096)?,
            events: [event()?, event()?, event()?, event()?],
            yard: DeviceMemory::allocate(context, YARD_BYTES)?,
            clocks: RefCell::default(),
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
    /// and how long it is by our clock until all has ended. On a card, yardsticks before it get clocks up,
    /// the gate opens behind them, and one more is timed directly before and after.
    pub fn timed(&self, put: impl FnOnce(&Stream) -> Result<()>) -> Result<Took> {
        self.gate.first().store(0, Ordering::SeqCst);
        let patience = u32::try_from(PATIENCE.as_nanos())?;
        let gate = Launch {
            kernel: "gate",
            grid: [1; 3],
            block: [1; 3],
            arguments: vec![self.gate.address(), patience.into()],
        };
        let yard = (self.clock == Clock::Card).then(|| yard(self.yard.address()));
        let yards = |count: usize| yard.iter().cycle().take(if yard.is_some() { count } else { 0 });
        let yards = |count: usize| yards(count).cloned().collect::<Vec<_>>();
        let [begin, before, after, end] = &self.events;
        let stream = &self.stream;
        let warm = yards(self.clocks.borrow().before());
        let start = Instant::now();
        let queued = (|| {
            self.launch(&warm, stream)?;
            self.launch(&[gate], stream)?;
            begin.record(stream)?;
            self.launch(&yards(1), stream)?;
            before.record(stream)?;
            put(stream)?;
            after.record(stream)?;
            self.launch(&yards(1), stream)?;
            end.record(stream)
        })();
        let took = start.elapsed();
        self.gate.first().store(1, Ordering::SeqCst);
        let start = Instant::now();
        stream.synchronize()?;
        queued?;
        ensure!(took < PATIENCE, "work began before all of it was there, after {} ms", took.as_millis());
        let time = |from: &Event, to: &Event| -> Result<Duration> {
            Ok(Duration::from_secs_f64((f64::from(to.since(from)?) / 1e3).max(0.0)))
        };
        let wall = start.elapsed();
        let yards = [time(begin, before)?, time(after, end)?];
        let yards = yard.map(|_| (yards, self.clocks.borrow_mut().saw(yards)));
        Ok(Took { gpu: time(before, after)?, wall, yards })
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
        Ok((Duration::ZERO, start.elapsed()))
    }

    fn timed(&mut self, launches: &[Launch]) -> Result<Took> {
        let (gpu, wall) = self.run(launches)?;
        if self.clock == Clock::None {
            return Ok(Took { gpu, wall, yards: None });
        }
        let took = Self::timed(self, |stream| self.launch(launches, stream))?;
        Ok(Took { wall, ..took })
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
            Clock::Gpu | Clock::Card => Self::timed(self, |_| copy(direction))?.gpu,
        };
        self.pinned = Some(pinned);
        Ok((gpu, wall))
    }

    fn release(&mut self) -> Result<()> {
        std::mem::take(&mut self.memory).into_values().try_for_each(DeviceMemory::free)
    }
}
