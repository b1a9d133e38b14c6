//! The shaders, as SPIR-V. `shaders/generate.sh` makes them of the GLSL that lies beside them.

macro_rules! shader {
    ($name:literal) => {
        include_bytes!(concat!("../shaders/", $name, ".spv"))
    };
}

pub const CONSTANT: &[u8] = shader!("constant");
pub const VECTOR_ADD: &[u8] = shader!("vector_add");
pub const SAXPY: &[u8] = shader!("saxpy");
pub const MATRIX_PRODUCT: &[u8] = shader!("matrix_product");
pub const REDUCTION: &[u8] = shader!("reduction");
pub const PEAK_FP32: &[u8] = shader!("peak_fp32");
pub const PEAK_FP64: &[u8] = shader!("peak_fp64");
pub const PEAK_INT32: &[u8] = shader!("peak_int32");
pub const STREAM: &[u8] = shader!("stream");
pub const INTEGERS: &[u8] = shader!("integers");
pub const FLOATS: &[u8] = shader!("floats");
pub const SUBGROUPS: &[u8] = shader!("subgroups");
pub const CONTROL: &[u8] = shader!("control");
pub const ATOMICS: &[u8] = shader!("atomics");

/// What a pipeline for a shader needs.
#[derive(Debug, Clone, Copy)]
pub struct Shader {
    /// Its name.
    pub name: &'static str,
    pub spirv: &'static [u8],
    /// How many buffers it has.
    pub buffers: usize,
    /// How many bytes of push constants.
    pub constants: usize,
    /// Whether it has a loop or a condition that a compiler cannot do without.
    pub branches: bool,
}

/// Those of the groups `compute`, `rates` and `doubles`.
pub const ALL: [Shader; 9] = [
    shader("constant", CONSTANT, 1, 0, false),
    shader("vector_add", VECTOR_ADD, 3, 0, false),
    shader("saxpy", SAXPY, 2, 8, false),
    shader("stream", STREAM, 2, 0, false),
    shader("peak_fp32", PEAK_FP32, 1, 12, true),
    shader("peak_int32", PEAK_INT32, 1, 12, true),
    shader("peak_fp64", PEAK_FP64, 1, 20, true),
    shader("matrix_product", MATRIX_PRODUCT, 3, 4, true),
    shader("reduction", REDUCTION, 2, 0, true),
];

/// Those of the group `wide`.
pub const WIDE: [Shader; 5] = [
    shader("integers", INTEGERS, 2, 0, false),
    shader("floats", FLOATS, 2, 0, false),
    shader("subgroups", SUBGROUPS, 2, 0, false),
    shader("control", CONTROL, 2, 0, true),
    shader("atomics", ATOMICS, 2, 0, true),
];

const fn shader(
    name: &'static str,
    spirv: &'static [u8],
    buffers: usize,
    constants: usize,
    branches: bool,
) -> Shader {
    Shader { name, spirv, buffers, constants, branches }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use sha2::{Digest, Sha256};

    #[test]
    fn sources_and_spirv_are_those_that_were_generated_together() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
        let sums = fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
        assert!(sums.lines().count() >= 26);
        for line in sums.lines() {
            let (noted, name) = line.split_once("  ").unwrap();
            let found: String = Sha256::digest(fs::read(folder.join(name)).unwrap())
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(noted, found, "{name} has changed: run shaders/generate.sh");
        }
    }

    #[test]
    fn every_shader_is_spirv() {
        for shader in super::ALL.into_iter().chain(super::WIDE) {
            assert_eq!(shader.spirv.get(..4), Some(&[0x03, 0x02, 0x23, 0x07][..]), "{}", shader.name);
        }
    }
}
