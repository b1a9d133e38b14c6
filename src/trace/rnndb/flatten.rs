//! Arrays, groups and variants taken apart: what is left is a table of registers as gpuvmk's own chips have.

use super::variants::include;
use super::xml::{Element, Tree};
use crate::chip::register_index::BAR0_SIZE;
use crate::chip::registers::{FieldDef, Policy, RegisterDef};

/// Arrays in arrays, and groups in groups.
const MOST_DEPTH: usize = 16;

/// Registers and families at the most; the index has places for so many.
const MOST: usize = 60_000;

/// Copies of what is in an array, if there are registers in arrays in it.
const MOST_COPIES: u64 = 4096;

pub(super) struct Flattener<'a> {
    tree: &'a Tree,
    chips: &'a [&'a str],
    chip: usize,
    found: Vec<RegisterDef>,
}

/// What stays: tables of registers live as long as the process.
fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

impl<'a> Flattener<'a> {
    pub fn new(tree: &'a Tree, chips: &'a [&'a str], chip: usize) -> Self {
        Self { tree, chips, chip, found: Vec::new() }
    }

    /// The registers of a domain, by offset.
    pub fn registers(mut self, domain: &Element) -> Vec<RegisterDef> {
        self.children(domain, "", 0, 0);
        self.found.sort_by_key(|register| register.offset);
        self.found
    }

    fn is_meant(&self, element: &Element) -> bool {
        let known = |name: &str| self.chips.iter().position(|chip| *chip == name);
        // Variants of something that is no chip cannot be told apart here: all of them are shown.
        let of_chips = element.get("varset").is_none_or(|varset| varset == super::CHIPS);
        !of_chips || element.get("variants").is_none_or(|list| include(list, self.chip, known))
    }

    fn children(&mut self, parent: &Element, prefix: &str, base: u64, depth: usize) {
        if depth > MOST_DEPTH {
            return;
        }
        for child in &parent.children {
            if !self.is_meant(child) {
                continue;
            }
            match child.tag.as_str() {
                "array" | "stripe" => self.array(child, prefix, base, depth),
                "use-group" => {
                    let group = child.get("name").and_then(|name| self.tree.find("group", name)).cloned();
                    if let Some(group) = group {
                        self.children(&group, prefix, base, depth + 1);
                    }
                }
                "reg8" | "reg16" | "reg32" | "reg64" => self.register(child, prefix, base),
                _ => {}
            }
        }
    }

    fn array(&mut self, array: &Element, prefix: &str, base: u64, depth: usize) {
        let offset = base.saturating_add(array.number("offset").unwrap_or(0));
        let stride = array.number("stride").unwrap_or(0);
        let length = array.number("length").unwrap_or(1).min(MOST_COPIES);
        for index in 0..length {
            let start = offset.saturating_add(stride.saturating_mul(index));
            if start >= u64::from(BAR0_SIZE) || self.found.len() >= MOST {
                return;
            }
            let name = match (array.get("name"), length) {
                (None, _) => prefix.to_owned(),
                (Some(name), 1) => format!("{prefix}{name}."),
                (Some(name), _) => format!("{prefix}{name}[{index}]."),
            };
            self.children(array, &name, start, depth + 1);
        }
    }

    fn register(&mut self, register: &Element, prefix: &str, base: u64) {
        let offset = base.saturating_add(register.number("offset").unwrap_or(0)) & !3;
        let Some(name) = register.get("name") else { return };
        let Some(offset) = u32::try_from(offset).ok().filter(|offset| *offset < BAR0_SIZE) else { return };
        if self.found.len() >= MOST {
            return;
        }
        let wide = if register.tag == "reg64" { 8 } else { 4 };
        let stride = register.number("stride").unwrap_or(wide).clamp(4, BAR0_SIZE.into());
        let room = u64::from(BAR0_SIZE - offset).div_ceil(stride);
        let count = register.number("length").unwrap_or(1).clamp(1, room);
        let name = format!("{prefix}{name}");
        self.found.push(RegisterDef {
            unit: leak(name.split(['.', '[']).next().unwrap_or_default()),
            name: leak(&name),
            offset,
            count: u32::try_from(count).unwrap_or(1),
            stride: u32::try_from(stride & !3).unwrap_or(4),
            reset: 0,
            // Nobody asks: it is no chip that guests are given.
            policy: Policy::Scratch,
            fields: Box::leak(self.fields(register).into_boxed_slice()),
            source: "rnndb",
            doc: "",
        });
    }

    /// A register's own fields, or those of the bitset that it names; most significant first.
    fn fields(&self, register: &Element) -> Vec<FieldDef> {
        let own = register.children.iter().any(|child| child.tag == "bitfield");
        let set = register.get("type").filter(|_| !own).and_then(|name| self.tree.find("bitset", name));
        let fields = set.map_or(&register.children, |set| &set.children);
        let mut fields: Vec<_> = fields
            .iter()
            .filter(|field| field.tag == "bitfield" && self.is_meant(field))
            .filter_map(|field| {
                let bit = |name| field.number(name).or(field.number("pos"));
                let (low, high) = (u8::try_from(bit("low")?).ok()?, u8::try_from(bit("high")?).ok()?);
                (low <= high && high < 32).then_some(FieldDef { name: leak(field.get("name")?), high, low })
            })
            .collect();
        fields.sort_by_key(|field| std::cmp::Reverse((field.high, field.low)));
        fields
    }
}
