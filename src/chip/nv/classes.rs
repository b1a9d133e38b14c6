//! Numbers of classes, and their names.

/// A class: its number, its name for messages, and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Class number.
    pub number: u32,
    /// NVIDIA's name of the class.
    pub name: &'static str,
    /// What its objects do.
    pub role: Role,
}

/// What objects of a class do. Classes of one role have the same methods, as far as they are known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A channel.
    Channel,
    /// Copies, on an engine for that, as all since Kepler do.
    Copy,
    /// Copies, on an engine for that, as Fermi's do.
    FermiCopy,
    /// Copies on Fermi's graphics engine.
    MemoryToMemory,
    /// 3D.
    ThreeD,
    /// Compute.
    Compute,
    /// 2D.
    TwoD,
    /// Writes data of the command stream to memory.
    InlineToMemory,
    /// The page with the doorbell.
    Usermode,
    /// All else: objects of the driver, which no command stream names.
    Other,
}

impl Class {
    /// Its number as SET_OBJECT has it, in 16 bits.
    pub const fn method_class(self) -> u16 {
        let [low, high, ..] = self.number.to_le_bytes();
        u16::from_le_bytes([low, high])
    }
}

macro_rules! classes {
    ($($name:ident = $number:literal $(, $role:ident)?;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            pub const $name: Class =
                Class { number: $number, name: stringify!($name), role: classes!(@role $($role)?) };
        )*

        /// All of them, in ascending order.
        pub const ALL: &[Class] = &[$($name,)*];
    };
    (@role) => { Role::Other };
    (@role $role:ident) => { Role::$role };
}

classes! {
    NV01_ROOT = 0x0000;
    NV01_EVENT = 0x0005;
    NV01_MEMORY_SYSTEM = 0x003e;
    NV01_MEMORY_LOCAL_USER = 0x0040;
    NV01_ROOT_CLIENT = 0x0041;
    NV01_MEMORY_SYSTEM_OS_DESCRIPTOR = 0x0071;
    NV04_DISPLAY_COMMON = 0x0073;
    NV01_EVENT_KERNEL_CALLBACK = 0x0078;
    NV01_EVENT_OS_EVENT = 0x0079;
    NV01_EVENT_KERNEL_CALLBACK_EX = 0x007e;
    NV01_DEVICE_0 = 0x0080;
    NV01_MEMORY_LIST_SYSTEM = 0x0081;
    NV01_MEMORY_LIST_FBMEM = 0x0082;
    NV20_SUBDEVICE_0 = 0x2080;
    NV50_MEMORY_VIRTUAL = 0x50a0;
    FERMI_TWOD_A = 0x902d, TwoD;
    FERMI_MEMORY_TO_MEMORY_FORMAT_A = 0x9039, MemoryToMemory;
    FERMI_CHANNEL_GPFIFO = 0x906f, Channel;
    FERMI_A = 0x9097, ThreeD;
    FERMI_DMA = 0x90b5, FermiCopy;
    FERMI_DECOMPRESS = 0x90b8, FermiCopy;
    FERMI_COMPUTE_A = 0x90c0, Compute;
    FERMI_VASPACE_A = 0x90f1;
    KEPLER_CHANNEL_GROUP_A = 0xa06c;
    KEPLER_INLINE_TO_MEMORY_B = 0xa140, InlineToMemory;
    GP100_UVM_SW = 0xc076;
    TURING_USERMODE_A = 0xc461, Usermode;
    TURING_CHANNEL_GPFIFO_A = 0xc46f, Channel;
    AMPERE_USERMODE_A = 0xc561, Usermode;
    AMPERE_CHANNEL_GPFIFO_A = 0xc56f, Channel;
    TURING_A = 0xc597, ThreeD;
    TURING_DMA_COPY_A = 0xc5b5, Copy;
    TURING_COMPUTE_A = 0xc5c0, Compute;
    HOPPER_USERMODE_A = 0xc661, Usermode;
    GA102_DISP_CURSOR_IMM_CHANNEL_PIO = 0xc67a;
    GA102_DISP_WINDOW_IMM_CHANNEL_DMA = 0xc67b;
    GA102_DISP_WINDOW_CHANNEL_DMA = 0xc67e;
    BLACKWELL_USERMODE_A = 0xc761, Usermode;
    AD102_DISP = 0xc770;
    AD102_DISP_CORE_CHANNEL_DMA = 0xc77d;
    AMPERE_B = 0xc797, ThreeD;
    AMPERE_DMA_COPY_B = 0xc7b5, Copy;
    AMPERE_COMPUTE_B = 0xc7c0, Compute;
    HOPPER_CHANNEL_GPFIFO_A = 0xc86f, Channel;
    HOPPER_DMA_COPY_A = 0xc8b5, Copy;
    ADA_A = 0xc997, ThreeD;
    ADA_COMPUTE_A = 0xc9c0, Compute;
    BLACKWELL_CHANNEL_GPFIFO_B = 0xca6f, Channel;
    NVCA70_DISPLAY = 0xca70;
    BLACKWELL_DMA_COPY_B = 0xcab5, Copy;
    HOPPER_A = 0xcb97, ThreeD;
    HOPPER_COMPUTE_A = 0xcbc0, Compute;
    BLACKWELL_INLINE_TO_MEMORY_A = 0xcd40, InlineToMemory;
    BLACKWELL_B = 0xce97, ThreeD;
    BLACKWELL_COMPUTE_B = 0xcec0, Compute;
}

/// The class with this number.
pub fn by_number(number: u32) -> Option<Class> {
    ALL.binary_search_by_key(&number, |class| class.number).ok().and_then(|place| ALL.get(place)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_in_order_and_fit_in_a_method() {
        assert!(ALL.is_sorted_by(|one, next| one.number < next.number));
        assert!(ALL.iter().all(|class| u32::from(class.method_class()) == class.number));
        assert!(ALL.iter().all(|class| by_number(class.number) == Some(*class)));
        assert_eq!((by_number(0x9038), by_number(u32::MAX)), (None, None));
    }
}
