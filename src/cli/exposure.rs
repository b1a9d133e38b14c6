//! Sockets that processes can reach which should not: `gpuvmk check` warns of them. A QEMU may have been
//! taken over by its guest, so it should reach its own VM's device back end, and neither the aggregator, nor
//! operators' sockets, nor another VM's. Pure; the caller passes the members of groups.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::config::AnyConfig;
use crate::host::socket_path::SocketSpec;

/// Groups that QEMU processes of a machine are in, whichever VM they run.
const QEMU_GROUPS: [&str; 4] = ["kvm", "libvirt-qemu", "qemu", "libvirt"];

/// Users that they run as by default.
const QEMU_USERS: [&str; 2] = ["libvirt-qemu", "qemu"];

/// Permission to connect: that to write to the socket.
const BY_GROUP: u32 = 0o020;
const BY_OTHERS: u32 = 0o002;

/// A problem of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Warning {
    /// The file.
    pub file: PathBuf,
    /// The key.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub allowed: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, key, problem, allowed } = self;
        write!(f, "{}: warning: `{key}`: {problem} (better: {allowed})", file.display())
    }
}

/// A socket of a file.
struct Socket<'a> {
    file: &'a Path,
    key: String,
    spec: &'a SocketSpec,
    /// The VM whose QEMU it is for; `None`: for no QEMU.
    qemu_of: Option<&'a str>,
}

impl Socket<'_> {
    /// The group whose members may connect, unless a list of users says who of them is served.
    fn open_group(&self) -> Option<&str> {
        let open = self.spec.mode & BY_GROUP != 0 && self.spec.users.is_none();
        self.spec.group.as_deref().filter(|_| open)
    }

    fn warn(&self, key: &str, problem: String, allowed: &str) -> Warning {
        let key = format!("{}.{key}", self.key);
        Warning { file: self.file.to_owned(), key, problem, allowed: allowed.to_owned() }
    }
}

/// The warnings for files that belong together; `members` are those of a group of this machine.
pub(super) fn warnings(
    files: &[(PathBuf, AnyConfig)],
    members: impl Fn(&str) -> Vec<String>,
) -> Vec<Warning> {
    let sockets: Vec<Socket<'_>> = files.iter().flat_map(|(file, config)| sockets(file, config)).collect();
    let guests = || sockets.iter().filter_map(|socket| Some((socket.qemu_of?, socket)));
    let back_ends: Vec<&str> = files.iter().flat_map(|(_, config)| back_ends(config)).collect();
    // Users that a QEMU may run as: they are in the group of a VM's socket, and are no device back ends.
    let mut qemus: Vec<String> = QEMU_USERS.map(str::to_owned).to_vec();
    qemus.extend(guests().filter_map(|(_, socket)| socket.spec.group.as_deref()).flat_map(&members));
    qemus.retain(|user| !back_ends.contains(&user.as_str()));
    let mut found = Vec::new();
    for socket in &sockets {
        if socket.spec.mode & BY_OTHERS != 0 && socket.spec.users.is_none() {
            let problem = format!("\"{:04o}\" lets every user of the machine connect", socket.spec.mode);
            found.push(socket.warn("mode", problem, "\"0660\" and a group, or `allow_users`"));
        }
        if let Some(vm) = socket.qemu_of {
            found.extend(of_a_vm(socket, vm, guests()));
        } else {
            found.extend(of_no_vm(socket, guests(), &qemus, &members));
        }
    }
    found
}

/// The socket that a VM's QEMU connects to.
fn of_a_vm<'a>(
    socket: &Socket<'_>,
    vm: &str,
    guests: impl Iterator<Item = (&'a str, &'a Socket<'a>)>,
) -> Option<Warning> {
    let group = socket.open_group()?;
    let allowed = "a group with the QEMU of this VM alone in it (examples/sysusers-vm1.conf)";
    if QEMU_GROUPS.contains(&group) {
        let problem = format!("QEMUs of all VMs are in group {group}, and could take this VM's place");
        return Some(socket.warn("group", problem, allowed));
    }
    let same = |other: &Socket<'_>| other.open_group() == Some(group);
    let (other, _) = { guests }.find(|(other, there)| *other != vm && same(there))?;
    let problem =
        format!("{group} is the group of {other}'s socket as well: either QEMU could take the other's place");
    Some(socket.warn("group", problem, allowed))
}

