//! The files of a register database, read and put together: one tree of everything, imports followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use roxmltree::{Document, Node};

/// Most bytes of all files together; the database that exists has two million.
const MOST_BYTES: u64 = 64 << 20;

/// Why there is no database.
#[derive(Debug, thiserror::Error)]
pub enum RnndbError {
    /// A file that is needed.
    #[error("Cannot read {path}", path = .path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is no XML.
    #[error("{path} is no register database: {what}", path = .path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// More than there can be.
    #[error("The register database at {} has more than 64 MiB", .0.display())]
    TooLarge(PathBuf),
    /// It has no such thing.
    #[error("The register database at {path} has no {what}", path = .path.display())]
    Missing {
        /// Where.
        path: PathBuf,
        /// What.
        what: &'static str,
    },
}

/// An element: what is needed of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Element {
    pub tag: String,
    attributes: BTreeMap<String, String>,
    pub children: Vec<Element>,
}

impl Element {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    /// A number, decimal or with 0x.
    pub fn number(&self, name: &str) -> Option<u64> {
        let text = self.get(name)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    fn of(node: Node<'_, '_>) -> Self {
        let attributes =
            node.attributes().map(|one| (one.name().to_owned(), one.value().to_owned())).collect();
        let children = node.children().filter(Node::is_element).map(Self::of).collect();
        Self { tag: node.tag_name().name().to_owned(), attributes, children }
    }
}

/// Everything on the top level of all files. What has the same kind and name is one.
#[derive(Debug, Default)]
pub(super) struct Tree {
    items: BTreeMap<(String, String), Element>,
}

impl Tree {
    /// Reads `root.xml` of a folder, and what that imports.
    pub fn read(folder: &Path) -> Result<Self, RnndbError> {
        let mut tree = Self::default();
        let (mut seen, mut left) = (BTreeSet::new(), vec!["root.xml".to_owned()]);
        let mut bytes = 0;
        while let Some(name) = left.pop() {
            // A name of a file in the folder or below: nothing else is any of its business.
            let inside =
                Path::new(&name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
            let path = folder.join(&name);
            if !inside {
                let what = format!("it imports {name:?}, which is not below its folder");
                return Err(RnndbError::Malformed { path: folder.to_owned(), what });
            }
            if !seen.insert(name) {
                continue;
            }
            let text = std::fs::read_to_string(&path)
                .map_err(|source| RnndbError::Unreadable { path: path.clone(), source })?;
            bytes += text.len() as u64;
            if bytes > MOST_BYTES {
                return Err(RnndbError::TooLarge(folder.to_owned()));
            }
            let malformed = |error: roxmltree::Error| RnndbError::Malformed {
                path: path.clone(),
                what: error.to_string(),
            };
            let document = Document::parse(&text).map_err(malformed)?;
            for item in document.root_element().children().filter(Node::is_element).map(Element::of) {
                match (item.tag.as_str(), item.get("file")) {
                    ("import", Some(file)) => left.push(file.to_owned()),
                    _ => tree.add(item),
                }
            }
        }
        Ok(tree)
    }

    fn add(&mut self, item: Element) {
        let Some(name) = item.get("name").map(str::to_owned) else { return };
        match self.items.entry((item.tag.clone(), name)) {
            std::collections::btree_map::Entry::Vacant(place) => drop(place.insert(item)),
            std::collections::btree_map::Entry::Occupied(mut place) => {
                let known = place.get_mut();
                known.children.extend(item.children);
                item.attributes.into_iter().for_each(|(key, value)| {
                    known.attributes.entry(key).or_insert(value);
                });
            }
        }
    }

    pub fn find(&self, tag: &str, name: &str) -> Option<&Element> {
        self.items.get(&(tag.to_owned(), name.to_owned()))
    }
}
