//! For which chips something is: ranges over the values of an enum, in the order in which it has them.

/// True if a list such as `NV50:GF100 GK104-` means the chip at `chip`; `place` knows where a name is among
/// them. Unknown names are ignored.
pub(super) fn include(list: &str, chip: usize, place: impl Fn(&str) -> Option<usize>) -> bool {
    list.split_whitespace().any(|range| {
        // The end of a range with a colon is not in it.
        let (first, last, inclusive) = match (range.split_once(':'), range.split_once('-')) {
            (Some((first, last)), _) => (first, last, false),
            (None, Some((first, last))) => (first, last, true),
            (None, None) => (range, range, true),
        };
        let after = first.is_empty() || place(first).is_some_and(|first| chip >= first);
        let before = last.is_empty()
            || place(last).is_some_and(|last| if inclusive { chip <= last } else { chip < last });
        after && before
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_they_are_written() {
        let names = ["a", "b", "c", "d"];
        let chips = |list: &str| -> String {
            let place = |name: &str| names.iter().position(|known| *known == name);
            (0..names.len()).filter(|chip| include(list, *chip, place)).map(|chip| names[chip]).collect()
        };
        assert_eq!(chips("b"), "b");
        assert_eq!(chips("b-c"), "bc");
        assert_eq!(chips("b:d"), "bc");
        assert_eq!(
            (chips(":c"), chips("-c"), chips("c:"), chips("c-")),
            ("ab".into(), "abc".into(), "cd".into(), "cd".into())
        );
        assert_eq!(chips("a d"), "ad");
        assert_eq!((chips("x"), chips("x-c"), chips("")), (String::new(), String::new(), String::new()));
    }
}
