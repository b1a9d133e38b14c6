//! Classes and methods as data, in a form that all chips share.
//!
//! A method is a 32-bit write to a byte address below 0x4000 of the object bound to one of eight subchannels.

/// One method, or a run of equal ones four bytes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodDef {
    /// Byte address of the first method.
    pub method: u16,
    /// Number of methods.
    pub count: u16,
    /// Bits that its data may have set.
    pub mask: u32,
    /// Name, without that of its class.
    pub name: &'static str,
}

/// A class of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassDef {
    /// Number of the class, as SET_OBJECT gives it.
    pub class: u16,
    /// Name.
    pub name: &'static str,
    /// The methods that are known, in ascending order.
    pub methods: &'static [MethodDef],
}

pub(super) const fn method(method: u16, name: &'static str) -> MethodDef {
    MethodDef { method, count: 1, mask: u32::MAX, name }
}

pub(super) const fn masked(method: u16, mask: u32, name: &'static str) -> MethodDef {
    MethodDef { method, count: 1, mask, name }
}

pub(super) const fn run(method: u16, count: u16, name: &'static str) -> MethodDef {
    MethodDef { method, count, mask: u32::MAX, name }
}

/// The definition that `method` belongs to.
pub fn find(methods: &'static [MethodDef], method: u16) -> Option<&'static MethodDef> {
    methods.iter().find(|def| {
        let last = def.method.saturating_add(4 * (def.count - 1));
        (def.method..=last).contains(&method)
    })
}
