//! Objects that only NVIDIA's own driver has: groups of channels, shares of their contexts, names of other
//! clients' objects, and channels for its own work.

use super::dialogue::Step;
use super::replay::{Answer, Talk};
use crate::model::tests::driver::{UNLOADING, words};
use gpuvmk_backend::testing::BackCall;
use gpuvmk_chip::addr::{Chid, GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, HostError, MmuFault, StopCause};
use gpuvmk_chip::{AccessKind, Aperture, Engine, FaultReason, PhysicalAddress};

pub(super) const CLIENT: u32 = 0xc1d0_0015;
pub(super) const UVM: u32 = 0xc1d0_0001;
pub(super) const DEVICE: u32 = 0x5c00_0002;
pub(super) const SPACE: u32 = 0x5c00_0007;
const GROUP: u32 = 0x5c00_0012;
const SHARE: u32 = 0x5c00_0013;
pub(super) const CHANNEL: u32 = 0x5c00_0019;

pub(super) const OK: u32 = 0;
const INVALID_ARGUMENT: u32 = 0x1f;
const INVALID_OBJECT_HANDLE: u32 = 0x33;
const INVALID_OBJECT_PARENT: u32 = 0x36;
const INVALID_STATE: u32 = 0x40;
const NOT_SUPPORTED: u32 = 0x56;
const OBJECT_NOT_FOUND: u32 = 0x57;
const STATE_IN_USE: u32 = 0x63;

/// Makes an object; the status. The result of the message must say the same.
pub(super) fn alloc(talk: &mut Talk, names: [u32; 3], class: u32, parameters: Vec<u8>) -> u32 {
    let Answer { result, status, .. } = talk.step(&Step::Alloc { names, class, parameters }).unwrap();
    assert_eq!(result, status, "the driver looks at the result");
    status
}

fn duplicate(talk: &mut Talk, names: [u32; 3], source: [u32; 2]) -> u32 {
    let Answer { result, status, .. } = talk.step(&Step::Duplicate { names, source }).unwrap();
    assert_eq!(result, status);
    status
}

pub(super) fn control(talk: &mut Talk, to: [u32; 2], number: u32, parameters: Vec<u8>) -> u32 {
    let answer = talk.step(&Step::Control { to: Some(to), number, parameters }).unwrap();
    assert_eq!(answer.result, OK);
    answer.status
}

pub(super) fn free(talk: &mut Talk, names: [u32; 2]) -> u32 {
    talk.step(&Step::Free(names)).unwrap().status
}

/// SET_PAGE_DIRECTORY, as a message: the result.
pub(super) fn set_directory(talk: &mut Talk, client: u32, device: u32, space: u32, address: u32) -> u32 {
    let body = words(&[client, device, 0, 0, address, 0, 2, 8, space, 0, 1, !0]);
    talk.step(&Step::Rpc { function: 54, body }).unwrap().result
}

fn unset_directory(talk: &mut Talk, client: u32, device: u32, space: u32) -> u32 {
    talk.step(&Step::Rpc { function: 79, body: words(&[client, device, space, 1]) }).unwrap().result
}

fn space(flags: u32) -> Vec<u8> {
    let mut raw = words(&[0, flags]);
    raw.resize(48, 0);
    raw
}

/// The address space that a device has of itself.
fn space_of_device() -> Vec<u8> {
    let mut raw = words(&[3]);
    raw.resize(48, 0);
    raw
}

