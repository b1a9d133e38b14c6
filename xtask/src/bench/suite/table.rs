//! Figures of both set-ups beside each other, and how they compare.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::counts::Counts;
use crate::bench::{median, round3};

/// What work is copied by one submission: its figures begin so.
const WORK: [&str; 2] = ["copy_", "work_"];
/// Work of at least this long is long.
const LONG_WORK_US: f64 = 1000.0;
/// The one figure of whole boots that counts in the suite's sum.
pub const PROBE: &str = "probe_ms";
/// From QEMU's start until nouveau was loaded.
pub const READY: &str = "ready_ms";
/// From the guest's order to power off until QEMU's end.
pub const POWER_OFF: &str = "power_off_ms";

/// What is behind the ratio of a row that one guest with both GPUs measured, and what that means.
pub const MARK: &str = "*";
pub const MARKED: &str = "both GPUs in one guest, in turns: the median of the turns' ratios";

/// Every sample of a figure, by its name.
pub type Samples = BTreeMap<String, Vec<f64>>;

/// One figure; all figures are times. Who has no native form has only one.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub name: String,
    pub native: Option<f64>,
    pub mediated: f64,
    pub native_counts: Option<Counts>,
    pub mediated_counts: Option<Counts>,
    /// The median of the ratios of turns, where one guest had both GPUs and measured them next to each other.
    pub paired: Option<f64>,
}

impl Row {
    /// Microseconds or milliseconds, as the name says.
    pub fn unit(&self) -> &'static str {
        if self.name.ends_with("_ms") { "ms" } else { "us" }
    }

    /// Mediated time over native time.
    pub fn ratio(&self) -> Option<f64> {
        self.paired.or_else(|| self.native.map(|native| over(self.mediated, native)))
    }

    /// What stands behind its ratio.
    pub fn mark(&self) -> &'static str {
        if self.paired.is_some() { MARK } else { "" }
    }

    /// Its name without the words that all of them have.
    pub fn title(&self) -> &str {
        self.name.strip_suffix("_us_p50").unwrap_or(&self.name)
    }

    fn micros(&self, time: f64) -> f64 {
        if self.unit() == "ms" { time * 1000.0 } else { time }
    }

    fn to_json(&self) -> Value {
        let mut row = json!({
            "name": self.name,
            "native": self.native,
            "mediated": self.mediated,
            "ratio": self.ratio().map(round3),
            "paired": self.paired.is_some(),
        });
        if self.native_counts.is_some() || self.mediated_counts.is_some() {
            row["counts"] = json!({
                "native": self.native_counts.map(Counts::to_json),
                "mediated": self.mediated_counts.map(Counts::to_json),
            });
        }
        row
    }
}

/// All figures of a chip.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    pub rows: Vec<Row>,
}

/// How mediated compares with native. `suite`, `work_1ms` and `pipelined` compare speed, the others time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratios {
    /// One of each operation, and a probe, after each other.
    pub suite: f64,
    /// The mean of each operation's speed.
    pub suite_geometric: f64,
    pub work_1ms: f64,
    pub latency_4k: f64,
    pub pipelined: f64,
    pub probe: f64,
    pub power_off: f64,
}

impl Ratios {
    pub fn to_json(self) -> Value {
        json!({
            "suite": round3(self.suite),
            "suite_geometric": round3(self.suite_geometric),
            "work_1ms": round3(self.work_1ms),
            "latency_4k": round3(self.latency_4k),
            "pipelined": round3(self.pipelined),
            "probe": round3(self.probe),
            "power_off": round3(self.power_off),
        })
    }
}

