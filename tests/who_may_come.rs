//! Who may come to an aggregator, and who may operate it: the daemon, and processes of other users at its
//! sockets. A thread is a user of its own to the kernel, so threads of this process play those users; who
//! leaves and comes back is a process. Where this one may not become other users (it is not root), nothing is
//! tried.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on panics")]

#[path = "common/daemon.rs"]
mod daemon;
#[path = "common/tenant.rs"]
mod tenant;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use daemon::{Daemon, until};
use gpuvmk::aggregator::link::{AggregatorLink, LinkError};
use gpuvmk::aggregator::protocol::{Hello, RefusalKind};
use gpuvmk::aggregator::{LinkTimeouts, connect};
use gpuvmk::scheduler::share::Share;
use serde_json::{Value, json};

const STRANGER: u32 = 12_345;
const OTHER: u32 = 12_346;
/// Groups that this machine need not know by name.
const BACK_ENDS: u32 = 45_001;
const OPERATORS: u32 = 45_002;
const QEMUS: u32 = 45_003;

/// Runs `work` as a user in some groups, of which the first is its own; `None` where this process may not.
fn as_user<R: Send>(uid: u32, groups: &[u32], work: impl FnOnce() -> R + Send) -> Option<R> {
    use rustix::process::{Gid, Uid};
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let become_user = || {
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_res_gid(groups[0], groups[0], groups[0])?;
        let uid = Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid)
    };
    std::thread::scope(|scope| scope.spawn(|| become_user().ok().map(|()| work())).join().unwrap())
}

/// True where nothing can be tried, which is said.
fn cannot_be_others() -> bool {
    let cannot = as_user(STRANGER, &[STRANGER], || ()).is_none();
    if cannot {
        assert!(!rustix::process::geteuid().is_root(), "root may be everybody");
        eprintln!("nothing is tried: only root can be other users");
    }
    cannot
}

/// Tells a process of this program which socket to go to, and as what.
const SOCKET: &str = "GPUVMK_TEST_SOCKET";
const NAME: &str = "GPUVMK_TEST_NAME";

/// A device back end of another user; it goes when it is told to.
struct BackEnd(Child);

impl BackEnd {
    /// One that is in, or what it was told.
    fn start(uid: u32, socket: &Path, name: &str) -> Result<Self, String> {
        // By this link, the program can be executed wherever it lies.
        let mut child = Command::new("/proc/self/exe")
            .args(["--exact", "a_back_end_of_another_user", "--nocapture"])
            .env(SOCKET, socket)
            .env(NAME, name)
            .uid(uid)
            .gid(uid)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.find_map(|line| Some(line.unwrap().split_once("hello: ")?.1.to_owned())).unwrap();
        std::thread::spawn(move || lines.count());
        let back_end = Self(child);
        if said == "in" { Ok(back_end) } else { Err(said) }
    }
}

