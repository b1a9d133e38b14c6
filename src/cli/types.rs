//! `gpuvmk types`: sizes of VMs, and how many of each could be had now, in the words of mediated devices.

use std::process::ExitCode;

use gpuvmk_control_client::TypeStatus;

use super::control::Target;
use super::output;
use crate::chip::Chip;

/// Arguments of `gpuvmk types`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A type is a chip and so much VRAM, to be written in a VM's file as `chip` and `vram`. Other sizes can be had, too.\n\n\
                        Example:\n  gpuvmk types --gpu /etc/gpuvmk/gpu0.toml"
)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Print the types as one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let types = args.target.status()?.gpu.types;
    if args.json {
        say!("{}", serde_json::to_value(&types)?)?;
    } else {
        output::print(&list(&types))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// As mdevctl prints types.
fn list(types: &[TypeStatus]) -> String {
    types
        .iter()
        .map(|one| {
            format!(
                "{}\n  Available instances: {}\n  Device API: vfio-user-pci\n  Description: {}\n  Chips: {}\n",
                one.name,
                one.available_instances,
                one.description,
                chips(&one.chips)
            )
        })
        .collect()
}

/// Their names, and of which the catalogue says that no guest was tried.
fn chips(names: &[String]) -> String {
    let tried = |name: &str| Chip::by_name(name).is_none_or(|chip| chip.tried);
    let words =
        names.iter().map(|name| if tried(name) { name.clone() } else { format!("{name} (not tried)") });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_listed_as_mdevctl_does() {
        let types = [TypeStatus {
            name: "GF100-64M".to_owned(),
            vram: 1,
            chips: vec!["GF100".to_owned(), "GX1".to_owned()],
            available_instances: 3,
            description: "vram 64M".to_owned(),
        }];

        assert_eq!(
            list(&types),
            "GF100-64M\n  Available instances: 3\n  Device API: vfio-user-pci\n  Description: vram 64M\n  Chips: GF100, GX1\n"
        );
    }
}
