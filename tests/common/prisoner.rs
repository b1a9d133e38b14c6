//! A process that takes on a role's filter and then does something: what the role may do, or what nobody may.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "makes system calls as no library would; helpers of tests may fail as tests do"
)]

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Output};
use std::sync::{Arc, Barrier};

use gpuvmk::chip::addr::PAGE_SIZE;
use gpuvmk::host::socket_path;
use gpuvmk::jail::{self, Allowance, Drives, Mode, PathRight, Right, Role, Rule};
use gpuvmk::pci::mapping::{Access, Mapping, absent, create_memory_file, unbacked};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

const ROLE: &str = "GPUVMK_TEST_ROLE";
const DEED: &str = "GPUVMK_TEST_DEED";
const MODE: &str = "GPUVMK_TEST_MODE";
/// For the deed `connect`: where servers listen, one at that path, one at that abstract name.
pub const SERVER: &str = "GPUVMK_TEST_SERVER";

/// The only file that a prisoner may open, if its filter lets it open any.
const ALLOWED: &str = "/dev/zero";

/// Threads that are started at once.
const MANY: usize = 24;

/// What is said when a deed was done.
pub const DONE: &str = "done and free to go";

/// What no thread may do: a name, the call, its arguments.
pub fn crimes() -> Vec<(&'static str, i64, [u64; 6])> {
    let path = c"/dev/null".as_ptr() as u64;
    let here = u64::from(libc::AT_FDCWD.cast_unsigned());
    let own = u64::from(std::process::id());
    let code = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    vec![
        ("open a file", libc::SYS_openat, [here, path, libc::O_RDONLY as u64, 0, 0, 0]),
        ("make a TCP socket", libc::SYS_socket, [libc::AF_INET as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0]),
        ("make a Unix stream socket", libc::SYS_socket, [1, libc::SOCK_STREAM as u64, 0, 0, 0, 0]),
        ("give a socket a name", libc::SYS_bind, [u64::MAX, 0, 0, 0, 0, 0]),
        ("listen at a socket", libc::SYS_listen, [u64::MAX, 0, 0, 0, 0, 0]),
        ("execute a program", libc::SYS_execve, [path, 0, 0, 0, 0, 0]),
        ("trace a process", libc::SYS_ptrace, [libc::PTRACE_ATTACH as u64, 1, 0, 0, 0, 0]),
        ("fork", libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]),
        ("fork the old way", libc::SYS_fork, [0; 6]),
        ("map code", libc::SYS_mmap, [0, 4096, code, private, u64::MAX, 0]),
        ("make memory code", libc::SYS_mprotect, [0, 0, code, 0, 0, 0]),
        ("signal a process", libc::SYS_kill, [own, 0, 0, 0, 0, 0]),
        ("read another process", libc::SYS_process_vm_readv, [1, 0, 0, 0, 0, 0]),
        ("load a BPF program", libc::SYS_bpf, [0; 6]),
        ("set up io_uring", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0]),
        ("handle page faults", libc::SYS_userfaultfd, [0; 6]),
        ("become root", libc::SYS_setuid, [0; 6]),
        ("enter a namespace", libc::SYS_unshare, [libc::CLONE_NEWUSER as u64, 0, 0, 0, 0, 0]),
        ("allow dumps", libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u64, 1, 0, 0, 0, 0]),
    ]
}

/// Every call that gives a process a new descriptor, but `recvmsg` and copies of one that it has: the call's
/// name and number, and arguments that do no harm.
pub fn makers() -> Vec<(&'static str, i64, [u64; 6])> {
    let path = c"/dev/null".as_ptr() as u64;
    let here = u64::from(libc::AT_FDCWD.cast_unsigned());
    let own = u64::from(std::process::id());
    let unix = [libc::AF_UNIX as u64, (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64, 0, 0, 0, 0];
    vec![
        ("open", libc::SYS_open, [path, (libc::O_RDWR | libc::O_CLOEXEC) as u64, 0, 0, 0, 0]),
        ("openat", libc::SYS_openat, [here, path, (libc::O_RDWR | libc::O_CLOEXEC) as u64, 0, 0, 0]),
        ("openat2", libc::SYS_openat2, [here, path, 0, 0, 0, 0]),
        ("creat", libc::SYS_creat, [path, 0, 0, 0, 0, 0]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, [here, 0, 0, 0, 0, 0]),
        ("open_tree", libc::SYS_open_tree, [here, path, 0, 0, 0, 0]),
        ("fsopen", libc::SYS_fsopen, [0; 6]),
        ("socket", libc::SYS_socket, unix),
        ("socketpair", libc::SYS_socketpair, unix),
        ("accept", libc::SYS_accept, [u64::MAX, 0, 0, 0, 0, 0]),
        ("accept4", libc::SYS_accept4, [u64::MAX, 0, 0, 0, 0, 0]),
        ("pipe", libc::SYS_pipe, [0; 6]),
        ("pipe2", libc::SYS_pipe2, [0; 6]),
        ("eventfd", libc::SYS_eventfd, [0; 6]),
        ("eventfd2", libc::SYS_eventfd2, [0; 6]),
        ("memfd_create", libc::SYS_memfd_create, [0; 6]),
        ("memfd_secret", libc::SYS_memfd_secret, [0; 6]),
        ("epoll_create1", libc::SYS_epoll_create1, [0; 6]),
        ("timerfd_create", libc::SYS_timerfd_create, [0; 6]),
        ("signalfd4", libc::SYS_signalfd4, [u64::MAX, 0, 8, 0, 0, 0]),
        ("inotify_init1", libc::SYS_inotify_init1, [0; 6]),
        ("fanotify_init", libc::SYS_fanotify_init, [0; 6]),
        ("mq_open", libc::SYS_mq_open, [0; 6]),
        ("perf_event_open", libc::SYS_perf_event_open, [0; 6]),
        ("pidfd_open", libc::SYS_pidfd_open, [own, u64::MAX, 0, 0, 0, 0]),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, [u64::MAX, 0, 0, 0, 0, 0]),
        ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset, [0; 6]),
    ]
}