/// A channel: number, share, space, engine, and whose it is.
pub(super) fn channel(chid: u32, share: u32, space: u32, engine: u32, privilege: u32) -> Vec<u8> {
    let mut raw = vec![0; 360];
    let userd = 0x20_0000 + 0x200 * chid;
    for (at, word) in [
        (0x08, 0x60_0000),
        (0x0c, 2),
        (0x10, 1024),
        (0x14, 1 << 21 | (chid % 8) << 8 | (chid / 8) << 12),
        (0x18, share),
        (0x1c, space),
        (0x80, engine),
        (0xa8, userd),
        (0xb0, 0x200),
        (0xb8, 2),
        (0xf4, privilege),
    ] {
        raw[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
    }
    raw
}

fn client(talk: &mut Talk, client: u32) {
    let mut root = words(&[client, !0]);
    root.resize(108, 0);
    assert_eq!(alloc(talk, [client, 0, 0], 0, root), OK);
    assert_eq!(alloc(talk, [client, client, DEVICE], 0x80, vec![0; 56]), OK);
}

/// Two clients; the first has a group with a share of an address space that UVM has a name of, and has said
/// where its page tables are.
pub(super) fn cuda() -> Talk {
    let mut talk = Talk::new();
    talk.step(&Step::Boot);
    let mut info = words(&[0xfd00_0000, 0, 0xd000_0000, 0, 0xe000_0000, 0, 0x100]);
    info.resize(880, 0);
    talk.step(&Step::Rpc { function: 72, body: info });
    talk.step(&Step::Rpc { function: 73, body: words(&[8, 0]) });
    talk.step(&Step::Rpc { function: 65, body: vec![0; 2184] });
    client(&mut talk, CLIENT);
    client(&mut talk, UVM);
    assert_eq!(alloc(&mut talk, [CLIENT, DEVICE, SPACE], 0x90f1, space(0x48)), OK);
    assert_eq!(duplicate(&mut talk, [UVM, DEVICE, SPACE + 1], [CLIENT, SPACE]), OK);
    assert_eq!(set_directory(&mut talk, UVM, DEVICE, SPACE + 1, 0x40_1000), OK);
    assert_eq!(alloc(&mut talk, [CLIENT, DEVICE, GROUP], 0xa06c, words(&[0, 0, 0, 1, 0])), OK);
    assert_eq!(alloc(&mut talk, [CLIENT, GROUP, SHARE], 0x9067, words(&[SPACE, 1, 0x3f])), OK);
    talk
}

pub(super) const DIRECTORY: PhysicalAddress =
    PhysicalAddress { aperture: Aperture::Vram, address: 0x40_1000 };

#[test]
fn channels_of_a_group_have_the_page_tables_that_uvm_gave_and_run_together() {
    let mut talk = cuda();
    for chid in [7, 8] {
        assert_eq!(
            alloc(&mut talk, [CLIENT, GROUP, CHANNEL + chid], 0xc86f, channel(chid, SHARE, 0, 8 - chid, 0)),
            OK
        );
    }
    let directories: Vec<_> =
        talk.driver.back.live().values().map(|channel| channel.page_directory).collect();
    assert_eq!(directories, [DIRECTORY; 2]);
    // What graphics needs is set up by any of those that have the same share.
    assert_eq!(alloc(&mut talk, [CLIENT, GROUP, SHARE + 1], 0x9067, words(&[SPACE, 1, 0x3f])), OK);
    let mut contexts = talk.driver.back.live().values().map(|channel| channel.context_of).collect::<Vec<_>>();
    for (chid, share) in [(9, SHARE), (10, SHARE + 1), (11, SHARE + 1)] {
        let body = channel(chid, share, 0, 1, 0);
        assert_eq!(alloc(&mut talk, [CLIENT, GROUP, CHANNEL + chid], 0xc86f, body), OK);
        let created = talk.driver.back.live();
        contexts.push(created.values().last().and_then(|channel| channel.context_of));
        assert_eq!(free(&mut talk, [CLIENT, CHANNEL + chid]), OK);
    }
    assert_eq!(contexts, [None, Some(GuestChannel(0)), Some(GuestChannel(0)), None, None]);

    talk.driver.back.calls();
    assert_eq!(control(&mut talk, [CLIENT, GROUP], 0xa06c_0101, vec![1, 0]), OK);
    let run = BackCall::Schedule;
    assert_eq!(talk.driver.back.calls(), [run(0, true), run(1, true)]);
    assert_eq!(control(&mut talk, [CLIENT, CHANNEL + 8], 0xa06f_0112, vec![0]), OK);
    assert_eq!(talk.driver.back.calls(), [run(1, false)]);
    // They go with their group.
    assert_eq!(free(&mut talk, [CLIENT, GROUP]), OK);
    assert!(talk.driver.back.live().is_empty());
}

#[test]
fn place_in_the_ring_of_an_earlier_channel_is_forgotten() {
    let mut talk = cuda();
    let userd = PhysicalAddress { aperture: Aperture::Vram, address: 0x20_0000 + 0x200 * 7 + 0x88 };
    talk.driver.back.put_vram(userd.address - 4, &[0xff; 16]);

    assert_eq!(alloc(&mut talk, [CLIENT, GROUP, CHANNEL], 0xc86f, channel(7, SHARE, 0, 1, 0)), OK);

    let left = talk.driver.back.vram(userd.address - 4, 16);
    assert_eq!(left, [[0xff; 4], [0; 4], [0; 4], [0xff; 4]].concat());
}

#[test]
fn channels_for_the_drivers_own_work_are_not_at_the_back() {
    let mut talk = cuda();
    // In no address space at all so far: its device's.
    assert_eq!(alloc(&mut talk, [UVM, DEVICE, CHANNEL], 0xc86f, channel(0, 0, 0, 10, 2)), OK);
    assert_eq!(alloc(&mut talk, [UVM, CHANNEL, 0x17], 0xc076, Vec::new()), OK);
    assert_eq!(alloc(&mut talk, [UVM, CHANNEL, 0x18], 0xc8b5, words(&[1, 10])), OK);
    assert_eq!(control(&mut talk, [UVM, CHANNEL], 0xa06f_0103, vec![1, 0]), OK);
    assert!(talk.driver.back.live().is_empty());
    assert_eq!(talk.driver.gsp.doorbell_target(1, Chid(0)), None);
    // A user's is, and needs page tables.
    assert_eq!(alloc(&mut talk, [UVM, DEVICE, CHANNEL + 1], 0xc86f, channel(1, 0, 0, 10, 0)), INVALID_STATE);
    let mut pdes = words(&[0, 0, 0x2000_0000, 0, 0, 1, 0x1fff_ffff, 1, 1, 0, 0x50_0000, 0, 16, 0, 1, 56]);
    pdes.resize(184, 0);
    assert_eq!(alloc(&mut talk, [UVM, DEVICE, 0xc], 0x90f1, space_of_device()), OK);
    assert_eq!(control(&mut talk, [UVM, 0xc], 0x90f1_0106, pdes), OK);
    assert_eq!(free(&mut talk, [UVM, 0xc]), OK);
    assert_eq!(alloc(&mut talk, [UVM, DEVICE, CHANNEL + 1], 0xc86f, channel(1, 0, 0, 10, 0)), OK);
    let directories: Vec<_> =
        talk.driver.back.live().values().map(|channel| channel.page_directory).collect();
    assert_eq!(directories, [PhysicalAddress { aperture: Aperture::Vram, address: 0x50_0000 }]);
}

#[test]
fn page_tables_move_under_channels_of_the_driver_and_not_under_those_that_run() {
    let mut talk = cuda();
    assert_eq!(alloc(&mut talk, [UVM, DEVICE, 5], 0x90f1, space(4)), OK);
    assert_eq!(alloc(&mut talk, [UVM, DEVICE, 8], 0xa06c, words(&[0, 0, 5, 10, 0])), OK);
    assert_eq!(alloc(&mut talk, [UVM, 8, 0x12], 0xc86f, channel(3, 0, 0, 10, 2)), OK);
    for address in [0x40_0000, 0x40_2000] {
        assert_eq!(set_directory(&mut talk, UVM, DEVICE, 5, address), OK);
    }

    assert_eq!(alloc(&mut talk, [CLIENT, GROUP, CHANNEL], 0xc86f, channel(7, SHARE, 0, 1, 0)), OK);
    assert_eq!(set_directory(&mut talk, UVM, DEVICE, SPACE + 1, 0x40_3000), STATE_IN_USE);
    assert_eq!(set_directory(&mut talk, UVM, DEVICE, SPACE + 1, 0x40_1000), OK);
    assert_eq!(free(&mut talk, [CLIENT, CHANNEL]), OK);
    assert_eq!(unset_directory(&mut talk, UVM, DEVICE, SPACE + 1), OK);
    assert_eq!(alloc(&mut talk, [CLIENT, GROUP, CHANNEL], 0xc86f, channel(7, SHARE, 0, 1, 0)), INVALID_STATE);
}

#[test]
fn names_of_what_is_gone_are_names_of_nothing() {
    let mut talk = cuda();
    assert_eq!(duplicate(&mut talk, [UVM, DEVICE, 0x41], [CLIENT, GROUP]), OK);
    assert_eq!(duplicate(&mut talk, [UVM, 0x41, 0x43], [CLIENT, SHARE]), OK);
    assert_eq!(alloc(&mut talk, [UVM, 0x41, 0x44], 0xc574, words(&[CLIENT, CHANNEL])), OK);
    // A name of a name is one of the object.
    assert_eq!(duplicate(&mut talk, [UVM, DEVICE, 0x45], [UVM, SPACE + 1]), OK);
    assert_eq!(free(&mut talk, [UVM, SPACE + 1]), OK);
    assert_eq!(set_directory(&mut talk, UVM, DEVICE, 0x45, 0x40_1000), OK);

    assert_eq!(free(&mut talk, [CLIENT, CLIENT]), OK);
    assert_eq!(set_directory(&mut talk, UVM, DEVICE, 0x45, 0x40_1000), INVALID_OBJECT_HANDLE);
    for handle in [0x44, 0x43, 0x41, 0x45] {
        assert_eq!(free(&mut talk, [UVM, handle]), OK);
    }
}

#[test]
fn lies_about_other_objects_are_refused_and_leave_nothing() {
    let mut talk = cuda();
    let before = talk.driver.gsp.objects();
    // What cannot be shared, what is not there, and what belongs elsewhere.
    for (names, source, status) in [
        ([UVM, UVM, 0x41], [CLIENT, DEVICE], NOT_SUPPORTED),
        ([UVM, DEVICE, 0x41], [CLIENT, 0x99], 0x57),
        ([UVM, DEVICE, 0x41], [0x1234, SPACE], 0x23),
        ([UVM, DEVICE, 0x41], [CLIENT, SHARE], INVALID_OBJECT_PARENT),
        ([UVM, SPACE + 1, 0x41], [CLIENT, GROUP], INVALID_OBJECT_PARENT),
        ([0x1234, DEVICE, 0x41], [CLIENT, SPACE], 0x23),
        ([UVM, DEVICE, SPACE + 1], [CLIENT, SPACE], 0x19),
    ] {
        assert_eq!(duplicate(&mut talk, names, source), status, "{names:x?} {source:x?}");
    }
    let mut refused = |names, class, parameters, status| {
        assert_eq!(alloc(&mut talk, names, class, parameters), status, "{names:x?} {class:x}");
    };
    // A share of another group, or of none; a group's and a share's address space.
    refused([CLIENT, DEVICE, CHANNEL], 0xc86f, channel(7, SHARE, 0, 1, 0), INVALID_OBJECT_HANDLE);
    refused([CLIENT, GROUP, CHANNEL], 0xc86f, channel(7, SPACE, 0, 1, 0), INVALID_OBJECT_HANDLE);
    refused([CLIENT, GROUP, CHANNEL], 0xc86f, channel(7, 0, GROUP, 1, 0), INVALID_OBJECT_HANDLE);
    refused([CLIENT, GROUP, CHANNEL], 0xc86f, channel(7, SHARE, 0, 99, 0), INVALID_ARGUMENT);
    refused([CLIENT, DEVICE, 0x50], 0xa06c, words(&[0, 0, SHARE, 1, 0]), INVALID_OBJECT_HANDLE);
    refused([CLIENT, DEVICE, 0x50], 0xa06c, words(&[0, 0, 0, 1]), 0x3a);
    refused([CLIENT, GROUP, 0x50], 0x9067, words(&[DEVICE, 0, 0]), INVALID_OBJECT_HANDLE);
    // A user's channel in an address space that another client can change.
    refused([UVM, DEVICE, CHANNEL], 0xc86f, channel(7, 0, SPACE + 1, 1, 0), INVALID_OBJECT_HANDLE);
    assert_eq!(set_directory(&mut talk, CLIENT, GROUP, 0, 0x40_0000), INVALID_OBJECT_HANDLE);
    assert_eq!(set_directory(&mut talk, CLIENT, DEVICE, 0, 0x40_0000), INVALID_ARGUMENT);
    assert_eq!(set_directory(&mut talk, CLIENT, DEVICE, SPACE, 0x40_0010), 0x1e);
    assert_eq!(talk.driver.gsp.objects(), before);
    assert!(talk.driver.back.live().is_empty());
}

#[test]
fn saved_state_has_groups_names_and_the_page_tables_of_devices() {
    let mut talk = cuda();
    assert_eq!(alloc(&mut talk, [UVM, DEVICE, 0xc], 0x90f1, space_of_device()), OK);
    let mut pdes = words(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0x50_0000, 0, 16, 0, 1, 56]);
    pdes.resize(184, 0);
    assert_eq!(control(&mut talk, [UVM, 0xc], 0x90f1_0106, pdes), OK);
    assert_eq!(alloc(&mut talk, [CLIENT, GROUP, CHANNEL], 0xc86f, channel(7, SHARE, 0, 1, 0)), OK);
    assert_eq!(alloc(&mut talk, [UVM, DEVICE, CHANNEL], 0xc86f, channel(8, 0, 0, 1, 0)), OK);

    talk.driver.restore();

    assert_eq!(alloc(&mut talk, [CLIENT, GROUP, CHANNEL + 1], 0xc86f, channel(9, SHARE, 0, 1, 0)), OK);
    let live: Vec<_> =
        talk.driver.back.live().values().map(|channel| channel.page_directory.address).collect();
    assert_eq!(live, [0x40_1000, 0x50_0000, 0x40_1000]);
}

