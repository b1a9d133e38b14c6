//! Controls that ask what the GPU is, and where it is on the bus.

use zerocopy::FromZeros;

use crate::abi::common::control::{parameters, put};
use crate::abi::nvidia::control::{
    NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS, NV2080_CTRL_BUS_INFO_PCIE_LINK_CAP,
    NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS, NV2080_CTRL_GPU_INFO_INDEX, NV2080_CTRL_GSP_GET_FEATURES,
    NV2080_CTRL_GSP_GET_FEATURES_PARAMS, NVXXXX_CTRL_XXX_INFO,
};
use crate::abi::nvidia::numbers::numbers;
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall, controls};
use crate::abi::values::{Identity, Names};

numbers! {
    NV0080_CTRL_CMD_GPU_GET_BRAND_CAPS = 0x0080_0294, 4;
    NV2080_CTRL_CMD_GPU_GET_NAME_STRING = 0x2080_0110, 132;
    NV2080_CTRL_CMD_GPU_GET_SHORT_NAME_STRING = 0x2080_0111, 64;
    NV2080_CTRL_CMD_GPU_QUERY_ECC_CONFIGURATION = 0x2080_0133, 8;
    NV2080_CTRL_CMD_GPU_GET_OEM_BOARD_INFO = 0x2080_013f, 136;
    NV2080_CTRL_CMD_GPU_GET_INFOROM_OBJECT_VERSION = 0x2080_014b, 5;
    NV2080_CTRL_CMD_GPU_GET_VMMU_SEGMENT_SIZE = 0x2080_017e, 8;
    NV2080_CTRL_CMD_GPU_GET_RESET_STATUS = 0x2080_01ab, 1;
    NV2080_CTRL_CMD_GPU_GET_DRAIN_AND_RESET_STATUS = 0x2080_01ae, 1;
    NV2080_CTRL_CMD_BIOS_GET_INFO_V2 = 0x2080_0810, 124;
    NV2080_CTRL_CMD_INTERNAL_GPU_GET_USER_REGISTER_ACCESS_MAP = 0x2080_0a41, 8204;
    NV2080_CTRL_CMD_INTERNAL_BIF_GET_STATIC_INFO = 0x2080_0aac, 16;
    NV2080_CTRL_CMD_BUS_GET_PCI_BAR_INFO = 0x2080_1803, 200;
    NV2080_CTRL_CMD_BUS_GET_INFO_V2 = 0x2080_1823, 420;
    NV2080_CTRL_CMD_BUS_GET_PCIE_SUPPORTED_GPU_ATOMICS = 0x2080_182a, 104;
    NV2080_CTRL_CMD_BUS_GET_C2C_INFO = 0x2080_182b, 28;
}

/// Units of the GPU whose registers a driver finds by this table (`regBases`): graphics, timer, master,
/// usermode. Those that it need not find have no base.
pub const REG_BASES: [u32; 16] = {
    let mut bases = [u32::MAX; 16];
    [bases[1], bases[2], bases[3], bases[4]] = [0x40_0000, 0x9000, 0, 0xbb_0000];
    bases
};

