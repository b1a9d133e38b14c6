//! `gpuvmk demo`: stock guests on one shared software GPU, from nothing to verified bytes.
//!
//! The demonstration is a program of the laboratory, `gpuvmk-lab`: the daemons' program has nothing of it.
//! This process becomes it.

use std::ffi::OsString;
use std::process::ExitCode;

use gpuvmk_companion::DemoOptions;

use super::companion::Companion;

/// The laboratory's program.
const LAB: Companion = Companion {
    name: "gpuvmk-lab",
    folder: "lab",
    task: "The demonstration is run",
    from_sources: "cargo run --release -- demo",
};

/// Arguments of `gpuvmk demo`. The laboratory says what a chip and a kernel may be.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "QEMU and the guest kernels come from Debian's packages; they are kept in the folder that \
                  GPUVMK_CACHE names (.cache in the source tree by default).\n\n\
                  Examples:\n  gpuvmk demo\n  gpuvmk demo --vms 3 --kernel 7.2 --json\n  gpuvmk demo --chip gh100\n  gpuvmk demo --chip ad104 --kernel 6.12 --vulkan\n  gpuvmk demo --chip ad104 --kernel 6.12 --display\n  gpuvmk demo --driver nvidia\n  gpuvmk demo --driver nvidia --kernel 6.1"
)]
pub(super) struct Args {
    #[command(flatten)]
    options: DemoOptions<String, String>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    LAB.start(|own| {
        let mut words: Vec<OsString> = vec!["demo".into(), "--gpuvmk".into(), own.into()];
        words.extend(args.options.words().into_iter().map(OsString::from));
        words
    })
}
