//! Rules that several kinds of threads need.

use libc::{PROT_EXEC, SIGABRT, SIGBUS, SIGSEGV};

use crate::rule::{Rule, Test, rules};

const NO_CODE: Test = Test::Lacks(PROT_EXEC.cast_unsigned());

/// Flags of `clone` for a thread, as the C library gives them: never a process, never a namespace.
const THREAD: u32 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID)
    .cast_unsigned();

/// Every thread: memory, locks, time.
pub(super) const BASE: &[Rule] = rules! {
    SYS_futex rare "only when threads meet": "locks, conditions, joins";
    SYS_sched_yield rare "only when threads meet, or while news are looked for": "queues and signals' handlers, when somebody else is at them; between two looks";
    SYS_restart_syscall rare "only after SIGSTOP and SIGCONT in a wait": "goes on with a wait";
    SYS_clock_gettime rare "only where the clock cannot be read without the kernel": "time";
    SYS_brk rare "depends on where the allocator grows": "allocator";
    SYS_mmap(2 NO_CODE) rare "depends on what is allocated": "allocator, guest memory";
    SYS_munmap rare "depends on what is freed": "allocator, guest memory";
    SYS_mremap rare "depends on what grows": "allocator";
    SYS_madvise rare "depends on what is freed": "allocator, a thread's end";
    SYS_mprotect(2 NO_CODE) rare "depends on where the allocator grows": "allocator";
    SYS_getrandom rare "the first hash table of a thread": "keys of hash tables";
    SYS_fstat rare "only where a page of a VM's memory is not there": "whether the file has shrunk";
};

/// Every thread: its end, and that of a process that breaks down.
pub(super) const END: &[Rule] = rules! {
    SYS_sigaltstack rare "a process may end before its threads do": "a thread's end";
    SYS_rt_sigprocmask rare "a process may end before its threads do": "a thread's end";
    SYS_gettid rare "a process may end before its threads do": "a thread's end";
    SYS_exit rare "a process may end before its threads do": "a thread's end";
    SYS_exit_group rare "only the main thread's end is seen": "the process's end";
    SYS_rt_sigreturn rare "only after a signal": "the return from a signal's handler";
    SYS_rt_sigaction(0 Test::int(SIGSEGV)) rare "only in a crash": "lets a fault end the process";
    SYS_rt_sigaction(0 Test::int(SIGBUS)) rare "only in a crash": "lets a fault end the process";
    SYS_getpid rare "only in a crash": "abort";
    SYS_tgkill(0 Test::OwnPid, 2 Test::int(SIGABRT)) rare "only in a crash": "abort";
    SYS_fcntl(1 Test::int(libc::F_GETFD)) rare "only builds for debugging": "checks a descriptor before it is closed";
};

/// Threads that start others. (Children have this filter until they have put theirs on.)
pub(super) const START: &[Rule] = rules! {
    SYS_clone3: "a thread; told ENOSYS, so that `clone` follows, whose flags can be looked at";
    SYS_clone(0 Test::Is(THREAD)): "a thread";
    SYS_rt_sigprocmask: "a thread's signals";
    SYS_set_robust_list: "a thread's start";
    SYS_rseq: "a thread's start";
    SYS_sched_getaffinity: "where a thread's stack ends";
    SYS_gettid: "where a thread's stack ends";
    SYS_sigaltstack: "a thread's stack for signals";
    SYS_mprotect(2 NO_CODE): "the end of a thread's stack";
    SYS_prctl(0 Test::int(libc::PR_SET_NAME)): "a thread's name";
    SYS_prctl(0 Test::int(libc::PR_SET_NO_NEW_PRIVS)): "a thread's own filter";
    SYS_seccomp(0 Test::Is(libc::SECCOMP_SET_MODE_FILTER)): "a thread's own filter";
};

/// What a descriptor is; the call depends on the C library.
pub(super) const FACTS: &[Rule] = rules! {
    SYS_newfstatat(3 Test::int(libc::AT_EMPTY_PATH)) rare "only some C libraries": "what a descriptor is";
};

/// Waits for SIGTERM; tells the main thread.
pub(crate) const SIGNALS: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_recvfrom: "waits until a signal's handler has written";
        SYS_write: "wakes those who are to end, log";
        SYS_close: "its own end of the pipe";
        SYS_shutdown(1 Test::Is(2)) rare "only with a client at the end": "cuts the session";
    },
];
