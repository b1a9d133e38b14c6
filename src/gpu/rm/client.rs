//! A client of the NVIDIA driver: the root of a tree of objects, and calls on them with their names.
//!
//! The client keeps its own list of what it has made, so that what is freed and what is left can be checked
//! against the driver's list.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::abi::Handle;
use super::abi::calls::{EventData, MapDma, UnmapDma};
use super::abi::classes::{Class, NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, NV01_ROOT_CLIENT, RootParams};
use super::abi::controls::{ControlParams, HandleInfo};
use super::error::RmError;
use super::kernel::{CpuView, Kernel, NewObject, NewPages, Node};
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::mapping::{Access, FilePiece, Mapping};

/// First handle; far from the driver's own.
const FIRST_HANDLE: u32 = 0x5a00_0001;

/// Freed objects that are remembered.
const FREED_KEPT: usize = 256;

/// An object in the client's books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Handle of the parent.
    pub parent: Handle,
    /// Its class.
    pub class: Class,
}

/// A client of the NVIDIA driver, with the objects that it has made.
pub struct Client {
    kernel: Arc<dyn Kernel>,
    root: Handle,
    next: u32,
    objects: OrderedMap<Handle, Object>,
    /// The last ones that were freed, for comparing with the driver's list.
    freed: VecDeque<Handle>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("root", &self.root).field("objects", &self.objects.len()).finish()
    }
}

