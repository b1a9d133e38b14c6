//! State of each channel number that front-end threads and the link's thread share without a lock.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::{Aperture, EngineSet, PhysicalAddress};

/// The host has this channel.
const LIVE: u8 = 1 << 0;
/// A preemption was started and is not complete.
const PREEMPTING: u8 = 1 << 1;
/// Hardware stopped the channel; the front-end side does not know yet.
const FAULTED: u8 = 1 << 2;

/// The guest started the channel, the host does not have it, and the guest does not know yet.
const REFUSED: u8 = 1 << 3;

/// Channel numbers of the largest chip whose driver takes a fixed number of channels for granted.
const NUMBERS: u16 = gpuvmk_chip::gf100::CHANNELS;

/// Bits of [`Slot::instance`] below the page address: the aperture.
const INSTANCE_APERTURE: u64 = 3;
const INSTANCE_PAGE: u64 = !0xfff;

#[derive(Debug, Default)]
struct Slot {
    flags: AtomicU8,
    /// The instance block of a live channel, packed.
    instance: AtomicU64,
    /// Engines that its host channel has contexts for, as the bits of an [`EngineSet`].
    engines: AtomicU64,
}

/// The instance block of a live channel, and the engines that its host channel has contexts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    pub instance: PhysicalAddress,
    pub engines: EngineSet,
}

/// All channel numbers of a vGPU.
#[derive(Debug)]
pub struct ChannelFlags {
    slots: Box<[Slot]>,
    preempting: AtomicUsize,
}

impl ChannelFlags {
    /// `channels` were granted; a guest may use other numbers all the same.
    pub fn new(channels: u16) -> Self {
        let slots = (0..channels.max(NUMBERS)).map(|_| Slot::default()).collect();
        Self { slots, preempting: AtomicUsize::new(0) }
    }

    fn flags(&self, channel: GuestChannel) -> Option<&AtomicU8> {
        self.slots.get(usize::from(channel.0)).map(|slot| &slot.flags)
    }

    /// True when the host has the channel.
    pub fn is_live(&self, channel: GuestChannel) -> bool {
        self.flags(channel).is_some_and(|flags| flags.load(Ordering::Acquire) & LIVE != 0)
    }

    /// The host has the channel from now on.
    pub fn set(&self, channel: GuestChannel) {
        if let Some(flags) = self.flags(channel) {
            flags.store(LIVE, Ordering::Release);
        }
    }

    /// The host does not have the channel any more; what was pending for it is over.
    pub fn clear(&self, channel: GuestChannel) {
        self.end_preemption(channel);
        if let Some(flags) = self.flags(channel) {
            flags.store(0, Ordering::Release);
        }
    }

    /// The guest started a channel that the host does not have.
    pub fn refuse(&self, channel: GuestChannel) {
        if let Some(flags) = self.flags(channel) {
            flags.fetch_or(REFUSED, Ordering::AcqRel);
        }
    }

    /// True, once, for a channel that was refused: when the guest gives it work, or has stopped it.
    pub fn take_refusal(&self, channel: GuestChannel) -> bool {
        self.flags(channel).is_some_and(|flags| flags.fetch_and(!REFUSED, Ordering::AcqRel) & REFUSED != 0)
    }

    /// Forgets all channels.
    pub fn clear_all(&self) {
        for channel in 0..u16::try_from(self.slots.len()).unwrap_or(u16::MAX) {
            self.clear(GuestChannel(channel));
        }
    }

    /// Hardware stopped the channel. False when the host does not have it any more.
    pub fn stop(&self, channel: GuestChannel) -> bool {
        let mark = |flags: u8| (flags & LIVE != 0).then_some(flags | FAULTED);
        self.flags(channel)
            .is_some_and(|flags| flags.fetch_update(Ordering::AcqRel, Ordering::Acquire, mark).is_ok())
    }

    /// True, once, when hardware stopped the channel.
    pub fn take_fault(&self, channel: GuestChannel) -> bool {
        self.flags(channel).is_some_and(|flags| flags.fetch_and(!FAULTED, Ordering::AcqRel) & FAULTED != 0)
    }

