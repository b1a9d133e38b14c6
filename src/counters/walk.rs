//! The way through a tree of counters.

use std::collections::BTreeMap;

use crate::{Counter, Export};

/// Who is called at each counter of a walk: where it is, what it is, and its value, if the walk has values.
pub type Visit<'a> = dyn FnMut(&Place, &Counter, Option<f64>) + 'a;

/// A struct with counters, as [`counters!`](crate::counters) makes it.
pub trait Counted {
    /// Goes through all counters of `this`, or, without it, through all that there may be, each once.
    fn walk(this: Option<&Self>, at: &Place, visit: &mut Visit<'_>);
}

/// What is not there has no counters.
impl<T: Counted> Counted for Option<T> {
    fn walk(this: Option<&Self>, at: &Place, visit: &mut Visit<'_>) {
        match this {
            None => T::walk(None, at, visit),
            Some(Some(this)) => T::walk(Some(this), at, visit),
            Some(None) => {}
        }
    }
}

/// What a list tells its members apart by.
pub trait Named {
    /// The name, which is a label's value.
    fn name(&self) -> &str;
}

/// Many counted things of a kind.
pub trait Group {
    /// One of them.
    type Member: Counted;

    /// All of them, with their names.
    fn members(&self) -> impl Iterator<Item = (&str, &Self::Member)>;
}

impl<T: Counted + Named> Group for Vec<T> {
    type Member = T;

    fn members(&self) -> impl Iterator<Item = (&str, &T)> {
        self.iter().map(|member| (member.name(), member))
    }
}

impl<K: AsRef<str>, T: Counted> Group for BTreeMap<K, T> {
    type Member = T;

    fn members(&self) -> impl Iterator<Item = (&str, &T)> {
        self.iter().map(|(name, member)| (name.as_ref(), member))
    }
}

/// Goes through the counters of all members, told apart by `label`.
pub fn walk_group<G: Group>(group: Option<&G>, at: &Place, label: &'static str, visit: &mut Visit<'_>) {
    let Some(group) = group else { return G::Member::walk(None, &at.labelled(label, ""), visit) };
    for (name, member) in group.members() {
        G::Member::walk(Some(member), &at.labelled(label, name), visit);
    }
}

/// What a counter's field may be.
pub trait Figure {
    /// The number, rounded to what metrics can hold: whole ones are exact below 2^53.
    fn figure(&self) -> f64;
}

macro_rules! figures {
    ($($type:ty)+) => {$(
        impl Figure for $type {
            fn figure(&self) -> f64 {
                // CAST: rounded, as the trait says.
                *self as f64
            }
        }
    )+};
}

figures! { u16 u32 u64 usize f64 }

impl Figure for bool {
    fn figure(&self) -> f64 {
        f64::from(u8::from(*self))
    }
}

/// What is not there has counted nothing.
impl<T: Figure> Figure for Option<T> {
    fn figure(&self) -> f64 {
        self.as_ref().map_or(0.0, Figure::figure)
    }
}

/// Where in a tree a counter is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    path: String,
    prefix: String,
    labels: Vec<(&'static str, String)>,
    about: Option<&'static str>,
}

impl Place {
    /// The same for a part that is the field `field`, and whose metrics' names begin with `prefix` as well.
    #[must_use]
    pub fn part(&self, field: &str, prefix: &str) -> Self {
        let path = join(&self.path, ".", field);
        let prefix = join(&self.prefix, "_", prefix);
        Self { path, prefix, labels: self.labels.clone(), about: None }
    }

    /// The same for a part that as a whole is `about`.
    #[must_use]
    pub fn about(mut self, about: &'static str) -> Self {
        self.about = Some(about);
        self
    }

    /// The same for one of many.
    #[must_use]
    pub fn labelled(&self, key: &'static str, value: &str) -> Self {
        let mut place = self.clone();
        place.labels.push((key, value.to_owned()));
        place
    }

    /// The value of a label that members of a group have.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(other, _)| *other == key).map(|(_, value)| value.as_str())
    }

    /// Where a counter is in the whole: keys, from the outermost on.
    pub fn path_of(&self, counter: &Counter) -> String {
        join(&self.path, ".", counter.field)
    }

    /// The name of a counter among metrics, without its unit, if it is one.
    pub fn metric(&self, counter: &Counter) -> Option<String> {
        let Export::Metric { name, .. } = counter.export else { return None };
        Some(join(&self.prefix, "_", name))
    }