#[test]
fn stopped_channel_is_told_of_in_this_versions_event() {
    let mut talk = cuda();
    assert_eq!(alloc(&mut talk, [CLIENT, GROUP, CHANNEL], 0xc86f, channel(7, SHARE, 0, 1, 0)), OK);
    talk.driver.events.clear();

    let cause = StopCause::Host(HostError { pbdma: 0, status: 1, method: 0, data: 0 });
    talk.driver.gsp.stopped(&talk.driver.back, ChannelStop { channel: GuestChannel(0), cause });
    talk.driver.poll();

    let event = &talk.driver.events[1];
    assert_eq!((event.function, event.body.len()), (0x1004, 0x1c));
    assert_eq!([0, 4, 0xc].map(|at| event.word(at)), [1, 7, 32]);
}

#[test]
fn driver_is_told_that_it_cannot_be_suspended_and_goes_on() {
    let mut talk = cuda();
    let suspend = Step::Rpc { function: UNLOADING, body: vec![1, 0, 0, 0, 3, 0, 0, 0] };
    assert_eq!(talk.step(&suspend).unwrap().result, NOT_SUPPORTED);
    assert_eq!(alloc(&mut talk, [CLIENT, GROUP, CHANNEL], 0xc86f, channel(7, SHARE, 0, 1, 0)), OK);
    let leave = Step::Rpc { function: UNLOADING, body: vec![0; 8] };
    assert_eq!(talk.step(&leave).unwrap().result, OK);
    assert!(talk.driver.back.live().is_empty());
}

