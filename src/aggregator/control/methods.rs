//! The methods of the control socket: what there is, what each takes, and who carries it out.
//!
//! The table is what `rpc.discover` answers (an OpenRPC document), what docs/control.md is written from, and
//! what a test goes through: a method that is listed is served, and the other way round.

use gpuvmk_control_client::{FailSafeStatus, GuestStatus, Status, TenantStatus};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::rpc::{Code, Failure};
use crate::machine::guests::Guest;
use crate::machine::settings::{DISPLAY, Order};
use crate::service::ServiceRemote;

/// Version of the methods: the first number changes when a caller must.
pub const API_VERSION: &str = "1.0";

/// A parameter of a method.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// JSON Schema of its value, as text.
    pub schema: &'static str,
    /// True if it must be there.
    pub required: bool,
    /// Its description.
    pub doc: &'static str,
}

/// A method of the control socket.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// Its effect.
    pub doc: &'static str,
    /// Its parameters, by name.
    pub parameters: &'static [Parameter],
    /// Its result, in words.
    pub result: &'static str,
}

const VM: Parameter = Parameter {
    name: "vm",
    schema: r#"{"type":"string"}"#,
    required: true,
    doc: "Name of a VM that is connected",
};

const SETTINGS: Parameter = Parameter {
    name: "settings",
    schema: r#"{"type":"array","items":{"type":"string"},"minItems":1}"#,
    required: true,
    doc: "What is to change, key=value each, as `gpuvmk set` takes it; all are made, or none",
};