impl Drop for BackEnd {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// What such a process does; as a test of its own, nothing.
#[test]
fn a_back_end_of_another_user() {
    let (Ok(socket), Ok(name)) = (std::env::var(SOCKET), std::env::var(NAME)) else { return };
    match connect(Path::new(&socket), small(&name), &LinkTimeouts::none()) {
        Ok((_link, _)) => {
            println!("\nhello: in");
            let _ = std::io::stdin().read(&mut [0]);
        }
        Err(error) => println!("\nhello: {error}"),
    }
}

/// A running aggregator in a folder that everybody may look into.
struct Place {
    folder: tempfile::TempDir,
    aggregator: Daemon,
}

impl Place {
    /// One whose file ends so.
    fn with(sockets: &str, more: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = format!("name = \"gpu0\"\nbackend = \"soft\"\nvram = \"1G\"\n{sockets}{more}");
        std::fs::write(folder.path().join("gpu0.toml"), text).unwrap();
        let mut aggregator = Daemon::start(folder.path(), "gpu0", &["aggregator", "gpu0.toml"]);
        aggregator.wait_for("serves at");
        Self { folder, aggregator }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Says hello as a user at one of the sockets.
    fn hello(
        &self,
        uid: u32,
        socket: &str,
        hello: Hello,
    ) -> Result<Arc<dyn AggregatorLink>, (RefusalKind, String)> {
        let path = self.path(socket);
        let told = as_user(uid, &[uid, BACK_ENDS], || connect(&path, hello, &LinkTimeouts::none())).unwrap();
        match told {
            Ok((link, _)) => Ok(link),
            Err(LinkError::Refused { kind, message }) => Err((kind, message)),
            Err(other) => panic!("{other}: {}", self.aggregator.said()),
        }
    }

    fn call(&self, method: &str, params: &Value) -> Value {
        ask(&self.path("gpu0.control"), method, params).unwrap()
    }

    fn tenants(&self) -> Vec<Value> {
        self.call("status", &json!({}))["result"]["tenants"].as_array().unwrap().clone()
    }

    /// Waits until nobody is there.
    fn empty(&self) {
        until("all have left", || self.tenants().is_empty());
    }
}

/// Asks at a control socket.
fn ask(path: &Path, method: &str, params: &Value) -> std::io::Result<Value> {
    let mut socket = UnixStream::connect(path)?;
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    // Who is turned away may be so before he has asked.
    let _ = socket.write_all(format!("{call}\n").as_bytes());
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line)?;
    Ok(serde_json::from_str(&line).unwrap())
}

const OPEN: &str =
    "[socket]\npath = \"gpu0.sock\"\nmode = \"0666\"\n[control]\npath = \"gpu0.control\"\nmode = \"0600\"\n";

fn small(name: &str) -> Hello {
    Hello { channels: 1, ..tenant::hello(name, 16 << 20) }
}

#[test]
fn one_user_cannot_take_all_places_nor_raise_its_share() {
    if cannot_be_others() {
        return;
    }
    let place = Place::with(OPEN, "");
    let heavy = Hello { share: Share { weight: 10_000, ..Share::default() }, ..small("vm0") };
    let (kind, said) = place.hello(STRANGER, "gpu0.sock", heavy).err().unwrap();
    assert!(
        kind == RefusalKind::Quota && said.contains("weight 10000 is asked for, more than the 100"),
        "{said}"
    );

    let _first = place.hello(STRANGER, "gpu0.sock", small("vm0")).unwrap();
    for number in 1..4 {
        let (kind, said) = place.hello(STRANGER, "gpu0.sock", small(&format!("vm{number}"))).err().unwrap();
        assert!(
            kind == RefusalKind::Name && said.contains("user 12345 has a VM at this GPU already, vm0"),
            "{said}"
        );
    }
    let _honest = place.hello(OTHER, "gpu0.sock", small("honest")).unwrap();
    let tenants = place.tenants();
    assert_eq!(tenants.len(), 2);
    assert_eq!((&tenants[0]["uid"], &tenants[0]["vouched"]), (&json!(STRANGER), &json!(false)));
}

#[test]
fn one_process_of_the_aggregators_user_cannot_take_all_places() {
    let place = Place::with(OPEN, "");
    let mut links = Vec::new();
    let refused = (0..64).find_map(|number| {
        let hello = Hello { channels: 1, ..tenant::hello(&format!("vm{number}"), 1 << 20) };
        match connect(&place.path("gpu0.sock"), hello, &LinkTimeouts::none()) {
            Ok((link, _)) => {
                links.push(link);
                None
            }
            Err(error) => Some(error.to_string()),
        }
    });
    assert_eq!(links.len(), 16);
    assert!(refused.is_some_and(|said| said.contains("has 16 VMs here already")));
}

#[test]
fn pause_holds_under_another_name_until_an_operator_ends_it() {
    if cannot_be_others() {
        return;
    }
    let place = Place::with(OPEN, "");
    let first =
        BackEnd::start(STRANGER, &place.path("gpu0.sock"), "vm1").unwrap_or_else(|said| panic!("{said}"));
    assert_eq!(place.call("vm.pause", &json!({ "vm": "vm1" }))["result"]["paused"], true);
    place.call("vm.set", &json!({ "vm": "vm1", "settings": ["weight=1"] }));
    drop(first);
    place.empty();

    let _link = place.hello(STRANGER, "gpu0.sock", small("vm1b")).unwrap();

    let tenants = place.tenants();
    assert_eq!((&tenants[0]["name"], &tenants[0]["paused"]), (&json!("vm1b"), &json!(true)));
    assert_eq!(tenants[0]["share"]["weight"], 1);
    assert_eq!(place.call("vm.resume", &json!({ "vm": "vm1b" }))["result"]["paused"], false);
}

/// A list: `vm1` is the stranger's, and whoever comes by its socket is `vm2`.
fn listed() -> String {
    format!(
        "[[vm]]\nname = \"vm1\"\nuser = {STRANGER}\nvram = \"32M\"\nweight = 300\n\
         [[vm]]\nname = \"vm2\"\nvram = \"32M\"\n[vm.socket]\npath = \"vm2.sock\"\nmode = \"0666\"\n"
    )
}

#[test]
fn names_of_the_list_are_their_users_alone() {
    if cannot_be_others() {
        return;
    }
    let place = Place::with(OPEN, &listed());
    for (uid, socket, hello, said) in [
        (OTHER, "gpu0.sock", small("vm1"), "user 12346 may be vm1 here; it may be none"),
        (STRANGER, "gpu0.sock", small("vm3"), "user 12345 may be vm3 here; it may be vm1"),
        (STRANGER, "gpu0.sock", small("vm2"), "it may be vm1"),
        (STRANGER, "vm2.sock", small("vm1"), "it may be vm2"),
        (0, "gpu0.sock", small("vm1"), "user 0 may be vm1 here"),
        (STRANGER, "gpu0.sock", tenant::hello("vm1", 48 << 20), "the GPU's file allows vm1 32 MiB"),
        (STRANGER, "gpu0.sock", Hello { channels: 33, ..small("vm1") }, "the GPU's file allows vm1 32"),
        (STRANGER, "gpu0.sock", small("-vm1"), "begins with no '-' and no '.'"),
    ] {
        let (_, found) = place.hello(uid, socket, hello).err().unwrap();
        assert!(found.contains(said), "{uid} at {socket}: {found}");
    }
    let _one = place.hello(STRANGER, "gpu0.sock", small("vm1")).unwrap();
    let _two = place.hello(OTHER, "vm2.sock", small("vm2")).unwrap();
    assert_eq!(place.call("status", &json!({}))["result"]["gpu"]["refused_hellos"], 8);
    let tenants = place.tenants();
    assert_eq!(tenants[0]["share"]["weight"], 300);
    assert_eq!(tenants[1]["vouched"], true);
}

#[test]
fn list_changes_by_order_and_reaches_those_who_come_next() {
    if cannot_be_others() {
        return;
    }
    let place = Place::with(OPEN, &listed());
    assert!(place.hello(OTHER, "gpu0.sock", small("vm3")).is_err());
    let guest =
        json!({ "name": "vm3", "uid": OTHER, "vram": 32 << 20, "channels": 4, "share": ["weight=50"] });
    assert_eq!(place.call("vm.allow", &guest)["result"]["name"], "vm3");
    let first =
        BackEnd::start(OTHER, &place.path("gpu0.sock"), "vm3").unwrap_or_else(|said| panic!("{said}"));
    assert_eq!(place.tenants()[0]["share"]["weight"], 50);
    assert_eq!(place.call("vm.forbid", &json!({ "vm": "vm3" }))["result"]["vm"], "vm3");
    drop(first);
    place.empty();
    assert!(place.hello(OTHER, "gpu0.sock", small("vm3")).is_err());
    let anybody = json!({ "name": "vm4", "vram": 32 << 20, "channels": 4 });
    assert_eq!(place.call("vm.allow", &anybody)["error"]["code"], -32002);
}

#[test]
fn user_who_does_not_exist_is_named_with_the_line_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "name = \"gpu0\"\nbackend = \"soft\"\n{OPEN}[[vm]]\nname = \"vm1\"\nuser = \"no-such-user-here\"\nvram = \"32M\"\n"
    );
    std::fs::write(folder.path().join("gpu0.toml"), text).unwrap();
    let mut aggregator = Daemon::start(folder.path(), "gpu0", &["aggregator", "gpu0.toml"]);
    assert!(!aggregator.end().success());
    let said = aggregator.said();
    assert!(said.contains("gpu0.toml: line 9: `vm[1].user`: \"no-such-user-here\" is no user"), "{said}");
    assert!(!folder.path().join("gpu0.sock").exists() && !folder.path().join("gpu0.control").exists());
}

