//! The modules of a crate, and which file names what of which other file.

use std::collections::{BTreeMap, BTreeSet};

use crate::tokens::{self, group_end, is_word};

/// Files by their path below the crate's root, and what each names of others: the other file, and the path by
/// which it is named.
pub(crate) type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// How often a name may lead to a name.
const LONGEST_CHAIN: usize = 16;

/// Words before the name of an item.
const DEFINING: [&str; 7] = ["const", "enum", "fn", "static", "struct", "trait", "type"];

/// A name that `use` brings into a module.
#[derive(Debug)]
struct Binding {
    /// `None`: all names.
    name: Option<String>,
    path: Vec<String>,
    is_public: bool,
}

#[derive(Debug, Default)]
struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Of functions' `use` too.
    bindings: Vec<Binding>,
    /// Names of items.
    defined: BTreeSet<String>,
    /// Paths outside of `use`.
    paths: BTreeSet<Vec<String>>,
}

/// What a path names: a module, or something that a module defines.
#[derive(Clone, Copy, Debug)]
enum Target {
    Module(usize),
    Item(usize),
}

#[derive(Debug, Default)]
struct Crate {
    modules: Vec<Module>,
    /// Words of each file outside of `use`.
    words: BTreeMap<String, BTreeSet<String>>,
}

/// What the files of a crate import of each other. `read` gives the text of a file below the crate's root;
/// `root` is the file of the crate's root module.
pub(crate) fn imports(root: &str, read: &dyn Fn(&str) -> Option<String>) -> Imports {
    let mut all = Crate::default();
    all.load(root, None, read);
    let mut imports = Imports::new();
    for (number, module) in all.modules.iter().enumerate() {
        let named = imports.entry(module.file.clone()).or_default();
        let in_words = |name: &String| all.words.get(&module.file).is_some_and(|words| words.contains(name));
        // What is handed on is an import only if the file uses it itself.
        let used = |binding: &&Binding| !binding.is_public || binding.name.as_ref().is_some_and(in_words);
        let bound = module.bindings.iter().filter(used).map(|binding| {
            let glob = binding.name.is_none().then(|| "*".to_owned());
            binding.path.iter().cloned().chain(glob).collect::<Vec<_>>()
        });
        for path in bound.chain(module.paths.iter().cloned()) {
            // To name a module is to import nothing yet; what is named by it counts.
            let Some(Target::Item(definer)) = all.resolve(number, &path, LONGEST_CHAIN) else { continue };
            let file = &all.modules[definer].file;
            if *file != module.file {
                named.entry(file.clone()).or_insert_with(|| path.join("::"));
            }
        }
    }
    imports
}

/// Where the children of the module in `file` lie.
fn folder(file: &str, is_root: bool) -> String {
    let (parent, name) = file.rsplit_once('/').map_or(("", file), |(parent, name)| (parent, name));
    let stem = name.strip_suffix(".rs").unwrap();
    let own = if is_root || stem == "mod" { "" } else { stem };
    [parent, own].iter().filter(|part| !part.is_empty()).fold(String::new(), |path, part| path + part + "/")
}

impl Crate {
    fn load(&mut self, file: &str, parent: Option<usize>, read: &dyn Fn(&str) -> Option<String>) -> usize {
        let text = read(file).unwrap_or_else(|| panic!("{file} cannot be read"));
        let number = self.modules.len();
        self.modules.push(Module { file: file.to_owned(), parent, ..Module::default() });
        self.words.entry(file.to_owned()).or_default();
        self.parse(number, &tokens::of(&text), &folder(file, parent.is_none()), read);
        number
    }

