//! One guest's result, as JSON has it.

use gpuvmk_companion::GuestDriver;
use gpuvmk_control_client::TenantStatus;
use serde_json::{Map, Value, json};

use super::Options;
use super::plan::VULKAN;
use super::seen::Seen;
use crate::verdict::{self, Verdict};

/// One guest's result.
#[derive(Debug)]
pub(super) struct VmResult {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    pub(super) tenant: Option<TenantStatus>,
    /// What its monitor showed, where it has a head.
    pub(super) seen: Option<Seen>,
}

impl VmResult {
    /// All of it, with what Vulkan or NVIDIA's programs found, where they ran.
    pub(super) fn json(&self, options: &Options, programs: &[&str], kernel: &str) -> Value {
        let mut vm = self.common(programs, kernel);
        if let Some(seen) = &self.seen {
            vm.insert("screenshot".into(), seen.json());
        }
        match options.driver {
            GuestDriver::Nouveau => {
                vm.insert("nouveau".into(), self.figure("probe", "nouveau"));
                if options.vulkan {
                    let names = ["device", "version", "vulkan", "pci", "list_ms", "open_ms", "checks"];
                    vm.insert("vulkan".into(), self.program(verdict::program_of(VULKAN), &names));
                }
            }
            GuestDriver::Nvidia => {
                vm.insert("driver".into(), self.nvidia_version().into());
                vm.insert("nvidia_smi".into(), self.program("smi", &["list", "page"]));
                let names = ["device", "capability", "cuda", "memory", "init_ms", "checks"];
                vm.insert("cuda".into(), self.program("cuda", &names));
            }
        }
        vm.into()
    }

    /// The page that `nvidia-smi` shows, where it ran.
    pub(super) fn nvidia_page(&self) -> Vec<String> {
        lines(&self.figure("smi", "page"))
    }

    fn common(&self, programs: &[&str], kernel: &str) -> Map<String, Value> {
        let verdict = &self.verdict;
        let mut checks = Map::new();
        for &program in programs {
            let program = verdict::program_of(program);
            let passed = verdict.result(program, 0).is_some_and(|result| result.ok);
            checks.insert(program.to_owned(), passed.into());
        }
        // The kernel's own log counts as a check of its own.
        let quiet = !verdict.problems.iter().any(|problem| problem.starts_with("unexplained"));
        checks.insert("kernel_log".to_owned(), quiet.into());
        let vm = json!({
            "name": self.name,
            "kernel": kernel,
            "checks": checks,
            "probe_ms": self.figure("probe", "probe_ms"),
            "submit_us_p50": self.figure("fence", "submit_us_p50"),
            "foreign_accesses": self.tenant.as_ref().and_then(|tenant| tenant.foreign_accesses),
        });
        let Value::Object(vm) = vm else { return Map::new() };
        vm
    }

    fn figure(&self, program: &str, name: &str) -> Value {
        let result = self.verdict.result(program, 0);
        result.and_then(|result| result.figures.get(name)).cloned().unwrap_or(Value::Null)
    }

    /// Figures of a program, as it told them.
    fn program(&self, program: &str, names: &[&str]) -> Value {
        let Some(result) = self.verdict.result(program, 0) else { return json!({ "ok": false }) };
        let mut told = Map::from_iter([("ok".to_owned(), Value::from(result.ok))]);
        told.extend(names.iter().map(|name| ((*name).to_owned(), self.figure(program, name))));
        told.into()
    }

    /// The driver's version, as `nvidia-smi -q` has it.
    fn nvidia_version(&self) -> Option<String> {
        lines(&self.figure("smi", "query")).iter().find_map(|line| {
            let (name, version) = line.split_once(':')?;
            (name.trim() == "Driver Version").then(|| version.trim().to_owned())
        })
    }
}