controls! {
    source "open-gpu-kernel-modules ctrl0080gpu.h, ctrl2080gpu.h, ctrl2080bios.h, ctrl2080bus.h, ctrl2080gsp.h, ctrl2080internal.h";
    /// Which brand the card is sold under: none.
    NV0080_CTRL_CMD_GPU_GET_BRAND_CAPS on Device, size::NV0080_CTRL_CMD_GPU_GET_BRAND_CAPS => Answer::Zeroes;
    /// The name of the GPU.
    NV2080_CTRL_CMD_GPU_GET_NAME_STRING on Subdevice, size::NV2080_CTRL_CMD_GPU_GET_NAME_STRING
        => Answer::Handler(ControlCall::Names(put_name));
    /// The name of the chip.
    NV2080_CTRL_CMD_GPU_GET_SHORT_NAME_STRING on Subdevice, size::NV2080_CTRL_CMD_GPU_GET_SHORT_NAME_STRING
        => Answer::Handler(ControlCall::Names(put_short_name));
    /// Whether it will be.
    NV2080_CTRL_CMD_GPU_QUERY_ECC_CONFIGURATION on Subdevice, size::NV2080_CTRL_CMD_GPU_QUERY_ECC_CONFIGURATION
        => Answer::Zeroes;
    /// What the card's maker wrote into it: nothing.
    NV2080_CTRL_CMD_GPU_GET_OEM_BOARD_INFO on Subdevice, size::NV2080_CTRL_CMD_GPU_GET_OEM_BOARD_INFO => Answer::Zeroes;
    /// The version of an object in the card's memory for such. There is none.
    NV2080_CTRL_CMD_GPU_GET_INFOROM_OBJECT_VERSION on Subdevice, size::NV2080_CTRL_CMD_GPU_GET_INFOROM_OBJECT_VERSION
        => Answer::Handler(ControlCall::Computed(|_| Err(Status::ObjectNotFound)));
    /// Whether the GPU has to be reset: it has not.
    NV2080_CTRL_CMD_GPU_GET_RESET_STATUS on Subdevice, size::NV2080_CTRL_CMD_GPU_GET_RESET_STATUS => Answer::Zeroes;
    /// Whether its work should end for that: it need not.
    NV2080_CTRL_CMD_GPU_GET_DRAIN_AND_RESET_STATUS on Subdevice, size::NV2080_CTRL_CMD_GPU_GET_DRAIN_AND_RESET_STATUS
        => Answer::Zeroes;
    /// How VRAM is cut between virtual functions: there are none.
    NV2080_CTRL_CMD_GPU_GET_VMMU_SEGMENT_SIZE on Subdevice, size::NV2080_CTRL_CMD_GPU_GET_VMMU_SEGMENT_SIZE
        => Answer::Zeroes;
    /// What the VBIOS says by number. There is none.
    NV2080_CTRL_CMD_BIOS_GET_INFO_V2 on Subdevice, size::NV2080_CTRL_CMD_BIOS_GET_INFO_V2
        => Answer::Handler(ControlCall::Computed(|_| Err(Status::NotSupported)));
    /// Which registers a program may have read and written for it: none.
    NV2080_CTRL_CMD_INTERNAL_GPU_GET_USER_REGISTER_ACCESS_MAP on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_GPU_GET_USER_REGISTER_ACCESS_MAP => Answer::Zeroes;
    /// How the GPU is connected: by PCIe, without a link to a processor's memory.
    NV2080_CTRL_CMD_INTERNAL_BIF_GET_STATIC_INFO on Subdevice, size::NV2080_CTRL_CMD_INTERNAL_BIF_GET_STATIC_INFO
        => Answer::Zeroes;
    /// The BARs. A driver asks with what was on its stack, and believes any number of them.
    NV2080_CTRL_CMD_BUS_GET_PCI_BAR_INFO on Subdevice, size_of::<NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS>()
        => Answer::Handler(ControlCall::Identity(put_bars));
    /// Properties of the bus by number: the generation of PCIe, and 0 for others.
    NV2080_CTRL_CMD_BUS_GET_INFO_V2 on Subdevice, size::NV2080_CTRL_CMD_BUS_GET_INFO_V2
        => Answer::Handler(ControlCall::Computed(put_bus_info));
    /// Which atomic operations over PCIe the GPU takes: none.
    NV2080_CTRL_CMD_BUS_GET_PCIE_SUPPORTED_GPU_ATOMICS on Subdevice,
        size::NV2080_CTRL_CMD_BUS_GET_PCIE_SUPPORTED_GPU_ATOMICS => Answer::Zeroes;
    /// The link to a processor's memory: there is none.
    NV2080_CTRL_CMD_BUS_GET_C2C_INFO on Subdevice, size::NV2080_CTRL_CMD_BUS_GET_C2C_INFO => Answer::Zeroes;
}

/// Writes that the firmware of a version runs.
pub fn put_features(version: &str, raw: &mut [u8]) {
    let mut features = NV2080_CTRL_GSP_GET_FEATURES_PARAMS::new_zeroed();
    (features.bValid, features.bDefaultGspRmGpu) = (1, 1);
    // Without it libraries have no managed memory.
    features.gspFeatures = NV2080_CTRL_GSP_GET_FEATURES::UVM_ENABLED.of(1);
    features.firmwareVersion.iter_mut().zip(version.bytes()).for_each(|(to, from)| *to = from);
    put(raw, &features);
}

