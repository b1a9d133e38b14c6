//! The host unit's state of one channel, and its place in the instance block (RAMFC).
//!
//! The driver writes the initial state; the PBDMA loads it with the channel and saves it when the channel
//! leaves. RAMFC mirrors the PBDMA's registers (envytools `rnndb/fifo/gf100_pfifo.xml`, PSUBFIFO). What this
//! PBDMA has and hardware keeps elsewhere is in words that drivers leave 0 (0xb0) or in unused bits.

use crate::words::{read_u32, read_u64};
use gpuvmk_chip::gf100::methods::host::{ENGINE_COPY0, ENGINE_GRAPHICS, ENGINE_SOFTWARE};
use gpuvmk_chip::gf100::ramin::{
    RAMFC_ACQUIRE, RAMFC_GP_BASE_HI, RAMFC_GP_BASE_LO, RAMFC_SIGNATURE, RAMFC_USERD_LO, SIGNATURE,
};
use gpuvmk_chip::stream::{Header, Method, Stepping};
use gpuvmk_chip::{Aperture, Engine, PhysicalAddress};

/// Highest address of 40 bits.
const NARROW: u64 = (1 << 40) - 1;

/// Bytes of RAMFC that the PBDMA loads and saves.
pub(crate) const RAMFC_SIZE: usize = 0x100;

const GP_PUT: u64 = 0x00;
const GP_GET: u64 = 0x14;
const GET: u64 = 0x18;
const REFERENCE: u64 = 0x28;
const SEMAPHORE_HIGH: u64 = 0x38;
const SEMAPHORE_LOW: u64 = 0x3c;
const SEMAPHORE_VALUE: u64 = 0x40;
const SEMAPHORE_STATE: u64 = 0x44;
const END: u64 = 0x5c;
const HEADER: u64 = 0x84;
const HEADER_COUNT: u64 = 0x88;
/// Engine numbers by subchannel, a byte each.
pub(crate) const ENGINES: u64 = 0xa4;
const CURRENT_ENGINE: u64 = 0xac;
/// Only where virtual addresses have more than 40 bits: address bits 56:40 of segments.
const SEGMENT_BASE: u64 = 0xb0;
/// Only there: high word of the semaphore's value.
const SEMAPHORE_VALUE_HIGH: u64 = 0xb4;
const CACHE_METHOD: u64 = 0xc0;
const CACHE_DATA: u64 = 0xc4;

/// [`SEMAPHORE_STATE`]: the acquire has not succeeded yet.
const ACQUIRE_PENDING: u32 = 1 << 19;
/// [`CURRENT_ENGINE`]: the engine has not finished its method.
const OPERATION_PENDING: u32 = 1 << 8;
/// [`CACHE_METHOD`]: a method waits for its engine.
const CACHE_VALID: u32 = 1 << 31;

/// How wide a chip's addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressMasks {
    /// Highest virtual address.
    pub(crate) va_max: u64,
    /// Address bits of a USERD.
    pub(crate) userd: u64,
}

/// The semaphore methods' operands, and an acquire under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Semaphore {
    pub(crate) address: u64,
    pub(crate) value: u64,
    pub(crate) operation: u32,
    pub(crate) pending: bool,
}

/// The channel as the PBDMA knows it while it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostState {
    /// RAMFC as loaded: what the PBDMA does not interpret goes back unchanged.
    raw: [u8; RAMFC_SIZE],
    /// Virtual addresses have more than 40 bits.
    wide: bool,
    pub(crate) signed: bool,
    pub(crate) userd: PhysicalAddress,
    pub(crate) ring: u64,
    pub(crate) ring_log2: u8,
    /// Next ring entry to fetch.
    pub(crate) gp_get: u32,
    /// End of the valid ring entries.
    pub(crate) gp_put: u32,
    /// Address bits above 39 of the next segments.
    pub(crate) segment_base: u64,
    /// Next word of the current segment.
    pub(crate) get: u64,
    /// End of the current segment.
    pub(crate) end: u64,
    pub(crate) header: Header,
    pub(crate) semaphore: Semaphore,
    pub(crate) reference: u32,
    /// Engine number by subchannel, as SET_OBJECT gives it.
    pub(crate) engines: [u8; 8],
    /// The engine that the last method went to, as a number.
    pub(crate) current_engine: u8,
    /// That engine has not finished.
    pub(crate) operation_pending: bool,
    /// A method that could not be given to its engine yet.
    pub(crate) cached: Option<Method>,
}

/// The number of an engine; Fermi's numbering, continued.
pub(crate) fn engine_number(engine: Engine) -> u8 {
    match engine {
        Engine::Graphics => ENGINE_GRAPHICS,
        Engine::Copy(copy) => ENGINE_COPY0.saturating_add(copy),
    }
}

