//! `gpuvmk trace`: every verb on traces as they are, cut, damaged, compressed, and from Linux's mmiotrace.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gpuvmk::pci::Region;
use gpuvmk::trace::header::Function;
use gpuvmk::trace::writer::Writer;
use gpuvmk::trace::{Access, Direction, Entry, Event, Header, Place};
use serde_json::Value;
use tempfile::TempDir;

const CAPTURE: &str = "VERSION 20070824
PCIDEV 0100 10de06c0 10 fd000000 e000000c 0 f000000c 0 e001 0 1000000 8000000 0 4000000 0 80 0 nouveau
MAP 12.104001 1 0xfd000000 0xffffb7c8c3000000 0x1000000 0xffffffffc09a1b2c 0
R 4 12.104857 1 0xfd000000 0xc0000a3 0xffffffffc09a1b2c 0
W 4 12.104858 1 0xfd002140 0x11 0xffffffffc09a1b2c 0
R 4 12.104859 1 0xfd002100 0x0 0xffffffffc09a1b2c 0
R 4 12.104959 1 0xfd002100 0x100 0xffffffffc09a1b2c 0
MARK 12.104960 nouveau is up
UNMAP 12.204001 1 0xffffffffc09a1b2c 0
";

fn gpuvmk(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpuvmk")).args(arguments).output().unwrap()
}

fn good(arguments: &[&str]) -> String {
    let output = gpuvmk(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What is said of a call that fails: on standard output and as an error.
fn bad(arguments: &[&str]) -> (String, String) {
    let output = gpuvmk(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        fs::write(self.path(name), bytes).unwrap();
        self.name(name)
    }

    /// A trace of a VM whose clock began `shift` milliseconds after the first one's.
    fn trace(&self, name: &str, shift: u64, events: impl IntoIterator<Item = Event>) -> String {
        let header = Header {
            source: name.trim_end_matches(".trace").to_owned(),
            chip: Some("GF100".to_owned()),
            function: Some(Function { vendor: 0x10de, device: 0x6c0, ..Function::default() }),
            monotonic_nanos: 1_000_000 * shift,
            program: "test".to_owned(),
            ..Header::default()
        };
        let mut writer = Writer::new(fs::File::create(self.path(name)).unwrap(), &header).unwrap();
        for (at, event) in (0..).zip(events) {
            writer.push(&Entry { nanos: 10_000_000 * at, event }).unwrap();
        }
        writer.finish().unwrap();
        self.name(name)
    }
}

fn access(direction: Direction, offset: u64, value: u64) -> Event {
    let place = Place::Region(Region::Bar(0));
    Event::Access(Access { direction, place, size: 4, offset, value, took: 700 })
}

fn usual() -> Vec<Event> {
    vec![
        access(Direction::Read, 0, 0x0c00_00a3),
        access(Direction::Write, 0x2140, 0x11),
        Event::Doorbell { channel: 2, gp_put: 1 },
        access(Direction::Write, 0x2270, 0x1000),
    ]
}

#[test]
fn capture_survives_the_way_through_every_packing_byte_by_byte() {
    let files = Files::new();
    let capture = files.write("capture.txt", CAPTURE.as_bytes());
    let mut last = capture;
    for name in ["a.trace.gz", "b.mmiotrace.xz", "c.trace", "d.txt.gz", "e.trace.xz", "f.txt"] {
        let next = files.name(name);
        good(&["trace", "convert", &last, "--output", &next]);
        last = next;
    }

    assert_eq!(fs::read_to_string(last).unwrap(), CAPTURE);
}

#[test]
fn capture_is_shown_with_register_names() {
    let files = Files::new();
    let text = good(&["trace", "dump", &files.write("capture.txt", CAPTURE.as_bytes())]);

    assert!(text.contains("12.104857000 R4 BAR0   0x00000000 0x0c0000a3 NV_PMC_BOOT_0"), "{text}");
    assert!(text.contains("note MARK 12.104960 nouveau is up"), "{text}");
}

#[test]
fn cut_and_damaged_files_are_shown_up_to_there_and_named() {
    let files = Files::new();
    let trace = fs::read(files.trace("vm1.trace", 0, usual())).unwrap();
    let cut = files.write("cut.trace", &trace[..trace.len() - 1]);
    let capture = files.write("cut.txt", &CAPTURE.as_bytes()[..CAPTURE.len() - 9]);

    let (text, error) = bad(&["trace", "dump", &cut]);
    assert_eq!(text.lines().count(), 3);
    assert!(error.contains("cut.trace") && error.contains("cut off at byte"), "{error}");
    let (text, error) = bad(&["trace", "dump", &capture]);
    assert!(text.contains("MARK") && error.contains("cut off in the line at byte"), "{text}{error}");
    let part = files.name("part.jsonl");
    bad(&["trace", "convert", &cut, "--output", &part]);
    assert_eq!(fs::read_to_string(part).unwrap().lines().count(), 3);
    let (text, _) = bad(&["trace", "verify", &cut]);
    assert!(text.contains("NOT OK: 3 entries, 0 lost, 0 out of order; The trace is cut off"), "{text}");
}

#[test]
fn foreign_files_are_refused() {
    let files = Files::new();
    for bytes in
        [&b"hello, this is no trace\n"[..], b"# nor is this\n", b"\0\0\0\0", b"", b"\x1f\x8b\x08but no gzip"]
    {
        let (text, error) = bad(&["trace", "dump", &files.write("x", bytes)]);
        assert!(text.is_empty() && error.contains("Cannot read"), "{error}");
    }
}

#[test]
fn verify_tells_losses_and_disorder() {
    let files = Files::new();
    let whole = files.trace("vm1.trace", 0, usual());
    let lossy = files.trace("vm2.trace", 0, [Event::Lost { count: 5 }]);

    assert!(good(&["trace", "verify", &whole]).contains(": ok: 4 entries"));
    let (text, _) = bad(&["trace", "verify", "--json", &whole, &lossy]);
    let results: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&results[0]["ok"], &results[1]["ok"], &results[1]["lost"]),
        (&true.into(), &false.into(), &5.into())
    );
}

