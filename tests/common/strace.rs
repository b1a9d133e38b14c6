//! What each kind of thread called, by strace's log (`strace -f -Y -X raw`).
//!
//! A thread has a role from its `seccomp` call on, by its name; before that, it has the one of the thread
//! that started it, whose filter it inherited.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use gpuvmk::jail::{Role, Rule};

/// strace, with the options that [`Census::read`] needs; `log` is where it writes. The traced process keeps
/// its number.
pub fn command(log: &str) -> Vec<&str> {
    vec!["strace", "-D", "-f", "-q", "-Y", "-X", "raw", "-s", "0", "-o", log]
}

/// Says what is missing where strace is.
pub fn demand() {
    let version = Command::new("strace").arg("--version").output();
    assert!(
        version.is_ok_and(|output| output.status.success()),
        "The census of system calls needs strace: install the package `strace` (`apt-get install strace`)"
    );
}

/// Entries that were needed: role and place in its list.
#[derive(Debug, Default)]
pub struct Census {
    seen: BTreeSet<(Role, usize)>,
    /// Calls outside the caller's filter, as strace shows them.
    pub foreign: Vec<String>,
}

/// One thread, as far as the log has been read.
#[derive(Default)]
struct Thread<'a> {
    role: Option<Role>,
    /// Calls from before it was known who started it.
    early: Vec<&'a str>,
    known: bool,
}

impl Census {
    /// Adds what `log` shows; `main` is the role that the first thread takes.
    pub fn read(&mut self, log: &str, main: Role) {
        let mut threads: BTreeMap<&str, Thread<'_>> = BTreeMap::new();
        for line in log.lines() {
            // `1234<comm> call(...) = result`
            let Some((thread, rest)) = line.split_once("> ") else { continue };
            let Some((number, name)) = thread.split_once('<') else { continue };
            if threads.is_empty() {
                threads.insert(number, Thread { known: true, ..Thread::default() });
            }
            if let Some(child) = started(rest) {
                let role = threads.get(number).and_then(|thread| thread.role);
                let thread = threads.entry(child).or_default();
                if !thread.known {
                    thread.known = true;
                    thread.role = thread.role.or(role);
                    for call in std::mem::take(&mut thread.early) {
                        self.count(role, call);
                    }
                }
            }
            let thread = threads.entry(number).or_default();
            if rest.starts_with("seccomp(0x1") {
                // Its own inherited entries for this very call were used.
                if thread.known {
                    self.count(thread.role, rest);
                } else {
                    thread.early.push(rest);
                }
                thread.role = Some(role_of(name, main));
            } else if thread.known || thread.role.is_some() {
                self.count(thread.role, rest);
            } else {
                thread.early.push(rest);
            }
        }
    }

    fn count(&mut self, role: Option<Role>, call: &str) {
        let (Some(role), Some((name, arguments))) = (role, parse(call)) else { return };
        let mut allowed = false;
        let cut = call.contains("<unfinished");
        for (index, rule) in role.rules().enumerate() {
            if rule.name() == name && fits(rule, &arguments, cut) {
                self.seen.insert((role, index));
                allowed = true;
            }
        }
        if !allowed {
            self.foreign.push(format!("{role}: {call}"));
        }
    }

    /// True when the entry was used by this role, or by one that inherits it.
    pub fn saw(&self, role: Role, index: usize, rule: &Rule) -> bool {
        self.seen.contains(&(role, index))
            // A role that starts its own kind inherits nothing by that.
            || role.starts().iter().filter(|started| **started != role).any(|started| {
                started.rules().enumerate().any(|(index, own)| {
                    own.number == rule.number && own.when == rule.when && self.saw(*started, index, own)
                })
            })
    }
}

/// The role that a thread of that name takes. Names are cut to 15 characters.
fn role_of(name: &str, main: Role) -> Role {
    let named = |role: &Role| {
        role.thread().is_some_and(|thread| match role {
            Role::Pbdma | Role::Engine => name.starts_with(thread),
            _ => name == &thread[..thread.len().min(15)],
        })
    };
    // The owner of a real GPU has the same name as `Owner`, and is first asked for by those who start it as
    // their main thread.
    if main.thread().is_some() && named(&main) {
        return main;
    }
    Role::ALL.into_iter().find(named).unwrap_or(main)
}

/// The number of the thread that a call has started, by its result: `clone(...) = 1235<comm>`.
fn started(call: &str) -> Option<&str> {
    let names = ["clone(", "clone3(", "<... clone resumed>", "<... clone3 resumed>"];
    if !names.iter().any(|name| call.starts_with(name)) {
        return None;
    }
    let (_, result) = call.rsplit_once(" = ")?;
    let digits = result.split('<').next()?.trim();
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(digits)
}