/// A socket that no QEMU has business at.
fn of_no_vm<'a>(
    socket: &Socket<'_>,
    guests: impl Iterator<Item = (&'a str, &'a Socket<'a>)>,
    qemus: &[String],
    members: impl Fn(&str) -> Vec<String>,
) -> Option<Warning> {
    let allowed = "a group without QEMU in it, such as gpuvmk-backend or gpuvmk-operator";
    if let Some(users) = &socket.spec.users {
        let user = users.iter().find(|user| qemus.contains(user))?;
        let problem = format!("{user} is a user that QEMU runs as");
        return Some(socket.warn("allow_users", problem, "users that no QEMU runs as"));
    }
    let group = socket.open_group()?;
    if QEMU_GROUPS.contains(&group) {
        let problem = format!("QEMU is in group {group}, and has no business at this socket");
        return Some(socket.warn("group", problem, allowed));
    }
    if let Some((vm, _)) = { guests }.find(|(_, other)| other.open_group() == Some(group)) {
        let problem = format!("{vm}'s QEMU is in group {group}, and has no business at this socket");
        return Some(socket.warn("group", problem, allowed));
    }
    let there = members(group);
    let user = there.iter().find(|user| qemus.contains(user))?;
    let problem =
        format!("{user}, whom QEMU runs as, is in group {group}, and has no business at this socket");
    Some(socket.warn("group", problem, allowed))
}

fn sockets<'a>(file: &'a Path, config: &'a AnyConfig) -> Vec<Socket<'a>> {
    let socket = |key: &str, spec, qemu_of| Socket { file, key: key.to_owned(), spec, qemu_of };
    match config {
        AnyConfig::Gpu(gpu) => {
            let mut all = vec![socket("socket", &gpu.socket, None)];
            all.extend(gpu.control.iter().map(|spec| socket("control", spec, None)));
            all.extend(gpu.recorder.iter().map(|spec| socket("trace.socket", spec, None)));
            for (number, entry) in (1..).zip(gpu.vms.iter().flatten()) {
                let key = format!("vm[{number}].socket");
                all.extend(entry.socket.iter().map(|spec| socket(&key, spec, None)));
            }
            all
        }
        AnyConfig::Vm(vm) => {
            let mut all = Vec::new();
            all.extend(vm.socket().map(|spec| socket("socket", spec, Some(vm.name()))));
            all.extend(vm.recorder().map(|spec| socket("trace.socket", spec, None)));
            all
        }
    }
}

