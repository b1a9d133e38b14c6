//! Where each version of the block has its fields. Bit numbers are those of `clc3c0qmd.h`, `clc5c0qmd.h`,
//! `clc6c0qmd.h`, `clcbc0qmd.h` and `clcdc0qmd.h` of NVIDIA's open-gpu-doc.

/// A range of bits of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// The last bit.
    pub high: u16,
    /// The first bit.
    pub low: u16,
}

const fn bits(high: u16, low: u16) -> Bits {
    Bits { high, low }
}

const fn bit(number: u16) -> Bits {
    bits(number, number)
}

impl Bits {
    /// The same field of the element `index`, where elements are `stride` bits apart. The addition saturates.
    pub const fn element(self, index: u16, stride: u16) -> Self {
        let offset = stride.saturating_mul(index);
        bits(self.high.saturating_add(offset), self.low.saturating_add(offset))
    }
}

/// A number in one or two fields, in units of `1 << shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The lower bits.
    pub lower: Bits,
    /// The bits above.
    pub upper: Option<Bits>,
    /// log2 of the unit.
    pub shift: u8,
}

const fn number(lower: Bits) -> Number {
    Number { lower, upper: None, shift: 0 }
}

const fn long(lower: Bits, upper: Bits) -> Number {
    Number { lower, upper: Some(upper), shift: 0 }
}

const fn shifted(lower: Bits, upper: Bits, shift: u8) -> Number {
    Number { lower, upper: Some(upper), shift }
}

/// Fields of the constant banks. The bank `i` has each of them `i` strides further on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankFields {
    /// CONSTANT_BUFFER_VALID, and its stride.
    pub valid: (Bits, u16),
    /// CONSTANT_BUFFER_INVALIDATE, and its stride.
    pub invalidate: (Bits, u16),
    /// CONSTANT_BUFFER_ADDR, with a stride of 64.
    pub address: Number,
    /// CONSTANT_BUFFER_SIZE_SHIFTED4, with a stride of 64.
    pub size: Bits,
}

/// Fields of one semaphore that is released when the grid has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseFields {
    /// Whether it is released.
    pub enable: Bits,
    /// Where it lies.
    pub address: Number,
    /// Its value.
    pub payload: Number,
    /// STRUCTURE_SIZE: 0 is four words, 1 is one word, 2 is two words.
    pub structure_size: Bits,
    /// REDUCTION_ENABLE, REDUCTION_OP, REDUCTION_FORMAT.
    pub reduction: [Bits; 3],
    /// PAYLOAD64B.
    pub payload64: Option<Bits>,
}

/// Fields of one block that is acted on when the grid has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DependentFields {
    /// Whether there is one.
    pub enable: Bits,
    /// What is done with it. Blocks without this field schedule it.
    pub action: Option<Bits>,
    /// Its address, shifted by 8.
    pub pointer: Bits,
}

/// Fields that say when a block runs: what the driver writes, and what the distributor keeps for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnFields {
    /// DEPENDENCE_COUNTER.
    pub counter: Bits,
    /// HW_ONLY_DEPENDENCE_COUNTER.
    pub counter_kept: Bits,
    /// REQUIRE_SCHEDULING_PCAS.
    pub held: Bits,
    /// HW_ONLY_REQUIRE_SCHEDULING_PCAS.
    pub held_kept: Bits,
    /// SELF_COPY_ON_COMPLETION: what is kept begins anew when the grid has ended.
    pub begins_anew: Bits,
}

