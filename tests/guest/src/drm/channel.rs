//! A channel with the engine objects that move bytes, and submission of command words to it.

use anyhow::{Context, Result, ensure};

use super::abi::{self, ChannelAlloc, ChannelFree, GrobjAlloc, Pushbuf, PushbufBo, PushbufPush};
use super::{Buffer, Device, Place, bytes};
use crate::chip::Chip;
use crate::engine::{Engine, Runlist};
use crate::push::{Commands, Subchannel};
use crate::sys::Direction;

/// The size of the ring of command words.
const RING: usize = 1 << 20;
/// The most command words that one submission may have (a GPFIFO entry counts words in 21 bits; this is
/// less).
const LARGEST: usize = 32 << 10;

/// A channel; freed on drop.
#[derive(Debug)]
pub struct Channel {
    device: Device,
    id: u32,
    ring: Buffer,
    next: usize,
    engine: Engine,
    class: u16,
}

impl Channel {
    /// Opens a channel whose copies are done by `engine`.
    pub fn open(device: &Device, engine: Engine) -> Result<Self> {
        let class = Chip::of(device)?.class(engine)?;
        let id = allocate(device, engine.runlist())?;
        let mut channel = Self {
            device: device.clone(),
            id,
            ring: Buffer::new(device, Place::Gart, RING)?,
            next: 0,
            engine,
            class,
        };
        channel.bind(engine.subchannel(), class).with_context(|| format!("cannot use {engine:?}"))?;
        Ok(channel)
    }

    /// Makes an object of `class`, and names it to the channel's subchannel.
    pub fn bind(&mut self, subchannel: Subchannel, class: u16) -> Result<()> {
        make_object(&self.device, self.id, class)?;
        let mut commands = Commands::new();
        commands.bind(subchannel, class);
        self.submit(&commands, &[])
    }

    /// The kernel's number for it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The engine that its copies run on.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The class of that engine.
    pub fn class(&self) -> u16 {
        self.class
    }

    /// Hands `commands` to the GPU; `buffers` are those that they use. Returns without waiting.
    pub fn submit(&mut self, commands: &Commands, buffers: &[&Buffer]) -> Result<()> {
        let words = commands.to_bytes();
        ensure!(!words.is_empty() && words.len() <= LARGEST, "{} bytes of commands do not fit", words.len());
        if self.next + words.len() > RING {
            self.ring.wait()?;
            self.next = 0;
        }
        let at = self.next;
        self.ring.write(at, &words)?;
        self.next += words.len();

        let all: Vec<PushbufBo> = std::iter::once(&self.ring)
            .chain(buffers.iter().copied())
            .map(|buffer| {
                let domain = buffer.place().domain();
                PushbufBo {
                    handle: buffer.handle(),
                    read_domains: domain,
                    write_domains: domain,
                    valid_domains: domain,
                    ..PushbufBo::default()
                }
            })
            .collect();
        let pushes = [PushbufPush { bo_index: 0, pad: 0, offset: bytes(at), length: bytes(words.len()) }];
        let mut argument = Pushbuf {
            channel: self.id,
            nr_buffers: u32::try_from(all.len())?,
            buffers: bytes(all.as_ptr().addr()),
            nr_push: 1,
            push: bytes(pushes.as_ptr().addr()),
            ..Pushbuf::default()
        };
        self.device.ioctl("GEM_PUSHBUF", Direction::ReadWrite, abi::GEM_PUSHBUF, &mut argument)
    }

    /// Sleeps until the GPU is done with everything that was handed to it.
    pub fn wait(&self) -> Result<()> {
        self.ring.wait()
    }

    /// Copies by the GPU; returns without waiting.
    pub fn copy(&mut self, to: (&Buffer, usize), from: (&Buffer, usize), length: usize) -> Result<()> {
        let commands = self.copy_commands(to, from, length)?;
        self.submit(&commands, &[to.0, from.0])
    }

    /// The command words of a copy.
    pub fn copy_commands(
        &self,
        to: (&Buffer, usize),
        from: (&Buffer, usize),
        length: usize,
    ) -> Result<Commands> {
        for (buffer, offset) in [to, from] {
            ensure!(
                offset.checked_add(length).is_some_and(|end| end <= buffer.size()),
                "a copy of {length} bytes at {offset} leaves a buffer of {}",
                buffer.size()
            );
        }
        let mut commands = Commands::new();
        self.engine.copy(
            &mut commands,
            to.0.address() + bytes(to.1),
            from.0.address() + bytes(from.1),
            bytes(length),
        );
        Ok(commands)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        free(&self.device, self.id);
    }
}

/// Makes a channel for the engines of `runlist`; returns the kernel's number for it.
pub(super) fn allocate(device: &Device, runlist: Runlist) -> Result<u32> {
    let mut argument = match runlist {
        Runlist::Graphics => ChannelAlloc::default(),
        Runlist::Copy => ChannelAlloc {
            fb_ctxdma_handle: abi::ENGINE_IS_NAMED,
            tt_ctxdma_handle: abi::ENGINE_COPY,
            ..ChannelAlloc::default()
        },
    };
    device.ioctl("CHANNEL_ALLOC", Direction::ReadWrite, abi::CHANNEL_ALLOC, &mut argument)?;
    Ok(argument.channel.cast_unsigned())
}

/// Makes an object of `class` on the channel `id`.
pub(super) fn make_object(device: &Device, id: u32, class: u16) -> Result<()> {
    let mut argument = GrobjAlloc {
        channel: id.cast_signed(),
        // On chips with a GSP all objects of an open file share one name space, so the channel is part of the
        // name.
        handle: 0xb000_0000 | (id & 0xfff) << 16 | u32::from(class),
        class: i32::from(class),
    };
    device.ioctl("GROBJ_ALLOC", Direction::Write, abi::GROBJ_ALLOC, &mut argument)
}

/// Frees the channel `id`.
pub(super) fn free(device: &Device, id: u32) {
    let mut argument = ChannelFree { channel: id.cast_signed() };
    // A failure here shows in the kernel's log, which the host reads.
    let _ = device.ioctl("CHANNEL_FREE", Direction::Write, abi::CHANNEL_FREE, &mut argument);
}
