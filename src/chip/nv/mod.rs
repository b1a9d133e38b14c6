//! What NVIDIA's resource manager (RM), its firmware in GSP and their clients call things: numbers that the
//! physical GPU's driver (`gpu/rm`) and the virtual GSP (`gsp`) share, whatever the version.

pub mod classes;
mod layout;
pub mod status;
