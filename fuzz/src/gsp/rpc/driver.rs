//! A driver of one version, for one chip.

use gpuvmk::gsp::abi::common::classes::{
    FERMI_VASPACE_A, NV01_DEVICE_0, NV01_EVENT, NV01_EVENT_KERNEL_CALLBACK_EX, NV01_MEMORY_LIST_FBMEM,
    NV01_MEMORY_LIST_SYSTEM, NV01_ROOT, NV20_SUBDEVICE_0,
};
use gpuvmk::gsp::abi::common::rpc::NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO;
use gpuvmk::gsp::abi::r570_144::object::NV_CHANNEL_ALLOC_PARAMS;
use gpuvmk::gsp::abi::table::{ClassNumber, Type};
use gpuvmk::gsp::abi::{self, Abi};
use gpuvmk::gsp::hal::{GH100, GspHal};
use zerocopy::IntoBytes;

use crate::gsp_queues::Queues;

/// What a driver speaks, and for which chip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Driver {
    pub abi: &'static Abi,
    pub chip: &'static GspHal,
}

impl Driver {
    /// A driver of a GH100 that speaks the version that is taken until it says which.
    pub(crate) fn usual() -> Self {
        Self { abi: abi::usual(), chip: &GH100 }
    }

    /// The classes of the chip, a channel's first.
    pub(super) fn chip_classes(self) -> Vec<u32> {
        let classes = self.chip.classes();
        classes.for_tenants().iter().map(|class| class.number).collect()
    }

    pub(super) fn channel_class(self) -> u32 {
        self.chip_classes()[0]
    }

    pub(super) fn copy_class(self) -> u32 {
        self.chip_classes()[1]
    }

    /// Any class that a driver allocates; channels often.
    pub(super) fn classes(self) -> Vec<u32> {
        let mut all = vec![
            NV01_ROOT,
            NV01_DEVICE_0,
            NV20_SUBDEVICE_0,
            FERMI_VASPACE_A,
            self.channel_class(),
            NV01_EVENT,
            NV01_EVENT_KERNEL_CALLBACK_EX,
            NV01_MEMORY_LIST_SYSTEM,
            NV01_MEMORY_LIST_FBMEM,
        ];
        all.extend(self.chip_classes());
        all.extend(self.abi.classes().filter_map(|class| match class.number {
            ClassNumber::Fixed(number) => Some(number),
            _ => None,
        }));
        all.extend(self.chip.classes().display.map(|class| class.number));
        all
    }

    /// What a channel is allocated with: the newest version's begins with that of all.
    pub(super) fn channel(self, parameters: &NV_CHANNEL_ALLOC_PARAMS) -> Vec<u8> {
        let known = self.abi.classes().find(|class| class.object() == Type::Channel);
        let size = known.map_or(0, |class| class.size);
        parameters.as_bytes().get(..size).unwrap_or(parameters.as_bytes()).to_vec()
    }

    pub(super) fn root(self, client: u32) -> Vec<u8> {
        let mut parameters = vec![0; self.abi.client_parameters];
        parameters[..4].copy_from_slice(&client.to_le_bytes());
        parameters
    }

    /// What a driver says first: the length says which version it speaks.
    pub(crate) fn hello(self, queues: &Queues) -> Vec<u8> {
        queues.record(NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO, &vec![0; self.abi.system_info])
    }
}
