//! What GSP is booted with: the parameters of the first firmware (FMC), which FSP's message names.

use zerocopy::FromBytes;

use super::fsp::FspError;
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::gsp::fsp::{FmcBootParams, TARGET_COHERENT_SYSTEM, TARGET_NONCOHERENT_SYSTEM};
use gpuvmk_chip::{Aperture, PhysicalAddress};

/// Where GSP finds what it is booted with. Bus addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GspArguments {
    /// Arguments of GSP-RM ("libos arguments").
    pub arguments: u64,
    /// What describes its image, or where it was suspended.
    pub description: u64,
}

impl GspArguments {
    /// The arguments that the FMC's parameters name, from a copy of those.
    ///
    /// # Errors
    /// The parameters are not there, or are not for GSP-RM in system memory.
    pub fn of_fmc(back: &impl GspBackend, address: u64) -> Result<Self, FspError> {
        let refused = |why| FspError::Parameters { address, why };
        let mut raw = [0; size_of::<FmcBootParams>()];
        back.read_memory(PhysicalAddress { aperture: Aperture::SystemCoherent, address }, &mut raw)
            .map_err(|_| refused("not all in the guest's memory"))?;
        let Ok(parameters) = FmcBootParams::read_from_bytes(&raw) else { return Err(refused("too short")) };
        if parameters.is_rm_boot.get() != 1 {
            return Err(refused("for another firmware than GSP-RM"));
        }
        match parameters.rm_target.get() {
            TARGET_COHERENT_SYSTEM | TARGET_NONCOHERENT_SYSTEM => Ok(Self {
                arguments: parameters.rm_arguments.get(),
                description: parameters.rm_description.get(),
            }),
            _ => Err(refused("with arguments outside system memory")),
        }
    }
}