/// Sockets with the groups of the packaged files, by number.
fn packaged(more: &str) -> String {
    format!(
        "[socket]\npath = \"gpu0.sock\"\nmode = \"0660\"\ngroup = \"{BACK_ENDS}\"\n\
         [control]\npath = \"gpu0.control\"\nmode = \"0660\"\ngroup = \"{OPERATORS}\"\n{more}"
    )
}

#[test]
fn qemus_user_reaches_neither_operators_socket_nor_back_ends() {
    if cannot_be_others() {
        return;
    }
    let place = Place::with(&packaged(""), "");
    for socket in ["gpu0.sock", "gpu0.control"] {
        let path = place.path(socket);
        let kind = if socket.ends_with("sock") {
            rustix::net::SocketType::SEQPACKET
        } else {
            rustix::net::SocketType::STREAM
        };
        let there = as_user(STRANGER, &[QEMUS], || gpuvmk::host::socket_path::connect(&path, kind).map(drop));
        assert_eq!(there.unwrap().unwrap_err().kind(), ErrorKind::PermissionDenied, "{socket}");
    }
    let path = place.path("gpu0.control");
    let operator = as_user(STRANGER, &[STRANGER, OPERATORS], || ask(&path, "status", &json!({}))).unwrap();
    assert!(operator.unwrap()["result"]["tenants"].is_array(), "an operator may");
    let back_end = as_user(STRANGER, &[STRANGER, BACK_ENDS], || ask(&path, "status", &json!({}))).unwrap();
    assert_eq!(back_end.unwrap_err().kind(), ErrorKind::PermissionDenied, "a back end is no operator");
}