/// The numbers of a function and of its board as a driver reads them from the configuration space.
pub fn numbers(identity: &Identity) -> [u32; 2] {
    let number = |[vendor, device]: [u16; 2]| u32::from(device) << 16 | u32::from(vendor);
    [
        number([identity.pci.vendor, identity.pci.device]),
        number([identity.pci.subsystem_vendor, identity.pci.subsystem]),
    ]
}

fn put_bars(identity: &Identity, raw: &mut [u8]) {
    let mut info = NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS::new_zeroed();
    for ((to, size), offset) in info.pciBarInfo.iter_mut().zip(identity.pci.bars).zip(identity.host.bars) {
        to.barSize = u32::try_from(size >> 20).unwrap_or(u32::MAX);
        to.barSizeBytes = size;
        to.barOffset = offset;
        info.pciBarCount = info.pciBarCount.saturating_add(1);
    }
    put(raw, &info);
}

fn put_name(names: &Names, raw: &mut [u8]) {
    let NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS { gpuNameStringFlags, .. } = parameters(raw);
    let mut name = NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS { gpuNameStringFlags, gpuNameString: [0; 0x80] };
    let letter = if gpuNameStringFlags == 0 { 1 } else { 2 };
    for (to, from) in name.gpuNameString.chunks_mut(letter).take(63).zip(names.long.bytes()) {
        to.first_mut().into_iter().for_each(|to| *to = from);
    }
    put(raw, &name);
}

fn put_short_name(names: &Names, raw: &mut [u8]) {
    raw.fill(0);
    raw.iter_mut().take(63).zip(names.short.bytes()).for_each(|(to, from)| *to = from);
}

/// Calls `value` for each number of a list that is asked for, and writes what it says. The rest of the list's
/// room becomes 0: nothing says what is in it.
///
/// # Errors
/// The list is longer than there is room for.
pub fn put_list(
    raw: &mut [u8],
    mut value: impl FnMut(NVXXXX_CTRL_XXX_INFO) -> NVXXXX_CTRL_XXX_INFO,
) -> Result<(), Status> {
    const ENTRY: usize = size_of::<NVXXXX_CTRL_XXX_INFO>();
    let (count, list) = raw.split_first_chunk_mut::<4>().ok_or(Status::InvalidParamStruct)?;
    let count = usize::try_from(u32::from_le_bytes(*count)).map_err(|_| Status::InvalidArgument)?;
    let used = count.checked_mul(ENTRY).ok_or(Status::InvalidArgument)?;
    let (list, rest) = list.split_at_mut_checked(used).ok_or(Status::InvalidArgument)?;
    rest.fill(0);
    for entry in list.chunks_mut(ENTRY) {
        let answer = value(parameters(entry));
        put(entry, &answer);
    }
    Ok(())
}

/// Writes properties of the GPU by number. Those that the driver does not know itself are 0.
///
/// # Errors
/// The list is longer than there is room for.
pub fn put_gpu_info(raw: &mut [u8]) -> Result<(), Status> {
    // The driver has the values of the others itself.
    put_list(raw, |entry| {
        if !NV2080_CTRL_GPU_INFO_INDEX::FORWARD_TO_PHYSICAL.is_set(entry.index) {
            return entry;
        }
        let index = entry.index & !NV2080_CTRL_GPU_INFO_INDEX::FORWARD_TO_PHYSICAL.mask();
        NVXXXX_CTRL_XXX_INFO { index, data: 0 }
    })
}

/// `NV2080_CTRL_BUS_INFO_INDEX_PCIE_GEN_INFO`.
const PCIE_GEN_INFO: u32 = 0x2d;
/// The fifth generation in each of its fields.
const GENERATION_5: u32 = {
    use NV2080_CTRL_BUS_INFO_PCIE_LINK_CAP::{CURR_LEVEL, GEN, GPU_GEN};
    GEN.of(4) | CURR_LEVEL.of(4) | GPU_GEN.of(4)
};

fn put_bus_info(raw: &mut [u8]) -> Result<(), Status> {
    put_list(raw, |entry| {
        let data = if entry.index == PCIE_GEN_INFO { GENERATION_5 } else { 0 };
        NVXXXX_CTRL_XXX_INFO { data, ..entry }
    })
}