    /// What its metric is.
    pub fn help_of(&self, counter: &Counter) -> String {
        let together = match counter.export {
            Export::Metric { help, .. } => help,
            Export::Nobody(_) => None,
        };
        together.or(self.about).map_or_else(|| counter.help(), str::to_owned)
    }

    /// The labels that a counter's sample has.
    pub fn labels_of(&self, counter: &Counter) -> Vec<(&'static str, String)> {
        let mut labels = self.labels.clone();
        if let Export::Metric { label: Some((key, value)), .. } = counter.export {
            labels.push((key, value.to_owned()));
        }
        labels
    }
}

/// Two words with something between them, if there are two.
fn join(first: &str, between: &str, second: &str) -> String {
    let between = if first.is_empty() || second.is_empty() { "" } else { between };
    format!("{first}{between}{second}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, counters};

    counters! {
        /// One of two.
        #[derive(Debug, Default)]
        pub struct Half {
            /// Its name.
            pub name: String = (fact),
            /// Time that it took.
            ///
            /// More of it.
            pub took_ms: u64 = (counter Millis "took"),
            /// What it weighs.
            pub weight: Option<u64> = (gauge Bytes only "nobody asks"),
        }
    }

    impl Named for Half {
        fn name(&self) -> &str {
            &self.name
        }
    }

    counters! {
        /// A whole.
        #[derive(Debug, Default)]
        pub struct Whole {
            /// The halves.
            pub halves: Vec<Half> = (each "half" "half"),
            /// One more.
            pub spare: Option<Half> = (part "spare" "What lies about"),
            /// Doors that are
            /// open.
            pub open: bool = (gauge Flag "doors" { "state": "open" } "Doors"),
            /// Doors that are shut.
            pub shut: u16 = (gauge Number "doors" { "state": "shut" }),
        }
    }

    counters! {
        /// What happened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts kept as Counters {
            /// Calls.
            pub calls: u64 = (counter Number only "a test"),
            /// Refusals.
            pub refusals: u64 = (counter Number only "a test"),
        }
    }

    fn walked(whole: Option<&Whole>) -> Vec<String> {
        let mut seen = Vec::new();
        Whole::walk(whole, &Place::default(), &mut |at, counter, value| {
            let name = at.metric(counter).unwrap_or_else(|| "-".to_owned());
            let labels: Vec<_> = at.labels_of(counter).into_iter().map(|(k, v)| format!("{k}={v}")).collect();
            let value = value.map(|value| counter.in_base(value));
            let (path, help) = (at.path_of(counter), at.help_of(counter));
            seen.push(format!("{path} {name} [{}] {help}: {value:?}", labels.join(",")));
        });
        seen
    }

    #[test]
    fn walk_without_values_meets_every_counter_once() {
        assert_eq!(
            walked(None),
            [
                "halves[].took_ms half_took [half=] Time that it took: None",
                "halves[].weight - [half=] What it weighs: None",
                "spare.took_ms spare_took [] What lies about: None",
                "spare.weight - [] What lies about: None",
                "open doors [state=open] Doors: None",
                "shut doors [state=shut] Doors that are shut: None",
            ]
        );
    }

    #[test]
    fn walk_with_values_meets_what_is_there() {
        let half = |name: &str, took_ms| Half { name: name.to_owned(), took_ms, weight: None };
        let whole = Whole { halves: vec![half("a", 1500), half("b", 2)], spare: None, open: true, shut: 7 };
        assert_eq!(
            walked(Some(&whole)),
            [
                "halves[].took_ms half_took [half=a] Time that it took: Some(1.5)",
                "halves[].weight - [half=a] What it weighs: Some(0.0)",
                "halves[].took_ms half_took [half=b] Time that it took: Some(0.002)",
                "halves[].weight - [half=b] What it weighs: Some(0.0)",
                "open doors [state=open] Doors: Some(1.0)",
                "shut doors [state=shut] Doors that are shut: Some(7.0)",
            ]
        );
    }

    #[test]
    fn kept_counts_are_read_and_shown_by_name() {
        let counters = Counters::default();
        counters.calls.add(6);
        counters.calls.one();
        assert_eq!(counters.read(), Counts { calls: 7, refusals: 0 });
        assert_eq!(counters.read().to_string(), "calls=7");
        Counts::walk(None, &Place::default(), &mut |_, counter, _| assert_eq!(counter.kind, Kind::Counter));
    }
}
