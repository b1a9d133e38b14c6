//! Rust source as words and marks, without comments, literals and what is built for tests only.

use std::iter::Peekable;
use std::str::Chars;

/// Words that begin an item, as a field or an expression does not.
const ITEMS: [&str; 13] = [
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "static",
    "struct",
    "trait",
    "type",
    "unsafe",
];

/// The tokens of a source text that a build without tests has: words, `::`, and single characters.
pub(crate) fn of(source: &str) -> Vec<String> {
    without_tests(&all(source))
}

/// True for what can be a name.
pub(crate) fn is_word(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

fn all(source: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = source.chars().peekable();
    while let Some(first) = rest.next() {
        match first {
            '/' if rest.peek() == Some(&'/') => while rest.next().is_some_and(|next| next != '\n') {},
            '/' if rest.peek() == Some(&'*') => skip_comment(&mut rest),
            '"' => skip_text(&mut rest),
            '\'' => skip_quote(&mut rest),
            ':' if rest.peek() == Some(&':') => {
                rest.next();
                tokens.push("::".to_owned());
            }
            _ if first.is_alphanumeric() || first == '_' => {
                let mut word = first.to_string();
                while let Some(next) = rest.next_if(|next| next.is_alphanumeric() || *next == '_') {
                    word.push(next);
                }
                if ["r", "br", "cr"].contains(&word.as_str()) && matches!(rest.peek(), Some('"' | '#')) {
                    word = skip_raw(&mut rest).unwrap_or_default();
                }
                tokens.push(word);
            }
            _ if first.is_whitespace() => {}
            _ => tokens.push(first.to_string()),
        }
    }
    tokens.retain(|token| !token.is_empty());
    tokens
}

fn skip_comment(rest: &mut Peekable<Chars<'_>>) {
    let (mut depth, mut last) = (1, rest.next());
    while depth > 0
        && let Some(next) = rest.next()
    {
        match (last, next) {
            (Some('/'), '*') => depth += 1,
            (Some('*'), '/') => depth -= 1,
            _ => {
                last = Some(next);
                continue;
            }
        }
        last = None;
    }
}

fn skip_text(rest: &mut Peekable<Chars<'_>>) {
    while let Some(next) = rest.next() {
        match next {
            '\\' => _ = rest.next(),
            '"' => return,
            _ => {}
        }
    }
}

/// A character goes; of a lifetime the name remains.
fn skip_quote(rest: &mut Peekable<Chars<'_>>) {
    let mut ahead = rest.clone();
    match (ahead.next(), ahead.next()) {
        (Some('\\'), _) => {
            rest.nth(1);
            while rest.next().is_some_and(|next| next != '\'') {}
        }
        (Some(_), Some('\'')) => _ = rest.nth(1),
        _ => {}
    }
}

/// Raw text goes; a raw name (`r#type`) remains.
fn skip_raw(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    let mut hashes = 0;
    while rest.next_if_eq(&'#').is_some() {
        hashes += 1;
    }
    if rest.next_if_eq(&'"').is_none() {
        let mut name = String::new();
        while let Some(next) = rest.next_if(|next| next.is_alphanumeric() || *next == '_') {
            name.push(next);
        }
        return Some(name);
    }
    while let Some(next) = rest.next() {
        let mut ahead = rest.clone();
        if next == '"' && (0..hashes).all(|_| ahead.next() == Some('#')) {
            *rest = ahead;
            return None;
        }
    }
    None
}

fn without_tests(tokens: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let end = attribute(tokens, at);
        let within = tokens.get(at..end).unwrap_or_default();
        let says = |word: &str| within.iter().any(|token| token == word);
        if end > at && says("cfg") && says("test") && !says("not") {
            at = item_end(tokens, end);
        } else if end > at {
            at = end;
        } else {
            kept.push(token.clone());
            at += 1;
        }
    }
    kept
}

/// The end of the attribute that begins at `at`; `at` itself if none does.
fn attribute(tokens: &[String], at: usize) -> usize {
    let is = |place: usize, mark: &str| tokens.get(place).is_some_and(|token| token == mark);
    let open = if is(at + 1, "!") { at + 2 } else { at + 1 };
    if is(at, "#") && is(open, "[") { group_end(tokens, open) } else { at }
}

/// The end of the group that begins at `at`.
pub(crate) fn group_end(tokens: &[String], at: usize) -> usize {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return place + 1;
        }
    }
    tokens.len()
}

/// The end of the item, field or statement that begins at `at`, perhaps with more attributes.
fn item_end(tokens: &[String], mut at: usize) -> usize {
    while attribute(tokens, at) > at {
        at = attribute(tokens, at);
    }
    let begin = tokens.iter().skip(at).position(|token| token != "pub").map_or(at, |skipped| at + skipped);
    let begin = if begin > at && tokens.get(begin).is_some_and(|token| token == "(") {
        group_end(tokens, begin)
    } else {
        begin
    };
    let first = tokens.get(begin).map_or("", String::as_str);
    let (is_item, until_semicolon) = (ITEMS.contains(&first), ["use", "let"].contains(&first));
    let mut place = begin;
    while let Some(token) = tokens.get(place) {
        match token.as_str() {
            ";" => return place + 1,
            "," if !is_item && !until_semicolon => return place + 1,
            // The end of what surrounds it.
            ")" | "]" | "}" => return place,
            "{" if !until_semicolon => return group_end(tokens, place),
            "(" | "[" | "{" => place = group_end(tokens, place),
            _ => place += 1,
        }
    }
    place
}

#[test]
fn comments_literals_and_tests_are_no_tokens() {
    let source = r##"
        // crate::a
        /* crate::b /* crate::c */ */
        fn one<'a>(x: &'a str) -> char { let _ = ("crate::d \" x", r#"crate::e"#, '"', '\''); r#type('{') }
        #[cfg(test)]
        #[expect(dead_code)]
        pub(super) fn two<A, B>(a: [u8; 2]) { crate::f::g() }
        #[cfg(all(unix, test))]
        use crate::{h, i};
        #[cfg(not(test))]
        use crate::j;
        struct S { #[cfg(test)] k: crate::k::K, l: u8 }
        #[cfg(test)]
        mod tests;
    "##;
    let words: Vec<_> = of(source).into_iter().filter(|token| is_word(token)).collect();
    let expected = "fn one a x a str char let _ type use crate j struct S l u8";
    assert_eq!(words, expected.split(' ').collect::<Vec<_>>());
}
