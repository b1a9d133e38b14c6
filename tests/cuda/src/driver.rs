//! CUDA's driver interface, loaded from libcuda at run time.
#![allow(unsafe_code, reason = "libcuda's functions are unsafe to call")]

mod graph;
mod managed;
mod memory;
mod module;
mod plane;
mod stream;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::rc::Rc;

use anyhow::{Context as _, Result, bail};
use libloading::Library;

pub use graph::Graph;
pub use managed::ManagedMemory;
pub use memory::{DeviceMemory, PinnedMemory};
pub use module::{Module, Shape};
pub use plane::{Corner, Place};
pub use stream::{Event, Stream};

/// What every function returns; 0 is success.
type Status = c_int;
type Device = c_int;
type Handle = *mut c_void;
type Address = u64;

/// Declares the functions: their names in the library, ours, and their parameters.
macro_rules! functions {
    ($($symbol:literal $name:ident($($kind:ty),*);)*) => {
        /// The functions that checks use.
        #[derive(Debug)]
        struct Functions { $($name: unsafe extern "C" fn($($kind),*) -> Status,)* }

        impl Functions {
            fn find(library: &Library) -> Result<Self> {
                $(
                    // SAFETY: the function has these parameters by CUDA's documentation, and is used no
                    // longer than the library is loaded.
                    let $name = *unsafe { library.get(concat!($symbol, "\0").as_bytes()) }
                        .context(concat!("libcuda has no ", $symbol))?;
                )*
                Ok(Self { $($name),* })
            }
        }
    };
}

functions! {
    "cuInit" init(c_uint);
    "cuDriverGetVersion" driver_get_version(*mut c_int);
    "cuGetErrorName" get_error_name(Status, *mut *const c_char);
    "cuDeviceGetCount" device_get_count(*mut c_int);
    "cuDeviceGet" device_get(*mut Device, c_int);
    "cuDeviceGetName" device_get_name(*mut c_char, c_int, Device);
    "cuDeviceGetAttribute" device_get_attribute(*mut c_int, c_int, Device);
    "cuDeviceTotalMem_v2" device_total_mem(*mut usize, Device);
    "cuCtxCreate_v2" ctx_create(*mut Handle, c_uint, Device);
    "cuCtxDestroy_v2" ctx_destroy(Handle);
    "cuCtxSynchronize" ctx_synchronize();
    "cuMemAlloc_v2" mem_alloc(*mut Address, usize);
    "cuMemFree_v2" mem_free(Address);
    "cuMemGetInfo_v2" mem_get_info(*mut usize, *mut usize);
    "cuMemAllocManaged" mem_alloc_managed(*mut Address, usize, c_uint);
    "cuMemPrefetchAsync" mem_prefetch(Address, usize, Device, Handle);
    "cuMemAllocHost_v2" mem_alloc_host(*mut *mut c_void, usize);
    "cuMemFreeHost" mem_free_host(*mut c_void);
    "cuMemcpyHtoD_v2" memcpy_to_device(Address, *const c_void, usize);
    "cuMemcpyDtoH_v2" memcpy_to_host(*mut c_void, Address, usize);
    "cuMemcpyDtoD_v2" memcpy_on_device(Address, Address, usize);
    "cuMemcpyDtoDAsync_v2" memcpy_on_device_async(Address, Address, usize, Handle);
    "cuMemcpyHtoDAsync_v2" memcpy_to_device_async(Address, *const c_void, usize, Handle);
    "cuMemcpyDtoHAsync_v2" memcpy_to_host_async(*mut c_void, Address, usize, Handle);
    "cuMemsetD32_v2" memset_words(Address, c_uint, usize);
    "cuMemsetD8_v2" memset_bytes(Address, u8, usize);
    "cuMemcpy2D_v2" memcpy_plane(*const plane::Copy);
    "cuMemsetD2D32_v2" memset_plane(Address, usize, c_uint, usize, usize);
    "cuModuleLoadData" module_load_data(*mut Handle, *const c_void);
    "cuModuleUnload" module_unload(Handle);
    "cuModuleGetFunction" module_get_function(*mut Handle, Handle, *const c_char);
    "cuLaunchKernel" launch_kernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    "cuLaunchCooperativeKernel" launch_cooperative_kernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void
    );
    "cuStreamWaitEvent" stream_wait_event(Handle, Handle, c_uint);
    "cuStreamBeginCapture_v2" stream_begin_capture(Handle, c_uint);
    "cuStreamEndCapture" stream_end_capture(Handle, *mut Handle);
    "cuGraphGetNodes" graph_get_nodes(Handle, *mut Handle, *mut usize);
    "cuGraphInstantiateWithFlags" graph_instantiate(*mut Handle, Handle, u64);
    "cuGraphLaunch" graph_launch(Handle, Handle);
    "cuGraphDestroy" graph_destroy(Handle);
    "cuGraphExecDestroy" graph_exec_destroy(Handle);
    "cuStreamCreate" stream_create(*mut Handle, c_uint);
    "cuStreamSynchronize" stream_synchronize(Handle);
    "cuStreamDestroy_v2" stream_destroy(Handle);
    "cuEventCreate" event_create(*mut Handle, c_uint);
    "cuEventRecord" event_record(Handle, Handle);
    "cuEventSynchronize" event_synchronize(Handle);
    "cuEventElapsedTime" event_elapsed_time(*mut f32, Handle, Handle);
    "cuEventDestroy_v2" event_destroy(Handle);
}

