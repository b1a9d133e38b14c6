//! Reads the keys of a TOML table one by one, collects every mistake with its line, and reports unknown keys
//! at the end.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::{Mistake, line_of};

/// Reader of one table.
pub(super) struct TableReader<'a, 't> {
    table: &'a DeTable<'t>,
    text: &'a str,
    folder: &'a Path,
    prefix: String,
    /// Where the table begins, for keys that are missing.
    start: usize,
    known: BTreeSet<&'static str>,
    mistakes: &'a mut Vec<Mistake>,
}

impl<'a, 't> TableReader<'a, 't> {
    pub(super) fn new(
        table: &'a DeTable<'t>,
        text: &'a str,
        folder: &'a Path,
        mistakes: &'a mut Vec<Mistake>,
    ) -> Self {
        Self { table, text, folder, prefix: String::new(), start: 0, known: BTreeSet::new(), mistakes }
    }

    /// Reads the value of `key` with `convert`, which returns the mistake. `None` when absent or wrong.
    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        allowed: &str,
        convert: impl FnOnce(&DeValue<'t>) -> Result<T, String>,
    ) -> Option<T> {
        self.known.insert(key);
        let value = self.table.get(key)?;
        match convert(value.get_ref()) {
            Ok(converted) => Some(converted),
            Err(problem) => {
                self.mistake(value.span(), key, problem, allowed);
                None
            }
        }
    }

    /// Like [`Self::optional`], for a key that must be there.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        allowed: &str,
        convert: impl FnOnce(&DeValue<'t>) -> Result<T, String>,
    ) -> Option<T> {
        if !self.table.contains_key(key) {
            self.known.insert(key);
            self.mistake(self.start..self.start, key, "is missing".to_owned(), allowed);
            return None;
        }
        self.optional(key, allowed, convert)
    }

    /// Like [`Self::optional`] with a value for an absent key. `None` only when the value is wrong.
    pub(super) fn defaulted<T>(
        &mut self,
        key: &'static str,
        default: T,
        allowed: &str,
        convert: impl FnOnce(&DeValue<'t>) -> Result<T, String>,
    ) -> Option<T> {
        if self.table.contains_key(key) {
            self.optional(key, allowed, convert)
        } else {
            self.known.insert(key);
            Some(default)
        }
    }

    /// Reads the table under `key` with `read`. Absent: `None`.
    pub(super) fn table<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut TableReader<'_, 't>) -> Option<T>,
    ) -> Option<T> {
        self.known.insert(key);
        let value = self.table.get(key)?;
        let Some(table) = value.get_ref().as_table() else {
            let problem = format!("is {}, not a table", article(value));
            self.mistake(value.span(), key, problem, &format!("a [{key}] section"));
            return None;
        };
        let mut inner = TableReader {
            table,
            text: self.text,
            folder: self.folder,
            prefix: format!("{}{key}.", self.prefix),
            start: value.span().start,
            known: BTreeSet::new(),
            mistakes: self.mistakes,
        };
        let read = read(&mut inner);
        inner.finish();
        read
    }

    /// Reads each table of the list of tables under `key`. Absent: none. `None` when one is wrong.
    pub(super) fn tables<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut TableReader<'_, 't>) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.known.insert(key);
        let Some(value) = self.table.get(key) else { return Some(Vec::new()) };
        let tables = value
            .get_ref()
            .as_array()
            .map(|list| list.iter().map(|entry| (entry, entry.get_ref().as_table())));
        let mut all = Some(Vec::new());
        for (number, entry) in (1..).zip(tables.into_iter().flatten()) {
            let (entry, Some(table)) = entry else {
                all = None;
                break;
            };
            let mut inner = TableReader {
                table,
                text: self.text,
                folder: self.folder,
                prefix: format!("{}{key}[{number}].", self.prefix),
                start: entry.span().start,
                known: BTreeSet::new(),
                mistakes: self.mistakes,
            };
            let one = read(&mut inner);
            inner.finish();
            all = all.zip(one).map(|(mut all, one)| {
                all.push(one);
                all
            });
        }
        if !value.get_ref().as_array().is_some_and(|list| list.iter().all(|entry| entry.get_ref().is_table()))
        {
            let problem = format!("is {}, not a list of tables", article(value));
            self.mistake(value.span(), key, problem, &format!("[[{key}]] sections"));
            return None;
        }
        all
    }

    /// Refuses a key that means nothing beside the values of others. True when it is absent.
    pub(super) fn unused(&mut self, key: &'static str, why: &str, allowed: &str) -> bool {
        self.known.insert(key);
        let absent = !self.has(key);
        if !absent {
            self.reject(key, why.to_owned(), allowed);
        }
        absent
    }

    /// True when `key` is present.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The line at which this table begins.
    pub(super) fn line(&self) -> usize {
        line_of(self.text, self.start)
    }

    /// A path as the file means it: relative ones start at the file's folder.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    /// Notes a mistake that concerns the value of a key that was read.
    pub(super) fn reject(&mut self, key: &'static str, problem: String, allowed: &str) {
        let span = self.table.get(key).map_or(self.start..self.start, Spanned::span);
        self.mistake(span, key, problem, allowed);
    }

    /// Reports the keys that were not read.
    pub(super) fn finish(self) {
        for (key, value) in self.table {
            if self.known.contains(key.get_ref().as_ref()) {
                continue;
            }
            let nearest = self
                .known
                .iter()
                .map(|known| (strsim::damerau_levenshtein(known, key.get_ref()), *known))
                .min()
                .filter(|(distance, _)| *distance <= 3);
            let problem = match nearest {
                Some((_, known)) => format!("is not a known key; did you mean `{}{known}`?", self.prefix),
                None => "is not a known key".to_owned(),
            };
            let known: Vec<&str> = self.known.iter().copied().collect();
            let span = if key.span().is_empty() { value.span() } else { key.span() };
            self.mistakes.push(Mistake {
                line: line_of(self.text, span.start),
                key: format!("{}{}", self.prefix, key.get_ref()),
                problem,
                allowed: known.join(", "),
            });
        }
    }

    fn mistake(&mut self, span: Range<usize>, key: &str, problem: String, allowed: &str) {
        self.mistakes.push(Mistake {
            line: line_of(self.text, span.start),
            key: format!("{}{key}", self.prefix),
            problem,
            allowed: allowed.to_owned(),
        });
    }
}

fn article(value: &Spanned<DeValue<'_>>) -> String {
    format!("a value of type {}", value.get_ref().type_str())
}