fn syscall(number: i64, a: [u64; 6]) -> i64 {
    // SAFETY: the arguments are ones that do no harm where the call is made: empty ranges, bad descriptors,
    // signal 0.
    unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) }
}

/// Runs `deed` in a process of its own, on a thread of `role`. `command` is what runs it (a tracer with its
/// arguments), empty for nothing.
pub fn run(command: &[&str], test: &str, role: Role, deed: &str) -> Output {
    run_in(Mode::Enforce, command, test, role, deed)
}

/// The same, with the jail in another mode.
pub fn run_in(mode: Mode, command: &[&str], test: &str, role: Role, deed: &str) -> Output {
    prisoner(mode, command, test, role, deed).output().unwrap()
}

/// The process of [`run_in`], not started yet.
pub fn prisoner(mode: Mode, command: &[&str], test: &str, role: Role, deed: &str) -> Command {
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let mut words = command.to_vec();
    words.extend([own, "--ignored", "--exact", test, "--nocapture"]);
    let (program, arguments) = words.split_first().unwrap();
    let mut prisoner = Command::new(program);
    prisoner
        .args(arguments)
        .env(ROLE, role.name())
        .env(DEED, deed)
        .env(MODE, mode.name())
        // An empty file: see `behind_the_end_of_a_file`.
        .stdin(tempfile::tempfile().unwrap());
    prisoner
}

/// The body of the test that [`run`] names; returns at once where it is run by itself.
pub fn serve_sentence() {
    let (Ok(role), Ok(deed)) = (std::env::var(ROLE), std::env::var(DEED)) else { return };
    let role = Role::of_name(&role).unwrap();
    let mode: Mode = std::env::var(MODE).unwrap().parse().unwrap();
    env_logger::init();
    jail::prepare(None).unwrap();
    // The thread is called as in the daemons, so that a tracer's log tells the role.
    let name = role.thread().unwrap_or(role.name()).to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let paths = vec![PathRight { path: ALLOWED.into(), right: Right::Device }];
        let drives = Drives::Nothing;
        // The harness has two threads.
        let allowed = Allowance { paths, descriptors: None, memory: None, drives, beside: 2 };
        let held = matches!(role, Role::Pinner | Role::CardPinner).then(guests_memory);
        jail::confine(mode, &allowed).unwrap();
        jail::enter(role);
        act(role, &deed, held.as_ref());
    });
    thread.unwrap().join().unwrap();
    eprintln!("{DONE}");
}

/// A page of a guest's memory that is there, in front of one that is not.
fn guests_memory() -> OwnedFd {
    absent::refuse_here().unwrap();
    let file = create_memory_file(c"guest", 2 * PAGE_SIZE).unwrap();
    rustix::io::pwrite(&file, &[1], 0).unwrap();
    file
}

/// What is done with a guest's memory before a driver holds it in place.
fn hold(file: &OwnedFd) {
    assert_eq!(unbacked(file.as_fd(), 0, 2 * PAGE_SIZE, 0).unwrap(), PAGE_SIZE);
    drop(Mapping::of_others(file.as_fd(), 0, PAGE_SIZE, Access::ReadWrite).unwrap());
    drop(Mapping::of_file(file.as_fd(), 0, PAGE_SIZE, Access::ReadWrite).unwrap());
}

