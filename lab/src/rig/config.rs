//! Configuration files of the processes of a set-up.

use std::path::Path;

use serde_json::Value;

use super::{GpuSpec, RigSpec};
use crate::chip::Chip;

/// A GPU's words where hangs are provoked: before the first section, and behind the last.
const STUBBORN: (&str, &str) =
    ("preemption = \"methods\"\n", "\n[hang]\nprogress_ms = 1000\nacquire_ms = 1000\n");

/// The configuration of the aggregator for `chip`. Its GPU has what all its vGPUs have together, and what a
/// software GPU keeps for itself.
pub fn gpu_config(name: &str, spec: &RigSpec, chip: Chip, socket: &Path, control: &Path) -> String {
    let (preemption, hang) = if spec.stubborn { STUBBORN } else { ("", "") };
    let partitions: u32 =
        spec.mediated().filter(|gpu| gpu.chip.face == chip.face).map(|gpu| gpu.vram_mib).sum();
    format!(
        "name = \"{name}\"\nbackend = \"{}\"\nchip = \"{chip}\"\nvram = \"{}M\"\npolicy = \"{}\"\n{preemption}\n[socket]\npath = {}\n\n[control]\npath = {}\n{hang}",
        spec.backend.name(),
        partitions + spec.spare_vram_mib,
        spec.policy,
        quoted(socket),
        quoted(control)
    )
}

/// The configuration of the process of a mediated GPU.
pub fn vm_config(gpu: &GpuSpec, channels: u16, aggregator: &Path, socket: &Path) -> String {
    let word = |key: &str, value: &str| match value {
        "" => String::new(),
        _ => format!("{key} = \"{value}\"\n"),
    };
    let more = [word("bar3", gpu.bar3), word("display", gpu.display)].concat();
    format!(
        "name = {}\ngpu = {}\nchip = \"{}\"\nvram = \"{}M\"\nchannels = {channels}\nweight = 100\n{more}\n[socket]\npath = {}\n",
        quoted(Path::new(&gpu.name)),
        quoted(aggregator),
        gpu.chip,
        gpu.vram_mib,
        quoted(socket)
    )
}

/// A TOML string; JSON's escapes are TOML's.
pub fn quoted(path: &Path) -> String {
    Value::from(path.to_string_lossy()).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::{Backend, CHANNELS, SHARED_AS_IT_COMES, Topology};
    use super::*;

    fn gpu(name: &str, chip: Chip, topology: Topology) -> GpuSpec {
        GpuSpec { name: name.into(), chip, topology, vram_mib: 256, trace: false, bar3: "", display: "" }
    }

    fn spec(backend: Backend, gpus: Vec<GpuSpec>) -> RigSpec {
        RigSpec {
            gpuvmk: "gpuvmk".into(),
            folder: "/logs".into(),
            backend,
            devices_first: false,
            gpus,
            spare_vram_mib: 768,
            policy: SHARED_AS_IT_COMES,
            channels: CHANNELS,
            stubborn: false,
            environment: &[],
        }
    }

    #[test]
    fn configurations_name_sockets_as_quoted_strings() {
        let (socket, control) = (Path::new("/tmp/a \"b\"/gpu0.sock"), Path::new("/tmp/control.sock"));
        let gpus = vec![gpu("vm1", Chip::GH100, Topology::Mediated)];
        let text = gpu_config("gpu0", &spec(Backend::Soft, gpus), Chip::GH100, socket, control);
        assert!(
            text.contains("chip = \"GH100\"\nvram = \"1024M\"")
                && text.contains(r#"path = "/tmp/a \"b\"/gpu0.sock""#),
            "{text}"
        );
        let gpu = gpu("vm1", Chip::GF100, Topology::Mediated);
        let text = vm_config(&gpu, CHANNELS, Path::new("/tmp/gpu0.sock"), Path::new("/tmp/vm1.sock"));
        assert!(
            text.starts_with("name = \"vm1\"\ngpu = \"/tmp/gpu0.sock\"\nchip = \"GF100\"\nvram = \"256M\"\n"),
            "{text}"
        );
    }

    #[test]
    fn real_gpu_is_told_what_its_guests_may_have_together() {
        let gpus = vec![gpu("vm1", Chip::GH100, Topology::Mediated)];
        let spec = spec(Backend::Rm, gpus);
        let text = gpu_config("h200", &spec, Chip::GH100, Path::new("/a"), Path::new("/b"));
        assert!(text.contains("backend = \"rm\"\nchip = \"GH100\"\nvram = \"1024M\""), "{text}");
    }

    #[test]
    fn native_gpus_have_no_part_of_a_shared_one() {
        let gpus = vec![
            gpu("vm1-1", Chip::GF100, Topology::Native),
            gpu("vm1-2", Chip::GF100, Topology::Mediated),
            gpu("vm2", Chip::GH100, Topology::Mediated),
        ];
        let spec = spec(Backend::Soft, gpus);
        let text = gpu_config("gpu0", &spec, Chip::GF100, Path::new("/a"), Path::new("/b"));
        assert!(text.contains("vram = \"1024M\""), "one partition and the spare: {text}");
    }
}
