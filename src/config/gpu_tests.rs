//! Files of GPUs: their back ends, and the VMs that may come.

use super::*;
use crate::gpu::rm::Timeslice;

const RM: &str = "name = \"gpu0\"\nbackend = \"rm\"\n[socket]\npath = \"g\"\n";
const VFIO: &str = "name = \"gpu0\"\nbackend = \"vfio\"\ndevice = \"65:00.0\"\n[socket]\npath = \"g\"\n";

#[test]
fn gpu_backends_have_their_defaults() {
    let soft = gpu(SOFT).expect("valid");
    assert_eq!(
        soft.backend,
        Backend::Soft {
            chip: Chip::GF100,
            vram: 1 << 30,
            preemption: Preemption::Anywhere,
            workers: Workers::ONE
        }
    );
    let modern = gpu(&format!("chip = \"GH100\"\nvram = \"96G\"\n{SOFT}")).expect("valid");
    assert_eq!(
        modern.backend,
        Backend::Soft {
            chip: Chip::GH100,
            vram: 96 << 30,
            preemption: Preemption::Anywhere,
            workers: Workers::of_machine()
        }
    );
    let rm = gpu(RM).expect("valid");
    let timeslice = Timeslice::default();
    assert_eq!(rm.backend, Backend::Rm { device: None, chip: None, vram: 16 << 30, uid: 65_534, timeslice });
    assert_eq!(rm.backend.chip(), None);
    assert_eq!(gpu(&format!("chip = \"AD104\"\n{RM}")).expect("valid").backend.chip(), Some(Chip::AD104));
    let card = gpu(VFIO).expect("valid");
    let device = PciAddress { domain: 0, bus: 0x65, device: 0, function: 0 };
    assert_eq!(card.backend, Backend::Vfio { device, chip: Chip::GF100, init: None, vbios: None });
    let Backend::Vfio { init, .. } = gpu(&format!("init = \"card.init\"\n{VFIO}")).expect("valid").backend
    else {
        panic!()
    };
    assert_eq!(init.as_deref(), Some(Path::new("/etc/gpuvmk/card.init")));
    let found = mistakes(gpu(&format!("init = \"card.init\"\n{SOFT}")));
    assert!(found.len() == 1 && found[0].key == "init" && found[0].problem.contains("vfio"), "{found:?}");
    for other in [SOFT, RM] {
        let found = mistakes(gpu(&format!("vbios = \"card.rom\"\n{other}")));
        assert!(found.len() == 1 && found[0].key == "vbios", "{found:?}");
    }
    assert_eq!(card.hang, HangLimits::of_real_gpu());
}

#[test]
fn workers_are_a_number_for_chips_whose_shaders_are_executed() {
    let with = |chip: &str, workers: &str| gpu(&format!("chip = \"{chip}\"\nworkers = {workers}\n{SOFT}"));
    for count in [1, 2, 32] {
        let Backend::Soft { workers, .. } = with("AD104", &count.to_string()).expect("valid").backend else {
            panic!()
        };
        assert_eq!(Some(workers), Workers::new(count));
    }
    for wrong in ["0", "33", "-1", "\"all\"", "1.5"] {
        let found = mistakes(with("AD104", wrong));
        let [mistake] = found.as_slice() else { panic!("{found:?}") };
        assert!(mistake.key == "workers" && mistake.allowed == "a whole number from 1 to 32", "{mistake}");
        assert_eq!(mistake.line, 2, "{mistake}");
    }
    let found = mistakes(with("GF100", "2"));
    assert!(found.len() == 1 && found[0].problem.contains("whose shaders"), "{found:?}");
    for other in [RM, VFIO] {
        let found = mistakes(gpu(&format!("workers = 2\n{other}")));
        assert!(found.len() == 1 && found[0].problem.contains("backend = \"soft\""), "{found:?}");
    }
}

