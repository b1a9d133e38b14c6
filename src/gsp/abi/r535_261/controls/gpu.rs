//! Controls that ask what the GPU and its memory are, where other versions have them in another way.

use zerocopy::FromZeros;

use crate::abi::common::control::{CONSTRUCTED_FALCON_INFO_PARAMS_SIZE, parameters, put};
use crate::abi::common::static_info::NV2080_CTRL_GPU_GET_GID_INFO_PARAMS;
use crate::abi::nvidia::control::NV2080_CTRL_GSP_GET_FEATURES_PARAMS;
use crate::abi::nvidia::controls::identity::{REG_BASES, numbers as pci_numbers, put_features, put_gpu_info};
use crate::abi::nvidia::controls::memory::{COMPRESSION_PAGE, put_info};
use crate::abi::nvidia::numbers::numbers;
use crate::abi::r535_113::control::NV2080_CTRL_CMD_INTERNAL_GET_CONSTRUCTED_FALCON_INFO;
use crate::abi::r535_261::control::{
    NV2080_CTRL_INTERNAL_GPU_GET_CHIP_INFO_PARAMS, NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS,
    NV2080_GPU_CMD_GPU_GET_GID_FLAGS, VERSION,
};
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall, controls};
use crate::abi::values::{Identity, MemorySystem};

numbers! {
    NV2080_CTRL_CMD_GPU_GET_INFO_V2 = 0x2080_0102, 516;
    NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS = 0x2080_012f, 984;
    NV2080_CTRL_CMD_GPU_GET_GID_INFO = 0x2080_014a, 268;
    NV2080_CTRL_CMD_INTERNAL_MEMSYS_GET_STATIC_CONFIG = 0x2080_0a1c, 56;
    NV2080_CTRL_CMD_INTERNAL_GPU_GET_CHIP_INFO = 0x2080_0a36, 92;
    NV2080_CTRL_CMD_INTERNAL_GET_DEVICE_INFO_TABLE = 0x2080_0a40, 3172;
    NV2080_CTRL_CMD_INTERNAL_CONF_COMPUTE_GET_STATIC_INFO = 0x2080_0af3, 2;
    NV2080_CTRL_CMD_FB_GET_INFO_V2 = 0x2080_1303, 436;
    NV2080_CTRL_CMD_VGPU_MGR_INTERNAL_SET_VGPU_MGR_CONFIG = 0x2080_400b, 1;
    NV2080_CTRL_CMD_GSP_GET_FEATURES = 0x2080_3601, 72;
}

controls! {
    source "open-gpu-kernel-modules ctrl2080gpu.h, ctrl2080fb.h, ctrl2080gsp.h, ctrl2080internal.h";
    /// Properties by number. Those that the driver does not know itself are 0.
    NV2080_CTRL_CMD_GPU_GET_INFO_V2 on Subdevice, size::NV2080_CTRL_CMD_GPU_GET_INFO_V2
        => Answer::Handler(ControlCall::Computed(put_gpu_info));
    /// Which memory is checked for errors: none.
    NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS on Subdevice, size::NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS => Answer::Zeroes;
    /// The GPU's UUID, as bytes or as text.
    NV2080_CTRL_CMD_GPU_GET_GID_INFO on Subdevice, size_of::<NV2080_CTRL_GPU_GET_GID_INFO_PARAMS>()
        => Answer::Handler(ControlCall::Uuid(put_uuid));
    /// Falcons that need context buffers. There are none.
    NV2080_CTRL_CMD_INTERNAL_GET_CONSTRUCTED_FALCON_INFO on Subdevice, CONSTRUCTED_FALCON_INFO_PARAMS_SIZE
        => Answer::Zeroes;
    /// What the memory system is like: caches, and no compression.
    NV2080_CTRL_CMD_INTERNAL_MEMSYS_GET_STATIC_CONFIG on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS>()
        => Answer::Handler(ControlCall::MemorySystem(put_static_config));
    /// The GPU's numbers on the bus, and where some units have their registers.
    NV2080_CTRL_CMD_INTERNAL_GPU_GET_CHIP_INFO on Subdevice, size_of::<NV2080_CTRL_INTERNAL_GPU_GET_CHIP_INFO_PARAMS>()
        => Answer::Handler(ControlCall::Identity(put_chip_info));
    /// Units by their registers: a driver that leaves them to firmware needs none.
    NV2080_CTRL_CMD_INTERNAL_GET_DEVICE_INFO_TABLE on Subdevice, size::NV2080_CTRL_CMD_INTERNAL_GET_DEVICE_INFO_TABLE
        => Answer::Zeroes;
    /// Confidential computing: there is none, and VRAM may be reached through BARs and PCIe. A driver that is
    /// told otherwise has firmware write its page tables.
    NV2080_CTRL_CMD_INTERNAL_CONF_COMPUTE_GET_STATIC_INFO on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_CONF_COMPUTE_GET_STATIC_INFO => Answer::Constant(&[1, 1]);
    /// Properties of VRAM by number: sizes, and how it is connected.
    NV2080_CTRL_CMD_FB_GET_INFO_V2 on Subdevice, size::NV2080_CTRL_CMD_FB_GET_INFO_V2
        => Answer::Handler(ControlCall::MemoryInfo(put_info));
    /// How a host shares the GPU out, which is no host of this one's.
    NV2080_CTRL_CMD_VGPU_MGR_INTERNAL_SET_VGPU_MGR_CONFIG on Subdevice,
        size::NV2080_CTRL_CMD_VGPU_MGR_INTERNAL_SET_VGPU_MGR_CONFIG => Answer::Acknowledged;
    /// Which firmware runs, and what it can do: UVM's part.
    NV2080_CTRL_CMD_GSP_GET_FEATURES on Subdevice, size_of::<NV2080_CTRL_GSP_GET_FEATURES_PARAMS>()
        => Answer::Handler(ControlCall::Computed(|raw| {
            put_features(VERSION, raw);
            Ok(())
        }));
}

