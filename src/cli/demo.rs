//! `gpuvmk demo`: stock guests on one shared software GPU, from nothing to verified bytes.
//!
//! The demonstration is a program of the laboratory, `gpuvmk-lab`: the daemons' program has nothing of it.
//! This process becomes it.

use std::ffi::OsString;
use std::process::ExitCode;

use super::companion::Companion;

/// The laboratory's program.
const LAB: Companion = Companion {
    name: "gpuvmk-lab",
    folder: "lab",
    task: "The demonstration is run",
    from_sources: "cargo run --release -- demo",
};

/// Arguments of `gpuvmk demo`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "QEMU and the guest kernels come from Debian's packages; they are kept in the folder that \
                  GPUVMK_CACHE names (.cache in the source tree by default).\n\n\
                  Examples:\n  gpuvmk demo\n  gpuvmk demo --vms 3 --kernel 7.2 --json\n  gpuvmk demo --chip gh100"
)]
pub(super) struct Args {
    /// How many guests share the GPU.
    #[arg(long, value_name = "N", default_value_t = 2)]
    vms: u32,
    /// The chip that guests see: gf100 or gh100.
    #[arg(long, value_name = "CHIP", default_value = "gf100")]
    chip: String,
    /// The guests' kernel: 6.1, 6.12 or 7.2 (GH100: 7.2). [default: 6.12; GH100: 7.2]
    #[arg(long, value_name = "SERIES")]
    kernel: Option<String>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
    /// Keep the configuration files and logs also when all went well.
    #[arg(long)]
    keep: bool,
}

impl Args {
    /// The same for the laboratory, which checks them.
    fn words(&self) -> Vec<String> {
        let mut words = vec!["--vms".to_owned(), self.vms.to_string(), format!("--chip={}", self.chip)];
        words.extend(self.kernel.as_ref().map(|kernel| format!("--kernel={kernel}")));
        words.extend(self.json.then(|| "--json".to_owned()));
        words.extend(self.keep.then(|| "--keep".to_owned()));
        words
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    LAB.start(|own| {
        let mut words: Vec<OsString> = vec!["demo".into(), "--gpuvmk".into(), own.into()];
        words.extend(args.words().into_iter().map(OsString::from));
        words
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_handed_on() {
        let args = Args { vms: 3, chip: "gh100".into(), kernel: Some("7.2".into()), json: true, keep: false };
        assert_eq!(args.words(), ["--vms", "3", "--chip=gh100", "--kernel=7.2", "--json"]);
    }
}