#[test]
fn slice_of_a_real_gpu_is_in_microseconds() {
    let with = |slice: &str| gpu(&format!("timeslice = {slice}\n{RM}"));
    for micros in [500, 2000, 30_000] {
        let Backend::Rm { timeslice, .. } = with(&micros.to_string()).expect("valid").backend else {
            panic!()
        };
        assert_eq!(Some(timeslice), Timeslice::new(micros));
    }
    for wrong in ["499", "30001", "-1", "\"2 ms\"", "2.5"] {
        let found = mistakes(with(wrong));
        let [mistake] = found.as_slice() else { panic!("{found:?}") };
        let allowed = "a whole number of microseconds from 500 to 30000";
        assert!(mistake.key == "timeslice" && mistake.allowed == allowed, "{mistake}");
    }
    for other in [SOFT, VFIO] {
        let found = mistakes(gpu(&format!("timeslice = 2000\n{other}")));
        assert!(found.len() == 1 && found[0].problem.contains("backend = \"rm\""), "{found:?}");
    }
}

#[test]
fn card_needs_an_address() {
    let found = mistakes(gpu(&VFIO.replace("device = \"65:00.0\"\n", "")));
    let [mistake] = found.as_slice() else { panic!("{found:?}") };
    assert!(mistake.key == "device" && mistake.allowed.contains("gpuvmk gpu list"), "{mistake}");
    let found = mistakes(gpu(&VFIO.replace("65:00.0", "65")));
    assert!(found.len() == 1 && found[0].problem.contains("is not a PCI address"), "{found:?}");
}

#[test]
fn real_gpu_is_chosen_by_address() {
    let device = |value: &str| {
        gpu(&format!("device = {value}\nuid = 1000\nvram = \"64G\"\n{RM}")).map(|config| config.backend)
    };
    let timeslice = Timeslice::default();
    let at = |device| Backend::Rm { device: Some(device), chip: None, vram: 64 << 30, uid: 1000, timeslice };
    let address = PciAddress { domain: 0, bus: 0x65, device: 0, function: 0 };
    assert_eq!(device("\"0000:65:00.0\"").expect("valid"), at(address));
    assert_eq!(device("\"65:00.0\"").expect("valid"), at(address));
    let far = PciAddress { domain: 0x1_0000, bus: 0xff, device: 0x1f, function: 7 };
    assert_eq!(device("\"00010000:FF:1f.7\"").expect("valid"), at(far));
    assert_eq!(far.to_string(), "10000:ff:1f.7");
    for bad in [
        "3",
        "-1",
        "\"\"",
        "\"65:00\"",
        "\"65:20.0\"",
        "\"65:00.8\"",
        "\"0:0:65:00.0\"",
        "\"+5:00.0\"",
        "true",
    ] {
        let text = only_mistake(RM, &format!("device = {bad}"));
        assert!(text.contains("`device`") && text.contains("0000:65:00.0"), "{text}");
    }
}