fn put_chip_info(identity: &Identity, raw: &mut [u8]) {
    let mut info = NV2080_CTRL_INTERNAL_GPU_GET_CHIP_INFO_PARAMS::new_zeroed();
    [info.pciDeviceId, info.pciSubDeviceId] = pci_numbers(identity);
    info.pciRevisionId = identity.pci.revision.into();
    let [_, bar1, ..] = identity.pci.bars;
    info.bar1Size = u32::try_from(bar1 >> 20).unwrap_or(u32::MAX);
    info.regBases = REG_BASES;
    put(raw, &info);
}

fn put_static_config(system: &MemorySystem, raw: &mut [u8]) {
    let mut config = NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS::new_zeroed();
    config.bUseRawModeComptaglineAllocation = 1;
    config.bDisableCompbitBacking = (!system.stores_compression_bits).into();
    config.bDisablePostL2Compression = (!system.compresses_behind_l2).into();
    config.l2CacheSize = system.units.l2_bytes.into();
    config.bFbpaPresent = 1;
    (config.comprPageSize, config.comprPageShift) = COMPRESSION_PAGE;
    config.ramType = system.units.ram_type;
    config.ltcCount = system.units.partitions;
    config.ltsPerLtcCount = system.units.partition_slices;
    put(raw, &config);
}

/// The UUID with a zero behind it where it is text, as the driver counts it.
fn put_uuid(uuid: &[u8; 16], raw: &mut [u8]) -> Result<(), Status> {
    use NV2080_GPU_CMD_GPU_GET_GID_FLAGS::{FORMAT, TYPE};
    let asked: NV2080_CTRL_GPU_GET_GID_INFO_PARAMS = parameters(raw);
    if TYPE.is_set(asked.flags) {
        return Err(Status::InvalidArgument);
    }
    let said = match FORMAT.get(asked.flags) {
        FORMAT::ASCII => {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let [a, b, c, d, e, f, g, h, i, j, node @ ..] = *uuid;
            let parts = [hex(&[a, b, c, d]), hex(&[e, f]), hex(&[g, h]), hex(&[i, j]), hex(&node)];
            format!("GPU-{}\0", parts.join("-")).into_bytes()
        }
        FORMAT::BINARY => uuid.to_vec(),
        _ => return Err(Status::InvalidArgument),
    };
    let mut answer = NV2080_CTRL_GPU_GET_GID_INFO_PARAMS { data: [0; 0x100], ..asked };
    answer.length = u32::try_from(said.len()).map_err(|_| Status::InvalidArgument)?;
    answer.data.iter_mut().zip(said).for_each(|(to, from)| *to = from);
    put(raw, &answer);
    Ok(())
}
