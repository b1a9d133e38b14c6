//! JSON-RPC 2.0 (jsonrpc.org/specification): what a line asks for, and how answers look. Knows no method.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Most calls in a batch: a line is short, but each answer may be long.
const MAX_BATCH: usize = 8;

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    /// Number of the kind.
    pub code: i32,
    /// The mistake, and what would be right.
    pub message: String,
    /// More for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// Kinds of failures. The first five are the specification's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// The line is no JSON.
    Parse = -32700,
    /// It is no request.
    Request = -32600,
    /// No such method.
    Method = -32601,
    /// Parameters are missing, unknown or of another kind.
    Params = -32602,
    /// The aggregator does not answer.
    Internal = -32603,
    /// There is no such VM.
    NoVm = -32001,
    /// The request is well-formed, but impossible in the present state.
    Rejected = -32002,
    /// The caller's user may not operate.
    NotAllowed = -32003,
}

impl Code {
    /// All, with what they mean, for the description.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Parse, "The line is not JSON"),
        (Self::Request, "The JSON is not a request"),
        (Self::Method, "There is no such method"),
        (Self::Params, "Parameters are missing, unknown or of another kind"),
        (Self::Internal, "The aggregator does not answer"),
        (Self::NoVm, "No VM of that name is connected"),
        (Self::Rejected, "What was asked for cannot be, as things are"),
        (Self::NotAllowed, "The caller's user may not operate"),
    ];

    /// A failure of this kind.
    pub fn because(self, message: impl Into<String>) -> Failure {
        Failure { code: self as i32, message: message.into(), data: None }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    jsonrpc: String,
    method: String,
    #[serde(default)]
    params: Value,
    // An id that is null is one; an absent one makes a notification.
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
}

fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// Answers a line; `None` if it asks for no answer.
pub fn answer(line: &str, mut serve: impl FnMut(&str, Value) -> Result<Value, Failure>) -> Option<String> {
    let said = match serde_json::from_str::<Value>(line) {
        Ok(said) => said,
        Err(error) => return Some(failed(&Value::Null, &Code::Parse.because(error.to_string())).to_string()),
    };
    let answer = match said {
        Value::Array(calls) if calls.is_empty() => {
            failed(&Value::Null, &Code::Request.because("the batch is empty"))
        }
        Value::Array(calls) if calls.len() > MAX_BATCH => {
            let message = format!("a batch has at most {MAX_BATCH} calls, this one has {}", calls.len());
            failed(&Value::Null, &Code::Request.because(message))
        }
        Value::Array(calls) => {
            let answers: Vec<Value> = calls.into_iter().filter_map(|call| one(call, &mut serve)).collect();
            if answers.is_empty() {
                return None;
            }
            Value::Array(answers)
        }
        call => one(call, &mut serve)?,
    };
    Some(answer.to_string())
}

fn one(said: Value, serve: &mut impl FnMut(&str, Value) -> Result<Value, Failure>) -> Option<Value> {
    // The caller's id, even if the rest is wrong.
    let named = said.get("id").filter(|id| is_id(id)).cloned().unwrap_or(Value::Null);
    let call = match serde_json::from_value::<Call>(said) {
        Ok(call) if call.jsonrpc == "2.0" && call.id.as_ref().is_none_or(is_id) => call,
        Ok(_) => {
            let message = "a request has \"jsonrpc\": \"2.0\" and an id that is a number, a string or null";
            return Some(failed(&named, &Code::Request.because(message)));
        }
        Err(error) => return Some(failed(&named, &Code::Request.because(error.to_string()))),
    };
    let result = serve(&call.method, call.params);
    let id = call.id?;
    Some(match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(failure) => failed(&id, &failure),
    })
}

fn is_id(id: &Value) -> bool {
    matches!(id, Value::Null | Value::Number(_) | Value::String(_))
}

/// The answer to a call that fails.
pub(super) fn failed(id: &Value, failure: &Failure) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": failure })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds; fails for anything else.
    #[expect(clippy::needless_pass_by_value, reason = "the signature is that of servers")]
    fn serve(method: &str, params: Value) -> Result<Value, Failure> {
        match method {
            "add" => {
                Ok(params.as_array().map(|all| all.iter().filter_map(Value::as_i64).sum::<i64>()).into())
            }
            other => Err(Code::Method.because(format!("no method {other}"))),
        }
    }

    fn answered(line: &str) -> Value {
        serde_json::from_str(&answer(line, serve).expect("an answer")).unwrap()
    }

    #[test]
    fn call_has_a_result_with_its_id() {
        for id in [json!(1), json!("a"), json!(null), json!(-1.5)] {
            let call = json!({ "jsonrpc": "2.0", "id": id, "method": "add", "params": [1, 2] });

            assert_eq!(answered(&call.to_string()), json!({ "jsonrpc": "2.0", "id": id, "result": 3 }));
        }
    }

    #[test]
    fn notification_is_carried_out_and_not_answered() {
        let mut served = 0;
        let said = answer("{\"jsonrpc\":\"2.0\",\"method\":\"add\"}", |_, _| {
            served += 1;
            Ok(Value::Null)
        });

        assert_eq!((said, served), (None, 1));
    }

    #[test]
    fn batch_is_answered_together_but_for_notifications() {
        let line = json!([
            { "jsonrpc": "2.0", "id": 1, "method": "add", "params": [1] },
            { "jsonrpc": "2.0", "method": "add", "params": [1] },
            { "jsonrpc": "2.0", "id": 2, "method": "sub" },
            7,
        ]);
        let answers = answered(&line.to_string());

        let codes: Vec<_> =
            answers.as_array().unwrap().iter().map(|one| one["error"]["code"].clone()).collect();
        assert_eq!(codes, [Value::Null, json!(-32601), json!(-32600)]);
        let quiet = json!([{ "jsonrpc": "2.0", "method": "add" }]);
        assert_eq!(answer(&quiet.to_string(), serve), None);
    }

    #[test]
    fn what_is_no_request_is_told_so() {
        let code = |line: &str| answered(line)["error"]["code"].as_i64().unwrap();

        assert_eq!(code("{"), -32700);
        assert_eq!(code("[]"), -32600);
        assert_eq!(code("null"), -32600);
        assert_eq!(code("{\"jsonrpc\":\"1.0\",\"method\":\"add\",\"id\":1}"), -32600);
        assert_eq!(code("{\"jsonrpc\":\"2.0\",\"method\":\"add\",\"id\":{}}"), -32600);
        assert_eq!(code("{\"jsonrpc\":\"2.0\",\"method\":5,\"id\":1}"), -32600);
        assert_eq!(code("{\"jsonrpc\":\"2.0\",\"method\":\"add\",\"id\":1,\"more\":2}"), -32600);
        assert_eq!(answered("{\"jsonrpc\":\"2.0\",\"method\":5,\"id\":\"mine\"}")["id"], "mine");
        let many = Value::Array(vec![json!(1); MAX_BATCH + 1]).to_string();
        assert_eq!(code(&many), -32600);
    }
}