/// Users of device back ends.
fn back_ends(config: &AnyConfig) -> Vec<&str> {
    match config {
        AnyConfig::Gpu(gpu) => gpu.vms.iter().flatten().filter_map(|entry| entry.user.as_deref()).collect(),
        AnyConfig::Vm(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(more: &str) -> (PathBuf, AnyConfig) {
        let text = format!("name = \"gpu0\"\nbackend = \"soft\"\n{more}");
        let file = PathBuf::from("/etc/gpuvmk/gpu0.toml");
        (file.clone(), AnyConfig::of_text(&file, &text).unwrap())
    }

    fn vm(name: &str, group: &str) -> (PathBuf, AnyConfig) {
        let file = PathBuf::from(format!("/etc/gpuvmk/{name}.toml"));
        let text = format!(
            "name = \"{name}\"\ngpu = \"/run/g\"\nvram = \"64M\"\n[socket]\npath = \"/run/{name}\"\ngroup = \"{group}\"\n"
        );
        (file.clone(), AnyConfig::of_text(&file, &text).unwrap())
    }

    const SOUND: &str = "[socket]\npath = \"/run/g\"\ngroup = \"gpuvmk-backend\"\n[control]\npath = \"/run/c\"\n\
                         group = \"gpuvmk-operator\"\n[[vm]]\nname = \"vm1\"\nuser = \"gpuvmk-vm1\"\nvram = \"64M\"\n";

    fn nobody(_: &str) -> Vec<String> {
        Vec::new()
    }

    fn said(files: &[(PathBuf, AnyConfig)], members: impl Fn(&str) -> Vec<String>) -> Vec<String> {
        warnings(files, members).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn groups_apart_are_fine() {
        let members = |group: &str| {
            let members: &[&str] = match group {
                "vgpu-vm1" => &["gpuvmk-vm1", "qemu-vm1"],
                "gpuvmk-backend" => &["gpuvmk", "gpuvmk-vm1"],
                _ => &[],
            };
            members.iter().map(|member| (*member).to_owned()).collect()
        };
        assert_eq!(said(&[gpu(SOUND), vm("vm1", "vgpu-vm1"), vm("vm2", "vgpu-vm2")], members), [""; 0]);
    }

    #[test]
    fn sockets_that_qemu_reaches_are_named() {
        let shared = SOUND.replace("gpuvmk-backend", "kvm").replace("gpuvmk-operator", "vgpu-vm1");
        let found = said(&[gpu(&shared), vm("vm1", "vgpu-vm1")], nobody);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("/etc/gpuvmk/gpu0.toml: warning: `socket.group`: QEMU is in group kvm"));
        assert!(found[1].contains("`control.group`: vm1's QEMU is in group vgpu-vm1"), "{found:?}");

        let private = shared.replace("group = ", "mode = \"0600\"\ngroup = ");
        assert_eq!(
            said(&[gpu(&private), vm("vm1", "vgpu-vm1")], nobody),
            [""; 0],
            "the mode does not let it in"
        );
        let listed = shared.replace("group = ", "allow_users = [\"gpuvmk-vm1\"]\ngroup = ");
        assert_eq!(said(&[gpu(&listed), vm("vm1", "vgpu-vm1")], nobody), [""; 0], "it is not served");
    }

    #[test]
    fn qemus_user_in_another_group_is_named() {
        let members = |group: &str| match group {
            "vgpu-vm1" => vec!["gpuvmk-vm1".to_owned(), "qemu-vm1".to_owned()],
            "gpuvmk-operator" => vec!["alice".to_owned(), "qemu-vm1".to_owned()],
            "gpuvmk-backend" => vec!["gpuvmk-vm1".to_owned(), "libvirt-qemu".to_owned()],
            _ => Vec::new(),
        };
        let found = said(&[gpu(SOUND), vm("vm1", "vgpu-vm1")], members);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("libvirt-qemu, whom QEMU runs as, is in group gpuvmk-backend"),
            "{found:?}"
        );
        assert!(found[1].contains("qemu-vm1, whom QEMU runs as, is in group gpuvmk-operator"), "{found:?}");
        let listed = SOUND.replace("group = \"gpuvmk-operator\"", "allow_users = [\"qemu-vm1\"]");
        let found = said(&[gpu(&listed), vm("vm1", "vgpu-vm1")], members);
        assert!(
            found[1].contains("`control.allow_users`: qemu-vm1 is a user that QEMU runs as"),
            "{found:?}"
        );
    }

    #[test]
    fn everybodys_and_shared_sockets_are_named() {
        let open = SOUND.replace("group = \"gpuvmk-operator\"", "mode = \"0666\"");
        let found = said(&[gpu(&open), vm("vm1", "vms"), vm("vm2", "vms"), vm("vm3", "kvm")], nobody);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].contains("`control.mode`: \"0666\" lets every user"), "{found:?}");
        assert!(found[1].contains("vms is the group of vm2's socket as well"), "{found:?}");
        assert!(found[2].contains("vms is the group of vm1's socket as well"), "{found:?}");
        assert!(found[3].contains("QEMUs of all VMs are in group kvm"), "{found:?}");
    }
}