#[test]
fn losses_of_a_capture_count_wherever_they_are_and_however_the_kernel_says_so() {
    let files = Files::new();
    let mark = "MARK 12.104960 nouveau is up\n";
    for (loss, events) in [
        ("MARK 0.000000 Lost 12 events.", 12),
        ("CPU:0 [LOST 4521 EVENTS]", 4521),
        ("CPU:0 [LOST EVENTS]", 1),
    ] {
        let text = CAPTURE.replace(mark, &format!("{loss}\n{mark}"));
        let capture = files.write("lossy.txt", text.as_bytes());

        let (said, _) = bad(&["trace", "verify", &capture]);
        assert!(said.contains(&format!("NOT OK: 12 entries, {events} lost")), "{said}");
        let all: Value = serde_json::from_str(&good(&["trace", "stat", "--json", &capture])).unwrap();
        assert_eq!((&all["lost"], &all["places"]["BAR0"]["reads"]), (&events.into(), &3.into()));
        let shown = good(&["trace", "dump", &capture]);
        assert!(shown.contains(&format!("lost {events} entries")) && shown.contains("UNMAP"), "{shown}");
        let (page, again) = (files.name("page.html"), files.name("again.txt"));
        good(&["trace", "report", &capture, "--output", &page]);
        assert!(fs::read_to_string(page).unwrap().contains(&format!("{events} lost")));
        good(&["trace", "convert", &capture, "--output", &again]);
        assert_eq!(fs::read_to_string(again).unwrap(), text);
        let told = good(&["trace", "diff", &capture, &files.write("capture.txt", CAPTURE.as_bytes())]);
        assert!(
            told.contains("No difference") && told.contains(&format!("has lost {events} entries")),
            "{told}"
        );
    }
}