fn lines(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{ProgramResult, Report};

    fn result(line: &str) -> ProgramResult {
        match Report::parse(&format!("GPUVMK-JSON {line}")) {
            Some(Report::Result(result)) => result,
            other => panic!("{other:?}"),
        }
    }

    fn options(driver: GuestDriver, vulkan: bool) -> Options {
        let gpuvmk = "/bin/false".into();
        Options { gpuvmk, vms: 2, driver, chip: None, kernel: None, vulkan, display: false, keep: false }
    }

    fn vm(problems: &[&str], results: &[&str]) -> VmResult {
        let problems = problems.iter().map(|&problem| problem.to_owned()).collect();
        let verdict = Verdict { problems, results: results.iter().map(|line| result(line)).collect() };
        let tenant: TenantStatus = serde_json::from_str(r#"{"name":"vm1","foreign_accesses":0}"#).unwrap();
        VmResult { name: "vm1".into(), verdict, tenant: Some(tenant), seen: None }
    }

    #[test]
    fn vm_result_has_the_promised_keys() {
        let vm = vm(
            &["unexplained: nouveau: something failed"],
            &[
                r#"{"prog":"probe","ok":true,"nouveau":"1.4.0","probe_ms":1900.5}"#,
                r#"{"prog":"fence","ok":true,"submit_us_p50":82.0}"#,
                r#"{"prog":"copy","ok":false}"#,
            ],
        );
        let programs = ["probe", "copy", "fence", "evict"];
        let json = vm.json(&options(GuestDriver::Nouveau, false), &programs, "6.12.1");
        assert_eq!((&json["probe_ms"], &json["submit_us_p50"]), (&1900.5.into(), &82.0.into()));
        assert_eq!((&json["nouveau"], &json["kernel"]), (&"1.4.0".into(), &"6.12.1".into()));
        assert_eq!(json["foreign_accesses"], 0);
        let checks =
            json!({"probe": true, "copy": false, "fence": true, "evict": false, "kernel_log": false});
        assert_eq!(json["checks"], checks, "a check without a result has not passed");
        assert!(json.get("vulkan").is_none() && json.get("cuda").is_none());
    }

    #[test]
    fn what_vulkan_did_is_told_beside_the_checks() {
        let found =
            vm(&[], &[r#"{"prog":"nvk","ok":true,"device":"GeForce (NVK AD104)","vulkan":"1.4.305"}"#]);
        let json = found.json(&options(GuestDriver::Nouveau, true), &[VULKAN], "6.12.1");
        let vulkan = &json["vulkan"];
        assert_eq!((&vulkan["ok"], &vulkan["vulkan"]), (&true.into(), &"1.4.305".into()));
        assert_eq!(vulkan["device"], "GeForce (NVK AD104)");
        assert_eq!(json["checks"]["nvk"], true);
        let none = vm(&[], &[]).json(&options(GuestDriver::Nouveau, true), &[VULKAN], "6.12.1");
        assert_eq!(none["vulkan"], json!({ "ok": false }));
    }

    #[test]
    fn what_nvidias_programs_did_is_told_beside_the_checks() {
        let query = r#""query":["====NVSMI LOG====","Driver Version            : 550.163.01"]"#;
        let smi = format!(r#"{{"prog":"smi","ok":true,"list":["GPU 0: a"],"page":["+--+","| 0|"],{query}}}"#);
        let cuda = r#"{"prog":"cuda","ok":false,"device":"a","checks":{"copy":{"ok":false}}}"#;
        let vm = vm(&[], &[&smi, cuda]);
        let json = vm.json(&options(GuestDriver::Nvidia, false), &["smi", "cuda"], "6.12.1");
        assert_eq!(json["driver"], "550.163.01");
        assert_eq!(json["nvidia_smi"], json!({"ok": true, "list": ["GPU 0: a"], "page": ["+--+", "| 0|"]}));
        assert_eq!(
            (&json["cuda"]["ok"], &json["cuda"]["checks"]["copy"]["ok"]),
            (&false.into(), &false.into())
        );
        assert_eq!(json["checks"], json!({"smi": true, "cuda": false, "kernel_log": true}));
        assert_eq!(vm.nvidia_page(), ["+--+", "| 0|"]);
    }
}