/// The fields of one version that matter to whoever executes a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Major and minor version.
    pub version: (u8, u8),
    /// Words of the block.
    pub words: usize,
    /// QMD_MAJOR_VERSION and QMD_MINOR_VERSION.
    pub version_fields: [Bits; 2],
    /// QMD_TYPE. Versions before 4.0 have IS_QUEUE.
    pub kind: Kind,
    /// SASS_VERSION.
    pub sass_version: Bits,
    /// API_VISIBLE_CALL_LIMIT.
    pub call_limit: Bits,
    /// When it runs, from 2.4 on: before, blocks have no counter, and nothing copies what holds them.
    pub turn: Option<TurnFields>,
    /// CWD_MEMBAR_TYPE.
    pub membar: Bits,
    /// INVALIDATE_SHADER_DATA_CACHE, _INSTRUCTION_CACHE, _SHADER_CONSTANT_CACHE.
    pub invalidate: [Bits; 3],
    /// GRID_WIDTH, _HEIGHT, _DEPTH.
    pub grid: [Bits; 3],
    /// CTA_THREAD_DIMENSION0, 1, 2.
    pub block: [Bits; 3],
    /// GPC_CGA_WIDTH, _HEIGHT, _DEPTH, from 4.0 on.
    pub cluster: Option<[Bits; 3]>,
    /// GPU_CGA_WIDTH, _HEIGHT, _DEPTH, where they are known: found by what NVIDIA's driver 550 launches.
    pub gpu_cluster: Option<[Bits; 3]>,
    /// REGISTER_COUNT.
    pub registers: Bits,
    /// BARRIER_COUNT.
    pub barriers: Bits,
    /// SHARED_MEMORY_SIZE, in bytes.
    pub shared: Number,
    /// MIN, TARGET and MAX_SM_CONFIG_SHARED_MEM_SIZE.
    pub shared_config: [Bits; 3],
    /// SHADER_LOCAL_MEMORY_LOW_SIZE and _HIGH_SIZE, in bytes.
    pub local: [Number; 2],
    /// PROGRAM_ADDRESS.
    pub program: Number,
    /// PROGRAM_OFFSET, which 2.2 adds to the program's address.
    pub program_offset: Option<Bits>,
    /// Constant banks.
    pub banks: BankFields,
    /// Semaphores.
    pub releases: &'static [ReleaseFields],
    /// Blocks that depend on this one.
    pub dependents: &'static [DependentFields],
}

/// QMD_TYPE of a grid of blocks.
pub const GRID_CTA: u64 = 2;

/// QMD_TYPE of a grid of clusters.
pub const GRID_GPC_CGA: u64 = 3;

/// QMD_TYPE of a grid of clusters whose blocks are on the GPU at the same time (a cooperative launch).
pub const GRID_GPU_CGA: u64 = 4;

/// QMD_TYPE of the same with clusters as in [`GRID_GPC_CGA`].
pub const GRID_GPU_GPC_CGA: u64 = 5;

/// How a block says what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IS_QUEUE: 0 is a grid.
    IsQueue(Bits),
    /// QMD_TYPE.
    Type(Bits),
}

impl Kind {
    /// The field.
    pub const fn bits(self) -> Bits {
        match self {
            Self::IsQueue(bits) | Self::Type(bits) => bits,
        }
    }
}

const fn release_2(base: u16, enable: u16) -> ReleaseFields {
    ReleaseFields {
        enable: bit(enable),
        address: long(bits(base + 31, base), bits(base + 39, base + 32)),
        payload: number(bits(base + 95, base + 64)),
        structure_size: bit(base + 63),
        reduction: [bit(base + 58), bits(base + 54, base + 52), bits(base + 57, base + 56)],
        payload64: None,
    }
}

const fn release_3(base: u16) -> ReleaseFields {
    ReleaseFields {
        enable: bit(base + 55),
        address: long(bits(base + 31, base), bits(base + 39, base + 32)),
        payload: long(bits(base + 95, base + 64), bits(base + 127, base + 96)),
        structure_size: bits(base + 63, base + 62),
        reduction: [bit(base + 58), bits(base + 54, base + 52), bits(base + 57, base + 56)],
        payload64: Some(bit(base + 61)),
    }
}