impl Client {
    /// A new client.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new(kernel: Arc<dyn Kernel>) -> Result<Self, RmError> {
        let mut params = RootParams::default();
        let new = NewObject {
            client: Handle::NONE,
            parent: Handle::NONE,
            object: Handle::NONE,
            class: NV01_ROOT_CLIENT,
        };
        let root = kernel
            .alloc(new, params.as_mut_bytes())
            .map_err(|error| RmError::new("a client (NV01_ROOT_CLIENT)", error))?;
        Ok(Self { kernel, root, next: FIRST_HANDLE, objects: OrderedMap::new(), freed: VecDeque::new() })
    }

    /// Its own handle, the parent of devices.
    pub fn root(&self) -> Handle {
        self.root
    }

    /// The kernel's side.
    pub fn kernel(&self) -> &dyn Kernel {
        self.kernel.as_ref()
    }

    /// The objects that it has made and not freed.
    pub fn objects(&self) -> impl Iterator<Item = (Handle, Object)> + '_ {
        self.objects.iter().map(|(handle, object)| (*handle, *object))
    }

    fn number(&mut self) -> Handle {
        loop {
            let handle = Handle(self.next);
            self.next = if self.next >= FIRST_HANDLE + 0x00ff_ffff { FIRST_HANDLE } else { self.next + 1 };
            if !self.objects.contains_key(&handle) {
                return handle;
            }
        }
    }

    /// Makes an object; the parameters come back as the driver left them.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn alloc<P>(&mut self, parent: Handle, class: Class, params: &mut P) -> Result<Handle, RmError>
    where
        P: FromBytes + IntoBytes + KnownLayout + Immutable,
    {
        let object = self.number();
        let new = NewObject { client: self.root, parent, object, class };
        let made = self
            .kernel
            .alloc(new, params.as_mut_bytes())
            .map_err(|error| RmError::new(format!("an object of class {}", class.name), error))?;
        self.objects.insert(made, Object { parent, class });
        Ok(made)
    }

    /// Makes an object of a class that takes no parameters.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn alloc_plain(&mut self, parent: Handle, class: Class) -> Result<Handle, RmError> {
        let object = self.number();
        let new = NewObject { client: self.root, parent, object, class };
        let made = self
            .kernel
            .alloc(new, &mut [])
            .map_err(|error| RmError::new(format!("an object of class {}", class.name), error))?;
        self.objects.insert(made, Object { parent, class });
        Ok(made)
    }

    /// Makes a part of a mapping an object that the GPU can be shown.
    ///
    /// # Errors
    /// The driver refuses, or the pages cannot be held.
    pub fn alloc_pages(
        &mut self,
        file: BorrowedFd<'_>,
        device: Handle,
        memory: &Mapping,
        offset: u64,
        size: u64,
    ) -> Result<Handle, RmError> {
        let object = self.number();
        let new = NewPages { client: self.root, device, object, memory, offset, size };
        self.kernel
            .alloc_pages(file, new)
            .map_err(|error| RmError::new(format!("{size:#x} bytes of system memory for the GPU"), error))?;
        self.objects.insert(object, Object { parent: device, class: NV01_MEMORY_SYSTEM_OS_DESCRIPTOR });
        Ok(object)
    }

    /// Frees an object and what is below it.
    ///
    /// # Errors
    /// The driver refuses; the books keep it then.
    pub fn free(&mut self, object: Handle) -> Result<(), RmError> {
        let Some(known) = self.objects.get(&object).copied() else { return Ok(()) };
        self.kernel.free(self.root, known.parent, object).map_err(|error| {
            RmError::new(format!("to free an object of class {}", known.class.name), error)
        })?;
        self.forget(object);
        Ok(())
    }

    /// A handle for an object that another thread makes.
    pub fn reserve(&mut self) -> Handle {
        self.number()
    }

    /// Takes an object into the books that was made with a reserved handle.
    pub fn adopt(&mut self, object: Handle, parent: Handle, class: Class) {
        self.objects.insert(object, Object { parent, class });
    }

    /// The kernel's side, for another thread.
    pub fn shared_kernel(&self) -> Arc<dyn Kernel> {
        Arc::clone(&self.kernel)
    }

    /// Takes an object that was freed out of the books, and what was below it.
    pub fn forget(&mut self, object: Handle) {
        let mut gone = vec![object];
        while let Some(parent) = gone.pop() {
            self.objects.remove(&parent);
            self.freed.push_back(parent);
            if self.freed.len() > FREED_KEPT {
                self.freed.pop_front();
            }
            gone.extend(self.objects.iter().filter(|(_, o)| o.parent == parent).map(|(handle, _)| *handle));
        }
    }

    /// A control call; the parameters come back as the driver left them.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn control<C: ControlParams>(&self, object: Handle, params: &mut C) -> Result<(), RmError> {
        self.kernel
            .control(self.root, object, C::COMMAND, params.as_mut_bytes())
            .map_err(|error| RmError::new(C::NAME, error))
    }

    /// True if the driver itself has an object of that handle.
    ///
    /// # Errors
    /// The driver refuses to say.
    pub fn has_object(&self, object: Handle) -> Result<bool, RmError> {
        let mut params = HandleInfo { object, index: 2, data: 0 };
        match self.control(self.root, &mut params) {
            Ok(()) => Ok(true),
            Err(error) if error.status() == Some(super::abi::RmStatus::ERR_OBJECT_NOT_FOUND) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Objects that were freed lately, children included.
    pub fn freed(&self) -> impl Iterator<Item = Handle> + '_ {
        self.freed.iter().copied()
    }

    /// A file that shows a part of an object. It must be mapped whole and from offset 0.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn cpu_file(
        &self,
        node: Node,
        device: Handle,
        memory: Handle,
        offset: u64,
        size: u64,
    ) -> Result<OwnedFd, RmError> {
        let file = self
            .kernel
            .open(node)
            .map_err(|source| RmError::System { call: format!("another file of {node}"), source })?;
        let view = CpuView { client: self.root, device, memory, offset, size };
        self.kernel
            .map_cpu(view, file.as_fd())
            .map_err(|error| RmError::new(format!("a CPU mapping of {size:#x} bytes"), error))?;
        Ok(file)
    }

    /// Maps a part of an object here.
    ///
    /// # Errors
    /// The driver or the kernel refuses.
    pub fn cpu_mapping(
        &self,
        node: Node,
        device: Handle,
        memory: Handle,
        size: u64,
        what: &'static str,
    ) -> Result<Mapping, RmError> {
        let file = self.cpu_file(node, device, memory, 0, size)?;
        map_file(&file, size, what)
    }

    /// Maps into a GPU address space.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn map_dma(&self, call: MapDma) -> Result<(), RmError> {
        let MapDma { va, length, .. } = call;
        self.kernel
            .map_dma(MapDma { client: self.root, ..call })
            .map_err(|error| RmError::new(format!("to map {length:#x} bytes at {va:#x}"), error))
    }

    /// Unmaps from a GPU address space.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn unmap_dma(&self, call: UnmapDma) -> Result<(), RmError> {
        let UnmapDma { va, size, .. } = call;
        self.kernel
            .unmap_dma(UnmapDma { client: self.root, ..call })
            .map_err(|error| RmError::new(format!("to unmap {size:#x} bytes at {va:#x}"), error))
    }

    /// A file that events can wake.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn event_file(&self) -> Result<OwnedFd, RmError> {
        self.kernel.event_file(self.root).map_err(|error| RmError::new("a file for events", error))
    }

    /// The next event of such a file, and whether more wait.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn next_event(&self, file: BorrowedFd<'_>) -> Result<Option<(EventData, bool)>, RmError> {
        self.kernel.next_event(file).map_err(|error| RmError::new("the next event", error))
    }
}

/// Maps a file that [`Client::cpu_file`] made.
pub(super) fn map_file(file: &OwnedFd, size: u64, what: &'static str) -> Result<Mapping, RmError> {
    let piece = FilePiece { fd: file.as_fd(), offset: 0, size };
    Mapping::granted(&[piece], Access::ReadWrite).map_err(|source| RmError::Mapping { what, source })
}

impl Drop for Client {
    fn drop(&mut self) {
        // Takes everything with it. The kernel does the same when the control file is closed.
        if let Err(error) = self.kernel.free(self.root, Handle::NONE, self.root) {
            log::debug!("A client of the NVIDIA driver was not freed: {error:?}");
        }
    }
}
