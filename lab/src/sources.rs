//! Where this machine gets its Debian packages from.
//!
//! No mirror's name is in the code: the base address is read from apt's own sources (the one-line format and
//! the deb822 format), so a machine behind a proxy or with a mirror of its own uses what its operator chose.
//! `GPUVMK_DEBIAN_MIRROR` overrides it, for machines that are not Debian.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

/// The environment variable that names a Debian mirror's base address.
pub const MIRROR_VARIABLE: &str = "GPUVMK_DEBIAN_MIRROR";

/// Base addresses of Debian's archives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The main archive (suites such as `trixie` and `trixie-backports`).
    pub main: String,
    /// The security archive, if this machine uses one (suites such as `bookworm-security`).
    pub security: Option<String>,
}

/// One repository of an apt source file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    uri: String,
    suite: String,
}

impl Mirror {
    /// The mirror of this machine.
    pub fn of_this_machine() -> Result<Self> {
        let mut sources = Vec::new();
        if let Ok(text) = fs::read_to_string("/etc/apt/sources.list") {
            sources.extend(parse_one_line(&text));
        }
        for path in files_in(Path::new("/etc/apt/sources.list.d")) {
            let Ok(text) = fs::read_to_string(&path) else { continue };
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("list") => sources.extend(parse_one_line(&text)),
                Some("sources") => sources.extend(parse_deb822(&text)),
                _ => {}
            }
        }
        let found = choose(&sources);
        match env::var(MIRROR_VARIABLE) {
            Ok(main) if !main.is_empty() => {
                let main = main.trim_end_matches('/').to_owned();
                Ok(Self { main, security: found.and_then(|mirror| mirror.security) })
            }
            _ => match found {
                Some(mirror) => Ok(mirror),
                None => bail!(
                    "No Debian archive is among this machine's apt sources (/etc/apt/sources.list and \
                     /etc/apt/sources.list.d): set {MIRROR_VARIABLE} to the base address of a Debian mirror, the \
                     folder that holds 'dists' and 'pool'"
                ),
            },
        }
    }
}

fn files_in(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Debian's archives among `sources`. Other vendors' repositories use other suite names or paths.
fn choose(sources: &[Source]) -> Option<Mirror> {
    const CODENAMES: [&str; 9] =
        ["bullseye", "bookworm", "trixie", "forky", "duke", "sid", "stable", "testing", "unstable"];
    let codename_of = |suite: &str| CODENAMES.into_iter().find(|name| suite.starts_with(name));
    let main = sources.iter().find(|source| {
        source.uri.ends_with("/debian") && codename_of(&source.suite).is_some_and(|name| source.suite == name)
    })?;
    let security = sources
        .iter()
        .find(|source| source.suite.ends_with("-security") && codename_of(&source.suite).is_some());
    Some(Mirror { main: main.uri.clone(), security: security.map(|source| source.uri.clone()) })
}

fn source(uri: &str, suite: &str) -> Source {
    Source { uri: uri.trim_end_matches('/').to_owned(), suite: suite.trim_end_matches('/').to_owned() }
}

/// `deb [options] URI SUITE COMPONENT...`, one repository a line.
fn parse_one_line(text: &str) -> Vec<Source> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(rest) = line.strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t'])) else {
            continue;
        };
        let rest = rest.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']').map_or("", |(_, after)| after),
            None => rest,
        };
        let mut words = rest.split_whitespace();
        if let (Some(uri), Some(suite)) = (words.next(), words.next()) {
            found.push(source(uri, suite));
        }
    }
    found
}

/// Stanzas of `Key: value` with `Types`, `URIs` and `Suites`; a value may go on in indented lines.
fn parse_deb822(text: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut stanza: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            found.extend(stanza_sources(&stanza));
            stanza.clear();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = stanza.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((key, value)) = line.split_once(':') {
            stanza.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    found
}

fn stanza_sources(stanza: &[(String, String)]) -> Vec<Source> {
    let words = |key: &str| -> Vec<&str> {
        stanza
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.split_whitespace().collect())
            .unwrap_or_default()
    };
    let disabled = words("enabled").first().is_some_and(|value| value.eq_ignore_ascii_case("no"));
    if disabled || !words("types").contains(&"deb") {
        return Vec::new();
    }
    let suites = words("suites");
    words("uris").into_iter().flat_map(|uri| suites.iter().map(move |suite| source(uri, suite))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_sources_give_uri_and_suite_without_options_and_comments() {
        let text = "# deb http://old.example/debian bookworm main\n\
                    deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian/ bookworm main # local\n\
                    deb-src http://mirror.example/debian bookworm main\n";
        assert_eq!(parse_one_line(text), [source("http://mirror.example/debian", "bookworm")]);
    }

    #[test]
    fn deb822_stanzas_give_every_uri_with_every_suite() {
        let text = "Types: deb deb-src\n# comment\nURIs: http://mirror.example/debian\nSuites: bookworm\n \
                    bookworm-updates\nComponents: main\n\nTypes: deb\nEnabled: no\nURIs: http://off.example/debian\n\
                    Suites: trixie\n";
        assert_eq!(
            parse_deb822(text),
            [
                source("http://mirror.example/debian", "bookworm"),
                source("http://mirror.example/debian", "bookworm-updates")
            ]
        );
    }

    #[test]
    fn main_and_security_archives_are_told_from_other_vendors() {
        let sources = [
            source("http://packages.example/apt", "cloud-bookworm"),
            source("http://node.example/debian", "nodistro"),
            source("http://mirror.example/debian-security", "bookworm-security"),
            source("http://mirror.example/debian", "bookworm-updates"),
            source("http://mirror.example/debian", "bookworm"),
        ];
        assert_eq!(
            choose(&sources),
            Some(Mirror {
                main: "http://mirror.example/debian".into(),
                security: Some("http://mirror.example/debian-security".into())
            })
        );
    }

    #[test]
    fn machine_without_debian_sources_has_no_mirror() {
        assert_eq!(choose(&[source("http://archive.example/ubuntu", "noble")]), None);
    }
}
