//! Messages as NVIDIA's driver 550.163.01 sends them, with a word of each that lies.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::calls::still_works;
use super::driver::{CHANNEL, CLIENT, DEVICE, ENGINE, Gpu, SPACE, words};
use super::nvidia::{self, Pushbuffer, parameters};
use super::rpc::{self, Gsp, put, seal};
use crate::attack::random::Random;
use crate::attack::tool::{TO, Tool};
use crate::attack::{Outcome, Seen, Stage};

/// Functions of this version beside those of all.
const GUEST_SYSTEM_INFO: u32 = 1;
const DUPLICATE: u32 = 21;
const SET_PAGE_DIRECTORY: u32 = 54;
const SYSTEM_INFO: u32 = 72;
const UNSET_PAGE_DIRECTORY: u32 = 79;

/// Objects of an honest driver, to lie about.
const OTHER_CLIENT: u32 = CLIENT + 1;
const SUBDEVICE: u32 = 0x2080_0001;
const OWN_SPACE: u32 = SPACE + 2;
const GROUP: u32 = 0xa06c_0001;
const SHARE: u32 = 0x9067_0001;
const KERNELS: u32 = CHANNEL + 8;
/// New ones.
const NEW: u32 = 0x7777_0001;
/// The longest that a message may take.
const LIMIT: Duration = Duration::from_secs(2);

/// A message: its function, and its body.
type Message = (u32, Vec<u8>);

/// Sizes of the parameters of controls, by the control, of a subdevice.
const CONTROLS: &[(u32, usize)] = &[
    (0x2080_0102, 524),
    (0x2080_0110, 132),
    (0x2080_012b, 560),
    (0x2080_012c, 20),
    (0x2080_012f, 1024),
    (0x2080_013f, 136),
    (0x2080_01b0, 1284),
    (0x2080_0301, 20),
    (0x2080_0a1c, 40),
    (0x2080_0a1d, 520),
    (0x2080_0a22, 23072),
    (0x2080_0a26, 2368),
    (0x2080_0a2a, 3584),
    (0x2080_0a32, 1664),
    (0x2080_0a36, 88),
    (0x2080_0a40, 9220),
    (0x2080_0a51, 40),
    (0x2080_0a5c, 2068),
    (0x2080_0a61, 8),
    (0x2080_0a9b, 2064),
    (0x2080_0a9d, 24032),
    (0x2080_0a9f, 184),
    (0x2080_1112, 3212),
    (0x2080_1210, 32),
    (0x2080_1303, 444),
    (0x2080_1803, 200),
    (0x2080_1823, 420),
    (0x2080_2a02, 8),
    (0x2080_2a05, 152),
    (0x2080_2a07, 8),
    (0x2080_2a0b, 136),
    (0x2080_3032, 1420),
    (0x2080_302c, 532),
];

/// The same of other objects.
const CONTROLS_OF: &[(u32, u32, usize)] = &[
    (DEVICE, 0x0080_0294, 4),
    (DEVICE, 0x0080_1813, 32),
    (DEVICE, 0x0080_1814, 8),
    (OWN_SPACE, 0x90f1_0106, 184),
    (GROUP, 0xa06c_0101, 2),
    (GROUP, 0xa06c_0103, 8),
    (GROUP, 0xa06c_0105, 8),
    (GROUP, 0xa06c_010a, 88),
    (KERNELS, 0xa06f_0103, 2),
    (KERNELS, 0xa06f_0104, 4),
    (KERNELS, 0xa06f_0112, 1),
    (KERNELS, 0xc36f_0108, 4),
];

/// An allocation.
fn alloc(client: u32, parent: u32, class: u32, parameters: &[u8]) -> Message {
    let size = u32::try_from(parameters.len()).unwrap_or(u32::MAX);
    (rpc::ALLOC, [&words(&[client, parent, NEW, class, 0, size, 0, 0]), parameters].concat())
}

fn control(object: u32, command: u32, size: usize) -> Message {
    let mut body = words(&[CLIENT, object, command, 0, u32::try_from(size).unwrap_or(u32::MAX), 0]);
    body.resize(24 + size, 0);
    (rpc::CONTROL, body)
}

/// Where page tables are, of a device's space.
fn directory(space: u32, address: u32) -> Message {
    (SET_PAGE_DIRECTORY, words(&[CLIENT, DEVICE, 0, 0, address, 0, 2, 9, space, 0, 1, u32::MAX]))
}

fn duplicate(parent: u32, source: u32) -> Message {
    (DUPLICATE, words(&[OTHER_CLIENT, parent, NEW, CLIENT, source, 0, 0]))
}

