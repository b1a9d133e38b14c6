//! The newer interface, which NVK uses: the program lays out the GPU's address space itself (`VM_BIND`) and
//! submits addresses of commands (`EXEC`); syncobjs say what waits for what.

use anyhow::{Context, Result, ensure};

use super::abi::{self, Exec, ExecPush, Sync, VmBind, VmBindOp, VmInit};
use super::channel::{allocate, free, make_object};
use super::{Buffer, Device, Place, Syncobj, bytes};
use crate::chip::Chip;
use crate::engine::Engine;
use crate::push::{Commands, Subchannel};
use crate::sys::Direction;

/// What the kernel keeps for itself: the upper half of the 40 bits that Mesa's drivers use, as they do.
const KERNEL_PART: u64 = 1 << 39;
/// Where this program's part starts: above [4 GiB, 4.5 GiB), which NVIDIA's firmware keeps in every address
/// space.
const FIRST: u64 = 1 << 36;
/// What every mapping is aligned to, so that large pages can be used.
const ALIGNMENT: u64 = 2 << 20;
/// What sizes of buffers are rounded up to.
const GRANULE: usize = 64 << 10;
/// The size of the ring of command words, which is also the most that may be under way.
const RING: usize = 64 << 10;

/// A buffer, and where the GPU sees it.
pub type Mapped = (Buffer, u64);

/// An open device whose GPU address space this program lays out.
#[derive(Debug)]
pub struct UserSpace {
    device: Device,
    next: u64,
}

/// A channel that executes commands at addresses of a [`UserSpace`]; freed on drop.
#[derive(Debug)]
pub struct Bound {
    device: Device,
    id: u32,
    ring: Buffer,
    ring_address: u64,
    next: usize,
    engine: Engine,
}

impl UserSpace {
    /// Opens the device anew: the address space must be claimed before anything else is made.
    pub fn open(gpu: usize) -> Result<Self> {
        let device = Device::open(gpu)?;
        let mut argument = VmInit { kernel_managed_addr: KERNEL_PART, kernel_managed_size: KERNEL_PART };
        device.ioctl("VM_INIT", Direction::ReadWrite, abi::VM_INIT, &mut argument)?;
        Ok(Self { device, next: FIRST })
    }

    /// The open device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// An address range for `size` bytes that nothing uses.
    pub fn reserve(&mut self, size: usize) -> u64 {
        let address = self.next;
        self.next += bytes(size).next_multiple_of(ALIGNMENT);
        address
    }

    /// A buffer of at least `size` bytes at a new address: whole pages, as mappings are.
    pub fn mapped(&mut self, place: Place, size: usize) -> Result<Mapped> {
        let buffer = Buffer::new(&self.device, place, size.next_multiple_of(GRANULE))?;
        let address = self.map(&buffer)?;
        Ok((buffer, address))
    }

    /// Maps a buffer at a new address.
    pub fn map(&mut self, buffer: &Buffer) -> Result<u64> {
        let address = self.reserve(buffer.size());
        self.map_at(buffer, address, None)?;
        Ok(address)
    }

    /// Maps a buffer at `address`. With a syncobj the call returns at once and signals it when the mapping is
    /// there.
    pub fn map_at(&self, buffer: &Buffer, address: u64, done: Option<&Syncobj>) -> Result<()> {
        let op = VmBindOp {
            op: abi::BIND_MAP,
            handle: buffer.handle(),
            addr: address,
            range: bytes(buffer.size()),
            ..VmBindOp::default()
        };
        self.bind(op, done).with_context(|| format!("mapping {} bytes at {address:#x}", buffer.size()))
    }

    /// Takes the mapping of `size` bytes at `address` away.
    pub fn unmap(&self, address: u64, size: usize) -> Result<()> {
        let op = VmBindOp { op: abi::BIND_UNMAP, addr: address, range: bytes(size), ..VmBindOp::default() };
        self.bind(op, None).with_context(|| format!("unmapping {size} bytes at {address:#x}"))
    }

    fn bind(&self, op: VmBindOp, done: Option<&Syncobj>) -> Result<()> {
        let ops = [op];
        let signals: Vec<Sync> = done.iter().map(|syncobj| syncobj.sync()).collect();
        let mut argument = VmBind {
            op_count: 1,
            flags: if done.is_some() { abi::BIND_ASYNC } else { 0 },
            sig_count: u32::try_from(signals.len())?,
            sig_ptr: bytes(signals.as_ptr().addr()),
            op_ptr: bytes(ops.as_ptr().addr()),
            ..VmBind::default()
        };
        self.device.ioctl("VM_BIND", Direction::ReadWrite, abi::VM_BIND, &mut argument)
    }

    /// Opens a channel whose copies are done by `engine`.
    pub fn channel(&mut self, engine: Engine) -> Result<Bound> {
        let class = Chip::of(&self.device)?.class(engine)?;
        let id = allocate(&self.device, engine.runlist())?;
        make_object(&self.device, id, class).with_context(|| format!("cannot use {engine:?}"))?;
        let ring = Buffer::new(&self.device, Place::Gart, RING)?;
        let ring_address = self.map(&ring)?;
        let mut channel = Bound { device: self.device.clone(), id, ring, ring_address, next: 0, engine };
        let mut commands = Commands::new();
        commands.bind(engine.subchannel(), class);
        channel.execute(&commands, &[], &[])?;
        Ok(channel)
    }
}

impl Bound {
    /// The engine that its copies run on.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Makes an object of `class`; returns the commands that bind it to a subchannel.
    pub fn object(&self, subchannel: Subchannel, class: u16) -> Result<Commands> {
        make_object(&self.device, self.id, class).with_context(|| format!("cannot use class {class:04x}"))?;
        let mut commands = Commands::new();
        commands.bind(subchannel, class);
        Ok(commands)
    }

    /// Hands `commands` to the GPU once all of `after` are signalled; signals all of `then` when they are
    /// done. Returns without waiting. The caller waits before the ring comes round.
    pub fn execute(&mut self, commands: &Commands, after: &[&Syncobj], then: &[&Syncobj]) -> Result<()> {
        let words = commands.to_bytes();
        ensure!(!words.is_empty() && words.len() <= RING / 4, "{} bytes of commands do not fit", words.len());
        if self.next + words.len() > RING {
            self.next = 0;
        }
        self.ring.write(self.next, &words)?;
        let push = [ExecPush {
            va: self.ring_address + bytes(self.next),
            va_len: u32::try_from(words.len())?,
            flags: 0,
        }];
        self.next += words.len();
        let [waits, signals]: [Vec<Sync>; 2] =
            [after, then].map(|list| list.iter().map(|syncobj| syncobj.sync()).collect());
        let mut argument = Exec {
            channel: self.id,
            push_count: 1,
            wait_count: u32::try_from(waits.len())?,
            sig_count: u32::try_from(signals.len())?,
            wait_ptr: bytes(waits.as_ptr().addr()),
            sig_ptr: bytes(signals.as_ptr().addr()),
            push_ptr: bytes(push.as_ptr().addr()),
        };
        self.device.ioctl("EXEC", Direction::ReadWrite, abi::EXEC, &mut argument)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        free(&self.device, self.id);
    }
}
