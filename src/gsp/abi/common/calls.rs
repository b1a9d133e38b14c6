//! The bodies of RPC functions as values, and the writing of answers into them: an answer is in the body of
//! its request.

use zerocopy::{FromBytes, IntoBytes};

use super::control::NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS;
use super::controls::memory::set_page_directory;
use super::rpc::*;
use crate::abi::status::{Status, code};
use crate::abi::values::{Id, PageDirectory};

/// GSP_RM_CONTROL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlRequest {
    /// The object that it is sent to.
    pub id: Id,
    /// Number of the control.
    pub command: u32,
    size: u32,
}

/// GSP_RM_ALLOC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocateRequest {
    /// The new object; its handle may be 0.
    pub id: Id,
    /// Handle of its parent.
    pub parent: u32,
    /// Its class.
    pub class: u32,
    size: u32,
}

/// ALLOC_MEMORY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryListRequest {
    /// The new object.
    pub id: Id,
    /// Handle of its device.
    pub device: u32,
    /// Its class.
    pub class: u32,
    /// Pages.
    pub pages: u32,
}

/// UPDATE_BAR_PDE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarEntry {
    /// Which BAR, as its page tables are called: 1, or 2 for BAR3.
    pub bar: u8,
    /// The raw GMMU entry.
    pub entry: u64,
    /// log2 of the virtual addresses that the entry covers.
    pub shift: u64,
}

fn read<T: FromBytes>(body: &[u8]) -> Result<T, Status> {
    T::read_from_prefix(body).map(|(value, _)| value).map_err(|_| Status::InvalidParamStruct)
}

fn put<T: IntoBytes + zerocopy::Immutable>(value: &T, body: &mut [u8]) -> Result<(), Status> {
    value.write_to_prefix(body).map_err(|_| Status::InvalidParamStruct)
}

impl ControlRequest {
    /// What is asked for.
    ///
    /// # Errors
    /// The body is too short.
    pub fn read(body: &[u8]) -> Result<Self, Status> {
        let header: rpc_gsp_rm_control_v03_00 = read(body)?;
        let id = Id { client: header.hClient, handle: header.hObject };
        Ok(Self { id, command: header.cmd, size: header.paramsSize })
    }

    /// The parameters.
    ///
    /// # Errors
    /// There are fewer bytes than it says.
    pub fn parameters<'a>(&self, body: &'a mut [u8]) -> Result<&'a mut [u8], Status> {
        let size = usize::try_from(self.size).map_err(|_| Status::InvalidParamStruct)?;
        let parameters = body.get_mut(size_of::<rpc_gsp_rm_control_v03_00>()..);
        parameters.and_then(|parameters| parameters.get_mut(..size)).ok_or(Status::InvalidParamStruct)
    }

    /// Writes how it ended.
    ///
    /// # Errors
    /// The body is too short.
    pub fn answer(body: &mut [u8], outcome: Result<(), Status>) -> Result<(), Status> {
        let header: rpc_gsp_rm_control_v03_00 = read(body)?;
        put(&rpc_gsp_rm_control_v03_00 { status: code(outcome), ..header }, body)
    }
}

impl AllocateRequest {
    /// What is asked for.
    ///
    /// # Errors
    /// The body is too short.
    pub fn read(body: &[u8]) -> Result<Self, Status> {
        let header: rpc_gsp_rm_alloc_v03_00 = read(body)?;
        let id = Id { client: header.hClient, handle: header.hObject };
        Ok(Self { id, parent: header.hParent, class: header.hClass, size: header.paramsSize })
    }

    /// The parameters.
    ///
    /// # Errors
    /// There are fewer bytes than it says.
    pub fn parameters<'a>(&self, body: &'a [u8]) -> Result<&'a [u8], Status> {
        let size = usize::try_from(self.size).map_err(|_| Status::InvalidParamStruct)?;
        let parameters = body.get(size_of::<rpc_gsp_rm_alloc_v03_00>()..);
        parameters.and_then(|parameters| parameters.get(..size)).ok_or(Status::InvalidParamStruct)
    }

    /// Writes how it ended, and by which handle the object goes.
    ///
    /// # Errors
    /// The body is too short.
    pub fn answer(body: &mut [u8], handle: u32, outcome: Result<(), Status>) -> Result<(), Status> {
        let header: rpc_gsp_rm_alloc_v03_00 = read(body)?;
        put(&rpc_gsp_rm_alloc_v03_00 { status: code(outcome), hObject: handle, ..header }, body)
    }
}

impl MemoryListRequest {
    /// What is asked for.
    ///
    /// # Errors
    /// The body is too short for the list, or says two lengths.
    pub fn read(body: &[u8]) -> Result<Self, Status> {
        let (list, entries) =
            rpc_alloc_memory_v13_01::read_from_prefix(body).map_err(|_| Status::InvalidParamStruct)?;
        let bytes = usize::try_from(list.entries()).ok().and_then(|count| count.checked_mul(8));
        if bytes.is_none_or(|bytes| bytes > entries.len()) || list.pageCount != list.entries() {
            return Err(Status::InvalidParamStruct);
        }
        let id = Id { client: list.hClient, handle: list.hMemory };
        Ok(Self { id, device: list.hDevice, class: list.hClass, pages: list.pageCount })
    }
}

