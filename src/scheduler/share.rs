//! The share that an operator granted a VM: parameters for policies. Each policy reads those that it knows.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The largest weight that is allowed.
pub const MAX_WEIGHT: u32 = 10_000;
/// Longest period of a reservation.
pub const MAX_PERIOD: Duration = Duration::from_secs(1);
/// Shortest: a GPU that preempts between methods cannot keep shorter promises.
pub const MIN_PERIOD: Duration = Duration::from_millis(1);

/// A VM's part of the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Weight among those who want more than there is; 100 is usual (`weighted`, `credit`, `band`).
    pub weight: u32,
    /// Most of an engine's time, in percent, also while others idle (`weighted`).
    pub cap: Option<u8>,
    /// Part of the GPU in percent (`fixed-share`); `None`: as large as the VM's part of the VRAM.
    pub fixed: Option<u8>,
    /// Reservation: how often the budget is renewed (`deadline`).
    pub period: Duration,
    /// Reservation: engine time in each period; zero reserves nothing.
    pub budget: Duration,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            weight: 100,
            cap: None,
            fixed: None,
            period: Duration::from_millis(20),
            budget: Duration::ZERO,
        }
    }
}

/// Why parameters, or their sum, are refused; in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Rejection(pub String);

impl Share {
    /// Checks what does not depend on other VMs.
    ///
    /// # Errors
    /// A value is out of its range.
    pub fn check(&self) -> Result<(), Rejection> {
        let percent = |key: &str, value: Option<u8>| match value {
            Some(value) if !(1..=100).contains(&value) => {
                Err(Rejection(format!("{key} {value} is not 1 to 100 percent")))
            }
            _ => Ok(()),
        };
        if !(1..=MAX_WEIGHT).contains(&self.weight) {
            return Err(Rejection(format!("weight {} is not 1 to {MAX_WEIGHT}", self.weight)));
        }
        percent("cap", self.cap)?;
        percent("fixed", self.fixed)?;
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&self.period) {
            return Err(Rejection(format!(
                "a period of {} us is not {} to {} us",
                self.period.as_micros(),
                MIN_PERIOD.as_micros(),
                MAX_PERIOD.as_micros()
            )));
        }
        if self.budget > self.period {
            return Err(Rejection(format!(
                "a budget of {} us is more than its period of {} us",
                self.budget.as_micros(),
                self.period.as_micros()
            )));
        }
        Ok(())
    }

    /// The share of a VM that was granted this and asks for `asked`. A parameter that has its default in
    /// `asked` counts as not asked for, and is as granted.
    ///
    /// # Errors
    /// It asks for more. The text ends so that the owner of the limit can be appended.
    pub fn within(self, asked: Self) -> Result<Self, Rejection> {
        let usual = Self::default();
        let more = |key: &str, asked: u128, most: u128| {
            Rejection(format!("{key} {asked} is asked for, more than the {most}"))
        };
        let percent = |key: &str, asked: Option<u8>, most: Option<u8>| match (asked, most) {
            (Some(asked), Some(most)) if asked > most => Err(more(key, asked.into(), most.into())),
            (asked, most) => Ok(asked.or(most)),
        };
        let weight = if asked.weight == usual.weight { self.weight } else { asked.weight };
        if weight > self.weight {
            return Err(more("weight", weight.into(), self.weight.into()));
        }
        let (period, budget) = if asked.budget.is_zero() {
            (self.period, self.budget)
        } else if asked.budget > self.budget {
            return Err(more("budget", asked.budget.as_micros(), self.budget.as_micros()));
        } else if asked.period < self.period {
            return Err(Rejection(format!(
                "period {} is asked for, shorter than the {}",
                asked.period.as_micros(),
                self.period.as_micros()
            )));
        } else {
            (asked.period, asked.budget)
        };
        Ok(Self {
            weight,
            cap: percent("cap", asked.cap, self.cap)?,
            fixed: percent("fixed", asked.fixed, self.fixed)?,
            period,
            budget,
        })
    }

    /// The same with one more setting fulfilled.
    pub fn with(self, setting: ShareSetting) -> Self {
        match setting {
            ShareSetting::Weight(weight) => Self { weight, ..self },
            ShareSetting::Cap(cap) => Self { cap, ..self },
            ShareSetting::Fixed(fixed) => Self { fixed, ..self },
            ShareSetting::Period(period) => Self { period, ..self },
            ShareSetting::Budget(budget) => Self { budget, ..self },
        }
    }
}

