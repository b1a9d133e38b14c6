//! What nouveau asks for, by chip (drivers/gpu/drm/nouveau/nvkm/subdev/gsp: tu102.c, tu116.c, ga102.c,
//! ad102.c, gh100.c, gb202.c), and what nova-core does beyond that (drivers/gpu/nova-core/firmware:
//! fwsec/bootloader.rs, and booter.rs while it had a scrubber).

/// The firmware versions whose interfaces the virtual GSP speaks, the newest first. Nouveau tries them in
/// this order.
pub const VERSIONS: [&str; 2] = ["570.144", "535.113.01"];

/// The only version that nova-core asks for.
pub(super) const NOVA_CORE: &str = VERSIONS[0];

/// The versions of NVIDIA's own driver that the virtual GSP speaks to. Each takes files of its very version.
pub const DRIVERS: [&str; 2] = ["550.163.01", "535.261.03"];

/// The files of NVIDIA's own driver, and the sections with the signatures of the families that each is for
/// (kernel-open/common/inc/nv-firmware.h).
pub(super) const DRIVER_FILES: [(&str, &[&str]); 2] = [
    ("gsp_tu10x.bin", &[".fwsignature_tu10x", ".fwsignature_tu11x", ".fwsignature_ga100"]),
    ("gsp_ga10x.bin", &[".fwsignature_ga10x", ".fwsignature_ad10x", ".fwsignature_gh100"]),
];

/// A chip's files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chip {
    /// Its folder below `nvidia/`.
    pub(super) folder: &'static str,
    /// The section of GSP's image with the family's signature.
    pub(super) signature: &'static str,
    /// What starts GSP.
    pub(super) start: Start,
}

/// What starts GSP.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    /// Firmware on falcons. Older kernels know these chips, too, by the older version.
    Booter {
        /// FWSEC is loaded by a bootloader.
        bootloader: bool,
        /// Nova-core has the end of VRAM scrubbed first, by another firmware for SEC2.
        scrubber: bool,
    },
    /// FSP.
    Fmc(FmcSizes),
}

/// Sizes that nouveau wants of a chain of trust (nvkm/subdev/fsp).
#[derive(Clone, Copy, Debug)]
pub(super) struct FmcSizes {
    pub(super) hash: usize,
    pub(super) public_key: usize,
    pub(super) signature: usize,
}

/// Those of `gh100_fsp`: RSA-3K.
const HOPPER: FmcSizes = FmcSizes { hash: 48, public_key: 384, signature: 384 };
/// Those of `gb202_fsp`: ECDSA.
const BLACKWELL: FmcSizes = FmcSizes { hash: 48, public_key: 97, signature: 96 };

impl Chip {
    /// The versions that a kernel asks for.
    pub(super) fn versions(&self) -> &'static [&'static str] {
        let [newest, ..] = &VERSIONS;
        match self.start {
            Start::Booter { .. } => &VERSIONS,
            Start::Fmc(_) => std::slice::from_ref(newest),
        }
    }
}

const fn turing(folder: &'static str, signature: &'static str) -> Chip {
    Chip { folder, signature, start: Start::Booter { bootloader: true, scrubber: false } }
}

const fn ampere(folder: &'static str) -> Chip {
    let start = Start::Booter { bootloader: false, scrubber: false };
    Chip { folder, signature: ".fwsignature_ga10x", start }
}

const fn ada(folder: &'static str) -> Chip {
    let start = Start::Booter { bootloader: false, scrubber: true };
    Chip { folder, signature: ".fwsignature_ad10x", start }
}

const fn blackwell(folder: &'static str) -> Chip {
    Chip { folder, signature: ".fwsignature_gb20x", start: Start::Fmc(BLACKWELL) }
}

/// All chips, oldest first.
pub(super) static CHIPS: [Chip; 21] = [
    turing("tu102", ".fwsignature_tu10x"),
    turing("tu104", ".fwsignature_tu10x"),
    turing("tu106", ".fwsignature_tu10x"),
    turing("tu117", ".fwsignature_tu11x"),
    turing("tu116", ".fwsignature_tu11x"),
    ampere("ga102"),
    ampere("ga103"),
    ampere("ga104"),
    ampere("ga106"),
    ampere("ga107"),
    Chip { folder: "gh100", signature: ".fwsignature_gh100", start: Start::Fmc(HOPPER) },
    ada("ad102"),
    ada("ad103"),
    ada("ad104"),
    ada("ad106"),
    ada("ad107"),
    blackwell("gb202"),
    blackwell("gb203"),
    blackwell("gb205"),
    blackwell("gb206"),
    blackwell("gb207"),
];
