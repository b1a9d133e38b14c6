//! The kinds of values that keys have, with their limits in words.

use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;
use uuid::Uuid;

use super::reader::TableReader;
use crate::host::size::{parse_size, show_size};
use crate::host::socket_path::SocketSpec;
use crate::jail::Mode;

/// Permission bits of a socket unless configured.
pub(super) const DEFAULT_SOCKET_MODE: u32 = 0o660;

/// Longest path of a Unix socket on Linux (`sun_path` less its end mark).
const MAX_SOCKET_PATH: usize = 107;

const MODE_ALLOWED: &str = "an octal string from \"0600\" to \"0777\"";

pub(super) fn string(value: &DeValue<'_>) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| wrong_type(value, "a string"))
}

/// A list of strings.
pub(super) fn strings(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let list = value.as_array().ok_or_else(|| wrong_type(value, "a list of strings"))?;
    list.iter().map(|entry| string(entry.get_ref())).collect()
}

pub(super) fn wrong_type(value: &DeValue<'_>, wanted: &str) -> String {
    format!("is of type {}, not {wanted}", value.type_str())
}

/// Yes or no.
pub(super) fn boolean(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| wrong_type(value, "true or false"))
}

/// A whole number between `low` and `high`.
pub(super) fn integer(value: &DeValue<'_>, low: u64, high: u64) -> Result<u64, String> {
    let number =
        value.as_integer().ok_or_else(|| wrong_type(value, "a whole number")).and_then(|number| {
            i128::from_str_radix(number.as_str(), number.radix())
                .map_err(|_| format!("{} is not a number that fits", number.as_str()))
        })?;
    match u64::try_from(number) {
        Ok(number) if (low..=high).contains(&number) => Ok(number),
        _ => Err(format!("{number} is out of range")),
    }
}

/// A number of bytes: a whole number, or a string with a binary unit.
pub(super) fn size(value: &DeValue<'_>, low: u64, high: u64, granule: u64) -> Result<u64, String> {
    let (bytes, shown) = if let Some(text) = value.as_str() {
        (parse_size(text).ok_or_else(|| format!("\"{text}\" is not a size"))?, format!("\"{text}\""))
    } else {
        let bytes = integer(value, 0, u64::MAX).map_err(|_| wrong_type(value, "a size"))?;
        (bytes, bytes.to_string())
    };
    if bytes < low || bytes > high {
        return Err(format!("{shown} is out of range"));
    }
    if !bytes.is_multiple_of(granule) {
        return Err(format!("{shown} is not a multiple of {}", show_size(granule)));
    }
    Ok(bytes)
}

/// A name that may appear in file names, metrics and logs.
pub(super) fn name(value: &DeValue<'_>) -> Result<String, String> {
    let name = string(value)?;
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if fits { Ok(name) } else { Err(format!("\"{name}\" is not a name")) }
}

pub(super) const NAME_ALLOWED: &str =
    "1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit";

/// A UUID, which is not that of nothing.
pub(super) fn uuid(value: &DeValue<'_>) -> Result<Uuid, String> {
    let text = string(value)?;
    let uuid = Uuid::try_parse(&text).ok().filter(|uuid| !uuid.is_nil());
    uuid.ok_or_else(|| format!("\"{text}\" is not a UUID"))
}

pub(super) const UUID_ALLOWED: &str =
    "a UUID such as \"01234567-89ab-4cde-8f01-23456789abcd\", not all zeros";

/// One of a few words.
pub(super) fn word<T: Copy>(value: &DeValue<'_>, words: &[(&str, T)]) -> Result<T, String> {
    let text = string(value)?;
    words
        .iter()
        .find(|(word, _)| word.eq_ignore_ascii_case(&text))
        .map(|(_, meaning)| *meaning)
        .ok_or_else(|| format!("\"{text}\" is not known"))
}

/// The key `jail`. `None` when it is wrong.
pub(super) fn jail(reader: &mut TableReader<'_, '_>) -> Option<Mode> {
    let allowed = "\"enforce\", \"log\" or \"off\"";
    reader.defaulted("jail", Mode::default(), allowed, |v| word(v, &Mode::WORDS))
}

/// The key `poll`: how long to poll before sleeping. `None` when it is wrong.
pub(super) fn poll(reader: &mut TableReader<'_, '_>, usual: Duration) -> Option<Duration> {
    let usual = u64::try_from(usual.as_micros()).unwrap_or(u64::MAX);
    let allowed = "a whole number of microseconds from 0 to 10000";
    reader.defaulted("poll", usual, allowed, |v| integer(v, 0, 10_000)).map(Duration::from_micros)
}

/// A path of a socket, from the folder of the file.
pub(super) fn socket_path(reader: &mut TableReader<'_, '_>, key: &'static str) -> Option<PathBuf> {
    let allowed = "a path of at most 107 bytes, absolute or from the folder of this file";
    let text = reader.required(key, allowed, string)?;
    let path = reader.path(&text);
    if text.is_empty() || text.contains('\0') {
        reader.reject(key, "is not a path".to_owned(), allowed);
        return None;
    }
    let length = path.as_os_str().len();
    if length > MAX_SOCKET_PATH {
        reader.reject(key, format!("has {length} bytes as an absolute path"), allowed);
        return None;
    }
    Some(path)
}

/// The keys of a `[socket]` or `[control]` section.
pub(super) fn socket(reader: &mut TableReader<'_, '_>) -> Option<SocketSpec> {
    let path = socket_path(reader, "path");
    let mode = reader.defaulted("mode", DEFAULT_SOCKET_MODE, MODE_ALLOWED, mode);
    let group = reader.optional("group", "the name of a group of this machine", |value| {
        let group = string(value)?;
        if group.is_empty() { Err("is empty".to_owned()) } else { Ok(group) }
    });
    let users = reader.defaulted(
        "allow_users",
        None,
        "a list of users of this machine, by name or number",
        |value| {
            let list = value.as_array().ok_or_else(|| wrong_type(value, "a list of users"))?;
            list.iter().map(|entry| user(entry.get_ref())).collect::<Result<_, _>>().map(Some)
        },
    );
    Some(SocketSpec { path: path?, mode: mode?, group, users: users? })
}

/// A user, by name or number.
pub(super) fn user(value: &DeValue<'_>) -> Result<String, String> {
    if value.as_integer().is_some() {
        // The last number is no user's.
        return integer(value, 0, u64::from(u32::MAX - 1)).map(|number| number.to_string());
    }
    let name = string(value).map_err(|_| wrong_type(value, "the name or number of a user"))?;
    if name.is_empty() || name.contains('\0') { Err(format!("\"{name}\" is not a user")) } else { Ok(name) }
}

fn mode(value: &DeValue<'_>) -> Result<u32, String> {
    let text = string(value)?;
    let mode = u32::from_str_radix(&text, 8).map_err(|_| format!("\"{text}\" is not octal"))?;
    if (0o600..=0o777).contains(&mode) { Ok(mode) } else { Err(format!("\"{text}\" is out of range")) }
}