/// A RAMFC of a channel that has done nothing, with its USERD in VRAM.
pub(crate) fn compose(userd: u64, ring: u64, ring_log2: u8, engines: [u8; 8]) -> [u8; RAMFC_SIZE] {
    let mut raw = [0; RAMFC_SIZE];
    let base = ring & NARROW | u64::from(ring_log2 & 0x1f) << 48;
    let fields: [(u64, &[u8]); 5] = [
        (RAMFC_USERD_LO, &userd.to_le_bytes()),
        (RAMFC_SIGNATURE, &SIGNATURE.to_le_bytes()),
        (RAMFC_GP_BASE_LO, &base.to_le_bytes()),
        (ENGINES, &engines),
        (CURRENT_ENGINE, &u32::from(ENGINE_SOFTWARE).to_le_bytes()),
    ];
    for (offset, bytes) in fields {
        let place =
            usize::try_from(offset).ok().and_then(|start| raw.get_mut(start..)?.get_mut(..bytes.len()));
        if let Some(place) = place {
            place.copy_from_slice(bytes);
        }
    }
    raw
}

impl HostState {
    /// Loads RAMFC from the start of an instance block.
    pub(crate) fn load(block: &[u8], masks: &AddressMasks) -> Self {
        let va_max = masks.va_max;
        let wide = va_max > NARROW;
        let mut raw = [0; RAMFC_SIZE];
        for (to, from) in raw.iter_mut().zip(block) {
            *to = *from;
        }
        let word = |offset| read_u32(&raw, offset);
        let low8 = |word: u32, shift: u32| word.wrapping_shr(shift).to_le_bytes()[0];
        let userd = read_u64(&raw, RAMFC_USERD_LO);
        let aperture = match userd & 3 {
            0 | 1 => Aperture::Vram,
            2 => Aperture::SystemCoherent,
            _ => Aperture::SystemNonCoherent,
        };
        let base_high = word(RAMFC_GP_BASE_HI);
        let state = word(SEMAPHORE_STATE);
        let header = word(HEADER);
        let cached = word(CACHE_METHOD);
        let [first, second] = [word(ENGINES), word(ENGINES + 4)].map(u32::to_le_bytes);
        let mut engines = [ENGINE_SOFTWARE; 8];
        for (to, from) in engines.iter_mut().zip(first.into_iter().chain(second)) {
            *to = from & 0x1f;
        }
        let current = word(CURRENT_ENGINE);
        let value_high = if wide { u64::from(word(SEMAPHORE_VALUE_HIGH)) } else { 0 };
        Self {
            wide,
            signed: word(RAMFC_SIGNATURE) & 0xffff == SIGNATURE,
            userd: PhysicalAddress { aperture, address: userd & masks.userd },
            ring: u64::from(base_high & 0xff) << 32 | u64::from(word(RAMFC_GP_BASE_LO)),
            ring_log2: low8(base_high, 16) & 0x1f,
            gp_get: word(GP_GET),
            gp_put: word(GP_PUT),
            segment_base: if wide { u64::from(word(SEGMENT_BASE)) << 40 & va_max } else { 0 },
            get: read_u64(&raw, GET) & va_max,
            end: read_u64(&raw, END) & (va_max << 1 | 1),
            header: Header {
                stepping: match header >> 29 {
                    1 => Stepping::Increment,
                    5 => Stepping::IncrementOnce,
                    _ => Stepping::Fixed,
                },
                subchannel: low8(header, 16) & 7,
                method: method_of(header),
                remaining: halfword(word(HEADER_COUNT)) & 0x1fff,
            },
            semaphore: Semaphore {
                address: (u64::from(word(SEMAPHORE_HIGH)) << 32 | u64::from(word(SEMAPHORE_LOW) & !3))
                    & va_max,
                value: value_high << 32 | u64::from(word(SEMAPHORE_VALUE)),
                operation: state & !ACQUIRE_PENDING,
                pending: state & ACQUIRE_PENDING != 0,
            },
            reference: word(REFERENCE),
            engines,
            current_engine: low8(current, 0) & 0x1f,
            operation_pending: current & OPERATION_PENDING != 0,
            cached: (cached & CACHE_VALID != 0).then(|| Method {
                subchannel: low8(cached, 16) & 7,
                method: method_of(cached),
                data: word(CACHE_DATA),
            }),
            raw,
        }
    }

