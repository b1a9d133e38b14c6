//! The steps from the running state to the desired one. Pure: states in, steps out.

use std::fmt;
use std::path::PathBuf;

use gpuvmk_control_client::{GuestStatus, ShareStatus, Status};
use serde_json::{Value, json};

use super::desired::{self, DesiredState, Setting};
use crate::host::size::show_size;

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Start a GPU's aggregator.
    StartGpu { gpu: String, file: PathBuf },
    /// Change a GPU's policy.
    SetGpu { gpu: String, settings: Vec<String> },
    /// Change a VM's part.
    SetVm { gpu: String, vm: String, settings: Vec<String> },
    /// Start a VM's back end.
    StartVm { gpu: String, vm: String, file: PathBuf },
    /// Let a VM finish and stop its back end.
    StopVm { gpu: String, vm: String },
    /// Let a VM come, with so much at most.
    AllowVm { gpu: String, guest: GuestStatus },
    /// Let a VM come no more.
    ForbidVm { gpu: String, vm: String },
    /// Something that no running aggregator can be given.
    RestartGpu { gpu: String, why: String },
    /// A VM whose name is its back end's own word.
    Unvouched { gpu: String, vm: String, uid: u32 },
    /// Something that no running VM can be given.
    Restart { gpu: String, vm: String, why: String },
}

impl Step {
    /// Whether a process comes or goes by it.
    pub(super) fn starts_or_stops(&self) -> bool {
        matches!(self, Self::StartGpu { .. } | Self::StartVm { .. } | Self::StopVm { .. })
    }

    /// Whether it cannot be done here, and is said only.
    pub(super) fn is_left_to_others(&self) -> bool {
        matches!(self, Self::Restart { .. } | Self::RestartGpu { .. } | Self::Unvouched { .. })
    }

    /// For programs.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::StartGpu { gpu, file } => json!({ "step": "start_gpu", "gpu": gpu, "file": file }),
            Self::SetGpu { gpu, settings } => json!({ "step": "set_gpu", "gpu": gpu, "settings": settings }),
            Self::SetVm { gpu, vm, settings } => {
                json!({ "step": "set_vm", "gpu": gpu, "vm": vm, "settings": settings })
            }
            Self::StartVm { gpu, vm, file } => {
                json!({ "step": "start_vm", "gpu": gpu, "vm": vm, "file": file })
            }
            Self::StopVm { gpu, vm } => json!({ "step": "stop_vm", "gpu": gpu, "vm": vm }),
            Self::AllowVm { gpu, guest } => json!({ "step": "allow_vm", "gpu": gpu, "vm": guest }),
            Self::ForbidVm { gpu, vm } => json!({ "step": "forbid_vm", "gpu": gpu, "vm": vm }),
            Self::RestartGpu { gpu, why } => json!({ "step": "restart_gpu", "gpu": gpu, "why": why }),
            Self::Unvouched { gpu, vm, uid } => {
                json!({ "step": "name_whose_vm", "gpu": gpu, "vm": vm, "uid": uid })
            }
            Self::Restart { gpu, vm, why } => {
                json!({ "step": "restart_vm", "gpu": gpu, "vm": vm, "why": why })
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StartGpu { gpu, .. } => write!(f, "{gpu}: start its aggregator"),
            Self::SetGpu { gpu, settings } => write!(f, "{gpu}: set {}", settings.join(" ")),
            Self::SetVm { gpu, vm, settings } => write!(f, "{gpu}: {vm}: set {}", settings.join(" ")),
            Self::StartVm { gpu, vm, .. } => write!(f, "{gpu}: {vm}: start"),
            Self::StopVm { gpu, vm } => write!(f, "{gpu}: {vm}: stop"),
            Self::AllowVm { gpu, guest } => write!(f, "{gpu}: {}: may come, as its section says", guest.name),
            Self::ForbidVm { gpu, vm } => write!(f, "{gpu}: {vm}: may come no more"),
            Self::RestartGpu { gpu, why } => write!(f, "{gpu}: its aggregator must be restarted for {why}"),
            Self::Unvouched { gpu, vm, uid } => write!(
                f,
                "{gpu}: {vm}: is user {uid}'s, of whom no [[vm]] section of the GPU's file says that he may be {vm}; nothing is set"
            ),
            Self::Restart { gpu, vm, why } => write!(f, "{gpu}: {vm}: must be restarted for {why}"),
        }
    }
}

