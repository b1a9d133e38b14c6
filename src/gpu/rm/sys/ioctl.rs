//! The ioctls themselves, and the only places where an address goes into a structure.
#![allow(unsafe_code, reason = "ioctl has no safe form")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::rm::abi::Handle;
use crate::rm::abi::calls::{
    Alloc, AllocMemory, AllocOsEvent, CARDS, CardInfo, CheckVersion, Control, EventData, Free, GetEventData,
    MapDma, MapMemory, RegisterFd, UnmapDma, UnmapMemory, escape,
};
use crate::rm::abi::flags;
use crate::rm::kernel::{NewObject, NewPages};

/// Calls whose structure has no address of this process in it: whatever it says, the kernel touches nothing
/// of ours but the structure.
pub(super) trait Plain: FromBytes + IntoBytes + Immutable {}

impl Plain for CheckVersion {}
impl Plain for [CardInfo; CARDS] {}
impl Plain for RegisterFd {}
impl Plain for Free {}
impl Plain for MapMemory {}
impl Plain for UnmapMemory {}
impl Plain for MapDma {}
impl Plain for UnmapDma {}
impl Plain for AllocOsEvent {}

/// Makes a call whose structure is all there is to it.
pub(super) fn plain<T: Plain>(fd: BorrowedFd<'_>, escape: u8, params: &mut T) -> io::Result<()> {
    // SAFETY: `Plain` structures hold no addresses.
    unsafe { call(fd, escape, params) }
}

/// Makes an object with its parameters.
pub(super) fn alloc(fd: BorrowedFd<'_>, new: NewObject, params: &mut [u8]) -> io::Result<Alloc> {
    let (address, params_size) = lend(params)?;
    let mut call_params = Alloc {
        root: new.client,
        parent: new.parent,
        object: new.object,
        class: new.class.number,
        params: address,
        params_size,
        ..Default::default()
    };
    // SAFETY: the only address is that of `params`, borrowed exclusively for the call, with its length beside
    // it; the classes used here have parameters without addresses.
    unsafe { call(fd, escape::ALLOC, &mut call_params)? };
    Ok(call_params)
}

/// Makes a control call; returns its status.
pub(super) fn control(
    fd: BorrowedFd<'_>,
    client: Handle,
    object: Handle,
    command: u32,
    params: &mut [u8],
) -> io::Result<u32> {
    let (address, params_size) = lend(params)?;
    let mut call_params =
        Control { client, object, command, params: address, params_size, ..Default::default() };
    // SAFETY: as for `alloc`; the controls used here have parameters without addresses.
    unsafe { call(fd, escape::CONTROL, &mut call_params)? };
    Ok(call_params.status)
}

/// Makes a mapping's pages an object; returns the status. The module holds the pages from then on, whatever
/// becomes of the mapping.
pub(super) fn alloc_pages(fd: BorrowedFd<'_>, new: NewPages<'_>) -> io::Result<u32> {
    let refuse = || io::Error::from(io::ErrorKind::InvalidInput);
    let inside = new.offset.checked_add(new.size).is_some_and(|end| end <= new.memory.size());
    if !inside || new.size == 0 {
        return Err(refuse());
    }
    let mut call_params = AllocMemory {
        root: new.client,
        parent: new.device,
        object: new.object,
        class: crate::rm::abi::classes::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR.number,
        flags: flags::REGISTER_PAGES,
        memory: (new.memory.address() as u64).checked_add(new.offset).ok_or_else(refuse)?,
        limit: new.size - 1,
        fd: -1,
        ..Default::default()
    };
    // SAFETY: the range lies inside a shared mapping, which others may write at any time anyway.
    unsafe { call(fd, escape::ALLOC_MEMORY, &mut call_params)? };
    Ok(call_params.status)
}

/// The next event: it, whether more wait, and the status.
pub(super) fn next_event(fd: BorrowedFd<'_>) -> io::Result<(EventData, bool, u32)> {
    let mut event = EventData::default();
    let mut call_params = GetEventData { event: (&raw mut event).addr() as u64, more: 0, status: 0 };
    // SAFETY: the only address is that of `event`, which outlives the call and has the size that is written.
    unsafe { call(fd, escape::GET_EVENT_DATA, &mut call_params)? };
    Ok((event, call_params.more != 0, call_params.status))
}

/// Address and length of a buffer, for a structure.
fn lend(buffer: &mut [u8]) -> io::Result<(u64, u32)> {
    let size = u32::try_from(buffer.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let address = if buffer.is_empty() { 0 } else { buffer.as_mut_ptr().addr() as u64 };
    Ok((address, size))
}

/// Makes one ioctl, again when a signal came in between.
///
/// # Safety
/// Every address in the structure must be valid for what the call does with it.
unsafe fn call<T: FromBytes + IntoBytes>(fd: BorrowedFd<'_>, escape: u8, params: &mut T) -> io::Result<()> {
    let size = u32::try_from(size_of::<T>()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // _IOWR('F', escape, T).
    let request = 3 << 30 | size << 16 | u32::from(b'F') << 8 | u32::from(escape);
    loop {
        // SAFETY: the structure is valid for reads and writes of its size, which the request carries; what is
        // inside is the caller's.
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::c_ulong::from(request), &raw mut *params) };
        if result >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if !matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) {
            return Err(error);
        }
    }
}