#[test]
fn stat_counts_registers_places_and_phases() {
    let files = Files::new();
    let trace = files.trace("vm1.trace", 0, usual());
    let all: Value =
        serde_json::from_str(&good(&["trace", "stat", "--json", "--pause-ms", "15", &trace])).unwrap();

    assert_eq!(all["entries"], 4);
    assert_eq!(all["kinds"], serde_json::json!({ "read": 1, "write": 2, "doorbell": 1 }));
    assert_eq!(all["places"]["BAR0"], serde_json::json!({ "reads": 1, "writes": 2 }));
    assert_eq!(all["top"][0]["name"], "NV_PMC_BOOT_0");
    assert_eq!(all["phases"].as_array().unwrap().len(), 1);
    let text = good(&["trace", "stat", &trace]);
    assert!(text.contains("4 entries in 0.030 s") && text.contains("reads took p50 0.7 us"), "{text}");
}

#[test]
fn report_is_one_page_with_pictures_and_takes_nothing_from_elsewhere() {
    let files = Files::new();
    let first = files.trace("vm1.trace", 0, usual());
    let hostile = files.trace("<b>&'vm2\u{1}.trace", 0, usual());
    let page = files.name("page.html");

    good(&["trace", "report", &first, &hostile, "--output", &page]);

    let text = fs::read_to_string(&page).unwrap();
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&text, options)
        .unwrap_or_else(|error| panic!("{error}: {text}"));
    let count = |name: &str| {
        document
            .descendants()
            .filter(|node| node.has_tag_name(name) || node.tag_name().name() == name)
            .count()
    };
    assert!(count("svg") >= 6, "a timeline and two histograms of each trace: {}", count("svg"));
    assert_eq!((count("script"), count("link"), count("img"), count("b")), (0, 0, 0, 2));
    assert!(
        document
            .descendants()
            .all(|node| node.attributes().all(|one| !["href", "src"].contains(&one.name())))
    );
    assert!(text.contains("NV_PMC_BOOT_0") && text.contains("50.0 %") && text.contains("Phases"), "{text}");

    // A cut file is shown up to there, and said.
    let bytes = fs::read(&first).unwrap();
    let cut = files.write("cut.trace", &bytes[..bytes.len() - 3]);
    let (_, said) = bad(&["trace", "report", &cut, "--output", &page]);
    assert!(said.contains("cut off"), "{said}");
    assert!(fs::read_to_string(&page).unwrap().contains("Read up to here only"));
    let (_, said) = bad(&["trace", "report", &first, "--output", &first]);
    assert!(said.contains("cannot be written as well"), "{said}");
}

#[test]
fn filter_keeps_what_is_wanted_and_says_so_in_the_head() {
    let files = Files::new();
    let (trace, part) = (files.trace("vm1.trace", 0, usual()), files.name("part.trace"));
    good(&["trace", "filter", &trace, "--output", &part, "unit=PFIFO", "op=write,doorbell"]);

    let text = good(&["trace", "dump", &part]);
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(fs::read(&part).unwrap().windows(10).any(|bytes| bytes == b"unit=PFIFO"));
    let (_, error) = bad(&["trace", "filter", &trace, "--output", &part, "unit=FIFO"]);
    assert!(error.contains("'unit=FIFO' is no filter: units of GF100 are"), "{error}");
}

#[test]
fn input_is_never_written_over() {
    let files = Files::new();
    let trace = files.trace("vm1.trace", 0, usual());
    let before = fs::read(&trace).unwrap();
    let link = files.name("link.trace");
    std::os::unix::fs::symlink(&trace, &link).unwrap();

    for output in [&trace, &link] {
        for arguments in [
            ["trace", "filter", &trace, "--output", output],
            ["trace", "convert", &trace, "--output", output],
        ] {
            assert!(bad(&arguments).1.contains("give another name"));
        }
    }
    assert_eq!(fs::read(&trace).unwrap(), before);
}