    /// Notes that a preemption begins, before the request is sent: the event may be faster than the reply.
    pub fn begin_preemption(&self, channel: GuestChannel) {
        if let Some(flags) = self.flags(channel)
            && flags.fetch_or(PREEMPTING, Ordering::AcqRel) & PREEMPTING == 0
        {
            self.preempting.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Notes that the preemption is over.
    pub fn end_preemption(&self, channel: GuestChannel) {
        if let Some(flags) = self.flags(channel)
            && flags.fetch_and(!PREEMPTING, Ordering::AcqRel) & PREEMPTING != 0
        {
            self.preempting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// True while a preemption is not complete.
    pub fn preemption_pending(&self) -> bool {
        self.preempting.load(Ordering::Acquire) != 0
    }

    /// Notes what the doorbell must compare with the guest's instance block. A doorbell that comes meanwhile
    /// may meet the block of before with the engines of now: it finds engines that are the channel's already,
    /// or misses some, which the next one finds.
    pub fn watch(&self, channel: GuestChannel, watched: Watched) {
        let aperture = match watched.instance.aperture {
            Aperture::Vram => 0,
            Aperture::SystemCoherent => 2,
            Aperture::SystemNonCoherent => 3,
        };
        if let Some(slot) = self.slots.get(usize::from(channel.0)) {
            slot.engines.store(watched.engines.bits(), Ordering::Release);
            slot.instance.store(watched.instance.address & INSTANCE_PAGE | aperture, Ordering::Release);
        }
    }

    /// The notes about a live channel; `None` if it is not live.
    pub fn watched(&self, channel: GuestChannel) -> Option<Watched> {
        let slot = self.slots.get(usize::from(channel.0))?;
        if slot.flags.load(Ordering::Acquire) & LIVE == 0 {
            return None;
        }
        let packed = slot.instance.load(Ordering::Acquire);
        let aperture = match packed & INSTANCE_APERTURE {
            2 => Aperture::SystemCoherent,
            3 => Aperture::SystemNonCoherent,
            _ => Aperture::Vram,
        };
        let instance = PhysicalAddress { aperture, address: packed & INSTANCE_PAGE };
        let engines = EngineSet::from_bits_retain(slot.engines.load(Ordering::Acquire));
        Some(Watched { instance, engines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watched_block_reads_back_while_the_channel_is_live() {
        let live = ChannelFlags::new(2);
        let instance = PhysicalAddress { aperture: Aperture::SystemNonCoherent, address: 0xff_ffff_f000 };
        let watched = Watched { instance, engines: EngineSet::all() };
        live.set(GuestChannel(1));
        live.watch(GuestChannel(1), watched);
        assert_eq!(
            (live.watched(GuestChannel(0)), live.watched(GuestChannel(1)), live.watched(GuestChannel(2))),
            (None, Some(watched), None)
        );
        live.clear(GuestChannel(1));
        assert_eq!(live.watched(GuestChannel(1)), None);
    }

    #[test]
    fn preemptions_are_pending_until_each_has_ended() {
        let live = ChannelFlags::new(2);
        live.begin_preemption(GuestChannel(0));
        live.begin_preemption(GuestChannel(0));
        live.begin_preemption(GuestChannel(1));
        live.end_preemption(GuestChannel(0));
        assert!(live.preemption_pending());
        live.clear(GuestChannel(1));
        assert!(!live.preemption_pending());
    }

    #[test]
    fn refusal_is_told_once_and_not_of_a_channel_that_came_after_all() {
        let live = ChannelFlags::new(2);
        for channel in [1, 100] {
            live.refuse(GuestChannel(channel));
            assert!(live.take_refusal(GuestChannel(channel)) && !live.take_refusal(GuestChannel(channel)));
        }
        live.refuse(GuestChannel(0));
        live.set(GuestChannel(0));
        assert!(live.is_live(GuestChannel(0)) && !live.take_refusal(GuestChannel(0)));
        live.refuse(GuestChannel(u16::MAX));
        assert!(!live.take_refusal(GuestChannel(u16::MAX)));
    }

    #[test]
    fn only_a_live_channel_can_be_stopped_and_it_is_told_once() {
        let live = ChannelFlags::new(1);
        assert!(!live.stop(GuestChannel(0)));
        live.set(GuestChannel(0));
        assert!(live.stop(GuestChannel(0)));
        assert!(live.take_fault(GuestChannel(0)) && !live.take_fault(GuestChannel(0)));
    }
}