/// Name and arguments; those that are no numbers are absent. Ends of calls that were interrupted by others,
/// signals and exits are no calls.
fn parse(call: &str) -> Option<(&str, Vec<Option<u64>>)> {
    let (name, rest) = call.split_once('(')?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    if name == "clone" {
        // Arguments by name.
        let (_, flags) = rest.split_once("flags=")?;
        let flags: String = flags.chars().take_while(char::is_ascii_alphanumeric).collect();
        return Some((name, vec![number(&flags)]));
    }
    Some((name, arguments(rest)))
}

/// Divides at commas that stand in no brackets, to the end of the call.
fn arguments(text: &str) -> Vec<Option<u64>> {
    let (mut depth, mut start, mut found) = (0_u32, 0, Vec::new());
    let mut end = text.find(" <unfinished").unwrap_or(text.len());
    for (at, character) in text.char_indices().take_while(|(at, _)| *at < end) {
        match character {
            '{' | '[' | '(' => depth += 1,
            ')' if depth == 0 => {
                end = at;
                break;
            }
            '}' | ']' | ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(number(&text[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(number(&text[start..end]));
    found
}

/// `0x1|0x80000`, `-100`, `5<comm>`.
fn number(text: &str) -> Option<u64> {
    text.trim().split('|').try_fold(0, |sum, part| {
        let part = part.split('<').next()?.trim();
        let value = match (part.strip_prefix("0x"), part.strip_prefix('-')) {
            (Some(digits), _) => u64::from_str_radix(digits, 16).ok()?,
            (None, Some(digits)) => digits.parse::<u64>().ok()?.wrapping_neg(),
            (None, None) => part.parse().ok()?,
        };
        Some(sum | value)
    })
}

/// Whether an entry lets a call pass, as far as its arguments are there: of a call that others interrupted,
/// those behind the first that the kernel fills in are only in the line that ends it.
fn fits(rule: &Rule, arguments: &[Option<u64>], cut: bool) -> bool {
    use gpuvmk::jail::Test;
    rule.when.iter().all(|condition| {
        let argument = match arguments.get(usize::from(condition.argument)) {
            Some(Some(argument)) => argument,
            Some(None) => return false,
            None => return cut,
        };
        let (mask, value) = condition.test.mask_and_value();
        // It was the traced process's number, not this one's.
        condition.test == Test::OwnPid || argument & u64::from(mask) == u64::from(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_as_strace_writes_them() {
        assert_eq!(
            parse("socket(0x1, 0x5|0x80000, 0) = 4"),
            Some(("socket", vec![Some(1), Some(0x80005), Some(0)]))
        );
        assert_eq!(
            parse("openat(-100, \"x\", 0x80000 <unfinished ...>"),
            Some(("openat", vec![Some((-100_i64).cast_unsigned()), None, Some(0x80000)]))
        );
        assert_eq!(
            parse("clone(child_stack=0x7f, flags=0x3d0f00, ..."),
            Some(("clone", vec![Some(0x3d0f00)]))
        );
        assert_eq!(
            parse("newfstatat(18, \"\", {st_mode=0600, st_size=0, ...}, 0x1000) = 0"),
            Some(("newfstatat", vec![Some(18), None, None, Some(0x1000)]))
        );
        assert_eq!(parse("+++ exited with 0 +++"), None);
        assert_eq!(parse("<... read resumed>...) = 8"), None);
        assert_eq!(started("<... clone resumed>, parent_tid=[7]) = 815<gpuvmk>"), Some("815"));
        assert_eq!(started("clone3({flags=0x3d0f00}, 88) = -1 ENOSYS"), None);
    }

    #[test]
    fn thread_has_its_starters_role_until_it_takes_its_own() {
        let log = "1<gpuvmk> seccomp(0x1, 0, {len=9}) = 0\n\
                   1<gpuvmk> clone(child_stack=0x1, flags=0x3d0f00 <unfinished ...>\n\
                   2<gpuvmk> set_robust_list(0x1, 24) = 0\n\
                   1<gpuvmk> <... clone resumed>) = 2<gpuvmk>\n\
                   2<gf100-alarm> sigaltstack(NULL, NULL) = 0\n\
                   2<gf100-alarm> seccomp(0x1, 0, {len=9}) = 0\n\
                   2<gf100-alarm> write(0x3, 8) = 8\n\
                   2<gf100-alarm> socket(0x2, 0x1, 0) = 3\n";
        let mut census = Census::default();
        census.read(log, Role::Session);

        let saw = |role: Role, name: &str| {
            role.rules().enumerate().any(|(i, rule)| rule.name() == name && census.seen.contains(&(role, i)))
        };
        assert!(saw(Role::Session, "clone") && saw(Role::Session, "set_robust_list"));
        assert!(saw(Role::Session, "seccomp"));
        assert!(saw(Role::Alarm, "write") && !saw(Role::Session, "write"));
        assert_eq!(census.foreign, ["alarm: socket(0x2, 0x1, 0) = 3"]);
    }
}
