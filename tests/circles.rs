//! Within a crate, files do not import each other in circles.
//!
//! A file imports another one when it names something that is defined there: by `use`, or by a path in its
//! code. Names are followed through `pub use` to the file that defines them, so a folder's `mod.rs` that only
//! hands names on imports nothing and is imported by nobody; one that uses such a name itself imports it.
//! `mod name;` is no import. What is built for tests only does not count.
//!
//! Not seen: names that only macros make, and methods that one file defines for another file's type.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]

#[path = "circles/modules.rs"]
mod modules;
#[path = "circles/tokens.rs"]
mod tokens;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use modules::{Imports, imports};

/// Crates of `src` in which no files import each other in circles. `.` is the program: `config` and `cli`.
const CRATES: [&str; 27] = [
    ".",
    "aggregator",
    "backend",
    "chip",
    "control_client",
    "display",
    "fifo_virt",
    "frontend",
    "gpu",
    "gsp",
    "guest_firmware",
    "host",
    "jail",
    "mmio_trap",
    "observe",
    "output",
    "pci",
    "saved_state",
    "scheduler",
    "shadow_pagetable",
    "softgpu",
    "softgpu/sm",
    "trace",
    "trace_tools",
    "units",
    "vgpu",
    "vmm",
];

/// Every file that `from` imports, directly or not.
fn reached<'a>(imports: &'a Imports, from: &'a str) -> BTreeSet<&'a str> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(file) = left.pop() {
        let further = imports.get(file).into_iter().flatten().map(|(next, _)| next.as_str());
        left.extend(further.filter(|next| reached.insert(*next)));
    }
    reached
}

/// The imports that are parts of circles, in words.
fn circles(imports: &Imports) -> Vec<String> {
    let edges = imports.iter().flat_map(|(from, to)| to.iter().map(move |(to, path)| (from, to, path)));
    let closing = edges.filter(|(from, to, _)| reached(imports, to).contains(from.as_str()));
    closing.map(|(from, to, path)| format!("{from} imports {to}: {path}")).collect()
}

fn of_crate(name: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name);
    let root = if name == "." || name == "control_client" { "lib.rs" } else { "mod.rs" };
    circles(&imports(root, &|file| fs::read_to_string(folder.join(file)).ok()))
}

#[test]
fn files_of_a_crate_do_not_import_each_other_in_circles() {
    for name in CRATES {
        let circles = of_crate(name);
        assert!(circles.is_empty(), "src/{name}:\n{}", circles.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Circles of a crate of these files.
    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let text =
            |file: &str| files.iter().find(|(name, _)| *name == file).map(|(_, text)| (*text).to_owned());
        circles(&imports("mod.rs", &text))
    }

    #[test]
    fn circle_is_found_by_use_and_by_path() {
        let files = [
            ("mod.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use super::b::{B, C as D};"),
            ("b.rs", "struct B; struct C; fn f() { use crate::c; c::g::<u8>(); }"),
            ("c.rs", "pub fn g<T>() -> crate::a::A { A }"),
        ];
        let expected = ["a.rs imports b.rs: super::b::B", "b.rs imports c.rs: c::g"];
        let found = of(&files);
        assert_eq!(found[..2], expected);
        assert_eq!(found[2..], ["c.rs imports a.rs: crate::a::A"]);
    }

    #[test]
    fn names_are_followed_to_the_file_that_defines_them() {
        // A user of `folder` that is used by one of its files, and not by the other.
        let files = |used: &'static str| {
            [
                ("mod.rs", "mod folder; mod user; pub use user::User;"),
                (
                    "folder/mod.rs",
                    "mod one; mod two; pub(super) use one::*; pub(super) use two::Two as Second;",
                ),
                ("folder/one.rs", "pub struct One; use crate::User;"),
                ("folder/two.rs", "pub struct Two;"),
                ("user.rs", used),
            ]
        };
        assert!(of(&files("use crate::folder::Second; pub struct User(Second);")).is_empty());
        let found = of(&files("use crate::folder::One; pub struct User(One);"));
        assert_eq!(
            found,
            [
                "folder/one.rs imports user.rs: crate::User",
                "user.rs imports folder/one.rs: crate::folder::One"
            ]
        );
    }

    #[test]
    fn parent_that_uses_what_it_hands_on_imports_it() {
        let files = |parent: &'static str| {
            [
                ("mod.rs", parent),
                ("a.rs", "use super::Own; pub struct A; mod inline { use super::super::Own; }"),
            ]
        };
        assert!(of(&files("mod a; pub use a::A; pub struct Own;")).is_empty());
        assert_eq!(of(&files("mod a; pub use a::A; pub struct Own(A);")).len(), 2);
        assert_eq!(of(&files("mod a; pub struct Own(a::A);")).len(), 2);
    }

    #[test]
    fn tests_and_other_crates_do_not_count() {
        let files = [
            ("mod.rs", "mod a; mod b;"),
            ("a.rs", "use other::b::B; use crate::b::Own; #[cfg(test)] mod tests { use crate::b::B; }"),
            ("b.rs", "pub use other::A; pub struct Own; #[cfg(test)] use crate::a::A; fn f(a: ::a::A) {}"),
        ];
        assert!(of(&files).is_empty());
    }
}