const fn release_4(base: u16, flags: u16) -> ReleaseFields {
    ReleaseFields {
        enable: bit(flags),
        address: long(bits(base + 31, base), bits(base + 56, base + 32)),
        payload: long(bits(base + 95, base + 64), bits(base + 127, base + 96)),
        structure_size: bits(flags + 2, flags + 1),
        reduction: [bit(flags + 4), bits(flags + 7, flags + 5), bits(flags + 9, flags + 8)],
        payload64: Some(bit(flags + 12)),
    }
}

/// Version 2.2, of Volta; drivers use it on Turing too.
pub const V2_2: Layout = Layout {
    version: (2, 2),
    words: 64,
    version_fields: [bits(583, 580), bits(579, 576)],
    kind: Kind::IsQueue(bit(136)),
    sass_version: bits(1023, 1016),
    call_limit: bit(378),
    turn: None,
    membar: bits(369, 368),
    invalidate: [bit(189), bit(190), bit(191)],
    grid: [bits(415, 384), bits(431, 416), bits(463, 448)],
    block: [bits(607, 592), bits(623, 608), bits(639, 624)],
    cluster: None,
    gpu_cluster: None,
    registers: bits(656, 648),
    barriers: bits(959, 955),
    shared: number(bits(561, 544)),
    shared_config: [bits(568, 562), bits(663, 657), bits(575, 569)],
    local: [number(bits(951, 928)), number(bits(983, 960))],
    program: long(bits(1567, 1536), bits(1584, 1568)),
    program_offset: Some(bits(287, 256)),
    banks: BankFields {
        valid: (bit(640), 1),
        invalidate: (bit(1074), 64),
        address: long(bits(1055, 1024), bits(1072, 1056)),
        size: bits(1087, 1075),
    },
    releases: &[release_2(736, 138), release_2(832, 139)],
    dependents: &[DependentFields { enable: bit(141), action: None, pointer: bits(511, 480) }],
};

/// Version 2.3, of Turing.
pub const V2_3: Layout = Layout { version: (2, 3), program_offset: None, ..V2_2 };

/// Version 2.4, of Ampere and Ada.
pub const V2_4: Layout = Layout {
    version: (2, 4),
    turn: Some(TurnFields {
        counter: bits(157, 151),
        counter_kept: bits(1734, 1728),
        held: bit(140),
        held_kept: bit(1631),
        begins_anew: bit(158),
    }),
    // The second dependent block of this version has no pointer of its own in the header.
    dependents: &[DependentFields {
        enable: bit(141),
        action: Some(bits(144, 142)),
        pointer: bits(511, 480),
    }],
    ..V2_3
};

/// Version 3.0, of Ampere and Ada; Hopper has it too.
pub const V3_0: Layout = Layout {
    version: (3, 0),
    sass_version: bits(1663, 1656),
    turn: Some(TurnFields {
        counter: bits(157, 142),
        counter_kept: bits(1967, 1952),
        held: bit(140),
        held_kept: bit(1855),
        begins_anew: bit(158),
    }),
    barriers: bits(767, 763),
    shared_config: [bits(567, 562), bits(662, 657), bits(574, 569)],
    local: [number(bits(759, 736)), number(bits(1623, 1600))],
    releases: &[release_3(768), release_3(896), release_3(1664)],
    dependents: &[DependentFields {
        enable: bit(512),
        action: Some(bits(515, 513)),
        pointer: bits(511, 480),
    }],
    ..V2_4
};

