//! For tests: states through text and back, and states with mistakes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail as tests do")]

use std::fmt::Debug;

use fastrand::Rng;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

/// The state that is read from what is written of a state; both are equal.
#[track_caller]
pub fn through_text<S: Serialize + DeserializeOwned + PartialEq + Debug>(state: &S) -> S {
    let text = serde_json::to_string(state).unwrap();
    let read: S = serde_json::from_str(&text).unwrap();
    assert_eq!(read, *state);
    read
}

/// A state with one to three mistakes, of which some are none; or nothing where it cannot be read any more.
pub fn corrupted<S: Serialize + DeserializeOwned>(state: &S, random: &mut Rng) -> Option<S> {
    let mut value = serde_json::to_value(state).unwrap();
    for _ in 0..random.usize(1..=3) {
        let leaves = count(&value);
        let mut chosen = random.usize(0..leaves);
        change(&mut value, &mut chosen, random);
    }
    serde_json::from_value(value).ok()
}

/// Tries `times` states with mistakes. Each is refused, or is a state that is taken again as it is.
#[track_caller]
pub fn corrupted_states_are_refused_or_taken_as_they_are<S, U, E: Debug>(
    state: &S,
    times: u32,
    from_state: impl Fn(&S) -> Result<U, E>,
    taken: impl Fn(&U) -> S,
) where
    S: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let mut random = Rng::with_seed(u64::from(times));
    let mut refused = 0;
    for _ in 0..times {
        match corrupted(state, &mut random).map(|state| (from_state(&state), state)) {
            Some((Ok(unit), state)) => assert_eq!(taken(&unit), state),
            Some((Err(_), _)) | None => refused += 1,
        }
    }
    assert!(refused > 0, "none of {times} was refused");
}

/// Values in a tree, those with others inside them included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Changes the value to which `left` counts down.
fn change(value: &mut Value, left: &mut usize, random: &mut Rng) {
    if *left == 0 {
        *left = usize::MAX;
        *value = other(value, random);
        return;
    }
    *left = left.wrapping_sub(1);
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| change(value, left, random)),
        Value::Object(fields) => fields.values_mut().for_each(|value| change(value, left, random)),
        _ => {}
    }
}

/// A value in the place of another one.
fn other(value: &Value, random: &mut Rng) -> Value {
    match value {
        Value::Null => number(random),
        Value::Bool(value) => Value::Bool(!value),
        Value::Number(_) if random.u8(0..8) == 0 => Value::Null,
        Value::Number(_) => number(random),
        Value::String(text) => Value::String(text_like(text, random)),
        Value::Array(values) => Value::Array(list_like(values, random)),
        Value::Object(fields) => Value::Object(fields_like(fields, random)),
    }
}

/// A number as mistakes have them: small, at an edge, with one bit, or any.
fn number(random: &mut Rng) -> Value {
    let any = match random.u8(0..5) {
        0 => random.u64(0..256),
        1 => u64::from(u32::MAX) - random.u64(0..2),
        2 => 1 << random.u32(0..64),
        3 => u64::from(random.u32(..)),
        _ => u64::MAX - random.u64(0..4096),
    };
    Value::Number(Number::from(any))
}

fn text_like(text: &str, random: &mut Rng) -> String {
    let mut text = text.to_owned();
    match random.u8(0..4) {
        0 => text.truncate(text.len() / 2),
        1 => text.push_str("00000000"),
        2 => text.push_str(&"deadbeef".repeat(random.usize(1..3000))),
        _ => text.insert(0, char::from(random.u8(b'0'..=b'z'))),
    }
    text
}

fn list_like(values: &[Value], random: &mut Rng) -> Vec<Value> {
    let mut values = values.to_vec();
    match random.u8(0..4) {
        0 => values.truncate(values.len() / 2),
        1 => values.reverse(),
        2 => values.extend(values.last().cloned()),
        _ => {
            let last = values.last().cloned().unwrap_or(Value::Null);
            values.resize(values.len() + random.usize(1..5000), last);
        }
    }
    values
}

fn fields_like(fields: &Map<String, Value>, random: &mut Rng) -> Map<String, Value> {
    let mut fields = fields.clone();
    if random.bool() {
        fields.insert("unknown".to_owned(), Value::Null);
    } else if let Some(name) = random.choice(fields.keys().cloned().collect::<Vec<_>>()) {
        fields.remove(&name);
    }
    fields
}
