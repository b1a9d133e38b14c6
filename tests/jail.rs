//! What the jail forbids ends a process, whatever the thread; what it allows goes on working.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests may fail as tests do"
)]

#[path = "common/prisoner.rs"]
mod prisoner;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use gpuvmk::jail::{Mode, Role};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

const PRISONER: &str = "the_prisoner";

/// Not a test: the process that the tests start.
#[test]
#[ignore = "started by the other tests"]
fn the_prisoner() {
    prisoner::serve_sentence();
}

fn sentence(role: Role, deed: &str) -> (Output, String) {
    let output = prisoner::run(&[], PRISONER, role, deed);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

#[test]
fn forbidden_call_ends_the_process_and_is_named() {
    for role in Role::ALL {
        for (crime, number, arguments) in prisoner::crimes() {
            assert!(!role.allows(number, &arguments), "{role} may {crime}");

            let (output, said) = sentence(role, crime);

            assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{role}, {crime}: {said}");
            let line = format!("a thread `{role}` made system call {number}");
            assert!(said.contains(&line) && !said.contains(prisoner::DONE), "{role}, {crime}: {said}");
        }
    }
}

/// The calls that give a role new descriptors.
fn may_make(role: Role) -> &'static [&'static str] {
    match role {
        // The memory file: where a client's memory windows are the VM's own, each client gets a new one.
        Role::Session => &["socket", "accept4", "eventfd2", "memfd_create"],
        Role::SoftGpu => &["accept4", "eventfd2"],
        Role::RmOwner => &["open", "openat"],
        // The GPU's memory for its next owner.
        Role::CardOwner | Role::Reaper => &["memfd_create"],
        // What a VM talks to the owner by; the gate starts porters.
        Role::Porter => &["pipe2", "eventfd2", "memfd_create"],
        Role::Gate => &["accept4", "eventfd2", "pidfd_open", "pipe2", "memfd_create"],
        Role::Control | Role::Recorder | Role::Door | Role::Viewers => &["accept4"],
        // Beside what KVM's calls make.
        Role::Vmm => &["socket", "eventfd2", "epoll_create1", "memfd_create"],
        Role::Processor => &["socket", "eventfd2"],
        Role::CardSession => &["accept4", "eventfd2", "epoll_create1"],
        Role::CardVmm => &["eventfd2", "epoll_create1", "memfd_create"],
        Role::CardProcessor => &["eventfd2"],
        // Beside sockets of another kind, to a back end that came back.
        Role::BackEnd => &["epoll_create1"],
        Role::Owner
        | Role::Events
        | Role::Alarm
        | Role::KernelChannels
        | Role::Frames
        | Role::Compose
        | Role::Unmask
        | Role::Trace
        | Role::Signals
        | Role::Supervisor
        | Role::Pbdma
        | Role::Engine
        | Role::Pinner
        | Role::CardPinner
        | Role::CardInterrupts
        | Role::Doorbells
        | Role::CardDoorbells
        | Role::Disk
        | Role::BackEndClock
        | Role::Typing
        | Role::Interrupts => &[],
    }
}

#[test]
fn no_role_makes_descriptors_but_those_that_it_needs() {
    for role in Role::ALL {
        for (call, number, arguments) in prisoner::makers() {
            let needed = may_make(role).contains(&call);
            assert_eq!(role.allows(number, &arguments), needed, "{role}: {call}");
            if needed {
                continue;
            }

            let (output, said) = sentence(role, call);

            assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{role}, {call}: {said}");
        }
    }
}