impl Table {
    /// The medians over the boots; `native` is empty for a chip that has no native form. Equal places in the
    /// samples of a `paired` figure are one turn of a guest that has both GPUs.
    ///
    /// A figure that only one of two set-ups has is left out: there is nothing to compare it with.
    pub fn new(
        native: &Samples,
        mediated: &Samples,
        native_counts: &BTreeMap<String, Counts>,
        mediated_counts: &BTreeMap<String, Counts>,
        paired: &BTreeSet<String>,
    ) -> Self {
        let both = |name: &&String| native.is_empty() || native.contains_key(*name);
        let row = |name: &String| {
            let title = name.strip_suffix("_us_p50").unwrap_or(name);
            let (native, mediated) = (native.get(name), mediated.get(name)?);
            Some(Row {
                name: name.clone(),
                native: native.map(|samples| median(samples)),
                mediated: median(mediated),
                paired: native
                    .filter(|_| paired.contains(name))
                    .and_then(|native| median_of_ratios(native, mediated)),
                native_counts: native_counts.get(title).copied(),
                mediated_counts: mediated_counts.get(title).copied(),
            })
        };
        Self { rows: mediated.keys().filter(both).filter_map(row).collect() }
    }

    pub fn print(&self) {
        println!(
            "{:28} {:>14} {:>14} {:>7}  {:>24}  {:>24}",
            "median time", "native", "mediated", "ratio", "reads/writes/memory", "mediated, and runs"
        );
        for row in &self.rows {
            let time =
                |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{time:.1} {}", row.unit()));
            // The mark, or a space in its place: points stay below each other.
            let mark = row.mark();
            let ratio = row.ratio().map_or("- ".to_owned(), |ratio| format!("{ratio:.3}{mark:1}"));
            let counts = |counts: Option<Counts>| counts.map_or(String::new(), |counts| counts.to_string());
            println!(
                "{:28} {:>14} {:>14} {ratio:>8} {:>24}  {:>24}",
                row.title(),
                time(row.native),
                time(Some(row.mediated)),
                counts(row.native_counts),
                counts(row.mediated_counts)
            );
        }
        if self.is_marked() {
            println!("{MARK} {MARKED}");
        }
    }

    /// Whether the meaning of the mark is to be said.
    pub fn is_marked(&self) -> bool {
        self.rows.iter().any(|row| row.paired.is_some())
    }

    /// How mediated compares with native; `None` where there is no native form, or a figure is not there.
    pub fn ratios(&self) -> Option<Ratios> {
        let time = |name: &str| self.rows.iter().find(|row| row.name == name).and_then(Row::ratio);
        let compared: Vec<&Row> = self.rows.iter().filter(|row| row.native.is_some()).collect();
        // What ends a boot is no operation, and what begins it is mostly the kernel's.
        let suite: Vec<&Row> =
            compared.iter().filter(|row| row.name != READY && row.name != POWER_OFF).copied().collect();
        let long: Vec<f64> =
            compared.iter().filter(|row| is_long_work(row)).filter_map(|row| speed(row)).collect();
        let sum = |of: fn(&Row) -> f64| suite.iter().map(|row| row.micros(of(row))).sum::<f64>();
        if long.is_empty() || suite.is_empty() {
            return None;
        }
        let speeds: Vec<f64> = suite.iter().filter_map(|row| speed(row)).collect();
        Some(Ratios {
            suite: sum(|row| row.native.unwrap_or(0.0)) / sum(|row| row.mediated).max(f64::MIN_POSITIVE),
            suite_geometric: geometric_mean(&speeds),
            work_1ms: geometric_mean(&long),
            latency_4k: time("latency_4k_us_p50")?,
            pipelined: 1.0 / time("pipelined_4k_us_p50")?,
            probe: time(PROBE)?,
            power_off: time(POWER_OFF)?,
        })
    }

    pub fn to_json(&self) -> Value {
        self.rows.iter().map(Row::to_json).collect()
    }
}

fn over(mediated: f64, native: f64) -> f64 {
    mediated / native.max(f64::MIN_POSITIVE)
}

/// The middle of the turns' ratios; nothing if it cannot be told which samples are one turn.
fn median_of_ratios(native: &[f64], mediated: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> =
        native.iter().zip(mediated).map(|(native, mediated)| over(*mediated, *native)).collect();
    (native.len() == mediated.len() && !ratios.is_empty()).then(|| median(&ratios))
}

