//! What is declared of a counter.

/// Whether a number only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It grows, from 0 at the start of its process or of what it belongs to.
    Counter,
    /// It is what is so now.
    Gauge,
}

/// What a number is a number of, in its struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Of things or of times that something happened.
    Number,
    /// 1 if something is so, else 0.
    Flag,
    /// A part of 1.
    Ratio,
    /// A number of bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// Thousandths of a second.
    Millis,
    /// Millionths of a second.
    Micros,
    /// Billionths of a second.
    Nanos,
}

impl Unit {
    /// The base unit that metrics have it in, where it has one: `bytes` or `seconds`.
    pub const fn base(self) -> Option<&'static str> {
        match self {
            Self::Bytes => Some("bytes"),
            Self::Millis | Self::Micros | Self::Nanos => Some("seconds"),
            Self::Number | Self::Flag | Self::Ratio | Self::BytesPerSecond => None,
        }
    }

    /// So much of it, in the base unit.
    pub fn in_base(self, value: f64) -> f64 {
        match self {
            Self::Millis => value / 1e3,
            Self::Micros => value / 1e6,
            Self::Nanos => value / 1e9,
            Self::Number | Self::Flag | Self::Ratio | Self::Bytes | Self::BytesPerSecond => value,
        }
    }

    /// What it is called in a document.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Flag => "yes or no",
            Self::Ratio => "part of 1",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes/s",
            Self::Millis => "ms",
            Self::Micros => "us",
            Self::Nanos => "ns",
        }
    }
}

/// Who sees a counter besides readers of its struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    /// Monitoring, as a metric.
    Metric {
        /// Its name, without what the places above it put before it, and without its unit.
        name: &'static str,
        /// A label by which counters that are one metric are told apart.
        label: Option<(&'static str, &'static str)>,
        /// What such counters are together.
        help: Option<&'static str>,
    },
    /// Nobody else, for this reason.
    Nobody(&'static str),
}

/// A counter, apart from its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its field, which is its key where the struct is written as JSON.
    pub field: &'static str,
    /// Whether it only grows.
    pub kind: Kind,
    /// What it is a number of.
    pub unit: Unit,
    /// Who sees it.
    pub export: Export,
    /// The lines of its documentation.
    pub doc: &'static [&'static str],
}

