//! From an offset to the register there, through arrays, stripes, groups and variants. A chip may have
//! hundreds of thousands of registers in arrays of arrays, and a trace uses some hundred: each is looked for
//! when it is first asked for.

use super::variants::include;
use super::xml::{Element, Tree};
use gpuvmk_chip::registers::{FieldDef, Policy, Reg, RegisterDef};

/// The enum of chips.
pub(super) const CHIPS: &str = "chipset";

/// Arrays in arrays, and groups in groups.
const MOST_DEPTH: usize = 16;

/// Elements that are looked at for one offset. The database that exists needs some thousand.
const MOST_STEPS: u32 = 2_000_000;

/// The database as one chip has it.
pub(super) struct Walk<'a> {
    tree: &'a Tree,
    chips: &'a [&'a str],
    chip: usize,
    steps: u32,
}

/// A register that was found.
struct Found<'a> {
    element: &'a Element,
    name: String,
}

/// The names of what a register is in.
#[derive(Default)]
struct Prefix {
    names: String,
    /// Numbers of elements that have no name: the next that has one gets them.
    numbers: String,
}

impl Prefix {
    fn named(&self, name: &str) -> String {
        format!("{}{name}{}", self.names, self.numbers)
    }

    /// That of what is in an element.
    fn and(&self, parent: &Element, length: u64, index: u64) -> Self {
        let number = if length > 1 { format!("[{index}]") } else { String::new() };
        match parent.get("name") {
            Some(name) => Self { names: self.named(name) + &number + ".", numbers: String::new() },
            None => Self { names: self.names.clone(), numbers: format!("{}{number}", self.numbers) },
        }
    }
}

/// What stays: registers live as long as the process.
fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

impl<'a> Walk<'a> {
    pub fn new(tree: &'a Tree, chips: &'a [&'a str], chip: usize) -> Self {
        Self { tree, chips, chip, steps: MOST_STEPS }
    }

    /// The register of a domain that covers an offset.
    pub fn register(mut self, domain: &'a Element, reg: Reg) -> Option<RegisterDef> {
        let found = self.among(domain, &Prefix::default(), reg.0.into(), 0)?;
        Some(RegisterDef {
            unit: leak(found.name.split(['.', '[']).next().unwrap_or_default()),
            name: leak(&found.name),
            offset: reg.0,
            count: 1,
            stride: 4,
            reset: 0,
            // Not used: guests do not get this chip.
            policy: Policy::Scratch,
            fields: Box::leak(self.fields(found.element).into_boxed_slice()),
            source: "rnndb",
            doc: "",
        })
    }

    /// The parts of a domain that have names, with their first and last offsets.
    pub fn units(&self, domain: &'a Element) -> Vec<(&'static str, u32, u32)> {
        let arrays = domain.children.iter().filter(|child| child.tag == "array" && self.is_meant(child));
        let unit = |array: &Element| {
            let (first, stride) = (array.number("offset").unwrap_or(0), array.number("stride").unwrap_or(0));
            let bytes = stride.checked_mul(array.number("length").unwrap_or(1))?.checked_sub(1)?;
            let last = u32::try_from(first.checked_add(bytes)?).ok()?;
            Some((leak(array.get("name")?), u32::try_from(first).ok()?, last))
        };
        arrays.filter_map(unit).collect()
    }

    fn is_meant(&self, element: &Element) -> bool {
        let known = |name: &str| self.chips.iter().position(|chip| *chip == name);
        // Variants of anything else than chips cannot be distinguished here: all of them are shown.
        let of_chips = element.get("varset").is_none_or(|varset| varset == CHIPS);
        !of_chips || element.get("variants").is_none_or(|list| include(list, self.chip, known))
    }

    /// The register at `offset`, counted from where `parent` begins.
    fn among(
        &mut self,
        parent: &'a Element,
        prefix: &Prefix,
        offset: u64,
        depth: usize,
    ) -> Option<Found<'a>> {
        if depth > MOST_DEPTH {
            return None;
        }
        for child in &parent.children {
            self.steps = self.steps.checked_sub(1)?;
            // Most are elsewhere, and that check is faster than the one for chips.
            let Some(offset) = offset.checked_sub(child.number("offset").unwrap_or(0)) else { continue };
            let found = match child.tag.as_str() {
                "array" => self.in_array(child, prefix, offset, depth),
                "stripe" => self.in_stripe(child, prefix, offset, depth),
                "use-group" if self.is_meant(child) => {
                    let group = child.get("name").and_then(|name| self.tree.find("group", name));
                    group.and_then(|group| self.among(group, prefix, offset, depth + 1))
                }
                "reg8" | "reg16" | "reg32" | "reg64" => self.is_register(child, prefix, offset),
                _ => None,
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Elements of an array follow each other.
    fn in_array(
        &mut self,
        array: &'a Element,
        prefix: &Prefix,
        offset: u64,
        depth: usize,
    ) -> Option<Found<'a>> {
        let stride = array.number("stride").filter(|stride| *stride > 0)?;
        let index = offset / stride;
        let length = array.number("length").unwrap_or(1);
        if index >= length || !self.is_meant(array) {
            return None;
        }
        let within = prefix.and(array, length, index);
        self.among(array, &within, offset % stride, depth + 1)
    }

    /// Elements of a stripe may lie between those of others, and beyond the next one's beginning.
    fn in_stripe(
        &mut self,
        stripe: &'a Element,
        prefix: &Prefix,
        offset: u64,
        depth: usize,
    ) -> Option<Found<'a>> {
        if !self.is_meant(stripe) {
            return None;
        }
        let (stride, length) = (stripe.number("stride").unwrap_or(0), stripe.number("length").unwrap_or(1));
        let last = offset.checked_div(stride).unwrap_or(0).min(length.checked_sub(1)?);
        (0..=last).rev().find_map(|index| {
            let within = prefix.and(stripe, length, index);
            self.among(stripe, &within, offset - index * stride, depth + 1)
        })
    }

    fn is_register(&self, register: &'a Element, prefix: &Prefix, offset: u64) -> Option<Found<'a>> {
        let bytes = match register.tag.as_str() {
            "reg64" => 8,
            "reg32" => 4,
            "reg16" => 2,
            _ => 1,
        };
        let stride = register.number("stride").unwrap_or(bytes).max(1);
        let (index, length) = (offset / stride, register.number("length").unwrap_or(1));
        // An access is to a word: a narrower register is in it.
        if index >= length || offset % stride >= bytes || !self.is_meant(register) {
            return None;
        }
        let mut name = prefix.named(register.get("name")?);
        if length > 1 {
            name.push_str(&format!("[{index}]"));
        }
        Some(Found { element: register, name })
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
