//! What a descriptor of a VM is, asked without asking any file system: a server behind one could take as long
//! as it likes to answer.

use std::os::fd::BorrowedFd;

use rustix::fs::{OFlags, fcntl_get_seals, fcntl_getfl};

use crate::protocol::RefusalKind;
use crate::tenant::Refusal;

/// Checks that a descriptor is memory: a file of memfd, tmpfs or hugetlbfs, open for what the GPU may do.
///
/// # Errors
/// It is something else. What it was open for, and what was asked.
pub(super) fn is_memory(file: BorrowedFd<'_>, writable: bool) -> Result<(), Refusal> {
    let refuse = |text: &str| Err(Refusal::new(RefusalKind::OutsidePartition, text));
    // Deferred by these kinds of files alone, in the kernel's own memory.
    if fcntl_get_seals(file).is_err() {
        return refuse(
            "guest memory must be memory: a file of memfd, tmpfs (/dev/shm) or hugetlbfs, no other",
        );
    }
    let Ok(flags) = fcntl_getfl(file) else { return refuse("the descriptor of guest memory is of no use") };
    match flags & OFlags::RWMODE {
        OFlags::RDWR => Ok(()),
        OFlags::RDONLY if !writable && !flags.contains(OFlags::PATH) => Ok(()),
        _ if writable => {
            refuse("guest memory that the GPU may write must come with a descriptor for reading and writing")
        }
        _ => refuse("guest memory must come with a descriptor for reading"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn memory_is_taken_and_nothing_else() {
        let memory = memfd_create("ram", MemfdFlags::CLOEXEC).unwrap();
        is_memory(memory.as_fd(), true).unwrap();

        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let null = File::open("/dev/null").unwrap();
        let disk = File::open(std::env::current_exe().unwrap()).unwrap();
        let proc = File::open("/proc/self/status").unwrap();
        let all = [reader.as_fd(), writer.as_fd(), socket.as_fd(), null.as_fd(), disk.as_fd(), proc.as_fd()];
        for file in all {
            assert!(is_memory(file, false).is_err(), "{file:?}");
        }
    }

    #[test]
    fn descriptor_for_reading_is_no_memory_to_write() {
        let path = std::path::Path::new("/dev/shm").join(format!("gpuvmk-files-{}", std::process::id()));
        let _made = File::create(&path).unwrap();
        let (read, write) = (File::open(&path).unwrap(), OpenOptions::new().write(true).open(&path).unwrap());
        let none = rustix::fs::open(&path, OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        std::fs::remove_file(&path).unwrap();

        is_memory(read.as_fd(), false).unwrap();
        assert!(is_memory(read.as_fd(), true).is_err());
        assert!(is_memory(write.as_fd(), false).is_err() && is_memory(write.as_fd(), true).is_err());
        assert!(is_memory(none.as_fd(), false).is_err());
    }
}
