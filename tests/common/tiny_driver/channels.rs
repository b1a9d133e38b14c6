//! Channels and what is submitted on them.

use super::commands::{class_of, engine_number, m2mf_copy, m2mf_fill, method, pcopy_copy};
use super::*;
use gpuvmk::chip::stream::GPFIFO_ENTRY_SIZE;

/// Bytes of a ring slot's pushbuffer.
const PUSH_SIZE: u64 = 0x400;
/// Bytes of a context image.
const CONTEXT_SIZE: u64 = 0x4000;

impl TinyDriver {
    /// A channel as nouveau makes one: bound, started and on the runlist; then stopped, preempted, given its
    /// engine context, and started again. Its ring lies at `base_va`.
    pub fn new_channel(&mut self, space: &mut Space, id: u16, engine: Engine, base_va: u64) -> Channel {
        let channel = self.new_channel_without_context(space, id, engine, base_va);
        self.stop(id);
        self.preempt(id);
        self.write_context_pointer(&channel);
        self.start(id);
        channel
    }

    /// A channel as nouveau of Linux 6.1 makes one: its context pointer is written while it runs.
    pub fn new_channel_61(&mut self, space: &mut Space, id: u16, engine: Engine, base_va: u64) -> Channel {
        let channel = self.new_channel_without_context(space, id, engine, base_va);
        self.write_context_pointer(&channel);
        channel
    }

    fn new_channel_without_context(
        &mut self,
        space: &mut Space,
        id: u16,
        engine: Engine,
        base_va: u64,
    ) -> Channel {
        let ring_size = GPFIFO_ENTRY_SIZE << RING_LOG2;
        let size = (0x1000 + (PUSH_SIZE << RING_LOG2) + CONTEXT_SIZE + 0x1000).next_multiple_of(0x1000);
        assert!(ring_size <= 0x1000);
        let base = self.alloc(size, 0x1000);
        self.zero(base, size);
        self.map(space, base_va, vram(base), size);
        self.flush(space);

        let userd = self.userd + u64::from(id) * ramin::USERD_SIZE;
        self.zero(userd, ramin::USERD_SIZE);
        let instance = self.alloc(ramin::INSTANCE_SIZE, 0x1000);
        self.zero(instance, ramin::INSTANCE_SIZE);
        let words = [
            (ramin::RAMFC_USERD_LO, userd as u32),
            (ramin::RAMFC_USERD_HI, (userd >> 32) as u32),
            (ramin::RAMFC_SIGNATURE, ramin::SIGNATURE),
            (ramin::RAMFC_ACQUIRE, 0xffff_f902),
            (ramin::RAMFC_GP_BASE_LO, base_va as u32),
            (ramin::RAMFC_GP_BASE_HI, (base_va >> 32) as u32 | RING_LOG2 << 16),
            (0x54, 2),
            (0x84, 0x2040_0000),
            (0x94, 0x3000_0fff),
            (0x9c, 0x100),
            (0xa4, 0x1f1f_1f1f),
            (0xa8, 0x1f1f_1f1f),
            (0xac, 0x1f),
            (0xb8, 0xf800_0000),
            (0xf8, 0x1000_3080),
            (0xfc, 0x1000_0010),
            (ramin::PAGE_DIRECTORY_LO, space.directory as u32),
            (ramin::PAGE_DIRECTORY_HI, (space.directory >> 32) as u32),
            (ramin::VA_LIMIT_LO, u32::MAX),
            (ramin::VA_LIMIT_HI, 0xff),
        ];
        for (offset, value) in words {
            self.write_vram_u32(instance + offset, value);
        }
        let channel = Channel { id, instance, userd, base_va, base, engine, put: 0, fence: 0 };
        self.bind(&channel);
        self.start(id);
        self.runlist.retain(|other| *other != id);
        self.runlist.push(id);
        self.commit_runlist();
        channel
    }

    fn write_context_pointer(&mut self, channel: &Channel) {
        let context = channel.base_va + 0x1000 + (PUSH_SIZE << RING_LOG2);
        let pointer = ids(channel.engine).unwrap().context;
        self.write_vram_u64(
            channel.instance + pointer,
            context | u64::from(ramin::GRAPHICS_CONTEXT_LO::VIRTUAL.mask()),
        );
    }

    pub fn bind(&self, channel: &Channel) {
        let value = 0xc000_0000 | page(channel.instance);
        self.write(pfifo::NV_PFIFO_CHAN_INST.at(u32::from(channel.id)), value);
    }

    pub fn unbind(&mut self, id: u16) {
        self.stop(id);
        self.preempt(id);
        self.runlist.retain(|other| *other != id);
        self.commit_runlist();
        self.write(pfifo::NV_PFIFO_CHAN_INST.at(u32::from(id)), 0);
    }

    pub fn start(&self, id: u16) {
        self.write(pfifo::NV_PFIFO_CHAN_STATE.at(u32::from(id)), 0x001f_0001);
    }

    pub fn stop(&self, id: u16) {
        let state = pfifo::NV_PFIFO_CHAN_STATE.at(u32::from(id));
        self.write(state, self.read(state) & !1);
    }

    pub fn preempt(&self, id: u16) {
        self.write(pfifo::NV_PFIFO_PREEMPT, u32::from(id));
        self.poll(pfifo::NV_PFIFO_PREEMPT, "the preemption", |value| value & 1 << 20 == 0);
    }