#[test]
fn threads_of_a_machine_make_the_calls_of_kvm_that_they_need_and_no_others() {
    const CREATE_VM: u64 = 0xae01;
    const SET_SREGS: u64 = 0x4138_ae84;
    const RUN: u64 = 0xae80;
    const SLOT: u64 = 0x4020_ae46;
    const LINE: u64 = 0x4008_ae61;
    // An ioctl that puts characters into a terminal's input, as if they were typed.
    const TIOCSTI: u64 = 0x5412;
    let may = |role: Role| {
        let all = [CREATE_VM, SET_SREGS, RUN, SLOT, LINE, TIOCSTI];
        all.map(|call| role.allows(libc::SYS_ioctl, &[3, call, 0]))
    };
    for role in [Role::Vmm, Role::CardVmm] {
        assert_eq!(may(role), [true, true, true, true, true, false], "{role}");
    }
    for role in [Role::Processor, Role::CardProcessor] {
        assert_eq!(may(role), [false, false, true, true, true, false], "{role}");
    }
    for role in [Role::Doorbells, Role::CardDoorbells, Role::Interrupts] {
        assert_eq!(may(role), [false, false, false, true, true, false], "{role}");
    }
    for role in [Role::Disk, Role::BackEnd] {
        assert_eq!(may(role), [false, false, false, false, true, false], "{role}");
    }
    for role in [Role::Typing, Role::BackEndClock, Role::Session, Role::Events, Role::Owner] {
        assert_eq!(may(role), [false; 6], "{role}");
    }
}

#[test]
fn allocator_log_and_rare_paths_work_in_every_role() {
    for role in Role::ALL {
        for deed in ["work", "exit"] {
            let (output, said) = sentence(role, deed);

            assert!(output.status.success(), "{role}, {deed}: {:?}: {said}", output.status);
            assert!(said.contains(prisoner::DONE), "{role}, {deed}: {said}");
        }
    }
}

#[test]
fn crash_stays_the_crash_that_it_is() {
    for role in Role::ALL {
        for (deed, signal) in [("abort", libc::SIGABRT), ("segv", libc::SIGSEGV), ("bus", libc::SIGBUS)] {
            let (output, said) = sentence(role, deed);

            assert_eq!(output.status.signal(), Some(signal), "{role}, {deed}: {said}");
            assert!(!output.status.core_dumped(), "{role}, {deed}: a core was dumped");
        }
    }
}

#[test]
fn panic_ends_the_process_unless_its_thread_is_expendable() {
    for role in Role::ALL {
        let (output, said) = sentence(role, "panic");

        assert!(said.contains("a panic on purpose"), "{role}: {said}");
        if role.is_expendable() {
            assert!(output.status.success() && said.contains(prisoner::DONE), "{role}: {said}");
        } else {
            assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{role}: {said}");
            assert!(said.contains(&format!("nothing goes on without a thread `{role}`")), "{said}");
        }
    }
}

#[test]
fn owner_of_a_real_gpu_opens_its_nodes_and_nothing_else() {
    let (output, said) = sentence(Role::RmOwner, "open nodes");

    assert!(output.status.success(), "{said}");
    assert!(said.contains("/dev/zero: Ok(())"), "{said}");
    for forbidden in ["/dev/null", "/etc/passwd"] {
        assert!(said.contains(&format!("{forbidden}: Err(Some(13))")), "{said}");
    }
}

/// What is left of sockets to a device back end: see docs/jail.md, "What is left".
#[test]
fn device_back_end_reaches_no_abstract_socket_and_only_paths_that_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.sock");
    let make = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    };
    let servers = [
        (make(), SocketAddrUnix::new(&path).unwrap()),
        (make(), SocketAddrUnix::new_abstract_name(path.to_str().unwrap().as_bytes()).unwrap()),
    ];
    for (server, address) in &servers {
        rustix::net::bind(server, address).unwrap();
        rustix::net::listen(server, 8).unwrap();
    }
    let says = |mode| {
        let mut prisoner = prisoner::prisoner(mode, &[], PRISONER, Role::Session, "connect");
        let output = prisoner.env(prisoner::SERVER, &path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };

    let (free, jailed) = (says(Mode::Off), says(Mode::Enforce));

    for place in ["at a path: Ok(())", "abstract: Ok(())"] {
        assert!(free.contains(place), "{free}");
    }
    // Landlock learned about abstract sockets in its version 6, and about those at paths in its version 9.
    let knows = landlock_version();
    let at_path = if knows >= 9 { "at a path: Err(Some(13))" } else { "at a path: Ok(())" };
    let hidden = if knows >= 6 { "abstract: Err(1)" } else { "abstract: Ok(())" };
    assert!(jailed.contains(at_path) && jailed.contains(hidden), "Landlock V{knows}: {jailed}");
}

