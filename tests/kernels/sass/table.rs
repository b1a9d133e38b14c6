// Made by `generate` from cuda/kernels.cu; do not edit.

/// Fingerprint of the source.
pub const SOURCE: u64 = 0x92d365c9fbf7322d;

/// `matrix_product` of kernels.cu.
pub const MATRIX_PRODUCT: Kernel = Kernel {
    name: "matrix_product",
    code: include_bytes!("../sass/matrix_product.bin"),
    registers: 32,
    shared: 3072,
    barriers: 1,
    constants: 556,
};

/// `reduce_sum` of kernels.cu.
pub const REDUCE_SUM: Kernel = Kernel {
    name: "reduce_sum",
    code: include_bytes!("../sass/reduce_sum.bin"),
    registers: 14,
    shared: 1032,
    barriers: 1,
    constants: 548,
};

/// `shared_fill` of kernels.cu.
pub const SHARED_FILL: Kernel = Kernel {
    name: "shared_fill",
    code: include_bytes!("../sass/shared_fill.bin"),
    registers: 10,
    shared: 47104,
    barriers: 1,
    constants: 540,
};

/// `shared_look` of kernels.cu.
pub const SHARED_LOOK: Kernel = Kernel {
    name: "shared_look",
    code: include_bytes!("../sass/shared_look.bin"),
    registers: 12,
    shared: 47104,
    barriers: 0,
    constants: 540,
};

/// `spin` of kernels.cu.
pub const SPIN: Kernel = Kernel {
    name: "spin",
    code: include_bytes!("../sass/spin.bin"),
    registers: 8,
    shared: 0,
    barriers: 0,
    constants: 544,
};

/// `vector_add` of kernels.cu.
pub const VECTOR_ADD: Kernel = Kernel {
    name: "vector_add",
    code: include_bytes!("../sass/vector_add.bin"),
    registers: 12,
    shared: 0,
    barriers: 0,
    constants: 556,
};
