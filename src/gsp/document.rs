//! The tables of functions, classes and controls as a document (docs/controls.md).

use std::fmt::Write;

use crate::abi::table::{ClassNumber, Type};
use crate::abi::{Abi, VERSIONS};

const HEAD: &str = "# What the virtual GSP answers

Generated from the tables in `src/gsp/abi/`; regenerate with
`UPDATE_DOCS=1 cargo test -p gpuvmk-gsp --lib document`.

How a call is answered: **handler** means that the model decides; **constant** gives the same bytes every time;
**zeroes** fills the parameters with zeros;
**acknowledged** gives them back, because what they say needs no deed here. What is not listed is answered `NV_ERR_NOT_SUPPORTED` (a function or a
control) or `NV_ERR_INVALID_CLASS`, counted, and noted in the log once. A call whose parameters have another size
is answered `NV_ERR_INVALID_PARAM_STRUCT`. Classes without a number have another one on each family of chips
([chips.md](chips.md)). Display, and controls of it, are answered by chips whose display cannot be fused off,
and where a vGPU has a head ([display.md](display.md)).
";

/// The document.
pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    for abi in VERSIONS {
        let _ = writeln!(text, "\n## Firmware {}", abi.version);
        functions(&mut text, abi);
        classes(&mut text, abi);
        controls(&mut text, abi);
    }
    text
}

fn functions(text: &mut String, abi: &Abi) {
    let _ = writeln!(text, "\n### Functions\n\nSource: {}.\n", abi.functions_source);
    let _ = writeln!(text, "| Number | Name | Reply | What it does |\n| --- | --- | --- | --- |");
    for function in abi.functions() {
        let reply = if function.is_answered { "yes" } else { "no" };
        let (number, name, doc) = (function.number, function.name, function.doc.trim());
        let _ = writeln!(text, "| {number} | `{name}` | {reply} | {doc} |");
    }
}

fn classes(text: &mut String, abi: &Abi) {
    let _ = writeln!(text, "\n### Classes\n\nSource: {}.\n", abi.classes_source);
    let _ = writeln!(text, "| Number | Name | Below | Bytes | What it is |\n| --- | --- | --- | --- | --- |");
    for class in abi.classes() {
        let below: Vec<_> = class.parents.iter().copied().map(object).collect();
        let optional = if class.is_optional { " or none" } else { "" };
        let (number, name, size, doc) = (class.number, class.name, class.size, class.doc.trim());
        let number = match number {
            ClassNumber::Fixed(number) | ClassNumber::OfDisplay(number) => format!("{number:#06x}"),
            ClassNumber::Role(_) | ClassNumber::DisplayRoot | ClassNumber::DisplayChannel(_) => {
                "the chip's".to_owned()
            }
        };
        let _ = writeln!(text, "| {number} | `{name}` | {} | {size}{optional} | {doc} |", below.join(", "));
    }
}

fn controls(text: &mut String, abi: &Abi) {
    let _ = writeln!(text, "\n### Controls");
    let mut source = "";
    for control in abi.controls() {
        if control.source != source {
            source = control.source;
            let _ = writeln!(text, "\nSource: {source}.\n");
            let _ = writeln!(text, "| Number | Name | Object | Bytes | Answer | What it does |");
            let _ = writeln!(text, "| --- | --- | --- | --- | --- | --- |");
        }
        let (number, name, on, size) = (control.number, control.name, object(control.object), control.size);
        let (answer, doc) = (control.answer.kind(), control.doc.trim());
        let _ = writeln!(text, "| {number:#010x} | `{name}` | {on} | {size} | {answer} | {doc} |");
    }
}

const fn object(object: Type) -> &'static str {
    match object {
        Type::Client => "client",
        Type::Device => "device",
        Type::Subdevice => "subdevice",
        Type::AddressSpace => "address space",
        Type::Channel => "channel",
        Type::EngineObject => "engine object",
        Type::Event => "event",
        Type::Memory => "memory",
        Type::Display => "display",
        Type::DisplayChannel => "display channel",
        Type::ChannelGroup => "channel group",
        Type::ContextShare => "context share",
        Type::VirtualMemory => "virtual memory",
        Type::BinaryApi => "binary API",
        Type::Diagnostics => "diagnostics",
        Type::Inforom => "InfoROM",
        Type::I2c => "I2C",
        Type::Debugger => "debugger",
        Type::Software => "software methods",
        Type::Retainer => "retainer",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::abi::table::Answer;
    use crate::abi::{self, names};

    #[test]
    fn committed_document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/controls.md");
        let expected = markdown();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &expected).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(committed == expected, "docs/controls.md is stale: set UPDATE_DOCS=1 and run this test");
    }

    #[test]
    fn every_number_is_in_its_table_once() {
        let distinct = |numbers: Vec<u32>| numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len();
        for abi in VERSIONS {
            assert!(distinct(abi.functions().map(|function| function.number).collect()));
            let fixed = abi.classes().filter_map(|class| match class.number {
                ClassNumber::Fixed(number) | ClassNumber::OfDisplay(number) => Some(number),
                ClassNumber::Role(_) | ClassNumber::DisplayRoot | ClassNumber::DisplayChannel(_) => None,
            });
            assert!(distinct(fixed.collect()));
            assert!(distinct(abi.controls().map(|control| control.number).collect()));
        }
    }

    #[test]
    fn constants_are_as_long_as_the_parameters() {
        for control in VERSIONS.iter().flat_map(|abi| abi.controls()) {
            if let Answer::Constant(bytes) = control.answer {
                assert_eq!(bytes.len(), control.size, "{}", control.name);
            }
        }
    }

    #[test]
    fn versions_are_told_apart_by_what_a_driver_says_first() {
        for abi in VERSIONS {
            assert!(std::ptr::eq(abi::of_system_info(abi.system_info).unwrap(), *abi));
            assert!(std::ptr::eq(abi::by_version(abi.version).unwrap(), *abi));
        }
        assert!(abi::of_system_info(1).is_none() && abi::by_version("1.0").is_none());
    }

    #[test]
    fn names_are_those_that_logs_and_traces_show() {
        for abi in VERSIONS {
            for control in abi.controls() {
                assert_eq!(names::control(abi, control.number), Some(control.name));
            }
            for function in abi.functions() {
                let known = names::function(function.number).unwrap();
                assert_eq!(function.name, format!("NV_VGPU_MSG_FUNCTION_{known}"));
            }
        }
    }
}