/// What this kernel's Landlock can do; 0 without one.
#[allow(unsafe_code, reason = "there is no other way to ask")]
fn landlock_version() -> i64 {
    // SAFETY: with this flag the call takes no memory, and says a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) }.max(0)
}

#[test]
fn forbidden_call_only_goes_into_the_kernels_log_in_mode_log() {
    let deed = "make a TCP socket";

    let output = prisoner::run_in(Mode::Log, &[], PRISONER, Role::Session, deed);

    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(prisoner::DONE), "{said}");
    assert!(!said.contains(&format!("{deed}: -1")), "{said}");
}

#[test]
fn without_a_jail_nothing_is_forbidden() {
    let output = prisoner::run_in(Mode::Off, &[], PRISONER, Role::Session, "open a file");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// An aggregator and a device back end, with one more descriptor than they should have.
struct Daemons {
    _folder: tempfile::TempDir,
    children: Vec<Child>,
}

impl Daemons {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let gpu = "name = \"gpu0\"\nbackend = \"soft\"\nvram = \"256M\"\n[socket]\npath = \"gpu0.sock\"\n";
        std::fs::write(path.join("gpu0.toml"), gpu).unwrap();
        let vm = "name = \"vm1\"\ngpu = \"gpu0.sock\"\nvram = \"64M\"\n[socket]\npath = \"vm1.sock\"\n";
        std::fs::write(path.join("vm1.toml"), vm).unwrap();
        let mut daemons = Self { children: Vec::new(), _folder: folder };
        for (command, file, ready) in
            [("aggregator", "gpu0.toml", "serves at"), ("device", "vm1.toml", "vGPU of VM `vm1` serves")]
        {
            let script = format!("exec 9<{file}; exec {} {command} {file}", env!("CARGO_BIN_EXE_gpuvmk"));
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", &script]).current_dir(daemons._folder.path()).stderr(Stdio::piped());
            let mut child = shell.spawn().unwrap();
            let lines = BufReader::new(child.stderr.take().unwrap()).lines();
            daemons.children.push(child);
            assert!(lines.map_while(Result::ok).any(|line| line.contains(ready)), "{command} does not start");
        }
        // The message comes just before the main thread's filter.
        std::thread::sleep(std::time::Duration::from_millis(200));
        daemons
    }

    fn processes(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.children.iter().map(|child| Path::new("/proc").join(child.id().to_string()))
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn field(text: &str, name: &str) -> String {
    let line =
        text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
    line[name.len()..].trim_matches([':', ' ', '\t']).to_owned()
}

#[test]
fn every_thread_of_a_daemon_has_given_up_what_it_does_not_need() {
    let daemons = Daemons::start();

    for process in daemons.processes() {
        let tasks: Vec<PathBuf> =
            std::fs::read_dir(process.join("task")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(tasks.len() > 1);
        for task in tasks {
            let status = std::fs::read_to_string(task.join("status")).unwrap();
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                assert_eq!(field(&status, set), "0".repeat(16), "{set}: {status}");
            }
            assert_eq!(field(&status, "NoNewPrivs"), "1", "{status}");
            // Not only some: by filters.
            assert_eq!(field(&status, "Seccomp:"), "2", "{status}");
        }
        let limits = std::fs::read_to_string(process.join("limits")).unwrap();
        assert!(field(&limits, "Max core file size").starts_with("0  "), "{limits}");
        for entry in std::fs::read_dir(process.join("fd")).unwrap() {
            let target = std::fs::read_link(entry.unwrap().path()).unwrap();
            let inherited = target.extension().is_some_and(|kind| kind == "toml");
            assert!(!inherited, "{} is open in {}", target.display(), process.display());
        }
    }
}