    /// RAMFC with the present state.
    pub(crate) fn save(&self) -> [u8; RAMFC_SIZE] {
        let mut raw = self.raw;
        let mut put = |offset: u64, word: u32| {
            let place = usize::try_from(offset).ok().and_then(|offset| raw.get_mut(offset..offset + 4));
            if let Some(place) = place {
                place.copy_from_slice(&word.to_le_bytes());
            }
        };
        let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap_or(0);
        put(GP_PUT, self.gp_put);
        put(GP_GET, self.gp_get);
        put(GET, low(self.get));
        put(GET + 4, low(self.get >> 32));
        put(END, low(self.end));
        put(END + 4, low(self.end >> 32));
        put(REFERENCE, self.reference);
        put(SEMAPHORE_HIGH, low(self.semaphore.address >> 32));
        put(SEMAPHORE_LOW, low(self.semaphore.address));
        put(SEMAPHORE_VALUE, low(self.semaphore.value));
        if self.wide {
            put(SEMAPHORE_VALUE_HIGH, low(self.semaphore.value >> 32));
            put(SEGMENT_BASE, low(self.segment_base >> 40));
        }
        let pending = if self.semaphore.pending { ACQUIRE_PENDING } else { 0 };
        put(SEMAPHORE_STATE, self.semaphore.operation | pending);
        if self.header.remaining > 0 {
            let mode = match self.header.stepping {
                Stepping::Increment => 1,
                Stepping::Fixed => 3,
                Stepping::IncrementOnce => 5,
            };
            let address = u32::from(self.header.method) | u32::from(self.header.subchannel) << 16;
            put(HEADER, mode << 29 | address);
        }
        put(HEADER_COUNT, u32::from(self.header.remaining));
        let [a, b, c, d, e, f, g, h] = self.engines;
        put(ENGINES, u32::from_le_bytes([a, b, c, d]));
        put(ENGINES + 4, u32::from_le_bytes([e, f, g, h]));
        let operation = if self.operation_pending { OPERATION_PENDING } else { 0 };
        put(CURRENT_ENGINE, u32::from(self.current_engine) | operation);
        put(CACHE_METHOD, self.cached.map_or(0, |method| method.address_word() | CACHE_VALID));
        put(CACHE_DATA, self.cached.map_or(0, |method| method.data));
        raw
    }

    /// Ring entries.
    pub(crate) fn ring_entries(&self) -> u64 {
        1 << self.ring_log2
    }

    /// How long an acquire may take, in microseconds; `None`: for ever.
    pub(crate) fn acquire_limit(&self) -> Option<u64> {
        let config = read_u32(&self.raw, RAMFC_ACQUIRE);
        let enabled = config & (1 << 31) != 0;
        enabled.then(|| u64::from((config >> 15) & 0xffff) << ((config >> 11) & 0xf))
    }
}

/// The byte address in bits 13:2 of a word.
fn method_of(word: u32) -> u16 {
    halfword(word) & 0x3ffc
}

fn halfword(word: u32) -> u16 {
    let [low, high, _, _] = word.to_le_bytes();
    u16::from_le_bytes([low, high])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::{GF100, GH100};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn saved_state_loads_as_itself(bytes in proptest::collection::vec(any::<u8>(), RAMFC_SIZE)) {
            for chip in [&GF100, &GH100] {
            let mut state = HostState::load(&bytes, &chip.masks);
            state.gp_get = state.gp_get.wrapping_add(1);
            state.operation_pending = !state.operation_pending;
            let again = HostState::load(&state.save(), &chip.masks);
            let unused_header = Header { remaining: 0, ..again.header };
            if state.header.remaining == 0 {
                state.header = unused_header;
            }
            prop_assert_eq!(HostState { raw: again.raw, ..state }, again);
            }
        }
    }

    #[test]
    fn nouveaus_initial_ramfc_is_an_idle_channel() {
        let mut block = [0; RAMFC_SIZE];
        let words = [
            (0x08, 0x0123_4000),
            (0x10, 0xface),
            (0x30, 0xffff_f902),
            (0x48, 0x0010_0000),
            (0x4c, 0x0009_0012),
            (0x54, 2),
            (0x84, 0x2040_0000),
            (0x94, 0x3000_0fff),
            (0xa4, 0x1f1f_1f1f),
            (0xa8, 0x1f1f_1f1f),
            (0xac, 0x1f),
        ];
        for (offset, word) in words {
            block[offset..offset + 4].copy_from_slice(&u32::to_le_bytes(word));
        }

        let state = HostState::load(&block, &GF100.masks);

        assert!(state.signed);
        assert_eq!(state.userd, PhysicalAddress { aperture: Aperture::Vram, address: 0x0123_4000 });
        assert_eq!((state.ring, state.ring_entries()), (0x12_0010_0000, 512));
        assert_eq!((state.gp_get, state.get, state.end, state.header.remaining), (0, 0, 0, 0));
        assert_eq!(state.engines, [ENGINE_SOFTWARE; 8]);
        assert!(state.cached.is_none() && !state.operation_pending && !state.semaphore.pending);
        assert_eq!(state.acquire_limit(), Some(0xffff << 15));
    }
}