/// All methods, by name.
pub const METHODS: [Method; 13] = [
    Method {
        name: "gpu.admit",
        doc: "Ends `gpu.drain`: VMs are admitted again.",
        parameters: &[],
        result: "what holds now, as of gpu.set",
    },
    Method {
        name: "gpu.drain",
        doc: "Admits no more VMs; those that are connected go on.",
        parameters: &[],
        result: "what holds now, as of gpu.set",
    },
    Method {
        name: "gpu.set",
        doc: "Changes the scheduling policy and its settings.",
        parameters: &[SETTINGS],
        result: "policy, slice_us, period_us and draining that hold now",
    },
    Method {
        name: "rpc.discover",
        doc: "Describes these methods.",
        parameters: &[],
        result: "an OpenRPC document",
    },
    Method {
        name: "status",
        doc: "Tells the state of the GPU and of all VMs.",
        parameters: &[],
        result: "gpu and tenants, as `gpuvmk status --json` prints them",
    },
    Method {
        name: "version",
        doc: "Tells the versions of the program and of these methods.",
        parameters: &[],
        result: "program and api",
    },
    Method {
        name: "vm.allow",
        doc: "Adds a VM to those that may come, or changes what it may have from its next connection on, where the GPU's file has [[vm]] sections.",
        parameters: &[
            Parameter { name: "name", schema: r#"{"type":"string"}"#, required: true, doc: "Name of the VM" },
            Parameter {
                name: "uid",
                schema: r#"{"type":["integer","null"]}"#,
                required: false,
                doc: "User whose device back end may be it",
            },
            Parameter {
                name: "own_socket",
                schema: r#"{"type":"boolean"}"#,
                required: false,
                doc: "It has a socket of its own, as it had when the aggregator started",
            },
            Parameter {
                name: "vram",
                schema: r#"{"type":"integer"}"#,
                required: true,
                doc: "Most VRAM, in bytes",
            },
            Parameter {
                name: "channels",
                schema: r#"{"type":"integer"}"#,
                required: true,
                doc: "Most channels",
            },
            Parameter {
                name: "share",
                schema: r#"{"type":"array","items":{"type":"string"}}"#,
                required: false,
                doc: "Its part of the GPU's time, key=value each, as `gpuvmk set` takes it",
            },
            Parameter {
                name: "page_tables",
                schema: r#"{"type":["integer","null"]}"#,
                required: false,
                doc: "Most host memory for page tables, in bytes",
            },
            Parameter {
                name: "mappings",
                schema: r#"{"type":["integer","null"]}"#,
                required: false,
                doc: "Most pages mapped",
            },
            Parameter {
                name: "doorbells",
                schema: r#"{"type":["integer","null"]}"#,
                required: false,
                doc: "Most doorbells a second",
            },
            Parameter {
                name: "thread_time",
                schema: r#"{"type":["integer","null"]}"#,
                required: false,
                doc: "Most of the aggregator's thread, in percent",
            },
        ],
        result: "what it may have now",
    },
    Method {
        name: "vm.forbid",
        doc: "Takes a VM off those that may come; if it is connected, it stays until it leaves.",
        parameters: &[Parameter { doc: "Name of a VM that may come", ..VM }],
        result: "vm",
    },
    Method {
        name: "vm.pause",
        doc: "Takes a VM's work off the GPU; what it submits waits until `vm.resume`.",
        parameters: &[VM],
        result: "what holds now, as of vm.set",
    },
    Method {
        name: "vm.reset",
        doc: "Takes a VM's unfinished work off the GPU, as if it had hung, and ends its penalty; its driver is told.",
        parameters: &[VM],
        result: "vm, and how many channels were taken off",
    },
    Method {
        name: "vm.resume",
        doc: "Lets the work of a paused VM go on.",
        parameters: &[VM],
        result: "what holds now, as of vm.set",
    },
    Method {
        name: "vm.set",
        doc: "Changes a VM's part of the GPU, or its monitor.",
        parameters: &[VM, SETTINGS],
        result: "vm, the share that it has now, and whether it is paused",
    },
    Method {
        name: "vm.show",
        doc: "Tells the state of one VM.",
        parameters: &[VM],
        result: "what `status` has of it among its tenants",
    },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfVm {
    vm: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    settings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VmSettings {
    vm: String,
    settings: Vec<String>,
}

/// True if a method changes something.
pub fn changes(method: &str) -> bool {
    !matches!(method, "rpc.discover" | "status" | "version" | "vm.show")
}

/// Carries out a call.
pub fn serve(method: &str, params: Value, remote: &ServiceRemote) -> Result<Value, Failure> {
    match method {
        "gpu.admit" | "gpu.drain" => {
            take::<Nothing>(method, params)?;
            let draining = if method == "gpu.drain" { "draining=yes" } else { "draining=no" };
            set(Order { vm: None, settings: vec![draining.to_owned()] }, remote)
        }
        "gpu.set" => {
            let Settings { settings } = take(method, params)?;
            set(Order { vm: None, settings }, remote)
        }
        "rpc.discover" => take::<Nothing>(method, params).map(|_| description()),
        "status" => {
            take::<Nothing>(method, params)?;
            answer(&status(remote)?)
        }
        "version" => {
            take::<Nothing>(method, params)?;
            Ok(json!({ "program": env!("CARGO_PKG_VERSION"), "api": API_VERSION }))
        }
        "vm.allow" => {
            let wanted: GuestStatus = take(method, params)?;
            let guest = Guest::described(&wanted);
            let guest = guest.map_err(|rejection| Code::Rejected.because(rejection.to_string()))?;
            list(remote, &wanted.name, Some(guest))?;
            answer(&wanted)
        }
        "vm.forbid" => {
            let OfVm { vm } = take(method, params)?;
            list(remote, &vm, None)?;
            Ok(json!({ "vm": vm }))
        }
        "vm.pause" | "vm.resume" => {
            let OfVm { vm } = take(method, params)?;
            let paused = if method == "vm.pause" { "paused=yes" } else { "paused=no" };
            set(Order { vm: Some(vm), settings: vec![paused.to_owned()] }, remote)
        }
        "vm.reset" => {
            let OfVm { vm } = take(method, params)?;
            reset(&vm, remote)
        }
        "vm.set" => {
            let VmSettings { vm, settings } = take(method, params)?;
            set(Order { vm: Some(vm), settings }, remote)
        }
        "vm.show" => {
            let OfVm { vm } = take(method, params)?;
            answer(&show(&vm, remote)?)
        }
        other => {
            let known = METHODS.map(|method| method.name).join(", ");
            Err(Code::Method.because(format!("there is no method {other}; there are {known}")))
        }
    }
}

/// The parameters of a call, by name. None at all are as good as an empty object.
fn take<P: DeserializeOwned>(method: &str, params: Value) -> Result<P, Failure> {
    let params = match params {
        Value::Null => json!({}),
        Value::Array(_) => return Err(Code::Params.because(format!("{method} takes its parameters by name"))),
        params => params,
    };
    serde_json::from_value(params).map_err(|error| {
        let known = METHODS.iter().find(|known| known.name == method);
        let names: Vec<_> = known.into_iter().flat_map(|known| known.parameters).map(|p| p.name).collect();
        let takes = if names.is_empty() { "no parameters".to_owned() } else { names.join(", ") };
        Code::Params.because(format!("{error}; {method} takes {takes}, by name"))
    })
}

fn answer(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| Code::Internal.because(error.to_string()))
}

fn status(remote: &ServiceRemote) -> Result<Status, Failure> {
    remote.status().ok_or_else(silent)
}

fn show(vm: &str, remote: &ServiceRemote) -> Result<TenantStatus, Failure> {
    let tenants = status(remote)?.tenants;
    let names: Vec<_> = tenants.iter().map(|tenant| tenant.name.clone()).collect();
    let found = tenants.into_iter().find(|tenant| tenant.name == vm);
    found.ok_or_else(|| Failure {
        data: Some(json!({ "connected": names })),
        ..Code::NoVm.because(format!("no VM named {vm} is connected; {}", present(&names)))
    })
}

fn present(names: &[String]) -> String {
    if names.is_empty() { "none is".to_owned() } else { format!("there are {}", names.join(", ")) }
}

fn set(order: Order, remote: &ServiceRemote) -> Result<Value, Failure> {
    // A missing VM is reported first, and has its own code.
    if let Some(vm) = &order.vm {
        let state = show(vm, remote)?;
        let is_monitor = |setting: &String| setting.split('=').next() == Some(DISPLAY);
        if order.settings.iter().any(is_monitor) && state.driver.face.heads == 0 {
            return Err(Code::Rejected.because(format!(
                "{vm} has no display: its file must say one before its back end starts, such as display = \"1280x800\""
            )));
        }
    }
    let in_force = remote.set(order).ok_or_else(silent)?;
    let in_force = in_force.map_err(|rejection| Code::Rejected.because(rejection.to_string()))?;
    answer(&in_force)
}

/// Changes who may come.
fn list(remote: &ServiceRemote, name: &str, guest: Option<Guest>) -> Result<(), Failure> {
    let done = remote.list(name, guest).ok_or_else(silent)?;
    done.map_err(|rejection| Code::Rejected.because(rejection.to_string()))
}

fn reset(vm: &str, remote: &ServiceRemote) -> Result<Value, Failure> {
    let state = show(vm, remote)?;
    if let Some(FailSafeStatus { reason, .. }) = &state.fail_safe {
        return Err(Code::Rejected.because(format!(
            "{vm} is in fail-safe state ({reason}) and has nothing on the GPU; it ends when its guest resets the GPU: reset \
             or restart the guest (system_reset in QEMU's monitor)"
        )));
    }
    let done = remote.reset_vm(vm).ok_or_else(silent)?;
    let done = done.map_err(|rejection| Code::Rejected.because(rejection.to_string()))?;
    answer(&done)
}

fn silent() -> Failure {
    Code::Internal.because("the aggregator does not answer")
}

/// The OpenRPC document (open-rpc.org, version 1.2.6).
pub fn description() -> Value {
    let schema = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(Value::Bool(true));
    let methods: Vec<_> = METHODS
        .iter()
        .map(|method| {
            let parameters: Vec<_> = method
                .parameters
                .iter()
                .map(|parameter| {
                    json!({
                        "name": parameter.name, "description": parameter.doc, "required": parameter.required,
                        "schema": schema(parameter.schema),
                    })
                })
                .collect();
            json!({
                "name": method.name, "description": method.doc, "paramStructure": "by-name", "params": parameters,
                "result": { "name": method.result, "schema": true },
            })
        })
        .collect();
    let errors: Vec<_> =
        Code::ALL.iter().map(|(code, meaning)| json!({ "code": *code as i32, "message": meaning })).collect();
    json!({
        "openrpc": "1.2.6",
        "info": { "title": "gpuvmk aggregator", "version": API_VERSION },
        "methods": methods,
        "components": { "errors": errors },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_and_its_schemas_are_json() {
        assert!(METHODS.is_sorted_by_key(|method| method.name));
        for parameter in METHODS.iter().flat_map(|method| method.parameters) {
            assert!(serde_json::from_str::<Value>(parameter.schema).is_ok(), "{}", parameter.name);
        }
    }

    #[test]
    fn description_has_every_method_and_code() {
        let description = description();

        assert_eq!(description["methods"].as_array().unwrap().len(), METHODS.len());
        assert_eq!(description["components"]["errors"].as_array().unwrap().len(), Code::ALL.len());
        assert_eq!(description["methods"][6]["params"][0]["schema"]["type"], "string");
    }
}
