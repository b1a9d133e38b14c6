//! The control socket: its methods, and clients that misbehave.

use super::*;

#[test]
fn control_socket_answers_every_method() {
    use std::io::{BufRead, BufReader, Write};

    use serde_json::Value;
    let setup = Setup::new();
    let (_link, _grant) = setup.join("vm1");
    let stream = UnixStream::connect(setup.folder.path().join("control")).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut ask = |method: &str, params: Value| {
        let call = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        writeln!(&stream, "{call}").unwrap();
        let mut answer = String::new();
        reader.read_line(&mut answer).unwrap();
        let mut answer = serde_json::from_str::<Value>(&answer).unwrap();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)));
        let error = answer["error"].take();
        answer.get_mut("result").map_or(error, Value::take)
    };

    let status = ask("status", json!({}));
    assert_eq!(ask("vm.show", json!({ "vm": "vm1" }))["vram"], 64 * MIB);
    assert_eq!(ask("vm.show", json!({ "vm": "vm2" }))["data"], json!({ "connected": ["vm1"] }));
    assert_eq!(ask("vm.set", json!({ "vm": "vm1", "settings": ["weight=300"] }))["share"]["weight"], 300);
    assert_eq!(ask("vm.set", json!({ "vm": "vm1", "settings": ["weight=0"] }))["code"], -32002);
    let no_head = ask("vm.set", json!({ "vm": "vm1", "settings": ["weight=5", "display=1024x768"] }));
    assert!(no_head["message"].as_str().unwrap().starts_with("vm1 has no display: "), "{no_head}");
    assert_eq!(ask("vm.show", json!({ "vm": "vm1" }))["share"]["weight"], 300);
    assert_eq!(ask("gpu.set", json!({ "settings": ["policy=weighted"] }))["policy"], "weighted");
    assert_eq!(ask("version", Value::Null)["api"], methods::API_VERSION);
    assert_eq!(ask("rpc.discover", json!({})), methods::description());
    assert_eq!(ask("status", json!({ "vm": "vm1" }))["code"], -32602);
    assert!(ask("reboot", json!({}))["message"].as_str().unwrap().contains("vm.show"));

    assert_eq!(status["gpu"]["chip"], "GF100");
    assert_eq!(status["gpu"]["backend"], "fake");
    assert_eq!(status["gpu"]["policy"], "fifo");
    assert_eq!(status["tenants"][0]["name"], "vm1");
    assert_eq!(status["tenants"][0]["vram"], 64 * MIB);
}

#[test]
fn every_method_that_is_described_is_served() {
    let setup = Setup::new();
    let remote = setup.service().remote();

    for method in methods::METHODS {
        let failure = methods::serve(method.name, json!({ "nonsense": 1 }), &remote).unwrap_err();
        assert_eq!(failure.code, rpc::Code::Params as i32, "{}: {failure:?}", method.name);
    }
}

#[test]
fn endless_control_line_ends_the_connection() {
    use std::io::{Read, Write};
    let setup = Setup::new();
    let mut stream = UnixStream::connect(setup.folder.path().join("control")).unwrap();

    let _ = stream.write_all(&[b'x'; 8192]);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);

    assert!(rest.is_empty());
    assert!(setup.service().status().is_some());
}
