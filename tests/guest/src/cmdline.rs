//! The words of the kernel command line that are for `/init`, all of the form `gpuvmk.NAME=VALUE`.
//!
//! A name with a dot is taken by the kernel for a module's option that it does not know, and is left alone:
//! it neither warns nor hands it to `/init` as an argument.

/// What `/init` is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Programs to run, in order, each with its arguments: `copy`, `load:secs=5`.
    pub programs: Vec<String>,
    /// nouveau's options.
    pub nouveau_options: Vec<String>,
    /// The serial port for reports; the console if none is named.
    pub report: Option<String>,
    /// Seconds that a program may run.
    pub limit_s: u64,
    /// How often to reboot before powering off.
    pub reboots: u8,
    /// Whether nouveau stays unloaded until a program wants it.
    pub bare: bool,
    /// The block device to have as root instead of the initramfs.
    pub root: Option<String>,
}

impl Plan {
    /// Reads the plan from the kernel command line.
    pub fn parse(line: &str) -> Self {
        let value = |name: &str| {
            let words = line.split_whitespace();
            words
                .filter_map(|word| word.strip_prefix("gpuvmk.")?.strip_prefix(name)?.strip_prefix('='))
                .next_back()
        };
        let list = |name: &str| -> Vec<String> {
            value(name)
                .unwrap_or_default()
                .split('+')
                .filter(|item| !item.is_empty())
                .map(str::to_owned)
                .collect()
        };
        Self {
            programs: list("run"),
            nouveau_options: list("opts"),
            report: value("report").map(str::to_owned),
            limit_s: value("limit").and_then(|text| text.parse().ok()).unwrap_or(120),
            reboots: value("reboots").and_then(|text| text.parse().ok()).unwrap_or(0),
            bare: value("bare") == Some("1"),
            root: value("root").map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_is_read_from_the_prefixed_words_only() {
        let plan = Plan::parse(
            "console=ttyS0 run=other gpuvmk.run=probe+copy gpuvmk.opts=config=NvMSI=0+debug=info gpuvmk.report=ttyS1 \
             gpuvmk.limit=9 gpuvmk.reboots=1 gpuvmk.bare=1 gpuvmk.root=/dev/vda\n",
        );
        assert_eq!(plan.programs, ["probe", "copy"]);
        assert_eq!(plan.nouveau_options, ["config=NvMSI=0", "debug=info"]);
        assert_eq!(plan.report.as_deref(), Some("ttyS1"));
        assert_eq!((plan.limit_s, plan.reboots, plan.bare), (9, 1, true));
        assert_eq!(plan.root.as_deref(), Some("/dev/vda"));
    }

    #[test]
    fn missing_words_leave_the_defaults() {
        let plan = Plan::parse("console=ttyS0");
        assert_eq!(plan.programs, Vec::<String>::new());
        assert_eq!(
            (plan.limit_s, plan.reboots, plan.report, plan.bare, plan.root),
            (120, 0, None, false, None)
        );
    }
}