    pub fn commit_runlist(&mut self) {
        let list = self.alloc(0x1000, 0x1000);
        let entries = self.runlist.clone();
        for (id, at) in entries.iter().zip((list..).step_by(8)) {
            self.write_vram_u64(at, u64::from(*id) | u64::from(ramin::RUNLIST_ENTRY_CHANNEL) << 32);
        }
        self.write(pfifo::NV_PFIFO_RUNLIST_BASE, page(list));
        self.write(pfifo::NV_PFIFO_RUNLIST, 0x01f0_0000 | entries.len() as u32);
        self.poll(pfifo::NV_PFIFO_RUNLIST_STATUS, "the runlist", |value| value & 1 << 20 == 0);
    }

    /// Submits words: into the next pushbuffer, into the ring, and rings.
    pub fn submit(&mut self, channel: &mut Channel, words: &[u32]) {
        let next = (channel.put + 1) % (1 << RING_LOG2);
        // The slot must be free: the GPU has fetched far enough.
        wait_until("room in the ring", || self.read_vram_u32(channel.userd + ramin::USERD_GP_GET) != next);
        self.write_slot(channel, channel.put, words);
        channel.put = next;
        self.ring(channel.id, next);
    }

    /// Writes a pushbuffer and its ring entry.
    fn write_slot(&mut self, channel: &Channel, slot: u32, words: &[u32]) {
        assert!(words.len() as u64 * 4 <= PUSH_SIZE);
        let push = 0x1000 + u64::from(slot) * PUSH_SIZE;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write_vram(channel.base + push, &bytes);
        let va = channel.base_va + push;
        let entry = va & 0xffff_fffc | (va >> 32) << 32 | (words.len() as u64) << 42;
        self.write_vram_u64(channel.base + u64::from(slot) * GPFIFO_ENTRY_SIZE, entry);
    }

    /// Stores GP_PUT in the poll area.
    pub fn ring(&self, id: u16, put: u32) {
        let at = u64::from(id) * ramin::USERD_SIZE + ramin::USERD_GP_PUT;
        self.function.write(Region::Bar(1), at, &put.to_le_bytes()).unwrap();
    }

    /// Binds the channel's class to subchannel 0.
    pub fn set_object(&mut self, channel: &mut Channel) {
        let object = class_of(channel.engine) | engine_number(channel.engine) << 16;
        self.submit(channel, &[method(host::SET_OBJECT, 1), object]);
    }

    /// Submits a copy of whole 4 KiB lines with a fence behind it.
    pub fn copy(&mut self, channel: &mut Channel, from: u64, to: u64, size: u64) {
        let mut words = copy_words(channel.engine, from, to, size);
        words.extend(self.fence_words(channel));
        self.submit(channel, &words);
    }

    /// Submits a fill of the graphics engine: one line again and again, with the engine's own notification.
    pub fn fill(&mut self, channel: &mut Channel, from: u64, to: u64, line: u32, lines: u32) {
        self.submit(channel, &m2mf_fill(from, to, line, lines));
    }

    /// Fills all of an empty channel's ring: slot N is the same copy of whole 4 KiB lines so many times,
    /// which then leaves N + 1 at `mark` and notifies nobody. [`Self::submit_prepared`] submits slot by slot.
    pub fn prepare_copies(&mut self, channel: &Channel, places: [u64; 3], times: usize, mark: u64) {
        let [from, to, size] = places;
        for slot in 0..1 << RING_LOG2 {
            // To and fro.
            let (from, to) = if slot % 2 == 0 { (from, to) } else { (to, from) };
            let mut words = copy_words(channel.engine, from, to, size);
            // The last method starts a copy; the places stay.
            let again = words.split_at(words.len() - 2).1.to_vec();
            (1..times).for_each(|_| words.extend(&again));
            words.extend(release_words(mark, slot + 1));
            self.write_slot(channel, slot, &words);
        }
    }

    /// Submits the next slots of a ring that was filled before; that there is room is for the caller to see
    /// to.
    pub fn submit_prepared(&mut self, channel: &mut Channel, slots: u32) {
        channel.put = (channel.put + slots) % (1 << RING_LOG2);
        self.ring(channel.id, channel.put);
    }

    /// Submits a fence with a notification.
    pub fn fence(&mut self, channel: &mut Channel) {
        let words = self.fence_words(channel);
        self.submit(channel, &words);
    }

    fn fence_words(&self, channel: &mut Channel) -> Vec<u32> {
        channel.fence += 1;
        let mut words = release_words(channel.base_va + fence_offset(), channel.fence);
        words.extend([method(host::NON_STALL_INTERRUPT, 1), 0]);
        words
    }

    /// The ring's slot that is submitted next.
    pub fn next_slot(channel: &Channel) -> u32 {
        channel.put
    }

    pub fn fence_passed(&self, channel: &Channel) -> bool {
        self.read_vram_u32(channel.base + fence_offset()) == channel.fence
    }

    /// Waits until everything submitted is done.
    pub fn finish(&self, channel: &Channel) {
        wait_until("the fence", || self.fence_passed(channel));
    }
}

fn copy_words(engine: Engine, from: u64, to: u64, size: u64) -> Vec<u32> {
    let lines = u32::try_from(size / 0x1000).unwrap();
    match engine {
        Engine::Graphics => m2mf_copy(from, to, lines),
        _ => pcopy_copy(from, to, lines),
    }
}

/// Waits for what came before, and stores `value` at `va`.
fn release_words(va: u64, value: u32) -> Vec<u32> {
    let (high, low) = ((va >> 32) as u32, va as u32);
    let release = host::SEMAPHORE_D::OPERATION::RELEASE | host::SEMAPHORE_D::RELEASE_SIZE.mask();
    vec![method(host::WFI, 1), 0, method(host::SEMAPHORE_A, 4), high, low, value, release]
}

fn fence_offset() -> u64 {
    0x1000 + (PUSH_SIZE << RING_LOG2) + CONTEXT_SIZE
}