#[test]
fn who_is_not_on_a_sockets_list_is_told_so_and_counted() {
    if cannot_be_others() {
        return;
    }
    let lists = OPEN
        .replace("mode = \"0666\"", &format!("mode = \"0666\"\nallow_users = [{OTHER}]"))
        .replace("mode = \"0600\"", &format!("mode = \"0666\"\nallow_users = [{OTHER}]"));
    let place = Place::with(&lists, "");
    let path = place.path("gpu0.control");
    let answer = |uid| as_user(uid, &[uid], || ask(&path, "version", &json!({})).unwrap()).unwrap();
    let refused = answer(STRANGER);
    assert_eq!(refused["error"]["code"], -32003, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("user 12345"), "{refused}");
    assert!(answer(OTHER)["result"].is_object() && answer(0)["result"].is_object());

    let (kind, said) = place.hello(STRANGER, "gpu0.sock", small("vm1")).err().unwrap();
    assert!(
        kind == RefusalKind::Name && said.contains("user 12345 is not among the `allow_users`"),
        "{said}"
    );
    let _link = place.hello(OTHER, "gpu0.sock", small("vm1")).unwrap();
    assert_eq!(place.call("status", &json!({}))["result"]["gpu"]["refused_peers"], 2);
    assert!(place.aggregator.said().contains("of user 12345 was refused, whom `allow_users` does not name"));
}