fn speed(row: &Row) -> Option<f64> {
    row.ratio().map(|ratio| 1.0 / ratio.max(f64::MIN_POSITIVE))
}

fn is_long_work(row: &Row) -> bool {
    WORK.iter().any(|start| row.name.starts_with(start))
        && row.native.is_some_and(|time| time >= LONG_WORK_US)
}

fn geometric_mean(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    (values.iter().map(|value| value.ln()).sum::<f64>() / count).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(pairs: &[(&str, &[f64])]) -> Samples {
        pairs.iter().map(|(name, values)| ((*name).to_owned(), values.to_vec())).collect()
    }

    fn table(native: &Samples, mediated: &Samples) -> Table {
        paired_table(native, mediated, &[])
    }

    fn paired_table(native: &Samples, mediated: &Samples, paired: &[&str]) -> Table {
        let paired = paired.iter().map(|name| (*name).to_owned()).collect();
        Table::new(native, mediated, &BTreeMap::new(), &BTreeMap::new(), &paired)
    }

    fn row<'a>(table: &'a Table, title: &str) -> &'a Row {
        table.rows.iter().find(|row| row.title() == title).unwrap()
    }

    fn measured() -> (Samples, Samples) {
        let native = samples(&[
            ("latency_4k_us_p50", &[100.0, 90.0, 400.0]),
            ("work_64m_us_p50", &[9000.0]),
            ("copy_1m_us_p50", &[500.0]),
            ("map_gart_16m_us_p50", &[5000.0]),
            ("pipelined_4k_us_p50", &[50.0]),
            (PROBE, &[2000.0]),
            (READY, &[5000.0]),
            (POWER_OFF, &[300.0]),
        ]);
        let mediated = samples(&[
            ("latency_4k_us_p50", &[130.0]),
            ("work_64m_us_p50", &[10_000.0]),
            ("copy_1m_us_p50", &[1000.0]),
            ("map_gart_16m_us_p50", &[6000.0]),
            ("pipelined_4k_us_p50", &[40.0]),
            (PROBE, &[2200.0]),
            (READY, &[9000.0]),
            (POWER_OFF, &[450.0]),
        ]);
        (native, mediated)
    }

    #[test]
    fn ratios_compare_speed_for_work_and_time_for_latency() {
        let (native, mediated) = measured();
        let ratios = table(&native, &mediated).ratios().unwrap();
        assert!((ratios.latency_4k - 1.3).abs() < 1e-9);
        assert!((ratios.work_1ms - 0.9).abs() < 1e-9, "only copies of a millisecond count: {ratios:?}");
        assert!((ratios.pipelined - 1.25).abs() < 1e-9);
        assert!((ratios.probe - 1.1).abs() < 1e-9);
        assert!((ratios.power_off - 1.5).abs() < 1e-9);
    }

    #[test]
    fn suite_is_the_sum_of_one_of_each_in_one_unit() {
        let (native, mediated) = measured();
        let ratios = table(&native, &mediated).ratios().unwrap();
        let wanted = (100.0 + 9000.0 + 500.0 + 5000.0 + 50.0 + 2_000_000.0)
            / (130.0 + 10_000.0 + 1000.0 + 6000.0 + 40.0 + 2_200_000.0);
        assert!((ratios.suite - wanted).abs() < 1e-9, "boots and power-off do not count: {ratios:?}");
    }

    #[test]
    fn chip_without_a_native_form_has_times_and_no_ratios() {
        let (_, mediated) = measured();
        let table = table(&Samples::new(), &mediated);
        assert_eq!(table.rows.len(), mediated.len());
        assert_eq!(table.ratios(), None);
        assert_eq!(table.rows.first().and_then(Row::ratio), None);
    }

    #[test]
    fn figure_of_one_set_up_only_is_left_out() {
        let (mut native, mediated) = measured();
        native.remove("copy_1m_us_p50");
        native.insert("map_vram_1g_us_p50".to_owned(), vec![1.0]);
        let table = table(&native, &mediated);
        assert!(!table.rows.iter().any(|row| row.title() == "copy_1m" || row.title() == "map_vram_1g"));
        assert!(table.ratios().is_some());
    }

    #[test]
    fn counts_stand_beside_their_times() {
        let (native, mediated) = measured();
        let counts = Counts { reads: 5.0, ..Counts::default() };
        let of = BTreeMap::from([("latency_4k".to_owned(), counts)]);
        let table = Table::new(&native, &mediated, &of, &BTreeMap::new(), &BTreeSet::new());
        let row = row(&table, "latency_4k");
        assert_eq!((row.native_counts, row.mediated_counts), (Some(counts), None));
        assert_eq!(row.to_json()["counts"]["native"]["reads"], 5.0);
    }

    /// Three turns: mediated over native is 1.5, 0.9 and 1.1, and 0.9 of the medians.
    fn in_turns(names: &[&str]) -> (Samples, Samples) {
        let (mut native, mut mediated) = measured();
        for name in names {
            native.insert((*name).to_owned(), vec![10_000.0, 20_000.0, 30_000.0]);
            mediated.insert((*name).to_owned(), vec![15_000.0, 18_000.0, 33_000.0]);
        }
        (native, mediated)
    }

    #[test]
    fn ratio_of_a_paired_figure_is_the_median_of_its_turns() {
        let name = "latency_4k_us_p50";
        let (native, mediated) = in_turns(&[name]);
        let (separate, paired) = (table(&native, &mediated), paired_table(&native, &mediated, &[name]));
        let (separate, paired) = (row(&separate, "latency_4k"), row(&paired, "latency_4k"));
        assert!((separate.ratio().unwrap() - 0.9).abs() < 1e-9);
        assert!((paired.ratio().unwrap() - 1.1).abs() < 1e-9);
        assert_eq!((paired.native, paired.mediated), (Some(20_000.0), 18_000.0), "medians are shown as ever");
        assert_eq!((separate.mark(), paired.mark()), ("", MARK));
        let (separate, paired) = (separate.to_json(), paired.to_json());
        assert_eq!((&separate["ratio"], &separate["paired"]), (&json!(0.9), &json!(false)));
        assert_eq!((&paired["ratio"], &paired["paired"]), (&json!(1.1), &json!(true)));
    }

    #[test]
    fn limits_are_held_against_ratios_of_turns_but_for_the_suite() {
        let names = ["latency_4k_us_p50", "work_64m_us_p50", "pipelined_4k_us_p50"];
        let (native, mediated) = in_turns(&names);
        let separate = table(&native, &mediated).ratios().unwrap();
        let paired = paired_table(&native, &mediated, &names).ratios().unwrap();
        assert!((paired.latency_4k - 1.1).abs() < 1e-9);
        assert!((paired.work_1ms - 1.0 / 1.1).abs() < 1e-9);
        assert!((paired.pipelined - 1.0 / 1.1).abs() < 1e-9);
        assert!((paired.suite - separate.suite).abs() < 1e-9, "a sum of medians over a sum of medians");
        assert!((paired.probe - separate.probe).abs() < 1e-9);
    }

    #[test]
    fn samples_that_cannot_be_told_apart_into_turns_are_not_paired() {
        let name = "latency_4k_us_p50";
        let (mut native, mediated) = in_turns(&[name]);
        native.insert(name.to_owned(), vec![10_000.0, 20_000.0]);
        let table = paired_table(&native, &mediated, &[name]);
        assert!(!table.is_marked());
        assert!((row(&table, "latency_4k").ratio().unwrap() - 18.0 / 15.0).abs() < 1e-9);
        assert_eq!(median_of_ratios(&[], &[]), None);
    }
}
