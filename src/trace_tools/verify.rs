//! `gpuvmk trace verify FILE`

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use super::input::open;
use gpuvmk_output::print;
use gpuvmk_trace::Event;

/// Arguments of `gpuvmk trace verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvmk trace verify /var/log/gpuvmk/vm1.trace && echo whole")]
pub struct Args {
    /// The traces; `-` is standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print one JSON object for each file.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut good = true;
    for file in &args.files {
        let (mut entries, mut lost, mut disordered, mut last, mut damage) = (0_u64, 0_u64, 0_u64, 0, None);
        for entry in open(file)? {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    damage = Some(error.to_string());
                    break;
                }
            };
            entries += 1;
            disordered += u64::from(entry.nanos < last);
            last = entry.nanos;
            if let Event::Lost { count } = entry.event {
                lost = lost.saturating_add(count);
            }
        }
        let ok = lost == 0 && disordered == 0 && damage.is_none();
        good &= ok;
        let line = if args.json {
            format!(
                "{}\n",
                json!({
                    "ok": ok, "file": file, "entries": entries, "lost": lost, "out_of_order": disordered,
                    "damage": damage,
                })
            )
        } else {
            let damage = damage.map(|damage| format!("; {damage}")).unwrap_or_default();
            format!(
                "{}: {}: {entries} entries, {lost} lost, {disordered} out of order{damage}\n",
                file.display(),
                if ok { "ok" } else { "NOT OK" }
            )
        };
        print(&line)?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
