//! A PCI function that a process serves over vfio-user, for drivers that are tests: what they do to a
//! function, they do to a daemon.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests may fail as tests do"
)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use gpuvmk::frontend::vfio_user::wire::{self, command, dma_map, dma_unmap, irq};
use gpuvmk::pci::{
    AccessError, CardUse, DirectMap, DmaError, DmaMapping, InterruptSink, MessageOwner, PciFunction,
    QueueEvents, Region, RegionTable, SharedRegions,
};
use rustix::event::{PollFd, PollFlags, poll};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::IntoBytes;

use crate::client::{Client, Reply};

/// Writes that go out together; QEMU sends up to 200.
const BATCH: usize = 200;

/// The far function. Small writes are collected, as QEMU does, until something else is sent.
pub struct Remote {
    wire: Mutex<Wire>,
}

/// The connection.
pub struct Wire {
    client: Client,
    writes: Vec<wire::SmallWrite>,
}

impl Wire {
    fn flush(&mut self) {
        if self.writes.is_empty() {
            return;
        }
        let head = wire::WriteMulti { count: self.writes.len() as u64 };
        let body = [head.as_bytes(), self.writes.as_bytes()].concat();
        self.writes.clear();
        self.client.post(command::REGION_WRITE_MULTI, &body);
    }
}

impl Remote {
    /// Connects, as QEMU does.
    pub fn connect(path: &Path) -> Self {
        Self::of(Client::negotiated(path))
    }

    /// At the other end of a connection that was negotiated.
    pub fn of(client: Client) -> Self {
        Self { wire: Mutex::new(Wire { client, writes: Vec::new() }) }
    }

    /// Sends what was written.
    pub fn flush(&self) {
        self.wire.lock().unwrap().flush();
    }

    /// Sends a command, after what was written, and waits for its reply.
    fn command(&self, command: u16, body: &[u8], fds: &[BorrowedFd<'_>]) -> Reply {
        let mut wire = self.wire.lock().unwrap();
        wire.flush();
        wire.client.command_with(command, body, fds)
    }

    /// Gives an eventfd to an interrupt, or to its unmasking.
    pub fn set_irq(&self, index: u32, action: u32, event: &EventFd) {
        let flags = irq::DATA_EVENTFD | action;
        let body = wire::SetIrqs { argsz: 20, flags, index, start: 0, count: 1 };
        let reply = self.command(command::DEVICE_SET_IRQS, body.as_bytes(), &[fd(event)]);
        assert_eq!(reply.errno(), 0);
    }

    /// Takes all memory away that was announced, so that a driver can come up once more.
    pub fn unmap_all(&self) {
        let body = wire::DmaUnmap { argsz: 24, flags: dma_unmap::ALL, address: 0, size: 0 };
        assert_eq!(self.command(command::DMA_UNMAP, body.as_bytes(), &[]).errno(), 0);
    }

    fn index(region: Region) -> u32 {
        let index = Region::ALL.iter().position(|known| *known == region).unwrap();
        u32::try_from(index).unwrap()
    }
}

#[allow(unsafe_code, reason = "the eventfd crate hands out raw descriptors only")]
fn fd(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open while `event` lives, which the result borrows.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

impl PciFunction for Remote {
    fn regions(&self) -> RegionTable {
        panic!("nobody asks a far function for its regions")
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        let count = u32::try_from(data.len()).unwrap();
        let access = wire::RegionAccess { offset, region: Self::index(region), count };
        let reply = self.command(command::REGION_READ, access.as_bytes(), &[]);
        assert_eq!(reply.errno(), 0, "read of {region:?} at {offset:#x}");
        data.copy_from_slice(&reply.body[16..]);
        Ok(())
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        let count = u32::try_from(data.len()).unwrap();
        let access = wire::RegionAccess { offset, region: Self::index(region), count };
        let mut small = [0; 8];
        small[..data.len()].copy_from_slice(data);
        let mut wire = self.wire.lock().unwrap();
        wire.writes.push(wire::SmallWrite { access, data: small });
        if wire.writes.len() == BATCH {
            wire.flush();
        }
        Ok(())
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        let backing = mapping.backing.unwrap();
        let body = wire::DmaMap {
            argsz: 32,
            flags: dma_map::READ | dma_map::WRITE,
            offset: backing.offset,
            address: mapping.iova,
            size: mapping.size,
        };
        let reply = self.command(command::DMA_MAP, body.as_bytes(), &[backing.fd.as_fd()]);
        assert_eq!(reply.errno(), 0);
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        let body = wire::DmaUnmap { argsz: 24, flags: 0, address: iova, size };
        assert_eq!(self.command(command::DMA_UNMAP, body.as_bytes(), &[]).errno(), 0);
        Ok(())
    }

    fn dma_unmap_all(&self) {}

    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        let Some(sink) = sink else { return };
        let event = EventFd::new(0).unwrap();
        self.set_irq(irq::MSI, irq::ACTION_TRIGGER, &event);
        // The server makes the descriptor one that does not wait. The thread ends with the process.
        std::thread::spawn(move || {
            loop {
                let event_fd = fd(&event);
                poll(&mut [PollFd::from_borrowed_fd(event_fd, PollFlags::IN)], None).unwrap();
                if event.read().is_ok() {
                    sink.fire_msi(0);
                }
            }
        });
    }

    fn reset(&self) {
        assert_eq!(self.command(command::DEVICE_RESET, &[], &[]).errno(), 0);
    }

    fn card_use(&self) -> Option<CardUse> {
        None
    }

    fn most_dma_ranges(&self) -> usize {
        gpuvmk::pci::dma::MAX_MAPPINGS
    }

    fn client_gone(&self) {}

    fn direct_map(&self) -> Option<&dyn DirectMap> {
        None
    }

    fn message_owner(&self) -> Option<&dyn MessageOwner> {
        None
    }

    fn queue_events(&self) -> Option<&dyn QueueEvents> {
        None
    }

    fn shared_regions(&self) -> Option<&dyn SharedRegions> {
        None
    }
}