/// The steps for one GPU; `status` is what its aggregator says, if it runs.
pub(super) fn steps(desired: &DesiredState, status: Option<&Status>) -> Vec<Step> {
    let gpu = desired.gpu.name.clone();
    let start = |(file, vm): &(PathBuf, _)| {
        let vm: &crate::config::VmConfig = vm;
        Step::StartVm { gpu: gpu.clone(), vm: vm.name.clone(), file: file.clone() }
    };
    let Some(status) = status else {
        let aggregator = Step::StartGpu { gpu: gpu.clone(), file: desired.file.clone() };
        return std::iter::once(aggregator).chain(desired.vms.iter().map(start)).collect();
    };
    let mut steps = Vec::new();
    let set = |key: &str| match key {
        "slice" => status.gpu.slice_us,
        _ => status.gpu.period_us,
    };
    let mut settings = differing(&desired::policy(&desired.gpu), set);
    let policy = desired.gpu.policy.name();
    if status.gpu.policy != policy {
        settings.insert(0, format!("policy={policy}"));
    }
    if !settings.is_empty() {
        steps.push(Step::SetGpu { gpu: gpu.clone(), settings });
    }
    steps.extend(list_steps(desired, status.gpu.vms.as_deref()));
    // VMs that go make room for those that come.
    for tenant in &status.tenants {
        if !desired.vms.iter().any(|(_, wanted)| wanted.name == tenant.name) {
            steps.push(Step::StopVm { gpu: gpu.clone(), vm: tenant.name.clone() });
        }
    }
    for entry in &desired.vms {
        let vm = &entry.1;
        let Some(tenant) = status.tenant(&vm.name) else {
            steps.push(start(entry));
            continue;
        };
        let settings = differing(&desired::share(vm), |key| granted(tenant.share.as_ref()?, key));
        if !settings.is_empty() && !tenant.vouched {
            let uid = tenant.uid;
            steps.push(Step::Unvouched { gpu: gpu.clone(), vm: vm.name.clone(), uid });
        } else if !settings.is_empty() {
            steps.push(Step::SetVm { gpu: gpu.clone(), vm: vm.name.clone(), settings });
        }
        let mut why = Vec::new();
        if tenant.vram != vm.vram {
            why.push(format!("vram: {} instead of {}", show_size(vm.vram), show_size(tenant.vram)));
        }
        if tenant.channel_limit != vm.channels {
            why.push(format!("channels: {} instead of {}", vm.channels, tenant.channel_limit));
        }
        if !why.is_empty() {
            steps.push(Step::Restart { gpu: gpu.clone(), vm: vm.name.clone(), why: why.join(", ") });
        }
    }
    steps
}

/// Changes of the list of VMs that may come.
fn list_steps(desired: &DesiredState, present: Option<&[GuestStatus]>) -> Vec<Step> {
    let gpu = &desired.gpu.name;
    let restart = |why: String| Step::RestartGpu { gpu: gpu.clone(), why };
    let Some(wanted) = &desired.guests else {
        return if present.is_some() {
            vec![restart("a list of VMs that the file has no more".to_owned())]
        } else {
            Vec::new()
        };
    };
    let Some(present) = present else {
        return vec![restart("the [[vm]] sections of its file".to_owned())];
    };
    let known = |name: &str| present.iter().find(|guest| guest.name == name);
    let gone = present.iter().filter(|guest| !wanted.contains_key(&guest.name));
    let mut steps: Vec<Step> =
        gone.map(|guest| Step::ForbidVm { gpu: gpu.clone(), vm: guest.name.clone() }).collect();
    for (name, guest) in wanted {
        let guest = guest.status(name);
        if known(name).is_some_and(|known| known.own_socket) != guest.own_socket {
            steps.push(restart(format!("the socket of {name}'s own")));
        } else if known(name) != Some(&guest) {
            steps.push(Step::AllowVm { gpu: gpu.clone(), guest });
        }
    }
    steps
}