/// Version 4.0, of Hopper.
pub const V4_0: Layout = Layout {
    version: (4, 0),
    words: 96,
    version_fields: [bits(583, 580), bits(579, 576)],
    kind: Kind::Type(bits(25, 23)),
    sass_version: bits(543, 536),
    call_limit: bit(568),
    turn: Some(TurnFields {
        counter: bits(15, 0),
        counter_kept: bits(303, 288),
        held: bit(30),
        held_kept: bit(304),
        begins_anew: bit(378),
    }),
    membar: bits(1137, 1136),
    invalidate: [bit(605), bit(606), bit(607)],
    grid: [bits(1055, 1024), bits(1071, 1056), bits(1103, 1088)],
    block: [bits(1167, 1152), bits(1183, 1168), bits(1199, 1184)],
    cluster: Some([bits(2149, 2144), bits(2157, 2152), bits(2165, 2160)]),
    gpu_cluster: Some([bits(2223, 2208), bits(2239, 2224), bits(2255, 2240)]),
    registers: bits(1208, 1200),
    barriers: bits(1215, 1211),
    shared: number(bits(601, 584)),
    shared_config: [bits(613, 608), bits(625, 620), bits(619, 614)],
    local: [number(bits(535, 512)), number(bits(567, 544))],
    program: long(bits(1247, 1216), bits(1272, 1248)),
    program_offset: None,
    banks: BankFields {
        valid: (bit(416), 4),
        invalidate: (bit(419), 4),
        address: shifted(bits(1567, 1536), bits(1586, 1568), 6),
        size: bits(1599, 1587),
    },
    releases: &[release_4(640, 320), release_4(768, 336), release_4(896, 352)],
    dependents: &[
        DependentFields { enable: bit(368), action: Some(bits(371, 369)), pointer: bits(479, 448) },
        DependentFields { enable: bit(373), action: Some(bits(376, 374)), pointer: bits(511, 480) },
    ],
};

/// Version 4.1, of Blackwell.
pub const V4_1: Layout =
    Layout { version: (4, 1), block: [bits(1167, 1152), bits(1183, 1168), bits(1191, 1184)], ..V4_0 };

/// Version 5.0, of Blackwell.
pub const V5_0: Layout = Layout {
    version: (5, 0),
    words: 96,
    version_fields: [bits(471, 468), bits(467, 464)],
    kind: Kind::Type(bits(153, 151)),
    sass_version: bits(455, 448),
    call_limit: bit(456),
    turn: Some(TurnFields {
        counter: bits(143, 128),
        counter_kept: bits(207, 192),
        held: bit(158),
        held_kept: bit(31),
        begins_anew: bit(341),
    }),
    membar: bits(625, 624),
    invalidate: [bit(475), bit(476), bit(477)],
    grid: [bits(1279, 1248), bits(1295, 1280), bits(1327, 1312)],
    block: [bits(1103, 1088), bits(1119, 1104), bits(1127, 1120)],
    cluster: Some([bits(2053, 2048), bits(2061, 2056), bits(2069, 2064)]),
    gpu_cluster: None,
    registers: bits(1136, 1128),
    barriers: bits(1141, 1137),
    shared: Number { lower: bits(1162, 1152), upper: None, shift: 7 },
    shared_config: [bits(1168, 1163), bits(1180, 1175), bits(1174, 1169)],
    local: [
        Number { lower: bits(1199, 1184), upper: None, shift: 4 },
        Number { lower: bits(1215, 1200), upper: None, shift: 4 },
    ],
    program: shifted(bits(1055, 1024), bits(1076, 1056), 4),
    program_offset: None,
    banks: BankFields {
        valid: (bit(1856), 4),
        invalidate: (bit(1859), 4),
        address: shifted(bits(1375, 1344), bits(1394, 1376), 6),
        size: bits(1407, 1395),
    },
    releases: &[release_4(480, 288), release_4(768, 304), release_4(896, 320)],
    dependents: &[
        DependentFields { enable: bit(336), action: Some(bits(339, 337)), pointer: bits(415, 384) },
        DependentFields { enable: bit(344), action: Some(bits(347, 345)), pointer: bits(447, 416) },
    ],
};

/// All of them, the oldest first.
pub const ALL: &[Layout] = &[V2_2, V2_3, V2_4, V3_0, V4_0, V4_1, V5_0];