/// One change of a VM's parameters, as operators write it: `weight=200`, `cap=50`, `cap=none`, `budget=2000`
/// (us).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareSetting {
    /// `weight`
    Weight(u32),
    /// `cap`
    Cap(Option<u8>),
    /// `fixed`
    Fixed(Option<u8>),
    /// `period`
    Period(Duration),
    /// `budget`
    Budget(Duration),
}

/// Keys of a VM that can be changed, with what they take.
pub const WISHES: &str = "weight=1..10000, cap=1..100 or none (percent), fixed=1..100 or none (percent), \
                          period=1000..1000000 (us), budget=0..period (us)";

impl FromStr for ShareSetting {
    type Err = Rejection;

    fn from_str(text: &str) -> Result<Self, Rejection> {
        let bad = || Rejection(format!("`{text}` is no setting of a VM; allowed are {WISHES}"));
        let (key, value) = text.split_once('=').ok_or_else(bad)?;
        let percent = || match value {
            "none" => Ok(None),
            number => number.parse().map(Some).map_err(|_| bad()),
        };
        let micros = || value.parse().map(Duration::from_micros).map_err(|_| bad());
        match key {
            "weight" => value.parse().map(Self::Weight).map_err(|_| bad()),
            "cap" => percent().map(Self::Cap),
            "fixed" => percent().map(Self::Fixed),
            "period" => micros().map(Self::Period),
            "budget" => micros().map(Self::Budget),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |value: Option<u8>| value.map_or("none".to_owned(), |value| value.to_string());
        write!(
            f,
            "weight={} cap={} fixed={} period={} budget={}",
            self.weight,
            percent(self.cap),
            percent(self.fixed),
            self.period.as_micros(),
            self.budget.as_micros()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_as_operators_write_them() {
        assert_eq!("weight=200".parse(), Ok(ShareSetting::Weight(200)));
        assert_eq!("cap=none".parse(), Ok(ShareSetting::Cap(None)));
        assert_eq!("fixed=25".parse(), Ok(ShareSetting::Fixed(Some(25))));
        assert_eq!("budget=2500".parse(), Ok(ShareSetting::Budget(Duration::from_micros(2500))));
        for wrong in ["", "weight", "weight=", "weight=-1", "wait=3", "cap=300", "weight=1 cap=2"] {
            let error = wrong.parse::<ShareSetting>().unwrap_err();
            assert!(error.0.contains("weight=1..10000"), "{error}");
        }
    }

    #[test]
    fn grant_can_be_lowered_and_not_raised() {
        let share = |settings: &str| {
            settings
                .split_whitespace()
                .fold(Share::default(), |share, setting| share.with(setting.parse().unwrap()))
        };
        let granted = share("weight=300 cap=50 fixed=25 period=10000 budget=2000");

        assert_eq!(granted.within(Share::default()), Ok(granted), "who says nothing gets what is granted");
        let less = share("weight=200 cap=40 fixed=20 period=20000 budget=1000");
        assert_eq!(granted.within(less), Ok(less));
        for (asked, said) in [
            ("weight=301", "weight 301 is asked for, more than the 300"),
            ("cap=51", "cap 51 is asked for, more than the 50"),
            ("fixed=26", "fixed 26 is asked for, more than the 25"),
            ("budget=2001", "budget 2001 is asked for, more than the 2000"),
            ("period=5000 budget=2000", "period 5000 is asked for, shorter than the 10000"),
        ] {
            assert_eq!(granted.within(share(asked)), Err(Rejection(said.to_owned())), "{asked}");
        }
        assert!(Share::default().within(share("budget=1")).is_err(), "reservations are granted only");
    }

    #[test]
    fn values_out_of_range_are_named() {
        let wrong = |setting: &str| Share::default().with(setting.parse().unwrap()).check().unwrap_err().0;
        assert_eq!(wrong("weight=0"), "weight 0 is not 1 to 10000");
        assert_eq!(wrong("cap=0"), "cap 0 is not 1 to 100 percent");
        assert_eq!(wrong("fixed=101"), "fixed 101 is not 1 to 100 percent");
        assert_eq!(wrong("period=10"), "a period of 10 us is not 1000 to 1000000 us");
        assert_eq!(wrong("budget=20001"), "a budget of 20001 us is more than its period of 20000 us");
        assert_eq!(Share::default().check(), Ok(()));
    }
}