fn act(role: Role, deed: &str, held: Option<&OwnedFd>) {
    match deed {
        "work" => {
            work(role);
            held.into_iter().for_each(hold);
        }
        "exit" => {
            eprintln!("{DONE}");
            std::process::exit(0);
        }
        "open nodes" => {
            for path in [ALLOWED, "/dev/null", "/etc/passwd"] {
                let opened = std::fs::File::options().read(true).write(true).open(path);
                eprintln!("{path}: {:?}", opened.map(drop).map_err(|error| error.raw_os_error()));
            }
        }
        "connect" => {
            let name = std::env::var(SERVER).unwrap();
            let unix = socket_path::connect(name.as_ref(), SocketType::SEQPACKET).map(drop);
            let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
            let socket =
                socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
            let hidden = rustix::net::connect(&socket, &address);
            eprintln!("at a path: {:?}", unix.map_err(|error| error.raw_os_error()));
            eprintln!("abstract: {:?}", hidden.map_err(|errno| errno.raw_os_error()));
        }
        "panic" => {
            let panicked = std::panic::catch_unwind(|| {
                let nobody: Option<u8> = std::hint::black_box(None);
                nobody.expect("a panic on purpose")
            });
            assert!(panicked.is_err());
        }
        "abort" => std::process::abort(),
        "segv" => fault(0x1000),
        "bus" => fault(behind_the_end_of_a_file()),
        other => match crimes().into_iter().chain(makers()).find(|(name, _, _)| *name == other) {
            Some((_, number, arguments)) => {
                let result = syscall(number, arguments);
                eprintln!("{other}: {result}");
            }
            None => panic!("no deed {other}"),
        },
    }
}

fn fault(address: usize) {
    // SAFETY: none; it is meant to fault.
    unsafe { std::ptr::with_exposed_provenance::<u8>(address).read_volatile() };
}

/// An address where a file is mapped that ends before it: the empty file that is standard input.
fn behind_the_end_of_a_file() -> usize {
    let size = 1 << 12;
    // SAFETY: a new mapping at a place of the kernel's choice.
    let place = unsafe {
        libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ, libc::MAP_SHARED, libc::STDIN_FILENO, 0)
    };
    assert_ne!(place, libc::MAP_FAILED);
    place.expose_provenance()
}

/// Everything that is marked as rare, as the code does it where that is possible.
fn work(role: Role) {
    allocate();
    eprintln!("a line");
    std::thread::yield_now();
    for rule in role.rules().filter(|rule| rule.rare.is_some()) {
        raw(rule);
    }
    // All at once, and more than the allocator makes heaps for before it looks at the machine.
    let there = Arc::new(Barrier::new(MANY));
    let started = role.starts().iter().cycle().take(if role.starts().is_empty() { 0 } else { MANY });
    let threads: Vec<_> = started
        .map(|started| {
            let (name, there) = (started.thread().unwrap().to_owned(), Arc::clone(&there));
            let thread = std::thread::Builder::new().name(name).spawn(move || {
                jail::enter(*started);
                let own = std::hint::black_box(vec![1_u8; 100]);
                there.wait();
                drop(own);
            });
            thread.unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn allocate() {
    let mut grown: Vec<u64> = Vec::new();
    for value in 0..1 << 20 {
        grown.push(value);
    }
    assert_eq!(grown.len(), 1 << 20);
    let mut small: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 4096]).collect();
    small.truncate(1);
    assert_eq!(small.len(), 1);
}

/// Makes a rare call directly, with arguments that the filter wants and that change nothing.
fn raw(rule: &Rule) {
    // These end something, and have deeds of their own.
    if ["exit", "exit_group", "rt_sigreturn", "tgkill", "rt_sigaction"].contains(&rule.name()) {
        return;
    }
    let mut arguments = [0_u64; 6];
    for condition in rule.when {
        arguments[usize::from(condition.argument)] = u64::from(condition.test.mask_and_value().1);
    }
    let null = CString::new("/dev/null").unwrap();
    let mut room = [0_u64; 64];
    let room = room.as_mut_ptr() as u64;
    match rule.name() {
        "open" => arguments[0] = null.as_ptr() as u64,
        "openat" => arguments[1] = null.as_ptr() as u64,
        // An invalid clock, a bad descriptor, no bytes: refused by the kernel, not by the filter.
        "clock_nanosleep" => arguments[0] = 99,
        "clock_gettime" => arguments[1] = room,
        // No descriptors, no time.
        "ppoll" => arguments[2] = room,
        "newfstatat" => {
            arguments[0] = u64::MAX;
            arguments[1] = c"".as_ptr() as u64;
            arguments[2] = room;
        }
        "fstat" | "shutdown" => {
            arguments[0] = u64::MAX;
            arguments[1] = arguments[1].max(if rule.name() == "fstat" { room } else { 0 });
        }
        "ioctl" | "fcntl" | "sigaltstack" | "rt_sigprocmask" => {
            arguments[0] = if rule.name() == "sigaltstack" { 0 } else { 2 }
        }
        _ => {}
    }
    syscall(rule.number, arguments);
}
