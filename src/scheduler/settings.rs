//! Settings of a whole GPU that operators may change while VMs work: `policy=weighted`, `slice=2000`,
//! `period=none` (us). [`super::share`] has the settings of a VM.

use std::str::FromStr;
use std::time::Duration;

use super::policy::PolicyKind;
use super::share::Rejection;

/// Shortest and longest turn that can be set, in microseconds: below, switching eats the GPU.
pub const SLICE_RANGE: (u64, u64) = (100, 1_000_000);
/// Shortest and longest period of credit, in microseconds.
pub const PERIOD_RANGE: (u64, u64) = (1000, 10_000_000);

/// An operator's settings for all VMs; `None` is the policy's own rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Length of a turn.
    pub slice: Option<Duration>,
    /// How often credit is renewed.
    pub period: Option<Duration>,
}

/// A change of one setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuSetting {
    /// `policy`
    Policy(PolicyKind),
    /// `slice`
    Slice(Option<Duration>),
    /// `period`
    Period(Option<Duration>),
}

impl GpuSetting {
    /// The policy and its settings with this setting fulfilled.
    pub fn apply(self, (kind, settings): (PolicyKind, Settings)) -> (PolicyKind, Settings) {
        match self {
            Self::Policy(kind) => (kind, settings),
            Self::Slice(slice) => (kind, Settings { slice, ..settings }),
            Self::Period(period) => (kind, Settings { period, ..settings }),
        }
    }
}

impl FromStr for GpuSetting {
    type Err = Rejection;

    fn from_str(text: &str) -> Result<Self, Rejection> {
        let bad = || {
            Rejection(format!(
                "`{text}` is no setting of a GPU; allowed are policy={}, slice={}..{} or none (us), period={}..{} or none (us)",
                PolicyKind::allowed().replace('"', ""),
                SLICE_RANGE.0,
                SLICE_RANGE.1,
                PERIOD_RANGE.0,
                PERIOD_RANGE.1,
            ))
        };
        let (key, value) = text.split_once('=').ok_or_else(bad)?;
        let micros = |(least, most): (u64, u64)| match value {
            "none" => Ok(None),
            number => match number.parse() {
                Ok(us) if (least..=most).contains(&us) => Ok(Some(Duration::from_micros(us))),
                _ => Err(bad()),
            },
        };
        match key {
            "policy" => {
                let found = PolicyKind::ALL.iter().find(|(name, _)| *name == value);
                found.map(|(_, kind)| Self::Policy(*kind)).ok_or_else(bad)
            }
            "slice" => micros(SLICE_RANGE).map(Self::Slice),
            "period" => micros(PERIOD_RANGE).map(Self::Period),
            _ => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_as_operators_write_them() {
        assert_eq!("policy=best-effort".parse(), Ok(GpuSetting::Policy(PolicyKind::BestEffort)));
        assert_eq!("slice=2000".parse(), Ok(GpuSetting::Slice(Some(Duration::from_millis(2)))));
        assert_eq!("period=none".parse(), Ok(GpuSetting::Period(None)));
        for wrong in ["", "policy", "policy=fair", "slice=1", "slice=2ms", "period=999", "weight=3"] {
            let error = wrong.parse::<GpuSetting>().unwrap_err();
            assert!(error.0.contains("policy=fifo, best-effort"), "{error}");
        }
    }

    #[test]
    fn setting_changes_its_own_value_only() {
        let settings = Settings { slice: None, period: Some(Duration::from_millis(30)) };
        let slice = Some(Duration::from_millis(4));
        assert_eq!(
            GpuSetting::Slice(slice).apply((PolicyKind::Fifo, settings)),
            (PolicyKind::Fifo, Settings { slice, ..settings })
        );
    }
}