impl Counter {
    /// What it is: the first paragraph of its documentation, without the last full stop.
    pub fn help(&self) -> String {
        let lines = self.doc.iter().map(|line| line.trim()).take_while(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join(" ").trim_end_matches('.').to_owned()
    }

    /// A value of it, in the base unit of its [`Unit`].
    pub fn in_base(&self, value: f64) -> f64 {
        self.unit.in_base(value)
    }
}

/// Declares a struct whose fields are counters, and has it [`Counted`](crate::Counted).
///
/// After each field stands what it is, in parentheses:
///
/// * `counter` or `gauge`, the [`Unit`], and the metric's name; then, for counters that are one metric, the
///   label by which they differ, `{ "key": "value" }`, and once what they are together. For a counter that is
///   no metric, `only` and the reason stand instead of the name.
/// * `part "prefix"`: a counted struct, whose metrics' names begin with `prefix`; what it is as a whole may
///   follow, and is the help of its counters then. `flat`: the same where its fields are written among this
///   struct's.
/// * `each "label" "prefix"`: a [`Group`](crate::Group) of them, told apart by a label.
/// * `fact`: no counter.
///
/// Documentation is the help. With `kept as Name` after the struct's name, a struct of that name is made too,
/// which many threads may count in ([`Kept`](crate::Kept)); all fields are `u64` then. That struct may have
/// more fields, in braces after `with`. With `sent as numbers`, where all fields are `u64` too, the struct
/// goes between processes as its fields' values in their order (`numbers` and `from_numbers`). Both are
/// displayed as `field=value`, without those that are 0.
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $name:ident kept as $kept:ident $(with { $($more:tt)+ })? {
            $( $(#[doc = $doc:literal])+ pub $field:ident: u64 = $clause:tt, )+
        }
    ) => {
        $crate::counters! {
            $(#[$meta])*
            pub struct $name {
                $( $(#[doc = $doc])+ pub $field: u64 = $clause, )+
            }
        }

        #[doc = concat!("[`", stringify!($name), "`], as they are kept.")]
        #[derive(Debug, Default)]
        pub struct $kept {
            $( $(#[doc = $doc])+ pub $field: $crate::Kept, )+
            $($($more)+)?
        }

        impl $kept {
            /// All of them now.
            pub fn read(&self) -> $name {
                $name { $( $field: self.$field.get(), )+ }
            }
        }

        $crate::counters!(@display $name $($field)+);
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident sent as numbers {
            $( $(#[doc = $doc:literal])+ pub $field:ident: u64 = $clause:tt, )+
        }
    ) => {
        $crate::counters! {
            $(#[$meta])*
            pub struct $name {
                $( $(#[doc = $doc])+ pub $field: u64 = $clause, )+
            }
        }

        impl $name {
            /// How many counts there are.
            pub const NUMBERS: usize = [$(stringify!($field)),+].len();

            /// All counts, in the order of their fields.
            pub const fn numbers(&self) -> [u64; Self::NUMBERS] {
                [$(self.$field),+]
            }

            /// What [`Self::numbers`] said.
            pub const fn from_numbers(numbers: [u64; Self::NUMBERS]) -> Self {
                let [$($field),+] = numbers;
                Self { $($field),+ }
            }
        }

        $crate::counters!(@display $name $($field)+);
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[doc = $doc:literal])+ $(#[serde $serde:tt])* pub $field:ident: $type:ty = $clause:tt, )+
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $( $(#[doc = $doc])+ $(#[serde $serde])* pub $field: $type, )+
        }

        impl $crate::Counted for $name {
            fn walk(this: Option<&Self>, at: &$crate::Place, visit: &mut $crate::Visit<'_>) {
                $( $crate::counters!(@walk $clause $field [$($doc),+] (this at visit)); )+
            }
        }
    };
    (@display $name:ident $($field:ident)+) => {
        /// `name=count`, for those that are not 0.
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let all = [$((stringify!($field), self.$field),)+];
                let mut separator = "";
                for (name, count) in all.into_iter().filter(|(_, count)| *count != 0) {
                    write!(f, "{separator}{name}={count}")?;
                    separator = " ";
                }
                Ok(())
            }
        }
    };
    (@walk (fact) $field:ident $doc:tt $walk:tt) => {};
    (@walk (flat) $field:ident $doc:tt ($this:ident $at:ident $visit:ident)) => {
        $crate::Counted::walk($this.map(|this| &this.$field), $at, $visit);
    };
    (@walk (part $prefix:literal) $field:ident $doc:tt ($this:ident $at:ident $visit:ident)) => {
        let part = $at.part(stringify!($field), $prefix);
        $crate::Counted::walk($this.map(|this| &this.$field), &part, $visit);
    };
    (@walk (part $prefix:literal $about:literal) $field:ident $doc:tt ($this:ident $at:ident $visit:ident)) => {
        let part = $at.part(stringify!($field), $prefix).about($about);
        $crate::Counted::walk($this.map(|this| &this.$field), &part, $visit);
    };
    (@walk (each $label:literal $prefix:literal) $field:ident $doc:tt ($this:ident $at:ident $visit:ident)) => {
        let part = $at.part(concat!(stringify!($field), "[]"), $prefix);
        $crate::walk_group($this.map(|this| &this.$field), &part, $label, $visit);
    };
    (@walk (counter $($rest:tt)+) $field:ident $doc:tt $walk:tt) => {
        $crate::counters!(@leaf Counter ($($rest)+) $field $doc $walk);
    };
    (@walk (gauge $($rest:tt)+) $field:ident $doc:tt $walk:tt) => {
        $crate::counters!(@leaf Gauge ($($rest)+) $field $doc $walk);
    };
    (@leaf $kind:ident ($unit:ident $($export:tt)+) $field:ident $doc:tt ($this:ident $at:ident $visit:ident)) => {
        {
            static COUNTER: $crate::Counter = $crate::Counter {
                field: stringify!($field),
                kind: $crate::Kind::$kind,
                unit: $crate::Unit::$unit,
                export: $crate::counters!(@export $($export)+),
                doc: &$doc,
            };
            $visit($at, &COUNTER, $this.map(|this| $crate::Figure::figure(&this.$field)));
        }
    };
    (@export only $why:literal) => { $crate::Export::Nobody($why) };
    (@export $name:literal) => {
        $crate::Export::Metric { name: $name, label: None, help: None }
    };
    (@export $name:literal { $key:literal: $value:literal }) => {
        $crate::Export::Metric { name: $name, label: Some(($key, $value)), help: None }
    };
    (@export $name:literal { $key:literal: $value:literal } $help:literal) => {
        $crate::Export::Metric { name: $name, label: Some(($key, $value)), help: Some($help) }
    };
}
