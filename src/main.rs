//! The `gpuvmk` command.

fn main() -> anyhow::Result<()> {
    Ok(())
}