/// libcuda, initialised.
#[derive(Debug)]
pub struct Driver {
    functions: Functions,
    /// Holds what `functions` points into.
    _library: Library,
}

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its name.
    pub name: String,
    /// Bytes of its memory.
    pub memory: usize,
    /// Its compute capability, such as `(9, 0)`.
    pub capability: (i32, i32),
    /// Its streaming multiprocessors.
    pub processors: i32,
}

/// A context, current on this thread for as long as it lives. One at a time.
#[derive(Debug)]
pub struct Context {
    driver: Rc<Driver>,
    device: Device,
    handle: Handle,
}

impl Driver {
    /// Loads libcuda and initialises it.
    pub fn load() -> Result<Rc<Self>> {
        // SAFETY: the library's initialisers have no requirements.
        let library = unsafe { Library::new("libcuda.so.1") }.context("libcuda.so.1 cannot be loaded")?;
        let functions = Functions::find(&library)?;
        let driver = Self { functions, _library: library };
        // SAFETY: the flags must be 0.
        driver.check("cuInit", unsafe { (driver.functions.init)(0) })?;
        Ok(Rc::new(driver))
    }

    /// The version of CUDA, such as 12040.
    pub fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: the place for the answer is borrowed over the call.
        self.check("cuDriverGetVersion", unsafe { (self.functions.driver_get_version)(&raw mut version) })?;
        Ok(version)
    }

    /// How many devices there are.
    pub fn devices(&self) -> Result<i32> {
        let mut count = 0;
        // SAFETY: the place for the answer is borrowed over the call.
        self.check("cuDeviceGetCount", unsafe { (self.functions.device_get_count)(&raw mut count) })?;
        Ok(count)
    }

    /// What the device of this number says of itself.
    pub fn about(&self, number: u16) -> Result<About> {
        let device = self.device(number)?;
        let mut name: [c_char; 128] = [0; 128];
        // SAFETY: the buffer is as long as is said; the library ends what it writes there with a zero.
        let status = unsafe { (self.functions.device_get_name)(name.as_mut_ptr(), 128, device) };
        self.check("cuDeviceGetName", status)?;
        // SAFETY: the text ends with a zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let mut memory = 0;
        // SAFETY: the place for the answer is borrowed over the call.
        let status = unsafe { (self.functions.device_total_mem)(&raw mut memory, device) };
        self.check("cuDeviceTotalMem", status)?;
        // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR and _MULTIPROCESSOR_COUNT.
        let [major, minor, processors] = [75, 76, 16].map(|which| self.attribute(device, which));
        Ok(About { name, memory, capability: (major?, minor?), processors: processors? })
    }

    fn device(&self, number: u16) -> Result<Device> {
        let mut device = 0;
        // SAFETY: the place for the answer is borrowed over the call.
        self.check("cuDeviceGet", unsafe { (self.functions.device_get)(&raw mut device, number.into()) })?;
        Ok(device)
    }

    fn attribute(&self, device: Device, which: c_int) -> Result<i32> {
        let mut value = 0;
        // SAFETY: the place for the answer is borrowed over the call.
        let status = unsafe { (self.functions.device_get_attribute)(&raw mut value, which, device) };
        self.check("cuDeviceGetAttribute", status)?;
        Ok(value)
    }

    /// The error that a function returned, by its name.
    fn check(&self, function: &str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let mut name = std::ptr::null();
        // SAFETY: the place for the answer is borrowed over the call.
        let known = unsafe { (self.functions.get_error_name)(status, &raw mut name) } == 0 && !name.is_null();
        if !known {
            bail!("{function}: error {status}");
        }
        // SAFETY: the library's own text, which ends with a zero and lives as long as the library.
        let name = unsafe { CStr::from_ptr(name) };
        bail!("{function}: {} ({status})", name.to_string_lossy())
    }
}

impl Context {
    /// A new one on a device.
    pub fn create(driver: &Rc<Driver>, number: u16) -> Result<Rc<Self>> {
        let device = driver.device(number)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place for the answer is borrowed over the call; the device is one of the library's.
        let status = unsafe { (driver.functions.ctx_create)(&raw mut handle, 0, device) };
        driver.check("cuCtxCreate", status)?;
        Ok(Rc::new(Self { driver: Rc::clone(driver), device, handle }))
    }

    /// Waits for everything.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: it has no parameters.
        self.driver.check("cuCtxSynchronize", unsafe { (self.driver.functions.ctx_synchronize)() })
    }

    /// Bytes of memory that are free, and of all.
    pub fn memory_info(&self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the places for the answers are borrowed over the call.
        let status = unsafe { (self.driver.functions.mem_get_info)(&raw mut free, &raw mut total) };
        self.driver.check("cuMemGetInfo", status)?;
        Ok((free, total))
    }

    /// Ends it, and says whether that went well. Memory in it is gone then.
    pub fn destroy(self: Rc<Self>) -> Result<()> {
        let context = Rc::into_inner(self).context("the context is still in use")?;
        let context = std::mem::ManuallyDrop::new(context);
        // SAFETY: the handle is a context's, and is not used afterwards: `drop` does not run.
        let status = unsafe { (context.driver.functions.ctx_destroy)(context.handle) };
        context.driver.check("cuCtxDestroy", status)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the handle is a context's, and is not used afterwards. Nobody is left to hear of a failure.
        let _ = unsafe { (self.driver.functions.ctx_destroy)(self.handle) };
    }
}