#[test]
fn part_of_a_capture_is_exported_with_its_device_and_mappings() {
    let files = Files::new();
    let capture = files.write("capture.txt", CAPTURE.as_bytes());
    let (part, text) = (files.name("part.trace"), files.name("part.txt"));
    good(&["trace", "filter", &capture, "--output", &part, "op=write"]);
    good(&["trace", "convert", &part, "--output", &text]);

    let wanted: Vec<_> = CAPTURE.lines().filter(|line| !line.starts_with("R ")).collect();
    assert_eq!(fs::read_to_string(text).unwrap().lines().collect::<Vec<_>>(), wanted);
}

#[test]
fn registers_of_an_unknown_chip_have_no_names() {
    let files = Files::new();
    let capture = files.write("capture.txt", CAPTURE.replace("0xc0000a3", "0x137000a1").as_bytes());

    let text = good(&["trace", "dump", &capture]);
    assert!(text.contains("W4 BAR0   0x00002140") && !text.contains("NV_"), "{text}");
    let (_, error) = bad(&["trace", "filter", &capture, "--output", &files.name("x.trace"), "unit=PFIFO"]);
    assert!(error.contains("units are known only where the trace's chip is"), "{error}");
}

#[test]
fn registers_of_other_chips_have_the_names_of_a_database_that_the_user_has() {
    let files = Files::new();
    files.write(
        "root.xml",
        br#"<database><import file="chips.xml"/><domain name="NV_MMIO"><array name="PFIFO" offset="0x2000" stride="0x2000">
            <reg32 offset="0x100" name="INTR"><bitfield pos="8" name="PLAYLIST"/></reg32>
            <reg32 offset="0x140" name="INTR_EN" variants="GM107-"/></array></domain></database>"#,
    );
    let (capture, folder) = (
        files.write("capture.txt", CAPTURE.replace("0xc0000a3", "0x117000a1").as_bytes()),
        files.path("").to_str().unwrap().to_owned(),
    );
    // Chips lie in a folder of their own: envytools generates them.
    let (_, error) = bad(&["trace", "dump", "--rnndb", &folder, &capture]);
    assert!(error.contains("has chips.xml"), "{error}");
    // In the environment it may be there for others.
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
    let output = command.args(["trace", "dump", &capture]).env("RNN_PATH", &folder).output().unwrap();
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stderr).contains("RNN_PATH is of no use")
    );
    let more = tempfile::tempdir().unwrap();
    let chips = r#"<database><enum name="chipset"><value name="NV4"/><value value="0xe4" name="GK104"/>
        <value value="0x117" name="GM107"/></enum></database>"#;
    fs::write(more.path().join("chips.xml"), chips).unwrap();
    let folders = format!("{folder}:{}", more.path().display());

    let text = good(&["trace", "dump", "--rnndb", &folders, &capture]);
    assert!(text.contains("PFIFO.INTR { PLAYLIST=0x1 }") && text.contains("PFIFO.INTR_EN"), "{text}");
    let text = good(&["trace", "lookup", "--rnndb", &folders, "--chip", "gk104", "0x2100", "0x100"]);
    assert!(text.contains("PFIFO.INTR") && text.contains("PLAYLIST = 0x1"), "{text}");
    bad(&["trace", "lookup", "--rnndb", &folders, "--chip", "gk104", "0x2140"]);
    // gpuvmk's own tables come first, and the database is not needed for them.
    assert!(good(&["trace", "lookup", "--rnndb", &folders, "0x2100"]).contains("NV_PFIFO_INTR_0"));
    let filtered = files.name("pfifo.trace");
    good(&[
        "trace",
        "filter",
        "--rnndb",
        &folders,
        &capture,
        "--output",
        &filtered,
        "--chip",
        "GM107",
        "unit=PFIFO",
        "op=read",
    ]);
    let text = good(&["trace", "dump", &filtered]);
    assert!(text.contains("0x00002100") && !text.contains("0x00000000 "), "{text}");
    let (_, error) = bad(&[
        "trace", "filter", "--rnndb", &folders, &capture, "--output", &filtered, "--chip", "gm107",
        "unit=PXY",
    ]);
    assert!(error.contains("units of GM107 are PFIFO"), "{error}");
}