    fn parse(
        &mut self,
        number: usize,
        tokens: &[String],
        folder: &str,
        read: &dyn Fn(&str) -> Option<String>,
    ) {
        let word = |at: usize| tokens.get(at).map_or("", String::as_str);
        let (mut at, mut depth) = (0, 0_usize);
        let mut is_public = false;
        while at < tokens.len() {
            let token = word(at);
            match (token, word(at + 1), word(at + 2)) {
                ("mod", name, ";") => {
                    let (flat, deep) = (format!("{folder}{name}.rs"), format!("{folder}{name}/mod.rs"));
                    let file = if read(&flat).is_some() { flat } else { deep };
                    let child = self.load(&file, Some(number), read);
                    self.modules[number].children.insert(name.to_owned(), child);
                    at += 3;
                }
                ("mod", name, "{") => {
                    let file = self.modules[number].file.clone();
                    let child = self.modules.len();
                    self.modules.push(Module { file, parent: Some(number), ..Module::default() });
                    self.modules[number].children.insert(name.to_owned(), child);
                    let end = group_end(tokens, at + 2);
                    self.parse(child, &tokens[at + 3..end - 1], &format!("{folder}{name}/"), read);
                    at = end;
                }
                ("use", ..) => {
                    let bindings = &mut self.modules[number].bindings;
                    at = use_tree(tokens, at + 1, &[], is_public, bindings);
                }
                ("pub", "(", _) => {
                    is_public = true;
                    at = group_end(tokens, at + 1);
                    continue;
                }
                ("pub", ..) => {
                    is_public = true;
                    at += 1;
                    continue;
                }
                (item, name, _) if depth == 0 && DEFINING.contains(&item) && is_word(name) => {
                    self.modules[number].defined.insert(name.to_owned());
                    at += 2;
                }
                _ if is_word(token) => at = self.path(number, tokens, at),
                _ => {
                    depth += usize::from(token == "{");
                    depth -= usize::from(token == "}");
                    // A path from the root of all crates names none of ours.
                    at += if token == "::" { 2 } else { 1 };
                }
            }
            is_public = false;
        }
    }

    /// Takes note of the path at `at`, and returns its end.
    fn path(&mut self, number: usize, tokens: &[String], at: usize) -> usize {
        let mut path = vec![tokens[at].clone()];
        let mut end = at + 1;
        while let [mark, name, ..] = &tokens[end..]
            && mark == "::"
            && is_word(name)
        {
            path.push(name.clone());
            end += 2;
        }
        let module = &mut self.modules[number];
        self.words.entry(module.file.clone()).or_default().insert(tokens[at].clone());
        if path.len() > 1 {
            module.paths.insert(path);
        }
        end
    }

    /// What a path in a module names, as far as it is of this crate.
    fn resolve(&self, number: usize, path: &[String], chain: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(number),
            "super" => Target::Module(self.modules[number].parent?),
            name => self.member(number, name, chain)?,
        };
        for name in rest {
            let Target::Module(module) = target else { return Some(target) };
            target = match name.as_str() {
                "super" => Target::Module(self.modules[module].parent?),
                "self" => target,
                // From elsewhere (`pub use other_crate::Name`), or defined there.
                name if self.binds(module, name) => self.member(module, name, chain)?,
                name => self.member(module, name, chain).unwrap_or(Target::Item(module)),
            };
        }
        Some(target)
    }

    fn binds(&self, number: usize, name: &str) -> bool {
        self.modules[number].bindings.iter().any(|binding| binding.name.as_deref() == Some(name))
    }

    /// A child, or a name that `use` brought; `None` for what the module defines, or is of another crate.
    fn member(&self, number: usize, name: &str, chain: usize) -> Option<Target> {
        let module = &self.modules[number];
        if let Some(child) = module.children.get(name) {
            return Some(Target::Module(*child));
        }
        let chain = chain.checked_sub(1)?;
        let named = module.bindings.iter().find(|binding| binding.name.as_deref() == Some(name));
        if let Some(binding) = named.filter(|binding| binding.path != [name]) {
            return self.resolve(number, &binding.path, chain);
        }
        let globs = module.bindings.iter().filter(|binding| binding.is_public && binding.name.is_none());
        globs.filter_map(|glob| self.resolve(number, &glob.path, chain)).find_map(|target| match target {
            Target::Module(from) if self.modules[from].defined.contains(name) => Some(Target::Item(from)),
            Target::Module(from) => self.member(from, name, chain),
            Target::Item(_) => None,
        })
    }
}

/// Reads a tree of `use` from `at` on, and returns its end.
fn use_tree(
    tokens: &[String],
    mut at: usize,
    prefix: &[String],
    is_public: bool,
    bindings: &mut Vec<Binding>,
) -> usize {
    let word = |at: usize| tokens.get(at).map_or("", String::as_str);
    let mut path = prefix.to_vec();
    loop {
        match word(at) {
            "::" => at += 1,
            "{" => {
                at += 1;
                while word(at) != "}" {
                    at = use_tree(tokens, at, &path, is_public, bindings);
                    at += usize::from(word(at) == ",");
                }
                return at + 1;
            }
            "*" => {
                bindings.push(Binding { name: None, path, is_public });
                return at + 1;
            }
            name if is_word(name) && name != "as" => {
                if name != "self" || path.is_empty() {
                    path.push(name.to_owned());
                }
                at += 1;
            }
            "as" => {
                let name = Some(word(at + 1).to_owned());
                bindings.push(Binding { name, path, is_public });
                return at + 2;
            }
            _ => {
                bindings.push(Binding { name: path.last().cloned(), path, is_public });
                return at;
            }
        }
    }
}