impl BarEntry {
    /// What is given.
    ///
    /// # Errors
    /// The body is too short, or there is no such BAR.
    pub fn read(body: &[u8]) -> Result<Self, Status> {
        let update: rpc_update_bar_pde_v15_00 = read(body)?;
        let bar = match update.barType {
            NV_RPC_UPDATE_PDE_BAR_1 => 1,
            NV_RPC_UPDATE_PDE_BAR_2 => 2,
            _ => return Err(Status::InvalidArgument),
        };
        Ok(Self { bar, entry: update.entryValue, shift: update.entryLevelShift })
    }
}

/// DUP_OBJECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateRequest {
    /// The new name; its handle may be 0.
    pub id: Id,
    /// Handle of its parent.
    pub parent: u32,
    /// The object that is named.
    pub source: Id,
}

impl DuplicateRequest {
    /// What is asked for.
    ///
    /// # Errors
    /// The body is too short.
    pub fn read(body: &[u8]) -> Result<Self, Status> {
        let asked: NVOS55_PARAMETERS_v03_00 = read(body)?;
        Ok(Self {
            id: Id { client: asked.hClient, handle: asked.hObject },
            parent: asked.hParent,
            source: Id { client: asked.hClientSrc, handle: asked.hObjectSrc },
        })
    }

    /// Writes how it ended, and by which handle the object goes.
    ///
    /// # Errors
    /// The body is too short.
    pub fn answer(body: &mut [u8], handle: u32, outcome: Result<(), Status>) -> Result<(), Status> {
        let asked: NVOS55_PARAMETERS_v03_00 = read(body)?;
        put(&NVOS55_PARAMETERS_v03_00 { status: code(outcome), hObject: handle, ..asked }, body)
    }
}

/// SET_PAGE_DIRECTORY: whose, and where.
///
/// # Errors
/// The body is too short, or the directory in no memory.
pub fn page_directory(body: &[u8]) -> Result<(Id, PageDirectory), Status> {
    let (head, rest) =
        rpc_set_page_directory_v1E_05::read_from_prefix(body).map_err(|_| Status::InvalidParamStruct)?;
    let wanted = set_page_directory(&read(rest)?)?;
    Ok((Id { client: head.hClient, handle: head.hDevice }, wanted))
}

/// UNSET_PAGE_DIRECTORY: the device, and the handle of the address space.
///
/// # Errors
/// The body is too short.
pub fn no_page_directory(body: &[u8]) -> Result<(Id, u32), Status> {
    let (head, rest) =
        rpc_unset_page_directory_v1E_05::read_from_prefix(body).map_err(|_| Status::InvalidParamStruct)?;
    let space = read::<NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS>(rest)?.hVASpace;
    Ok((Id { client: head.hClient, handle: head.hDevice }, space))
}

/// FREE: what goes.
///
/// # Errors
/// The body is too short.
pub fn free(body: &[u8]) -> Result<Id, Status> {
    let parameters: NVOS00_PARAMETERS_v03_00 = read(body)?;
    Ok(Id { client: parameters.hRoot, handle: parameters.hObjectOld })
}

/// FREE: writes how it ended.
///
/// # Errors
/// The body is too short.
pub fn answer_free(body: &mut [u8], outcome: Result<(), Status>) -> Result<(), Status> {
    let parameters: NVOS00_PARAMETERS_v03_00 = read(body)?;
    put(&NVOS00_PARAMETERS_v03_00 { status: code(outcome), ..parameters }, body)
}

/// UNLOADING_GUEST_DRIVER: true when the driver will come back.
///
/// # Errors
/// The body is too short.
pub fn is_suspend(body: &[u8]) -> Result<bool, Status> {
    let parameters: rpc_unloading_guest_driver_v1F_07 = read(body)?;
    Ok(parameters.bInPMTransition != 0)
}

/// SET_REGISTRY: true when all of the table is there.
///
/// # Errors
/// The body is too short.
pub fn has_registry(body: &[u8]) -> Result<bool, Status> {
    let table: PACKED_REGISTRY_TABLE = read(body)?;
    Ok(usize::try_from(table.size).is_ok_and(|size| size <= body.len()))
}

/// Bytes that the body of a function has by what its beginning says.
pub fn length(function: u32, body: &[u8]) -> usize {
    let (fixed, variable) = match function {
        NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL => {
            read(body).map_or((0, 0), |rpc: rpc_gsp_rm_control_v03_00| (size_of_val(&rpc), rpc.paramsSize))
        }
        NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC => {
            read(body).map_or((0, 0), |rpc: rpc_gsp_rm_alloc_v03_00| (size_of_val(&rpc), rpc.paramsSize))
        }
        NV_VGPU_MSG_FUNCTION_ALLOC_MEMORY => read(body).map_or((0, 0), |rpc: rpc_alloc_memory_v13_01| {
            (size_of_val(&rpc), rpc.entries().saturating_mul(8))
        }),
        NV_VGPU_MSG_FUNCTION_SET_REGISTRY => {
            read(body).map_or((0, 0), |table: PACKED_REGISTRY_TABLE| (0, table.size))
        }
        _ => (0, 0),
    };
    fixed.saturating_add(usize::try_from(variable).unwrap_or(usize::MAX))
}
