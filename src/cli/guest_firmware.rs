//! `gpuvmk guest-firmware --out DIR`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use super::output::CARRIED_OUT;
use crate::guest_firmware;

/// Arguments of `gpuvmk guest-firmware`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A guest with a chip that has a GSP (Turing and later) needs these files, or Debian's \
                  firmware-nvidia-graphics, in its /lib/firmware; where nouveau is loaded from an initramfs, in the initramfs. They are small \
                  stand-ins: the virtual GPU plays the firmware itself, and nothing of NVIDIA's is in them.\n\n\
                  Examples:\n  gpuvmk guest-firmware --out /lib/firmware       # in the guest\n  \
                  gpuvmk guest-firmware --out initramfs/lib/firmware"
)]
pub(super) struct Args {
    /// The folder that is or becomes the guest's /lib/firmware.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let written = guest_firmware::write(&guest_firmware::all(), &args.out)
        .with_context(|| format!("No firmware for guests in {}", args.out.display()))?;
    for path in written {
        say!("{}", path.display()).context(CARRIED_OUT)?;
    }
    Ok(ExitCode::SUCCESS)
}
