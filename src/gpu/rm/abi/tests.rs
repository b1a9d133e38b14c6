use super::RmStatus;
use super::branch::{Branch, version_of_proc_file};

#[test]
fn version_of_a_known_branch_and_its_branch() {
    assert_eq!(Branch::of_version("580.159.04"), Some(Branch::R580));
    assert_eq!(Branch::of_version(" 580.142\n"), Some(Branch::R580));
}

#[test]
fn version_of_another_branch_and_none() {
    for version in ["570.144", "590.48.01", "5800.1", "", "x"] {
        assert_eq!(Branch::of_version(version), None, "{version:?}");
    }
}

#[test]
fn text_of_the_proc_file_and_the_version_in_it() {
    let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder)\n\
                GCC version:  gcc version 12.3.0\n";
    let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.144  Thu Apr 10 20:33:29 UTC 2025\n";
    assert_eq!(version_of_proc_file(open).as_deref(), Some("580.159.04"));
    assert_eq!(version_of_proc_file(closed).as_deref(), Some("570.144"));
    assert_eq!(version_of_proc_file("GCC version: 12.3.0\n"), None);
}

#[test]
fn status_and_its_name() {
    assert_eq!(RmStatus::ERR_NO_MEMORY.to_string(), "NV_ERR_NO_MEMORY (0x51)");
    assert_eq!(RmStatus(0xfffe_0000).to_string(), "status 0xfffe0000");
}