#[test]
fn keys_of_the_other_backend_are_refused_with_the_reason() {
    let cases = [
        (SOFT, "device = 0", "`device`: belongs to `backend = \"rm\"` and `\"vfio\"`"),
        (SOFT, "uid = 1000", "`uid`: belongs to `backend = \"rm\"`"),
        (RM, "vram = \"2048G\"", "`vram`: \"2048G\" is out of range"),
        (RM, "chip = \"GF100\"", "`chip`: cannot be served by the NVIDIA driver"),
        (
            RM,
            "uid = 0",
            "`uid`: 0 is out of range (allowed: the number of a user from 1 to 4294967294, not root)",
        ),
        (VFIO, "vram = \"1G\"", "`vram`: belongs to `backend = \"soft\"` and `\"rm\"`"),
        (VFIO, "uid = 1000", "`uid`: belongs to `backend = \"rm\"`"),
        (VFIO, "preemption = \"methods\"", "`preemption`: belongs to `backend = \"soft\"`"),
        (VFIO, "chip = \"GH100\"", "`chip`: has no driver here that works by registers"),
        (SOFT, "vram = \"64G\"", "from \"64M\" to \"32G\" for a GF100"),
        (SOFT, "vram = \"100M\"", "is not a multiple of 16M"),
    ];
    for (base, line, expected) in cases {
        let text = only_mistake(base, line);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn gpu_is_recorded_at_a_socket_and_to_no_file() {
    let text = |trace: &str| {
        format!("name = \"gpu0\"\nbackend = \"soft\"\n[socket]\npath = \"gpu0.sock\"\n{trace}\n")
    };
    let config = gpu(&text("[trace.socket]\npath = \"gpu0.record\"\nmode = \"0600\"")).expect("valid");
    assert_eq!(config.recorder.map(|spec| spec.mode), Some(0o600));
    assert_eq!(gpu(&text("")).expect("valid").recorder, None);
    let found = mistakes(gpu(&text("[trace]\npath = \"gpu0.trace\"")));
    assert!(found.iter().any(|mistake| mistake.key.ends_with("path")), "{found:?}");
    mistakes(gpu(&text("[trace.socket]\nmode = \"0600\"")));
}

const GPU: &str = "name = \"gpu0\"\nbackend = \"soft\"\n[socket]\npath = \"s\"\n";

#[test]
fn vms_that_may_come_are_read_with_what_they_may_have() {
    let text = format!(
        "{GPU}allow_users = [\"root\", 1000]\n\
         [[vm]]\nname = \"vm1\"\nuser = \"alice\"\nvram = \"256M\"\nweight = 300\n[vm.limits]\ndoorbells = 5000\n\
         [[vm]]\nname = \"vm2\"\nvram = \"64M\"\nchannels = 4\n[vm.socket]\npath = \"vm2.sock\"\n"
    );
    let config = gpu(&text).expect("valid");
    assert_eq!(config.socket.users, Some(vec!["root".to_owned(), "1000".to_owned()]));
    let vms = config.vms.expect("given");
    assert_eq!((vms[0].name.as_str(), vms[0].user.as_deref(), vms[0].line), ("vm1", Some("alice"), 6));
    assert_eq!((vms[0].vram, vms[0].channels, vms[0].share.weight), (256 << 20, DEFAULT_CHANNELS, 300));
    assert_eq!(vms[0].limits, EntryLimits { doorbells: 5000, ..EntryLimits::default() });
    assert_eq!(vms[1].user, None);
    assert_eq!(vms[1].socket.as_ref().expect("given").path, Path::new("/etc/gpuvmk/vm2.sock"));

    assert_eq!(gpu(GPU).expect("valid").vms, None, "nobody has said");
    assert_eq!(gpu(&format!("vm = []\n{GPU}")).expect("valid").vms, Some(Vec::new()), "nobody may");
}

#[test]
fn mistakes_of_vms_that_may_come_are_named_with_line_and_key() {
    let one = |section: &str| {
        let found = mistakes(gpu(&format!("{GPU}[[vm]]\n{section}\n")));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    };
    for (section, line, key, allowed) in [
        ("name = \"a\"\nvram = \"64M\"", 5, "vm[1].user", "`user`, a [vm.socket] section, or both"),
        ("name = \"-a\"\nuser = 1\nvram = \"64M\"", 6, "vm[1].name", "the first a letter or digit"),
        ("name = \"a\"\nuser = -1\nvram = \"64M\"", 7, "vm[1].user", "name or number of a user"),
        ("name = \"a\"\nuser = 4294967295\nvram = \"64M\"", 7, "vm[1].user", "name or number of a user"),
        ("name = \"a\"\nuser = 1\nvram = \"7G\"", 8, "vm[1].vram", "to \"6G\" for a GF100"),
        ("name = \"a\"\nuser = 1\nvram = \"64M\"\nweight = 0", 9, "vm[1].weight", "from 1 to 10000"),
        (
            "name = \"a\"\nuser = 1\nvram = \"64M\"\n[vm.limits]\nflushes = 100",
            10,
            "vm[1].limits.flushes",
            "doorbells",
        ),
        (
            "name = \"a\"\nuser = 1\nvram = \"64M\"\n[[vm]]\nname = \"a\"\nuser = 2\nvram = \"64M\"",
            10,
            "vm[2].name",
            "one section for each VM",
        ),
    ] {
        let found = one(section);
        assert_eq!((found.line, found.key.as_str()), (line, key), "{found}");
        assert!(found.allowed.contains(allowed), "{found}");
    }
    let found = mistakes(gpu(&format!("{GPU}allow_users = \"root\"\n")));
    assert_eq!((found[0].line, found[0].key.as_str()), (5, "socket.allow_users"), "{}", found[0]);
}