/// Real firmware has the handle in another name space.
#[test]
fn drivers_own_clients_can_have_the_handle_that_nouveaus_firmware_has() {
    let mut talk = cuda();
    client(&mut talk, 0xc1e0_0004);
    assert_eq!(free(&mut talk, [0xc1e0_0004, 0xc1e0_0004]), OK);
    assert_eq!(free(&mut talk, [0xc1f0_0004, 0xabcd_2080]), 0x1b);
}

#[test]
fn objects_of_what_there_is_not_can_be_had_and_know_no_controls() {
    let mut talk = cuda();
    let subdevice = 0xa55a_0010;
    assert_eq!(alloc(&mut talk, [CLIENT, DEVICE, subdevice], 0x2080, vec![0; 4]), OK);
    for (handle, class, number) in [(0xa55a_0050, 0x208f, 0x208f_1105), (0xa55a_0040, 0x90e7, 0x90e7_0113)] {
        assert_eq!(alloc(&mut talk, [CLIENT, DEVICE, handle], class, Vec::new()), INVALID_OBJECT_PARENT);
        assert_eq!(alloc(&mut talk, [CLIENT, subdevice, handle], class, Vec::new()), OK, "{class:#x}");
        assert_eq!(control(&mut talk, [CLIENT, handle], number, vec![0; 8]), NOT_SUPPORTED);
        assert_eq!(free(&mut talk, [CLIENT, handle]), OK);
    }
}