/// A VM's granted value of a setting's key.
fn granted(share: &ShareStatus, key: &str) -> Option<u64> {
    match key {
        "weight" => Some(share.weight.into()),
        "cap" => share.cap.map(u64::from),
        "fixed" => share.fixed.map(u64::from),
        "period" => Some(share.period_us),
        "budget" => Some(share.budget_us),
        _ => None,
    }
}

/// Settings of which something else holds, as `gpuvmk set` takes them.
fn differing(wanted: &[Setting], holds: impl Fn(&str) -> Option<u64>) -> Vec<String> {
    let show = |value: Option<u64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
    let differing = wanted.iter().filter(|(key, value)| holds(key) != *value);
    differing.map(|(key, value)| format!("{key}={}", show(*value))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const GPU: &str = "name = \"gpu0\"\nbackend = \"soft\"\nvram = \"256M\"\npolicy = \"weighted\"\nslice = 3000\n\
                       [socket]\npath = \"gpu0.sock\"\n[control]\npath = \"gpu0.control\"\n";

    fn folder(vms: &[(&str, &str)]) -> (tempfile::TempDir, DesiredState) {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("gpu0.toml", GPU);
        for (vm, more) in vms {
            let text = format!("name = \"{vm}\"\ngpu = \"gpu0.sock\"\nvram = \"64M\"\n{more}\n");
            write(&format!("{vm}.toml"), &text);
        }
        let mut desired = desired::read(folder.path()).unwrap();
        assert_eq!(desired.len(), 1);
        (folder, desired.remove(0))
    }

    fn tenant(name: &str) -> Value {
        json!({ "name": name, "vouched": true, "vram": 64 << 20, "channel_limit": 32, "share": {
            "weight": 100, "cap": null, "fixed": 25, "period_us": 20000, "budget_us": 0 } })
    }

    fn status(tenants: &[Value]) -> Value {
        json!({ "gpu": { "policy": "weighted", "slice_us": 3000, "period_us": null }, "tenants": tenants })
    }

    fn steps(desired: &DesiredState, status: Option<&Value>) -> Vec<Step> {
        let status = status.map(|status| serde_json::from_value(status.clone()).unwrap());
        super::steps(desired, status.as_ref())
    }

    fn shown(desired: &DesiredState, status: Option<&Value>) -> Vec<String> {
        steps(desired, status).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nothing_is_to_do_where_all_is_as_wanted() {
        let (_folder, desired) = folder(&[("vm1", ""), ("vm2", "weight = 100")]);
        assert_eq!(steps(&desired, Some(&status(&[tenant("vm2"), tenant("vm1")]))), []);
    }

    #[test]
    fn everything_starts_where_nothing_runs() {
        let (_folder, desired) = folder(&[("vm1", "")]);
        assert_eq!(shown(&desired, None), ["gpu0: start its aggregator", "gpu0: vm1: start"]);
    }

    #[test]
    fn vms_come_go_and_change() {
        let (_folder, desired) =
            folder(&[("vm1", "weight = 300\ncap = 50"), ("vm3", ""), ("vm4", "channels = 8")]);
        let mut status = status(&[tenant("vm1"), tenant("vm2"), tenant("vm4")]);
        status["gpu"]["policy"] = "fifo".into();
        status["gpu"]["slice_us"] = Value::Null;

        assert_eq!(
            shown(&desired, Some(&status)),
            [
                "gpu0: set policy=weighted slice=3000",
                "gpu0: vm2: stop",
                "gpu0: vm1: set weight=300 cap=50",
                "gpu0: vm3: start",
                "gpu0: vm4: must be restarted for channels: 8 instead of 32",
            ]
        );
    }

    #[test]
    fn list_of_vms_is_brought_up_to_date() {
        let (folder, _) = folder(&[("vm1", "")]);
        let text = format!(
            "{GPU}[[vm]]\nname = \"vm1\"\nuser = 1001\nvram = \"64M\"\nweight = 300\n[[vm]]\nname = \"vm2\"\nuser = 1002\nvram = \"64M\"\n"
        );
        std::fs::write(folder.path().join("gpu0.toml"), text).unwrap();
        let desired = desired::read(folder.path()).unwrap().remove(0);
        let listed: Vec<GuestStatus> =
            desired.guests.iter().flatten().map(|(name, guest)| guest.status(name)).collect();
        let mut status = status(&[tenant("vm1")]);
        status["gpu"]["vms"] = json!(listed);
        assert_eq!(shown(&desired, Some(&status)), ["gpu0: vm1: set weight=300"], "what its section says");

        status["gpu"]["vms"] = json!([{ "name": "old", "vram": 1, "channels": 1 }, listed[1]]);
        assert_eq!(
            shown(&desired, Some(&status))[..2],
            ["gpu0: old: may come no more", "gpu0: vm1: may come, as its section says"]
        );
        status["gpu"]["vms"] = Value::Null;
        assert_eq!(
            shown(&desired, Some(&status))[0],
            "gpu0: its aggregator must be restarted for the [[vm]] sections of its file"
        );
    }

    #[test]
    fn nothing_is_set_on_a_vm_that_only_says_that_it_is_it() {
        let (_folder, desired) = folder(&[("vm1", "weight = 300")]);
        let mut squatter = tenant("vm1");
        squatter["vouched"] = false.into();
        squatter["uid"] = 666.into();

        let found = steps(&desired, Some(&status(&[squatter])));

        assert_eq!(found, [Step::Unvouched { gpu: "gpu0".into(), vm: "vm1".into(), uid: 666 }]);
        assert!(found[0].is_left_to_others());
    }

    #[test]
    fn vms_that_the_list_does_not_allow_are_refused_with_both_files() {
        let (folder, _) = folder(&[("vm1", "weight = 300")]);
        let with = |section: &str| {
            let text = format!("{GPU}[[vm]]\nuser = 1001\n{section}\n");
            std::fs::write(folder.path().join("gpu0.toml"), text).unwrap();
            format!("{:#}", desired::read(folder.path()).unwrap_err())
        };
        for (section, said) in [
            ("name = \"vm2\"\nvram = \"64M\"", "no [[vm]] section of that name"),
            ("name = \"vm1\"\nvram = \"32M\"", "`vram` is 64M, more than the 32M"),
            ("name = \"vm1\"\nvram = \"64M\"\nchannels = 8", "`channels` is 32, more than the 8"),
            ("name = \"vm1\"\nvram = \"64M\"", "weight 300 is asked for, more than the 100"),
        ] {
            let found = with(section);
            assert!(
                found.contains(said) && found.contains("vm1.toml") && found.contains("gpu0.toml"),
                "{found}"
            );
        }
    }

    #[test]
    fn folders_that_make_no_sense_are_refused_with_the_file() {
        let (folder, _) = folder(&[("vm1", "")]);
        let path = folder.path();
        let said = |path: &Path| format!("{:#}", desired::read(path).unwrap_err());
        std::fs::write(path.join("zz.toml"), "name = \"vm1\"\ngpu = \"gpu0.sock\"\nvram = \"64M\"\n")
            .unwrap();
        assert!(said(path).contains("vm1.toml has already"), "{}", said(path));
        std::fs::write(path.join("zz.toml"), "name = \"vm2\"\ngpu = \"gpu9.sock\"\nvram = \"64M\"\n")
            .unwrap();
        assert!(said(path).contains("zz.toml") && said(path).contains("gpu0.sock"), "{}", said(path));
        assert!(said(tempfile::tempdir().unwrap().path()).contains("no GPU's file"));
    }
}