#[test]
fn diff_names_the_first_divergence() {
    let files = Files::new();
    let first = files.trace("vm1.trace", 0, usual());
    let mut other = usual();
    other[1] = access(Direction::Write, 0x2140, 0x12);
    let second = files.trace("vm2.trace", 0, other);

    assert!(good(&["trace", "diff", &first, &first]).contains("No difference in 3 accesses"));
    let (text, _) = bad(&["trace", "diff", &first, &second]);
    assert!(
        text.contains("access 1 of the first and 1 of the second do different things to one register"),
        "{text}"
    );
    assert!(text.contains("2 accesses are the same"), "{text}");
    good(&["trace", "diff", "--leave-out", "range=0x2140", &first, &second]);
    let (json, _) = bad(&["trace", "diff", "--json", &first, &second]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["differences"][0]["second_count"], 1);
}

#[test]
fn lookup_decodes_a_value() {
    let text = good(&["trace", "lookup", "0x0", "0x0c0000a3"]);

    assert!(text.contains("NV_PMC_BOOT_0") && text.contains("Source:"), "{text}");
    assert!(!gpuvmk(&["trace", "lookup", "0xfffffc"]).status.success());
}

#[test]
fn several_traces_become_one_in_the_order_of_their_hosts_clock() {
    let files = Files::new();
    let (first, second) = (files.trace("vm1.trace", 0, usual()), files.trace("vm2.trace", 5, usual()));
    let (lines, rows, events) = (files.name("all.jsonl"), files.name("all.csv"), files.name("all.json.gz"));
    for output in [&lines, &rows, &events] {
        good(&["trace", "convert", &first, &second, "--output", output]);
    }

    let sources: Vec<String> = fs::read_to_string(lines)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["source"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(sources, ["vm1", "vm2"].repeat(4));
    assert_eq!(fs::read_to_string(rows).unwrap().lines().count(), 9);
    let mut unpacked = String::new();
    let packed = flate2::read::GzDecoder::new(fs::File::open(events).unwrap());
    std::io::Read::read_to_string(&mut std::io::BufReader::new(packed), &mut unpacked).unwrap();
    assert!(serde_json::from_str::<Value>(&unpacked).unwrap()["traceEvents"].as_array().unwrap().len() >= 8);
    let (_, error) = bad(&["trace", "convert", &first, &second, "--output", &files.name("all.trace")]);
    assert!(error.contains("Several traces"), "{error}");
    let (_, error) = bad(&["trace", "convert", &first, "--output", &files.name("all.xyz")]);
    assert!(error.contains(".mmiotrace"), "{error}");
}

#[test]
fn follow_shows_what_comes_after_it_began() {
    let files = Files::new();
    let trace = fs::read(files.trace("vm1.trace", 0, usual())).unwrap();
    let growing = files.write("growing.trace", &trace[..60]);
    let mut shown = Command::new(env!("CARGO_BIN_EXE_gpuvmk"))
        .args(["trace", "follow", &growing, "op=doorbell"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(Path::new(&growing)).unwrap();
    file.write_all(&trace[60..]).unwrap();

    let (sender, lines) = std::sync::mpsc::channel();
    let output = shown.stdout.take().unwrap();
    std::thread::spawn(move || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
        sender.send(line)
    });
    let began = Instant::now();
    let line = lines.recv_timeout(Duration::from_secs(60));
    shown.kill().unwrap();
    shown.wait().unwrap();
    assert!(
        line.is_ok_and(|line| line.contains("doorbell channel 2 GP_PUT 1")),
        "after {:?}",
        began.elapsed()
    );
}