/// A channel with a notifier of errors in VRAM, whosever it is.
fn channel(gpu: &Gpu<'_>, push: &Pushbuffer, parent: u32, privilege: u32) -> Message {
    let mut parameters = parameters(9, push, 0, ENGINE);
    put(&mut parameters, nvidia::PRIVILEGE, &[privilege, 0x30_0000, 0, 16, 0, 2, 0]);
    put(&mut parameters, 0x18, &[if parent == GROUP { SHARE } else { 0 }]);
    put(&mut parameters, 0x1c, &[if parent == GROUP { 0 } else { SPACE }]);
    alloc(CLIENT, parent, gpu.generation.channel, &parameters)
}

/// What an honest driver would say, each message once.
fn messages(gpu: &Gpu<'_>, push: &Pushbuffer) -> Vec<Message> {
    let padded = |first: &[u32], size: usize| {
        let mut raw = words(first);
        raw.resize(size, 0);
        raw
    };
    let mut all = vec![
        (GUEST_SYSTEM_INFO, vec![0; 792]),
        (rpc::STATIC_INFO, vec![0; 2184]),
        (rpc::UPDATE_BAR_PDE, padded(&[1, 0, 0, 0, 56, 0], 24)),
        (rpc::UPDATE_BAR_PDE, padded(&[0, 0, 0, 0, 56, 0], 24)),
        directory(OWN_SPACE, 0x40_0000),
        directory(0, 0x41_0000),
        (UNSET_PAGE_DIRECTORY, words(&[CLIENT, DEVICE, OWN_SPACE, 1])),
        duplicate(DEVICE, OWN_SPACE),
        duplicate(DEVICE, GROUP),
        duplicate(DEVICE, SHARE),
        (rpc::ALLOC_MEMORY, padded(&[CLIENT, DEVICE, NEW, 0x3e, 0, 0, 0, 0, 1, 1, 1], 0x40)),
        alloc(CLIENT, 0, 0, &padded(&[NEW, u32::MAX], 0x6c)),
        alloc(CLIENT, CLIENT, 0x80, &[0; 0x38]),
        alloc(CLIENT, DEVICE, 0x2080, &[0; 4]),
        alloc(CLIENT, DEVICE, 0x90f1, &padded(&[0, 0x48], 0x30)),
        alloc(CLIENT, DEVICE, 0x90f1, &padded(&[3], 0x30)),
        alloc(CLIENT, DEVICE, 0x0070, &[0; 0x18]),
        alloc(CLIENT, DEVICE, 0xa06c, &words(&[0, 0, OWN_SPACE, ENGINE, 0])),
        alloc(CLIENT, GROUP, 0x9067, &words(&[OWN_SPACE, 1, 0x3f])),
        alloc(CLIENT, GROUP, 0xc574, &words(&[CLIENT, KERNELS])),
        alloc(CLIENT, KERNELS, 0xc076, &[]),
        alloc(CLIENT, KERNELS, gpu.generation.copy, &words(&[1, ENGINE])),
        alloc(CLIENT, DEVICE, 0x83de, &[0; 0xc]),
        alloc(CLIENT, SUBDEVICE, 0x7e, &[0; 0x18]),
        alloc(CLIENT, SUBDEVICE, 0x402c, &[]),
    ];
    for parent in [DEVICE, GROUP] {
        all.extend([0, 1, 2].map(|privilege| channel(gpu, push, parent, privilege)));
    }
    all.extend(CONTROLS.iter().map(|(command, size)| control(SUBDEVICE, *command, *size)));
    // The last, since it may take everything away.
    let free = (rpc::FREE, words(&[CLIENT, DEVICE, NEW, 0]));
    all.extend(CONTROLS_OF.iter().map(|(object, command, size)| control(*object, *command, *size)));
    all.push(free);
    all
}

/// Makes the objects that messages are about.
fn furnish(gpu: &mut Gpu<'_>, push: &Pushbuffer) -> Result<()> {
    let mut space = words(&[0, 0x48]);
    space.resize(0x30, 0);
    let channel = gpu.generation.channel;
    let made = [
        gpu.alloc(DEVICE, SUBDEVICE, 0x2080, &[0; 4])?,
        gpu.alloc(DEVICE, OWN_SPACE, 0x90f1, &space)?,
        gpu.call(SET_PAGE_DIRECTORY, &directory(OWN_SPACE, 0x40_0000).1)?.result,
        gpu.alloc(DEVICE, GROUP, 0xa06c, &words(&[0, 0, OWN_SPACE, ENGINE, 0]))?,
        gpu.alloc(GROUP, SHARE, 0x9067, &words(&[OWN_SPACE, 1, 0x3f]))?,
        gpu.alloc(DEVICE, KERNELS, channel, &parameters(8, push, SPACE, ENGINE))?,
        gpu.control(KERNELS, super::driver::SCHEDULE, &[1, 0])?,
    ];
    let mut root = words(&[OTHER_CLIENT, u32::MAX]);
    root.resize(0x6c, 0);
    for (parent, object, class, parameters) in
        [(0, OTHER_CLIENT, 0, &root[..]), (OTHER_CLIENT, DEVICE, 0x80, &[0; 0x38])]
    {
        let size = u32::try_from(parameters.len())?;
        let head = words(&[OTHER_CLIENT, parent, object, class, 0, size, 0, 0]);
        ensure!(gpu.call(rpc::ALLOC, &[&head, parameters].concat())?.result == 0, "no second client");
    }
    ensure!(made == [0; 7], "an honest driver's objects were refused: {made:x?}");
    Ok(())
}