#[test]
fn error_is_in_the_notifiers_of_the_whole_group_when_the_driver_is_told() {
    const NOTIFIER: u64 = 0x70_0000;
    let mut talk = cuda();
    for chid in [7, 8, 9] {
        let mut asked = channel(chid, SHARE, 0, 1, 0);
        let place = u32::try_from(NOTIFIER).unwrap() + 0x10 * chid;
        // Of the last, system memory that the driver does not have.
        let aperture = if chid == 9 { 1 } else { 2 };
        for (at, word) in [(0xf8, place), (0x100, 16), (0x108, aperture)] {
            asked[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        assert_eq!(alloc(&mut talk, [CLIENT, GROUP, CHANNEL + chid], 0xc86f, asked), OK);
    }
    talk.driver.events.clear();

    let cause = StopCause::Host(HostError { pbdma: 0, status: 1, method: 0, data: 0 });
    talk.driver.gsp.stopped(&talk.driver.back, ChannelStop { channel: GuestChannel(1), cause });
    talk.driver.poll();

    for chid in [7, 8] {
        let word = |at: u64| talk.driver.back.vram_word(NOTIFIER + 0x10 * chid + at);
        // The number of the error, the engine, and that it is one.
        assert_eq!([8, 12].map(word), [32, 0xffff_0001], "{chid}");
    }
    let [log, event] = &talk.driver.events[..] else { panic!("{:?}", talk.driver.events) };
    assert_eq!((log.function, event.function), (0x1006, 0x1004));
    assert_eq!([0, 4, 8].map(|at| log.word(at)), [32, 0, 8], "error, runlist, channel");
    let said = String::from_utf8(log.body[12..].to_vec()).unwrap();
    assert_eq!(
        said.trim_end_matches('\0'),
        "Ch 00000008, GRAPHICS: the host unit could not carry a command out"
    );
    assert_eq!(
        [4, 0xc, 0x10].map(|at| event.word(at)),
        [8, 32, 1],
        "channel, error, and that it is the group's"
    );
}

#[test]
fn debugger_is_told_of_the_fault_that_ended_a_context() {
    const DEBUGGER: u32 = 0x5c00_007c;
    let mut talk = cuda();
    for chid in [7, 8] {
        let asked = channel(chid, SHARE, 0, 1, 0);
        assert_eq!(alloc(&mut talk, [CLIENT, GROUP, CHANNEL + chid], 0xc86f, asked), OK);
    }
    assert_eq!(alloc(&mut talk, [CLIENT, DEVICE, DEBUGGER], 0x83de, words(&[0, CLIENT, 0])), OK);
    let read = |talk: &mut Talk, handle: u32| {
        let mut parameters = words(&[handle, 100]);
        parameters.resize(4824, 0xff);
        let to = Some([CLIENT, DEBUGGER]);
        let answer = talk.step(&Step::Control { to, number: 0x83de_030c, parameters }).unwrap();
        assert!(answer.rest[8..0x12c8].iter().all(|byte| *byte == 0), "no multiprocessor reports anything");
        (answer.status, [0, 4, 0x12c8, 0x12d0].map(|at| answer.word(at)), answer.rest[0x12cc])
    };
    assert_eq!(read(&mut talk, CHANNEL + 7), (OK, [CHANNEL + 7, 100, 0, 0], 0));

    let fault = MmuFault {
        unit: FaultUnit::Engine(Engine::Graphics),
        address: GpuVa(0x10_0000_0000),
        access: AccessKind::Write,
        reason: FaultReason::PageNotPresent,
    };
    let stop = ChannelStop { channel: GuestChannel(1), cause: StopCause::Fault(fault) };
    talk.driver.gsp.stopped(&talk.driver.back, stop);
    talk.driver.poll();

    // Type 2, a write, valid: of each channel of the group.
    for chid in [7, 8] {
        let said = read(&mut talk, CHANNEL + chid);
        assert_eq!(said, (OK, [CHANNEL + chid, 100, 0x8001_0002, 0x8001_0002], 1));
    }
    let other = talk.step(&Step::Control {
        to: Some([CLIENT, DEBUGGER]),
        number: 0x83de_030c,
        parameters: vec![0; 4824],
    });
    assert_eq!(other.unwrap().status, OBJECT_NOT_FOUND);
}
