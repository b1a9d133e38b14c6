//! The files of a register database, read and put together: one tree of everything, imports followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use roxmltree::{Document, Node};

/// Most bytes of all files together; the database that exists has two million.
const MOST_BYTES: u64 = 64 << 20;

/// Why there is no database.
#[derive(Debug, thiserror::Error)]
pub enum RnndbError {
    /// A file that is needed is in none of the folders.
    #[error(
        "No folder of the register database has {name}, which it needs (envytools generates nvchipsets.xml when it is built: give that folder as well)"
    )]
    Absent {
        /// Its name.
        name: String,
    },
    /// A file that is needed.
    #[error("Cannot read {path}", path = .path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It is no XML.
    #[error("{path} is no register database: {what}", path = .path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// The mistake, and its place.
        what: String,
    },
    /// More than there can be.
    #[error("The register database has more than 64 MiB")]
    TooLarge,
    /// It has no such thing.
    #[error("The register database has no {0}")]
    Missing(&'static str),
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

/// Everything on the top level of all files. Elements of the same kind and name are merged.
#[derive(Debug, Default)]
pub(super) struct Tree {
    items: BTreeMap<(String, String), Element>,
}

impl Tree {
    /// Reads `root.xml`, and what that imports: each from the first folder that has it.
    pub fn read(folders: &[PathBuf]) -> Result<Self, RnndbError> {
        let mut tree = Self::default();
        let (mut seen, mut left) = (BTreeSet::new(), vec!["root.xml".to_owned()]);
        let mut bytes = 0;
        while let Some(name) = left.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let path = folders.iter().map(|folder| folder.join(&name)).find(|path| path.exists());
            let path = path.ok_or(RnndbError::Absent { name })?;
            let text = std::fs::read_to_string(&path)
                .map_err(|source| RnndbError::Unreadable { path: path.clone(), source })?;
            bytes += text.len() as u64;
            if bytes > MOST_BYTES {
                return Err(RnndbError::TooLarge);
            }
            let malformed = |error: roxmltree::Error| RnndbError::Malformed {
                path: path.clone(),
                what: error.to_string(),
            };
            let document = Document::parse(&text).map_err(malformed)?;
            for item in document.root_element().children().filter(Node::is_element).map(Element::of) {
                match (item.tag.as_str(), item.get("file")) {
                    ("import", Some(file)) => {
                        // A file in the folders or below: nothing else is any of its business.
                        let normal = |part| matches!(part, Component::Normal(_));
                        if !Path::new(file).components().all(normal) {
                            let what = format!("it imports {file:?}, which is not below its folder");
                            return Err(RnndbError::Malformed { path, what });
                        }
                        left.push(file.to_owned());
                    }
                    _ => tree.add(item),
                }
            }
        }
        Ok(tree)
    }

    fn add(&mut self, item: Element) {
        // Types that registers refer to may be declared beside them.
        item.children.iter().for_each(|child| self.declare(child));
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

    fn declare(&mut self, element: &Element) {
        if let ("bitset" | "group", Some(name)) = (element.tag.as_str(), element.get("name")) {
            let key = (element.tag.clone(), name.to_owned());
            self.items.entry(key).or_insert_with(|| element.clone());
        }
        element.children.iter().for_each(|child| self.declare(child));
    }

    pub fn find(&self, tag: &str, name: &str) -> Option<&Element> {
        self.items.get(&(tag.to_owned(), name.to_owned()))
    }
}