/// A word that is not what belongs there.
fn lie(random: &mut Random, vram: u64) -> u32 {
    let vram = crate::attack::low(vram);
    let known = [
        0,
        1,
        u32::MAX,
        u32::MAX - 0xff,
        1 << 31,
        CLIENT,
        OTHER_CLIENT,
        DEVICE,
        SUBDEVICE,
        OWN_SPACE,
        GROUP,
        SHARE,
        KERNELS,
        CHANNEL + 3,
        NEW,
        SPACE,
        0x1000,
        0x1001,
        vram,
        vram - 4,
        0xa06c,
        0xc86f,
        0xc36f,
        0x90f1,
    ];
    match random.below(4) {
        0 => random.word(),
        1 => random.below(0x400),
        _ => known.get(random.below(24) as usize).copied().unwrap_or(0),
    }
}

/// Sends an element as it is, with its parameters behind the length that it says.
fn send_short(gpu: &mut Gpu<'_>, function: u32, body: &[u8], length: u32) {
    let mut raw = gpu.gsp.element(function, body);
    put(&mut raw, 56, &[length]);
    seal(raw.get_mut(..48 + usize::try_from(length).unwrap_or(0)).unwrap_or_default());
    gpu.gsp.push(gpu.memory, &raw);
    Gsp::ring(gpu.card);
}

/// Every message of this version with one and two words that lie, cut off, and longer than it says.
pub fn lies(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = nvidia::timed(stage)?;
    let push = Pushbuffer::new(rig.gpu.memory, &mut rig.space, 0x2_0000_0000)?;
    push.fill(rig.gpu.memory, &nvidia::semaphore(TO + 0x800, 2, 0), 0x100);
    furnish(&mut rig.gpu, &push)?;
    let all = messages(&rig.gpu, &push);
    let (mut random, mut sent, mut refused, mut slowest) = (Random::new(550), 0u64, 0u64, Duration::ZERO);
    // Each message in turn, and lies about its beginning first: time may not suffice for all.
    for word in (0..).take_while(|word| time.goes_on() || *word == 0) {
        for (function, body) in &all {
            let mut lying = body.clone();
            let words = (body.len() / 4).max(1);
            let at = if word % 2 == 0 { word / 2 } else { random.below(64) as usize } % words;
            put(&mut lying, at * 4, &[lie(&mut random, rig.gpu.vram)]);
            if word % 3 == 2 {
                let at = random.below(u32::try_from(words)?) as usize;
                put(&mut lying, at * 4, &[lie(&mut random, rig.gpu.vram)]);
            }
            if word % 5 == 4 {
                lying.truncate(random.below(u32::try_from(lying.len() + 1)?) as usize);
            }
            let start = Instant::now();
            let answer = rig.gpu.call(*function, &lying)?;
            let took = start.elapsed();
            ensure!(took < LIMIT, "function {function} took {took:?}");
            slowest = slowest.max(took);
            refused += u64::from(answer.result != 0);
            rig.gpu.gsp.events.clear();
            sent += 1;
            // What was made is taken away, or there would soon be no room.
            if *function == rpc::ALLOC || *function == DUPLICATE {
                rig.gpu.free(NEW)?;
            }
            if *function == rpc::ALLOC {
                send_short(&mut rig.gpu, *function, &lying, 32 + 32);
                rig.gpu.gsp.listen(rig.gpu.memory);
                rig.gpu.gsp.events.clear();
                rig.gpu.free(NEW)?;
                sent += 1;
            }
            rig.gpu.ring(8, random.below(0x200));
            if !time.goes_on() && word > 0 {
                break;
            }
        }
        // The version once more, which objects keep it from being another.
        for bytes in [0, 4, 880, 936, 1024] {
            let info = rig.gpu.gsp.element(SYSTEM_INFO, &vec![0x5a; bytes]);
            rig.gpu.gsp.push(rig.gpu.memory, &info);
            Gsp::ring(rig.gpu.card);
        }
        // Lies have taken objects away.
        for client in [OTHER_CLIENT, CLIENT] {
            rig.gpu.call(rpc::FREE, &words(&[client, 0, client, 0]))?;
        }
        rig.gpu.open(&rig.space)?;
        furnish(&mut rig.gpu, &push)?;
        if rig.is_lost() {
            return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away"));
        }
    }
    drop(rig);
    let text = format!("{sent} lies, {refused} of them refused, slowest answer {} ms", slowest.as_millis());
    still_works(stage, text)
}
